"""What stands in for a rule that an engine does not have: a fixed length, and what that costs."""

from __future__ import annotations

from typing import Any, NamedTuple

from simkit.engines.base import EngineError
from simkit.policies import Fixed, Policy, parse
from simkit.serving import serve
from simkit.serving.controllers import Static
from simkit.simulator import FirstToken, Result, replay
from simkit.simulator.arguments import AnyCost
from simkit.sweeps import tune
from traces.messages import how_many
from traces.trace import Trace

_MOST = 20  # tokens of the lengths that are tried
_SERVED = 10  # of those that are served


class Basis(NamedTuple):
    """By what settings are chosen and compared.

    Attributes:
        trace: that they are replayed on.
        cost: as in `simkit.replay`.
        first_token: as there.
        in_flight: requests, in a closed loop, by which controllers are compared; None: by one.
    """

    trace: Trace
    cost: AnyCost | None
    first_token: FirstToken
    in_flight: int | None = None


class Replacement(NamedTuple):
    """A length that was chosen.

    Attributes:
        length: in tokens.
        note: why, and how it differs, in a line.
    """

    length: int
    note: str


def fastest(by: Basis) -> Replacement:
    """The fixed length whose replayed speed on a trace is the best.

    Raises:
        EngineError: there are no times.
    """
    result = _replay([], by)
    if not _timed(result):
        raise EngineError("there are no times to choose a draft length by: give --policy or --cost")
    best = _best(result)
    row = result.records()[best - 1]
    length = f"the fastest length{_within(by, best, _MOST)} on this trace"
    return Replacement(best, f"fixed({best}) is {length}, {_speed(row)}")


def tuned(spec: str, by: Basis) -> tuple[Policy, str]:
    """The setting of a spec with ranges that is the fastest on a trace; what it is worth, a line.

    Raises:
        UserError: see `simkit.tune`.
    """
    found = tune(by.trace, [spec], by.cost, first_token=by.first_token, workers=1)
    choice = next((c for c in found.choices if c.spec == spec), found.choices[-1])
    interval = f"[{choice.speedup_lo:.3f}, {choice.speedup_hi:.3f}]"
    note = (
        f"{choice.chosen} is the fastest of {how_many(choice.settings, 'setting')} on this trace;"
        f" tuned so, {spec} gives held-out prompts a speedup of {choice.speedup:.3f} {interval}"
    )
    return parse(choice.chosen), note


def instead_of(policy: Policy, why: str, by: Basis) -> Replacement:
    """The fixed length nearest to a policy: the fastest, or without times that of the mean draft.

    Args:
        policy: that the engine does not have.
        why: it does not, in words.
        by: what both are compared by.
    """
    result = _replay([policy], by)
    *fixed, mine = result.records()
    if _timed(result):
        best = _best(result)
        row = fixed[best - 1]
        change = row["speedup"] / mine["speedup"] - 1
        how = (
            f"the fastest length{_within(by, best, _MOST)} on this trace: its replayed speedup is"
            f" {_speed(row)}, that of the rule {_speed(mine)} ({change:+.1%})"
        )
        return Replacement(best, f"{why}: {policy} is replaced by fixed({best}), {how}")
    mean = mine["drafted"] / mine["steps"]
    best = min(max(1, round(mean)), len(fixed))
    row = fixed[best - 1]
    change = row["tokens_per_step"] / mine["tokens_per_step"] - 1
    kind = "as long as" if round(mean) <= best else "the longest that is tried, shorter than"
    how = (
        f"{kind} its mean draft, {mean:.2f} tokens (there are no times to choose by): its"
        f" replay gives {row['tokens_per_step']:.3f} tokens a step, the rule"
        f" {mine['tokens_per_step']:.3f} ({change:+.1%})"
    )
    return Replacement(best, f"{why}: {policy} is replaced by fixed({best}), {how}")


def served_instead(controller: Any, by: Basis, in_flight: int) -> Replacement:
    """The length that serves the most tokens a second with so many requests in flight.

    Args:
        controller: of `simkit.serving`, that it is compared with, on the same requests.
        by: the trace has their outcomes.
        in_flight: see `Basis`.

    Raises:
        UserError: see `simkit.serve`.
    """
    lengths = range(min(by.trace.max_draft, _SERVED) + 1)
    served = serve(
        by.trace,
        [controller, *map(Static, lengths)],
        by.cost,
        concurrency=in_flight,
        first_token=by.first_token,
        workers=1,
    )
    mine, none, *others = served.records()
    best = 1 + max(range(len(others)), key=lambda k: others[k]["steady_tokens_s"])
    row = others[best - 1]
    low, high = (row[f"steady_against_{end}"] for end in ("lo", "hi"))
    about = "" if low is None or high is None else f" [{low - 1:+.1%}, {high - 1:+.1%}]"
    note = (
        f"with {how_many(in_flight, 'request')} in flight fixed({best}) serves the most tokens of"
        f" all lengths{_within(by, best, _SERVED)},"
        f" {row['steady_tokens_s']:,.0f} a second, the controller {mine['steady_tokens_s']:,.0f}"
        f" ({row['steady_against'] - 1:+.1%}{about})"
    )
    if none["steady_tokens_s"] > row["steady_tokens_s"]:
        note += f"; without any drafts it is {none['steady_tokens_s']:,.0f}"
    return Replacement(best, note)


def _replay(others: list[Policy], by: Basis) -> Result:
    lengths = range(1, min(by.trace.max_draft, _MOST) + 1)
    policies = [*map(Fixed, lengths), *others]
    return replay(by.trace, policies, by.cost, first_token=by.first_token)


def _within(by: Basis, best: int, most: int) -> str:
    """What was tried, where that ends at the best length and the trace holds longer drafts."""
    return f" of up to {most} tokens" if best == most < by.trace.max_draft else ""


def _timed(result: Result) -> bool:
    return all(record["speedup"] is not None for record in result.records())


def _best(result: Result) -> int:
    """The length of the fastest of the fixed ones, which come first."""
    speeds = [
        record["speedup"]
        for run, record in zip(result.runs, result.records(), strict=True)
        if isinstance(run.policy, Fixed)
    ]
    return 1 + speeds.index(max(speeds))


def _speed(record: dict) -> str:
    low, high = record["speedup_lo"], record["speedup_hi"]
    interval = "" if low is None else f" [{low:.3f}, {high:.3f}]"
    return f"{record['speedup']:.3f}{interval}"
