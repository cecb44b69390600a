"""The run of `simkit fidelity` that comes with the package, and others read from their folders."""

import polars as pl
import polars.selectors as cs
import pytest

from analysis import fidelity, figures
from benchmarks.bundle_fidelity import bundle, predicted_anew, replayed
from simkit.errors import LiveError


@pytest.fixture(scope="module")
def run():
    return fidelity.load()


def test_a_replay_gives_the_predictions_again(run):
    """On the prompts that were held out, in as many steps as were taken live."""
    both = replayed(run)
    sums = both.group_by("policy", maintain_order=True).agg(pl.col("baseline_s", "total_s").sum())
    again = sums["baseline_s"] / sums["total_s"]
    assert again.to_list() == pytest.approx(run.policies["predicted"].to_list(), rel=1e-9)
    if run.policies["differing"].sum() == 0:
        steps = both.join(run.measured.filter(run=1), on=["policy", "sequence"])
        assert steps["steps"].to_list() == steps["steps_right"].to_list()


def test_the_bundled_predictions_are_those_of_the_fit(run):
    anew = predicted_anew(run)
    assert anew.select(cs.string()).equals(run.policies.select(cs.string()))
    for name in anew.select(cs.numeric()).columns:
        assert anew[name].to_list() == pytest.approx(run.policies[name].to_list(), rel=1e-9), name


def test_measured_speedups_are_those_of_the_log(run):
    seconds = run.measured.group_by("run", maintain_order=True).agg(pl.col("seconds").sum())
    base, *arms, again = seconds["seconds"].to_list()
    assert [base / s for s in arms] == pytest.approx(run.policies["measured"].to_list(), rel=1e-3)
    assert again == pytest.approx(arms[0], rel=0.05)  # the first policy, twice
    assert run.measured.filter(run=0)["policy"].unique().to_list() == ["baseline"]


def test_bundling_a_bundled_run_changes_nothing(run, tmp_path):
    bundle(fidelity.BUNDLED, tmp_path)
    again = fidelity.load(tmp_path)
    assert again.policies.equals(run.policies) and again.measured.equals(run.measured)
    assert again.device == run.device


def test_an_unfinished_run_is_refused(tmp_path):
    with pytest.raises(LiveError, match="fidelity.parquet is missing"):
        fidelity.load(tmp_path)


def test_pictures_draw_what_was_loaded(run):
    found = figures.fidelity_speedups(run.policies)
    assert found.frame is run.policies
    names = [label.get_text().split("  ")[0] for label in found.ax.get_yticklabels()]
    assert names == run.policies.sort("measured")["policy"].to_list()
    times = run.measured.select("seconds", total_s=pl.col("seconds"))
    ax = figures.fidelity_prompts(times).ax
    assert len(ax.lines[1].get_xydata()) == len(times)
