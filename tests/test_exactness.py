"""A replay gives the steps of real speculative decoding, one by one, for every policy.

The judge is `simkit.live`, which decodes without a trace. Both sides run in float64: passes of
different shapes differ in the last bits, and a sampled token must not hang on those.
"""

from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from models import CONFIGS, EOS, tiny_pair, tiny_prompts

from benchmarks.recorded import (
    decoded,
    fitted,
    fresh_heads,
    record,
    record_shards,
    replayed,
    trace_of,
    walked,
    with_scores,
)
from simkit import policies
from traces import Sampler
from traces.record.pair import load_pair
from traces.record.plan import Plan
from traces.record.prompts import read_prompts

pytestmark = pytest.mark.usefixtures("one_thread")

REFERENCE = Path(__file__).parent.parent / "traces" / "reference"
SAMPLERS = {
    "greedy": Sampler(),
    "t1": Sampler(1.0),
    "cut": Sampler(0.7, top_p=0.9),
    "point": Sampler(1.0, draft_temperature=0),
}
MORE_SPECS = (  # beyond the defaults of every registered policy
    "fixed(1)",
    "fixed(16)",
    "heuristic(initial=3, schedule=heuristic)",
    "heuristic(initial=5, feedback=nominal)",
    "confidence(threshold=0.15)",
    "svip(h=1.2)",
    "adaedl(threshold=0.1, target=0.5, epsilon=0.2)",
    "adaedl(threshold=0.4, rests=true, keep=false, min_draft=1, first_rate=0.9, max_draft=4)",
    "adaedl(threshold=0.5, keep=false)",
    "draft_verify(threshold=0.3, target=0.5, epsilon=0.2)",
    "cumulative_confidence(threshold=0.1, keep=False)",
    "llamacpp(p_min=0.3, n_min=2)",
    "llamacpp(version=2026)",
    "specdecpp(threshold=0.6, lag=1)",
    "acceptance_head(h=0.6, max_draft=9)",
    "acceptance_head(h=0.6, max_draft=9, lag=0, head=proposed)",
    "acceptance_head(h=cost, max_draft=9)",
    "pacer(block=2, threshold=0.6, carry_threshold=True)",
    "pacer(block=3, threshold=0.5, criterion=any)",
)
T_MAX = 16
EOS_IDS = (EOS, 1, 2)  # several, so that some outputs end


def specs():
    return [*policies.chains(), *MORE_SPECS]


def sharp_pair(family, dtype=torch.float64):
    """Peaked enough that drafts of a few tokens are accepted, and that entropies vary."""
    pair = tiny_pair(family, noise=0.06, dtype=dtype)
    with torch.no_grad():
        for model in (pair.target, pair.draft):
            model.get_output_embeddings().weight.mul_(2)
    return pair


@cache
def recorded(family, sampler):
    pair = sharp_pair(family)
    prompts = tiny_prompts(4, seed=len(family))
    plan = Plan(
        SAMPLERS[sampler],
        seed=11,
        max_new_tokens=T_MAX,
        max_draft=T_MAX,
        eos_token_ids=EOS_IDS,
        batch_size=3,
        hidden=True,
    )
    columns = record_shards(pair, prompts, plan)
    return pair, prompts, plan, with_scores(trace_of(columns), columns, heads(family))


@cache
def heads(family):
    width = sharp_pair(family).draft.config.hidden_size
    return fresh_heads(width, max_depth=T_MAX)


@cache
def reference_pair(dtype, n_prompts):
    models = REFERENCE / "models"
    if not (models / "draft" / "model.safetensors").exists():
        pytest.skip("the reference pair's weights are not here")
    pair = load_pair(str(models / "target"), str(models / "draft"), "cpu", dtype)
    prompts = read_prompts(REFERENCE / "prompts.jsonl", pair.tokenizer, pair.vocab_size)
    return pair, prompts[:: len(prompts) // n_prompts][:n_prompts]


def outputs(trace):
    return trace.sequences["output_tokens"].to_pylist()


def check(pair, prompts, plan, trace, policy, first_token, given=None):
    try:
        policy.columns(trace.sampler)
    except policies.PolicyError:
        pytest.skip("the rule does not hold under this sampler")
    got = decoded(pair, prompts, plan, fitted(policy, trace, first_token), first_token, given)
    assert [d.output for d in got] == outputs(trace)
    expected = [[tuple(step) for step in d.steps] for d in got]
    assert replayed(trace, policy, first_token) == expected
    if isinstance(policy, policies.Sequential):
        assert walked(trace, policy, first_token) == expected


@pytest.mark.parametrize("spec", specs())
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_every_policy(spec, sampler):
    both = sampler in ("greedy", "t1")
    for first_token in ("draft", "prefill") if both else ("prefill",):
        given = heads("llama-gqa")
        check(*recorded("llama-gqa", sampler), policies.parse(spec), first_token, given)


@pytest.mark.parametrize("family", sorted(set(CONFIGS) - {"llama-gqa"}))
@pytest.mark.parametrize("sampler", ["greedy", "t1"])
def test_every_family(family, sampler):
    for spec in ("fixed(5)", "svip(h=1.2)", "pacer(block=2, threshold=0.6)"):
        check(*recorded(family, sampler), policies.parse(spec), "draft", heads(family))


@pytest.mark.parametrize("sampler", ["greedy", "t1"])
def test_state_of_a_run_through_many_endings(sampler):
    """An accepted EOS counts as not all accepted, which only the next sequence shows."""
    pair, prompts = recorded("llama-gqa", sampler)[0], tiny_prompts(12, seed=9)
    eos = tuple(range(0, 61, 3))
    plan = Plan(SAMPLERS[sampler], 2, 10, max_draft=10, eos_token_ids=eos, batch_size=12)
    trace = record(pair, prompts, plan)
    policy = policies.parse("heuristic(initial=1, schedule=heuristic)")
    for first_token in ("draft", "prefill"):
        check(pair, prompts, plan, trace, policy, first_token)
    last = [
        (*run[-1], len(y)) for run, y in zip(replayed(trace, policy), outputs(trace), strict=True)
    ]
    assert any(start + accepted > n for start, _, _, accepted, n in last), "an EOS was accepted"


@pytest.mark.parametrize("dtype, sampler", [("float32", "greedy"), ("float64", "cut")])
def test_reference_pair(dtype, sampler):
    pair, prompts = reference_pair(dtype, 3)
    plan = Plan(SAMPLERS[sampler], max_new_tokens=24, eos_token_ids=pair.eos_token_ids)
    trace = record(pair, prompts, plan)
    for spec in ("fixed(5)", "svip(h=0.4)", "heuristic(schedule=heuristic)"):
        check(pair, prompts, plan, trace, policies.parse(spec), "draft")


def test_the_pairs_are_worth_the_test():
    """Acceptance is neither 0 nor 1; outputs end both ways, and EOS tokens are met both ways."""
    seen = set()
    for sampler in SAMPLERS:
        trace = recorded("llama-gqa", sampler)[-1]
        accepted = trace.positions("accepted")
        assert 0.15 < accepted.mean() < 0.95
        seen |= set(trace.sequences["finish_reason"].to_pylist())
        drafted_eos = np.isin(trace.positions("draft_token"), EOS_IDS)
        seen |= {("drafted EOS", ok) for ok in accepted[drafted_eos].tolist()}
    assert seen == {"eos", "length", ("drafted EOS", True), ("drafted EOS", False)}
