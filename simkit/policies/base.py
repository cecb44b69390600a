"""What a policy is: a frozen dataclass whose state is a value passed through pure functions."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal, NamedTuple

from simkit.errors import PolicyError
from simkit.specs import render
from traces.sampler import Sampler

State = tuple
"""A flat tuple of numbers, whose length and types never change."""

Row = tuple
"""The values of a policy's columns for one draft token: float32 values, held as Python floats."""

MAX_DRAFT = 40
_MOST = 2**31 - 1  # whole arguments: compiled sums of them stay inside 64 bits


class Outcome(NamedTuple):
    """What came of a step.

    Attributes:
        drafted: draft tokens paid for.
        proposed: of those, the ones sent to the target.
        accepted: of those, the ones accepted.
        ended: whether the last accepted token was an EOS, so that no bonus token followed.
    """

    drafted: int
    proposed: int
    accepted: int
    ended: bool


class Policy(ABC):
    """Decides how many tokens to draft. Methods are pure: the state goes in and comes out.

    Attributes:
        name: the word that starts its spec.
        max_draft: the longest draft it may ask for, in tokens.
        needs_future: whether `limit` must know how many tokens will be accepted; only the
            simulator can tell it.
    """

    name: ClassVar[str]
    max_draft: int
    needs_future: ClassVar[bool] = False

    @property
    def carried(self) -> Literal["sequence", "run"]:
        """How long state lasts: each sequence starts anew, or all of a run share it, ascending."""
        return "sequence"

    @abstractmethod
    def columns(self, sampler: Sampler) -> tuple[str, ...]:
        """Names of the trace's columns that a row holds, in order.

        Raises:
            PolicyError: the rule does not hold under this sampler.
        """

    @abstractmethod
    def begin(self) -> State:
        """The state before the first step."""

    @abstractmethod
    def limit(self, state: State, ahead: int) -> int:
        """The most tokens that the coming draft may have; the budget may cut it further.

        Args:
            state: after the step before.
            ahead: how many tokens will be accepted if the draft is long enough; -1 for a policy
                that does not declare that it needs the future.
        """

    @abstractmethod
    def trips(self, state: State, depth: int, row: Row) -> tuple[bool, State]:
        """Whether drafting stops after this token, which is kept. Called for every drafted token.

        Args:
            state: after the token before; at depth 1, the one that `limit` saw.
            depth: 1-based index of the token inside the draft.
            row: its values, see `columns`.
        """

    @abstractmethod
    def update(self, state: State, outcome: Outcome) -> State:
        """The state after a step, also after one with an empty draft."""


def stateless(params: Any) -> State:
    """`begin` of a policy without state."""
    return ()


def longest(params: Any, state: State, ahead: int) -> int:
    """`limit` of a policy whose drafts only `max_draft` bounds."""
    return params.max_draft


def never(params: Any, state: State, depth: int, row: Row) -> tuple[bool, State]:
    """`trips` of a policy that looks at no token."""
    return False, state


def unchanged(params: Any, state: State, outcome: Outcome) -> State:
    """`update` of a policy without feedback."""
    return state


@dataclass(frozen=True)
class Slots:
    """A rule as module-level functions of numbers, which compile as they stand (numba).

    Each is the method of `Policy` of the same name, with the parameters in place of `self`.
    """

    begin: Callable[..., State] = stateless
    limit: Callable[..., int] = longest
    trips: Callable[..., tuple[bool, State]] = never
    update: Callable[..., State] = unchanged


class NumericPolicy(Policy):
    """A policy whose rule is `Slots`: one definition, compiled in a replay, interpreted elsewhere.

    Attributes:
        slots: the rule.
        unnamed: whether its spec writes the first argument without its name.
    """

    slots: ClassVar[Slots]
    unnamed: ClassVar[bool] = False

    @property
    @abstractmethod
    def params(self) -> Any:
        """The rule's numbers, as a NamedTuple of a class that no other policy uses."""

    def begin(self) -> State:
        """See `Policy`."""
        return self.slots.begin(self.params)

    def limit(self, state: State, ahead: int) -> int:
        """See `Policy`."""
        return self.slots.limit(self.params, state, ahead)

    def trips(self, state: State, depth: int, row: Row) -> tuple[bool, State]:
        """See `Policy`."""
        return self.slots.trips(self.params, state, depth, row)

    def update(self, state: State, outcome: Outcome) -> State:
        """See `Policy`."""
        return self.slots.update(self.params, state, outcome)

    def __str__(self) -> str:
        """The canonical spec: the first argument, and those that differ from their defaults."""
        given = {
            f.name: getattr(self, f.name)
            for k, f in enumerate(fields(self))  # type: ignore[arg-type]
            if (k == 0 and f.name != "max_draft") or getattr(self, f.name) != f.default
        }
        args = [given.pop(next(iter(given)))] if self.unnamed else []
        return render(self.name, args, given)


def check_whole(policy: Policy, name: str, least: int) -> None:
    """Refuse an argument that is not a whole number of at least `least`."""
    value = getattr(policy, name)
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise PolicyError(f"{policy.name}: {name} must be a whole number >= {least}, not {value!r}")
    if value > _MOST:
        raise PolicyError(f"{policy.name}: {name} must be at most {_MOST}, not {value!r}")


def check_real(policy: Policy, name: str, least: float, most: float = math.inf) -> None:
    """Refuse an argument that is not a finite number in [least, most]."""
    value = getattr(policy, name)
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not (number and math.isfinite(value) and least <= value <= most):
        bounds = f">= {least:g}" if most == math.inf else f"in [{least:g}, {most:g}]"
        raise PolicyError(f"{policy.name}: {name} must be a number {bounds}, not {value!r}")


def check_word(policy: Policy, name: str, words: tuple[str, ...]) -> None:
    """Refuse an argument that is none of the words."""
    value = getattr(policy, name)
    if value not in words:
        raise PolicyError(f"{policy.name}: {name} must be {' or '.join(words)}, not {value!r}")
