"""Statistics of acceptance that two sides are compared by: ratios of sums over prompts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from analysis import outside_loops
from analysis.compare.sides import Prompts, Side
from analysis.drafters import drafts
from analysis.replays import Replays
from analysis.stats import Estimate, clusters, depth
from analysis.stats.two_samples import between
from analysis.study import MissingError
from traces.errors import UserError
from traces.trace import Trace

DEPTHS = (1, 2, 4, 8)
LENGTH = 5  # of `fixed`, whose tokens a step are block efficiency
Sums = Callable[[Replays, int], np.ndarray]
"""(S, 2) of each prompt: what is summed, and what it is divided by; drafts end at the given Γ."""


@dataclass(frozen=True)
class Measure:
    """A statistic.

    Attributes:
        name: with its unit.
        sums: of each prompt; raises UserError where the trace does not have it.
        form: of its numbers, for people.
    """

    name: str
    sums: Sums
    form: str = ".3f"


@dataclass(frozen=True)
class Measured:
    """A statistic of two sides.

    Attributes:
        name: with its unit.
        form: of its numbers, for people.
        first: of the one.
        second: of the other.
        difference: the second less the first, in the same unit.
    """

    name: str
    form: str
    first: Estimate
    second: Estimate
    difference: Estimate


def measured(
    first: Side, second: Side, prompts: Prompts, confidence: float
) -> tuple[list[Measured], dict[tuple[str, str], list[str]]]:
    """All statistics of two sides.

    Returns:
        Those that one of them has at least; and what is missing, by side and reason.
    """
    found: list[Measured] = []
    missing: dict[tuple[str, str], list[str]] = {}
    pairs = list(zip((first, second), prompts.each, strict=True))
    deepest = min(first.trace.max_draft, second.trace.max_draft)
    for measure in MEASURES:
        sums, each = [], []
        for side, rows in pairs:
            try:
                there = measure.sums(side.at, deepest)[rows]
                if not there[:, 1].any():
                    raise MissingError("nothing to count")
            except UserError as error:
                missing.setdefault((side.name, str(error)), []).append(measure.name)
                each.append(Estimate(None, None, None, 0, str(error)))
                continue
            sums.append(there)
            each.append(clusters.ratio(there[:, 0], there[:, 1], confidence))
        if not sums:
            continue
        difference = Estimate(None, None, None, 0, "one of them does not have it")
        if len(sums) == 2:
            (difference,) = between(sums[0], sums[1], _less, prompts.pairing, confidence)
        name = measure.name.replace(f"fixed({LENGTH})", _fixed(deepest))
        found.append(Measured(name, measure.form, each[0], each[1], difference))
    for side in (first, second):
        side.at.study.make_room()
    return found, missing


def _less(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    return second[..., :1] / second[..., 1:] - first[..., :1] / first[..., 1:]


def _mean(column: str) -> Sums:
    """Of a column over the tokens that are drafted right behind the output, one a position.

    On a path these are all of its rows; where each start has a draft of its own, its first row.
    """

    def sums(at: Replays, deepest: int) -> np.ndarray:
        trace, table = _source(at.trace, column)
        values = trace.column(table, column)
        if table in ("positions", "target"):
            return clusters.by_prompt(trace.position_offsets, lambda r: [values[r], _ones(r)])
        begins = trace.offsets(table)
        there = np.diff(begins) > 0
        first = np.zeros(len(there), np.float64)
        first[there] = values[begins[:-1][there]]
        return clusters.by_prompt(trace.position_offsets, lambda r: [first[r], there[r]])

    return sums


def _source(trace: Trace, column: str) -> tuple[Trace, str]:
    """Where a column is; what the target says is its recording's, too.

    Raises:
        MissingError: it was not recorded.
    """
    recording = trace.recording if column.startswith("target") else None
    for one in (trace, recording):
        if one is not None:
            table, _ = one.manifest.drafter.outcomes(one)
            if one.has(table, column):
                return one, table
    raise MissingError("its drafts have no such column")


def _ones(rows: slice) -> np.ndarray:
    return np.ones(rows.stop - rows.start)


def _at_depth(level: int) -> Sums:
    """Accepted of those that were verified there, of the steps of `fixed`, as deep as Γ allows."""

    def sums(at: Replays, deepest: int) -> np.ndarray:
        if level > deepest:
            raise MissingError(f"drafts end at Γ = {deepest}")
        length = min(deepest, max(DEPTHS))
        at_risk, rejected = depth.table(drafts(at, length), length)
        there = at_risk[:, level - 1]
        return np.stack([there - rejected[:, level - 1], there], 1).astype(np.float64)

    return sums


def _fixed(deepest: int) -> str:
    return f"fixed({min(LENGTH, deepest)})"


def _accepted_of_drafted(at: Replays, deepest: int) -> np.ndarray:
    counts = at.replay(_fixed(deepest)).counts
    return np.stack([counts["accepted"], counts["drafted"]], 1).astype(np.float64)


def _tokens_a_step(at: Replays, deepest: int) -> np.ndarray:
    counts = at.replay(_fixed(deepest)).counts
    return np.stack([counts["tokens"], counts["steps"]], 1).astype(np.float64)


def _tokens_a_step_outside(at: Replays, deepest: int) -> np.ndarray:
    """Outside of verbatim loops; over all steps where there are no loops."""
    if not at.study.loops.rows.any():
        return _tokens_a_step(at, deepest)
    counts = outside_loops.counts(at, at.replay(_fixed(deepest)))
    return np.stack([counts["accepted"] + counts["steps"], counts["steps"]], 1)


def _accepted_run(at: Replays, deepest: int) -> np.ndarray:
    return at.accepted_runs(_fixed(deepest))


def _in_loops(at: Replays, deepest: int) -> np.ndarray:
    rows = at.study.loops.rows
    return clusters.by_prompt(at.trace.position_offsets, lambda r: [rows[r], _ones(r)])


def _ended(at: Replays, deepest: int) -> np.ndarray:
    reasons = np.array(at.trace.sequences["finish_reason"].to_pylist(), str)
    if np.any(reasons == "unknown"):
        raise MissingError("it is not known how outputs ended")
    return np.stack([reasons == "eos", np.ones(len(reasons))], 1).astype(np.float64)


def _output(at: Replays, deepest: int) -> np.ndarray:
    n_output = np.diff(at.trace.position_offsets)
    return np.stack([n_output, np.ones(len(n_output))], 1).astype(np.float64)


_SHARE = ".1%"
MEASURES = (
    Measure("overlap β", _mean("overlap")),
    Measure("accepted, each position", _mean("accepted"), _SHARE),
    *(Measure(f"accepted at depth {d}", _at_depth(d), _SHARE) for d in DEPTHS),
    Measure("draft entropy, nats", _mean("draft_entropy")),
    Measure("target entropy, nats", _mean("target_entropy")),
    Measure(f"accepted of drafted, fixed({LENGTH})", _accepted_of_drafted, _SHARE),
    Measure("accepted run, tokens", _accepted_run),
    Measure(f"tokens a step, fixed({LENGTH})", _tokens_a_step),
    Measure("tokens a step outside of loops", _tokens_a_step_outside),
    Measure("positions in loops", _in_loops, _SHARE),
    Measure("outputs ended by EOS", _ended, _SHARE),
    Measure("output tokens a prompt", _output, ".1f"),
)
