"""What live runs need: torch but no polars, and the very pair of a trace."""

import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest
from pair_folders import pair_folder

from simkit.errors import LiveError
from simkit.fidelity.run import check_pair
from traces.record.pair import load_pair
from traces.trace import load


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return pair_folder(tmp_path_factory.mktemp("live"))


def test_the_live_side_needs_no_polars():
    script = (
        "import sys; sys.modules['polars'] = None\n"
        "import simkit.live.arms, simkit.live.summary, simkit.live.log, simkit.live.batch\n"
        "import simkit.costs.fit, simkit.cli.live"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


@pytest.mark.parametrize(
    "command", ["live --prompts x", "fidelity reference", "calibrate reference"]
)
def test_without_torch_it_says_what_to_install(command):
    script = (
        "import sys; sys.modules['torch'] = None; from simkit.cli import main; main(sys.argv[1:])"
    )
    options = ["--target", "x", "--draft", "x", "--policy", "svip"]
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
