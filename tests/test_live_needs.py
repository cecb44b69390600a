"""What live runs need: torch but no polars, and the very pair of a trace."""

import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from pair_folders import pair, pair_folder, simkit

from simkit.errors import LiveError
from simkit.fidelity.run import check_pair
from simkit.heads import files, registry
from traces.record.pair import load_pair
from traces.trace import load

PROMPTS = Path(__file__).parents[1] / "traces" / "reference" / "prompts.jsonl"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return pair_folder(tmp_path_factory.mktemp("live"))


def test_the_live_side_needs_no_polars():
    script = (
        "import sys; sys.modules['polars'] = None\n"
        "import simkit.live.rotation, simkit.live.summary, simkit.live.log, simkit.live.decoders\n"
        "import simkit.costs.fit, simkit.cli.live"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_a_name_that_is_nowhere_is_one_line(monkeypatch, tmp_path, capfd):
    """No folder here, and a hub that refuses: its client would try for a minute, and log it."""
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", hub := "http://127.0.0.1:9")
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text('{"prompt": "a"}\n')
    begun = time.monotonic()
    names = ["--target", "nosuchdir", "--draft", "nosuchdir"]
    more = ["--prompts", prompts, "--policy", "fixed(1)", "-o", tmp_path / "live.parquet"]
    assert simkit(["live", *names, *more]) == 2
    assert time.monotonic() - begun < 3
    assert capfd.readouterr().err == (
        "simkit: nosuchdir: there is no such folder here, it is not in the hub's cache, "
        f"and the hub ({hub}) cannot be reached\n"
    )


def test_without_the_hub_its_cache_is_read(folder, monkeypatch, tmp_path):
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    names = []
    for name in ("target", "draft"):
        there = tmp_path / f"models--made-up--{name}"
        shutil.copytree(folder / name, there / "snapshots" / "a1")
        (there / "refs").mkdir()
        (there / "refs" / "main").write_text("a1")
        names.append(f"made-up/{name}")
    assert load_pair(*names, "cpu").vocab_size == 40


@pytest.mark.parametrize(
    "command",
    [
        "live --prompts x --policy svip",
        "fidelity reference --policy svip",
        "calibrate reference --policy svip",
        "latency",
        f"record --prompts {PROMPTS} --out x",
    ],
)
def test_without_torch_it_says_what_to_install(command):
    script = (
        "import sys; sys.modules['torch'] = None; from simkit.cli import main; main(sys.argv[1:])"
    )
    options = ["--target", "x", "--draft", "x"]
    ended = subprocess.run(
        [sys.executable, "-c", script, *command.split(), *options], capture_output=True, text=True
    )
    words = "simkit: running models needs torch: pip install 'draft-simkit[record]'\n"
    assert (ended.returncode, ended.stdout, ended.stderr) == (2, "", words)


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        ("draft", {"n_parameters": 7}, "another draft model: n_parameters is 7 there"),
        ("target", {"architecture": "X"}, "another target model: architecture is X there, Llama"),
        ("target", {"shape": {"n_layers": 9}}, "n_layers is 9 there, 2 here"),
        ("draft", {"weights_sha256": "f" * 64}, "its weights are ffffffff there"),
        ("draft", {"weights_sha256": "f" * 64, "dtype": "bfloat16"}, ""),
        (None, {"tokenizer_sha256": "0"}, "recorded with another tokenizer"),
        (None, {"vocab_size": 39}, "its models share 39 ids, these 40"),
        (None, {"target": None, "draft": None}, ""),
    ],
)
def test_another_pair_is_refused_whatever_the_dtype(folder, name, change, words):
    manifest = load(folder / "trace").manifest
    here = load_pair(str(folder / "target"), str(folder / "draft"), "cpu")
    if name:
        change = {name: replace(getattr(manifest, name), **change)}
    trace = SimpleNamespace(manifest=replace(manifest, **change))
    if not words:
        return check_pair(trace, here)
    with pytest.raises(LiveError, match=words):
        check_pair(trace, here)


def commands(folder, tmp_path):
    prompts = ["--prompts", folder / "prompts.jsonl"]
    return {
        "live": ["live", *pair(folder), *prompts, "--policy", "fixed(2)"],
        "latency": ["latency", *pair(folder)],
        "record": ["record", *pair(folder), *prompts, "--out", tmp_path / "new"],
        "calibrate": ["calibrate", folder / "trace", *pair(folder), "--policy", "svip(h=1)"],
        "fidelity": ["fidelity", folder / "trace", *pair(folder), "--policy", "svip(h=1)"]
        + ["--n-prompts", 4, "--calibration", 3, "-o", tmp_path / "fidelity"],
    }


@pytest.mark.parametrize("name", ["live", "latency", "record", "calibrate", "fidelity"])
def test_models_that_do_not_fit_are_one_line(folder, name, tmp_path, monkeypatch, capsys):
    def refuse(*names, **more):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate")

    monkeypatch.setattr("traces.record.pair.load_pair", refuse)
    assert simkit(commands(folder, tmp_path)[name]) == 2
    captured = capsys.readouterr()
    assert captured.err == "simkit: out of memory: the models do not fit\n"
    assert captured.out == ""


@pytest.mark.parametrize("command", ["live", "calibrate"])
def test_a_shallow_head_is_refused_before_models_are_loaded(
    folder, command, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr("traces.record.pair.load_pair", lambda *names: pytest.fail("loaded"))
    options = registry.get("pacer").settle({"max_depth": 8})
    there = load(folder / "trace").manifest
    models = {f"{m}_sha256": getattr(there, m).weights_sha256 for m in ("target", "draft")}
    module = files.build("pacer", 16, options)
    head = files.Head("pacer", 16, options, module, {"trained_on": models})
    files.save(head, tmp_path / "pacer.safetensors")
    given = commands(folder, tmp_path)[command][:-2] + ["--head", tmp_path / "pacer.safetensors"]
    given += ["--policy", "pacer"] if command == "live" else []  # else by default
    assert simkit(given) == 2
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1 and captured.out == ""
    assert "simkit: pacer(block=4) drafts up to" in captured.err
    assert "its head pacer scores up to 8: give max_draft=8" in captured.err
