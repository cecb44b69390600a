"""On models, by sampling: accepted tokens per step have the law of an ordinary sampler."""

from dataclasses import replace

import pytest
import torch
from models import tiny_prompts
from test_exactness import EOS_IDS, sharp_pair

from benchmarks.law import compare, ordinary, replay_counts
from simkit import policies
from traces import Sampler
from traces.record.plan import Plan


@pytest.fixture(scope="module")
def runs(one_thread):
    """Runs by replay (T = 1, and a control at 0.4) and by an ordinary sampler; prompt by prompt."""
    pair, prompts = sharp_pair("llama-gqa", torch.float32), tiny_prompts(4, seed=2)
    policy, repeats = policies.parse("fixed(3)"), 40
    plan = Plan(Sampler(1.0), 5, 12, max_draft=3, eos_token_ids=EOS_IDS, batch_size=160)
    rng = torch.Generator().manual_seed(1)
    sampled = [
        [ordinary(pair, prompt.tokens, policy, plan, rng) for _ in range(repeats)]
        for prompt in prompts
    ]
    sides = [
        replay_counts(pair, prompts, repeats, replace(plan, sampler=sampler), policy)[0]
        for sampler in (Sampler(1.0), Sampler(0.4))
    ]
    return *sides, sampled


def test_accepted_per_step_has_the_law_of_an_ordinary_sampler(runs):
    test = compare(runs[0], runs[2], n=999)
    assert min(test.n_steps) > 500
    assert test.p_value > 0.001


def test_another_law_is_told_apart(runs):
    assert compare(runs[1], runs[2], n=999).p_value < 0.005
