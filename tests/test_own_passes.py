"""Targets that packed passes read wrongly: recorded alone, in their own passes, text by text."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from models import EOS
from tiny_models import tiny_model
from transformers import GenerationConfig

from traces import RecordError, Sampler
from traces.record import proof_own
from traces.record.draws import first_key, next_key
from traces.record.pair import Alone, Pair
from traces.record.plan import Plan
from traces.record.prompts import Prompt
from traces.record.proof_own import prove_own
from traces.record.shard import record_shard
from traces.record.statistics import target_rows, target_token

STATES = ("rwkv", "mpt", "gpt_neo", "bloom")
PROMPTS = [Prompt(str(n), "a", None, list(range(1, n + 1))) for n in (4, 9, 6)]


def plan_of(temperature=0.0, **changes):
    given = dict(seed=3, max_new_tokens=20, max_draft=4, eos_token_ids=(EOS,), coupling="target")
    return Plan(Sampler(temperature), **{**given, **changes})


def alone(name):
    return Alone(tiny_model(name), None, 64, (EOS,), alone=True)


def logits_of(model, text):
    with torch.no_grad():
        return model(torch.tensor([text]), use_cache=False).logits[:, -1]


@pytest.mark.parametrize("name", STATES)
def test_greedy_outputs_are_those_of_generate(name):
    target = alone(name)
    known = target.target.generation_config
    shard = record_shard(target, PROMPTS, 0, plan_of())
    assert target.target.generation_config is known and not target.prove(30)
    for prompt, output in zip(PROMPTS, shard.sequences["output_tokens"], strict=True):
        ids = torch.tensor([prompt.tokens])
        settings = GenerationConfig(max_new_tokens=20, eos_token_id=EOS, pad_token_id=EOS)
        given = dict(attention_mask=torch.ones_like(ids), generation_config=settings)
        assert target.target.generate(ids, **given)[0, len(prompt.tokens) :].tolist() == output


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_rows_are_those_of_uncached_passes(temperature):
    target, plan = alone("rwkv"), plan_of(temperature)
    shard = record_shard(target, PROMPTS, 5, plan)
    entropies = iter(shard.tables["target"]["target_entropy"])
    for number, (prompt, output) in enumerate(
        zip(PROMPTS, shard.sequences["output_tokens"], strict=True), 5
    ):
        key, text = first_key(plan.seed, torch.tensor([number])), list(prompt.tokens)
        for token in output:
            p = target_rows(logits_of(target.target, text), plan.sampler)
            assert int(target_token(p, key)) == token
            assert next(entropies) == pytest.approx(float(p.entropy), abs=1e-5)
            text.append(token)
            key = next_key(key, torch.tensor([token]))


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_draft_model_follows_known_outputs(temperature):
    """As an attached one does: rows on path and branches against plain passes."""
    plan = plan_of(temperature)
    target = alone("rwkv")
    outputs = record_shard(target, PROMPTS, 0, plan).sequences["output_tokens"]
    pair = Pair(target.target, tiny_model("llama"), None, 64, (EOS,), known=True)
    shard = record_shard(pair, PROMPTS, 0, plan, outputs=outputs)
    assert shard.sequences["output_tokens"] == outputs and shard.strange == 0
    rows = shard.positions
    for k in range(0, len(rows["position"]), 7):
        number, i = rows["sequence"][k], rows["position"][k]
        text = PROMPTS[number].tokens + outputs[number][: i - 1]
        p, q = (target_rows(logits_of(m, text), Sampler(1.0)) for m in (pair.target, pair.draft))
        overlap = float(torch.minimum(p.prob, q.prob).sum())
        assert rows["overlap"][k] == pytest.approx(overlap, abs=1e-5)
    answered = [replace(p, output=y) for p, y in zip(PROMPTS, outputs, strict=True)]
    again = record_shard(pair, answered, 0, replace(plan, by_engine=True))
    assert np.array_equal(again.positions["accepted"], rows["accepted"])


def test_what_own_passes_cannot_do():
    plan = plan_of()
    pair = Pair(tiny_model("rwkv"), tiny_model("llama"), None, 64, (EOS,))
    with pytest.raises(RecordError, match="keeps a state"):
        record_shard(pair, PROMPTS, 0, plan)
    known = replace(pair, known=True)
    with pytest.raises(RecordError, match="reads known outputs alone"):
        record_shard(known, PROMPTS, 0, plan)


def test_a_generate_that_differs_is_refused(monkeypatch):
    """A planted fault: its cache forgets; the refusal is that of packed passes."""
    model = tiny_model("rwkv")
    run = model.forward

    def forgets(*args, use_cache=True, **kwargs):
        if use_cache is not False:
            kwargs.pop("state", None)
        return run(*args, use_cache=use_cache, **kwargs)

    monkeypatch.setattr(model, "forward", forgets)
    with pytest.raises(RecordError, match="generate differ"):
        prove_own(model, 0)
    with pytest.raises(RecordError, match="keeps a state"):
        Alone(model, None, 64, (EOS,), alone=True).prove(0)


def test_encoders_stay_refused():
    with pytest.raises(RecordError, match="causal"):
        Alone(tiny_model("bert"), None, 64, (EOS,), alone=True).prove(0)


def test_own_passes_are_proved_once(monkeypatch):
    tried, target = [], alone("rwkv")
    real = proof_own.prove_own
    monkeypatch.setattr(proof_own, "prove_own", lambda *given: (tried.append(given), real(*given)))
    for longest in (0, 0, 30, 20, 30):
        assert not target.prove(longest)
    assert len(tried) == 2
