"""Policies written as a Python function, in a notebook cell for instance."""

from __future__ import annotations

import re
from collections import namedtuple
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from inspect import signature
from typing import Any

from simkit.errors import PolicyError
from simkit.policies.arguments import check_whole
from simkit.policies.base import (
    MAX_DRAFT,
    Outcome,
    Row,
    Sequential,
    State,
)
from traces.sampler import Sampler
from traces.schema import TARGET_STATISTICS

_VERDICT = (*TARGET_STATISTICS, "accepted", "target_token", "target_token_prob_raw")


FUNCTION = "function:"  # before a function's label, where costs have its time


class _Watched:
    """A row that notes which of its values are asked for by name, and is nothing else."""

    def __init__(self, values: dict[str, float], found: set[str]) -> None:
        self._values, self._found = values, found

    def __getattr__(self, name: str) -> float:
        if name not in self._values:
            raise AttributeError(name)
        self._found.add(name)
        return self._values[name]


@dataclass(frozen=True)
class FunctionPolicy(Sequential):
    """Stop if `function(depth, row)` says so; see `from_function`.

    Tripping token: kept. Score: of the distribution the token was drawn from. State: none.
    Feedback: none.
    """

    function: Callable[[int, Any], Any]
    reads: tuple[str, ...]
    label: str
    max_draft: int = MAX_DRAFT
    _row: Callable[..., Any] = field(init=False, repr=False, compare=False)

    name = "function"

    def __post_init__(self) -> None:
        check_whole(self, "max_draft", 0)
        for column in self.reads:
            if not re.fullmatch(r"[A-Za-z]\w*", column):
                raise PolicyError(f"{self.label}: {column!r} cannot be a column's name")
        if len(set(self.reads)) < len(self.reads):
            raise PolicyError(f"{self.label}: a column is named twice")
        try:
            signature(self.function).bind(1, ())
        except TypeError:
            raise PolicyError(
                f"{self.label}: a function that stops drafts takes two arguments, (depth, row)"
            ) from None
        except ValueError:  # a builtin that does not say
            pass
        object.__setattr__(self, "_row", namedtuple("Row", self.reads)._make)

    def columns(self, sampler: Sampler) -> tuple[str, ...]:
        """See `Policy`; a rule reads only what the draft knows, not the target's verdict."""
        for name in self.reads:
            if name in _VERDICT:
                raise PolicyError(f"{self.label}: column {name} is not one that a drafter sees")
        return self.reads

    @property
    def timed_as(self) -> str:
        """See `Policy`; a function goes by its label, apart from the policies of that name."""
        return f"{FUNCTION}{self.label}"

    def looks_at(self, seen: Iterable[tuple[int, Row]]) -> tuple[str, ...]:
        """Columns that the function looks at, of those that its rows hold.

        Args:
            seen: depth and row of tokens that it is asked about. All columns count if it does more
                with a row than to ask for values by their names.
        """
        found: set[str] = set()
        for depth, row in seen:
            try:
                self.function(depth, _Watched(dict(zip(self.reads, row, strict=True)), found))
            except Exception:  # it needs a real row
                return self.reads
        return tuple(name for name in self.reads if name in found)

    def begin(self, sequence: int) -> State:
        """See `Sequential`."""
        return ()

    def limit(self, state: State, ahead: int) -> int:
        """See `Sequential`."""
        return self.max_draft

    def trips(self, state: State, depth: int, row: Row) -> tuple[bool, State]:
        """See `Sequential`."""
        return bool(self.function(depth, self._row(row))), state

    def update(self, state: State, outcome: Outcome) -> State:
        """See `Sequential`."""
        return state

    def __str__(self) -> str:
        return self.label


def from_function(
    function: Callable[[int, Any], Any],
    columns: Iterable[str] = (),
    name: str | None = None,
    max_draft: int = MAX_DRAFT,
) -> FunctionPolicy:
    """A policy that stops after the token for which `function(depth, row)` is true.

    Args:
        function: takes the depth (1 for a draft's first token) and a named tuple of the token's
            values, as floats.
        columns: which of the trace's columns the row holds ("draft_entropy", …).
        name: how results call the policy; by default the function's own name.
        max_draft: the longest draft, in tokens.

    Raises:
        PolicyError: a column's name is not one, or max_draft is below 0.
    """
    label = name or getattr(function, "__name__", "function")
    return FunctionPolicy(function, tuple(columns), label, max_draft)
