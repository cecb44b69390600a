"""What a rule reads beside its arguments: globals, closed-over values, defaults, modules' numbers.

numba makes constants of all of them. So compiled code belongs to a rule *and* to these values, and
is made anew where one of them has changed; what cannot be made anew is refused. The plain replay
reads the values of the day, so that both give the same steps.
"""

from __future__ import annotations

import dis
import hashlib
import sys
from collections.abc import Iterable, Iterator
from enum import Enum
from functools import lru_cache
from types import CodeType, FunctionType, ModuleType
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from simkit.errors import PolicyError
from traces.own_sources import is_own

_FIXED = {"dataclasses", "numpy", "numba", "scipy"}  # packages that read nothing that changes
_PLAIN = (bool, int, str, bytes, type(None))
_held: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()  # what compiled helpers hold


class _Same:
    """A value that is known by being the same object, which is kept alive."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.value is self.value

    def __hash__(self) -> int:
        return id(self.value)


def plain(function: Any) -> Any:
    """The Python function behind one that numba has compiled; others as they are."""
    return getattr(function, "py_func", function)


def values_read(functions: Iterable[Any]) -> list[tuple[str, Any]]:
    """Names and values that functions read, and those that the functions that they call read.

    What a name stands for that only a branch reads counts too; so do all values of a module that
    have a name that occurs in the function. Functions of packages that never change are not
    looked into.
    """
    found: list[tuple[str, Any]] = []
    seen: set[int] = set()
    waiting = list(functions)
    while waiting:
        function = plain(waiting.pop(0))
        if not isinstance(function, FunctionType) or id(function) in seen:
            continue
        seen.add(id(function))
        if _is_fixed(function):
            continue
        read = list(_around(function))
        found += read
        waiting += [value for _, value in read]
    return found


def settled(label: object, functions: Iterable[Any]) -> tuple[Any, ...]:
    """What tells compiled code of functions apart from that of other values; hashable.

    Helpers that are compiled, and hold older values, are compiled anew.

    Raises:
        PolicyError: a helper is no function of numba's, and reads values that may change.
    """
    read = values_read(functions)
    for name, value in read:
        if isinstance(value, FunctionType) and (own := _numbers_of(value)):
            raise PolicyError(
                f"{label}: {name}, which it calls, reads {own}, and compiled code would keep the"
                f" value of {own} for ever: decorate {name} with numba.njit, or give it {own} as"
                " an argument"
            )
    renew(read)
    return tuple((name, by_value(value)) for name, value in read)


def renew(read: list[tuple[str, Any]]) -> None:
    """Have numba compile those helpers anew that hold other values than there are now.

    Args:
        read: by a rule, see `values_read`; those that others call come behind them.
    """
    for _, helper in reversed(read):
        if not hasattr(helper, "py_func") or _is_fixed(helper.py_func):
            continue
        now = tuple((name, by_value(value)) for name, value in values_read([helper]))
        before = _held.get(helper, () if helper.signatures else now)
        if now != before:
            helper.recompile()
        _held[helper] = now


def by_value(value: Any) -> Any:
    """A value's stand-in, equal for equal values where numba takes those for constants."""
    if isinstance(value, _PLAIN) and not isinstance(value, Enum):
        return type(value), value
    if isinstance(value, float | complex):
        return type(value), repr(value)  # tells -0.0 from 0.0, and NaN is itself
    if isinstance(value, np.ndarray | np.generic) and not value.dtype.hasobject:
        content = hashlib.sha256(value.tobytes()).digest()
        return type(value), str(value.dtype), value.shape, content
    if isinstance(value, tuple):
        return type(value), tuple(map(by_value, value))
    return _Same(value)  # numba takes no other numbers for constants


def _is_fixed(function: FunctionType) -> bool:
    """Whether a function reads nothing that changes: one of ours, or of those packages."""
    module = sys.modules.get(function.__module__ or "")
    known = module is not None and function.__globals__ is vars(module)
    return is_own(function) or (known and function.__module__.partition(".")[0] in _FIXED)


def _numbers_of(function: FunctionType) -> str:
    """The name of a value that a plain function reads and that is no function; "" if none."""
    for name, value in values_read([function]):
        if not isinstance(value, ModuleType | type) and not callable(value):
            return name
    return ""


def _around(function: FunctionType) -> Iterator[tuple[str, Any]]:
    """Names and values that one function reads."""
    loaded, words = _names(function.__code__)
    around = function.__globals__
    read = [(name, around[name]) for name in loaded if name in around]
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    for name, cell in cells:
        try:
            read.append((name, cell.cell_contents))
        except ValueError:  # not set yet
            continue
    read += [(f"{function.__name__}'s default", value) for value in function.__defaults__ or ()]
    read += list((function.__kwdefaults__ or {}).items())
    modules: set[int] = set()
    for name, value in read:  # grows
        if isinstance(value, ModuleType) and id(value) not in modules:
            modules.add(id(value))
            held = vars(value)
            read += [(f"{name}.{word}", held[word]) for word in words if word in held]
    yield from ((name, value) for name, value in read if not isinstance(value, ModuleType))


@lru_cache(4096)
def _names(code: CodeType) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names that are read as globals, and all words that may be an attribute's name."""
    loaded: set[str] = set()
    words: set[str] = set()
    codes = [code]
    for one in codes:  # grows
        codes += [const for const in one.co_consts if isinstance(const, CodeType)]
        words |= {*one.co_names, *(const for const in one.co_consts if isinstance(const, str))}
        for instruction in dis.get_instructions(one):
            if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
                loaded.add(instruction.argval)
    return tuple(sorted(loaded)), tuple(sorted(words))


def functions_of(rule: Any) -> list[FunctionType]:
    """The functions of a rule: itself, or those of its class and of the classes behind it.

    Those that a dataclass is given by Python are left out.
    """
    parts = [rule]
    if isinstance(rule, type):
        parts = []
        for kind in rule.__mro__:
            own = () if "__dataclass_fields__" in vars(kind) else ("__init__", "__call__")
            parts += [v for k, v in vars(kind).items() if k in own or not k.startswith("__")]
    inner = [plain(getattr(part, "fget", getattr(part, "__func__", part))) for part in parts]
    return [part for part in inner if isinstance(part, FunctionType)]


def is_by_value(value: Any) -> bool:
    """Whether equal values are the same to a rule, in every process."""
    if isinstance(value, tuple):
        return all(map(is_by_value, value))
    return not isinstance(by_value(value), _Same)
