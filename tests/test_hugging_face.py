"""Hugging Face assisted generation as an outside judge: same passes, prompt by prompt.

Its target passes are a replay's steps, its draft passes are what the replay says was drafted. Both
sides decode greedily. Source: transformers 5, `generation/candidate_generator.py` and
`_assisted_decoding` in `generation/utils.py`.
"""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from models import tiny_prompts
from test_confidence_adaptive import POLICY, some_steps, thresholds
from test_exactness import EOS_IDS, reference_pair, sharp_pair
from transformers import GenerationConfig
from transformers.generation.candidate_generator import AssistedCandidateGenerator

from benchmarks.hugging_face import Rule, generated, predicted
from benchmarks.recorded import record
from simkit import policies
from traces.record.plan import Plan

pytestmark = pytest.mark.usefixtures("one_thread")

RULES = {
    "fixed(5)": Rule(5, "constant"),
    "heuristic(initial=3)": Rule(3, "heuristic_transient"),
    "heuristic(initial=3, schedule=heuristic)": Rule(3, "heuristic"),
    "confidence(threshold=0.4)": Rule(20, "constant", 0.4),
    "confidence_adaptive(threshold=0.4)": Rule(20, "constant", 0.4, adaptive=True),
}
T_MAX = 20


@pytest.fixture(scope="module", params=["llama-gqa", "qwen2.5", "gpt-neox"])
def tiny(request):
    pair = sharp_pair(request.param, dtype=torch.float32)
    prompts = tiny_prompts(6, seed=5)
    plan = Plan(max_new_tokens=T_MAX, max_draft=T_MAX, eos_token_ids=EOS_IDS)
    return pair, prompts, record(pair, prompts, plan)


@pytest.mark.parametrize("spec", RULES)
def test_tiny_pairs(tiny, spec):
    pair, prompts, trace = tiny
    theirs = generated(pair, prompts, RULES[spec], T_MAX, EOS_IDS)
    assert theirs == predicted(trace, policies.parse(spec))


def test_outputs_end_both_ways(tiny):
    trace = tiny[2]
    reasons = trace.sequences["finish_reason"].to_pylist()
    assert "length" in reasons
    assert 0 < trace.positions("accepted").mean() < 1


@given(some_steps())
@settings(deadline=None)
def test_adaptive_thresholds(steps):
    assert thresholds(POLICY, steps) == adapted(steps)


def adapted(steps):
    """The threshold of `AssistedCandidateGenerator` after each step, without models."""
    generator: Any = object.__new__(AssistedCandidateGenerator)
    generator.probs, generator.matches = [], []
    config = GenerationConfig(
        assistant_confidence_threshold=0.4, num_assistant_tokens_schedule="constant"
    )
    generator.assistant_generation_config, generator.generation_config = config, GenerationConfig()
    out = []
    for probabilities, accepted in steps:
        if config.assistant_confidence_threshold:
            generator.probs.extend(probabilities)
        generator.update_candidate_strategy(None, [[None] * (len(probabilities) + 1)], accepted)
        out.append(config.assistant_confidence_threshold)
    return out


@pytest.fixture(scope="module")
def reference():
    pair, prompts = reference_pair("float32", 3)
    plan = Plan(max_new_tokens=24, max_draft=24, eos_token_ids=pair.eos_token_ids)
    return pair, prompts, record(pair, prompts, plan)


@pytest.mark.parametrize("spec", RULES)
def test_reference_pair(reference, spec):
    pair, prompts, trace = reference
    theirs = generated(pair, prompts, RULES[spec], 24, pair.eos_token_ids)
    assert theirs == predicted(trace, policies.parse(spec))


def test_adaptive_starts_anew_with_each_prompt(reference):
    pair, prompts, trace = reference
    spec = "confidence_adaptive(threshold=0.4)"
    theirs = generated(pair, [prompts[1]] * 2, RULES[spec], 24, pair.eos_token_ids)
    assert theirs[0] == theirs[1]
    assert theirs[0] == predicted(trace, policies.parse(spec))[1]
    assert theirs[0].draft != predicted(trace, policies.parse("confidence(threshold=0.4)"))[1].draft
