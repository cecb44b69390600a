"""Times that end early: every figure, result and command says how much of it lies beyond them."""

from __future__ import annotations

from inspect import signature
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commands import run
from engine_logs import vllm_log
from replay_traces import with_scores

import simkit
from analysis.claims import check
from analysis.claims.claim import claims
from analysis.compare import compare
from analysis.explore.model import ExploreModel
from analysis.figures import FIGURES
from analysis.figures.base import Plot, figure
from analysis.figures.tables import tables
from analysis.gap import gap
from analysis.report import report
from analysis.study import Study
from simkit.engines import export
from simkit.importers import vllm
from simkit.serving import Engine, serve
from traces import schema
from traces.synthetic import iid
from traces.trace import Trace, load
from traces.writer import add_file, save

pytestmark = pytest.mark.usefixtures("few_requests")

SHORT = "imes beyond those that were taken are extrapolated: "
BEHIND = "of output positions lie behind contexts longer than the longest timed (12 tokens)"
WIDE = "the target reads more tokens in a pass than the most timed (2): their times are extra"
SERVED = WIDE.replace("in a", "of a request in a")


def early() -> pa.Table:
    """Samples of passes over one and two tokens behind at most 12, in batches of 1, 2 and 64."""
    rows = [
        (model, n, c, size, (1 + 5 * (model == "target")) * (1 + 0.1 * n * size) + 1e-3 * c)
        for model in ("target", "draft")
        for size in (1, 2, 64)
        for n in (1, 2)
        for c in (1, 12)
    ]
    rows += [(model, n, 0, 1, 1.0 + n) for model in ("target", "draft") for n in (1, 4)]
    names = ("component", "tokens_in", "context_len", "batch_size", "seconds")
    facts = {"dtype": "float32", "device": "cpu", "engine": "eager", "repeat": 0}
    named = [dict(zip(names, row, strict=True)) | facts for row in rows]
    return pa.Table.from_pylist(named, schema=schema.LATENCY)


@pytest.fixture(scope="module")
def cost(tmp_path_factory) -> str:
    file = tmp_path_factory.mktemp("early") / "cost.parquet"
    pq.write_table(early(), file)
    return str(file)


@pytest.fixture(scope="module")
def trace() -> Trace:
    return with_scores(iid(6, 48, 0.7, max_draft=20, seed=1, tasks=("code", "prose")))


@pytest.fixture(scope="module")
def folder(trace, tmp_path_factory) -> Path:
    place = tmp_path_factory.mktemp("early") / "trace"
    save(trace, place)
    add_file(place, "latency.parquet", early())
    return place


@pytest.fixture(scope="module")
def studies(trace):
    trees = Study(load("reference-trees", "eagle-tree"))
    return {"single": Study(trace), "trees": trees, "drafters": Study("reference-trees")}


PRICED = [name for name, one in FIGURES.items() if "cost" in signature(one.draw).parameters]


@pytest.mark.parametrize("name", PRICED)
def test_every_figure_that_takes_a_cost_says_it_once(name, cost, studies):
    one = FIGURES[name]
    study = studies["trees" if one.trees else "drafters" if one.drafters else "single"]
    drawn = one.draw(study, cost=cost)
    said = " ".join(drawn.notes)
    assert said.count(SHORT) == said.count("(contexts over 12 tokens)") == 1, drawn.notes
    assert said.count("(target passes over 2 tokens") == 1


def test_a_new_figure_cannot_forget_it(cost, studies, monkeypatch):
    """Whoever replays under a cost says so, also where it was replayed for another figure."""
    for name in ("_things", "_origins"):
        monkeypatch.setattr(FIGURES, name, dict(getattr(FIGURES, name)))

    @figure("new")
    def drawn(plot: Plot, cost: str | None = None) -> None:
        """A figure of a test."""
        plot.rows = [{"seconds": float(plot.under(cost).replay("fixed(5)").total_s.sum())}]
        plot.caption("A title", "Words.")

    for _ in range(2):
        (said,) = (line for line in drawn(studies["single"], cost=cost).notes if SHORT in line)
        assert said.endswith("of steps (target passes over 2 tokens).") and "up to" not in said


def test_what_takes_no_cost_says_nothing(folder):
    """Counts rest on no times, though the trace has some of its own."""
    study = Study(str(folder))
    for name in sorted(set(FIGURES) - set(PRICED)):
        one = FIGURES[name]
        if not (one.drafters or one.trees):
            assert SHORT not in " ".join(one.draw(study).notes)


ALONE = Engine(max_batch=1)
RESULTS: dict[str, Any] = {
    "replay": lambda t, c: simkit.replay(t, "fixed(3)", c).notes,
    "sweep": lambda t, c: simkit.sweep(t, "fixed(1:4)", c).notes,
    "tune": lambda t, c: simkit.tune(t, "fixed(2:4)", c, folds=2).notes,
    "serve": lambda t, c: serve(t, "static(3)", c, rate=5, requests=9, engine=ALONE).notes,
    "gap": lambda t, c: gap(t, "svip", c, folds=2).notes,
    "compare": lambda t, c: (
        compare(t, iid(12, 30, 0.6, max_draft=16, seed=2), cost=c).pairs[0].notes
    ),
    "report": lambda t, c: report(t, c, figures=False).caveats,
    "export": lambda t, c: export(t, "vllm", cost=c, policy="fixed(2:3)").notes,
}


@pytest.mark.parametrize("name", RESULTS)
def test_every_result_says_it(name, trace, cost):
    said = " ".join(RESULTS[name](trace, cost))
    assert said.count(BEHIND) == (2 if name == "compare" else 1)  # each trace its own share
    assert (SERVED if name == "serve" else WIDE) in said


def test_claims_tables_and_the_explorer_say_it(trace, cost):
    some = [claim for claim in claims() if claim.paper == "PACER"]
    assert check(trace, cost, claims=some, placebo=None).note().count(SHORT) == 1
    filled, _ = tables(trace, cost)
    own = [one for one in filled if one.source != "PACER Table 15"]  # under the pair's own times
    assert own and all(one.note.count(SHORT) == 1 for one in own)
    pytest.importorskip("panel")
    from analysis.explore.page import Page

    said = Page(ExploreModel(Study(trace), cost)).remarks.object
    assert said.count(BEHIND) == 1 and WIDE in said


def test_intervals_of_a_log_say_it(trace, cost, tmp_path):
    log = vllm.load(vllm_log(trace, "fixed(3)", tmp_path / "log.jsonl"))
    said = simkit.replay(log.trace, ["fixed(1)", "fixed(2)", "fixed(3)"], cost).notes
    wide = [line.split(":")[0] for line in said if WIDE in line]
    assert wide == ["fixed(2)", "fixed(3)"] and BEHIND in " ".join(said)


COMMANDS = {
    "replay": ("replay", "--policy", "fixed(3)"),
    "sweep": ("sweep", "--policy", "fixed(1:4)"),
    "tune": ("tune", "--policy", "fixed(2:4)", "--folds", "2"),
    "serving": ("serving", "--controller", "static(3)", "--rate", "5", "--max-batch", "1"),
    "claims": ("claims", "--format", "markdown"),
    "export": ("export", "--engine", "vllm", "--policy", "fixed(2:3)", "-o", "OUT"),
    "figures": ("figures", "--out", "OUT", "--only", "optimal_gain"),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_says_it(name, folder, capsys, tmp_path):
    first, *words = (word.replace("OUT", str(tmp_path / "out")) for word in COMMANDS[name])
    status, out, err = run(capsys, first, folder, *words)
    said = " ".join((out + err).split())
    assert status == 0 and (BEHIND in said or SHORT in said)
