"""What a caller may give for a trace, a cost and policies, and what is made of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from simkit import costs
from simkit.costs import Times
from simkit.costs.measured import NoSamplesError
from simkit.drafters import layout_of
from simkit.drafters.layout import Layout
from simkit.errors import CostError, ReplayError
from simkit.policies import FunctionPolicy, Grid, Policy, PolicyError, Setting, from_function
from simkit.simulator.step_costs import Charge
from traces.schema import DRAFT_STATISTICS
from traces.trace import Trace, opened

AnyTrace = Trace | str | Path
AnyPolicy = Policy | Grid | str | Callable[[int, Any], Any]
AnyCost = costs.CostModel | str

FIRST = {"draft": 1, "prefill": 2}

T = TypeVar("T")


def setting(
    trace: AnyTrace, cost: AnyCost | None, first_token: str, layout: Layout | None = None
) -> Setting:
    """The layout and the charge that all policies of a replay share.

    Args:
        trace: a trace, its folder, or a bundled trace's name.
        cost: an object, a spec or a file's name; None means the trace's own timings, if any.
        first_token: "draft" or "prefill".
        layout: of the trace, where there is one already.

    Raises:
        ReplayError: first_token is neither.
        TraceError: there is no such trace.
        CostError: the cost cannot be read, or does not fit the trace.
    """
    if first_token not in FIRST:
        raise ReplayError(f"first_token must be draft or prefill, not {first_token!r}")
    trace = opened(trace)
    layout = layout or layout_of(trace)
    times = _times(cost, trace)
    first = FIRST[first_token]
    return Setting(layout, Charge(times, layout, first) if times else None, first)


def listed(given: AnyPolicy | Iterable[AnyPolicy]) -> list[AnyPolicy]:
    """One policy, or several, as a list.

    Raises:
        PolicyError: it is neither.
    """
    one = isinstance(given, Policy | Grid | str) or callable(given)
    if not one and not isinstance(given, Iterable):
        raise PolicyError(f"{given!r} is no policy: give a spec, a policy, a rule, or several")
    return [given] if one else list(given)  # type: ignore[arg-type]


def policy_of(given: AnyPolicy, read: Callable[[str], T]) -> Policy | T:
    """A policy from an object or a function; what `read` makes of a text.

    Raises:
        PolicyError: it is none of these.
    """
    if isinstance(given, Policy):
        return given
    if isinstance(given, str):
        return read(given)
    if isinstance(given, Grid):
        raise PolicyError(f"{given} are {len(given)} settings: sweep or tune them, or name one")
    if callable(given):
        return from_function(given, DRAFT_STATISTICS)
    raise PolicyError(f"{given!r} is no policy: give an object, a spec or a function")


def distinct(policies: Iterable[Policy]) -> list[Policy]:
    """The policies under names of their own: equal ones once, functions of one name numbered.

    Raises:
        ReplayError: two that differ have one name, and are no functions.
    """
    named: dict[str, Policy] = {}
    functions: list[Policy] = []
    for policy in policies:
        name = str(policy)
        if isinstance(policy, FunctionPolicy):
            if policy in functions:
                continue
            functions.append(policy)
            number = 2
            while name in named:
                name, number = f"{policy} ({number})", number + 1
            policy = replace(policy, label=name)
        elif name in named and policy != named[name]:
            raise ReplayError(f"two different policies are both called {name}")
        named.setdefault(name, policy)
    return list(named.values())


def places(policies: Iterable[Policy]) -> Callable[[Policy], int]:
    """Where a policy stands among `distinct` ones: a function under whatever name it has there.

    The function that is given back raises ReplayError of a policy that is none of them.
    """
    there = list(policies)
    named = {str(one): k for k, one in enumerate(there) if not isinstance(one, FunctionPolicy)}
    functions = [(k, one) for k, one in enumerate(there) if isinstance(one, FunctionPolicy)]

    def place(policy: Policy) -> int:
        if isinstance(policy, FunctionPolicy):
            same = (k for k, one in functions if replace(one, label=policy.label) == policy)
            k = next(same, None)
        else:
            k = named.get(str(policy))
        if k is None:
            names = ", ".join(map(str, there))
            raise ReplayError(f"{policy} was not replayed; there is {names}")
        return k

    return place


def check_confidence(confidence: float) -> None:
    """Refuse a confidence that is no probability.

    Raises:
        ReplayError: it is not between 0 and 1.
    """
    number = isinstance(confidence, int | float | np.floating)
    if not (number and 0 < confidence and (1 + confidence) / 2 < 1):
        raise ReplayError(f"confidence must lie between 0 and 1, not {confidence!r:.40}")


def check_seed(seed: int) -> None:
    """Refuse a seed from which nothing could be drawn again.

    Raises:
        ReplayError: it is no whole number from 0 on.
    """
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer):
        raise ReplayError(f"seed must be a whole number, not {seed!r:.40}")
    if seed < 0:
        raise ReplayError(f"seed must be at least 0, not {seed}")


def _times(given: AnyCost | None, trace: Trace) -> Times | None:
    if given is None:
        with suppress(NoSamplesError):
            return costs.Measured().times(trace)
        return None
    if isinstance(given, str):
        given = costs.parse(given)
    if not isinstance(given, costs.CostModel):
        raise CostError(f"{given!r} is no cost: give an object, a spec or a file's name")
    return given.times(trace)
