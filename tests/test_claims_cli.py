"""`simkit claims`: formats, refusals, the bundled trace and its page in the docs."""

import json
from pathlib import Path

import pytest
from test_claims import CLAIMS, FAILS, HOLDS, UNTESTED

from simkit.cli import main
from traces.synthetic import iid
from traces.writer import save


def run(*arguments):
    with pytest.raises(SystemExit) as done:
        main(["claims", *arguments])
    assert done.value.code == 0


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


def test_reference(capsys):
    """`simkit claims reference --format json` finds scores, times and the sampled recording."""
    run("reference", "--format", "json")
    found = {one["claim"]: one for one in json.loads(capsys.readouterr().out)}
    assert list(found) == list(CLAIMS)
    assert {name: found[name]["verdict"] for name in REFERENCE} == REFERENCE
    alike = {name for name, one in found.items() if one["would_hold_without_structure"]}
    assert {"optimal_is_faster", "speculation_pays", "pearl_runs_more", "marginal_falls"} <= alike
    assert not alike & {"entropy_against_length", "lengths_vary", "head_predicts", "shorter_drafts"}
    assert not [name for name, one in found.items() if one["verdict"] == str(UNTESTED)]


def test_docs_hold_every_claim():
    """docs/claims.md is what `simkit claims reference --format markdown` prints, and prose."""
    text = (Path(__file__).parents[1] / "docs" / "claims.md").read_text(encoding="utf-8")
    for one in CLAIMS.values():
        assert f"| {one.says} | {one.name} | {one.printed} |" in text
        assert f"- `{one.name}`: {one.statistic}\n" in text


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("claims") / "trace"
    save(iid(14, 40, 0.7, max_draft=40, seed=3), path)
    return str(path)


def test_command_formats(folder, tmp_path, capsys):
    cost = "linear(draft_s=1, target_s=6)"
    run(folder, "--cost", cost)
    assert f"Trace trace, {cost}" in capsys.readouterr().out
    ends = {
        "table": "over prompts.\n",
        "json": "]\n",
        "csv": "\n",
        "markdown": "reading the target's features, and with them left out.\n",
    }
    for kind, end in ends.items():
        out = tmp_path / kind
        run(folder, "--cost", cost, "--format", kind, "-o", str(out))
        assert capsys.readouterr().out == ""
        text = out.read_text()
        assert text.endswith(end) and "Bretagnolle" in text
    run(folder, "--sampled", "reference-sampled", "--format", "markdown")
    assert "| paper | claim |" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nowhere"], "nowhere"),
        (["reference", "--cost", "free"], "free"),
        (["reference", "--sampled", "nowhere"], "nowhere"),
        (["reference", "--sampled", "reference"], "reference: is the trace itself"),
        (["reference", "--format", "xml"], "'--format': 'xml' is not one of"),
        (["reference", "-o", "/proc/claims.md"], "/proc/claims.md"),
        (["reference", "-o", "/nowhere/claims.md"], "no such folder"),
    ],
)
def test_command_refuses(arguments, said, capsys):
    with pytest.raises(SystemExit) as error:
        main(["claims", *arguments])
    assert error.value.code == 2
    line = capsys.readouterr().err
    assert said in line and line.count("\n") == 1
