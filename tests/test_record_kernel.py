"""A recording that the Triton kernel reduced, against one of the plain code, and against decoding.

Recorder and live decoders must reduce logits alike: rules decide on float32 values, whose last bits
are the kernel's or torch's. Where there is no Triton a stand-in with columns of its own, far from
the true ones, shows that both sides ask for it; under TRITON_INTERPRET=1 the kernel itself runs.
"""

import os
from dataclasses import replace
from importlib.util import find_spec

import numpy as np
import pytest
import torch
from models import EOS, tiny_pair, tiny_prompts
from test_exactness import sharp_pair

from benchmarks.recorded import decoded, record_shards, replayed, trace_of
from simkit import policies
from simkit.live import DecoderSettings
from simkit.recording import RecordRequest
from traces import Sampler
from traces.differences import difference
from traces.errors import RecordError, TraceError
from traces.manifest import Manifest
from traces.record import statistics, statistics_triton
from traces.record.header import make_header
from traces.record.plan import Plan
from traces.record.statistics_triton import FLOATS, Raw
from traces.trace import Trace

SPECS = [
    f"{rule}, max_draft=4)" for rule in ("svip(h=0.8", "svip(h=1.2", "confidence(threshold=0.6")
]
PLAN = Plan(max_new_tokens=8, max_draft=4, eos_token_ids=(EOS,), batch_size=2, seed=3)


class Letters:
    """A tokenizer."""

    def get_vocab(self):
        return {"a": 0}

    def encode(self, text):
        return [0] * len(text)


def header(**changes):
    pair = replace(tiny_pair(), tokenizer=Letters())
    return make_header(pair, tiny_prompts(2), replace(PLAN, **changes))


def stand_in(p_logits, q_logits, token):
    """Columns that no distribution has, but that are the same for equal rows."""
    q = statistics.LogitRows(q_logits, 1.0)
    p = q if p_logits is None else statistics.LogitRows(p_logits, 1.0)
    both = statistics.draft_statistics(q, token) | statistics.target_statistics(p, q, token)
    floats = {name: both.get(name, torch.zeros(len(token))) for name in FLOATS}
    floats["draft_entropy"] = floats["draft_entropy"] * 0.5 + 0.25
    floats["draft_top1_prob"] = floats["draft_top1_prob"].sqrt()
    if q.temperature:
        floats["draft_prob_raw"] = floats["draft_prob_raw"] * 0.9
    return Raw(floats, q.best, p.best)


@pytest.fixture(params=["stand-in", "kernel"])
def kernel(request, monkeypatch):
    """What reduces rows that ask for the kernel; in float64, so that draws do not hang on bits."""
    interpreted = os.environ.get("TRITON_INTERPRET") == "1" and find_spec("triton")
    if request.param == "kernel" and not interpreted:
        pytest.skip("needs Triton's interpreter")
    if request.param == "stand-in":
        monkeypatch.setattr(statistics_triton, "raw_statistics", stand_in)
    monkeypatch.setattr(statistics_triton, "can_run", lambda *_: True)
    return request.param


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_steps_of_a_recording_are_those_of_decoding(kernel, temperature):
    pair, prompts = sharp_pair("llama"), tiny_prompts(2)
    plan = replace(PLAN, sampler=Sampler(temperature), kernel=True)
    trace = trace_of(record_shards(pair, prompts, plan))
    others = 0
    for spec in SPECS:
        policy = policies.parse(spec)
        found = replayed(trace, policy)
        assert found == steps_of(decoded(pair, prompts, plan, policy))
        others += found != steps_of(decoded(pair, prompts, replace(plan, kernel=False), policy))
    if kernel == "stand-in":
        assert others  # a decoder that reduced otherwise would be seen


def steps_of(found):
    return [[tuple(step) for step in one.steps] for one in found]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_tables_are_those_of_the_plain_code(kernel, temperature):
    """Tokens and draws are equal, statistics as near as float32 sums are."""
    pair, prompts = sharp_pair("llama"), tiny_prompts(2)
    plan = replace(PLAN, sampler=Sampler(temperature), branch_target=True, mix=0.5)
    plain, other = (record_shards(pair, prompts, replace(plan, kernel=k)) for k in (False, True))
    assert plain.sequences == other.sequences
    for name, expected in {**plain.positions, **plain.branches}.items():
        got = {**other.positions, **other.branches}[name]
        if not np.issubdtype(expected.dtype, np.floating):
            np.testing.assert_array_equal(got, expected, err_msg=name)
        elif kernel == "kernel":
            np.testing.assert_allclose(got, expected, rtol=2e-6, atol=2e-6, err_msg=name)
    changed = not np.array_equal(plain.positions["draft_entropy"], other.positions["draft_entropy"])
    assert changed or kernel == "kernel"


def test_the_manifest_says_what_reduced_the_logits():
    plain, asked = header(), header(kernel=True)
    assert "triton" in asked.libraries and asked.statistics == "kernel"
    assert difference(plain, replace(asked, libraries=plain.libraries)) == (
        "statistics is plain there, kernel here"
    )
    assert asked.content_hash() != plain.content_hash()
    assert Manifest.from_json(asked.to_json()) == asked
    assert "statistics" not in plain.to_json()  # so that older traces keep their hash
    with pytest.raises(TraceError, match="statistics must be one of plain, kernel, not triton"):
        replace(plain, statistics="triton")


@pytest.mark.parametrize("statistics, kernel", [("plain", False), ("kernel", True)])
def test_decoding_as_recorded(statistics, kernel):
    trace = trace_of(record_shards(tiny_pair(), tiny_prompts(1), PLAN))
    like = Trace(replace(trace.manifest, statistics=statistics), trace._source)
    assert DecoderSettings.of(like).kernel is kernel
    assert DecoderSettings.of(like, max_new_tokens=5).max_new_tokens == 5


def test_the_kernel_is_on_wherever_it_can_run(monkeypatch):
    pair = tiny_pair()
    assert not statistics_triton.chosen(pair, None) and not statistics_triton.chosen(pair, False)
    with pytest.raises(
        RecordError, match="--kernel: the Triton kernel needs Triton, a CUDA device"
    ):
        statistics_triton.chosen(pair, True)
    monkeypatch.setattr(statistics_triton, "can_run", lambda *_: True)
    assert statistics_triton.chosen(pair, None) and statistics_triton.chosen(pair, True)
    assert not statistics_triton.chosen(pair, False)


def test_a_target_alone_has_no_pair_to_reduce():
    """Which the option would not change: it is refused, as where the kernel cannot run."""
    asked = RecordRequest("target", "prompts.jsonl", kernel=False)
    assert not asked.plan().kernel
    with pytest.raises(RecordError, match="--kernel is about a draft model: give --draft"):
        replace(asked, kernel=True).plan()
