"""The replay: what would a policy have done on a recorded trace, and how fast."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal

from simkit import costs
from simkit.errors import ReplayError
from simkit.policies import Policy, PolicyError, from_function, parse
from simkit.simulator.charge import Charge
from simkit.simulator.layout import PathLayout
from simkit.simulator.result import BY, Comparison, Result
from simkit.simulator.run import run
from traces.trace import Trace

__all__ = ["Comparison", "ReplayError", "Result", "replay"]

AnyPolicy = Policy | str | Callable[[int, Any], Any]

FIRST = {"draft": 1, "prefill": 2}


def replay(
    trace: Trace,
    policies: AnyPolicy | Iterable[AnyPolicy],
    cost: costs.CostModel | str | None = None,
    by: Literal["trace", "task", "sequence", "step"] = "trace",
    first_token: Literal["draft", "prefill"] = "draft",
    confidence: float = 0.95,
    seed: int = 0,
) -> Result:
    """Replay draft-length policies on a trace.

    Args:
        trace: a recorded pair.
        policies: one or more; each an object, a spec such as "svip(h=0.4)", or a function
            (depth, row) -> stop, where row has the draft's statistics.
        cost: seconds of the parts of a step; an object, a spec or a file's name. Without it the
            trace's own timing samples count; a trace without them gives no times.
        by: what one row of the result stands for.
        first_token: "draft": the first step starts at position 1; "prefill": the prompt's pass
            emits the first token, the first step starts at position 2.
        confidence: of the bootstrap intervals.
        seed: of the bootstrap.

    Raises:
        PolicyError: a policy cannot be read, or does not hold under the trace's sampler.
        CostError: the cost cannot be read, or does not fit the trace.
        ReplayError: a policy wants a row that was not recorded, or an argument is unknown.
        TraceError: a column that a policy reads was not recorded.
    """
    if first_token not in FIRST:
        raise ReplayError(f"first_token must be draft or prefill, not {first_token!r}")
    if by not in BY:
        raise ReplayError(f"by must be one of {', '.join(BY)}, not {by!r}")
    if not 0 < confidence < 1:
        raise ReplayError(f"confidence must lie between 0 and 1, not {confidence}")
    if isinstance(policies, Policy | str) or callable(policies):
        policies = [policies]
    chosen = [_policy(policy) for policy in policies]
    if not chosen:
        raise ReplayError("there is no policy to replay")
    layout = PathLayout(trace)
    model = _cost(cost, trace)
    first = FIRST[first_token]
    charge = Charge(model.times(trace), layout, first) if model else None
    runs = [run(policy, layout, charge, first) for policy in chosen]
    return Result(layout, runs, by, confidence, seed)


def _policy(given: AnyPolicy) -> Policy:
    if isinstance(given, Policy):
        return given
    if isinstance(given, str):
        return parse(given)
    if callable(given):
        from traces.schema import DRAFT_STATISTICS

        return from_function(given, DRAFT_STATISTICS)
    raise PolicyError(f"{given!r} is no policy: give an object, a spec or a function")


def _cost(given: costs.CostModel | str | None, trace: Trace) -> costs.CostModel | None:
    if given is None:
        return costs.Measured() if trace.latency() is not None else None
    return costs.parse(given) if isinstance(given, str) else given
