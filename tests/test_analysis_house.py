"""The room of the analysis: what it loads, what it keeps, what a figure shows of loops."""

import subprocess
import sys

import numpy as np
import pytest
from commands import status

import simkit
from analysis.claims import check
from analysis.figures import optimal_gain, pearl_window, position_decay
from analysis.replays import of
from analysis.study import Study
from simkit.costs import Linear
from traces.synthetic import iid
from traces.trace import load
from traces.writer import save

pytestmark = pytest.mark.usefixtures("few_requests")

LINEAR = """kind = "linear"
draft_s = 0.001
target_s = {}
"""


def test_statistics_claims_and_report_load_no_matplotlib():
    """Nor does a report without figures."""
    said = "import sys, analysis.claims, analysis.papers, analysis.stats, analysis.replays;"
    said += "import analysis.report, analysis.labelled_replays, analysis.gap;"
    said += "assert 'matplotlib' not in sys.modules;"
    said += "from traces.synthetic import iid; from simkit.costs import Linear;"
    said += "page = analysis.report.report(iid(3, 9, 0.7, max_draft=4, seed=1), Linear(1, 4),"
    said += " figures=False); assert page.html() and 'matplotlib' not in sys.modules"
    subprocess.run([sys.executable, "-c", said], check=True)


def test_a_changed_cost_file_is_read_again(tmp_path):
    study, file = Study(iid(6, 20, 0.7, max_draft=8, seed=1)), tmp_path / "cost.toml"
    speeds = []
    for target_s in (0.01, 0.002):
        file.write_text(LINEAR.format(target_s))
        at = of(study, str(file))
        assert of(study, str(file)) is at
        speeds.append(at.replay("fixed(2)").total_s.sum())
    assert speeds[0] > 3 * speeds[1]


def test_acceptance_by_depth_is_shown_with_loops_and_without():
    """The bundled greedy outputs loop: within loops a draft runs on."""
    frame = position_decay(load("reference")).frame
    deep = {
        name: frame.filter(series=name, depth=8)["acceptance"].item()
        for name in ("conditional", "conditional, outside of loops")
    }
    assert deep["conditional"] > deep["conditional, outside of loops"]
    assert "loops" not in " ".join(
        position_decay(iid(6, 20, 0.7, max_draft=8, seed=1)).frame["series"].unique()
    ) or pytest.fail("independent tokens have no loops")


def test_figures_and_claims_replay_from_the_token_that_is_asked_for():
    """The same counts and seconds as `simkit.replay` has with the prefill's first token."""
    trace, cost = iid(14, 40, 0.7, max_draft=12, seed=3), Linear(0.001, 0.004)
    study, specs = Study(trace, "prefill"), ["fixed(2)", "pearl(window=3)"]
    want = {
        str(run.policy): run
        for run in simkit.replay(trace, specs, cost, first_token="prefill").runs
    }
    for spec in specs:
        mine = of(study, cost).replay(spec)
        np.testing.assert_array_equal(mine.counts["steps"], want[spec].counts["steps"])
        np.testing.assert_allclose(mine.total_s, want[spec].total_s)
    plain, other = (pearl_window(trace, cost=cost, first_token=f) for f in ("draft", "prefill"))
    shared = pearl_window(study, cost=cost)
    assert other.frame.equals(shared.frame) and not plain.frame.equals(other.frame)
    assert "first token from the prefill" in " ".join(t.get_text() for t in other.ax.texts)
    found = check(study, cost, placebo=None)
    assert "first token from the prefill" in found.note()
    assert found.records() == check(trace, cost, placebo=None, first_token="prefill").records()
    with pytest.raises(simkit.errors.ReplayError, match="draft or prefill, not 'second'"):
        optimal_gain(trace, cost=cost, first_token="second")


def test_commands_take_the_first_token(tmp_path, capsys):
    trace, cost = tmp_path / "trace", "linear(draft_s=0.001, target_s=0.004)"
    save(iid(6, 20, 0.7, max_draft=8, seed=1), trace)
    under = ["--cost", cost, "--first-token", "prefill"]
    figure = ["figures", trace, "--out", tmp_path / "f", "--only", "pearl_window"]
    page = ["report", trace, "-o", tmp_path / "page.html", "--no-figures"]
    for words in (figure, page, ["claims", trace]):
        assert status(*words, *under) == 0
    said = capsys.readouterr().out
    assert "first token from the prefill" in " ".join(said.split())
    assert "first token from the prefill" in (tmp_path / "f" / "pearl_window.svg").read_text()
    assert "--first-token prefill" in (tmp_path / "page.html").read_text()
