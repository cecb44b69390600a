"""Controllers: how many tokens to draft, where many requests share each pass.

To add one, see docs/extending.md.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from math import prod
from typing import Any

from simkit import policies
from simkit.errors import PolicyError
from simkit.policies import Policy
from simkit.serving.controllers.base import (
    CONTROLLERS,
    ByLength,
    ByRule,
    Controller,
    Slots,
    View,
    register,
)
from simkit.serving.controllers.budget import Budget
from simkit.serving.controllers.by_batch import ByBatch, Schedule
from simkit.serving.controllers.ema import Ema
from simkit.serving.controllers.function import FunctionController, Plain
from simkit.serving.controllers.goodput import Goodput
from simkit.serving.controllers.rules import AllStopped, BatchMean, Each
from simkit.serving.controllers.static import Nothing, OffAbove, ProphetLengths, Static
from traces import specs
from traces.registry import suggest

__all__ = [
    "CONTROLLERS",
    "AllStopped",
    "BatchMean",
    "Budget",
    "ByBatch",
    "ByLength",
    "ByRule",
    "Controller",
    "Each",
    "Ema",
    "FunctionController",
    "Goodput",
    "Nothing",
    "OffAbove",
    "Plain",
    "ProphetLengths",
    "Schedule",
    "Slots",
    "Static",
    "View",
    "controller_of",
    "expand",
    "parse",
    "register",
]

_OF_POLICY = re.compile(r"\s*([A-Za-z_]\w*)\s*\((.*)\)\s*", re.DOTALL)


def parse(text: str) -> Controller:
    """The controller of a spec: `static(3)`, `all_stopped(svip(h=0.4))`, or any policy's.

    Raises:
        PolicyError: the spec cannot be read, names no controller, policy or argument, or has a
            range.

    >>> simkit.serving.parse("static(3)")
    Static(length=3)
    """
    found = expand(text)
    if len(found) > 1:
        raise PolicyError(f"{text.strip()} means {len(found)} controllers; give one here")
    return found[0]


def expand(text: str, limit: int = 10_000) -> list[Controller]:
    """The controllers of a spec with ranges, such as `static(1:8)`; the last varies fastest.

    Raises:
        PolicyError: see `parse`; or there would be more than `limit`.
    """
    if match := _OF_POLICY.fullmatch(text):
        kind = CONTROLLERS[match[1]] if match[1] in CONTROLLERS else None
        if kind is not None and issubclass(kind, ByRule):
            inner = match[2].strip().strip("'\"")
            make: Any = kind
            return [make(policy) for policy in policies.expand(inner, limit)]
    spec = specs.parse(text, PolicyError)
    if spec.name not in CONTROLLERS:
        if spec.name not in policies.registry.POLICIES:
            known = list(dict.fromkeys([*CONTROLLERS.known(), *policies.names()]))
            raise PolicyError(f"unknown controller {spec.name!r} ({suggest(spec.name, known)})")
        return [Each(policy) for policy in policies.expand(text, limit)]
    count = prod(values.count for values in spec.ranges())
    if count > limit:
        raise PolicyError(f"{text.strip()} means {count} controllers, more than {limit}")
    return [specs.build(one, CONTROLLERS[spec.name], PolicyError) for one in spec.expand()]


def controller_of(given: Controller | Policy | str | Callable[[View], Any]) -> Controller:
    """A controller from an object, a spec, a policy, or a function of a `View`.

    Raises:
        PolicyError: it is none of these.
    """
    if isinstance(given, type):
        raise PolicyError(f"{given.__name__} is a class: give an object of it, {given.__name__}()")
    if isinstance(given, Controller):
        return given
    if isinstance(given, Policy):
        return Each(given)
    if isinstance(given, str):
        return parse(given)
    if callable(given):
        return FunctionController(given)
    raise PolicyError(f"{given!r} is no controller: give an object, a spec or a function")
