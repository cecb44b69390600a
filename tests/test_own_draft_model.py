"""What means a draft model of its own is left out of other programs' data, with the reason."""

import json
import re
from dataclasses import replace

import pytest
from commands import run
from test_import import records, written

from analysis.claims import check, claims
from analysis.claims.verdict import Verdict
from analysis.figures import FIGURES
from analysis.figures.tables import tables
from analysis.study import Study
from simkit.importers import specdecode_bench
from traces.errors import UserError
from traces.manifest import SourceInfo
from traces.synthetic import iid
from traces.trace import Trace
from traces.writer import save

pytestmark = pytest.mark.usefixtures("few_requests")

COST = "linear(draft_s=0.001, target_s=0.006)"
WHY = "needs a draft model of its own: this trace is another program's data, and its drafts are"
THEIRS = f"{WHY} those of the drafter eagle"
SOURCE = SourceInfo("other.jsonl", "0" * 64, "eagle", "measured")


@pytest.fixture(scope="module")
def imported(tmp_path_factory) -> Trace:
    """A lattice, tokens only."""
    return specdecode_bench.load(written(tmp_path_factory.mktemp("file"), records(8))).trace


@pytest.fixture(scope="module")
def path() -> Trace:
    """A trace with rows and every column, made of another program's file."""
    own = iid(8, 24, 0.7, max_draft=16, seed=2)
    return Trace(replace(own.manifest, source=SOURCE), own._source)


@pytest.fixture(scope="module")
def studies(imported, path) -> dict[str, Study]:
    """Figures and claims share their replays."""
    return {"imported": Study(imported), "path": Study(path)}


def reason(name: str, trace: Trace | Study) -> str:
    """Why a figure cannot be had; empty if it can."""
    try:
        FIGURES[name].under(trace, COST)
    except UserError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("name", [one.name for one in FIGURES.values()])
def test_figures(name, studies):
    """Those that mean it say so on both; no other is refused for that reason."""
    why = [reason(name, study) for study in studies.values()]
    if FIGURES[name].draft_model:
        assert why == [THEIRS, THEIRS]
    else:
        assert not any(WHY in line for line in why)


def test_figures_that_mean_it_are_those_of_pearl_of_entropies_and_of_heads():
    meant = {one.name for one in FIGURES.values() if one.draft_model}
    for one in FIGURES.values():
        known = re.match(r"pearl|pacer|entropy|acceptance_head|mutual|timeline", one.name)
        assert one.name in meant or not known, one.name
    assert meant.isdisjoint(("position_decay", "optimal_gain", "frontier", "optimal_gamma"))


@pytest.mark.parametrize("which", ["imported", "path"])
def test_claims(which, studies):
    found = {one.claim.name: one for one in check(studies[which], COST, placebo=None).of}
    for one in claims():
        mine = found[one.name]
        assert (mine.why == THEIRS) == one.draft_model, one.name
        if one.draft_model:
            assert mine.verdict is Verdict.UNTESTED and not mine.parts


def test_what_needs_none_is_had(imported, path, studies):
    assert not reason("optimal_gain", imported) and not reason("position_decay", path)
    found = {one.claim.name: one for one in check(studies["imported"], COST, placebo=None).of}
    assert found["optimal_is_faster"].parts
    made, gone = tables(studies["imported"], COST)
    assert [one.name for one in made] and all(not FIGURES[one.name].draft_model for one in made)
    assert sum(THEIRS in line for line in gone) >= 3


def test_own_recordings_have_one(path):
    """So has a lattice that is no other program's."""
    own = Trace(replace(path.manifest, source=None), path._source)
    assert not reason("pearl_window", own) and not reason("entropy_ratio", own)


def test_commands_say_it(imported, tmp_path, capsys):
    save(imported, tmp_path / "trace")
    words = ["figures", tmp_path / "trace", "--out", tmp_path / "f", "--cost", COST]
    status, out, _ = run(capsys, *words, "--only", "pearl_window", "--only", "optimal_gain")
    assert status == 0 and f"pearl_window: skipped: {THEIRS}" in out
    status, out, _ = run(capsys, "claims", tmp_path / "trace", "--cost", COST, "--format", "json")
    assert status == 0
    told = {one["claim"]: one["why"] for one in json.loads(out)}
    assert told["window_is_ratio"] == THEIRS and told["optimal_is_faster"] == ""
    page = tmp_path / "page.html"
    words = ["report", tmp_path / "trace", "-o", page, "--cost", COST]
    assert run(capsys, *words)[0] == 0
    shown = re.sub(r"<[^>]*>|\s+", " ", page.read_text())
    assert "needs a draft model of its own" in " ".join(shown.split())
