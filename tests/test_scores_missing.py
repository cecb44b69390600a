"""A token that no state has consumed has no score, wherever scores are written, kept or read."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import simkit
from analysis.claims import check
from analysis.claims.claim import claims
from analysis.figures import reliability
from analysis.scored import predicted
from analysis.stats.reliability import reliability as measured
from traces import scores
from traces.errors import TraceError
from traces.placebo import placebo
from traces.subset import select
from traces.synthetic import iid
from traces.trace import Trace, load

NAME = "acceptance_head"


def whole() -> Trace:
    return iid(12, 30, 0.7, max_draft=8, seed=3)


def consumed(trace: Trace) -> np.ndarray:
    """Whether a row of the same draft follows each row, one by one."""
    accepted, ends = trace.positions("accepted"), trace.branch_offsets
    found = []
    for low, high in zip(trace.position_offsets[:-1], trace.position_offsets[1:], strict=True):
        for r in range(low, high):
            found.append(r + 1 < high if accepted[r] else ends[r + 1] > ends[r])
    off = np.zeros(trace.n_branch_rows, bool)
    for low, high in zip(ends[:-1], ends[1:], strict=True):
        off[low : max(low, high - 1)] = True
    return np.concatenate([found, off])


def scored(trace: Trace, placeholder: float = 1.0, lag: int = 1) -> Trace:
    """With a lagging head's scores; where there can be none, as older files have it."""
    values = np.random.default_rng(0).uniform(0.2, 0.9, trace.n_positions + trace.n_branch_rows)
    if lag:
        values = np.where(consumed(trace), values, placeholder)
    values, n = values.astype(np.float32), trace.n_positions
    return scores.attach(trace, NAME, scores.RowScores(values[:n], values[n:], lag))


def rows_of(trace: Trace) -> scores.RowScores:
    found = scores.load(trace, NAME)
    assert isinstance(found, scores.RowScores)
    return found


@pytest.mark.parametrize("placeholder", [1.0, np.nan])
def test_placeholders_are_read_as_no_score(placeholder):
    trace = scored(whole(), placeholder)
    found = rows_of(trace)
    seen = ~np.isnan(np.concatenate([found.path, found.branches]))
    assert np.array_equal(seen, consumed(trace)) and 0 < seen.sum() < len(seen)
    again = rows_of(scores.attach(trace, NAME, found))
    assert np.array_equal(again.path, found.path, equal_nan=True)


def test_a_row_that_must_have_a_score_is_refused_without():
    trace = whole()
    for lag in (0, 1):
        values = rows_of(scored(trace, lag=lag))
        path = values.path.copy()
        path[np.flatnonzero(consumed(trace))[0]] = np.nan
        broken = scores.attach(trace, NAME, scores.RowScores(path, values.branches, lag))
        with pytest.raises(TraceError, match="hold a value that is no probability"):
            scores.load(broken, NAME)


def test_scores_that_do_not_lag_are_all_there():
    found = rows_of(scored(whole(), lag=0))
    assert not np.isnan(found.path).any() and not np.isnan(found.branches).any()


def test_no_replay_has_read_a_placeholder():
    """Steps are those of before, whatever stood there."""
    specs = ["acceptance_head(h=0.3)", "acceptance_head(h=0.8)", f"specdecpp(lag=1, head={NAME})"]
    one, other = (simkit.replay(scored(whole(), x), specs).records() for x in (1.0, np.nan))
    assert one == other


def test_predictions_leave_them_out():
    trace = scored(whole())
    found, seen = predicted(trace, NAME), consumed(trace)[: trace.n_positions]
    assert np.array_equal(found.accepted, trace.positions("accepted")[seen])
    assert found.probability.max() < 0.95 and found.offsets[-1] == seen.sum()
    counts = np.add.reduceat(seen, trace.position_offsets[:-1])
    assert np.array_equal(np.diff(found.offsets), counts)
    drawn = reliability(trace)
    rows = drawn.frame.filter(signal="acceptance head").drop_nulls("rows")
    assert rows["rows"].sum() == seen.sum() and rows["predicted"].max() < 0.95
    lost = f"{(~seen).sum():,} tokens"
    assert any(f"acceptance head: no score for {lost}" in note for note in drawn.notes)
    (claim,) = [one for one in claims() if one.name == "head_predicts"]
    (finding,) = check(trace, claims=[claim], placebo=None).of
    assert finding.parts[0].found == measured(*found).skill


def test_coin_flips_and_parts_of_a_trace_have_scores_where_they_need_them():
    for made in (placebo(scored(whole()), 0), select(scored(whole()), (0, 3), [NAME], 17)):
        found = rows_of(made)
        seen = ~np.isnan(np.concatenate([found.path, found.branches]))
        assert np.array_equal(seen, consumed(made))
        assert simkit.replay(made, "acceptance_head(h=0.6)").records()[0]["steps"] > 0


def test_bundled_scores_hold_no_placeholder():
    found = rows_of(load("smollm2"))
    assert np.isnan(found.path).sum() == 424 and np.nanmax(found.path) < 1


def test_a_table_of_another_length_is_refused():
    trace = scored(whole())
    table = trace.extra(scores.file_name(NAME))
    assert isinstance(table, pa.Table)
    short = Trace(trace.manifest, scores._With(trace, scores.file_name(NAME), table[:-1]), None)
    with pytest.raises(TraceError, match="do not fit"):
        scores.load(short, NAME)
