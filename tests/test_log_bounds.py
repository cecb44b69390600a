"""Intervals from logs of steps hold the truth, whatever cut the drafts."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from benchmarks.log_intervals import cases
from simkit.policies import Fixed
from simkit.simulator.logged import StepLog
from simkit.statistics.survival import cut_bounds, kaplan_meier, risks
from traces.manifest import SourceInfo
from traces.memory import from_steps

SOURCE = SourceInfo("log.jsonl", "0" * 64)


def run(ahead, n, wanted, ends_in_eos):
    """Drafted and accepted tokens of the steps over n tokens.

    Position i accepts ahead[i] tokens; wanted(step, i) says how many are drafted. With a budget of
    n tokens the last one is never drafted; an EOS there may be, and is then the last of all.
    """
    i, drafted, accepted = 0, [], []
    while i < n:
        room = n - i if ends_in_eos else n - i - 1
        d = min(wanted(len(drafted), i), room)
        a = min(ahead[i], d)
        drafted.append(d)
        accepted.append(a)
        i += a + 1
    return drafted, accepted


def log_of(requests, shared_path=False, unordered=False):
    """A log of requests, each (drafted, accepted, tokens behind the prefill's, ends in EOS)."""
    counts = [len(drafted) for drafted, *_ in requests]
    trace = from_steps(
        {
            "n_output": [n + 1 for *_, n, _ in requests],
            "finish_reason": ["unknown" if eos else "length" for *_, eos in requests],
        },
        {
            "sequence": np.repeat(np.arange(len(requests)), counts).astype(np.int32),
            "step": np.concatenate([np.arange(1, c + 1) for c in counts]).astype(np.int32),
            "drafted": np.array([x for d, *_ in requests for x in d], np.int32),
            "accepted": np.array([x for _, a, *_ in requests for x in a], np.int32),
        },
        SOURCE,
        shared_path=shared_path,
        unordered=unordered,
    )
    return StepLog(trace, None, 0.95, 0)


def tokens_per_step(outcomes, length):
    """Of a fixed length on the same outcomes."""
    found = [run(ahead, n, lambda *_: length, eos) for ahead, n, eos in outcomes]
    accepted = [a for _, each in found for a in each]
    return 1 + np.mean(accepted)


def runs_of(flags):
    """How many tokens are accepted in a row from each position, if a draft's start is nothing."""
    out = np.zeros(len(flags) + 1, int)
    for i in range(len(flags) - 1, -1, -1):
        out[i] = out[i + 1] + 1 if flags[i] else 0
    return out[:-1].tolist()


@st.composite
def logged(draw):
    """Outcomes of some requests, and lengths that may depend on them in any way."""
    shared = draw(st.booleans())
    outcomes = []
    for _ in range(draw(st.integers(1, 3))):
        n = draw(st.integers(1, 14))
        ahead = (
            runs_of(draw(st.lists(st.booleans(), min_size=n, max_size=n)))
            if shared
            else draw(st.lists(st.integers(0, 6), min_size=n, max_size=n))
        )
        outcomes.append((ahead, n, draw(st.booleans())))
    lengths = draw(st.lists(st.integers(0, 5), min_size=1, max_size=6))
    peeks = draw(st.sampled_from(["never", "cuts", "shows"]))
    return shared, outcomes, lengths, peeks


def wanted(ahead, lengths, peeks):
    """Lengths by step; or just what hides each rejection, or what shows it."""

    def rule(step, i):
        if peeks == "cuts":
            return min(ahead[i], 6)
        if peeks == "shows":
            return min(ahead[i], 6) + 1
        return lengths[step % len(lengths)]

    return rule


@settings(max_examples=300, deadline=None)
@given(logged(), st.integers(0, 8))
def test_the_bounds_of_these_outputs_hold_the_truth(case, length):
    """Also where lengths were chosen by who knew the outcomes, and from starts never visited."""
    shared, outcomes, lengths, peeks = case
    requests = [
        (*run(ahead, n, wanted(ahead, lengths, peeks), eos), n, eos) for ahead, n, eos in outcomes
    ]
    truth = tokens_per_step(outcomes, length)
    for unordered in (False, True):
        log = log_of(requests, shared, unordered)
        low, high = log.replay(Fixed(length)).tokens_per_step["any"]
        assert low - 1e-9 <= truth <= high + 1e-9
        assert 1 - 1e-9 <= low


@settings(max_examples=200, deadline=None)
@given(logged(), st.integers(1, 8))
def test_the_bounds_of_the_logged_starts_hold_their_own_runs(case, depth):
    _, outcomes, lengths, peeks = case
    runs, drafted, accepted = [], [], []
    for ahead, n, eos in outcomes:
        d, a = run(ahead, n, wanted(ahead, lengths, peeks), eos)
        starts = np.cumsum([0, *(x + 1 for x in a)])[:-1]
        drafted += d
        accepted += a
        runs += [ahead[i] for i in starts]
    low, high = cut_bounds(np.array(drafted), np.array(accepted), depth)
    truth = (np.array(runs)[:, None] >= np.arange(1, depth + 1)).mean(0)
    assert np.all(low <= truth + 1e-12) and np.all(truth <= high + 1e-12)


def test_the_same_length_gives_what_was_logged():
    rng = np.random.default_rng(0)
    outcomes = [(rng.integers(0, 6, 60).tolist(), 60, bool(k % 2)) for k in range(20)]
    requests = [(*run(a, n, lambda *_: 4, eos), n, eos) for a, n, eos in outcomes]
    low, high = log_of(requests).replay(Fixed(4)).tokens_per_step["any"]
    assert low == pytest.approx(high) == pytest.approx(tokens_per_step(outcomes, 4))


def test_bounds_are_attained():
    """Of one step whose draft of 2 was accepted whole, the next draft of 4 may be 2 to 4."""
    log = log_of([([2, 2], [2, 0], 4, False)])
    low, high = log.replay(Fixed(4)).tokens_per_step["any"]
    # 3 tokens and the rejected start's one, or all four tokens in a step
    assert (low, high) == (2.0, 4.0)


def test_survival_is_that_of_scipy():
    """A draft cut at d is not at risk at token d + 1, so that it is censored before d."""
    rng = np.random.default_rng(1)
    runs, drafted = rng.geometric(0.3, 500) - 1, rng.integers(1, 7, 500)
    accepted = np.minimum(runs, drafted)
    at_risk, rejected = risks(np.zeros(500, int), drafted, accepted, 1)
    ours = kaplan_meier(at_risk[0], rejected[0])
    seen = accepted < drafted
    data = stats.CensoredData(accepted[seen], right=drafted[~seen] - 0.5)
    theirs = stats.ecdf(data).sf
    assert ours == pytest.approx(theirs.evaluate(np.arange(len(ours))))


def test_band_is_as_wide_as_greenwoods_where_steps_are_independent():
    """One step a request: the bootstrap over requests is one over independent observations."""
    rng = np.random.default_rng(2)
    runs, drafted = rng.geometric(0.35, 2000) - 1, rng.integers(1, 6, 2000)
    accepted = np.minimum(runs, drafted)
    pairs = zip(drafted.tolist(), accepted.tolist(), strict=True)
    log = log_of([([d], [a], a + 1, True) for d, a in pairs])
    seen = accepted < drafted
    data = stats.CensoredData(accepted[seen], right=drafted[~seen] - 0.5)
    theirs = stats.ecdf(data).sf.confidence_interval(0.95, method="linear")
    found = log.replay(Fixed(4)).marginal
    for depth in (1, 2, 3, 4):
        low, high = found[depth - 1]["band"]
        wide = theirs.high.evaluate(depth - 1) - theirs.low.evaluate(depth - 1)
        assert high - low == pytest.approx(wide, rel=0.12)


def test_bands_hold_the_truth_as_often_as_they_say():
    """Independent outcomes, lengths that know nothing of them; requests differ in how easy."""
    rng = np.random.default_rng(3)
    held = wide = 0
    truth = 1 + np.mean([sum(p**j for j in (1, 2, 3)) for p in (0.3, 0.8)])
    for _ in range(120):
        requests = []
        for s in range(40):
            p = (0.3, 0.8)[s % 2]
            runs = rng.geometric(1 - p, 30) - 1
            drafted = rng.integers(2, 7, 30)
            accepted = np.minimum(runs, drafted)
            requests.append((drafted.tolist(), accepted.tolist(), int((accepted + 1).sum()), True))
        low, high = log_of(requests).replay(Fixed(3)).tokens_per_step["band"]
        held += low <= truth <= high
        wide += high - low
    assert held / 120 > 0.88
    assert wide / 120 < 0.7


def test_beyond_the_deepest_draft_nothing_is_estimated():
    rng = np.random.default_rng(4)
    outcomes = [(rng.integers(0, 9, 80).tolist(), 80, False) for _ in range(20)]
    requests = [(*run(a, n, lambda *_: 3, eos), n, eos) for a, n, eos in outcomes]
    found = log_of(requests).replay(Fixed(5))
    assert found.at_risk[3:] == [0, 0]
    third = found.marginal[2]
    for depth in (3, 4):
        for kind in ("band", "cut"):
            low, high = found.marginal[depth][kind]
            assert low == 0 and high == pytest.approx(third[kind].high)


def test_the_benchmark_finds_every_truth_between_the_bounds():
    found = cases("reference", "eagle")
    assert {(case.logged, case.length) for case in found} == {(4, k) for k in (1, 2, 3, 5)}
    for case in found:
        assert case.any[0] - 1e-9 <= case.truth <= case.any[1] + 1e-9
        assert abs(case.middle) < 0.1


def test_no_rejection_at_all_is_no_certainty():
    """Twenty requests without one: the next may well have some."""
    log = log_of([([3, 3], [3, 3], 8, False)] * 20)
    found = log.replay(Fixed(3))
    low, high = found.tokens_per_step["band"]
    assert 3.0 < low < 3.7 and high == 4
    assert found.marginal[0]["band"].low == pytest.approx(0.025 ** (1 / 20))
    low, high = log_of([([3], [0], 1, False)] * 20).replay(Fixed(2)).tokens_per_step["band"]
    assert low == 1 and 1.2 < high < 1.5
    assert log.replay(Fixed(0)).tokens_per_step["band"] == (1.0, 1.0)
    alone = log_of([([3, 3], [3, 1], 6, False)]).replay(Fixed(2)).tokens_per_step
    assert np.isnan(alone["band"].low) and alone["cut"].low == 2.5
