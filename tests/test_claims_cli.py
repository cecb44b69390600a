"""`simkit claims`: formats, refusals, and the bundled trace."""

import json

import pytest
from commands import refused, run, status
from test_claims import CLAIMS, FAILS, HOLDS, UNTESTED

from analysis.claims import beside, check
from analysis.claims.beside import MANY, together
from analysis.claims.verdict import Verdict
from analysis.study import Study
from traces.synthetic import iid
from traces.writer import save

REFERENCE = {  # far from the line, or in the middle: no change of the bootstrap moves these
    "entropy_ratio": HOLDS,
    "entropy_against_length": HOLDS,
    "stronger_when_greedy": HOLDS,
    "marginal_falls": HOLDS,
    "conditional_falls": FAILS,
    "optimal_is_faster": HOLDS,
    "head_gains_without_tau": FAILS,  # at h = 0.95 it all but never stops a draft, and is paid
    "head_costs_nothing": FAILS,
    "post_matters_more": FAILS,
    "confidence_predicts": FAILS,  # below the one bar for "strong"
    "weights_help_training": HOLDS,
}


def printed(capsys, *words):
    ended, out, _ = run(capsys, "claims", *words, "--format", "json")
    assert ended == 0
    return json.loads(out)


def test_reference(capsys):
    """`simkit claims reference --format json` finds scores, times and the sampled recording."""
    found = {one["claim"]: one for one in printed(capsys, "reference")}
    assert list(found) == list(CLAIMS)
    assert {name: found[name]["verdict"] for name in REFERENCE} == REFERENCE
    alike = {name for name, one in found.items() if one["would_hold_without_structure"]}
    assert {"optimal_is_faster", "speculation_pays", "pearl_runs_more", "marginal_falls"} <= alike
    assert not alike & {"entropy_against_length", "lengths_vary", "head_predicts", "shorter_drafts"}
    assert not [name for name, one in found.items() if one["verdict"] == str(UNTESTED)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("claims") / "trace"
    save(iid(14, 40, 0.7, max_draft=40, seed=3), path)
    return str(path)


@pytest.mark.usefixtures("few_requests")
def test_command_formats(folder, tmp_path, capsys):
    cost = "linear(draft_s=1, target_s=6)"
    ended, out, _ = run(capsys, "claims", folder, "--cost", cost)
    assert ended == 0 and f"Trace trace, {cost}" in out
    ends = {
        "table": "prompts.\n",
        "json": "]\n",
        "csv": "\n",
        "markdown": "unless a cost is given.\n",
    }
    for kind, end in ends.items():
        out = tmp_path / kind
        words = folder, "--cost", cost, "--format", kind, "-o", out
        assert run(capsys, "claims", *words)[:2] == (0, "")
        text = out.read_text()
        assert text.endswith(end) and "Bretagnolle" in text
    words = folder, "--sampled", "reference-sampled", "--format", "markdown"
    ended, out, _ = run(capsys, "claims", *words)
    assert ended == 0 and "| paper | claim |" in out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nowhere"], "nowhere"),
        (["reference", "--cost", "free"], "free"),
        (["reference", "--sampled", "nowhere"], "nowhere"),
        (["reference", "--sampled", "reference"], "reference: is the trace itself"),
        (["reference", "--beside", "nowhere"], "nowhere"),
        (["reference", "--beside", "reference"], "reference: two of the traces have this name"),
        (["reference", "--format", "xml"], "'--format': 'xml' is not one of"),
        (["reference", "-o", "/proc/claims.md"], "/proc/claims.md"),
        (["reference", "-o", "/nowhere/claims.md"], "no such folder"),
    ],
)
def test_command_refuses(arguments, said, capsys):
    assert said in refused(capsys, "claims", *arguments)


@pytest.mark.usefixtures("few_requests")
def test_two_traces_side_by_side(folder, tmp_path, capsys):
    """Each trace says what it says alone; the last column says what both say together."""
    other = tmp_path / "another"
    save(iid(14, 40, 0.9, max_draft=40, seed=4), other)
    cost = ["--cost", "linear(draft_s=1, target_s=6)"]
    alone = []
    for path in (folder, other):
        alone.append({one["claim"]: one for one in printed(capsys, path, *cost)})
    rows = printed(capsys, folder, "--beside", other, *cost)
    assert [row["claim"] for row in rows] == list(CLAIMS)
    for row in rows:
        assert row["traces"] == {"trace": alone[0][row["claim"]], "another": alone[1][row["claim"]]}
        verdicts = [Verdict(one["verdict"]) for one in row["traces"].values()]
        assert row["together"] == together(verdicts)
    for kind, end in {"table": "prompts.\n", "csv": "\n", "markdown": "|\n"}.items():
        out = tmp_path / kind
        words = folder, "--beside", other, *cost, "--format", kind, "-o", out
        assert status("claims", *words) == 0
        text = out.read_text()
        assert text.endswith(end) and "another" in text and "together" in text


def test_the_table_of_several_traces_begins_with_what_differs(folder):
    """Reasons are said once, by number; rows are in the order of what all say together."""
    studies = [Study(folder), Study(iid(14, 40, 0.3, max_draft=40, seed=5))]
    found = beside([check(study, "linear(draft_s=1, target_s=6)") for study in studies])
    rows = found.rows()
    order = list(dict.fromkeys(row[2] for row in rows))
    assert order == [words for words in (*MANY, "by construction") if words in order]
    assert len(rows) == len(CLAIMS) and len(order) > 3
    reasons = [one.why for some in found.of for one in some.of if one.why]
    for why in set(reasons):
        assert found.note().count(f"({found.reasons[why]}) {why}.") == 1
        assert not any(why in cell for row in rows for cell in row)
    assert any(cell.startswith("holds°: ") for row in rows for cell in row[3:])


def test_what_verdicts_say_together():
    holds, fails, open_ = Verdict.HOLDS, Verdict.FAILS, Verdict.OPEN
    untested, example, theorem = Verdict.UNTESTED, Verdict.NO_EXAMPLE, Verdict.THEOREM
    assert together([holds, holds]) == "holds on all"
    assert together([fails, fails]) == together([fails, example]) == "holds on none"
    assert together([holds, fails]) == together([holds, example, untested]) == "differs"
    assert together([holds, open_]) == together([open_, fails]) == "undecided"
    assert together([untested, untested]) == "tested on none"
    assert together([holds, untested]) == "tested on some"
    assert together([theorem, theorem]) == ""
