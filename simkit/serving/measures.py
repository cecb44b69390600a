"""What a run's users and its owner see: throughput, latencies, acceptance. Arrays in, numbers out.

Symbols: a request arrives at A, is admitted at S, its first tokens come out at F and its last at D;
f tokens come out first, n in all. Percentiles are over requests, or over the gaps between a
request's emissions, of all requests; linear between order statistics.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from simkit.errors import ServingError
from simkit.serving.run import ServingRun

PERCENTILES = (50, 90, 99)
LIMITS = ("ttft_s", "tpot_s", "latency_s", "gap_s")


def requests(run: ServingRun) -> dict[str, np.ndarray]:
    """A row for each request, (Q,) each.

    `ttft_s` is F - A, `tpot_s` (D - F) / (n - f), NaN where nothing comes after the first tokens,
    `latency_s` D - A, `wait_s` S - A; `gap_s` the longest time between two emissions.
    """
    return _requests(run)[0]


def _requests(run: ServingRun) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """A row for each request, and the gaps between their emissions."""
    server, output = run.server, run.output
    steps = run.steps
    gaps, who = _gaps_s(run, steps)
    gap = np.zeros(len(output))
    np.maximum.at(gap, who, gaps)
    first = np.ones(len(output), np.int64)
    if run.plan.outcomes.first == 1:
        opening = steps["start"] == 1
        first[steps["request"][opening]] = steps["emitted"][opening]
    after = output - first
    with np.errstate(invalid="ignore", divide="ignore"):
        tpot_s = np.where(after > 0, (server.done_s - server.first_s) / after, np.nan)
    rows = {
        "request": np.arange(len(output)),
        "sequence": run.plan.layout.trace.sequences["sequence"].to_numpy()[server.sequence],
        "arrival_s": server.arrival_s,
        "wait_s": server.admitted_s - server.arrival_s,
        "ttft_s": server.first_s - server.arrival_s,
        "tpot_s": tpot_s,
        "gap_s": gap,
        "latency_s": server.done_s - server.arrival_s,
        "done_s": server.done_s,
        "output": output,
        "steps": server.steps,
        "drafted": server.drafted,
        "proposed": server.proposed,
        "accepted": server.accepted,
        "preempted": server.preempted,
    }
    return rows, gaps


def _gaps_s(run: ServingRun, steps: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Seconds between two emissions of a request, and which request's; prefill's emission counts.

    Args:
        run: see there.
        steps: its own, `ServingRun.steps`.

    Returns:
        (G,) float64 and (G,) int64, request after request.
    """
    end_s = run.iterations["end_s"][steps["iteration"]]
    order = np.argsort(steps["request"], kind="stable")
    who, when = steps["request"][order], end_s[order]
    same = np.diff(who, prepend=-1) == 0
    before = np.where(same, np.append(0.0, when[:-1]), np.nan)
    if run.plan.outcomes.first == 2:  # the prompt's pass came first
        before = np.where(same, before, run.server.first_s[who])
        same = np.ones(len(who), bool)
    return (when - before)[same], who[same]


def summary(run: ServingRun, limits: Mapping[str, float] | None = None) -> dict[str, float]:
    """The numbers of a run.

    `tokens_s` is all output over the time from the first arrival to the last token, and so holds
    the end, when batches run empty; `steady_tokens_s` leaves out how a run begins and ends, see the
    function, and `steady_requests_s` is that over the mean output. `user_tokens_s` is the mean over
    requests of 1 / tpot; `batch` the mean over time of requests that decode or whose prompts are
    read; `length` the drafted tokens a step and `tokens_step` the emitted ones; `accepted_share`
    that of verified draft tokens. With limits also `good_share`, of the requests that keep all of
    them, and `goodput_s`, so many a second.

    Args:
        run: see there.
        limits: seconds, by the names of `LIMITS`.

    Raises:
        ServingError: a limit is none of these, or not positive.
    """
    (of, gaps), server = _requests(run), run.server
    span_s = float(np.nanmax(server.done_s) - server.arrival_s.min())
    rows = run.iterations
    busy_s = rows["end_s"] - rows["begin_s"]
    running = rows["decoding"] + rows["prefilling"]
    steps = int(server.steps.sum())
    by_prefill = (run.plan.outcomes.first - 1) * len(run.output)
    steady = steady_tokens_s(run)
    found = {
        "requests": float(len(of["output"])),
        "seconds": span_s,
        "tokens_s": float(of["output"].sum() / span_s),
        "steady_tokens_s": steady,
        "requests_s": len(of["output"]) / span_s,
        "steady_requests_s": float(steady / of["output"].mean()),
        "user_tokens_s": _mean(1 / of["tpot_s"][of["tpot_s"] > 0]),
        "batch": float((busy_s * running).sum() / span_s),
        "busy": float(busy_s.sum() / span_s),
        "tokens_step": float((run.output.sum() - by_prefill) / max(steps, 1)),
        "length": float(server.drafted.sum() / max(steps, 1)),
        "verified": float(server.proposed.sum() / max(steps, 1)),
        "accepted_share": float(server.accepted.sum() / max(server.proposed.sum(), 1)),
        "preempted": float(server.preempted.sum()),
        "wait_s": _mean(of["wait_s"]),
    }
    for name in ("ttft_s", "tpot_s", "latency_s"):
        found |= _percentiles(name, of[name])
    found |= _percentiles("gap_s", gaps)
    if limits:
        good = within(of, limits)
        found |= {"good_share": float(good.mean()), "goodput_s": float(good.sum() / span_s)}
    return found


def _percentiles(name: str, values: np.ndarray) -> dict[str, float]:
    some = values[np.isfinite(values)]
    return {
        f"{name}_p{p}": float(np.percentile(some, p)) if len(some) else np.nan for p in PERCENTILES
    }


def steady_tokens_s(run: ServingRun) -> float:
    """Tokens a second of a server that is neither filling up nor running empty.

    In a closed loop with C requests in flight the time begins when C are done, for the first C all
    start together, at the beginning of their outputs; it ends when the last request comes, which is
    when all but C are done. Where requests come by themselves it goes from the first one's arrival
    to the last one's. An iteration counts where it begins. It is the whole run where one request is
    in flight, or copies of one, whose batches run empty by their own rule; and where no time is
    left: of two requests for each in flight or fewer, or if all come before any has a token.
    """
    arrival_s, rows, load = run.server.arrival_s, run.iterations, run.load
    first = max(0, 2 * load.concurrency - 1)  # it comes when the C-th is done
    if first < len(arrival_s) and load.concurrency != 1 and load.copies == 1:
        begin_s, end_s = arrival_s[first], arrival_s[-1]
        inside = (rows["begin_s"] >= begin_s) & (rows["begin_s"] < end_s)
        if rows["emitted"][inside].any():
            end_s = max(end_s, rows["end_s"][inside][-1])
            return float(rows["emitted"][inside].sum() / (end_s - begin_s))
    return float(run.output.sum() / (np.nanmax(run.server.done_s) - arrival_s.min()))


def check_limits(limits: Mapping[str, float]) -> None:
    """Refuse limits that are none.

    Raises:
        ServingError: see `summary`.
    """
    if not isinstance(limits, Mapping):
        raise ServingError(f"limits must have names, as {{'ttft_s': 2}}, not {limits!r:.40}")
    for name, most in limits.items():
        if name not in LIMITS:
            raise ServingError(f"unknown limit {name!r}: known are {', '.join(LIMITS)}")
        if isinstance(most, bool) or not (isinstance(most, int | float | np.number) and most > 0):
            raise ServingError(f"limit {name} must be seconds above 0, not {most!r}")


def within(of: Mapping[str, np.ndarray], limits: Mapping[str, float]) -> np.ndarray:
    """Which requests keep all limits, (Q,) bool; one without a later token keeps that of tpot.

    Raises:
        ServingError: see `summary`.
    """
    check_limits(limits)
    good = np.ones(len(of["output"]), bool)
    for name, most in limits.items():
        good &= ~(of[name] > most)
    return good


def _mean(values: np.ndarray) -> float:
    return float(values.mean()) if len(values) else float("nan")
