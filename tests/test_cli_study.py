"""A study's settings in one file: defaults of every command that has such options."""

import json

import pytest
from commands import run

STUDY = """
trace = "reference"
policy = ["fixed(3)", "fixed(4)"]
cost = "linear(draft_s=1, target_s=10)"
format = "json"
concurrency = "2"

[sweep]
policy = "fixed(1:3)"
"""


@pytest.fixture
def study(tmp_path):
    file = tmp_path / "study.toml"
    file.write_text(STUDY)
    return file


def policies(capsys, *arguments):
    code, out, err = run(capsys, *arguments)
    assert code == 0, err
    return [row["policy"] for row in json.loads(out)]


def test_commands_take_what_they_know(capsys, study):
    assert policies(capsys, "--study", study, "replay") == ["fixed(3)", "fixed(4)"]
    assert policies(capsys, "--study", study, "sweep") == [f"fixed({n})" for n in (1, 2, 3)]
    alone = ["reference", "--policy", "fixed(3)", "--policy", "fixed(4)", "--format", "json"]
    cost = ["--cost", "linear(draft_s=1, target_s=10)"]
    code, out, err = run(capsys, "--study", study, "replay")
    note = f"note: {study}: replay does not take concurrency\n"  # which serving takes
    assert (code, out, err.removeprefix(note)) == run(capsys, "replay", *alone, *cost)
    assert err.startswith(note)


def test_what_is_given_comes_first(capsys, study):
    found = policies(
        capsys, "--study", study, "replay", "reference-sampled", "--policy", "fixed(2)"
    )
    assert found == ["fixed(2)"]


def test_a_recording_counts_them_as_given(capsys, tmp_path):
    file = tmp_path / "study.toml"
    file.write_text('out = "there"\ntarget = "nowhere"\nprompts = "p.jsonl"\ntemperature = 0.5\n')
    code, _, err = run(capsys, "--study", file, "record")
    assert code == 2
    assert "nowhere" in err or "p.jsonl" in err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("polisy = 1", "no command has an option 'polisy' (did you mean policy?)"),
        ("[replai]", "no command 'replai' (did you mean replay?)"),
        ("[replay]\ncontroller = 1", "replay has no option 'controller'"),
        ("[tune]\nfold = 5", "tune has no option 'fold' (did you mean folds?)"),
        ('cost = ["a", "b"]', "cost takes one value, not a list"),
        ("[replay.cost]\nx = 1", "cost takes texts and numbers, not lists or tables"),
        ('policy = [["a"]]', "policy takes texts and numbers, not lists or tables"),
        ("policy = ", "not TOML"),
        ('memory = "much"', "much"),
        ('policy = ["fixed(x)"]', "fixed"),
    ],
)
def test_what_no_command_has_is_refused(capsys, tmp_path, text, said):
    file = tmp_path / "study.toml"
    file.write_text(text)
    code, out, err = run(
        capsys,
        "--study",
        file,
        "replay",
        "reference",
        *(() if "policy" in text else ("--policy", "fixed(2)")),
    )
    assert (code, out) == (2, "")
    assert said in err
    assert err.count("\n") == 1


def test_a_file_that_is_not_there_is_named(capsys, tmp_path):
    code, _, err = run(capsys, "--study", tmp_path / "no.toml", "replay")
    assert code == 2
    assert "no.toml" in err


def test_an_option_with_a_commands_name_is_no_table(capsys, tmp_path):
    """`compare` has an option --tune."""
    file = tmp_path / "study.toml"
    file.write_text("[tune]\nfolds = 5\n[compare]\ntune = 3\n")
    code, _, err = run(capsys, "--study", file, "compare", "reference", "reference")
    assert code == 2
    assert "--tune" in err
