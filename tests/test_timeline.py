"""When draft and target work: lanes of all steps, and the figure of one prompt's first ones."""

import pytest
from replay_traces import build

import simkit
from analysis import figures
from analysis.figures import FigureError
from analysis.stats.timeline import lanes
from simkit.simulator.arguments import setting
from simkit.simulator.run import run
from traces.synthetic import iid

COST = "linear(draft_s=1, target_s=6, target_per_token_s=0.1)"


@pytest.fixture(scope="module")
def trace():
    return iid(6, 48, 0.7, max_draft=40, seed=1, eos_prob=0.02)


@pytest.mark.parametrize(
    "spec", ["fixed(3)", "svip", "pearl(5)", "pearl(pre_verify=false)", "pearl(post_verify=false)"]
)
def test_lanes(spec, trace):
    """Steps follow each other to the replay's time; each model does one thing at a time."""
    cost = simkit.costs.Linear(draft_s=1, target_s=3, overhead_s=0.5, policy_s=0.1)
    where = setting(trace, cost, "draft")
    found = run(simkit.policies.parse(spec), *where)
    steps, seconds = found.steps()
    assert seconds is not None and where.charge is not None
    at = lanes(steps, seconds, where.charge)
    last = steps.offsets[1:] - 1
    assert at.end_s[last] == pytest.approx(found.total_s - found.seconds["prefill_s"])  # type: ignore
    follows = steps.number[1:] > 1
    assert at.begin_s[1:][follows] == pytest.approx(at.end_s[:-1][follows])
    assert (at.begin_s[steps.number == 1] == 0).all()
    assert (at.begin_s + at.draft_s <= at.end_s + 1e-9).all()
    assert (at.verify_begin_s + at.verify_s <= at.end_s + 1e-9).all()
    if not spec.startswith("pearl"):
        assert (at.begin_s + at.draft_s <= at.verify_begin_s + 1e-9).all()
    assert (at.kept <= steps.drafted).all() and (at.kept >= 0).all()
    assert at.kept.sum() == steps.accepted.sum()


def test_timeline_by_hand():
    """PEARL's example: three of the first draft of three accepted, and one of the next (Fig. 3)."""
    pairs = [(1, 1), (2, 2), (3, 3), (4, 4), (5, 9), (6, 6)]
    made = build([pairs], t_max=6, max_draft=6, branch_tokens=lambda s, m: (7,))
    found = figures.timeline(made, cost="linear(draft_s=1, target_s=3)", window=3, steps=9).frame
    pearl = found.filter(policy="pearl(3)")
    assert pearl["kept"].to_list()[:2] == [3, 1] and pearl["emitted"].sum() == 6
    assert pearl["begin_ms"].to_list()[:2] == [0, 3000]
    plain = found.filter(policy="fixed(3)").row(0, named=True)
    assert (plain["verify_begin_ms"], plain["end_ms"], plain["kept"]) == (3000, 6000, 3)


def test_timeline_of_a_prompt_that_is_not_there(trace):
    with pytest.raises(FigureError, match="no prompt 99 with output"):
        figures.timeline(trace, cost=COST, prompt=99)
