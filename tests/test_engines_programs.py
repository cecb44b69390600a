"""What is exported, read by the engine's own program; skipped by name where there is none."""

import dataclasses
import json
import shlex
import subprocess

import pytest
from test_engines import flags, write, yaml

import traces
from simkit.engines import EngineError
from simkit.engines.profile import profile
from simkit.engines.run import llama_server
from simkit.serving import parse as controller


def llama_help():
    try:
        program = llama_server.binary()
    except EngineError:
        pytest.skip("llama-server is not installed")
    done = subprocess.run([program, "--help"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0
    return {word.rstrip(",") for word in done.stdout.split() if word.startswith("-")}


def test_llama_server_has_every_flag_that_is_written():
    known = llama_help()
    made = json.loads(profile(traces.load("reference"), "fixed(4)").text)
    written = [
        write("llama.cpp", policy="fixed(4)", synthetic=True, draft="d.gguf").text,
        write("llama.cpp", policy="llamacpp(p_min=0.6, n_min=1, n_max=12)").text,
        write("llama.cpp", drafter="prompt_lookup", policy="fixed(3)").text,
        made["simkit"]["llama.cpp"]["flags"],
    ]
    for text in written:
        for word in shlex.split(text):
            assert not word.startswith("--") or word in known, word


def test_vllm_has_every_field_that_is_written():
    library = pytest.importorskip("vllm", reason="vllm is not installed")
    known = {field.name for field in dataclasses.fields(library.config.SpeculativeConfig)}
    for given in (
        {"policy": "fixed(4)", "synthetic": True},
        {"controller": controller("budget(5)")},
        {"drafter": "prompt_lookup", "policy": "fixed(3)"},
        {"controller": controller("by_batch([[1, 4, 5], [5, 16, 3]])")},
    ):
        assert json.loads(write("vllm", **given).text).keys() <= known


def test_sglang_has_every_flag_that_is_written():
    pytest.importorskip("sglang", reason="sglang is not installed")
    from sglang.srt.server_args import ServerArgs

    known = {field.name for field in dataclasses.fields(ServerArgs)}
    found = write("sglang", drafter="eagle", controller=controller("ema(3)"), draft="/m")
    assert flags(found.text).keys() <= known


def test_tensorrt_llm_has_every_field_that_is_written():
    library = pytest.importorskip("tensorrt_llm", reason="tensorrt_llm is not installed")
    made = controller("schedule({4: 4, 8: 2}, gate=1.5, window=32)")
    given = yaml(write("tensorrt-llm", controller=made).text)
    assert given.pop("decoding_type") == "Draft_Target"
    library.llmapi.DraftTargetDecodingConfig(**given)  # refuses what it does not know


@pytest.mark.parametrize("drafter", [None, "eagle", "pard", "suffix"])
def test_a_budget_is_vllms_adaptive_verification(drafter):
    draft = None if drafter == "suffix" else "/m"
    found = write("vllm", drafter=drafter, controller=controller("budget(5)"), draft=draft)
    config = json.loads(found.text)
    assert config["enable_adaptive_verification"] is True and config["num_speculative_tokens"] == 5
    assert any("0508485" in note and "0.29.0 refuses" in note for note in found.notes)


def test_n_grams_have_no_confidence():
    cost = "linear(draft_s=0, target_s=0.02)"
    made = controller("budget(5)")
    found = write("vllm", drafter="prompt_lookup", controller=made, cost=cost)
    assert "enable_adaptive_verification" not in json.loads(found.text)
    assert any("no controller like budget" in note for note in found.notes)
