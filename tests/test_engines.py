"""Settings as engines' configurations: what each takes, and what stands in for what it lacks."""

import json
import shlex
import sys
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace

import engine_fields
import numpy as np
import pytest
from commands import refused, run

import simkit
import traces
from simkit import engines
from simkit.engines import (
    EngineError,
    llama_cpp,
    openvino,
    sglang,
    tensorrt_llm,
    transformers,
    vllm,
)
from simkit.engines.export import by_batch, drafter_of
from simkit.engines.synthetic import errors, rates_of
from simkit.policies import Fixed
from simkit.serving import Plain
from simkit.serving import parse as controller
from traces.synthetic import iid

NAMES = ("vllm", "sglang", "tensorrt-llm", "llama.cpp", "openvino", "transformers")
COST = "linear(draft_s=0.001, target_s=0.02)"
BATCHES = ["by_batch([[1, 4, 5], [5, 16, 3], [17, 64, 0]])", "schedule({4: 4, 8: 2, 32: 1})"]


def write(engine, trace="reference", drafter=None, **given):
    return engines.export(traces.load(trace, drafter), engine, **given)


def flags(text):
    """The flags of a command line with their values; True for those without one."""
    words, found = shlex.split(text), {}
    for k, word in enumerate(words):
        if word.startswith("--"):
            alone = k + 1 == len(words) or words[k + 1].startswith("--")
            found[word[2:].replace("-", "_")] = True if alone else words[k + 1]
    return found


def yaml(text):
    """The YAML that is written: one mapping of scalars and of mappings with whole numbers."""
    head, *lines = text.splitlines()
    assert head == "speculative_config:"
    found = {}
    for line in lines:
        name, _, value = line.strip().partition(": ")
        if value.startswith("{"):
            pairs = (pair.split(": ") for pair in value[1:-1].split(", "))
            found[name] = {int(k): int(v) for k, v in pairs}
        else:
            found[name] = json.loads(value)
    return found


def checked(engine, found):
    """The configuration by its engine's schema, whose rules are applied once more."""
    read = {"tensorrt-llm": yaml, "sglang": flags, "llama.cpp": flags}.get(engine, json.loads)
    schemas = {
        "vllm": vllm.SpeculativeConfig,
        "transformers": transformers.GenerationConfig,
        "openvino": openvino.GenerationConfig,
        "tensorrt-llm": tensorrt_llm.DecodingConfig,
    }
    given = read(found.text)
    engine_fields.check(engine, given)
    for text in found.beside.values():
        engine_fields.check_adaptive(json.loads(text))
    return schemas[engine](**given).given() if engine in schemas else given


@pytest.mark.parametrize("engine", NAMES)
def test_a_fixed_length_is_every_engines(engine):
    found = write(engine, policy="fixed(4)")
    length = {
        "vllm": ("num_speculative_tokens", 4),
        "sglang": ("speculative_num_steps", "4"),
        "tensorrt-llm": ("max_draft_len", 4),
        "llama.cpp": ("spec_draft_n_max", "4"),
        "openvino": ("num_assistant_tokens", 4),
        "transformers": ("num_assistant_tokens", 4),
    }
    name, value = length[engine]
    assert checked(engine, found)[name] == value
    assert found.notes[0].startswith(f"for {engine} ")
    assert not any("replaced" in note for note in found.notes)


@pytest.mark.parametrize("engine", NAMES)
def test_no_drafts_at_all_are_no_setting(engine):
    with pytest.raises(EngineError, match="no drafts at all"):
        write(engine, policy="autoregressive")


@pytest.mark.parametrize("engine", NAMES)
def test_a_rule_that_an_engine_lacks_is_replaced_and_said_so(engine):
    found = write(engine, policy="svip(h=0.4)", cost=COST)
    (note,) = (note for note in found.notes if "is replaced by" in note)
    result = simkit.replay("reference", ["svip(h=0.4)", "fixed(1:20)"][:1], COST)
    rule = result.records()[0]["speedup"]
    lengths = [simkit.policies.Fixed(k) for k in range(1, 21)]
    speeds = [r["speedup"] for r in simkit.replay("reference", lengths, COST).records()]
    best = 1 + int(np.argmax(speeds))
    assert f"svip(h=0.4) is replaced by fixed({best})" in note
    assert f"{max(speeds):.3f} [" in note and f"{rule:.3f} [" in note
    assert f"({max(speeds) / rule - 1:+.1%})" in note


def test_without_times_the_length_is_that_of_the_mean_draft():
    trace = iid(8, 60, 0.7, max_draft=12, seed=2)
    found = engines.export(trace, "vllm", "heuristic(initial=4)", draft="m")
    record = simkit.replay(trace, "heuristic(initial=4)").records()[0]
    mean = record["drafted"] / record["steps"]
    assert json.loads(found.text)["num_speculative_tokens"] == round(mean)
    assert any(f"its mean draft, {mean:.2f} tokens" in note for note in found.notes)
    with pytest.raises(EngineError, match="no times to choose a draft length by"):
        engines.export(trace, "vllm")


def test_without_a_policy_the_fastest_length_is_taken():
    found = write("vllm", cost=COST)
    assert "is the fastest length on this trace" in found.notes[1]
    length = json.loads(found.text)["num_speculative_tokens"]
    assert f"fixed({length}) is" in found.notes[1]


def test_longer_lengths_that_were_not_tried_are_not_said_to_be_slower():
    trace = traces.load("reference", "suffix")
    found = engines.export(trace, "vllm")
    (note,) = (note for note in found.notes if "is the fastest" in note)
    assert note.startswith("fixed(20) is the fastest length of up to 20 tokens on this trace")
    longer = simkit.replay(trace, [Fixed(20), Fixed(32)]).frame["speedup"].to_list()
    assert longer[1] > longer[0]


def test_a_spec_with_ranges_is_tuned():
    trace = traces.load("reference")
    spec = "llamacpp(p_min=0:0.6:0.3, n_max=8)"
    (mine,) = (c for c in simkit.tune(trace, [spec], COST).choices if c.spec == spec)
    found = engines.export(trace, "llama.cpp", spec, cost=COST)
    assert any(
        note.startswith(f"{mine.chosen} is the fastest of 3 settings") for note in found.notes
    )
    assert any(f"a speedup of {mine.speedup:.3f} [" in note for note in found.notes)
    rule = simkit.policies.parse(mine.chosen)
    assert checked("llama.cpp", found)["spec_draft_p_min"] == str(rule.p_min)
    both = engines.export(trace, "vllm", "svip(h=0.3:0.9:0.3)", cost=COST)
    assert sum("settings on this trace" in note for note in both.notes) == 1
    assert sum("is replaced by fixed(" in note for note in both.notes) == 1


@pytest.mark.parametrize(
    ("drafter", "method"),
    [
        ("prompt_lookup", "ngram"),
        ("suffix", "suffix"),
        ("eagle", "eagle3"),
        ("pard", "draft_model"),
    ],
)
def test_the_method_is_that_of_the_drafter(drafter, method):
    draft = "/m" if drafter in ("eagle", "pard") else None  # a lookup loads none
    config = checked("vllm", write("vllm", drafter=drafter, policy="fixed(3)", draft=draft))
    assert config["method"] == method
    assert config.get("parallel_drafting") == (True if drafter == "pard" else None)
    assert ("model" in config) == (drafter in ("eagle", "pard"))
    for engine in ("sglang", "tensorrt-llm", "llama.cpp"):
        checked(engine, write(engine, drafter=drafter, policy="fixed(3)", draft=draft))


def test_a_draft_without_a_name_is_asked_for():
    found = engines.export(iid(4, 20, 0.7, max_draft=4, seed=1), "vllm", "fixed(2)")
    assert json.loads(found.text)["model"] == "DRAFT_MODEL"
    assert any("put the draft model in the place of DRAFT_MODEL" in note for note in found.notes)


def test_the_draft_and_the_rule_s_numbers_are_those_that_the_trace_names(monkeypatch):
    """Specs are kept by names of arguments, and without defaults: `ngram` looks five tokens up."""
    monkeypatch.chdir(Path(__file__).parents[1])  # where the folder is
    for engine in ("vllm", "sglang", "tensorrt-llm"):
        found = write(engine, drafter="eagle", policy="fixed(3)")
        assert "traces/reference/models/eagle" in found.text
        assert not any("in the place of" in note for note in found.notes)
    for spec, its_own in (("ngram()", True), ("ngram(which=last)", False)):
        drafter = drafter_of(SimpleNamespace(manifest=SimpleNamespace(spec=spec)), None)
        assert drafter.model is None  # a profile would name it as the checkpoint that was measured
        written = engines.ENGINES["vllm"]().write(engines.EngineSetting(3, drafter))
        config = json.loads(written.text)
        assert (config["prompt_lookup_max"], config["prompt_lookup_min"]) == (5, 5)
        assert its_own != any("the trace's rule may differ" in note for note in written.notes)
    with pytest.raises(EngineError, match="prompt_lookup loads no draft model: leave out --draft"):
        write("vllm", drafter="prompt_lookup", policy="fixed(3)", draft="/m")


@pytest.mark.parametrize("engine", ["vllm", "sglang", "tensorrt-llm", "llama.cpp"])
@pytest.mark.parametrize(("trace", "drafter"), [("ladder", "q3-g32"), ("reference", "eagle")])
def test_a_folder_of_the_recording_machine_is_a_placeholder(
    engine, trace, drafter, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    found = write(engine, trace, drafter, policy="fixed(3)")
    assert "DRAFT" in found.text and "/" not in found.text
    said = f"drafts were recorded with a folder {drafter}: put the draft model in the place of"
    assert any(note.startswith(said) for note in found.notes)


@pytest.mark.parametrize("name", ["Qwen/Qwen3-0.6B", "gpt2", "/models/draft"])
def test_names_that_do_not_depend_on_the_folder_are_kept(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    manifest = SimpleNamespace(spec=f"model(path={name!r})")
    assert drafter_of(SimpleNamespace(manifest=manifest), None).model == name


@pytest.mark.parametrize("engine", sorted(engines.ENGINES))
def test_a_drafter_without_words_there_is_not_written_as_another(engine):
    for kind in ("block", "mtp", "rounds", "ngram_simple", "one_of_mine"):
        drafter = engines.base.EngineDrafter(kind, "models/x", {})
        if (engine, kind) != ("llama.cpp", "ngram_simple"):
            with pytest.raises(EngineError, match=f"drafter like {kind}"):
                engines.ENGINES[engine]().write(engines.EngineSetting(48, drafter))


def test_rates_need_drafts_of_one_length():
    """A step that drafts less would be drawn at rates that count it as a step already."""
    steps = simkit.replay(traces.load("reference", "ngram"), "fixed(4)", by="step").frame
    assert (steps["drafted"] == 0).mean() > 0.3
    for engine in ("vllm", "llama.cpp"):
        with pytest.raises(EngineError, match="drafts of one length, and those of ngram"):
            write(engine, drafter="ngram", policy="fixed(4)", synthetic=True)
    with pytest.raises(EngineError, match=r"those of llamacpp\(p_min=0.8, n_max=8\) are often"):
        write("llama.cpp", policy="llamacpp(p_min=0.8, n_max=8)", synthetic=True)
    assert write("llama.cpp", policy="llamacpp(p_min=0, n_max=3)", synthetic=True).errors


def test_sampled_drafts_are_asked_for_where_the_default_is_greedy():
    found = write("vllm", "reference-sampled", policy="fixed(3)")
    assert json.loads(found.text)["draft_sample_method"] == "probabilistic"
    assert "draft_sample_method" not in json.loads(write("vllm", policy="fixed(3)").text)


def test_llama_cpp_draws_rates():
    found = write("llama.cpp", policy="fixed(3)", synthetic=True, draft="d.gguf")
    rates = [float(rate) for rate in flags(found.text)["spec_synth_rates"].split(",")]
    assert len(rates) == 3 and rates == sorted(rates, reverse=True) and found.errors


def test_lookups_of_llama_cpp_and_openvino(tmp_path):
    """llama.cpp's own rule is written as it is; the longest draft is a part of it."""
    plan = engines.EngineSetting(
        5, engines.base.EngineDrafter("ngram_simple", None, {"n": 3, "m": 5})
    )
    text = engines.LlamaCppEngine().write(plan).text
    assert flags(text)["spec_ngram_simple_size_n"] == "3"
    assert flags(text)["spec_ngram_simple_size_m"] == "5"
    with pytest.raises(EngineError, match="attach it with m=4"):
        engines.LlamaCppEngine().write(plan._replace(length=4))
    found = write("openvino", drafter="prompt_lookup", policy="fixed(5)")
    assert json.loads(found.text) == {"num_assistant_tokens": 5, "max_ngram_size": 2}
    found = write("openvino", policy="confidence(0.4, max_draft=40)")
    assert json.loads(found.text) == {"assistant_confidence_threshold": 0.4, "logprobs": 1}
    with pytest.raises(EngineError, match="has no drafter like suffix"):
        write("openvino", drafter="suffix", policy="fixed(5)")


def test_llama_cpp_loads_gguf_alone():
    """A folder of Hugging Face's is no draft of its: the server would exit."""
    for draft, written in ((None, "DRAFT.gguf"), ("/models/d", "DRAFT.gguf"), ("d.gguf",) * 2):
        found = write("llama.cpp", policy="fixed(3)", draft=draft)
        assert checked("llama.cpp", found)["spec_draft_model"] == written
        said = any("loads GGUF files alone" in note for note in found.notes)
        assert said == (written == "DRAFT.gguf")
        assert f"--model-draft {written}" in " ".join(found.notes)


def test_llama_cpp_has_its_own_rule():
    found = write("llama.cpp", policy="llamacpp(p_min=0.6, n_min=1, n_max=12)")
    given = checked("llama.cpp", found)
    assert [given[f"spec_draft_{k}"] for k in ("n_max", "n_min", "p_min")] == ["12", "1", "0.6"]
    older = next(note for note in found.notes if note.startswith("builds before"))
    assert "--draft-max 12 --draft-min 1 --draft-p-min 0.6" in older
    assert not any("replaced" in note for note in found.notes)


@pytest.mark.parametrize("spec", BATCHES)
def test_lengths_by_batch_mean_the_same_everywhere(spec):
    """Each engine's own way to look a batch up, as its source has it."""
    made = controller(spec)
    pairs = by_batch(made)

    def wanted(batch):
        return next(k for low, k in reversed(pairs) if low <= batch)

    ranges = checked("vllm", write("vllm", controller=made))
    ranges = ranges["num_speculative_tokens_per_batch_size"]
    schedule = checked("tensorrt-llm", write("tensorrt-llm", controller=made))
    schedule = schedule["draft_len_schedule"]
    found = write("sglang", drafter="eagle", controller=made, draft="/m")
    assert checked("sglang", found)["speculative_adaptive"] is True
    slots = json.loads(found.beside[".adaptive.json"])
    for batch in range(1, 80):
        of_vllm = next(k for low, _, k in reversed(ranges) if low <= batch)
        ends = [end for end in schedule if end >= batch]
        of_trt = schedule[min(ends)] if ends else 0
        key = max(int(low) for low in slots if int(low) <= batch)
        assert of_vllm == of_trt == slots[str(key)]["candidate_steps"][0] == wanted(batch)


def test_where_no_batch_counts_the_length_of_one_request_is_taken():
    made = controller(BATCHES[0])
    found = write("llama.cpp", controller=made)
    assert checked("llama.cpp", found)["spec_draft_n_max"] == "5"
    assert any("one length whatever the batch" in note for note in found.notes)
    found = write("sglang", controller=made)  # a draft model of its own: STANDALONE
    assert "speculative_adaptive" not in checked("sglang", found)
    assert any("one length whatever the batch" in note for note in found.notes)
    assert checked("sglang", found)["speculative_num_steps"] == "5"


def test_what_replaces_a_controller_is_served_beside_it():
    made = controller("ema(3)")
    cost = "linear(draft_s=0.001, draft_per_token_s=0.00002, target_s=0.02,"
    cost += " target_per_token_s=0.0003)"
    served = simkit.serve(
        "reference", [made, "static(1)", "static(2)", "static(3)"], cost, concurrency=32, workers=1
    )
    rows = served.records()
    found = write("vllm", controller=made, cost=cost, concurrency=32)
    length = json.loads(found.text)["num_speculative_tokens"]
    (note,) = (note for note in found.notes if "replaced by fixed(" in note)
    assert f"fixed({length}) serves the most tokens" in note
    assert f"{rows[length]['steady_tokens_s']:,.0f} a second" in note
    change = rows[length]["steady_against"] - 1
    alike = rows[length]["steady_against_lo"] is None  # as many tokens a second in each run
    end = ")" if alike else " ["
    assert f"the controller {rows[0]['steady_tokens_s']:,.0f} ({change:+.1%}{end}" in note
    batches = write("llama.cpp", controller=controller(BATCHES[0]), cost=cost, concurrency=4)
    assert any("with 4 requests in flight" in note for note in batches.notes)
    with pytest.raises(EngineError, match="--concurrency needs --controller"):
        write("vllm", policy="fixed(3)", concurrency=4)


def test_the_gate_is_tensorrt_llms():
    """A share of drafted tokens (pull request 12905), whose drafts the longest length has."""
    made = controller("schedule({4: 4, 8: 2}, gate=1.5, window=32)")
    found = write("tensorrt-llm", controller=made)
    config = checked("tensorrt-llm", found)
    gate = config["acceptance_rate_threshold"], config["acceptance_rate_window_size"]
    assert gate == (0.5 / 4, 32)
    assert any("0.125 is 0.5 of 4; of the schedule's shorter" in note for note in found.notes)
    assert any("iterations of the batch, not of 32 requests" in note for note in found.notes)
    assert not config.keys() & {"acceptance_window", "acceptance_length_threshold"}
    with pytest.raises(EngineError, match="no draft of 4 tokens gives 6 tokens a step"):
        write("tensorrt-llm", controller=controller("schedule({4: 4, 8: 2}, gate=6)"))
    assert any("no gate" in note for note in write("vllm", controller=made).notes)


def test_the_ema_is_sglangs():
    found = write("sglang", drafter="eagle", controller=controller("ema(3)"), draft="/m")
    config = json.loads(found.beside[".adaptive.json"])
    assert config["1"] == {
        "candidate_steps": [1, 3, 5, 7],
        "up_hysteresis": 0.0,
        "down_hysteresis": -0.25,
        "ceiling_coeff": 0,
    }
    assert [config[slot]["down_hysteresis"] for slot in ("8", "32", "64")] == [0.0, 0.0, 0.0]
    assert (config["ema_alpha"], config["warmup_batches"]) == (0.2, 10)
    other = write("sglang", drafter="eagle", controller=controller("ema(3, down={1: 0.5})"))
    slots = json.loads(other.beside[".adaptive.json"])
    assert (slots["1"]["down_hysteresis"], slots["8"]["down_hysteresis"]) == (0.5, -0.25)
    assert "{OUT}.adaptive.json" in found.text
    engine_fields.check_adaptive(config)


@pytest.mark.parametrize("spec", ["goodput(8)", "budget(7)", "ema(3)"])
def test_a_controller_that_an_engine_lacks_is_replaced(spec):
    found = write("llama.cpp", controller=controller(spec), cost=COST)
    assert any("has no controller like" in n and "replaced by fixed(" in n for n in found.notes)
    one = write("vllm", controller=controller("all_stopped(svip(h=0.4))"), cost=COST)
    assert any("svip(h=0.4) is replaced by" in note for note in one.notes)


@pytest.mark.parametrize(
    ("schema", "given"),
    [
        (vllm.SpeculativeConfig, {"method": "ngram", "num_speculative_tokens": 0}),
        (
            vllm.SpeculativeConfig,
            {"method": "mtp", "num_speculative_tokens_per_batch_size": [[2, 4, 1]]},
        ),
        (
            vllm.SpeculativeConfig,
            {"method": "mtp", "num_speculative_tokens_per_batch_size": [[1, 4, 2], [4, 8, 1]]},
        ),
        (
            vllm.SpeculativeConfig,
            {
                "method": "mtp",
                "num_speculative_tokens": 2,
                "rejection_sample_method": "synthetic",
                "synthetic_acceptance_rates": [0.5, 0.6],
            },
        ),
        (
            sglang.ServerArgs,
            {"speculative_algorithm": "STANDALONE", "speculative_adaptive": True},
        ),
        (
            tensorrt_llm.DecodingConfig,
            {"decoding_type": "NGram", "max_draft_len": 3, "draft_len_schedule": {4: 2}},
        ),
        (
            tensorrt_llm.DecodingConfig,
            {"decoding_type": "NGram", "max_draft_len": 3, "draft_len_schedule": {4: 3, 8: 4}},
        ),
        (llama_cpp.Flags, {"spec_type": "draft-simple", "spec_draft_p_min": 2.0}),
        (openvino.GenerationConfig, {"assistant_confidence_threshold": 1.5}),
    ],
)
def test_what_an_engine_would_refuse_is_refused(schema, given):
    with pytest.raises(EngineError):
        schema(**given)


@pytest.mark.parametrize("cls", engines.BUILT_IN)
def test_only_fields_that_were_looked_up_are_written(cls):
    for thing in vars(sys.modules[cls.__module__]).values():
        if isinstance(thing, type) and issubclass(thing, engines.base.Schema):
            assert {field.name for field in fields(thing)} <= engine_fields.FIELDS[cls.name]
    assert cls.version and cls.source and engines.ENGINES[cls.name] is cls


def test_transformers_itself_takes_it():
    """Its own class has the fields, and its candidate generator reads them of the assistant."""
    library = pytest.importorskip("transformers")
    from transformers.generation.candidate_generator import AssistedCandidateGenerator

    for policy in ("fixed(7)", "confidence(0.3)", "heuristic(initial=5)"):
        config = json.loads(write("transformers", policy=policy).text)
        made = library.GenerationConfig(**config)
        made.validate()
        assert {name: getattr(made, name) for name in config} == config
    known = vars(library.GenerationConfig()).keys()
    assert engine_fields.FIELDS["transformers"] <= known
    assistant = SimpleNamespace(
        device="cpu",
        generation_config=made,
        config=SimpleNamespace(is_encoder_decoder=False),
        main_input_name="input_ids",
        _supports_logits_to_keep=lambda: True,
    )
    import torch

    generator = AssistedCandidateGenerator(
        torch.zeros((1, 2), dtype=torch.long), assistant, library.GenerationConfig(), {}
    )
    assert generator.num_assistant_tokens == 5
    assert generator.assistant_confidence_threshold == 0.0
    schedule = generator.assistant_generation_config.num_assistant_tokens_schedule
    assert schedule == "heuristic_transient"


def test_rates_are_marginal_and_fall():
    trace = traces.load("reference")
    rates = rates_of(trace, 5, "prefill")
    steps = simkit.replay(trace, "fixed(5)", first_token="prefill").steps()["accepted"].to_numpy()
    assert rates == pytest.approx([(steps >= j).mean() for j in range(1, 6)], abs=1e-6)
    assert all(a >= b for a, b in zip(rates, rates[1:], strict=False))
    found = write("vllm", policy="fixed(5)", synthetic=True, first_token="prefill")
    assert json.loads(found.text)["synthetic_acceptance_rates"] == list(rates)


def test_independent_tokens_lose_nothing_by_their_rates():
    """There the rates are all there is: each measure of the trace is one of the draws'."""
    trace = iid(120, 100, 0.7, max_draft=6, seed=5)
    found = errors(trace, rates_of(trace, 3, "draft"), COST, "draft", seed=1)
    assert len(found) == 7
    for name, true, mean, low, high in found:
        assert low <= mean <= high
        assert low - 0.2 * abs(true) <= true <= high + 0.2 * abs(true), name
    total = found[0]
    assert total.low <= total.true <= total.high


def test_requests_that_differ_do_not_with_drawn_outcomes():
    found = {m.name: m for m in write("vllm", policy="fixed(5)", synthetic=True, cost=COST).errors}
    spread = found["emitted tokens a step, standard deviation over requests"]
    assert spread.high < 0.7 * spread.true
    total = found["emitted tokens a step, all steps"]
    assert total.mean == pytest.approx(total.true, rel=0.03)
    slow = found["seconds of the slowest request"]
    assert slow.high < slow.true


def test_the_command_writes_what_the_engine_reads(tmp_path, capsys):
    out = tmp_path / "spec.json"
    arguments = ["--engine", "vllm", "--policy", "fixed(4)", "--synthetic", "-o", out]
    status, said, err = run(capsys, "export", "reference", *arguments)
    assert status == 0 and f"written to {out}" in said
    assert "standard deviation over requests" in said and "note: for vllm" in err
    config = vllm.SpeculativeConfig(**json.loads(out.read_text()))
    assert len(config.synthetic_acceptance_rates) == 4
    out = tmp_path / "flags"
    arguments = ["--engine", "sglang", "--drafter", "eagle", "--controller", "ema(3)", "-o", out]
    status, said, _ = run(capsys, "export", "reference", *arguments, "--draft", "/m")
    assert status == 0 and "flags.adaptive.json" in said
    assert flags(out.read_text())["speculative_adaptive_config"] == f"{out}.adaptive.json"
    assert (tmp_path / "flags.adaptive.json").exists()


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (("--engine", "vlm"), "did you mean vllm?"),
        (("--engine", "sglang", "--policy", "fixed(3)", "--synthetic"), "takes no synthetic"),
        (("--engine", "vllm", "--policy", "fixd(3)"), "did you mean fixed"),
        (
            ("--engine", "vllm", "--policy", "fixed(3)", "--controller", "static(3)"),
            "not both",
        ),
        (("--engine", "vllm", "--controller", "schedul({1: 2})"), "schedule"),
        (("--engine", "transformers", "--drafter", "eagle", "--policy", "fixed(2)"), "no drafter"),
    ],
)
def test_bad_settings_are_one_line(tmp_path, capsys, arguments, what):
    assert what in refused(capsys, "export", "reference", *arguments, "-o", tmp_path / "x")
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("name", ["static", "schedule", "each", "budget", "none"])
def test_a_controller_of_one_s_own_is_replaced_whatever_its_name(name):
    class Own(Plain):
        max_draft = 5

        def lengths(self, view):
            return 1

    Own.name = name
    found = write("vllm", controller=Own(), cost="linear(draft_s=1, target_s=6)")
    assert any("has no controller like" in note for note in found.notes)


def test_a_controller_that_never_drafts_is_exported_as_none():
    for spec in ("none", "off_above(3, batch=0)"):
        with pytest.raises(EngineError, match="no drafts at all are no setting"):
            write("sglang", controller=controller(spec))
