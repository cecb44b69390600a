"""Which compiled loop belongs to which rule.

A loop that calls a rule's functions is compiled for each rule. What tells rules apart, in this
process and on the disk, is all of their functions, and the class of their parameters.
"""

from __future__ import annotations

import hashlib
from collections import namedtuple
from collections.abc import Callable
from dataclasses import fields
from functools import cache
from threading import Lock
from types import FunctionType
from typing import Any, NamedTuple

from numba.core.errors import NumbaError

from simkit.errors import PolicyError
from simkit.policies.function import NOWHERE, reason
from simkit.policies.surroundings import plain, settled
from traces.own_sources import is_own


class CompiledRule(NamedTuple):
    """What tells the compiled loops of one rule from those of all others.

    Attributes:
        params: a class of parameters that stands for this rule alone.
        kept_as: a word for the files of its code; "" if that is not kept.
    """

    params: type
    kept_as: str


_rules: dict[tuple[Any, ...], CompiledRule] = {}
_slots: dict[type, Any] = {}
_lock = Lock()


@cache
def compilable(params: type, slots: Any) -> bool:
    """Whether a rule has what a compiled loop needs: named numbers, and functions."""
    named = issubclass(params, tuple) and hasattr(params, "_fields")
    return named and all(isinstance(function, FunctionType) for function in _functions(slots))


def rule_of(owner: object, params: type, slots: Any) -> CompiledRule:
    """The compiled rule of a policy or a controller.

    The parameters of a rule of these packages stand for it. Any other one is given a class of its
    own, and one for each set of values that its functions read. Its code is not kept: no name of a
    file tells all that it may call apart.

    Args:
        owner: whose rule it is, for errors.
        params: the class of its parameters.
        slots: a frozen dataclass of its functions.

    Raises:
        PolicyError: it cannot be compiled; or a value that it reads may change unseen, see
            `settled`.
    """
    if not compilable(params, slots):
        raise PolicyError(f"{owner}: its slots must be functions, and its params a NamedTuple")
    own = _is_ours(params, slots)
    key = params, slots, () if own else settled(owner, _functions(slots))
    with _lock:
        if key not in _rules:
            kept = own and params not in _slots
            mine = params if kept else stand_in(params)
            _slots[mine] = slots
            _rules[key] = CompiledRule(mine, _word(params, slots) if kept else "")
        return _rules[key]


def stands_alone(params: type, slots: Any) -> CompiledRule:
    """The rule of a class of parameters that was made for it alone."""
    _slots[params] = slots
    return CompiledRule(params, "")


def stand_in(params: Any) -> type:
    """A class of parameters with the same fields that is no other rule's."""
    return namedtuple(params.__name__, params._fields, module=NOWHERE)


def slots_of(params: type) -> Any:
    """The functions of the rule that a class of parameters stands for."""
    return _slots[params]


def run_rule(owner: object, loop: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """Call a loop that may have to be compiled first.

    Raises:
        PolicyError: numba cannot compile it; the message has its reason.
    """
    try:
        return loop(*arguments, **named)
    except NumbaError as error:
        raise PolicyError(f"{owner}: {reason(error)}") from None


def _functions(slots: Any) -> list[Any]:
    return [plain(getattr(slots, field.name)) for field in fields(slots)]


@cache
def _is_ours(params: type, slots: Any) -> bool:
    return is_own(params) and all(map(is_own, _functions(slots)))


def _word(params: Any, slots: Any) -> str:
    """A name for code of a rule of ours: that of its parameters, and a hash of what it is."""
    digest = hashlib.sha256(repr((params.__module__, params.__name__, params._fields)).encode())
    for function in _functions(slots):
        digest.update(f"{function.__module__}.{function.__qualname__} ".encode())
        digest.update(function.__code__.co_code)
    return f"{params.__name__}-{digest.hexdigest()[:16]}"
