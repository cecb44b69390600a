"""The replay: what would a policy have done on a recorded trace, and how fast."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal, overload

from simkit.drafters.route import is_choice
from simkit.drafters.route import parse as parse_choice
from simkit.drafters.streamed import windowed
from simkit.errors import ReplayError
from simkit.policies import Policy, Setting, parse
from simkit.simulator.arguments import (
    AnyCost,
    AnyPolicy,
    AnyTrace,
    check_confidence,
    check_seed,
    distinct,
    listed,
    policy_of,
    setting,
)
from simkit.simulator.multi_result import ByDrafter
from simkit.simulator.result import BY, Comparison, Result
from simkit.simulator.run import Run, run
from simkit.simulator.streamed import in_windows
from traces.streamed import Streamed
from traces.trace import Trace, opened

__all__ = ["ByDrafter", "Comparison", "ReplayError", "Result", "replay"]


By = Literal["trace", "task", "span", "sequence", "step"]
FirstToken = Literal["draft", "prefill"]
Policies = AnyPolicy | Iterable[AnyPolicy]


@overload
def replay(
    trace: AnyTrace,
    policies: Mapping[str, Policies],
    cost: AnyCost | None = None,
    by: By = "trace",
    first_token: FirstToken = "draft",
    confidence: float = 0.95,
    seed: int = 0,
) -> ByDrafter: ...


@overload
def replay(
    trace: AnyTrace,
    policies: Policies,
    cost: AnyCost | None = None,
    by: By = "trace",
    first_token: FirstToken = "draft",
    confidence: float = 0.95,
    seed: int = 0,
) -> Result: ...


def replay(
    trace: AnyTrace,
    policies: Policies | Mapping[str, Policies],
    cost: AnyCost | None = None,
    by: By = "trace",
    first_token: FirstToken = "draft",
    confidence: float = 0.95,
    seed: int = 0,
) -> Result | ByDrafter:
    """Replay draft-length policies on a trace.

    Args:
        trace: a recorded pair; or its folder, or a bundled trace's name.
        policies: one or more; each an object, a spec such as "svip(h=0.4)", or a function
            (depth, row) -> stop, where row has the draft's statistics. Equal ones count once. Or
            those of each drafter, by the drafters' names; "own" is the recorded one,
            "route(suffix, own, least=3)" or "best_of(suffix, own)" several in one decoder, of which
            the last follows the policies (`simkit.drafters.route`).
        cost: seconds of the parts of a step; an object, a spec or a file's name. Without it the
            trace's own timing samples count; a trace without them gives no times.
        by: what one row of the result stands for; by "span", of which `simkit spans` writes which
            positions are part of what, a step counts where it starts.
        first_token: "draft": the first step starts at position 1; "prefill": the prompt's pass
            emits the first token, the first step starts at position 2.
        confidence: of the bootstrap intervals.
        seed: of the bootstrap.

    Raises:
        PolicyError: a policy cannot be read, or does not hold under the trace's sampler.
        CostError: the cost cannot be read, or does not fit the trace.
        ReplayError: a policy wants a row that was not recorded, or an argument is unknown.
        TraceError: a column that a policy reads was not recorded.

    >>> simkit.replay("reference", ["fixed(3)", "oracle"]).frame["steps"].to_list()
    [9414, 6672]
    """
    if by not in BY:
        raise ReplayError(f"by must be one of {', '.join(BY)}, not {by!r}")
    check_confidence(confidence)
    check_seed(seed)
    trace = opened(trace)
    if isinstance(policies, Mapping):
        return _by_drafter(trace, policies, (cost, by, first_token, confidence, seed))
    if not trace.manifest.drafter.can("replay"):
        from simkit.simulator.intervals import logged

        return logged(trace, _chosen(policies), cost, by, confidence, seed)
    where = setting(trace, cost, first_token)
    return Result(where.layout, _runs(_chosen(policies), where, by), by, confidence, seed)


def _runs(chosen: list[Policy], where: Setting, by: By) -> list[Run]:
    """All policies under one setting, window by window where the rows are read so."""
    if not windowed(where.layout):
        return list(_one_by_one(chosen, where))
    if by in ("step", "span"):
        raise ReplayError(f"a replay by {by} needs all rows at once: leave out --memory")
    return list(in_windows(chosen, where, _one_by_one))


def _one_by_one(policies: Iterable[Policy], where: Setting) -> Iterator[Run]:
    return (run(policy, *where) for policy in policies)


def _by_drafter(
    trace: Trace, policies: Mapping[Any, Any], settings: tuple[Any, By, Any, float, int]
) -> ByDrafter:
    if not policies:
        raise ReplayError("there is no drafter to replay")
    found: dict[str, Result] = {}
    for asked, given in policies.items():
        name, result = _of(trace, str(asked), given, *settings)
        if name in found:
            raise ReplayError(f"{name} is given twice: give all its policies at once")
        found[name] = result
    return ByDrafter(found, *settings[3:])


def _of(
    trace: Trace,
    drafter: str,
    given: Policies,
    cost: AnyCost | None,
    by: By,
    first_token: FirstToken,
    confidence: float,
    seed: int,
) -> tuple[str, Result]:
    """The name of a drafter, or of several in one decoder, and its replay."""
    if not is_choice(drafter):
        settings = cost, by, first_token, confidence, seed
        return drafter, replay(trace.with_drafter(drafter), listed(given), *settings)
    from simkit.simulator.routed import routed

    if isinstance(trace, Streamed):
        raise ReplayError(
            f"{drafter}: several drafters in one decoder need all rows at once: leave out --memory"
        )
    several = parse_choice(drafter)
    there = [trace.with_drafter(name) for name in several.drafters]
    runs = routed(several, there, _chosen(given), cost, first_token)
    return str(several), Result(runs[-1].layout, list(runs), by, confidence, seed)


def _chosen(given: Policies) -> list[Policy]:
    """The policies of what was given, each once.

    Raises:
        ReplayError: there is none.
    """
    chosen = distinct(policy_of(one, parse) for one in listed(given))
    if not chosen:
        raise ReplayError("there is no policy to replay")
    return chosen
