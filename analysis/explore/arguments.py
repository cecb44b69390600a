"""What of a policy can be set by hand: its arguments, each with the range that it takes."""

from __future__ import annotations

import math
from dataclasses import MISSING, dataclass, fields
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from analysis.replays import FAMILIES
from simkit.errors import PolicyError
from simkit.policies import Policy
from traces import specs

LONGEST = 20  # of whole arguments, unless their default or the trace asks for more
LENGTHS = ("length", "initial", "window", "min_draft", "n_min", "n_max", "block")  # in tokens
STEPS = 40  # of a real argument's range
AT_LEAST = 2.0  # how far a real argument without an upper bound goes


@dataclass(frozen=True)
class Argument:
    """One argument of a policy.

    Attributes:
        name: of the argument.
        values: to choose from: ascending numbers, words, or false and true; None among numbers
            leaves the choice to the policy.
        default: one of them.
    """

    name: str
    values: tuple[Any, ...]
    default: Any


def arguments(cls: type[Policy], deepest: int) -> list[Argument]:
    """The arguments of a policy that are numbers, words or flags; names of heads are left alone.

    A range begins at the least value that the policy takes. It ends where the policy's checks or
    the grid that it is tuned on end, and with lengths at Γ.

    Args:
        cls: a registered policy.
        deepest: Γ of the trace.
    """
    found = []
    kinds = get_type_hints(cls)
    for field in fields(cls):  # type: ignore[arg-type]
        if not field.init or field.default is MISSING:
            continue
        kind = kinds[field.name]
        values = _values(cls, field.name, kind, field.default, deepest)
        if not values:
            continue
        start = field.default if field.default in values else values[-1]  # it is beyond Γ
        found.append(Argument(field.name, values, start))
    return found


def _values(cls: type[Policy], name: str, kind: Any, default: Any, deepest: int) -> tuple[Any, ...]:
    if kind is bool:
        return False, True
    if get_origin(kind) is Literal:
        return get_args(kind)
    members = set(get_args(kind)) or {kind}
    optional = (None,) if NoneType in members else ()
    if int in members:
        return optional + _whole(cls, name, default, deepest)
    if float in members:
        return optional + _real(cls, name, default)
    return ()


def _whole(cls: type[Policy], name: str, default: int | None, deepest: int) -> tuple[int, ...]:
    most = deepest if name == "max_draft" else max(LONGEST, default or 0)
    most = min(most, deepest) if name in LENGTHS else most
    return tuple(value for value in range(most + 1) if _takes(cls, name, value))


def _real(cls: type[Policy], name: str, default: float | None) -> tuple[float, ...]:
    most = _tuned_to(cls.name, name)
    if most is None:
        most = max(AT_LEAST, 2 * (default or 0)) if _takes(cls, name, AT_LEAST) else 1.0
    step = most / STEPS
    values = {round(k * step, 6) for k in range(STEPS + 1)} | ({default} if default else set())
    return tuple(value for value in sorted(values) if _takes(cls, name, value))


def _tuned_to(policy: str, argument: str) -> float | None:
    """The whole number that ends the grid of an argument; None if it is not tuned."""
    for family in FAMILIES.values():
        spec = specs.parse(family, PolicyError)
        if spec.name != policy:
            continue
        for name, value in spec.kwargs.items():
            if name == argument and isinstance(value, specs.Range):
                return float(math.ceil(value.values()[-1]))
    return None


def _takes(cls: type[Policy], name: str, value: Any) -> bool:
    try:
        cls(**{name: value})
    except PolicyError:
        return False
    return True
