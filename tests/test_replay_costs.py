"""Seconds of a replay against sums worked out by hand and step by step."""

from dataclasses import dataclass

import numpy as np
import polars as pl
import pytest
from hypothesis import assume, given, settings
from replay_traces import SEQUENTIAL, bound, build, holds, steps_by_hand, tiny_traces

import simkit
import traces
from simkit import policies
from simkit.costs import CostError, CostModel, Linear, Times
from simkit.policies.base import never
from simkit.simulator import step_costs

HEAD_S = 0.5
COST = Linear(
    draft_s=1.0,
    target_s=10.0,
    draft_per_token_s=0.5,
    target_per_token_s=2.0,
    draft_per_kv_token_s=0.25,
    target_per_kv_token_s=0.125,
    decode_s=9.0,
    overhead_s=0.0625,
    baseline_overhead_s=0.5,
    policy_s=0.03125,
    head_s=HEAD_S,
)
PARTS = ("prefill_s", "draft_s", "verify_s", "policy_s", "overhead_s")


def by_hand(trace, policy, first):
    """Parts and baseline of each sequence, pass by pass."""
    policy = bound(policy, trace, first, COST)
    steps = steps_by_hand(trace, policy, first)
    decides = policy.slots.trips is not never
    out = []
    for info in trace.sequences.to_pylist():
        n_prompt, mine = info["n_prompt"], [s for s in steps if s[0] == info["sequence"]]
        row = dict.fromkeys((*PARTS, "baseline_s"), 0.0)
        row["prefill_s"] = 10 + 2 * n_prompt
        if any(step[2] for step in mine):
            row["prefill_s"] += 1 + 0.5 * n_prompt
        for _, i, drafted, proposed, _ in mine:
            known = n_prompt + i - 1
            row["draft_s"] += sum(1.5 + 0.25 * (known + j - 1) for j in range(1, drafted + 1))
            row["verify_s"] += 10 + 2 * (proposed + 1) + 0.125 * known
            call_s = 0.03125 + (HEAD_S if policy.head else 0)
            row["policy_s"] += call_s * policy.calls(drafted) * decides
            row["overhead_s"] += 0.0625
        decoded = range(first, info["n_output"] + 1)
        row["baseline_s"] = 10 + 2 * n_prompt
        row["baseline_s"] += sum(9 + 0.125 * (n_prompt + i - 1) + 0.5 for i in decoded)
        out.append(row)
    return out


@pytest.mark.parametrize("name", SEQUENTIAL)
@settings(max_examples=15, deadline=None)
@given(trace=tiny_traces())
def test_seconds_of_every_policy(name, trace):
    policy = policies.parse(name)
    assume(holds(policy, trace))
    for first_token, first in (("draft", 1), ("prefill", 2)):
        result = simkit.replay(trace, policy, COST, by="sequence", first_token=first_token)
        for record, expected in zip(result.records(), by_hand(trace, policy, first), strict=True):
            for part, seconds in expected.items():
                assert record[part] == pytest.approx(seconds, abs=1e-9)
            total_s = sum(record[part] for part in PARTS)
            assert record["total_s"] == pytest.approx(total_s)
            assert record["speedup"] == pytest.approx(record["baseline_s"] / total_s)


def test_one_step_in_numbers():
    """Four tokens, the third one rejected, drafts of two."""
    trace = build([[(1, 1), (1, 1), (1, 2), (1, 1)]], t_max=4, max_draft=4, n_prompt=8)
    cost = Linear(draft_s=1.0, target_s=100.0, draft_per_kv_token_s=0.01, overhead_s=0.5)
    (record,) = simkit.replay(trace, "fixed(2)", cost).records()
    assert [record[k] for k in ("steps", "drafted", "accepted", "emitted")] == [2, 2, 2, 4]
    # The second step starts at 4, the last position, and drafts nothing.
    assert record["draft_s"] == pytest.approx(1.08 + 1.09)
    assert record["verify_s"] == 200.0
    assert record["prefill_s"] == 101.0
    assert record["overhead_s"] == 1.0
    assert record["baseline_s"] == 500.0


@settings(max_examples=15, deadline=None)
@given(trace=tiny_traces())
def test_steps_sequences_tasks_and_trace_add_up(trace):
    def sums(by):
        frame = simkit.replay(trace, ["fixed(3)", "svip"], COST, by=by).frame
        names = ["steps", "drafted", "proposed", "accepted", "emitted", *PARTS]
        names += ["total_s", "baseline_s"]
        return (
            frame.group_by("policy", maintain_order=True).agg(pl.col(names).sum())[:, 1:].to_numpy()
        )

    whole = sums("trace")
    for by in ("task", "sequence", "step"):
        assert sums(by) == pytest.approx(whole)


def test_a_table_that_would_be_too_large_is_done_without(monkeypatch):
    trace = build([[(1, 1)] * 9, [(1, 2)] * 9], t_max=9, max_draft=9)
    specs = ["fixed(3)", "svip(h=0)", "oracle"]
    expected = simkit.replay(trace, specs, COST, by="sequence").frame
    monkeypatch.setattr(step_costs, "CELLS", 0)
    found = simkit.replay(trace, specs, COST, by="sequence").frame
    for name in found.columns[1:]:
        assert found[name].to_list() == pytest.approx(expected[name].to_list(), nan_ok=True)


def test_autoregressive_as_a_policy_has_speedup_one():
    trace = build([[(1, 1)] * 9, [(1, 2)] * 9], t_max=9, max_draft=9)
    cost = Linear(draft_s=1.0, target_s=10.0, target_per_kv_token_s=0.1)
    (record,) = simkit.replay(trace, "autoregressive", cost).records()
    assert record["speedup"] == pytest.approx(1)
    assert record["speedup_lo"] == pytest.approx(1)
    assert record["speedup_hi"] == pytest.approx(1)


@dataclass(frozen=True)
class Broken(CostModel, Times):
    """Gives what it is told to for one part, 1 second for the others."""

    part: str
    seconds: float
    name = "broken"

    def times(self, trace):
        return self

    def _of(self, part, like):
        return np.full(np.shape(like), self.seconds if part == self.part else 1.0)

    def draft(self, context):
        return self._of("draft", context)

    def verify(self, tokens, context):
        return self._of("verification", np.broadcast_arrays(tokens, context)[0])

    def decode(self, context):
        return self._of("decoding", context)

    def prefill(self, model, tokens):
        return self._of(f"{model} prefill", tokens)

    def overhead(self):
        return self._of("overhead", 0).item()

    def baseline_overhead(self):
        return 1.0

    def policy(self, name):
        return self._of("policy", 0).item()


@pytest.mark.parametrize("seconds", [-1.0, float("nan"), float("inf")])
@pytest.mark.parametrize(
    "part",
    ["draft", "verification", "decoding", "draft prefill", "target prefill", "overhead", "policy"],
)
def test_impossible_times_are_refused(part, seconds):
    trace = build([[(1, 1)] * 3], t_max=3, max_draft=3)
    with pytest.raises(CostError, match=f"gives {seconds} seconds for (a )?{part}"):
        simkit.replay(trace, "svip", Broken(part, seconds))


@dataclass(frozen=True)
class Constant(Broken):
    """10 seconds and half a second for each token of context of a target pass, in some shape."""

    shape: str = "full"

    def verify(self, tokens, context):
        seconds = 10 + 0.5 * np.asarray(context, float)
        return seconds + 0 * tokens if self.shape == "full" else seconds

    def draft(self, context):
        return 1.0 if self.shape == "few" else super().draft(context)

    def decode(self, context):
        return self.verify(1, context)

    def prefill(self, model, tokens):
        return 1.0 if self.shape == "few" else super().prefill(model, tokens)


@pytest.mark.parametrize("by", ["trace", "step"])
@pytest.mark.parametrize(
    ("policy", "drafter"),
    [
        ("fixed(3)", "own"),
        ("fixed(3)", "pard"),
        ("prophet(max_draft=8)", "own"),
        ("prophet(max_draft=8)", "pard"),
        ("pearl(window=3)", "own"),
    ],
)
def test_times_that_are_alike_may_be_given_once(policy, drafter, by):
    """A verification that depends on the context alone, a draft pass that depends on nothing."""
    trace = traces.load("reference").with_drafter(drafter)
    full, few = (
        simkit.replay(trace, policy, Constant("", 1.0, shape), by=by).frame
        for shape in ("full", "few")
    )
    assert full.equals(few)


def test_times_are_served_alike_too():
    served = [
        simkit.serve("reference", "static(3)", Constant("", 1.0, shape), concurrency=1, seeds=1)
        for shape in ("full", "few")
    ]
    assert served[0].frame.equals(served[1].frame)


def test_times_of_another_shape_are_refused():
    class Wrong(Broken):
        def verify(self, tokens, context):
            return np.ones(7)

    message = r"gives seconds of shape \(7,\) for verification passes of shape"
    with pytest.raises(CostError, match=message):
        simkit.replay("reference", "fixed(3)", Wrong("", 1.0))
