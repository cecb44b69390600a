"""Arguments of policies and controllers: their checks, and the numbers that a rule is given.

A field says by its default how it is checked: `h: float = real_number(0.4, 0)` is a field with the
default 0.4 that must be at least 0. The numbers of a rule, its `params`, follow from the fields.
"""

from __future__ import annotations

import builtins
import math
import re
import sys
from collections import namedtuple
from collections.abc import Callable, Mapping
from dataclasses import Field, field, fields, is_dataclass, replace
from functools import cached_property
from inspect import get_annotations
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from simkit.errors import PolicyError

if TYPE_CHECKING:
    from simkit.policies.base import Policy


_MOST = 2**31 - 1  # whole arguments: compiled sums of them stay inside 64 bits

Numbers = Mapping[str, Callable[[Any], Any]]
"""The numbers of a rule that follow from one argument: how each is made of it, by its name."""


class _Argument(NamedTuple):
    """What a field's metadata hold; without `numbers` those follow from the annotation."""

    check: Callable[[Any, str], None]
    numbers: Numbers | None


def is_whole(value: Any, least: int = 0, most: int = _MOST) -> bool:
    """Whether it is a whole number in [least, most]."""
    return type(value) is int and least <= value <= most


def as_it_is(value: Any) -> Any:
    """A number of a rule that is the argument itself."""
    return value


def _own(cls: type) -> dict[str, _Argument | None]:
    """The fields that a class brings; what they say of themselves, None for plain ones."""
    given = vars(cls).get("__dataclass_fields__", vars(cls))  # the class itself, or one with slots
    own = {name: given.get(name) for name in get_annotations(cls)}
    return {k: v.metadata.get("argument") if isinstance(v, Field) else None for k, v in own.items()}


def _inherited(cls: type, name: str) -> dict[str, Any]:
    """Tables of that name of a class and of those behind it, as one."""
    return {k: v for kind in reversed(cls.__mro__) for k, v in vars(kind).get(name, {}).items()}


def _by_annotation(name: str, kind: Any) -> Numbers:
    if name.startswith("_") or kind not in (float, "float", int, "int", bool, "bool"):
        return {}
    return {name: float if kind in (float, "float") else as_it_is}


def _params_class(cls: type, names: list[str]) -> Any:
    made = namedtuple(f"{cls.__name__}Params", names, module=cls.__module__)
    module = sys.modules.get(cls.__module__)
    if module not in (None, builtins) and cls.__qualname__ == cls.__name__:  # else it is of an exec
        setattr(module, made.__name__, made)
    return made


class Checked:
    """A dataclass whose arguments are checked as its fields say, in the order of the fields."""

    _checks: ClassVar[dict[str, Callable[[Any, str], None]]] = {}

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        own = {name: argument.check for name, argument in _own(cls).items() if argument}
        cls._checks = {**_inherited(cls, "_checks"), **own}

    def __post_init__(self) -> None:
        for name, check in self._checks.items():
            check(self, name)


class Numbered(Checked):
    """A rule whose numbers follow from its arguments.

    They are those of the fields `float`, `int` and `bool`, in their order, `max_draft` last; what
    a field is given as `numbers` comes in its place. A subclass keeps what it does not change.
    """

    _numbers: ClassVar[dict[str, Numbers]] = {}
    _params: ClassVar[Any] = None

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        cls._numbers = _inherited(cls, "_numbers")
        for name, argument in _own(cls).items():
            if argument and argument.numbers is not None:
                cls._numbers[name] = argument.numbers
            elif name not in cls._numbers:
                cls._numbers[name] = _by_annotation(name, get_annotations(cls)[name])
        names = [name for numbers in cls._numbers.values() for name in numbers]
        names.sort(key=lambda name: name == "max_draft")
        makes_its_own = Numbered in cls.__bases__ or cls.params is not Numbered.params
        if not makes_its_own and (cls._params is None or cls._params._fields != tuple(names)):
            cls._params = _params_class(cls, names)

    @cached_property
    def params(self) -> Any:
        """The rule's numbers, as a NamedTuple of a class that no other rule uses.

        That class is made once for each class that brings numbers of its own; it is found beside
        it as `NAMEParams`, so that what is pickled can be read.
        """
        made = self._numbers.items()
        values = {n: make(getattr(self, k)) for k, numbers in made for n, make in numbers.items()}
        return self._params(**values)


def _field(default: Any, check: Callable[[Any, str], None], numbers: Numbers | None) -> Any:
    return field(default=default, metadata={"argument": _Argument(check, numbers)})


def whole_number(
    default: int | None, least: int = 0, most: int = _MOST, numbers: Numbers | None = None
) -> Any:
    """A field that must be a whole number from `least` to `most`; see `Numbered` for `numbers`."""
    return _field(default, lambda of, name: check_whole(of, name, least, most), numbers)


def real_number(
    default: float | None, least: float, most: float = math.inf, numbers: Numbers | None = None
) -> Any:
    """A field that must be a finite number in [least, most]; see `Numbered` for `numbers`."""
    return _field(default, lambda of, name: check_real(of, name, least, most), numbers)


def one_of(default: str, words: tuple[str, ...], numbers: Numbers | None = None) -> Any:
    """A field that must be one of the words; see `Numbered` for `numbers`."""
    return _field(default, lambda of, name: check_word(of, name, words), numbers)


def true_or_false(default: bool, numbers: Numbers | None = None) -> Any:
    """A field that must be true or false; see `Numbered` for `numbers`."""
    return _field(default, check_flag, numbers)


def lag_of(default: int) -> Any:
    """A field `lag`; a rule is given None for 0, so that its loop asks only when compiled."""
    return _field(default, lambda of, name: check_lag(of), {"lag": lambda lag: lag or None})


def head_named(default: str) -> Any:
    """A field `head`, which is no number."""
    return _field(default, lambda of, name: settle_head(of), {})


def shortened(policy: Policy, deepest: int) -> Policy | None:
    """The policy with drafts of at most `deepest` tokens.

    Returns:
        The policy itself if it drafts no deeper, or has no argument for that; else the policy with
        this `max_draft`; None if another argument asks for a deeper draft.

    >>> simkit.policies.shortened(simkit.policies.SVIP(h=0.4), 4)
    SVIP(h=0.4, scale=1.0, max_draft=4)
    """
    names = {f.name for f in fields(policy) if f.init} if is_dataclass(policy) else set()
    if "max_draft" not in names or policy.max_draft <= deepest:
        return policy
    try:
        return replace(policy, max_draft=deepest)  # type: ignore[type-var]
    except PolicyError:
        return None


def check_whole(policy: Any, name: str, least: int, most: int = _MOST) -> None:
    """Refuse an argument that is no whole number from `least` to `most`; make numpy's Python's."""
    value = _plain(policy, name)
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise PolicyError(f"{policy.name}: {name} must be a whole number >= {least}, not {value!r}")
    if value > most:
        raise PolicyError(f"{policy.name}: {name} must be at most {most}, not {value!r}")


def check_real(policy: Any, name: str, least: float, most: float = math.inf) -> None:
    """Refuse an argument that is not a finite number in [least, most]; make numpy's Python's."""
    value = _plain(policy, name)
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not (number and abs(value) <= sys.float_info.max and least <= value <= most):
        bounds = f">= {least:g}" if most == math.inf else f"in [{least:g}, {most:g}]"
        raise PolicyError(f"{policy.name}: {name} must be a number {bounds}, not {value!r}")


def _plain(policy: Any, name: str) -> Any:
    """An argument; put in its place as a Python number if it is numpy's: specs hold only those."""
    value = getattr(policy, name)
    kind: Any = int if isinstance(value, Integral) else float if isinstance(value, Real) else None
    if kind and type(value) not in (kind, bool):
        value = kind(value)
        object.__setattr__(policy, name, value)
    return value


def check_word(policy: Any, name: str, words: tuple[str, ...]) -> None:
    """Refuse an argument that is none of the words."""
    value = getattr(policy, name)
    if value not in words:
        raise PolicyError(f"{policy.name}: {name} must be {' or '.join(words)}, not {value!r}")


def check_flag(policy: Any, name: str) -> None:
    """Refuse an argument that is neither true nor false."""
    value = getattr(policy, name)
    if not isinstance(value, bool):
        raise PolicyError(f"{policy.name}: {name} must be true or false, not {value!r}")


def check_lag(policy: Policy) -> None:
    """Refuse a lag that is neither 0 nor 1."""
    check_whole(policy, "lag", 0)
    if policy.lag > 1:
        raise PolicyError(f"{policy.name}: lag must be 0 or 1, not {policy.lag}")


def settle_head(policy: Policy) -> None:
    """Name a policy's head after the policy if it has none; refuse what no file could be called."""
    head = policy.head or policy.name
    if not (isinstance(head, str) and re.fullmatch(r"[A-Za-z][\w.-]*", head)):
        raise PolicyError(f"{policy.name}: {head!r} cannot be a head's name")
    object.__setattr__(policy, "head", head)
