"""Claims that were circular or empty: each can fail now, or is said to follow by construction."""

from dataclasses import replace

import numpy as np
import pytest
from replay_traces import with_scores
from test_claims import CLAIMS, COST, FAILS, HOLDS, NO_EXAMPLE, OPEN, THEOREM, UNTESTED, Columns

import traces
from analysis.claims import Evidence, check
from analysis.claims.claim import ClaimKind
from analysis.claims.table import ALIKE, HEADS, examine
from simkit.costs import Linear
from traces.memory import from_arrays
from traces.placebo import placebo
from traces.synthetic import decaying, iid, markov, mixed

pytestmark = pytest.mark.usefixtures("few_requests")

SAMPLED = traces.Sampler(1.0)


def verdict(name, trace, cost=COST, sampled=None):
    return examine(CLAIMS[name], Evidence(trace, cost, sampled and Evidence(sampled, cost))).verdict


def shares(trace):
    accepted, offsets = trace.positions("accepted"), trace.position_offsets
    return np.add.reduceat(accepted.astype(float), offsets[:-1]) / np.diff(offsets)


def another(trace, share):
    """A sampled recording of the same prompts, each accepted with its share."""
    base = iid(trace.n_sequences, 200, 0.6, max_draft=40, seed=8, sampler=SAMPLED)
    chance = np.repeat(share, np.diff(base.position_offsets))
    accepted = np.random.default_rng(5).random(len(chance)) < chance
    return Columns(base, {"accepted": accepted})


def test_strategies_are_judged_by_another_recording():
    """By how easy prompts are there; coin flips of one α have no easy prompts."""
    trace, name = mixed(80, 200, 0.6, 0.2, max_draft=40, seed=1), "strategies_complement"
    assert verdict(name, trace, sampled=another(trace, shares(trace))) is HOLDS
    assert verdict(name, trace, sampled=another(trace, 1 - shares(trace))) is FAILS
    flips = iid(80, 200, 0.6, max_draft=40, seed=1)
    assert verdict(name, flips, sampled=another(flips, np.full(80, 0.6))) is not HOLDS
    assert verdict(name, trace) is UNTESTED
    fewer = Evidence(trace, COST, Evidence(iid(79, 200, 0.6, max_draft=40, seed=1), COST))
    assert examine(CLAIMS[name], fewer).why == "the sampled trace has other prompts"


def test_drafting_takes_long_at_the_best_length():
    trace = iid(30, 120, 0.7, max_draft=40, seed=3)
    assert verdict("drafting_takes_long", trace, Linear(1.0, 5.0)) is HOLDS
    assert verdict("drafting_takes_long", trace, Linear(1.0, 40.0)) is FAILS


def test_short_drafts_are_held_against_short_drafts():
    """Entropies that tell what is accepted, and the same shuffled."""
    trace = iid(60, 120, 0.7, max_draft=40, seed=3)
    assert verdict("shorter_drafts", trace) is HOLDS
    assert verdict("shorter_drafts", placebo(trace, 0)) is not HOLDS
    h = trace.positions("draft_entropy")
    misled = Columns(trace, {"draft_entropy": np.where(trace.positions("accepted"), 2 - h, h / 9)})
    assert verdict("shorter_drafts", misled) is FAILS


def test_a_fixed_length_is_more_often_wrong_than_by_chance():
    name = "fixed_is_mostly_wrong"
    assert verdict(name, iid(60, 200, 0.8, max_draft=40, seed=5)) is OPEN
    assert verdict(name, markov(60, 200, 0.95, 0.2, max_draft=40, seed=5)) is HOLDS
    three = decaying(60, 200, (0.97, 0.97, 0.97, 0.05), max_draft=12, seed=5)
    assert verdict(name, three) is FAILS


def test_strong_is_one_bar():
    trace = iid(40, 200, 0.7, max_draft=20, seed=3)
    accepted, noise = trace.positions("accepted"), np.random.default_rng(0).random(8000)

    def tied(weight):
        return Columns(trace, {"target_token_prob_raw": weight * accepted + (1 - weight) * noise})

    assert verdict("confidence_predicts", tied(0.45)) is HOLDS
    assert verdict("confidence_predicts", tied(0.1)) is FAILS
    parts = examine(CLAIMS["confidence_predicts"], Evidence(tied(0.5))).parts
    assert parts[0].found.value == pytest.approx(parts[1].found.value, abs=1e-3)  # the most


def test_entropy_is_judged_on_the_sampled_trace():
    greedy, sampled = (iid(30, 100, 0.7, max_draft=20, seed=3, sampler=s) for s in (None, SAMPLED))
    for name in ("entropy_against_acceptance", "entropy_against_length"):
        assert verdict(name, greedy) is UNTESTED
        both = examine(CLAIMS[name], Evidence(greedy, COST, Evidence(sampled, COST))).parts
        alone = examine(CLAIMS[name], Evidence(sampled, COST)).parts
        assert [part.what for part in both][:2] == ["sampled", "greedy"]
        assert both[0] == alone[0] and all(part.expected is None for part in both[1:])
    h = sampled.positions("draft_entropy")
    falling = Columns(sampled, {"overlap": np.exp(-h)})
    assert verdict("entropy_against_acceptance", falling) is HOLDS
    assert verdict("entropy_against_acceptance", placebo(sampled, 0)) is FAILS


def test_what_can_happen_is_not_refuted_by_one_trace():
    trace = iid(30, 100, 0.5, max_draft=20, seed=3, sampler=SAMPLED)
    assert verdict("constant_can_lose", trace, Linear(1.0, 20.0)) is NO_EXAMPLE
    assert verdict("constant_can_lose", trace, Linear(1.0, 1.5)) is HOLDS
    kinds = {name for name, one in CLAIMS.items() if one.kind is ClaimKind.EXAMPLE}
    assert kinds == {"constant_can_lose", "shorter_is_faster"}


THEOREMS = {"head_verifies_less", "accepts_longer_runs", "pearl_needs_devices"}


def test_theorems_are_said():
    assert {name for name, one in CLAIMS.items() if one.kind is ClaimKind.THEOREM} == THEOREMS
    found = check(with_scores(iid(14, 60, 0.7, max_draft=40, seed=3)), COST).of
    for one in found:
        assert (one.verdict is THEOREM) == (one.claim.name in THEOREMS)
        if one.verdict is THEOREM:
            assert one.placebo is None and one.row()[-2] == f"by construction: {one.why}"
            assert all(part.expected is None for part in one.parts)


@pytest.mark.parametrize("seed", range(12))
def test_theorems_hold_on_every_trace(seed):
    alpha, eos = (0.1, 0.5, 0.8, 0.97)[seed % 4], (0.0, 0.05, 0.2)[seed % 3]
    base = iid(6, 25, alpha, max_draft=25, seed=seed, eos_prob=eos)
    at = Evidence(with_scores(base, seed), COST)
    (steps,) = examine(CLAIMS["head_verifies_less"], at).parts
    assert steps.found.value >= 1
    gap = examine(CLAIMS["accepts_longer_runs"], at).parts[0].found.value
    assert gap is None or gap >= -1e-12


@pytest.mark.parametrize("alpha", [0.2, 0.6, 0.95])
def test_pearl_on_one_device_never_gains_where_verifying_is_flat(alpha):
    trace = iid(14, 100, alpha, max_draft=40, seed=3)
    (part,) = examine(CLAIMS["pearl_needs_devices"], Evidence(trace, Linear(1.0, 6.0))).parts
    assert part.found.value <= 1


def with_loops():
    """Independent tokens; the second half of each output repeats one, of which 1 in 25 is wrong."""
    base = iid(60, 200, 0.7, max_draft=40, seed=5)
    late = np.tile(np.arange(200) >= 100, 60)
    output = np.where(late, 7, base.positions("target_token"))
    wrong = np.tile(np.arange(200) % 25 == 24, 60)
    accepted = np.where(late, ~wrong, base.positions("accepted"))
    draft = np.where(accepted, output, output % 900 + 1)
    columns = {"target_token": output, "draft_token": draft, "accepted": accepted}
    facts = {"n_output": [200] * 60}
    return from_arrays(facts, columns, {}, max_draft=40, max_new_tokens=200)


def test_the_headline_is_the_one_without_loops():
    """Half of the positions are a loop; outside of it tokens are independent."""
    at = Evidence(with_loops())
    assert at.outside.rows.mean() == pytest.approx(0.505)  # the first token of a loop repeats none
    for name in ("lengths_vary", "conditional_falls", "later_is_easier"):
        first, *told = examine(CLAIMS[name], at).parts
        assert first.what == "outside of loops" and told[0].what == "with loops"
        assert all(part.expected is None for part in told)
    runs, whole = examine(CLAIMS["lengths_vary"], at).parts
    assert runs.found.lo < 1 < runs.found.hi and whole.found.value > 1.5
    deep, whole = examine(CLAIMS["conditional_falls"], at).parts
    assert deep.found.lo < 0 < deep.found.hi and whole.found.lo > 0.05


def test_communication_of_measured_times_is_said():
    """Without any in the cost, 0.3 ms a step are also given; a preset has its own."""
    trace = iid(14, 60, 0.7, max_draft=40, seed=3)
    free, paid = examine(CLAIMS["pearl_is_faster"], Evidence(trace, Linear(1e-3, 6e-3))).parts
    assert paid.what == "with 0.3 ms of communication" and paid.expected is None
    own = replace(Linear(1e-3, 6e-3), communication_s=0.3e-3)
    (charged,) = examine(CLAIMS["pearl_is_faster"], Evidence(trace, own)).parts
    assert charged.found.value == pytest.approx(paid.found.value)
    assert paid.found.value < free.found.value


def test_verdicts_on_coin_flips_stand_beside():
    trace = iid(40, 100, 0.7, max_draft=40, seed=3)
    names = ("optimal_is_faster", "shorter_drafts", "head_predicts", "head_verifies_less")
    found = check(trace, COST, claims=[CLAIMS[name] for name in names])
    oracle, short, untested, _ = found.of
    assert oracle.verdict is oracle.placebo is HOLDS and oracle.without_structure
    assert short.verdict is HOLDS and short.placebo is not HOLDS and not short.without_structure
    assert untested.placebo is None
    assert oracle.row()[-2:] == (f"holds; {ALIKE}", "holds") and HEADS[-1] == "on coin flips"
    said = oracle.record()
    assert said["placebo_verdict"] == "holds" and said["would_hold_without_structure"]
    assert "Of those that hold, 1 hold on coin flips too." in found.note()
    alone = check(trace, COST, claims=[CLAIMS[name] for name in names], placebo=None)
    assert all(one.placebo is None for one in alone.of)
    assert [one.verdict for one in alone.of] == [one.verdict for one in found.of]
    assert "coin flips" not in alone.note()
