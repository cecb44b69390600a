"""Figures that compare the drafters of a recording."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from printed import fit_to_print, legend

import simkit
import traces
from analysis import figures
from analysis.drafters import drafts, side_by_side
from analysis.figures import FIGURES
from analysis.series_styles import drafters_of
from analysis.stats.drafts import fixed_steps
from analysis.study import Study
from traces.errors import UserError
from traces.synthetic import iid

pytestmark = pytest.mark.usefixtures("few_requests")

COST = "linear(draft_s=1, target_s=6, target_per_token_s=0.1)"
SEVERAL = [name for name, one in FIGURES.items() if one.drafters]


@pytest.fixture(scope="module")
def study():
    return Study("reference")


@pytest.mark.parametrize("name", SEVERAL)
def test_one_drafter_alone_is_refused(name, tmp_path):
    trace = iid(6, 48, 0.7, max_draft=20, seed=1)
    with pytest.raises(UserError, match="simkit attach|whose training differs") as error:
        FIGURES[name].under(trace, COST)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", [name for name in SEVERAL if name != "parallel_stop"])
def test_draws(name, study, tmp_path):
    found = FIGURES[name].draw(study)
    floats = found.frame.select(pl.selectors.float())
    assert len(found.frame) and not any(floats[c].is_nan().any() for c in floats.columns)
    for path in found.save(tmp_path):
        assert path.stat().st_size
    fit_to_print(found)
    looks = drafters_of(study.trace)
    marks = {label.split(",")[0]: look for label, look in legend(found)}
    assert all(marks[name][1] == looks[name].marker for name in looks.keys() & marks.keys())


def test_the_own_drafter_comes_first(study):
    found = side_by_side(study)
    assert list(found.replays) == ["own", *study.trace.drafters] and not found.gone
    specs = {name: at.trace.manifest.spec for name, at in found.replays.items()}
    assert specs["suffix"] == "suffix()" and not specs["own"]


def test_a_drafter_finds_its_siblings(study):
    trace = traces.load("reference", drafter="suffix")
    assert list(side_by_side(Study(trace)).replays) == ["own", *study.trace.drafters]


@pytest.mark.parametrize("length", [3, 16])
def test_drafts_are_those_of_the_path(study, length):
    """Of the recording's own drafter they are what the layout says, step by step."""
    mine = drafts(side_by_side(study).replays["own"], length)
    layout = study.path
    ends = layout.offsets, study.trace.max_new_tokens, length
    known = fixed_steps(layout.ahead, *ends)
    assert np.array_equal(mine.offsets, known.offsets)
    assert np.array_equal(mine.accepted, known.accepted)
    assert np.array_equal(mine.rejected, known.rejected)


def test_drafts_outside_of_loops_are_fewer_and_end_there(study):
    at = side_by_side(study).replays["suffix"]
    whole, apart = drafts(at, 16), drafts(at, 16, apart=True)
    assert len(apart) < len(whole) and apart.accepted.sum() < whole.accepted.sum()
    left = study.loops.outside
    room = left.room(np.arange(study.trace.n_positions))
    assert apart.accepted.sum() <= np.minimum(room, 16).sum()


def test_a_caption_says_which_drafts_lie_outside_of_loops(study):
    """They are the replay's steps: none begins anew behind a loop."""
    found = figures.drafters_by_depth(study)
    words = " ".join(" ".join(one.get_text() for one in found.ax.texts).split())
    assert "Steps of fixed(16) that begin outside of verbatim loops" in words
    assert "anew" not in words
    row = found.frame.filter(drafter="own", positions="outside of loops", series="conditional")
    mine = drafts(side_by_side(study).replays["own"], 16, apart=True)
    verified = (mine.accepted > 0) | mine.rejected
    assert row["at_risk"][0] == verified.sum()


def test_speedups_by_task_are_those_of_replays(study):
    """With a cost under which a single length is best everywhere: the one that is drawn."""
    found = figures.drafters_by_task(study).frame
    for name in ("own", "suffix"):
        row = found.filter((pl.col("drafter") == name) & (pl.col("task") == "all")).row(
            0, named=True
        )
        one = simkit.replay("reference", {name: [row["setting"], "prophet"]})
        known = {r["policy"]: r["speedup"] for r in one.records()}
        assert row["bound"] == pytest.approx(known["prophet()"], rel=1e-9)
        assert row["speedup"] <= row["bound"]


def test_acceptance_of_a_rule_is_by_depth(study):
    """Depth 1 of a rule's curve: drafts that began, and those whose first token was right."""
    found = figures.drafters_by_depth(study).frame
    row = found.filter(
        (pl.col("drafter") == "ngram")
        & (pl.col("positions") == "all")
        & (pl.col("series") == "conditional")
        & (pl.col("depth") == 1)
    ).row(0, named=True)
    known = drafts(side_by_side(study).replays["ngram"], 5)
    verified = (known.accepted > 0) | known.rejected
    assert row["at_risk"] == verified.sum()
    assert row["acceptance"] == pytest.approx((known.accepted > 0).sum() / verified.sum())
