"""The small install works: replaying needs no torch. Runs in an environment that has none."""

import json
import pkgutil
import pydoc
import sys
from importlib import import_module
from importlib.util import find_spec

import pytest

import analysis
import simkit
import traces
from simkit.cli import main
from simkit.errors import LiveError
from traces.bundle import PACKAGE
from traces.finding import bundled

without_torch = pytest.mark.skipif(
    find_spec("torch") is not None, reason="for the environment without torch"
)


@without_torch
@pytest.mark.parametrize("name", ["reference", "reference-sampled"])
def test_replay_by_the_command(name, capsys):
    if name not in bundled():
        pytest.skip("in the package draft-simkit-data")
    with pytest.raises(SystemExit, match="0"):
        main(["replay", name, "--policy", "fixed(5)", "--policy", "svip", "--format", "json"])
    rows = json.loads(capsys.readouterr().out)
    assert [row["policy"] for row in rows] == ["fixed(5)", "svip(h=0.4)"]
    assert all(row["speedup_lo"] < row["speedup"] < row["speedup_hi"] for row in rows)


@without_torch
def test_a_trace_that_only_the_data_package_has(capsys):
    """It is there, in that package or in a checkout; or the package is named."""
    there = "smollm2" in bundled()
    assert there or find_spec("draft_simkit_data") is None
    with pytest.raises(SystemExit) as exit_:
        main(["info", "smollm2"])
    said = f"simkit: smollm2 is in the package {PACKAGE}\n"
    assert exit_.value.code == (0 if there else 2)
    assert capsys.readouterr().err == ("" if there else said)


@without_torch
def test_replay_by_the_api():
    result = simkit.replay(traces.load("reference"), ["fixed(3)", "oracle"], by="task")
    assert len(result.frame) == 8
    assert "torch" not in sys.modules


@without_torch
def test_analysis_needs_no_model():
    for module in pkgutil.walk_packages(analysis.__path__, "analysis."):
        try:
            import_module(module.name)
        except ModuleNotFoundError as missing:  # the explorer's page has an extra of its own
            assert module.name.startswith("analysis.explore.")
            assert missing.name in ("bokeh", "panel")
    assert not {"torch", "tokenizers", "transformers"} & sys.modules.keys()


@without_torch
def test_a_figure_of_trained_drafters_by_the_command(tmp_path):
    with pytest.raises(SystemExit, match="0"):
        main(["figures", "reference", "--only", "parallel_training", "--out", str(tmp_path)])
    assert any(tmp_path.glob("parallel_training*"))


@without_torch
@pytest.mark.parametrize("command", ["record", "latency"])
def test_recording_says_what_it_needs(command, tmp_path, capsys):
    (tmp_path / "prompts.jsonl").write_text('{"prompt": "x"}\n')
    arguments = [command, "--target", str(tmp_path), "--draft", str(tmp_path)]
    if command == "record":
        arguments += ["--prompts", str(tmp_path / "prompts.jsonl"), "--out", str(tmp_path / "t")]
    with pytest.raises(SystemExit) as exit_:
        main(arguments)
    assert exit_.value.code == 2
    assert "pip install 'draft-simkit[record]'" in capsys.readouterr().err


@without_torch
def test_names_that_run_models_say_what_they_need():
    """All public names are there, for help and completion too; `live`, a module, is not."""
    assert all(getattr(simkit, name) is not None for name in simkit.__all__)
    assert "calibrate" in pydoc.render_doc(simkit) and not hasattr(simkit, "live")
    with pytest.raises(LiveError, match=r"pip install 'draft-simkit\[record\]'"):
        simkit.calibrate("reference", "target", "draft")
    assert "torch" not in sys.modules
