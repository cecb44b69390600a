"""What a kind of drafting is: the one place that knows what a step of it did.

A policy names its family, which is a module of this folder. Replays, sweeps, servers and costs ask
the family and nothing else.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cache
from importlib import import_module
from typing import Any, Generic, TypeVar

import numpy as np

from simkit.costs.base import Model
from simkit.drafters.layout import Layout, Span
from simkit.policies import Policy, PolicyError
from simkit.steps.loop_tables import LoopPrices
from simkit.steps.steps import Steps, Sums, extra_passes
from simkit.steps.work import Work

FAMILIES = ("chain", "tree", "concurrent")

P = TypeVar("P", bound=Policy)
S = TypeVar("S", bound=Steps)


class Family(ABC, Generic[P, S]):
    """Steps of policies of one kind. Policies are given as `bind` gave them.

    Attributes:
        in_pieces: whether any span of sequences can be replayed alone, at the price of making each
            step of it.
        by_row: whether token number d of a draft is in row d of what the layout gives a start.
    """

    in_pieces: bool = False
    by_row: bool = False

    @abstractmethod
    def walk(self, policy: P, layout: Layout, first: int, span: Span | None = None) -> S:
        """Replay a policy step by step.

        Args:
            policy: of this family.
            layout: of the trace.
            first: position of each sequence's first step: 1, or 2 if the prefill emits a token.
            span: sequences to replay; None means all. Only where `in_pieces`, or `loops` is true
                and the policy's state does not last a run.

        Raises:
            ReplayError: the policy wants a row that was not recorded.
            PolicyError: the policy does not hold under the trace's sampler.
            TraceError: a column that it reads was not recorded.
        """

    @abstractmethod
    def work(self, policy: P, steps: S, layout: Layout) -> Work:
        """What steps did."""

    def loops(self, policy: P) -> bool:
        """Whether `sums` is there: a compiled loop that keeps no single step."""
        return False

    def sums(
        self, policy: P, layout: Layout, first: int, prices: LoopPrices, span: Span | None = None
    ) -> Sums:
        """The sums of each sequence; the arguments are those of `walk`, and tables of prices."""
        raise NotImplementedError

    def tokens(self, accepted: Any, steps: Any, emitted: Any) -> Any:
        """What tokens_per_step counts: a + 1, though an accepted EOS leaves no bonus token.

        Args:
            accepted: tokens, summed over `steps` steps or of each.
            steps: how many.
            emitted: tokens.
        """
        return accepted + steps

    def kind(self, policy: P, layout: Layout) -> tuple[Any, ...] | None:
        """What policies with the same loop and columns share; None if nothing is compiled."""
        return None

    def reach(self, policy: P, layout: Layout) -> dict[Model, float]:
        """How many tokens a pass of each model may have, at most."""
        one = layout.paid in ("token", "none") and not extra_passes(policy, layout)
        return {"target": policy.max_draft + 1, "draft": 1 if one else np.inf}

    def check(self, policy: P, layout: Layout) -> None:
        """Refuse a policy that reads what the drafts do not have.

        Raises:
            PolicyError: the drafts are of another kind.
            TraceError: a column is not there.
        """

    def remarks(self, policy: P, means: dict[str, float]) -> list[str]:
        """What a reader should know of a run, one line each.

        Args:
            policy: as it was given.
            means: drafted, proposed and accepted tokens a step.
        """
        return []


def family_of(policy: Policy) -> Family[Any, Any]:
    """The family that a policy names.

    Raises:
        PolicyError: it names none.
    """
    name = getattr(policy, "family", None)
    if name not in FAMILIES:
        raise PolicyError(
            f"{policy}: its family is {name!r}, not one of {', '.join(FAMILIES)}: derive the policy"
            " from Sequential, Branching or Concurrent"
        )
    return _family(name)


@cache
def _family(name: str) -> Family[Any, Any]:
    return import_module(f"simkit.steps.{name}").FAMILY


def add_up(steps: Steps, work: Work) -> Sums:
    """The sums of each sequence over steps that were replayed one by one; no seconds."""
    n = len(steps.counts)
    some = np.flatnonzero(steps.counts)

    def over(values: np.ndarray) -> np.ndarray:
        out = np.zeros(n, np.int64)
        out[some] = np.add.reduceat(values, steps.offsets[some], dtype=np.int64)
        return out

    counted = (steps.drafted, steps.draft_passes, steps.proposed, steps.accepted, work.decisions)
    drafted, passes, proposed, accepted, calls = map(over, counted)
    none = np.zeros(n)
    return Sums(steps.counts, drafted, passes, proposed, accepted, calls, none, none)
