"""Checks of policies' arguments, and what follows from one: the policy with shorter drafts."""

from __future__ import annotations

import math
import re
import sys
from dataclasses import fields, is_dataclass, replace
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

from simkit.errors import PolicyError

if TYPE_CHECKING:
    from simkit.policies.base import Policy


_MOST = 2**31 - 1  # whole arguments: compiled sums of them stay inside 64 bits


def shortened(policy: Policy, deepest: int) -> Policy | None:
    """The policy with drafts of at most `deepest` tokens.

    Returns:
        The policy itself if it drafts no deeper, or has no argument for that; else the policy with
        this `max_draft`; None if another argument asks for a deeper draft.
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
