"""The package of docs/extending.md, built from that page, plugs one of each thing in."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from heads_traces import recorded

import traces
from traces.errors import TraceError
from traces.synthetic import iid
from traces.writer import save

PAGE = Path(__file__).parent.parent / "docs" / "extending.md"
BLOCK = re.compile(r"```(?:python|toml)\n# (\S+)\n(.*?)```", re.DOTALL)


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The package, in a folder of its own."""
    source, place = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("site")
    for name, text in BLOCK.findall(PAGE.read_text(encoding="utf-8")):
        file = source / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text, encoding="utf-8")
    pip = ["-m", "pip", "install", "-q", "--no-deps", "--no-index", "--no-build-isolation"]
    built = [*pip, "--disable-pip-version-check", "--target", str(place), str(source)]
    done = subprocess.run([sys.executable, *built], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return place


@pytest.fixture(scope="module")
def process(installed):
    """Runs Python where the package is installed."""
    paths = [str(installed), str(PAGE.parent.parent), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}

    def run(*words, ok=True):
        command = [sys.executable, *map(str, words)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert (done.returncode == 0) == ok, done.stdout + done.stderr
        return done

    return run


@pytest.fixture(scope="module")
def simkit(process):
    """Runs the command there."""
    command = "import sys; from simkit.cli import main; sys.argv[0] = 'simkit'; main()"
    return lambda *words, ok=True: process("-W", "error", "-c", command, *words, ok=ok)


def test_its_policy_and_its_cost(simkit):
    cost = ["--cost", "flat(draft_s=0.001, target_s=0.02)", "--format", "json"]
    policies = ["--policy", "every_other", "--policy", "fixed(2)"]
    mine, fixed = json.loads(simkit("replay", "reference", *policies, *cost).stdout)
    assert mine.pop("policy") == "every_other(most=2)" and fixed.pop("policy") == "fixed(2)"
    assert mine == fixed  # a rule that looks at no token costs nothing
    assert mine["verify_s"] == pytest.approx(0.02 * mine["steps"])
    listed = simkit("replay", "reference", "--cost", "list").stdout
    assert "flat" in listed and "Acme's data sheet" in listed
    assert (
        "did you mean flat?"
        in simkit(*"replay reference --policy fixed --cost flaat".split(), ok=False).stderr
    )


def test_its_kind_of_head(simkit, tmp_path):
    trace, file = tmp_path / "trace", tmp_path / "logistic.safetensors"
    recorded(trace)
    simkit("train", "logistic", trace, "-o", file, "--epochs", 1)
    simkit("score", trace, "--head", file, "--name", "logistic")
    policy = "specdecpp(head=logistic, max_draft=4)"
    (found,) = json.loads(simkit("replay", trace, "--policy", policy, "--format", "json").stdout)
    assert found["steps"] > 0


def test_its_engine(simkit, tmp_path):
    export = ("export", "reference", "--engine", "acme", "-o", tmp_path / "flags")
    said = simkit(*export, "--policy", "fixed(3)")
    assert (tmp_path / "flags").read_text() == "--draft-tokens 3\n"
    assert "for acme 1.0, as in Acme's manual, page 3" in said.stderr
    assert "replaced by fixed(" in simkit(*export, "--policy", "svip(h=0.4)").stderr
    assert "from 1 to 8, not 9" in simkit(*export, "--policy", "fixed(9)", ok=False).stderr


def test_its_figure(simkit, tmp_path):
    simkit("figures", "reference", "--only", "accepted_share", "--out", tmp_path)
    assert {file.name for file in tmp_path.iterdir()} >= {"accepted_share.png"}
    assert "[Acme Fig. 1]" in simkit("figures", "--list").stdout


def test_its_claim(simkit, tmp_path):
    trace = tmp_path / "trace"
    save(iid(14, 40, 0.7, max_draft=12, seed=3), trace)
    cost = ["--cost", "linear(draft_s=1, target_s=6)"]
    found = json.loads(simkit("claims", trace, *cost, "--format", "json").stdout)
    (mine,) = (one for one in found if one["claim"] == "drafts_pay")
    assert mine["verdict"] == "holds"


def test_its_drafter(simkit, tmp_path):
    trace = tmp_path / "trace"
    recorded(trace)
    simkit("attach", trace, "--drafter", "echo(length=3)")
    assert "echo: echo(length=3)" in simkit("info", trace).stdout
    simkit("validate", trace)
    replay = ("replay", trace, "--policy", "fixed(5)", "--drafter", "echo", "--format", "json")
    (found,) = json.loads(simkit(*replay).stdout)
    assert found["steps"] > 0 and found["drafted"] > found["accepted"] >= 0
    said = simkit("attach", trace, "--drafter", "ecko()", ok=False).stderr
    assert "unknown drafter 'ecko' (did you mean echo?)" in said


def test_its_kind_of_drafter(process, simkit, tmp_path):
    made = """
import sys
import numpy as np
from traces import writer
from traces.memory import from_drafts

starts = np.repeat(np.arange(40), 3)
rows = {
    "sequence": starts // 10,
    "start": starts % 10 + 1,
    "depth": np.tile([1, 2, 3], 40),
    "accepted": np.random.default_rng(0).random(120) < 0.7,
    "draft_prob_raw": np.linspace(0, 1, 120),
}
for kind in ("lattice", "blocks"):
    outputs = {"n_output": [10] * 4, "n_prompt": [5] * 4, "prompt_tokens": [[0] * 5] * 4}
    trace = from_drafts(outputs, rows, max_draft=3, max_new_tokens=10, kind=kind)
    writer.save(trace, f"{sys.argv[1]}/{kind}")
"""
    process("-c", made, tmp_path)
    replay = (
        "--policy",
        "fixed(2)",
        "--policy",
        "confidence(threshold=0.3, max_draft=3)",
        "--format",
        "json",
    )
    mine, theirs = (simkit("replay", tmp_path / kind, *replay) for kind in ("blocks", "lattice"))
    assert mine.stdout == theirs.stdout
    simkit("validate", tmp_path / "blocks")
    with pytest.raises(TraceError, match="unknown kind of drafter 'blocks'"):
        traces.load(tmp_path / "blocks")  # here the package is not installed
