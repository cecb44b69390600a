"""Policies written as a Python function, in a notebook cell for instance."""

from __future__ import annotations

import re
from collections import namedtuple
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from difflib import get_close_matches
from inspect import signature
from itertools import count
from typing import Any

from simkit.errors import PolicyError
from simkit.policies.arguments import check_whole
from simkit.policies.base import (
    MAX_DRAFT,
    NumericPolicy,
    Outcome,
    Policy,
    Row,
    Sequential,
    Setting,
    Slots,
    State,
)
from simkit.policies.surroundings import functions_of, plain, renew, settled, values_read
from simkit.policies.verdicts import RULE, not_boolean, verdict
from traces.sampler import Sampler
from traces.schema import TARGET_STATISTICS

_VERDICT = (*TARGET_STATISTICS, "accepted", "target_token", "target_token_prob_raw")


FUNCTION = "function:"  # before a function's label, where costs have its time


class Watched:
    """A row that notes which of its values are asked for by name, and is nothing else."""

    def __init__(self, values: dict[str, float], found: set[str]) -> None:
        self._values, self._found = values, found

    def __getattr__(self, name: str) -> float:
        if name not in self._values:
            raise AttributeError(name)
        self._found.add(name)
        return self._values[name]


# Functions that were compiled, by the columns and the values around them that they read. Their code
# is not kept between processes: no file's name would tell apart all that they may call.
_FOUND: dict[tuple[Any, ...], tuple[type, Slots]] = {}
_NUMBERS = count()
NOWHERE = "made"  # the module of classes of parameters that are made for one rule


@dataclass(frozen=True)
class FunctionPolicy(Sequential):
    """Stop if `function(depth, row)` says so; see `from_function`.

    Tripping token: kept. Score: of the distribution the token was drawn from. State: none.
    Feedback: none.

    >>> policy = simkit.policies.from_function(lambda depth, row: depth == 3, name="third")
    >>> str(policy), policy.trips((), depth=3, row=())
    ('third', (True, ()))
    """

    function: Callable[[int, Any], Any]
    reads: tuple[str, ...]
    label: str
    max_draft: int = MAX_DRAFT
    _row: Callable[..., Any] = field(init=False, repr=False, compare=False)
    compiled: bool = False

    name = "function"
    binds_prompts_apart = True

    def __post_init__(self) -> None:
        check_whole(self, "max_draft", 0)
        check_columns(self.label, self.reads)
        try:
            signature(self.function).bind(1, ())
        except TypeError:
            raise PolicyError(
                f"{self.label}: a function that stops drafts takes two arguments, (depth, row)"
            ) from None
        except ValueError:  # a builtin that does not say
            pass
        object.__setattr__(self, "_row", row_of(self.reads))

    def __call__(self, depth: int, row: Any) -> Any:
        """What the function says."""
        return self.function(depth, row)

    def bind(self, setting: Setting) -> Policy:
        """See `Policy`; compiled, if that was asked for.

        Raises:
            PolicyError: numba cannot compile it, or keeps a value that it reads for ever.
        """
        if self.compiled:
            return _compiled(self)
        renew(values_read(functions_of(self.function)))
        return self

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
                self.function(depth, Watched(dict(zip(self.reads, row, strict=True)), found))
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
        return verdict(self.function(depth, self._row(row)), self.label), state

    def update(self, state: State, outcome: Outcome) -> State:
        """See `Sequential`."""
        return state

    def __str__(self) -> str:
        return self.label


@dataclass(frozen=True)
class CompiledFunction(FunctionPolicy, NumericPolicy):
    """See `FunctionPolicy`; the compiled loop takes it, everything else calls the function."""

    rule: tuple[type, Slots] = field(kw_only=True, repr=False, compare=False)

    @property
    def slots(self) -> Slots:  # pyright: ignore[reportIncompatibleVariableOverride]
        """See `NumericPolicy`."""
        return self.rule[1]

    @property
    def params(self) -> Any:
        """See `NumericPolicy`."""
        return self.rule[0](self.max_draft)


def _compiled(policy: FunctionPolicy) -> CompiledFunction:
    """The policy for the compiled loop.

    Raises:
        PolicyError: numba cannot compile the function; the message has its reason. Or see
            `settled`.
    """
    read = settled(policy.label, [policy.function])
    key = plain(policy.function), policy.reads, read
    if key not in _FOUND:
        _FOUND[key] = _rule(policy)
    given = policy.function, policy.reads, policy.label, policy.max_draft
    return CompiledFunction(*given, compiled=True, rule=_FOUND[key])


def _rule(policy: FunctionPolicy) -> tuple[type, Slots]:
    """A class of parameters that no other policy has, and the rule."""
    import numba
    from numba.core.errors import NumbaError

    said = numba.njit(nogil=True)(_asked(policy))
    takes = numba.int64, numba.typeof((0.0,) * len(policy.reads))
    try:
        said.compile(takes)
    except NumbaError as error:
        raise PolicyError(f"{policy.label}: {reason(error)}") from None
    gives = said.overloads[takes].signature.return_type
    if not isinstance(gives, numba.types.Boolean):
        raise PolicyError(f"{policy.label}: {not_boolean(str(gives))}")

    def trips(params: Any, state: State, depth: int, row: Row) -> tuple[bool, State]:
        return said(depth, row), state

    params = namedtuple(f"Function{next(_NUMBERS)}", ("max_draft",), module=NOWHERE)
    return params, Slots(trips=trips)


def _asked(policy: FunctionPolicy) -> Callable[..., Any]:
    """The function of a row without names: numba takes no star before a tuple there."""
    import numba

    values = ", ".join(f"row[{k}]" for k in range(len(policy.reads)))
    made: dict[str, Any] = {
        "function": numba.njit(nogil=True)(plain(policy.function)),
        "Row": namedtuple("Row", policy.reads),
    }
    exec(  # of numbers alone
        f"def asked(depth, row):\n    return function(depth, Row({values}))\n", made
    )
    return made["asked"]


def reason(error: Exception) -> str:
    """Why numba cannot compile a rule, in a line: our own reason, if it is one, or numba's."""
    lines = [line.strip() for line in str(error).splitlines()]
    said = [line for line in lines if line and not line.startswith("Failed in")]
    own = [line[line.index(RULE) :] for line in said if RULE in line]
    return own[0] if own else f"numba cannot compile it: {(said or lines)[0]}"


def check_columns(label: str, columns: tuple[str, ...]) -> None:
    """Refuse what cannot be the names of a row's values.

    Raises:
        PolicyError: as said.
    """
    for column in columns:
        if not re.fullmatch(r"[A-Za-z]\w*", column):
            raise PolicyError(f"{label}: {column!r} cannot be a column's name")
    if len(set(columns)) < len(columns):
        raise PolicyError(f"{label}: a column is named twice")


def row_of(columns: tuple[str, ...]) -> Callable[..., Any]:
    """What makes a named tuple of values, which says what to do where another one is asked for."""

    def __getattr__(row: Any, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        close = get_close_matches(name, columns, n=1)
        meant = f"did you mean {close[0]}? Else " if close else ""
        raise AttributeError(
            f"the rule does not read {name}: {meant}name it in columns=({name!r}, …)"
        )

    kind = type("Row", (namedtuple("Row", columns),), {"__slots__": (), "__getattr__": __getattr__})
    return kind._make  # pyright: ignore[reportAttributeAccessIssue]


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

    >>> third = simkit.policies.from_function(lambda depth, row: depth == 3)
    >>> simkit.replay("reference", [third, "fixed(3)"]).frame["steps"].to_list()
    [9414, 9414]
    """
    label = name or getattr(function, "__name__", "function")
    return FunctionPolicy(function, tuple(columns), label, max_draft)
