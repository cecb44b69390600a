"""What a tree policy is: at each start, the nodes that it drafts and those that it verifies."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import fields
from typing import Any, NamedTuple

import numpy as np

from simkit.drafters.tree import TreeLayout
from simkit.policies.base import Branching
from traces.sampler import Sampler
from traces.specs import render


class Outcomes(NamedTuple):
    """What a policy does at each start, R of them, each with at most P passes of the draft.

    Attributes:
        drafted: (R,) int32, nodes that the draft proposed.
        verified: (R,) int32, nodes that the target was given, the root apart.
        accepted: (R,) int32, of those along the output.
        widths: (R, P) int32, nodes in each pass: the root is alone in the first one; 0 where there
            is none. A drafter that says all in one pass makes the first one alone.
        calls: (R,) int32, decisions whether to go on.
    """

    drafted: np.ndarray
    verified: np.ndarray
    accepted: np.ndarray
    widths: np.ndarray
    calls: np.ndarray


class TreePolicy(Branching):
    """A frozen dataclass; `max_draft` is its deepest level."""

    unnamed = False

    @property
    @abstractmethod
    def levels(self) -> int:
        """The deepest level of its nodes."""

    @property
    def max_draft(self) -> int:  # type: ignore[override]
        """See `Policy`."""
        return self.levels

    @abstractmethod
    def outcomes(self, layout: TreeLayout) -> Outcomes:
        """What it does at every start.

        Raises:
            ReplayError: nodes that it drafts were not recorded.
        """

    def columns(self, sampler: Sampler) -> tuple[str, ...]:
        """See `Policy`: nothing by row; what it reads of trees is in `TreeLayout.trees`."""
        return ()

    def __str__(self) -> str:
        """The canonical spec: the first argument, and those that differ from their defaults."""
        all_: Any = fields(self)  # type: ignore[arg-type]
        given = {
            f.name: getattr(self, f.name)
            for k, f in enumerate(all_)
            if k == 0 or getattr(self, f.name) != f.default
        }
        args = [given.pop(all_[0].name)] if self.unnamed else []
        return render(self.name, args, given)
