"""Placebo traces: the law of the coin flips, and what they must leave as it was."""

import numpy as np
import pytest
from replay_traces import bound, build, steps_by_hand, with_scores
from test_lattice import spelled_out

import simkit
import traces
from analysis.stats import iid as runs_of
from simkit.drafters.path import PathLayout
from traces import schema, scores
from traces.errors import TraceError
from traces.placebo import placebo
from traces.sampler import Sampler
from traces.synthetic import iid, markov
from traces.validate import validate
from traces.writer import save

PAIR = tuple(
    name for name in schema.TARGET_STATISTICS if name not in ("cross_entropy", "target_prob")
)
EITHER = [Sampler(), Sampler(temperature=1.0)]


def recorded(sampler=None, eos_prob=0.02):
    return iid(
        40, 120, 0.7, max_draft=12, seed=3, sampler=sampler, eos_prob=eos_prob, tasks=("a", "b")
    )


def test_acceptance_is_that_of_coin_flips():
    """Mean, and independence of what precedes: both within four standard errors; runs too.

    The trace's own flags are a chain of autocorrelation 0.6.
    """
    trace = markov(100, 250, 0.9, 0.3, max_draft=30, seed=5)
    accepted = placebo(trace, 1).positions("accepted")
    n, share = len(accepted), trace.positions("accepted").mean()
    assert abs(accepted.mean() - share) < 4 * np.sqrt(share * (1 - share) / n)
    for lag in (1, 2, 7):
        ties = np.corrcoef(accepted[:-lag], accepted[lag:])[0, 1]
        assert abs(ties) < 4 / np.sqrt(n)
    assert np.corrcoef(accepted, trace.positions("accepted"))[0, 1] < 4 / np.sqrt(n)
    found = runs_of.autocorrelation(accepted, trace.position_offsets, confidence=0.9999)
    assert found.lo < 0 < found.hi


def test_the_mean_over_seeds_is_the_share():
    trace = recorded()
    means = [placebo(trace, seed).positions("accepted").mean() for seed in range(60)]
    share = trace.positions("accepted").mean()
    error = np.sqrt(share * (1 - share) / trace.n_positions / len(means))
    assert abs(np.mean(means) - share) < 4 * error


@pytest.mark.parametrize("sampler", EITHER, ids=["greedy", "sampled"])
def test_features_keep_their_marginals_and_say_nothing(sampler):
    trace = recorded(sampler)
    made = placebo(trace, 2)
    accepted, n = made.positions("accepted"), trace.n_positions
    tied = {"accept_prob", "overlap_processed"} if sampler.greedy else set()
    for name in {*schema.DRAFT_STATISTICS, *PAIR, "target_token_prob_raw"} - tied:
        mine, theirs = made.positions(name), trace.positions(name)
        np.testing.assert_array_equal(np.sort(mine), np.sort(theirs))
        if mine.std() > 0:
            assert abs(np.corrcoef(mine, accepted)[0, 1]) < 4.5 / np.sqrt(n), name
    for name in tied:
        np.testing.assert_array_equal(made.positions(name), accepted.astype(np.float32))


def test_what_belongs_together_stays_together():
    """A row of the draft's statistics is a row of the trace's; so is one of the pair's."""
    trace = recorded(Sampler(temperature=1.0))
    made = placebo(trace, 2)
    for names in (schema.DRAFT_STATISTICS, (*PAIR, "target_token_prob_raw")):
        mine, theirs = (np.stack([t.positions(name) for name in names]) for t in (made, trace))
        np.testing.assert_array_equal(np.unique(mine, axis=1), np.unique(theirs, axis=1))

    def divergence(t):
        return t.positions("cross_entropy").astype(float) - t.positions("draft_entropy")

    np.testing.assert_allclose(np.sort(divergence(made)), np.sort(divergence(trace)), atol=1e-5)
    assert divergence(made).min() > -1e-5


def test_branches_are_dealt_from_the_trace():
    trace = recorded()
    made = placebo(trace, 2)
    known = {name: trace.branches(name) for name in ("draft_token", "draft_entropy")}
    pairs = set(zip(*(column.tolist() for column in known.values()), strict=True))
    mine = zip(*(made.branches(name).tolist() for name in known), strict=True)
    assert pairs.issuperset(mine)
    error = known["draft_entropy"].std() / np.sqrt(made.n_branch_rows)
    assert abs(made.branches("draft_entropy").mean() - known["draft_entropy"].mean()) < 5 * error
    ended = made.branches("draft_token") == 0
    depth, last = made.branches("depth"), np.append(made.branches("depth")[1:] == 1, True)
    assert ended.any() and not np.any(ended & ~last)
    room = np.minimum(11, 119 - made.branches("position"))
    assert np.all((depth == room) | ended == last)


@pytest.mark.parametrize("sampler", EITHER, ids=["greedy", "sampled"])
def test_it_is_a_whole_trace(sampler, tmp_path):
    """What `simkit validate` finds: nothing."""
    trace = recorded(sampler)
    save(placebo(trace, 4), tmp_path / "made")
    assert validate(tmp_path / "made") == []
    made = traces.load(tmp_path / "made")
    assert made.sequences.equals(trace.sequences)


def test_the_same_seed_is_the_same_placebo():
    trace = with_scores(recorded())
    one, same, other = (placebo(trace, seed) for seed in (1, 1, 2))
    assert one.hash == same.hash != other.hash != trace.hash
    for table, name in (("positions", "draft_token"), ("branches", "draft_prob")):
        np.testing.assert_array_equal(one.column(table, name), same.column(table, name))
    assert not np.array_equal(one.positions("accepted"), other.positions("accepted"))
    another = recorded(Sampler(temperature=1.0))  # of the same seed
    n = min(trace.n_positions, another.n_positions)
    ties = np.corrcoef(*(placebo(t, 1).positions("accepted")[:n] for t in (trace, another)))
    assert abs(ties[0, 1]) < 4 / np.sqrt(n)
    with pytest.raises(TraceError, match="seed must be 0 or more"):
        placebo(trace, -1)


def test_scores_are_shuffled():
    trace = with_scores(iid(40, 120, 0.7, max_draft=12, seed=3))
    made = placebo(trace, 2)
    rows, base = (scores.load(t, "acceptance_head") for t in (made, trace))
    np.testing.assert_array_equal(np.sort(rows.path), np.sort(base.path))
    assert abs(np.corrcoef(rows.path, made.positions("accepted"))[0, 1]) < 0.06
    pairs = [
        sorted(zip(t.positions("draft_entropy").tolist(), one.path.tolist(), strict=True))
        for t, one in ((made, rows), (trace, base))
    ]
    assert pairs[0] == pairs[1]  # together with the features
    starts, base = (scores.load(t, "pacer").values for t in (made, trace))
    assert not np.isnan(starts[:, :12]).any()
    for depth in range(12):
        own = base[~np.isnan(base[:, depth]), depth]
        assert set(starts[:, depth].tolist()) == set(own.tolist())


@pytest.mark.parametrize("sampler", EITHER, ids=["greedy", "sampled"])
@pytest.mark.parametrize(
    "name", ["fixed", "heuristic", "oracle", "svip", "acceptance_head", "pacer"]
)
def test_policies_replay(name, sampler):
    """Token for token as the design's words have it, branches and their ends too."""
    rng = np.random.default_rng(0)
    ends = [(0, 0), (1, 2)]  # an accepted EOS, and an output that its budget ends
    rows = [[*map(tuple, rng.integers(1, 4, (9, 2)).tolist()), ends[k % 2]] for k in range(12)]
    base = build(
        rows,
        t_max=10,
        max_draft=10,
        branch_tokens=lambda s, m: rng.integers(0, 4, 9).tolist(),
        values=rng.random,
        sampler=sampler,
    )
    trace = placebo(base, 3)
    policy = bound(name, trace)
    found = simkit.replay(trace, [policy], by="step").frame
    columns = ("sequence", "start", "drafted", "proposed", "accepted")
    assert list(zip(*(found[c].to_list() for c in columns), strict=True)) == steps_by_hand(
        trace, policy
    )


def test_a_lattice_keeps_its_drafts():
    trace = spelled_out(with_scores(iid(30, 60, 0.7, max_draft=12, seed=3)))
    made = placebo(trace, 1)
    np.testing.assert_array_equal(made.lattice_offsets, trace.lattice_offsets)
    accepted = made.lattice("accepted")
    assert abs(accepted.mean() - 0.7) < 0.03
    for name in ("draft_entropy", "draft_prob_raw"):
        np.testing.assert_array_equal(np.sort(made.lattice(name)), np.sort(trace.lattice(name)))
    starts, base = (scores.load(t, "pacer").values for t in (made, trace))
    np.testing.assert_array_equal(np.isnan(starts), np.isnan(base))
    simkit.replay(made, ["fixed(3)", "pacer(max_draft=8)"])


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_all_one_way(share):
    """Nothing to shuffle acceptance with: the coin has one side."""
    made = placebo(iid(6, 20, share, max_draft=20, seed=3), 0)
    assert made.positions("accepted").mean() == share
    layout = PathLayout(made)
    assert (layout.ahead > 0).mean() == share
    result = simkit.replay(made, ["fixed(4)"]).frame
    assert result["accepted_per_step"][0] == (0 if share == 0 else 4)


def test_no_prompts():
    made = placebo(iid(0, 20, 0.7, max_draft=20, seed=3), 0)
    assert made.n_positions == 0 and len(made.positions("accepted")) == 0
