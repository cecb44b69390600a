"""No command writes into what it reads, under whatever name."""

import os
import shutil

import pytest
from commands import refused
from trace_files import hashes, record, trace

from simkit.overwrite_guard import check_apart
from traces import load, schema
from traces.attach import registry, run
from traces.errors import UserError
from traces.files import encode
from traces.outputs import write_atomic
from traces.trace import DATA
from traces.writer import add_file

SAMPLES = schema.LATENCY.empty_table()


@pytest.fixture
def folder(tmp_path, monkeypatch):
    record(tmp_path / "t", trace(n=12))
    add_file(tmp_path / "t", "latency.parquet", SAMPLES)
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    write_atomic(tmp_path / "log.parquet", encode(SAMPLES)[0])
    (tmp_path / "cost.json").write_text('{"kind": "linear", "draft_s": 0.001, "target_s": 0.01}')
    (tmp_path / "bench.jsonl").write_text("{}\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def attached(folder):
    """The same, with a drafter."""
    run.attach(load("t"), registry.parse("ngram(least=1)"))
    return folder


PAIR = ("--target", "model", "--draft", "model")


@pytest.mark.parametrize(
    ("command", "option", "file"),
    [
        (["calibrate", "t", *PAIR, "-o", "t/latency.parquet"], "-o", "t/latency.parquet"),
        (["calibrate", "t", *PAIR, "--log", "t/new.parquet"], "--log", "t/new.parquet"),
        (["calibrate", "t", *PAIR, "--log", "x.parquet", "-o", "./x.parquet"], "-o", "x.parquet"),
        (["latency", *PAIR, "--cost-out", "model/config.json"], "--cost-out", "model/config.json"),
        (["report", "t", "-o", "t/manifest.json"], "--out", "t/manifest.json"),
        (["report", "t", "-o", "cost.json", "--cost", "cost.json"], "--out", "cost.json"),
        (["claims", "t", "-o", "t/positions/00000.parquet"], "--out", "t/positions/00000.parquet"),
        (["compare", "x", "t", "-o", "t/manifest.json"], "--out", "t/manifest.json"),
        (
            ["sweep", "t", "--policy", "fixed(1)", "-o", "t/sequences.parquet"],
            "--out",
            "t/sequences.parquet",
        ),
        (["figures", "t", "--out", "t"], "--out", "t/"),
        (["figures", "t", "--out", "t/positions"], "--out", "t/positions/"),
        (["train", "pacer", "t", "-o", "t/scores.safetensors"], None, None),
        (["train", "pacer", "t", "-o", "none/x.safetensors"], "--output", "none/x.safetensors"),
        (["import", "spec-bench", "bench.jsonl", "--out", "bench.jsonl"], None, None),
        (["fidelity", "t", "--from", "log.parquet", "-o", "t"], "--out", "t/cost.parquet"),
        (
            [
                "live",
                *PAIR,
                "--prompts",
                "log.parquet",
                "--policy",
                "fixed(1)",
                "-o",
                "log.parquet",
            ],
            "--out",
            "log.parquet",
        ),
    ],
)
def test_commands(folder, command, option, file, capsys):
    before = hashes(folder)
    err = refused(capsys, *command)
    if option is not None:
        assert f"{option} {file}" in err
    assert hashes(folder) == before


DRAFTED = (
    ["sweep", "--policy", "fixed(1)", "-o"],
    ["figures", "--out"],
    ["claims", "-o"],
    ["compare", "-o"],
    ["report", "-o"],
    ["train", "pacer", "-o"],
    ["calibrate", *PAIR, "-o"],
    ["fidelity", *PAIR, "-o"],
)
LISTED = ("sequences.parquet", "positions/00000.parquet", "drafters/ngram/lattice/00000.parquet")


@pytest.mark.parametrize("place", LISTED)
@pytest.mark.parametrize("command", DRAFTED, ids=lambda command: command[0])
def test_a_drafter_is_named(attached, command, place, capsys):
    """What is read is the recording too, whose outputs a drafter follows."""
    place = place.rpartition("/")[0] or "." if command[0] in ("figures", "fidelity") else place
    first, *rest = command[:2] if command[0] == "train" else command[:1]
    before = hashes(attached)
    for trace_, given in (("t", ["--drafter", "ngram"]), ("t/drafters/ngram", [])):
        words = [first, *rest, trace_, *given, *command[1 + len(rest) :], f"t/{place}"]
        err = refused(capsys, *words)
        if command[0] in ("sweep", "claims", "compare", "report"):
            assert f"t/{place}: is " in err and "which is read: name another" in err
        assert hashes(attached) == before


def test_times_beside_their_own_trace(folder, capsys):
    """The trace that the samples are put into is no place for the cost that follows from them."""
    before = hashes(folder)
    given = ["--target", "model", "--draft", "model", "--out", "t", "--cost-out"]
    for place in ("t/manifest.json", "t/scores/x.json"):
        (folder / "t/scores").mkdir(exist_ok=True)
        assert "which is read: name another" in refused(capsys, "latency", *given, place)
        assert hashes(folder) == before


def test_a_log_is_not_judged_into_itself(folder, capsys):
    """The log that is read may not be the cost that follows from it."""
    shutil.copy("log.parquet", "cost.parquet")
    before = hashes(folder)
    said = refused(capsys, "fidelity", "t", "--from", "cost.parquet")
    assert "is cost.parquet, which is read" in said
    assert hashes(folder) == before


def test_all_names_of_a_file(folder):
    os.symlink("t", "link")
    os.symlink("t/latency.parquet", "soft.parquet")
    os.link("t/latency.parquet", "hard.parquet")
    os.symlink("t/gone.parquet", "dangling.parquet")
    for name in (
        folder / "t" / "latency.parquet", folder / "t" / ".." / "t" / "latency.parquet",
        folder / "link" / "latency.parquet", folder / "soft.parquet", folder / "hard.parquet",
        folder / "dangling.parquet", folder / "t" / "scores" / "x.parquet",
    ):  # fmt: skip
        with pytest.raises(UserError, match=r"^-o .*(which is read|belongs to).*: name another$"):
            check_apart([("-o", name)], ["t"])
        with pytest.raises(UserError):
            check_apart([("-o", name)], ["link"])
    for name in ("new.parquet", "t/report.html", "u/latency.parquet"):
        inputs = ["t", None, "linear(draft_s=1)", "a/b", "x" * 5000]
        check_apart([("-o", folder / name), ("--log", None)], inputs)


def test_a_bundled_trace_and_a_head(folder):
    with pytest.raises(UserError, match="which is read"):
        check_apart([("-o", DATA / "reference" / "sequences.parquet")], ["reference"])
    (folder / "h.safetensors").touch()
    (folder / "h.json").touch()
    with pytest.raises(UserError, match=r"h\.json: is h\.json, which is read"):
        check_apart([("-o", folder / "h.json")], ["h.safetensors"])


def test_two_outputs(folder):
    with pytest.raises(UserError, match=r"^-o .*b\.json: is what --log names: name another"):
        check_apart([("--log", folder / "b.json"), ("-o", folder / "t" / ".." / "b.json")], [])
