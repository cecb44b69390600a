"""`python -m benchmarks.placebo`: its log, going on with it, and what is stored."""

import json
import sys

import pytest
from test_claims import CLAIMS

from analysis.claims import check, placebos
from analysis.claims.claim import ClaimKind
from benchmarks import placebo
from traces.synthetic import iid
from traces.trace import load
from traces.writer import save

pytestmark = pytest.mark.usefixtures("few_requests")


@pytest.fixture
def run(tmp_path, monkeypatch):
    folder, log = tmp_path / "trace", tmp_path / "log.jsonl"
    save(iid(30, 100, 0.7, max_draft=40, seed=3), folder)
    monkeypatch.setattr(placebo, "FILE", tmp_path / "stored.json")
    monkeypatch.setattr(placebos, "FILE", tmp_path / "stored.json")
    monkeypatch.setattr(placebo, "_traces", {})
    placebos._study.cache_clear()

    def main(*arguments):
        given = ["--trace", str(folder), "--sampled", "", "--processes", "1", "--log", str(log)]
        monkeypatch.setattr(sys, "argv", ["placebo", *given, *arguments])
        placebo.main()
        return [json.loads(line) for line in log.read_text().splitlines()]

    main.log, main.folder = log, folder
    yield main
    placebos._study.cache_clear()


def test_it_goes_on_where_it_was_cut(run, capsys):
    head, *done = run("--traces", "3")
    assert [one["seed"] for one in done] == [1, 2, 3]
    assert head["claims"] == [n for n, one in CLAIMS.items() if one.kind is not ClaimKind.THEOREM]
    run.log.write_text(run.log.read_text()[:-30])  # killed while it wrote
    assert run("--traces", "3", "--resume") == [head, *done]
    assert "3 placebos of" in capsys.readouterr().out
    run.log.write_text(json.dumps(head | {"trace": "another"}) + "\n")
    with pytest.raises(SystemExit, match="other traces or claims"):
        run("--traces", "3", "--resume")


def test_shares_are_stored_and_shown(run, capsys):
    run("--traces", "2", "--store")
    placebos._study.cache_clear()  # as in a new process
    printed = capsys.readouterr().out
    assert "| `marginal_falls` | 100.0% |" in printed
    found = check(run.folder, None, claims=[CLAIMS["marginal_falls"]]).of[0]
    assert found.row()[-1] == "holds (holds on 100.0% of 2 placebos)"
    assert found.record()["placebo_holds"] == 1.0 and found.record()["placebos"] == 2
    other = iid(30, 100, 0.7, max_draft=40, seed=4)  # another trace: nothing is known of it
    assert check(other, claims=[CLAIMS["marginal_falls"]]).of[0].row()[-1] == "holds"


def test_one_claim_is_stored_beside_the_others(run, capsys):
    run("--traces", "2", "--store")
    before = json.loads(placebo.FILE.read_text())["claims"]
    head, *_ = run("--traces", "3", "--store", "--claims", "marginal_falls")
    assert head["claims"] == ["marginal_falls"]
    after = json.loads(placebo.FILE.read_text())["claims"]
    assert after == before | {"marginal_falls": {"holds": 3}}
    with pytest.raises(SystemExit, match="no claim that a trace can refute: nonsense"):
        run("--claims", "nonsense")


def test_placebos_on_which_a_claim_cannot_be_tested_do_not_count():
    found = placebos.shares(load("reference"), load("reference-sampled"), None)
    assert found["pacer_accepts_more"].placebos == 977
    assert "growth_of_five" not in found
