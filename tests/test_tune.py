"""Tuning: choices on some prompts, judged on others."""

import json

import numpy as np
import polars as pl
import pytest
from commands import refused, run
from hypothesis import given, settings
from hypothesis import strategies as st
from replay_traces import build

import simkit
from simkit.errors import PolicyError, ReplayError
from simkit.simulator.display import idle
from simkit.sweeps.folds import DEALS, Deals, dealt, mean_of
from simkit.sweeps.tuning import BEST
from traces.synthetic import iid
from traces.writer import save

COST = "linear(draft_s=0.004, target_s=0.03, target_per_token_s=1e-4, policy_s=1e-5)"
SVIP = "svip(h=0.2:2:0.1)"
FIXED = "fixed(0:20)"
RUN = "heuristic(initial=1:6, schedule=heuristic)"


@pytest.fixture(scope="module")
def trace():
    tasks = ("math", "chat", "code")
    return iid(24, 40, 0.6, max_draft=40, seed=4, eos_prob=0.01, tasks=tasks)


@pytest.fixture(scope="module")
def folder(trace, tmp_path_factory):
    path = tmp_path_factory.mktemp("tune") / "trace"
    save(trace, path)
    return str(path)


@settings(deadline=None)
@given(
    strata=st.lists(st.integers(0, 4), min_size=2, max_size=60),
    folds=st.integers(2, 6),
    seed=st.integers(0, 9),
)
def test_folds_are_even_in_every_stratum_and_together(strata, folds, seed):
    strata = np.array(strata)
    if len(strata) < folds:
        with pytest.raises(ReplayError, match=f"cannot be cut into {folds} folds"):
            dealt(strata, folds, seed, deals=1).fold[0]
        return
    fold = dealt(strata, folds, seed, deals=1).fold[0]
    assert np.array_equal(fold, dealt(strata, folds, seed, deals=1).fold[0])
    for some in (fold, *(fold[strata == s] for s in np.unique(strata))):
        counts = np.bincount(some, minlength=folds)
        assert len(counts) == folds
        assert np.ptp(counts) <= 1


NAMES = st.lists(st.text("abyz", max_size=3), min_size=5, max_size=5, unique=True)
NUMBERS = st.lists(st.integers(-9, 9), min_size=5, max_size=5, unique=True)


@given(
    strata=st.lists(st.integers(0, 4), min_size=6, max_size=60),
    folds=st.integers(2, 6),
    seed=st.integers(0, 9),
    names=st.one_of(NAMES, NUMBERS),
)
def test_folds_do_not_depend_on_what_strata_are_called(strata, folds, seed, names):
    called = np.array([names[s] for s in strata])
    np.testing.assert_array_equal(
        dealt(called, folds, seed, deals=1).fold[0],
        dealt(np.array(strata), folds, seed, deals=1).fold[0],
    )


def test_deals_begin_with_the_one_deal_and_differ():
    task = np.repeat(["a", "b", "c"], [9, 5, 10])
    deals = dealt(task, 5, seed=3)
    assert deals.fold.shape == (DEALS, 24)
    assert np.array_equal(deals.fold[0], dealt(task, 5, 3, deals=1).fold[0])
    assert len({fold.tobytes() for fold in deals.fold}) == DEALS
    for fold in deals.fold:
        assert np.ptp(np.bincount(fold, minlength=5)) <= 1


def test_sums_outside_of_folds_and_shares_by_hand():
    deals = Deals(np.array([[0, 1, 1, -1], [1, 0, 1, -1]]), 2)
    values = np.array([1.0, 10.0, 100.0, 1000.0])
    assert deals.outside(values).tolist() == [110, 1, 101, 10]
    shares = deals.shares(np.array([7, 4, 7, 7]))
    assert {k: share.tolist() for k, share in shares.items()} == {
        7: [1, 0.5, 0.5, 0],
        4: [0, 0.5, 0.5, 0],
    }
    held = mean_of([values, 3 * values], [*shares.values()])
    assert held.tolist() == [1, 20, 200, 0]


@pytest.mark.parametrize("deals", [0, -1, 2.5, True])
def test_deals_must_be_a_number(trace, deals):
    with pytest.raises(ReplayError, match="deals must be a whole number"):
        simkit.tune(trace, SVIP, COST, deals=deals)


def by_hand(trace, spec, fold, group):
    """Held-out seconds of each prompt, means over the deals, from replays by sequence."""
    policies = simkit.policies.expand(spec)
    frame = simkit.replay(trace, policies, COST, by="sequence").frame
    total = {str(p): frame.filter(policy=str(p))["total_s"].to_numpy() for p in policies}
    held = np.empty(fold.shape)
    for deal, s in np.ndindex(fold.shape):
        train = (group == group[s]) & (fold[deal] != fold[deal, s])
        best = min(total, key=lambda name: total[name][train].sum())
        held[deal, s] = total[best][s]
    return held.mean(0), max(total, key=lambda name: -total[name].sum())


@pytest.mark.parametrize("by", ["trace", "task"])
@pytest.mark.parametrize("spec", [SVIP, FIXED, RUN])
def test_held_out_seconds_are_those_by_hand(trace, spec, by):
    tuned = simkit.tune(trace, spec, COST, folds=4, seed=3, by=by)
    task = np.unique(trace.sequences["task"].to_pylist(), return_inverse=True)[1]
    group = task if by == "task" else np.zeros_like(task)
    held, best = by_hand(trace, spec, tuned.fold, group)
    np.testing.assert_allclose(tuned.held_out[spec], held, rtol=1e-12)
    parts = sum(tuned.held_out_parts[spec].values())
    np.testing.assert_allclose(parts, held, rtol=1e-12)
    rows = [choice for choice in tuned.choices if choice.spec == spec]
    if by == "trace":
        assert [choice.chosen for choice in rows] == [best]
        assert rows[0].speedup == pytest.approx(tuned.baseline_s.sum() / held.sum())
    else:
        assert [choice.task for choice in rows] == ["math", "chat", "code"]
    assert all(sum(choice.folds.values()) == 4 * DEALS for choice in rows)


def test_a_family_of_one_setting_is_its_replay(trace):
    tuned = simkit.tune(trace, "svip(h=0.7)", COST, reference="fixed(3)", seed=5)
    fixed, svip = tuned.choices
    result = simkit.replay(trace, ["fixed(3)", "svip(h=0.7)"], COST, seed=5)
    for choice, row in zip(tuned.choices, result.records(), strict=True):
        found = (choice.speedup, choice.speedup_lo, choice.speedup_hi, choice.in_sample)
        expected = [row[name] for name in ("speedup", "speedup_lo", "speedup_hi", "speedup")]
        assert found == pytest.approx(expected)
    compared = result.compare("svip(h=0.7)", "fixed(3)")
    found = (svip.against, svip.against_lo, svip.against_hi)
    assert found == pytest.approx((compared.speedup, compared.speedup_lo, compared.speedup_hi))
    assert (fixed.against, fixed.against_lo, fixed.against_hi) == (1, 1, 1)
    assert svip.folds == {"svip(h=0.7)": 5 * DEALS}


def test_in_sample_is_the_best_of_the_sweep(trace):
    tuned = simkit.tune(trace, SVIP, COST)
    best = simkit.sweep(trace, SVIP, COST).best()
    assert tuned.choices[1].in_sample == pytest.approx(best["speedup"][0])
    assert tuned.choices[1].chosen == best["policy"][0]
    assert tuned.choices[1].speedup <= tuned.choices[1].in_sample


def test_where_settings_do_not_differ_held_out_speed_falls_short_of_in_sample():
    """A hundred settings, each fastest on one prompt by luck: all of the in-sample gain is luck."""
    rng = np.random.default_rng(0)
    trace = build(
        [[(1, int(x)) for x in rng.integers(1, 3, 12)] for _ in range(30)],
        t_max=12,
        max_draft=12,
        values=rng.random,
    )
    tuned = simkit.tune(trace, "svip(h=0.01:1.0:0.01)", COST)
    choice = tuned.choices[1]
    assert choice.speedup < choice.in_sample
    assert choice.settings == 100


def test_best_of_all_chooses_among_the_families_given(trace):
    tuned = simkit.tune(trace, [SVIP, RUN], COST)
    assert [choice.spec for choice in tuned.choices] == [FIXED, SVIP, RUN, BEST]
    best = tuned.choices[-1]
    assert best.settings == 19 + 6
    assert best.in_sample == max(choice.in_sample for choice in tuned.choices[1:3])
    chosen = {choice.spec: set(choice.folds) for choice in tuned.choices}
    assert chosen[BEST] <= chosen[SVIP] | chosen[RUN]
    assert tuned.held_out.keys() == tuned.held_out_parts.keys() == chosen.keys()
    assert len(simkit.tune(trace, [FIXED, FIXED], COST).choices) == 1


def test_the_reference_stays_within_what_was_recorded():
    trace = iid(10, 30, 0.5, max_draft=6, seed=0)
    assert simkit.tune(trace, "fixed(2)", COST).reference == "fixed(0:6)"


def test_it_is_a_function_of_the_seed_and_not_of_threads(trace):
    first = simkit.tune(trace, SVIP, COST, seed=1, workers=1)
    again = simkit.tune(trace, SVIP, COST, seed=1, workers=3)
    other = simkit.tune(trace, SVIP, COST, seed=2)
    assert first.choices == again.choices
    assert not np.array_equal(first.fold, other.fold)


def test_functions_are_families_of_one(trace):
    def unsure(depth, row):
        return row.draft_entropy > 1

    tuned = simkit.tune(trace, [unsure, SVIP], COST)
    assert [choice.spec for choice in tuned.choices] == [FIXED, "unsure", SVIP, BEST]
    with pytest.raises(ReplayError, match="two different families are both called <lambda>"):
        simkit.tune(trace, [lambda depth, row: True, lambda depth, row: False], COST)


def test_notes_say_where_prompts_are_few_and_why_no_draft_is_below_1(trace):
    rule = "time of rules: svip: given with the cost"
    assert simkit.tune(trace, SVIP, COST).notes == (rule,)
    few = iid(11, 40, 0.6, max_draft=40, seed=4)
    tuned = simkit.tune(few, SVIP, COST)
    assert tuned.notes == (rule, "only 11 prompts: the interval may be too narrow")
    assert tuned._repr_html_().endswith(f"<p>Note: {tuned.notes[1]}.</p>")
    cost = COST.replace(")", ", overhead_s=0.001)")
    tuned = simkit.tune(trace, ["autoregressive", "fixed(0)"], cost, reference="fixed(3)")
    (note,) = tuned.notes
    assert "autoregressive, fixed(0): the speedup is below 1 although nothing is drafted" in note
    assert all(choice.speedup < 1 for choice in tuned.choices[1:])
    alike = cost.replace(")", ", baseline_overhead_s=0.001)")
    assert simkit.tune(trace, "autoregressive", alike).notes == ()


def test_bad_arguments(trace):
    for arguments, message in (
        ({"specs": "oracle"}, r"oracle\(\) needs the future"),
        ({"specs": SVIP, "reference": "prophet"}, r"prophet\(\) needs the future"),
    ):
        with pytest.raises(PolicyError, match=message):
            simkit.tune(trace, cost=COST, **arguments)
    for arguments, message in (
        ({"specs": []}, "no policy to tune"),
        ({"cost": None}, "tuning needs times: give a cost"),
        ({"folds": 1}, "folds must be at least 2, not 1"),
        (
            {"folds": 2, "trace": iid(1, 9, 0.5, max_draft=4, seed=0)},
            "1 prompt cannot be cut into 2 folds",
        ),
        ({"folds": 25}, "24 prompts cannot be cut into 25 folds"),
        ({"folds": 9, "by": "task"}, "task math: 8 prompts cannot be cut into 9 folds"),
        ({"by": "sequence"}, "by must be trace or task"),
        ({"seed": -1}, "seed must be at least 0"),
        ({"folds": 2.5}, "folds must be a whole number, not 2.5"),
        ({"folds": True}, "folds must be a whole number, not True"),
        ({"seed": "0"}, "seed must be a whole number, not '0'"),
    ):
        with pytest.raises(ReplayError, match=message):
            simkit.tune(**{"trace": trace, "specs": SVIP, "cost": COST} | arguments)


def test_the_command(folder, trace, capsys):
    given = [folder, "--policy", SVIP, "--policy", RUN, "--cost", COST, "--by", "task"]
    expected = simkit.tune(trace, [SVIP, RUN], COST, by="task")
    notes = "time of rules: svip: given with the cost", "only 8 prompts: the interval may be too"
    notes = notes[0], f"{notes[1]} narrow (math, chat, code)"
    assert expected.notes == notes
    said = "".join(f"note: {note}\n" for note in notes)
    status, out, err = run(capsys, "tune", *given, "--format", "json")
    assert (status, err) == (0, said)
    assert json.loads(out) == expected.records()
    status, out, err = run(capsys, "tune", *given, "--format", "csv")
    assert out == expected.frame.write_csv()
    assert expected.frame.schema["speedup_lo"] == pl.Float64
    status, out, err = run(capsys, "tune", *given)
    assert (status, err) == (0, said)
    assert "held-out speedup" in out
    assert out.count("best of all") == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--policy", "svip(h=1:0:1)", "--cost", COST], "the range 1:0:1 is empty"),
        (["--policy", "oracle", "--cost", COST], "needs the future"),
        (["--policy", SVIP], "tuning needs times: give a cost"),
        (["--policy", SVIP, "--cost", COST, "--folds", "0"], "folds must be at least 2"),
        (["--policy", SVIP, "--cost", COST, "--seed", "-1"], "seed must be at least 0"),
        (["--cost", COST], "Missing option '--policy'"),
    ],
)
def test_bad_input_is_one_line(folder, arguments, message, capsys):
    assert message in refused(capsys, "tune", folder, *arguments)


def test_a_family_that_drafts_in_some_fold_is_not_called_idle():
    """Under a dear step the target alone is best in some folds, but not in all."""
    row = ("fixed(0:4)", True, 0.9)
    assert idle([row]) == [] and idle([("fixed(0)", False, 1.0)]) == []
    (note,) = idle([("autoregressive", False, 0.96), row, ("autoregressive", False, 0.97)])
    assert note.startswith("autoregressive: the speedup is below 1 although nothing")


def test_the_best_policy_is_that_of_the_fastest_family_and_rows_are_kept(
    folder, trace, tmp_path, capsys
):
    tuned = simkit.tune(trace, [SVIP, "fixed(1)"], COST)
    best = max((c for c in tuned.choices if c.spec != "best of all"), key=lambda c: c.speedup)
    assert str(tuned.best_policy) == best.chosen
    assert simkit.replay(trace, tuned.best_policy, COST).records()[0]["speedup"] == pytest.approx(
        best.in_sample
    )
    own = simkit.policy(columns=("draft_entropy",))(lambda depth, row: row.draft_entropy > 0.5)
    assert simkit.tune(trace, [own], COST).best_policy.name == own.name  # which no text names
    with pytest.raises(ReplayError, match="tasks were tuned apart"):
        _ = simkit.tune(trace, SVIP, COST, by="task").best_policy
    out = tmp_path / "rows.parquet"
    words = "tune", folder, "--policy", SVIP, "--policy", "fixed(1)", "--cost", COST, "-o", out
    assert run(capsys, *words)[0] == 0
    assert pl.read_parquet(out).equals(tuned.frame)


def test_a_function_with_the_name_of_a_setting_is_tuned_as_itself():
    """The names of functions are theirs: one may be that of a setting it is compared with."""
    rule = simkit.policy(lambda depth, row: True, columns=[], name="fixed(3)")
    cost = "linear(draft_s=1, target_s=10)"
    found = simkit.tune("reference", [rule], cost, reference="fixed(1:4)")
    one, three = simkit.replay("reference", ["fixed(1)", "fixed(3)"], cost).frame["speedup"]
    (mine,) = (c.speedup for c in found.choices if c.spec == "fixed(3)")
    assert mine == pytest.approx(one) and mine != pytest.approx(three)
