"""Acceptance profiles: out as planners and engines take them, and in as synthetic traces."""

import json
from pathlib import Path

import numpy as np
import pytest
from commands import refused, run

import simkit
import traces
from simkit.engines import EngineError, vllm
from simkit.engines.profile import conditional, profile
from simkit.engines.synthetic import errors, rates_of
from simkit.errors import ImporterError
from simkit.importers import profile as importer
from simkit.importers import specdecode_bench
from traces.loops import remarks_of

COST = "linear(draft_s=0.001, target_s=0.02)"
BATCHES = "linear(draft_s=0.001, target_s=0.02, draft_per_token_s=1e-5, target_per_token_s=1e-4)"
METRICS = Path(__file__).parent / "engine_files" / "llama_cpp_metrics.txt"


def made(trace="reference", policy="fixed(4)", first_token="draft", **more):
    found = profile(traces.load(trace), policy, COST, first_token, **more)
    return json.loads(found.text), found


def test_the_fields_are_those_of_the_schema():
    """Worked out anew from the steps, by the schema's own words."""
    fields, _ = made(first_token="prefill")
    steps = simkit.replay("reference", "fixed(4)", first_token="prefill").steps()
    accepted, sequence = steps["accepted"].to_numpy(), steps["sequence"].to_numpy()
    marginal = [(accepted >= j).mean() for j in range(1, 5)]
    reached = [(accepted >= j - 1).sum() for j in range(1, 5)]
    hazard = [(accepted >= j).sum() / n for j, n in zip(range(1, 5), reached, strict=True)]
    assert fields["marginal_accept_rates"] == pytest.approx(marginal, abs=1e-6)
    assert fields["conditional_accept_rates"] == pytest.approx(hazard, abs=3e-6)
    assert fields["mean_accept_length"] == pytest.approx(1 + accepted.mean(), abs=1e-6)
    each = [1 + accepted[sequence == s].mean() for s in np.unique(sequence)]
    assert fields["mean_accept_length_per_request"] == pytest.approx(np.mean(each), abs=1e-6)
    assert fields["acceptance_length_histogram"] == {
        str(a + 1): int((accepted == a).sum()) for a in range(5)
    }
    assert (fields["schema_version"], fields["measured"]) == ("1.0", True)
    assert fields["num_speculative_tokens"] == 4 and fields["method"] == "draft_model"
    assert fields["accept_length_model"] == "chain_analytic"
    assert [*fields["accept_length_by_k"]] == ["1", "2", "3", "4"]
    assert fields["accept_length_by_k"]["4"] == pytest.approx(
        fields["mean_accept_length"], abs=2e-6
    )
    checks = fields["validation"]
    assert checks["mean_consistency"]["passed"] and checks["marginal_monotonicity"]["passed"]
    assert set(fields["per_category"]) == set(
        traces.load("reference").sequences["task"].to_pylist()
    )
    conditions = fields["measurement_conditions"]
    assert conditions["num_steps"] == len(accepted) and conditions["first_token"] == "prefill"


def test_no_path_of_this_machine_is_published():
    fields, _ = made(draft="/mnt/models/team/draft")
    assert fields["draft_checkpoint"] == {"id": "team/draft"}
    assert "/mnt" not in json.dumps(fields)


def test_consumers_are_given_their_own_conventions():
    fields, found = made()
    rates, own = fields["marginal_accept_rates"], fields["simkit"]
    mean = 1 + sum(rates)
    assert own["aiconfigurator"] == {
        "nextn": 4,
        "nextn_accepted": pytest.approx(mean - 1, abs=1e-5),
    }
    hazards = [float(rate) for rate in own["dynamo"]["aic_nextn_accept_rates"].split(",")]
    survival = np.cumprod(hazards)
    assert survival.sum() == pytest.approx(own["aiconfigurator"]["nextn_accepted"], abs=1e-4)
    assert vllm.SpeculativeConfig(method="mtp", **own["vllm"]).synthetic_acceptance_rates == rates
    words = own["llama.cpp"]["flags"].split()
    assert words[::2] == ["--spec-draft-n-max", "--spec-synth-rates"]
    assert [float(rate) for rate in words[3].split(",")] == pytest.approx(rates, rel=1e-5)
    sglang, forced = own["sglang"], own["tensorrt-llm"]
    assert sglang["SGLANG_SIMULATE_ACC_LEN"] == pytest.approx(mean, abs=1e-5)
    less = forced["TLLM_SPEC_DECODE_FORCE_NUM_ACCEPTED_TOKENS"]
    assert less == pytest.approx(sglang["SGLANG_SIMULATE_ACC_LEN"] - 1, abs=2e-6)
    assert not any("know up to 5" in note for note in found.notes)


@pytest.mark.parametrize("drafter", ["suffix", "ngram", "prompt_lookup"])
def test_engines_that_look_up_are_given_no_rates(drafter):
    """They draft before they draw: steps without a draft would count twice, as in `--synthetic`."""
    found = profile(traces.load("reference", drafter), "fixed(4)", COST)
    own = json.loads(found.text)["simkit"]
    forced = {"aiconfigurator", "dynamo", "sglang", "tensorrt-llm"}
    assert own.keys() == forced | {"drawn_outcomes"}
    said = f"vLLM and llama.cpp get no synthetic rates: drafts of {drafter} are often shorter"
    assert any(note.startswith(said) for note in found.notes)
    assert any(note.startswith("Dynamo draws each step from the rates") for note in found.notes)


def test_planners_that_know_five_tokens_are_given_five():
    fields, found = made(policy="fixed(7)")
    trace = traces.load("reference")
    assert fields["simkit"]["aiconfigurator"]["nextn"] == 5
    assert fields["simkit"]["aiconfigurator"]["nextn_accepted"] == pytest.approx(
        sum(rates_of(trace, 5, "draft")), abs=1e-5
    )
    assert len(fields["simkit"]["dynamo"]["aic_nextn_accept_rates"].split(",")) == 5
    assert any("know up to 5 tokens: theirs are those of fixed(5)" in n for n in found.notes)


def test_what_draws_lose_is_said_of_both_ways_to_draw():
    """Both keep the mean; neither how requests differ, two lengths even less."""
    fields, found = made()
    assert [*found.errors] == ["the rates", "two lengths"]
    first = fields["simkit"]["drawn_outcomes"]["the rates"][0]
    (row,) = simkit.replay("reference", "fixed(4)", COST).records()
    assert first["name"] == "emitted tokens a step, all steps"
    assert first["true"] == row["emitted"] / row["steps"] < row["tokens_per_step"]
    named = [{m.name: m for m in each} for each in found.errors.values()]
    for each in named:
        total = each["emitted tokens a step, all steps"]
        assert total.mean == pytest.approx(total.true, rel=0.02)
        assert each["seconds of the slowest request"].high < total.true * 1.2
    spread = [each["emitted tokens a step, standard deviation over requests"] for each in named]
    assert spread[1].mean < spread[0].mean < 0.7 * spread[0].true


def test_other_rules_and_no_draft_have_no_profile():
    for policy in ("svip(h=0.4)", "autoregressive"):
        with pytest.raises(EngineError, match="a profile needs a fixed length"):
            made(policy=policy)


def test_rates_that_end_at_zero_stay_there():
    assert conditional((0.5, 0.0, 0.0)) == [0.5, 0.0, 0.0]


@pytest.mark.parametrize("name", ["reference", "smollm2", "reference-sampled"])
@pytest.mark.parametrize("length", [1, 4])
def test_a_round_trip_gives_the_same_rates(tmp_path, capsys, name, length):
    """Within the rounding of counts: half a step of all."""
    file, out = tmp_path / "speculation_profile.json", tmp_path / "synthetic"
    arguments = ["--profile", "--policy", f"fixed({length})", "--cost", COST, "-o", file]
    status, said, _ = run(capsys, "export", name, *arguments)
    assert status == 0 and "drawn from two lengths" in said
    assert run(capsys, "import", "profile", file, "-o", out)[0] == 0
    rates = json.loads(file.read_text())["marginal_accept_rates"]
    trace = traces.load(out)
    n = simkit.replay(trace, f"fixed({length})").records()[0]["steps"]
    assert rates_of(trace, length, "draft") == pytest.approx(rates, abs=0.5 / n + 2e-6)
    assert rates_of(trace, length, "prefill") == pytest.approx(rates, abs=30 / n**0.75)
    again = tmp_path / "again.json"
    arguments = ["--profile", "--policy", f"fixed({length})", "-o", again]
    assert run(capsys, "export", out, *arguments)[0] == 0
    theirs = json.loads(again.read_text())["conditional_accept_rates"]
    mine = json.loads(file.read_text())["conditional_accept_rates"]
    assert theirs == pytest.approx(mine, abs=2 / (n * min(rates)) + 1e-5)


def test_a_synthetic_trace_says_everywhere_that_it_is_one(tmp_path, capsys):
    out = tmp_path / "synthetic"
    arguments = ["--requests", "20", "--tokens", "60", "--seed", "3"]
    status, said, err = run(capsys, "import", "profile", METRICS, "-o", out, *arguments)
    word = "synthetic: independent draws of the rates in llama_cpp_metrics.txt"
    assert status == 0 and "20 synthetic requests" in said and word in err
    trace = traces.load(out)
    assert any(word in note for note in remarks_of(trace))
    assert "20 synthetic requests, seed 3" in trace.manifest.source.sample
    for words in (
        ("replay", out, "--policy", "fixed(2)"),
        ("sweep", out, "--policy", "fixed(1:3)", "--cost", COST),
        ("serving", out, "--controller", "static(2)", "--concurrency", "2", "--cost", BATCHES),
        ("validate", out),
        ("info", out),
    ):
        status, said, err = run(capsys, *words)
        assert status == 0 and "synthetic: independent draws" in " ".join((said + err).split())
    assert not trace.has_draft_model


def test_prometheus_counters_are_a_profile():
    """Of a real server: 60 steps, of which 42, 24 and 12 accepted so many tokens."""
    rates = importer.read(METRICS)
    assert rates.marginal == [42 / 60, 24 / 60, 12 / 60]
    assert "60 steps of a server" in rates.words


def changed(tmp_path, change):
    fields = {
        "schema_version": "1.0",
        "measured": True,
        "num_speculative_tokens": 3,
        "conditional_accept_rates": [0.8, 0.5, 0.5],
        "marginal_accept_rates": [0.8, 0.4, 0.2],
        "mean_accept_length": 2.4,
    }
    fields.update(change)
    file = tmp_path / "p.json"
    file.write_text(json.dumps({k: v for k, v in fields.items() if v is not ...}))
    return file


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"measured": False}, "an unmeasured profile has no rates"),
        ({"marginal_accept_rates": [0.8, 0.9, 0.2]}, "contradict"),
        ({"marginal_accept_rates": [0.4, 0.8, 0.2], "conditional_accept_rates": ...}, "not rise"),
        ({"marginal_accept_rates": [0.8, 0.4]}, "contradict"),
        ({"marginal_accept_rates": [0.8, 0.4, 1.2]}, "must be from 0 to 1"),
        ({"marginal_accept_rates": [0.8, 0.4, "x"]}, "must be from 0 to 1"),
        ({"marginal_accept_rates": ..., "conditional_accept_rates": ...}, "has neither"),
        ({"num_speculative_tokens": 4}, "its rates are 3"),
        ({"mean_accept_length": 3.4}, "its rates give 2.4"),
        ({"verification_method": "block"}, "must be longest_prefix"),
    ],
)
def test_profiles_that_contradict_themselves_are_refused(tmp_path, capsys, change, what):
    file = changed(tmp_path, change)
    assert what in refused(capsys, "import", "profile", file, "-o", tmp_path / "x")
    assert not (tmp_path / "x").exists()


def test_one_of_both_conventions_is_enough(tmp_path):
    for name in ("marginal_accept_rates", "conditional_accept_rates"):
        rates = importer.read(changed(tmp_path, {name: ...})).marginal
        assert rates == pytest.approx([0.8, 0.4, 0.2])


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ('position="0"} 42', 'position="0"} 62', "must not rise"),
        ('position="0"} 42', 'position="3"} 42', "no profile"),
        ("accepted_tokens_total 78", "accepted_tokens_total 79", "79 tokens were accepted"),
        ("drafts_total 60", "drafts_total NaN", "NaN is no count"),
        ("drafts_total 60", "drafts_total 0", "no profile"),
    ],
)
def test_counters_that_contradict_themselves_are_refused(tmp_path, old, new, what):
    text = METRICS.read_text()
    assert old in text
    file = tmp_path / "metrics.txt"
    file.write_text(text.replace(old, new))
    with pytest.raises(ImporterError, match=what):
        importer.load(file)


def test_options_are_those_of_the_format(tmp_path, capsys):
    out = ["-o", tmp_path / "x"]
    for words, what in (
        (("import", "vllm", METRICS, "--requests", "3", *out), "are for profile"),
        (("import", "profile", METRICS, "--requests", "0", *out), "each request needs a step"),
        (("import", "profile", METRICS, "--check"), "--check, --shared-path and --passes are for"),
        (("export", "reference", "--profile", "--engine", "vllm", *out), "one of the two"),
        (("export", "reference", *out), "one of the two"),
        (("export", "reference", "--profile", "--synthetic", *out), "takes no --controller"),
        (("export", "reference", "--profile", "--policy", "svip(h=0.4)", *out), "fixed length"),
    ):
        assert what in refused(capsys, *words)
        assert not (tmp_path / "x").exists()


def test_a_trace_and_its_draws_count_tokens_alike(tmp_path):
    """Of short outputs: a token accepted beyond the end is none, in the trace's own figure too."""
    rng, file = np.random.default_rng(3), tmp_path / "short.jsonl"
    with file.open("w") as lines:
        for k in range(200):
            accepted = (rng.random((20, 4)) < 0.7).cumprod(1).sum(1)
            tokens = {"prompt_token_ids": [k], "generated_token_ids": [1] * 20}
            lengths = {"acc_eagle": {"acc_len": (accepted + 1).tolist()}}
            lines.write(json.dumps({"id": k} | tokens | lengths) + "\n")
    trace = specdecode_bench.load(file, align="measured").trace
    found = {one.name: one for one in errors(trace, rates_of(trace, 4, "draft"), None, "draft")}
    steps = simkit.replay(trace, "fixed(4)").records()[0]["steps"]
    own = found["emitted tokens a step, all steps"]
    assert own.true == pytest.approx(200 * 20 / steps)


def test_a_seed_below_0_is_refused(tmp_path):
    with pytest.raises(ImporterError, match="seed must be at least 0, not -1"):
        importer.load(tmp_path / "none.json", seed=-1)
