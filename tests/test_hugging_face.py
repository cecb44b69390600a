"""Hugging Face assisted generation as an outside judge: same passes, prompt by prompt.

Its target passes are a replay's steps, its draft passes are what the replay says was drafted. Both
sides decode greedily. Source: transformers 5, `generation/candidate_generator.py` and
`_assisted_decoding` in `generation/utils.py`.
"""

import pytest
import torch
from models import tiny_prompts
from test_exactness import EOS_IDS, one_thread, reference_pair, sharp_pair

from benchmarks.hugging_face import Rule, generated, predicted
from benchmarks.recorded import record
from simkit import policies
from traces.record.plan import Plan

__all__ = ["one_thread"]

RULES = {
    "fixed(5)": Rule(5, "constant"),
    "heuristic(initial=3)": Rule(3, "heuristic_transient"),
    "heuristic(initial=3, schedule=heuristic)": Rule(3, "heuristic"),
    "confidence(threshold=0.4)": Rule(20, "constant", 0.4),
    "confidence_adaptive(threshold=0.4)": Rule(20, "constant", 0.4, adaptive=True),
}
T_MAX = 20


def specs():
    return [spec for spec in RULES if spec.partition("(")[0] in policies.names()]


@pytest.fixture(scope="module", params=["llama-gqa", "qwen2.5", "gpt-neox"])
def tiny(request):
    pair = sharp_pair(request.param, dtype=torch.float32)
    prompts = tiny_prompts(6, seed=5)
    plan = Plan(max_new_tokens=T_MAX, max_draft=T_MAX, eos_token_ids=EOS_IDS)
    return pair, prompts, record(pair, prompts, plan)


@pytest.mark.parametrize("spec", specs())
def test_tiny_pairs(tiny, spec):
    pair, prompts, trace = tiny
    theirs = generated(pair, prompts, RULES[spec], T_MAX, EOS_IDS)
    assert theirs == predicted(trace, policies.parse(spec))


def test_outputs_end_both_ways(tiny):
    trace = tiny[2]
    reasons = trace.sequences["finish_reason"].to_pylist()
    assert "length" in reasons
    assert 0 < trace.positions("accepted").mean() < 1


@pytest.fixture(scope="module")
def reference():
    pair, prompts = reference_pair("float32", 3)
    plan = Plan(max_new_tokens=24, max_draft=24, eos_token_ids=pair.eos_token_ids)
    return pair, prompts, record(pair, prompts, plan)


@pytest.mark.parametrize("spec", specs())
def test_reference_pair(reference, spec):
    pair, prompts, trace = reference
    theirs = generated(pair, prompts, RULES[spec], 24, pair.eos_token_ids)
    assert theirs == predicted(trace, policies.parse(spec))
