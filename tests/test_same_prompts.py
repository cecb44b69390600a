"""A prompt that was recorded several times is one prompt wherever prompts are split."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import simkit
import traces
from analysis.compare.seconds import judged
from analysis.replays import folds
from benchmarks.advise import halves
from simkit.drafters.path import PathLayout
from simkit.errors import LiveError, ReplayError
from simkit.fidelity.run import split
from simkit.policies.acceptance_fit import dealt_once, fit_acceptance
from simkit.sweeps.folds import dealt
from traces import same_prompts, streamed
from traces.streamed import LEAST, stream
from traces.subset import select
from traces.synthetic import iid
from traces.writer import save

COST = "linear(draft_s=0.004, target_s=0.03)"
COPIES = np.repeat(np.arange(10), 3)[np.random.default_rng(0).permutation(30)]

numbers = st.lists(st.integers(0, 12), min_size=2, max_size=60).map(np.array)


def copied(**given):
    """Thirty sequences of ten prompts, three times each, in any order."""
    trace = select(iid(30, 24, 0.6, max_draft=24, seed=4, tasks=("a", "b"), **given), range(30))
    columns, kinds = trace.sequences, trace.sequences.schema
    prompts = [[int(k), 1] for k in COPIES]
    for name, values in (("prompt_tokens", prompts), ("n_prompt", [2] * len(prompts))):
        place = columns.column_names.index(name)
        array = pa.array(values, kinds.field(name).type)
        columns = columns.set_column(place, kinds.field(name), array)
    vars(trace)["sequences"] = columns
    return trace


def together(fold, prompt=COPIES):
    """Whether all copies of each prompt have one fold, and there are several folds."""
    return len(set(fold.tolist())) > 1 and all(len(set(fold[prompt == k])) == 1 for k in prompt)


def table(*rows):
    names = ("id", "task", "prompt_tokens")
    columns = {name: [row[k] for row in rows] for k, name in enumerate(names)}
    return pa.table({"sequence": range(len(rows)), **columns})


def test_prompts_are_told_by_tokens_and_without_them_by_task_and_id():
    """One token, as drawn traces have, tells nothing."""
    rows = [
        ("a", "x", [1, 2]),
        ("b", "y", [1, 2]),
        ("a", "x", [1, 3]),
        ("a", "x", []),
        ("a", "y", [1]),
    ]
    rows += [("a", "x", [1]), (None, "x", []), (None, "x", [1]), (None, None, [1, 2])]
    found = same_prompts.numbers(same_prompts.keys(table(*rows)))
    assert found.tolist() == [0, 0, 1, 2, 3, 2, 4, 5, 0]
    part = table(*rows).slice(2)
    assert same_prompts.keys(part).tolist() == same_prompts.keys(table(*rows))[2:].tolist()


@given(numbers)
def test_numbers_begin_at_0_in_the_order_of_first_copies(told):
    found = same_prompts.numbers(told)
    seen = []
    for k in told.tolist():
        seen += [] if k in seen else [k]
    assert found.tolist() == [seen.index(k) for k in told.tolist()]
    alone = len(seen) == 1
    assert same_prompts.to_deal(told).tolist() == [*range(len(told))] if alone else found.tolist()


def test_a_trace_in_windows_has_the_same_numbers(tmp_path, monkeypatch):
    save(copied(), tmp_path / "trace", batch_size=4)
    monkeypatch.setattr(streamed, "_FEWEST", 1)
    monkeypatch.setattr(streamed, "_SHARE", 1e-6)
    whole, windows = traces.load(tmp_path / "trace"), stream(tmp_path / "trace", memory=LEAST)
    assert len(windows.ranges) > 3
    assert np.array_equal(windows.prompt_numbers, whole.prompt_numbers)
    assert np.array_equal(whole.prompt_numbers, same_prompts.numbers(COPIES))
    tuned = [simkit.tune(one, "fixed(1:3)", COST, deals=2) for one in (whole, windows)]
    assert np.array_equal(*(one.fold for one in tuned)) and together(tuned[0].fold[0])


@given(numbers, st.integers(2, 6), st.integers(0, 9))
def test_folds_hold_whole_prompts_and_as_many_each(told, n, seed):
    strata = np.array([hash(k) % 3 for k in told.tolist()])
    first = np.unique(told, return_index=True)[1]
    if 1 < len(first) < n:
        what = "different prompt" if len(first) < len(told) else "prompt"
        with pytest.raises(ReplayError, match=f"{len(first)} {what}s? cannot be cut into {n}"):
            dealt(strata, n, seed, deals=1, prompt=told)
        return
    if len(first) == 1:  # of one prompt alone, outputs are dealt
        first = np.arange(len(told))
        if len(told) < n:
            return
    (fold,) = dealt(strata, n, seed, deals=1, prompt=told).fold
    if len(first) < len(told):
        assert all(len(set(fold[told == k])) == 1 for k in told)
    assert np.ptp(np.bincount(fold[first], minlength=n)) <= 1
    order = np.sort(first)
    assert np.array_equal(fold[order], dealt(strata[order], n, seed, deals=1).fold[0])


def test_what_is_chosen_by_a_prompt_does_not_judge_its_copies():
    trace = copied()
    for by in ("trace", "task"):
        tuned = simkit.tune(trace, "fixed(1:3)", COST, folds=2, by=by, deals=3)
        task = np.array(trace.sequences["task"].to_pylist())
        for rows in [task == "a", task == "b"] if by == "task" else [task == task]:
            assert all(together(fold[rows], COPIES[rows]) for fold in tuned.fold)
    assert all(together(fold) for fold in folds(trace).fold)
    assert together(fit_acceptance(PathLayout(trace), "draft_prob_raw", 5, seed=0).fold)
    assert dealt_once(np.array([0, 1, 0, 1]), 5, 0)[1] == 2
    seconds = np.ones((2, 30))
    seconds[0, COPIES == 3], seconds[1] = 50, 2  # copies of a prompt have no say in it
    held = judged(seconds, seconds, np.zeros(30), COPIES)
    assert held[COPIES == 3] == pytest.approx([50, 50, 50])
    four = np.arange(30) % 4  # fewer prompts than folds: what is fastest on all of them
    assert judged(seconds, seconds, np.zeros(30), four) == pytest.approx(seconds[1])


def test_calibration_prompts_are_no_copies_of_held_out_ones():
    held_out, fitted = split(COPIES, 6, 4)
    chosen = COPIES[[*held_out, *fitted]]
    assert len(set(chosen.tolist())) == 10
    with pytest.raises(LiveError, match="11 prompts are asked for, but the trace has 10 different"):
        split(COPIES, 7, 4)


def test_the_benchmark_of_advice_keeps_copies_in_one_half():
    """A prompt that one setting alone serves well chooses it in one half, and never judges it."""
    seconds = np.ones((2, 30))
    seconds[0, COPIES == 3], seconds[1, COPIES == 3] = 0.0, 100.0
    seconds[0, COPIES != 3] = 2.0
    found = {round(lost, 6) for _, lost in halves(seconds, same_prompts.numbers(COPIES))}
    assert found == {1.0, (300 + 12) / 24 - 1}
