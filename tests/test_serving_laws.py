"""What must hold of a server by theory: queues, saturation, and the replay at batch 1."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import simkit
import traces
from simkit import policies, serving
from simkit.costs import Linear
from simkit.serving import Engine
from simkit.serving.measures import requests as per_request
from traces import synthetic

CONSTANT = Linear(draft_s=0.0, target_s=1e-2)
PAID = Linear(draft_s=1e-3, target_s=1e-2, target_per_token_s=1e-4)


@pytest.mark.parametrize("load", [0.3, 0.6, 0.8])
def test_one_server_with_constant_times_waits_as_the_formula_says(load):
    """M/D/1: W = ρ S / 2 (1 - ρ), Pollaczek and Khinchine."""
    trace = synthetic.iid(3, 1, 0.5, max_draft=2, seed=0)
    service_s = 2e-2  # a prefill and a pass for the only token
    found = serving.serve(
        trace, "none", CONSTANT, rate=load / service_s, requests=300_000, seeds=1,
        engine=Engine(max_batch=1),
    )  # fmt: skip
    wait_s = per_request(found.runs[0])["wait_s"].mean()
    assert wait_s == pytest.approx(load * service_s / (2 * (1 - load)), rel=0.02)


@settings(max_examples=20, deadline=None)
@given(rate=st.floats(0.5, 60), size=st.integers(1, 8), seed=st.integers(0, 99))
def test_requests_in_the_house_are_those_that_come_times_how_long_they_stay(rate, size, seed):
    """Little's law, from the log of iterations: the time that each request is seen there."""
    trace = synthetic.iid(5, 20, 0.6, max_draft=4, seed=seed)
    found = serving.serve(
        trace, "static(3)", PAID, rate=rate, requests=60, seeds=1, engine=Engine(max_batch=size)
    )
    of, log = per_request(found.runs[0]), found.runs[0].iterations
    inside = log["decoding"] + log["prefilling"]
    staying_s = ((log["end_s"] - log["begin_s"]) * inside).sum()
    assert staying_s == pytest.approx((of["latency_s"] - of["wait_s"]).sum(), rel=1e-12)
    events = np.concatenate([of["arrival_s"], of["done_s"]])
    order = np.argsort(events, kind="stable")
    there = np.cumsum(np.repeat([1, -1], 60)[order])
    area_s = (np.diff(events[order]) * there[:-1]).sum()
    assert area_s == pytest.approx(of["latency_s"].sum(), rel=1e-12)


@pytest.mark.parametrize("n", [1, 3, 16])
def test_a_full_house_of_equal_requests_has_the_closed_form_s_throughput(n):
    trace = synthetic.iid(4, 60, 1.0, max_draft=4, seed=0)  # all accepted: 4 tokens a step
    cost = Linear(draft_s=1e-3, target_s=1e-2, draft_per_token_s=1e-5, target_per_token_s=1e-4)
    found = serving.serve(
        trace, "static(3)", cost, concurrency=n, requests=5 * n, seeds=1, drawn=False
    )
    prompts_s = 1e-2 + n * 1e-4 + 1e-3 + n * 1e-5  # both models read n prompts of one token
    step_s = 3 * (1e-3 + n * 1e-5) + 1e-2 + 4 * n * 1e-4
    spent_s = prompts_s + 15 * step_s
    assert found.records()[0]["tokens_s"] == pytest.approx(60 * n / spent_s, rel=1e-12)


def every_other_step(view):
    return 3 * (view.steps % 2)


@pytest.mark.parametrize("padded", [True, False])
@pytest.mark.parametrize("n", [1, 16])
def test_a_full_house_that_drafts_in_every_other_step_reads_what_it_missed(n, padded):
    trace = synthetic.iid(4, 60, 1.0, max_draft=4, seed=0)  # all accepted: 5 tokens in two steps
    cost = Linear(draft_s=1e-3, target_s=1e-2, draft_per_token_s=1e-5, target_per_token_s=1e-4)
    engine = Engine(padded=padded)
    found = serving.serve(
        trace, every_other_step, cost, concurrency=n, requests=5 * n, seeds=1, drawn=False,
        engine=engine,
    )  # fmt: skip
    prompts_s = 1e-2 + n * 1e-4 + 1e-3 + n * 1e-5
    drafts_s = 3 * (1e-3 + n * 1e-5) + n * 1e-5  # the first pass is over two tokens of each
    spent_s = prompts_s + 12 * (1e-2 + n * 1e-4 + drafts_s + 1e-2 + 4 * n * 1e-4)
    assert found.records()[0]["tokens_s"] == pytest.approx(60 * n / spent_s, rel=1e-12)


SPECS = [f"{name}()" for name in policies.chains()] + [
    "fixed(3)",
    "svip(h=0.2)",
]


@pytest.mark.parametrize("first", ["draft", "prefill"])
@pytest.mark.parametrize("spec", dict.fromkeys(SPECS))
def test_one_request_in_flight_takes_what_the_replay_says(spec, first):
    trace = traces.load("reference")
    replayed = simkit.replay(trace, spec, by="sequence", first_token=first).records()
    found = serving.serve(
        trace, f"each({spec})", concurrency=1, requests=None, seeds=1, first_token=first
    )
    of = per_request(found.runs[0])
    for name, field in (("steps", "steps"), ("drafted", "drafted"), ("accepted", "accepted")):
        assert of[name].tolist() == [row[field] for row in replayed]
    np.testing.assert_allclose(of["latency_s"], [row["total_s"] for row in replayed], rtol=1e-9)


BLOCKS = Linear(
    draft_s=1e-3, target_s=1e-2, draft_per_token_s=2e-4, draft_per_kv_token_s=1e-7,
    target_per_token_s=1e-4,
)  # fmt: skip


@pytest.mark.parametrize("spec", dict.fromkeys(SPECS))
def test_and_so_it_does_where_longer_passes_of_the_draft_take_longer(spec):
    """But for what a replay has for nothing: reading what came out in steps without a draft."""
    trace = traces.load("reference")
    replayed = simkit.replay(trace, spec, BLOCKS, by="sequence").records()
    wanted = np.array([row["total_s"] for row in replayed])
    how = {"concurrency": 1, "requests": None, "seeds": 1}
    engine = Engine(catch_up=False)
    free = serving.serve(trace, f"each({spec})", BLOCKS, engine=engine, **how).runs[0]
    np.testing.assert_allclose(per_request(free)["latency_s"], wanted, rtol=1e-9)
    paid = serving.serve(trace, f"each({spec})", BLOCKS, **how).runs[0]
    late_s = np.zeros(len(wanted))
    if spec != "pearl()":  # its draft model reads along while the target verifies
        left_out = 0
        for row in simkit.replay(trace, spec, BLOCKS, by="step").records():
            left_out *= row["step"] > 1
            late_s[row["sequence"]] += left_out * (2e-4 - 1e-7) if row["drafted"] else 0.0
            left_out = 0 if row["drafted"] else left_out + row["emitted"]
    assert (late_s > 0).any() == (spec in ("oracle()", "prophet()"))
    np.testing.assert_allclose(per_request(paid)["latency_s"], wanted + late_s, rtol=1e-9)


@pytest.mark.parametrize("spec", ["static(4)", "fixed(4)"])
@pytest.mark.parametrize("drafter", ["pard2", "eagle", "prompt_lookup"])
def test_so_does_an_attached_drafter(drafter, spec):
    trace = traces.load("reference-target", drafter)
    replayed = simkit.replay(trace, "fixed(4)", by="sequence").records()
    found = serving.serve(trace, spec, concurrency=1, requests=None, seeds=1)
    latency_s = per_request(found.runs[0])["latency_s"]
    np.testing.assert_allclose(latency_s, [row["total_s"] for row in replayed], rtol=1e-9)


def test_the_target_alone_takes_the_baseline():
    trace = traces.load("reference")
    replayed = simkit.replay(trace, "fixed(1)", by="sequence").records()
    found = serving.serve(trace, "none", concurrency=1, requests=None, seeds=1)
    latency_s = per_request(found.runs[0])["latency_s"]
    np.testing.assert_allclose(latency_s, [row["baseline_s"] for row in replayed], rtol=1e-9)
