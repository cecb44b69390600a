"""The room of the analysis: what it loads, what it keeps, what a figure shows of loops."""

import subprocess
import sys

import pytest

from analysis.figures import position_decay
from analysis.replays import of
from traces.synthetic import iid
from traces.trace import load

LINEAR = """kind = "linear"
draft_s = 0.001
target_s = {}
"""


def test_statistics_and_claims_load_no_matplotlib():
    said = "import sys, analysis.claims, analysis.papers, analysis.stats, analysis.replays;"
    said += "assert 'matplotlib' not in sys.modules"
    subprocess.run([sys.executable, "-c", said], check=True)


def test_a_changed_cost_file_is_read_again(tmp_path):
    trace, file = iid(6, 20, 0.7, max_draft=8, seed=1), tmp_path / "cost.toml"
    speeds = []
    for target_s in (0.01, 0.002):
        file.write_text(LINEAR.format(target_s))
        at = of(trace, str(file))
        assert of(trace, str(file)) is at
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
