"""What was recorded and how: the manifest, the tasks, the timing samples, the scores."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from analysis.replays import tasks
from analysis.report.cells import ReportTable, estimate, lacking, number
from analysis.report.timings import timings
from analysis.stats import clusters
from analysis.study import loops_of
from simkit.simulator.display import Cell
from traces import scores
from traces.bundle import more_of
from traces.describe import describe, in_words
from traces.loops import LEAST, LONGEST, TIMES
from traces.trace import Trace

LOOPS = (
    f"In loops: positions whose token equals the one P tokens before, for at least max({TIMES} P,"
    f" {LEAST}) positions in a row, P up to {LONGEST}. There a draft is accepted whole, or fails at"
    " the same place in each repetition."
)


class Recorded(NamedTuple):
    """A recording in brief.

    Attributes:
        facts: names, and what is said of each.
        tables: tasks, timing samples, scores; those that there are.
        missing: what the trace does not hold.
    """

    facts: list[tuple[str, str]]
    tables: list[ReportTable]
    missing: list[str]


def recorded(trace: Trace) -> Recorded:
    """What the manifest and the small tables of a trace say."""
    found = describe(trace)
    facts = [*_merged(found), *_versions(found)]
    missing = []
    if not trace.manifest.drafter.can("path"):
        missing.append(
            "The trace is a lattice: each start has a draft of its own, so that nothing is known"
            " of acceptance along the output."
        )
    if trace.manifest.target is None:
        missing.append("Which models it was recorded with is not known.")
    made = [_tasks(trace), timings(trace), _scores(trace)]
    absent = ("", "It has no timing samples.", "It has no scores of learned heads.")
    missing += [why for table, why in zip(made, absent, strict=True) if table is None and why]
    missing += more_of((trace.recording or trace).path)
    return Recorded(facts, [table for table in made if table is not None], missing)


def _merged(found: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """The facts, but for the folder; what goes on below a name in a terminal is put beside it."""
    facts: dict[str, list[str]] = {}
    for name, value in in_words(found):
        facts.setdefault(name or next(reversed(facts)), []).append(value)
    yield from ((name, "; ".join(said)) for name, said in facts.items() if name != "trace")


def _versions(found: dict[str, Any]) -> list[tuple[str, str]]:
    libraries = found["libraries"]
    named = ", ".join(f"{name} {number}" for name, number in libraries.items())
    return [("recorded with", named)] if named else []


def _tasks(trace: Trace) -> ReportTable | None:
    """Prompts and tokens of each task."""
    if not trace.n_sequences:
        return None
    table = trace.sequences
    n_prompt, n_output = (table[name].to_numpy() for name in ("n_prompt", "n_output"))
    reasons = np.array(table["finish_reason"].to_pylist())
    hits, free = _accepted(trace), _outside(trace)
    task, rows, found = tasks(trace), [], []
    for name in dict.fromkeys(task.tolist()):
        some = task == name
        row = [
            Cell(name),
            number(int(some.sum())),
            number(float(n_prompt[some].mean()), ".1f"),
            number(int(n_output[some].sum())),
            number(float(n_output[some].mean()), ".1f"),
            _ended(reasons[some]),
        ]
        if hits is not None:
            one = clusters.ratio(hits[some], n_output[some])
            found.append((name, one))
            row.append(estimate(one, ".1%"))
        if free is not None:
            accepted, positions = (values[some] for values in free)
            looped = 1 - positions.sum() / max(1, n_output[some].sum())
            one = clusters.ratio(accepted, positions)
            found.append((f"{name}, outside of loops", one))
            row += [number(float(looped), ".0%"), estimate(one, ".1%")]
        rows.append(row)
    heads = ["task", "prompts", "prompt tokens, mean", "output tokens", "a prompt", "ended by EOS"]
    heads += ["accepted [95%]"] if hits is not None else []
    heads += ["in loops", "accepted outside of loops [95%]"] if free is not None else []
    notes = lacking(found)
    if free is not None:
        notes = (LOOPS, *notes)
    if hits is not None:
        notes = (
            "Accepted: share of output positions at which the draft token is accepted.",
            *notes,
        )
    return ReportTable("tasks", "Prompts and tokens by task", heads, rows, notes)


def _ended(reasons: np.ndarray) -> Cell:
    """Share of outputs that an EOS ended, (S,) reasons; an imported file may not say."""
    if np.any(reasons == "unknown"):
        return Cell("not known")
    return number(float((reasons == "eos").mean()), ".0%")


def _accepted(trace: Trace) -> np.ndarray | None:
    """Accepted positions of each prompt, (S,); None for a lattice."""
    if not trace.manifest.drafter.can("path"):
        return None
    accepted = trace.positions("accepted")
    return clusters.by_prompt(trace.position_offsets, lambda rows: [accepted[rows]])[:, 0]


def _outside(trace: Trace) -> tuple[np.ndarray, np.ndarray] | None:
    """Accepted positions, and all, outside of loops, (S,) each; None where there are no loops."""
    if not trace.manifest.drafter.can("path"):
        return None
    left = loops_of(trace).outside
    if left is None:
        return None
    accepted = trace.positions("accepted")[left.rows]
    hits = clusters.by_prompt(left.prompts, lambda rows: [accepted[rows]])[:, 0]
    return hits, np.diff(left.prompts)


def _scores(trace: Trace) -> ReportTable | None:
    """Score tables of learned heads."""
    names = [
        name.removeprefix("scores/").removesuffix(".parquet")
        for name in sorted(trace.manifest.files)
        if name.startswith("scores/")
    ]
    rows = []
    for name in names:
        facts = scores.facts(trace, name) or {}
        head = facts.get("head") or {}
        own = "yes" if facts.get("trace") == trace.hash else "no: another trace's, not used"
        rows.append([name, str(head.get("kind", "")), str(head.get("hash", ""))[:8], own])
    heads = ["scores", "kind of head", "head's hash", "of this trace"]
    return ReportTable("scores", "Scores of learned heads", heads, rows) if rows else None
