"""Ablations: rows are those of a replay and of tuning, beside what the papers print."""

import math

import numpy as np
import polars as pl
import pytest
from replay_traces import with_scores

import simkit
from analysis.papers import ALONE
from benchmarks.ablations.__main__ import main
from benchmarks.ablations.arms import ABLATIONS, ALL, Ablation, AblationArm
from benchmarks.ablations.pair import by_cost, by_task
from benchmarks.ablations.replays import FOLDS, PAPER, SEED, TUNED, Replays, frame, verdict
from benchmarks.ablations.tables import markdown
from simkit.policies import parse
from simkit.sweeps.grid import settings
from traces import scores
from traces.synthetic import iid
from traces.trace import load

COST = "linear(draft_s=0.004, target_s=0.03, target_per_token_s=1e-4, head_s=1e-3)"
NAMES = {ablation.name: ablation for ablation in ABLATIONS}


@pytest.fixture(scope="module")
def trace():
    """Three of the four tasks; every head of the ablations scores at random."""
    trace = iid(30, 40, 0.7, max_draft=40, seed=5, tasks=("code", "math", "prose"))
    trace = with_scores(trace)
    made = scores.load(trace, "pacer")
    rng = np.random.default_rng(0)
    for name in sorted(_heads() - {"pacer", "acceptance_head"}):
        mine = np.where(np.isnan(made.values), np.nan, rng.random(made.values.shape))
        trace = scores.attach(trace, name, scores.StartScores(mine.astype(np.float32)))
    return trace


def _heads() -> set[str]:
    arms = [arm for a in ABLATIONS for some in a.arms.values() for arm in some]
    policies = [parse(arm.policy) for arm in arms if arm.policy not in (None, ALONE)]
    return {policy.head for policy in policies if policy.head}


@pytest.mark.parametrize("name", ["table-5", "figure-2"])
def test_rows_at_the_papers_settings_are_those_of_a_replay(trace, name):
    ablation = NAMES[name]
    rows = [r for r in Replays(trace, COST, [ablation]).rows(ablation) if r.settings == PAPER]
    arms = [arm for arm in ablation.arms[ALL] if arm.policy not in (None, ALONE)]
    rows = [row for row in rows if row.task == ALL and row.setting != ALONE]
    result = simkit.replay(trace, [arm.policy for arm in arms], COST)
    for arm, row, replayed in zip(arms, rows, result.records(), strict=True):
        assert (row.arm, row.setting) == (arm.label, replayed["policy"])
        assert row.speedup == pytest.approx(replayed["speedup"])
        assert (row.speedup_lo, row.speedup_hi) == (replayed["speedup_lo"], replayed["speedup_hi"])
        assert row.tokens_per_s == pytest.approx(replayed["emitted"] / replayed["total_s"])
        per_step = replayed["accepted_per_step"] + ablation.bonus
        assert row.tau == pytest.approx(per_step)
        if arm.against in {other.label for other in arms}:
            other = next(a.policy for a in arms if a.label == arm.against)
            found = result.compare(arm.policy, other)
            ends = (found.speedup_lo, found.speedup_hi)
            assert (row.ratio, row.ratio_lo, row.ratio_hi) == (found.speedup, *ends)


def test_vanilla_is_the_target_alone(trace):
    ablation = NAMES["table-5"]
    rows = [r for r in Replays(trace, COST, [ablation]).rows(ablation) if r.task == ALL]
    plain = {row.arm: row for row in rows}
    assert (plain["vanilla"].speedup, plain["vanilla"].tau) == (1.0, 0.0)
    assert plain["speculative"].ratio == plain["speculative"].speedup


def test_tuned_rows_are_those_of_tuning(trace):
    ablation = NAMES["table-7"]
    rows = {
        (row.task, row.arm): row
        for row in Replays(trace, COST, [ablation]).rows(ablation)
        if row.settings == TUNED
    }
    mean, *others = ablation.arms[ALL]
    tuned = simkit.tune(
        trace, [arm.family for arm in others], COST, FOLDS, SEED, reference=mean.family
    )
    choices = {choice.spec: choice for choice in tuned.choices}
    for arm in (mean, *others):
        row, choice = rows[ALL, arm.label], choices[arm.family]
        assert row.speedup == choice.speedup
        assert row.setting in choice.folds
        if arm is not mean:
            assert (row.ratio_lo, row.ratio_hi) == (choice.against_lo, choice.against_hi)
    by_task = simkit.tune(trace, mean.family, COST, FOLDS, SEED, "task", mean.family)
    choice = next(choice for choice in by_task.choices if choice.task == "code")
    assert rows["code", "mean"].speedup == choice.speedup


def test_tasks_that_a_trace_lacks_are_left_out(trace):
    ablation = NAMES["figure-2"]
    rows = Replays(trace, COST, [ablation]).rows(ablation)
    assert {row.task for row in rows} == {"code", "prose", "math", ALL}


def test_more_tokens_a_step_are_fewer_steps(trace):
    ablation = NAMES["table-11"]
    rows = list(Replays(trace, COST, [ablation]).rows(ablation))
    tau = {(row.settings, row.task, row.arm): row.tau for row in rows}
    for row in rows:
        if row.steps_ratio is not None:
            other = tau[row.settings, row.task, row.against or ""]
            # All outputs are as long here, and each token is accepted or a step's last.
            assert row.steps_ratio == pytest.approx((row.tau + 1) / (other + 1), rel=1e-3)


def test_the_pair_in_numbers(trace):
    rows = {name: numbers for name, *numbers in by_task(trace)}
    assert list(rows) == ["code", "math", "prose", ALL]
    result = simkit.replay(trace, ["oracle", "pacer"])
    assert rows[ALL][0] == pytest.approx(result.records()[0]["accepted_per_step"])
    accepted = result.steps("oracle")["accepted"]
    assert rows[ALL][1:3] == pytest.approx([(accepted == 0).mean(), (accepted <= 2).mean()])
    assert rows[ALL][3] == pytest.approx((result.steps("pacer")["drafted"] <= 4).mean())
    ((_, c, head),) = by_cost(trace, ["pacer:deepseek-1.3b-33b"])
    assert c == pytest.approx(1 / 18.11 / 16.52e-3)  # PACER Tables 5 and 14
    assert head == pytest.approx(1.81 / 16.52)  # Table 14


@pytest.mark.parametrize(
    ("claim", "low", "high", "expected"),
    [
        (1, 1.01, 1.2, "holds"),
        (-1, 1.01, 1.2, "does not hold"),
        (-1, 0.8, 0.99, "holds"),
        (1, 0.8, 0.99, "does not hold"),
        (1, 0.99, 1.2, "not distinguishable"),
        (-1, 1.0, 1.0, "not distinguishable"),
        (1, math.nan, math.nan, "cannot be tested"),
        (1, None, None, "cannot be tested"),
        (0, 1.01, 1.2, "does not hold"),
        (0, 0.99, 1.2, "not distinguishable"),
    ],
)
def test_verdict(claim, low, high, expected):
    """The words and the rule are those of the claims: with 5 prompts nothing is tested."""
    assert verdict(claim, 1.0, low, high, 30) == expected
    assert verdict(claim, 1.0, low, high, 5) == "cannot be tested"


def test_claims_follow_from_the_printed_numbers():
    five = {arm.label: arm.claim for arm in NAMES["table-5"].arms["math"]}
    assert five == {
        "vanilla": None,
        "speculative": 1,
        "PACER": 1,
        "w/o pos-emb": -1,
        "w/o growth-factor": -1,
    }
    for name in ("table-7", "table-8", "table-11", "table-12", "table-13"):  # the paper's choice
        arms = NAMES[name].arms["code"]
        assert {arm.claim for arm in arms if arm.against and arm.printed.speed} == {-1}
        assert all(arm.claim is None for arm in arms if not arm.printed.speed)
    swept = [arm for arm in NAMES["h-sweep"].arms[ALL] if arm.claim]
    assert len(swept) == 9  # h of 0.94, 0.95, 0.96 by K_max of 5, 6, 7


def test_the_tuned_grid_holds_the_papers_settings():
    """So that tuning can find them: PACER Table 10, but for Llama 2's growth of 1.02."""
    (family,) = {arm.family for arm in NAMES["table-5"].arms["code"] if arm.label == "PACER"}
    assert family is not None
    grid = {(p.block, p.threshold) for p in settings(family)}
    assert {(4, 0.7), (4, 0.65)} <= grid


def test_markdown_holds_every_row(trace):
    ablation = Ablation(
        "small",
        "of two",
        "nowhere",
        (COST,),
        False,
        {
            ALL: [
                AblationArm("a", "fixed(2)", "fixed(1:3)"),
                AblationArm("b", "fixed(4)", None, "a", claim=-1),
            ]
        },
    )
    rows = list(Replays(trace, COST, [ablation]).rows(ablation))
    text = "\n".join(markdown(trace, [COST], [ablation], rows))
    assert [(row.settings, row.arm) for row in rows] == [(PAPER, "a"), (PAPER, "b"), (TUNED, "a")]
    assert text.count("| all | a |") == 2
    assert text.count("| all | b |") == 1
    assert "## small: of two" in text
    assert frame(rows).height == 3


def test_every_head_is_bundled():
    trace = load("reference")
    for name in _heads():
        found = scores.load(trace, name)
        assert isinstance(found, scores.RowScores) == (name == "acceptance_head")


def test_variants_of_a_head_are_charged_alike():
    """Only one of them was timed; free variants would win every comparison."""
    heads = sorted(_heads() - {"acceptance_head"})
    result = simkit.replay("reference", [f"pacer(block=1, head={head})" for head in heads])
    call_s = [record["policy_s"] / record["drafted"] for record in result.records()]
    assert len(call_s) == 4
    assert call_s[0] > 0
    assert call_s == pytest.approx([call_s[0]] * 4)


def test_command(tmp_path, capsys):
    out = tmp_path / "out"
    main(["--only", "table-7", "--cost", "measured", "-o", str(out)])
    text = capsys.readouterr().out
    assert (out / "ablations.md").read_text() == text
    rows = pl.read_parquet(out / "ablations.parquet")
    assert rows["arm"].unique().sort().to_list() == ["any", "last", "mean"]
    assert rows.height == 2 * 2 * 3  # settings, tasks, arms
    assert rows.filter(arm="mean")["verdict"].null_count() == 4


@pytest.mark.parametrize("argv", [["no-such-trace"], ["--cost", "no-such-cost"]])
def test_what_a_user_gets_wrong_is_one_line(argv):
    with pytest.raises(SystemExit) as stop:
        main([*argv, "--only", "table-7"])
    assert str(stop.value.code).startswith("error: ")
    assert "\n" not in str(stop.value.code)
