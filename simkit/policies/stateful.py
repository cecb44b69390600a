"""Policies with state, written as a class or as a generator, in a notebook cell for instance."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass, replace
from inspect import isclass, isgeneratorfunction, signature
from itertools import product
from typing import Any, Literal, NamedTuple, Protocol

from simkit.errors import PolicyError
from simkit.policies.arguments import check_whole
from simkit.policies.base import MAX_DRAFT, Grid, Outcome, Row, State
from simkit.policies.function import FunctionPolicy, Watched, check_columns, row_of
from simkit.policies.verdicts import verdict, whole
from traces import specs
from traces.registry import suggest


class Token(NamedTuple):
    """What a generator is sent when a token was drafted.

    Attributes:
        depth: 1 for a draft's first token.
        row: its values, by their names.
        outcome: what came of the step before, with a draft's first token; None with the others, and
            in the first step.

    >>> def third():
    ...     token = yield
    ...     while True:
    ...         token = yield token.depth == 3
    >>> simkit.replay("reference", simkit.policy(third)).frame["steps"].to_list()
    [9414]
    """

    depth: int
    row: Any
    outcome: Outcome | None


class Rule(Protocol):
    """An object of a class that is a policy: `stop`, and if it likes `update` and `limit`."""

    def stop(self, depth: int, row: Any) -> Any:
        """Whether drafting stops after this token."""


@dataclass(frozen=True)
class StatefulPolicy(FunctionPolicy):
    """A rule with state of its own, made anew for each sequence; see `simkit.policies.policy`.

    Tripping token: kept. Score: of the distribution the token was drawn from. State: the rule's,
    per sequence, or per run with `lasts="run"`. Feedback: `Outcome`, the actual draft length.
    Called with arguments, it is the same policy with those of its class or generator.

    >>> class Until:
    ...     def __init__(self, length=3): self.length = length
    ...     def stop(self, depth, row): return depth == self.length
    >>> str(simkit.policy(Until)(length=5))
    'Until(length=5)'
    """

    arguments: tuple[tuple[str, Any], ...] = ()
    lasts: Literal["sequence", "run"] = "sequence"

    def __post_init__(self) -> None:
        check_whole(self, "max_draft", 0)
        check_columns(self.label, self.reads)
        if self.lasts not in ("sequence", "run"):
            raise PolicyError(f"{self.label}: carried must be sequence or run, not {self.lasts!r}")
        object.__setattr__(self, "_row", row_of(self.reads))
        _check_arguments(self.function, self.label, dict(self.arguments))

    def __call__(self, **arguments: Any) -> StatefulPolicy:
        """The policy with other arguments of its class or generator.

        Raises:
            PolicyError: it has none of that name.
        """
        given = {**dict(self.arguments), **arguments}
        name = self.label.partition("(")[0]
        shown: dict[str, specs.Value] = {
            key: v if isinstance(v, int | float | str) else str(v) for key, v in given.items()
        }
        label = specs.render(name, (), shown) if given else name
        return replace(self, arguments=tuple(given.items()), label=label)

    def grid(self, **values: Iterable[Any]) -> Grid:
        """All combinations of values of its arguments, as one family: to sweep, or to tune.

        Args:
            values: of each argument, those to try.

        Raises:
            PolicyError: it has no argument of that name, or values are no list of some.

        >>> class Until:
        ...     def __init__(self, length=3): self.length = length
        ...     def stop(self, depth, row): return depth == self.length
        >>> family = simkit.policy(Until).grid(length=[2, 3])
        >>> str(family), len(family)
        ('Until(length=[2, 3])', 2)
        """
        tried = {name: _listed(self.label, name, some) for name, some in values.items()}
        made = [self(**dict(zip(tried, some, strict=True))) for some in product(*tried.values())]
        shown = ", ".join(f"{name}={some}" for name, some in tried.items())
        return Grid(made, f"{self.label.partition('(')[0]}({shown})")

    @property
    def carried(self) -> Literal["sequence", "run"]:
        """See `Sequential`."""
        return self.lasts

    def looks_at(self, seen: Iterable[tuple[int, Row]]) -> tuple[str, ...]:
        """See `FunctionPolicy`; a rule is asked here without being told of outcomes."""
        found: set[str] = set()
        try:
            rule = self._made()
            for depth, row in seen:
                rule.stop(depth, Watched(dict(zip(self.reads, row, strict=True)), found))
        except Exception:  # it needs a real row, or outcomes
            return self.reads
        return tuple(name for name in self.reads if name in found)

    def begin(self, sequence: int) -> State:
        """See `Sequential`: a new object of the class, or a new generator."""
        return (self._made(),)

    def limit(self, state: State, ahead: int) -> int:
        """See `Sequential`; the rule's own, if it has one."""
        own = getattr(state[0], "limit", None)
        return self.max_draft if own is None else min(self.max_draft, whole(own(), self.label))

    def trips(self, state: State, depth: int, row: Row) -> tuple[bool, State]:
        """See `Sequential`."""
        return verdict(state[0].stop(depth, self._row(row)), self.label), state

    def update(self, state: State, outcome: Outcome) -> State:
        """See `Sequential`; the rule's own, if it has one."""
        own = getattr(state[0], "update", None)
        if own is not None:
            own(outcome)
        return state

    def _made(self) -> Rule:
        make: Callable[..., Any] = self.function
        made = make(**dict(self.arguments))
        return _Generated(made, self.label) if isgeneratorfunction(self.function) else made


def _listed(label: str, name: str, values: Any) -> list[Any]:
    """Values to try, of an array as Python's own."""
    some = isinstance(values, Iterable) and not isinstance(values, str)
    listed = getattr(values, "tolist", lambda: list(values))() if some else []
    if not listed:
        raise PolicyError(f"{label}: {name} needs a list of values, not {values!r:.40}")
    return listed


class _Generated:
    """A generator as a rule."""

    def __init__(self, generator: Generator[Any, Token, None], label: str) -> None:
        self._generator, self._label = generator, label
        self._outcome: Outcome | None = None
        self._next(None)  # what comes before its first yield

    def stop(self, depth: int, row: Any) -> Any:
        outcome, self._outcome = self._outcome, None
        return self._next(Token(depth, row, outcome))

    def update(self, outcome: Outcome) -> None:
        self._outcome = outcome

    def _next(self, token: Any) -> Any:
        try:
            return self._generator.send(token)
        except StopIteration:
            raise PolicyError(
                f"{self._label}: its generator has ended: it must yield for as long as it is asked"
            ) from None


def _check_arguments(function: Callable[..., Any], label: str, given: Mapping[str, Any]) -> None:
    known = signature(function).parameters
    for name in given:
        if name not in known:
            raise PolicyError(f"{label} has no argument {name!r} ({suggest(name, known)})")
    for name, parameter in known.items():
        named = parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        if named and parameter.default is parameter.empty and name not in given:
            raise PolicyError(f"{label}: {name} has no default: a policy is one without arguments")


def policy(
    rule: Any = None,
    *,
    columns: Iterable[str] | None = None,
    name: str | None = None,
    max_draft: int = MAX_DRAFT,
    carried: Literal["sequence", "run"] = "sequence",
    compiled: bool = False,
) -> Any:
    """Make a function, a class or a generator a policy (decorator, with or without arguments).

    A function takes (depth, row) and says whether drafting stops after this token; it keeps no
    state. A class is made anew for each sequence: `stop(depth, row)` says the same; if it has them,
    `update(outcome)` is told what came of each step, and `limit()` says before each draft how many
    tokens it may have. A generator is started anew for each sequence; it is sent a `Token` for each
    drafted token, and yields whether to stop (its first yield is not looked at). Defaults of their
    arguments are the policy's; `rule(h=0.3)` is the policy with another.

    Args:
        rule: what is decorated.
        columns: names of the columns that a row holds; None means all that a drafter sees.
        name: how results call the policy; by default the name of what is decorated.
        max_draft: the longest draft, in tokens.
        carried: how long the state of a class or a generator lasts: "sequence", or all of a "run",
            whose sequences then come in ascending order.
        compiled: compile a function with numba: a first replay takes seconds longer, those of long
            traces are fast. It is compiled anew where a value that it reads has changed.

    Raises:
        PolicyError: the rule, or an argument, is wrong.

    >>> rule = simkit.policy(lambda depth, row: row.draft_entropy > 1.5, columns=["draft_entropy"])
    >>> simkit.replay("reference", rule).frame["drafted"].to_list()
    [18552]
    """
    from traces.schema import DRAFT_STATISTICS

    read = DRAFT_STATISTICS if columns is None else tuple(columns)

    def made(rule: Any) -> FunctionPolicy:
        label = name or getattr(rule, "__name__", "policy")
        stateful = isclass(rule) or isgeneratorfunction(rule)
        _check_rule(rule, label, stateful, carried, compiled)
        if stateful:
            return StatefulPolicy(rule, read, label, max_draft, lasts=carried)
        return FunctionPolicy(rule, read, label, max_draft, compiled=compiled)

    return made if rule is None else made(rule)


def _check_rule(rule: Any, label: str, stateful: bool, carried: str, compiled: bool) -> None:
    if stateful and compiled:
        raise PolicyError(f"{label}: only functions are compiled; see NumericPolicy for state")
    if isclass(rule) and not callable(getattr(rule, "stop", None)):
        raise PolicyError(f"{label}: a class that is a policy has a method stop(depth, row)")
    if not callable(rule):
        raise PolicyError(f"{rule!r} is no function, class or generator")
    if not stateful and carried != "sequence":
        raise PolicyError(f"{label}: a function has no state to carry")
