"""Policies on drafters of which one pass yields a whole draft, as they were attached."""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np
import polars as pl
import pytest
from test_lattice import outcomes

import simkit
import traces
from simkit import policies
from simkit.drafters import layout_of
from simkit.drafters.layout import DepthError
from simkit.policies import PEARL
from simkit.simulator.arguments import setting
from simkit.simulator.binding import fitted
from simkit.steps import concurrent, interpreted
from simkit.steps.steps import COUNTS
from traces import Sampler
from traces.errors import TraceError

COST = "linear(draft_s=1, target_s=5)"
RULES = (
    *("heuristic", "confidence", "confidence_adaptive", "draft_verify", "cumulative_confidence"),
    *("svip(h=0.4)", "adaedl", "rate_optimal", "oracle", "prophet"),
)
ABLATIONS = list(itertools.product([True, False], [True, False]))


@pytest.fixture(scope="module", params=["reference-target", "reference"])
def trace(request):
    return traces.load(request.param, drafter="pard2")


@pytest.mark.parametrize("spec", RULES)
def test_every_rule_replays_as_it_is(trace, spec):
    """A draft ends where the pass yields no more: as if `max_draft` said so."""
    policy = policies.parse(spec)
    within = policies.shortened(policy, trace.max_draft)
    assert within and (policy.max_draft > trace.max_draft == 8 or spec == "draft_verify")
    where = setting(trace, COST, "draft")
    found = interpreted.walk(fitted(policy, where), where.layout, 1)
    same = interpreted.walk(within.bind(where), where.layout, 1)
    assert found.drafted.max() <= 8 and found.asked.max() <= 8
    for name in ("offsets", *COUNTS[1:], "asked"):
        np.testing.assert_array_equal(getattr(found, name), getattr(same, name), name)


def test_replays_sweeps_and_routes_do_so(trace):
    specs = ["heuristic", "rate_optimal"]
    found = simkit.replay(trace, specs, COST).frame
    assert found["policy"].to_list() == [str(policies.parse(spec)) for spec in specs]
    assert simkit.sweep(trace, specs, COST).frame["drafted"].equals(found["drafted"])
    routed = simkit.replay(trace.recording, {"route(suffix, pard2)": "heuristic"}, COST)
    assert routed.frame["drafted"].item() > 0


@pytest.mark.parametrize("spec", ["fixed(12)", "pearl(9)"])
def test_a_length_that_is_named_is_not_cut(spec):
    trace = traces.load("reference", drafter="pard2")
    with pytest.raises(DepthError, match=r"depth 9 was not recorded: .* \(Γ\) = 8 tokens"):
        simkit.replay(trace, spec, COST)


def test_a_chain_is_not_whole():
    """Of a feature drafter more could have been drafted: a fitted rule is told what to write."""
    trace = traces.load("reference-target", drafter="eagle")
    with pytest.raises(DepthError, match=r"^rate_optimal\(.*; write rate_optimal\(.*max_draft=6"):
        simkit.replay(trace, "rate_optimal", COST)


def test_one_column_has_both_probabilities_at_temperature_1():
    trace = traces.load("reference-target", drafter="pard2")
    assert "draft_prob_raw" not in trace.manifest.lattice_columns
    raw, drawn = (
        simkit.replay(trace, f"rate_optimal(score={name})", COST, by="step").frame
        for name in ("draft_prob_raw", "draft_prob")
    )
    assert raw.drop("policy").equals(drawn.drop("policy"))
    whole = traces.load("reference-sampled")
    assert whole.sampler == trace.sampler
    for read in (whole.positions, whole.branches):
        np.testing.assert_array_equal(read("draft_prob"), read("draft_prob_raw"))


@pytest.mark.parametrize(
    "sampler", [Sampler(0.5), Sampler(1.0, top_k=5), Sampler(1.0, top_p=0.9), Sampler()]
)
def test_elsewhere_it_does_not(sampler):
    made = outcomes([[[True, False], [False]]], sampler=sampler, draft_passes="draft")
    assert not made.has("lattice", "draft_prob_raw")
    with pytest.raises(TraceError, match="reads the column draft_prob_raw"):
        simkit.replay(made, "rate_optimal", COST)


class OneDraft(NamedTuple):
    """The draft from one start: what of it was accepted, and its tokens."""

    accepted: list[bool]
    tokens: list[int]


class Drafts:
    """Every recorded draft by its key; a KeyError where one must be known that is not."""

    def __init__(self, trace):
        self.t_max, self.eos = trace.max_new_tokens, trace.eos_token_ids
        names = ("sequence", "start", "accepted", "draft_token")
        self.found: dict[tuple[int, int], OneDraft] = {}
        for s, i, flag, token in zip(*(trace.lattice(n).tolist() for n in names), strict=True):
            one = self.found.setdefault((s, i), OneDraft([], []))
            one.accepted.append(flag)
            one.tokens.append(token)

    def at(self, s, start):
        return self.found.get((s, start), OneDraft([], []))

    def length(self, s, start, n_output, count):
        """Tokens of a draft from `start` that is asked for `count`."""
        want, one = min(count, self.t_max - start), self.at(s, start)
        if want <= len(one.tokens) or self.ends(s, start, len(one.tokens)):
            return min(want, len(one.tokens))
        if all(one.accepted) and start + len(one.tokens) <= n_output:
            raise KeyError(s, start)
        return want

    def ends(self, s, start, count):
        """Whether token number `count` of it is an EOS."""
        tokens = self.at(s, start).tokens
        return 0 < count == len(tokens) and tokens[-1] in self.eos

    def run(self, s, start, n_output, depths):
        """How many of those depths are accepted in a row."""
        flags, n = self.at(s, start).accepted, 0
        for depth in depths:
            if depth > len(flags) or start + depth - 1 > n_output or not flags[depth - 1]:
                break
            n += 1
        return n


def by_hand(trace, policy, first):
    """Start, drafted, proposed, accepted, emitted and alone of each step, mode by mode."""
    drafts, gamma, out = Drafts(trace), policy.window, []
    for info in trace.sequences.select(["sequence", "n_output"]).to_pylist():
        s, n_output = info["sequence"], info["n_output"]
        i, pending = first, None  # the start of the draft that waits, and how many tokens it has
        while i <= n_output:
            alone = taken = 0
            if pending is not None:
                origin, taken = pending
                waiting = range(2, taken + 1)
            elif policy.pre_verify:
                origin, waiting = i, range(0)
            else:
                alone = taken = drafts.length(s, i, n_output, gamma)
                origin, waiting = i, range(1, alone + 1)
            good = drafts.run(s, origin, n_output, waiting)
            behind, new = i + len(waiting), 0
            begun = good == len(waiting) and behind <= n_output
            goes_on = policy.post_verify or (policy.pre_verify and pending is None)
            if goes_on and not drafts.ends(s, origin, taken):
                new = min(gamma, drafts.t_max - behind)
                new = drafts.length(s, behind, n_output, gamma) if begun else max(0, new)
            checked = len(waiting) + (new > 0)
            if begun and new:
                good += drafts.run(s, behind, n_output, [1])
            whole = new > 0 and good == checked
            emitted = good if whole else min(good + 1, n_output + 1 - i)
            out.append((s, i, alone + new, checked, good, emitted, alone))
            pending = (behind, new) if whole else None
            i += emitted
    return out


@pytest.mark.parametrize("pre_verify, post_verify", ABLATIONS)
@pytest.mark.parametrize("window", [1, 3, 8])
def test_pearl_drafts_anew_behind_the_pending_tokens(trace, window, pre_verify, post_verify):
    policy = PEARL(window, pre_verify, post_verify)
    for first in (1, 2):
        steps = concurrent.FAMILY.walk(policy, layout_of(trace), first)
        columns = (steps.sequence, steps.start, steps.drafted, steps.proposed, steps.accepted)
        columns = (*columns, steps.emitted, steps.alone)
        assert list(zip(*(c.tolist() for c in columns), strict=True)) == by_hand(
            trace, policy, first
        )


def test_pearl_without_both_strategies_is_fixed(trace):
    found = simkit.replay(trace, ["pearl(5, false, false)", "fixed(5)"], COST, by="step").frame
    one, other = (
        found.filter(pl.col("policy") == p).drop("policy")
        for p in found["policy"].unique(maintain_order=True)
    )
    for name in ("start", "drafted", "accepted", "emitted", "draft_s", "verify_s"):
        assert one[name].equals(other[name]), name


@pytest.mark.parametrize("name", ["reference-target", "reference"])
def test_pearl_takes_its_window_from_the_cost(name):
    """Up to Γ: a draft that is made anew need not go on."""
    trace = traces.load(name, drafter="pard2")
    found = simkit.replay(trace, "pearl", "linear(draft_s=1, target_s=7)")
    named = simkit.replay(trace, "pearl(7)", "linear(draft_s=1, target_s=7)")
    assert found.frame["drafted"].item() == named.frame["drafted"].item()
    assert "would not be there yet" in " ".join(found.notes)


def test_pearl_ends_at_the_budget_of_a_chain():
    """At T_max nothing is drafted, and no row is missing: two outputs of a budget of two."""
    trace = outcomes([[[True], []]], max_new_tokens=2, max_draft=1)
    steps = concurrent.FAMILY.walk(PEARL(1), layout_of(trace), 1)
    assert (steps.drafted.tolist(), steps.emitted.tolist()) == ([1, 0], [1, 1])
