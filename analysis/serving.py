"""Controllers under loads, as curves: what figures of serving draw, and what they say of it.

Every number is one of `simkit.serve`'s; here they are put side by side, and read off: where a curve
falls below 1, how many requests a second a server can take, what its batches do over time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, NamedTuple, TypeVar

import numpy as np

from analysis import priced
from analysis.labelled_replays import without
from analysis.stats import Estimate
from analysis.study import MissingError, Study, attached
from analysis.token_drafters import PREFERRED
from simkit.drafters import layout_of
from simkit.serving import Engine, Served, ServingRun, View, parse, serve
from simkit.serving.pools import Sample, bounds
from simkit.serving.result import served as served_prompts
from simkit.simulator.arguments import AnyCost
from traces.errors import UserError
from traces.trace import OWN, Trace

COST = "atlas(target=qwen3-8b, draft=qwen3-0.6b)"
"""Of an H200, where no cost is given: times of a trace are seldom those of batches."""
T = TypeVar("T")
SEEDS = 5
LEVEL = 0.95  # of intervals
ALONE = "none"
LARGEST = 64  # requests that run at once, where they come by themselves
SHARES = (0.1, 0.25, 0.4, 0.55, 0.7, 0.85, 1.0, 1.15)
"""Arrival rates, over what the target alone can take."""
LEAST, EACH = 48, 16
"""Requests of a run in a closed loop: `EACH` for each in flight, and so many at least.

On `reference`, throughputs and their ratios to that without drafts are then within 1% of those with
64 for each, users' tokens a second within 2%, but for `budget` and `goodput` with 256 in flight,
whose fits go on learning. On `ladder`, whose prompts are longer, ratios are within 1.2%, and users'
tokens a second within 3% with 64 in flight, 6% with 256.
"""


class At(NamedTuple):
    """A load.

    Attributes:
        kind: "concurrency" or "rate".
        value: requests in flight, or a second.
        requests: how many in a run.
    """

    kind: str
    value: float
    requests: int


def closed(sizes: Iterable[int], least: int | None = None, each: int | None = None) -> list[At]:
    """Closed loops with so many requests in flight, of runs that are long enough; see `EACH`."""
    fewest, many = LEAST if least is None else least, EACH if each is None else each
    return [At("concurrency", n, max(fewest, many * n)) for n in sizes]


@dataclass(frozen=True, eq=False)
class LoadCurve:
    """A controller under several loads.

    Attributes:
        label: its spec as it was asked for.
        controller: its spec in full.
        at: (L,) float64, the loads' values.
        seeds: (L, S) float64 by measure, of each load and seed: those of
            `simkit.serving.measures.summary`, and `steady_against`, `steady_tokens_s` over the
            first controller's of the same seed.
        prompts: how many were served at each load.
        samples: what the runs of each load served, see `simkit.serving.pools`.
    """

    label: str
    controller: str
    at: np.ndarray
    seeds: Mapping[str, np.ndarray]
    prompts: Sequence[int]
    samples: Sequence[Sample]

    def estimates(self, measure: str) -> list[Estimate]:
        """A measure under each load, with 95% intervals over prompts and seeds."""
        return [self.estimate(k, values, measure) for k, values in enumerate(self.seeds[measure])]

    def estimate(self, k: int, values: np.ndarray, measure: str = "") -> Estimate:
        """The mean of (S,) values of the seeds of load k, and its interval over prompts."""
        return estimate(values, self.samples[k], self.prompts[k], measure)

    def over(self, other: LoadCurve, k: int) -> Estimate:
        """Its steady tokens a second under load k over another's, seed by seed."""
        mine, base = (one.seeds["steady_tokens_s"][k] for one in (self, other))
        return self.estimate(k, mine / base)


@dataclass(frozen=True)
class Curves:
    """Controllers under the same loads and seeds.

    Attributes:
        of: by label.
        gone: a line for each controller that is left out, with the reason.
    """

    of: dict[str, LoadCurve]
    gone: list[str]


def estimate(values: np.ndarray, sample: Sample, prompts: int, measure: str = "") -> Estimate:
    """The mean of (S,) values of seeds and its 95% interval, as `simkit.Served` has them.

    Args:
        values: finite, or there is none.
        sample: what each run served.
        prompts: how many all runs served.
        measure: its name, where it is one of `simkit.serving.measures.summary`.
    """
    mean = float(values.mean())
    if not np.isfinite(mean):
        return Estimate(None, None, None, prompts, "no output is long enough")
    half, why = sample.half(values, LEVEL)
    if half is None:
        return Estimate(mean, None, None, prompts, why)
    return Estimate(mean, *bounds(measure, mean, half), prompts)


def curves(
    study: Study,
    controllers: Iterable[str],
    loads: Iterable[At],
    cost: AnyCost | None = None,
    seeds: int = SEEDS,
    limits: Mapping[str, float] | None = None,
    trace: Trace | None = None,
) -> Curves:
    """Serve under controllers and loads; `steady_against` is the ratio to the first one.

    Args:
        study: of the trace, and which pass emits the first token.
        controllers: specs; those that the trace cannot give are left out.
        loads: each a run for each seed.
        cost: see `simkit.replay`; None means `COST`.
        seeds: runs of each.
        limits: see `simkit.serve`.
        trace: in the place of the study's, one of another drafter.

    Raises:
        UserError: see `simkit.serve`; or no controller is left.
    """
    trace = study.trace if trace is None else trace
    given: AnyCost = COST if cost is None else cost
    calls: list[dict[str, Any]] = []
    for (kind, requests, most), some in groupby(loads, _together):
        values = [at.value for at in some]
        engine = Engine(max_batch=most, extrapolate=True)
        how = {kind: values, "requests": requests, "seeds": seeds, "limits": limits}
        calls.append(how | {"engine": engine, "first_token": study.first_token})
    usable, why = list(controllers), dict[str, str]()
    try:
        parts = [serve(trace, usable, given, **how) for how in calls]
    except UserError:  # some controller's, or that of all
        usable, why = _usable(trace, usable, given, calls)
        parts = [serve(trace, usable, given, **how) for how in calls]
    found = {label: _curve(label, usable[0], parts) for label in usable}
    for part in parts:
        priced.note(trace, given, beyond=part.beyond, lines=part.warnings)
    return Curves(found, without(why))


def noted(trace: Trace, controllers: Iterable[str], cost: AnyCost, **how: Any) -> Served:
    """See `simkit.serve`; why its times may be wrong is noted, see `analysis.priced`."""
    found = serve(trace, controllers, cost, **how)
    priced.note(trace, cost, beyond=found.beyond, lines=found.warnings)
    return found


def _together(at: At) -> tuple[str, int, int]:
    """What loads of one call share, the largest batch among it."""
    return at.kind, at.requests, int(at.value) if at.kind == "concurrency" else LARGEST


def _usable(
    trace: Trace, controllers: Sequence[str], cost: AnyCost, calls: Iterable[dict[str, Any]]
) -> tuple[list[str], dict[str, str]]:
    """Those that this trace can give, and why others are missing."""
    found, why = _each(controllers, lambda one: [serve(trace, one, cost, **how) for how in calls])
    return list(found), why


def _each(
    controllers: Iterable[str], serve_one: Callable[[str], T]
) -> tuple[dict[str, T], dict[str, str]]:
    """What each controller gives, and why others are missing, by label."""
    found, why = {}, {}
    for label in controllers:
        try:
            found[label] = serve_one(label)
        except UserError as error:
            why[label] = str(error)
    if not found:
        raise MissingError(next(iter(why.values()), "no controller is given"))
    return found, why


def _curve(label: str, first: str, parts: Iterable[Served]) -> LoadCurve:
    name, base_name = str(parse(label)), str(parse(first))
    measures: dict[str, list[np.ndarray]] = {}
    at: list[float] = []
    prompts: list[int] = []
    samples: list[Sample] = []
    for part in parts:
        runs = [run for run in part.runs if str(run.controller) == name]
        for _, some in groupby(runs, lambda run: run.load.value):
            of = list(some)
            prompts.append(served_prompts(of))
            samples.append(of[0].sample)
        mine = part.seeds.filter(controller=name)
        base = part.seeds.filter(controller=base_name)["steady_tokens_s"].to_numpy()
        mine = mine.with_columns(steady_against=mine["steady_tokens_s"].to_numpy() / base)
        values = mine["value"].unique(maintain_order=True)
        at += values.to_list()
        for column in mine.columns[4:]:
            measures.setdefault(column, []).append(mine[column].to_numpy().reshape(len(values), -1))
    each = {column: np.concatenate(found) for column, found in measures.items()}
    return LoadCurve(label, name, np.array(at), each, prompts, samples)


def falls(at: np.ndarray, ratio: np.ndarray) -> float | None:
    """Where a curve falls below 1 for the last time; None if it does not.

    Linear in ratio and in the logarithm of `at` between two points.

    Args:
        at: (L,) ascending, positive.
        ratio: (L,).
    """
    down = np.flatnonzero((ratio[:-1] >= 1) & (ratio[1:] < 1))
    if not len(down):
        return None
    k = int(down[-1])
    share = (ratio[k] - 1) / (ratio[k] - ratio[k + 1])
    return float(at[k] * (at[k + 1] / at[k]) ** share)


def crossing(one: LoadCurve, other: LoadCurve) -> Estimate:
    """The load from which on `one` has less steady throughput than `other`; see `falls`.

    The value is read off the means over seeds, the interval, in the logarithm, off each seed; there
    is none where some seed has no such load. Of the loads between which the seeds' values lie, that
    with the most requests says of how many prompts a value is (`Sample.half`): its interval is the
    widest.
    """
    mine, base = one.seeds["steady_tokens_s"], other.seeds["steady_tokens_s"]
    mean, prompts = (mine / base).mean(axis=1), min(one.prompts)
    value = falls(one.at, mean)
    if value is None:
        low = "below" if mean[0] < 1 else "at or above"
        return Estimate(None, None, None, prompts, f"{low} from the first load to the last")
    each = [falls(one.at, ratio) for ratio in (mine / base).T]
    if None in each:
        return Estimate(value, None, None, prompts, "some runs do not fall there")
    values = np.array(each, float)
    low, high = one.at.searchsorted(values.min(), "right") - 1, one.at.searchsorted(values.max())
    widest = max(one.samples[low : high + 1], key=lambda sample: sample.requests)
    half, why = widest.half(np.log(values), LEVEL)
    if half is None:
        return Estimate(value, None, None, prompts, why)
    return Estimate(value, value * np.exp(-half), value * np.exp(half), prompts)


def capacity(
    study: Study, controllers: Iterable[str], cost: AnyCost | None = None, seeds: int = SEEDS
) -> Curves:
    """Controllers with `LARGEST` requests always in flight.

    `steady_requests_s` is what a server can take.

    Raises:
        UserError: see `curves`.
    """
    return curves(study, controllers, closed([LARGEST]), cost, seeds)


def alone(study: Study, cost: AnyCost | None = None) -> dict[str, float]:
    """The measures of requests that are served one by one, without drafts.

    Raises:
        UserError: see `curves`.
    """
    found = curves(study, [ALONE], [At("concurrency", 1, 64)], cost, seeds=1)
    return {name: float(values[0, 0]) for name, values in found.of[ALONE].seeds.items()}


def of_kinds(study: Study) -> dict[str, Trace]:
    """The drafters of a recording by name, of each kind one; of a trace with one drafter, that one.

    Of lookups the first of `lookups.PREFERRED`, of others the study's own, else the last one.
    """
    trace = study.trace
    recording = trace.recording or trace
    if recording.path is None or not recording.drafters:
        return {OWN: trace}
    own = [] if recording.manifest.kind == "target" else [(OWN, recording)]
    chosen: dict[str, tuple[str, Trace]] = {}
    for name, one in [*own, *attached(recording)]:
        kind = (one.manifest.spec or OWN).split("(")[0] if name != OWN else OWN
        if kind in PREFERRED:
            before = chosen.get("lookup", (PREFERRED[-1], one))[0]
            better = name in PREFERRED and PREFERRED.index(name) <= PREFERRED.index(before)
            chosen["lookup"] = (name, one) if better else chosen.get("lookup", (name, one))
        elif kind not in chosen or chosen[kind][1].place != trace.place:
            chosen[kind] = name, one
    return {name: one for name, one in chosen.values()} or {OWN: trace}


def priced_as(traces: Mapping[str, Trace], cost: AnyCost | None) -> str:
    """The cost in words, and for whose passes its draft model stands, made up or an atlas's."""
    default = " (the default)" if cost is None or str(cost) == COST else ""
    said = f"Times: {COST if cost is None else cost}{default}. "
    if cost is not None and not str(cost).startswith("atlas"):
        return said
    others = [n for n, one in traces.items() if layout_of(one).paid not in ("token", "none")]
    names = " and ".join(others)
    return said + (f"Passes of {names} are priced as the cost's draft model's." if others else "")


def burst(rate: float, requests: int, seed: int = 0, times: float = 4.0) -> np.ndarray:
    """Arrivals at random, the middle half of them so many times as fast; seconds, ascending.

    Args:
        rate: a second, before and after.
        requests: how many.
        seed: of the gaps.
        times: see above.
    """
    gaps = np.random.default_rng(seed).exponential(1 / rate, requests)
    gaps[requests // 4 : requests - requests // 4] /= times
    return np.cumsum(gaps)


def served(
    study: Study,
    controllers: Iterable[str],
    cost: AnyCost | None,
    times: np.ndarray,
    seed: int = 0,
) -> tuple[dict[str, ServingRun], dict[str, str]]:
    """One run of each controller under given arrivals, and why others are missing, by label.

    Args:
        study: see `curves`.
        controllers: specs.
        cost: see `curves`.
        times: of arrivals, seconds, ascending.
        seed: of what each request is.

    Raises:
        UserError: see `curves`.
    """
    given: AnyCost = COST if cost is None else cost
    engine = Engine(max_batch=LARGEST, extrapolate=True)
    how: dict[str, Any] = {"arrivals": times, "requests": len(times), "seeds": seed + 1}
    how |= {"engine": engine, "first_token": study.first_token}
    return _each(controllers, lambda one: noted(study.trace, [one], given, **how).runs[seed])


def over_time(run: ServingRun, edges: np.ndarray) -> dict[str, np.ndarray]:
    """What a run's iterations do between times, (E - 1,) each; NaN where nothing is decoded.

    `batch` is the mean number of running requests over time, `drafted` and `verified` the draft
    tokens for each request and step of the iterations that begin there.

    Args:
        run: see there.
        edges: (E,) seconds, ascending.
    """
    rows = run.iterations
    begin_s, end_s = rows["begin_s"], rows["end_s"]
    running = rows["decoding"] + rows["prefilling"]
    total = np.cumsum(running * (end_s - begin_s))  # requests x seconds
    knots = np.stack([begin_s, end_s], 1).ravel()
    level = np.interp(edges, knots, np.stack([np.append(0, total[:-1]), total], 1).ravel())
    found = {"batch": np.diff(level) / np.diff(edges)}
    steps = np.diff(_below(begin_s, rows["decoding"], edges))
    for name, column in (("drafted", "drafted"), ("verified", "proposed")):
        tokens = np.diff(_below(begin_s, rows[column], edges))
        found[name] = np.where(steps > 0, tokens / np.maximum(steps, 1), np.nan)
    return found


def _below(times: np.ndarray, values: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Sum of the values whose time is before each edge."""
    total = np.concatenate([[0.0], np.cumsum(values)])
    return total[np.searchsorted(times, edges)]


def fewer(view: View) -> int:
    """A controller as a function: four tokens, one fewer each time that the batch doubles."""
    return max(0, 5 - len(view.request).bit_length())
