"""Controllers written as a Python function, in a notebook cell for instance."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from simkit.policies.arguments import whole_number
from simkit.serving.controllers.base import Controller, View


class Plain(Controller):
    """A controller of one's own in plain Python; it is not compiled.

    Every run begins with `begin`, so that an object can be used again. `View` holds copies, which
    may be kept.

    >>> class Two(simkit.serving.Plain):
    ...     name, max_draft = "two", 2
    ...     def lengths(self, view): return 2
    >>> cost = "linear(draft_s=1, target_s=10, draft_per_token_s=0.01, target_per_token_s=0.1)"
    >>> simkit.serve("reference", Two(), cost, concurrency=4, requests=40, seeds=1)
    <Served: 1 setting, 1 run>
    """

    column: str = ""
    speculative = True

    def begin(self, max_batch: int) -> None:
        """Forget what was remembered, before the first iteration."""

    def lengths(self, view: View) -> Any:
        """How many tokens each request drafts: a number, or one of each."""
        raise NotImplementedError

    def chosen(self, view: View, drafted: np.ndarray) -> Any:
        """Of the drafted tokens, how many are verified; all by default."""
        return drafted

    def observe(
        self,
        view: View,
        drafted: np.ndarray,
        proposed: np.ndarray,
        accepted: np.ndarray,
        ended: np.ndarray,
    ) -> None:
        """What came of an iteration, arrays of shape (n,)."""


@dataclass(frozen=True)
class FunctionController(Plain):
    """`function(view)` gives the lengths, see `Plain.lengths`.

    Attributes:
        function: of a `View`.
        max_draft: see `Controller`.
        needs_future: see `Controller`; with it the function may read `View.ahead`.
    """

    function: Callable[[View], Any]
    max_draft: int = whole_number(16)
    needs_future: bool = False  # type: ignore[misc]

    name = "function"

    def __str__(self) -> str:
        return getattr(self.function, "__name__", "function").replace("<lambda>", "function")

    def lengths(self, view: View) -> Any:
        """See `Plain`."""
        return self.function(view)
