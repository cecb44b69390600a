"""`python -m benchmarks.fidelity` is the command `simkit fidelity`, and ends as that does."""

import pytest

from benchmarks import fidelity


def ended(capsys, *argv):
    with pytest.raises(SystemExit) as end:
        fidelity.main([str(a) for a in argv])
    return end.value.code, capsys.readouterr().err


def test_a_user_s_error_is_one_line(tmp_path, capsys):
    status, said = ended(capsys, "--from", tmp_path)
    assert status == 2 and said.count("\n") == 1 and "there is no log in it" in said
    status, said = ended(capsys, "--from", tmp_path, "--rounds", 2)
    assert status == 2 and said == "simkit: --from runs nothing: leave out --rounds\n"


def test_a_run_is_one_of_the_reference_pair(monkeypatch, tmp_path):
    given = []
    monkeypatch.setattr(fidelity, "simkit", given.extend)
    fidelity.main(["--prompts", "5", "--out", str(tmp_path)])
    assert given[:3] == ["fidelity", "reference", "--strict"]
    options = dict(zip(given[3::2], given[4::2], strict=True))
    assert options["--prompts"] == "5" and options["--out"] == str(tmp_path)
    assert options["--target"].endswith("models/target") and options["--device"] == "cpu"
    assert options["--head"].endswith("heads/pacer.safetensors") and "--rounds" not in options
