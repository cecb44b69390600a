"""Predicted throughput against a made-up server's, whose times are those of a cost."""

import numpy as np
import pytest

from benchmarks.live_serving_judge import FITTED, ServingPair, ServingPlan, judge, samples
from simkit import serving
from simkit.errors import LiveError
from simkit.fidelity.run import split
from simkit.live.served import Iteration, ServedRun, ServedStep
from simkit.live.serving_arms import engine
from traces.subset import select
from traces.synthetic import iid

COST = (
    "linear(draft_s=1e-3, target_s=8e-3, target_per_token_s=1e-3, target_per_kv_token_s=2e-6,"
    " overhead_s=1e-3)"
)
TESTED = ("static(3)", "static(6)", "svip(h=0.4)")


@pytest.fixture(scope="module")
def trace():
    return iid(60, 40, 0.7, max_draft=16, seed=0, eos_prob=0.02)


def made(trace, plan, concurrency, slower=None, policy_s=0.0):
    """The log of a server whose passes take exactly the seconds of a cost, all arms."""
    runs = []
    for number, arm in enumerate(plan.arms(trace)):
        indices = plan.held_out if number in plan.tested else plan.calibration
        found = serving.serve(
            select(trace, indices, max_new_tokens=plan.max_new_tokens),
            arm.controller,
            COST,
            concurrency=concurrency,
            engine=engine(concurrency),
            requests=None,
            drawn=False,
            seeds=1,
            workers=1,
        )
        factor = (slower or {}).get(number, 1.0)
        rows = logged(next(iter(found)), factor, policy_s)
        runs.append(ServedRun(number, 0, str(arm.controller), concurrency, rows))
    return runs


def logged(run, factor, policy_s):
    """A simulated run as a live server logs one."""
    rows, steps = run.iterations, run.steps
    out = []
    for k in range(len(rows["begin_s"])):
        mine = np.flatnonzero(steps["iteration"] == k)
        given = [
            ServedStep(*(int(steps[name][i]) for name in ("request", "request", *_STEP)))
            for i in mine
        ]
        depth = max((step.drafted for step in given), default=0)
        rounds = [factor * float(rows["draft_s"][k]) / depth] * depth if depth else []
        context = np.mean([step.start for step in given]) if given else 0.0
        seconds = float(rows["end_s"][k] - rows["begin_s"][k])
        opened = sum(step.start == 1 and step.drafted > 0 for step in given)
        open_s = 1e-3 if opened else 0.0  # one pass of the draft over prompts of a token
        counts = (int(rows[name][k]) for name in ("decoding", "prefilling", "prefill_tokens"))
        out.append(
            Iteration(
                k,
                *counts,
                0,
                opened,
                opened,
                max((step.proposed for step in given), default=-1) + 1,
                float(context),
                factor * (float(rows["prefill_s"][k]) - open_s),
                factor * open_s,
                rounds,
                factor * float(rows["verify_s"][k]),
                policy_s + factor * float(rows["policy_s"][k]),  # rules that are timed as they run
                factor * seconds + policy_s,
                given,
            )
        )
    return out


_STEP = ("start", "drafted", "proposed", "accepted", "emitted")


@pytest.mark.parametrize("concurrency", [1, 6])
def test_times_of_running_servers_give_their_throughput(trace, concurrency, tmp_path):
    """On other prompts, under other lengths; the controller's own time is left out."""
    plan = ServingPlan(TESTED, *split(np.arange(60), 36, 24), 40)
    runs = made(trace, plan, concurrency, policy_s=5e-3)
    found = judge(trace, plan, runs, tmp_path / "cost.parquet")
    assert [row.controller for row in found.rows] == [str(serving.parse(s)) for s in TESTED]
    for row in found.rows:
        assert abs(row.error) < 0.05, row  # svip, alone, is 3.9% off; the others 2% at most
        assert row.whole < row.measured
    assert found.control == 0 and len(found.pairs) == 3
    assert not any(pair.misranked for pair in found.pairs)
    assert any(pair.told_apart for pair in found.pairs)


def test_a_controller_that_is_slower_than_its_passes_is_found_out(trace, tmp_path):
    plan = ServingPlan(TESTED, *split(np.arange(60), 36, 24), 40)
    runs = made(trace, plan, 6, slower={1: 2.0})
    found = judge(trace, plan, runs, tmp_path / "cost.parquet")
    assert found.rows[1].error > 0.9
    assert abs(found.rows[0].error) < 0.02


def test_pairs():
    pair = ServingPair("a", "b", 1.1, 0.9, 0.85, 0.95)
    assert pair.told_apart and pair.misranked
    assert not pair._replace(predicted=0.99).misranked
    assert not pair._replace(hi=1.02).told_apart and not pair._replace(hi=1.02).misranked


def test_logs_without_drafts_are_refused(trace):
    plan = ServingPlan(TESTED, *split(np.arange(60), 36, 24), 40)
    (run,) = [run for run in made(trace, plan, 6) if run.controller == FITTED[0]]
    with pytest.raises(LiveError, match="no times of draft rounds"):
        samples([run])
