"""`simkit compare`: its forms, and bad input in one line."""

from __future__ import annotations

import json

import pytest
from commands import refused, run

from traces.synthetic import iid
from traces.writer import save

SPEC = "linear(draft_s=1, target_s=6)"


def test_shown_in_every_form(tmp_path, capsys):
    folders = [tmp_path / name for name in ("one", "two")]
    for k, folder in enumerate(folders):
        save(iid(12, 40, 0.6 + 0.2 * k, max_draft=12, seed=k), folder)
    words = ["compare", *map(str, folders), "--cost", SPEC, "--policy", "fixed(2)"]
    words += ["--policy", "svip(h=0.8)"]
    texts = {}
    for form in ("table", "json", "csv", "markdown"):
        ended, texts[form], _ = run(capsys, *words, "--format", form)
        out = tmp_path / f"page.{form}"
        assert ended == 0 and run(capsys, *words, "--format", form, "-o", out)[:2] == (0, "")
        assert out.read_text() == texts[form]
    found = json.loads(texts["json"])
    assert [side["name"] for side in found["sides"]] == ["one", "two"]
    (pair,) = found["pairs"]
    assert pair["first"] == "one" and pair["rankings"][0]["orders"][0]["same"] is not None
    assert pair["statistics"][0]["difference"]["value"] is not None and "form" not in str(pair)
    assert "two against one: paired over 12" in texts["table"] and "▲ higher" in texts["table"]
    assert texts["csv"].startswith("first,second,part,name,") and "lost with" in texts["csv"]
    assert "| statistic | one | two | difference |" in texts["markdown"]


REFUSED = {
    "one trace": (["reference"], "there is one trace only: give another"),
    "one drafter": (["reference", "--drafter", "suffix"], "there is one trace only"),
    "no such trace": (["reference", "nowhere"], "nowhere: no such folder and no bundled trace"),
    "no such drafter": (["reference", "--drafter", "own", "--drafter", "sufix"], "'sufix'"),
    "no such policy": (["reference", "reference-sampled", "--policy", "fixd(3)"], "'fixd'"),
    "no such cost": (["reference", "reference-sampled", "--cost", "free"], "free"),
    "nothing takes time": (
        ["reference", "reference-sampled", "--cost", "linear(draft_s=0, target_s=0)"],
        "reference: under this cost nothing takes time",
    ),
    "a target alone": (["reference", "reference-target"], "attach"),
    "no policy on both": (
        ["reference", "reference-sampled", "--policy", "llamacpp"],
        "no policy can be replayed on both: reference-sampled: without llamacpp",
    ),
    "confidence": (["reference", "reference-sampled", "--confidence", "2"], "between 0 and 1"),
    "output": (["reference", "reference-sampled", "-o", "/nowhere/x"], "no such folder"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_bad_input_is_one_line(case, capsys):
    words, said = REFUSED[case]
    assert said in refused(capsys, "compare", *words)
