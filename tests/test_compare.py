"""Traces held against each other: pairing, mirror images, a trace against itself, bad input."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kendalltau
from stats_traces import parts_of
from test_conditions import timed, trace_of
from trace_files import edit

import simkit
import traces
from analysis.compare import compare, measures
from analysis.compare.ranks import kendall
from analysis.compare.seconds import judged
from analysis.compare.sides import Prompts, Side, prompts_of, sides
from analysis.replays import Replays
from analysis.stats.two_samples import Pairing
from analysis.study import Study
from simkit.costs import Linear
from simkit.importers import specdecode_bench
from traces.errors import UserError
from traces.manifest import read_manifest
from traces.memory import from_arrays
from traces.subset import select
from traces.synthetic import iid, mixed
from traces.trace import Trace
from traces.writer import save

COST = Linear(draft_s=1, target_s=6, target_per_token_s=0.2)
SPEC = "linear(draft_s=1, target_s=6)"
POLICIES = ["fixed(2)", "fixed(6)", "svip(h=0.8)", "confidence(threshold=0.4)", "fixed(0:6)"]


def ends(found):
    return found.value, found.lo, found.hi


def only(found):
    (pair,) = found.pairs
    return pair


def rising(prompts=14, first=0, tasks=("a", "b"), seed=0):
    """Prompts told by their texts, each with a share of accepted tokens of its own."""
    whole = mixed(prompts, 40, 0.7, 0.15, max_draft=12, seed=seed)
    names = range(first, first + prompts)
    sequences = {
        "n_output": whole.sequences["n_output"].to_numpy(),
        "prompt_text": [f"prompt {k}" for k in names],
        "task": [tasks[k % len(tasks)] for k in names],
    }
    columns = {
        table: {
            name: whole.column(table, name)
            for name in schema.names
            if name not in ("sequence", "position") or table == "branches"
        }
        for table, schema in whole.manifest.tables.items()
    }
    limits = {"max_draft": 12, "max_new_tokens": 40}
    return from_arrays(sequences, columns["positions"], columns["branches"], **limits)


@pytest.mark.parametrize("tune", [False, True])
def test_a_trace_against_itself(tune):
    trace = rising()
    found = only(compare(trace, trace, policies=POLICIES[:4], cost=COST, tune=tune))
    assert found.pairing == "paired over 14 prompts that are the same (by text)"
    assert all(one.difference.value == 0 for one in found.measures)
    assert len(found.rankings) == 1 + tune
    for some in found.rankings:
        assert ends(some.tau) == (1, 1, 1)
        assert all(one.alike and one.same == 1 for one in some.orders)
        for row in some.rows:
            assert row.ratio.value == 1 and row.ratio.lo is None
            assert ends(row.first) == ends(row.second) and row.ranks[0] == row.ranks[1]
    for one in found.bests:
        assert [lost.value for lost in one.lost] == [0, 0] and one.choices[0] == one.choices[1]
    assert not any("ordered differently" in table.title.lower() for table in found.tables())


@pytest.mark.parametrize("shift", [0, 14, 12, 5])
def test_the_other_way_round_is_the_mirror_image(shift):
    """All prompts the same, none, two of 14 (too few to pair), nine of them."""
    first, second = rising(seed=1), rising(first=shift, seed=2)
    way = only(compare(first, second, policies=POLICIES, cost=COST))
    back = only(compare(second, first, policies=POLICIES, cost=COST))
    assert ("not paired" in way.pairing) == (shift > 7) == ("not paired" in back.pairing)
    for one, other in zip(way.measures, back.measures, strict=True):
        assert (one.name, one.first, one.second) == (other.name, other.second, other.first)
        if one.difference.lo is not None:
            value, lo, hi = ends(other.difference)
            assert ends(one.difference) == pytest.approx((-value, -hi, -lo), abs=1e-9)
    for one, other in zip(way.rankings, back.rankings, strict=True):
        assert ends(one.tau) == ends(other.tau)
        rows = {row.name: row for row in other.rows}
        for row in one.rows:
            mirror = rows[row.name]
            value, lo, hi = ends(mirror.ratio)
            # quantiles lie between resamples, and BCa's acceleration is that of the ratio
            assert ends(row.ratio) == pytest.approx((1 / value, 1 / hi, 1 / lo), rel=1e-2)
            assert row.ranks == mirror.ranks[::-1] and row.first == mirror.second
        orders = {frozenset(o[:2]): (o.faster[::-1], o.same) for o in other.orders}
        assert orders == {frozenset(o[:2]): (o.faster, o.same) for o in one.orders}
    for one, other in zip(way.bests, back.bests, strict=True):
        assert one.choices == other.choices[::-1] and one.lost == other.lost[::-1]


def test_halves_of_a_recording_are_not_paired():
    whole = traces.load("reference")
    halves = [select(whole, range(k, 128, 2)) for k in (0, 1)]
    found = only(compare(*halves, policies=["fixed(4)"], cost=COST))
    assert found.pairing.startswith("not paired: no prompts are the same (by text)")
    (row,) = found.rankings[0].rows
    for half, one in zip(halves, (row.first, row.second), strict=True):
        want = simkit.replay(half, "fixed(4)", COST).records()[0]
        assert ends(one) == pytest.approx((want["speedup"], want["speedup_lo"], want["speedup_hi"]))


def test_pairs_are_compared_on_what_both_have_in_any_order():
    whole = traces.load("reference")
    some = select(whole, range(0, 40))
    found = only(compare(whole, some, policies=["fixed(4)"], cost=COST))
    assert found.pairing.endswith(
        "40 prompts that are the same (by text); left out: 88 of reference"
    )
    assert all(one.difference.value == 0 for one in found.measures)
    back = only(compare(some, whole, policies=["fixed(4)"], cost=COST))
    assert [one.first for one in back.measures] == [one.first for one in found.measures]


def test_statistics_are_those_of_the_trace():
    """Against sums over rows, written out; of a path, and of a drafter with drafts by start."""
    found = only(compare("reference", "reference/drafters/ngram", policies=["fixed(5)"]))
    mine = {one.name: one for one in found.measures}
    trace, ngram = traces.load("reference"), traces.load("reference", "ngram")
    column = trace.positions
    assert mine["overlap β"].first.value == pytest.approx(column("overlap").mean(dtype=float))
    assert mine["overlap β"].second.value is None
    share = mine["accepted, each position"]
    assert share.first.value == pytest.approx(column("accepted").mean())
    begins = ngram.offsets("lattice")
    firsts = ngram.lattice("accepted")[begins[:-1][np.diff(begins) > 0]]
    assert share.second.value == pytest.approx(firsts.mean())
    for side, drafter in (("first", trace), ("second", ngram)):
        (row,) = simkit.replay(drafter, "fixed(5)").records()
        tokens = getattr(mine["tokens a step, fixed(5)"], side)
        assert tokens.value == pytest.approx(row["tokens_per_step"])
        accepted = getattr(mine["accepted of drafted, fixed(5)"], side)
        assert accepted.value == pytest.approx(row["accepted"] / row["drafted"])
    loops = mine["positions in loops"]
    assert loops.first.value == pytest.approx(Study(trace).loops.share)
    assert mine["target entropy, nats"].difference.value == 0  # of the same outputs
    assert any("no overlap β; draft entropy, nats: its drafts have" in line for line in found.notes)


def test_tuned_policies_are_those_of_simkit_tune():
    one, other = rising(seed=1), rising(seed=2)
    family = "svip(h=0.2:2.0:0.1, max_draft=12)"
    found = only(compare(one, other, policies=[family], cost=COST))
    ((row,),) = (some.rows for some in found.rankings)
    for trace, mine, setting in ((one, row.first, 0), (other, row.second, 1)):
        want = simkit.tune(trace, family, COST).choices[1]
        assert row.settings[setting] == want.chosen
        assert mine.value == pytest.approx(want.speedup)
        # statistics' intervals end at the farthest resample, which those of replays need not
        assert (mine.lo, mine.hi) == pytest.approx((want.speedup_lo, want.speedup_hi), rel=2e-3)


def test_what_is_lost_with_the_other_s_best():
    """One side takes twice as long with any setting but its own best; all prompts are alike."""
    seconds = np.array([[1.0], [2.0], [3.0]]) * np.ones((1, 10))
    strata = np.array(["a"] * 10)
    assert judged(seconds, seconds, strata, np.arange(10)) == pytest.approx(np.ones(10))
    assert judged(seconds[::-1], seconds, strata, np.arange(10)) == pytest.approx(3 * np.ones(10))
    apart = seconds.copy()
    apart[0, 3] = 100  # a prompt has no say in what it is judged by
    assert judged(apart, apart, strata, np.arange(10))[3] == pytest.approx(100)


@given(st.data())
def test_kendall_s_tau_is_scipy_s(data):
    n = data.draw(st.integers(2, 8))
    sides = [np.array(data.draw(st.lists(st.integers(0, 4), min_size=n, max_size=n)))] * 1
    sides += [np.array(data.draw(st.lists(st.integers(0, 4), min_size=n, max_size=n)))]
    i, j = np.triu_indices(n, 1)
    mine = kendall(*(np.sign(side[i] - side[j]) for side in sides))
    want = kendalltau(*sides).statistic
    assert (np.isnan(mine) and np.isnan(want)) or mine == pytest.approx(want)


def test_orders_are_as_sure_as_prompts_make_them():
    """Two policies that each are faster on half of the prompts: their order is a coin flip."""
    trace = rising(prompts=40)
    found = only(compare(trace, rising(prompts=40, first=40, seed=5), cost=COST))
    for one in found.rankings[0].orders:
        assert one.same is not None and 0 <= one.same <= 1
    rows = found.rankings[0].rows
    assert [row.ranks[0].value for row in rows] == sorted(row.ranks[0].value for row in rows)
    assert all(row.ranks[0].lo <= row.ranks[0].value <= row.ranks[0].hi for row in rows)


def test_without_times_passes_of_the_target_are_counted():
    one, other = rising(seed=1), rising(seed=2)
    found = only(compare(one, other, policies=["fixed(3)", "fixed(0:6)"]))
    assert len(found.rankings) == 1 and not found.bests  # nothing is tuned
    assert "no times with in memory and in memory (2): passes of the target" in str(found.notes)
    (row,) = found.rankings[0].rows
    (want,) = simkit.replay(one, "fixed(3)", "linear(draft_s=0, target_s=1)").records()
    assert row.first.value == pytest.approx(want["speedup"])
    assert row.first.value == pytest.approx((14 * 41) / (14 + want["steps"]))  # with the prompts'


def test_a_drafter_with_times_is_not_counted_because_another_has_none(tmp_path):
    """pard2 has no times: it is compared by passes, suffix by seconds; svip needs entropies."""
    place = shutil.copytree(traces.trace.DATA / "reference", tmp_path / "reference")
    untimed = place / "drafters" / "pard2"
    listed = {n: info for n, info in read_manifest(untimed).files.items() if "latency" not in n}
    edit(untimed, files=listed)
    among = {"drafters": ["own", "suffix", "pard2"]}
    found = compare(place, **among, policies=["svip", "fixed(2)"])
    timed, counted = found.pairs
    assert timed.bests and not counted.bests
    assert [len(pair.rankings[0].rows) for pair in found.pairs] == [1, 2]
    said = "reference/suffix: without svip(h=0.4): the drafts have no column draft_entropy"
    assert said in timed.skipped and not counted.skipped
    alone = compare(place, **among, policies=["svip"])
    assert not alone.pairs[0].rankings and alone.pairs[1].rankings


def test_a_column_that_must_be_there_is_refused(tmp_path):
    folder = tmp_path / "trace"
    save(iid(12, 40, 0.7, max_draft=12, seed=1), folder)
    file = next(folder.glob("positions/*.parquet"))
    file.write_bytes(file.read_bytes()[:-8])
    with pytest.raises(UserError, match=file.name):
        compare(str(folder), "reference", cost=SPEC)


def test_single_prompts_have_no_intervals():
    found = only(compare(rising(1), rising(1, seed=2), policies=POLICIES, cost=COST))
    assert "one prompt: no interval" in found.notes
    for row in found.rankings[0].rows:
        assert row.ratio.lo is None and row.ranks[0].lo is None
    assert found.rankings[0].tau.lo is None and found.rankings[0].orders[0].same is None
    assert found.bests[0].choices[0].often is None
    assert all(table.rows for table in found.tables())


def test_one_pair_in_two_couplings_is_not_told_apart():
    """The same models at temperature 1: outputs differ, laws do not. Γ is 40 there and 8 here."""
    cost = "pacer:deepseek-1.3b-33b"
    found = only(compare("reference-sampled", "reference-target/drafters/draft", cost=cost))
    assert "; left out: 64 of reference-sampled" in found.pairing
    gaps = [one.difference for one in found.measures]
    assert len(gaps) > 12 and all(gap.lo < 0 < gap.hi for gap in gaps)
    rows = found.rankings[0].rows
    assert len(rows) > 8 and all(row.ratio.lo < 1 < row.ratio.hi for row in rows)
    assert "no draft is longer than the smaller Γ: 40 on reference-sampled and 8 on" in str(
        found.notes
    )


def test_policies_are_the_same_where_gammas_differ():
    """heuristic(initial=20) drafts no deeper than the lesser Γ on either."""
    given = "reference-sampled", "reference-target/drafters/draft"
    ((row,),) = (s.rows for s in only(compare(*given, policies=["heuristic"], cost=COST)).rankings)
    assert set(row.settings) == {"heuristic(initial=20, max_draft=8)"}
    first, second = sides(given, [], COST, "draft")
    shared = select(first.trace, sorted(prompts_of(first, second).first))
    (want,) = simkit.replay(shared, "heuristic(max_draft=8)", COST).records()
    assert row.first.value == pytest.approx(want["speedup"])


def test_a_family_that_is_longer_than_both_is_left_out():
    """No setting of it is left to be tuned, and six prompts are enough to tune on."""
    first = iid(6, 12, 0.7, max_draft=2, seed=1)
    second = iid(6, 12, 0.7, max_draft=9, seed=2)
    found = compare(first, second, policies=["fixed(1)", "fixed(3:4)"], cost=COST)
    assert [ranking.tuned for ranking in found.pairs[0].rankings] == [False]
    assert any("none of its settings drafts at most 2 tokens" in s for s in found.pairs[0].skipped)


def test_what_tells_prompts():
    """Texts; tokens of one tokenizer where texts are not kept; else tasks and ids."""

    def made(name, numbers, **columns):
        n = len(numbers)
        rows = {"target_token": [1] * n, "draft_token": [1] * n, "accepted": [True] * n}
        sequences = {"n_output": np.ones(n, np.int32), **columns}
        trace = from_arrays(sequences, rows, {}, max_draft=2, max_new_tokens=4)
        header = replace(trace.manifest, tokenizer_sha256=name)
        return Side(name, Replays(Trace(header, trace._source), COST))

    def told(first, second):
        found = prompts_of(first, second)
        return found.pairing.paired, list(found.first), list(found.second), found.said

    one, other = [1, 2, 3, 4], [4, 9, 2, 1, 1]
    for kind in ("prompt_text", "prompt_tokens", "id"):
        keyed = [
            {kind: [[k] if kind == "prompt_tokens" else f"{k}" for k in numbers]}
            for numbers in (one, other)
        ]
        names = ("x", "y") if kind == "id" else ("x", "x")
        first, second = (
            made(name, numbers, **columns)
            for name, numbers, columns in zip(names, (one, other), keyed, strict=True)
        )
        paired, rows, others, said = told(first, second)
        assert paired and {(one[i], other[j]) for i, j in zip(rows, others, strict=True)} == {
            (k, k) for k in (1, 2, 4)
        }
        word = {"prompt_text": "text", "prompt_tokens": "tokens", "id": "task and id"}[kind]
        assert f"(by {word})" in said and said.endswith("left out: 1 of x, 2 of " + names[1])
    assert not told(made("x", [1, 2, 3]), made("y", [1, 2, 3]))[0]  # nothing tells them


DEGENERATE = {
    "two prompts": [{"n_sequences": 2}, {"n_sequences": 3}],
    "nothing is accepted, or all": [{"accept_prob": 1.0}, {"accept_prob": 0.0}],
    "drafts of one token": [{"max_draft": 1}, {}],
    "outputs of one token": [{"n_output": 1}, {"n_output": 1}],
    "outputs that end": [{"eos_prob": 0.2}, {"eos_prob": 0.1}],
}


@pytest.mark.parametrize("case", DEGENERATE)
def test_nothing_is_nan(case):
    """What is not defined is None, a dash for people."""
    usual = {"n_sequences": 6, "n_output": 20, "accept_prob": 0.6, "max_draft": 4}
    given = [iid(**usual | some, seed=k) for k, some in enumerate(DEGENERATE[case])]
    found = compare(*given, cost=COST, tune=True)
    assert not [value for value in parts_of(found.records()) if np.isnan(value)]
    assert "nan" not in found.markdown().lower()
    floats = found.frame.select(pl.selectors.float())
    assert not any(floats[name].is_nan().any() for name in floats.columns)


def test_no_prompts():
    with pytest.raises(UserError, match="has no prompts to be compared on"):
        compare(iid(0, 9, 0.7, max_draft=4, seed=1), rising(), cost=COST)


def test_several_drafters_are_compared_with_the_first():
    found = compare("reference", drafters=["own", "suffix", "ngram"], policies=["fixed(3)"])
    assert [pair.names for pair in found.pairs] == [
        ("reference/own", "reference/suffix"),
        ("reference/own", "reference/ngram"),
    ]
    (row,) = found.pairs[0].rankings[0].rows
    both = simkit.replay("reference", {"own": "fixed(3)", "suffix": "fixed(3)"})
    want = both.compare(("suffix", "fixed(3)"), ("own", "fixed(3)"))
    wanted = want.speedup, want.speedup_lo, want.speedup_hi  # the target alone is the same
    assert ends(row.ratio) == pytest.approx(wanted, rel=0.01)
    frame = found.frame
    assert set(frame["second"]) == {"reference/suffix", "reference/ngram"}
    text = repr(found) + found._repr_html_()
    assert "suffix" in text and "nan" not in text.lower().replace("finance", "")


def test_differences_of_traces_hold_the_truth(monkeypatch):
    """Acceptance of 0.75 and 0.6, prompts that differ: 18 of one trace, 24 of the other.

    The 150 draws' own standard error is 1.8 of a hundred.
    """
    some = [one for one in measures.MEASURES if one.name == "accepted, each position"]
    monkeypatch.setattr(measures, "MEASURES", some)

    def draw(seed):
        made = [
            Side(str(k), Replays(mixed(n, 48, mean, 0.12, max_draft=4, seed=2 * seed + k)))
            for k, (n, mean) in enumerate([(18, 0.75), (24, 0.6)])
        ]
        rows = [np.arange(side.trace.n_sequences) for side in made]
        prompts = Prompts(*rows, Pairing(False, (seed, seed + 1)), rows, rows, "")
        ((one,), missing) = measures.measured(*made, prompts, 0.95)
        assert not missing
        return one.difference.lo <= 0.6 - 0.75 <= one.difference.hi

    assert 0.89 <= np.mean([draw(seed) for seed in range(150)]) <= 0.995


def test_spread_of_the_times_is_in_the_ratio():
    """One machine timed with little noise, one with ten times as much; prompts are alike."""
    quiet, loud = (trace_of(timed(20, noise)) for noise in (0.02, 0.2))
    same = only(compare(loud, loud, policies=["fixed(2)", "fixed(4)"]))
    for row in same.rankings[0].rows:
        assert ends(row.ratio) == pytest.approx((1, 1, 1))
    assert ends(same.rankings[0].tau) == (1, 1, 1)
    found = only(compare(quiet, loud, policies=["fixed(2)"]))
    (row,) = found.rankings[0].rows
    alone = row.second.hi / row.second.lo
    assert alone * 0.9 < row.ratio.hi / row.ratio.lo < alone * 1.2


def without_prompts(tmp_path, name, first, n, shares):
    """SpecDecode-Bench's records of requests whose prompts it does not hold."""
    rng = np.random.default_rng(first)
    lines = [
        {
            "id": f"r{first + k}",
            "prompt_token_ids": [],
            "generated_token_ids": [1] * 40,
            "acc_eagle": {"acc_len": [1 + int(x) for x in rng.binomial(4, shares(k), 40)]},
        }
        for k in range(n)
    ]
    file = tmp_path / name
    file.write_text("\n".join(map(json.dumps, lines)))
    return specdecode_bench.load(file).trace


def test_prompts_that_nobody_knows_are_not_the_same(tmp_path):
    one = without_prompts(tmp_path, "a", 0, 20, lambda k: 0.5)
    other = without_prompts(tmp_path, "b", 100, 40, lambda k: 0.2 + 0.6 * k / 40)
    found = compare(one, other, cost="linear(draft_s=1, target_s=10)", policies=["fixed(2)"])
    assert found.pairs[0].pairing.startswith("not paired: no prompts are the same (by task and id)")


def test_a_fixed_length_is_named_as_it_was_replayed():
    """Of traces whose drafts end at 3, no statistic is of drafts of 5."""
    one, other = (iid(12, 40, 0.7, max_draft=3, seed=seed) for seed in (1, 2))
    found = compare(one, other, cost="linear(draft_s=1, target_s=10)", policies=["fixed(2)"])
    names = [measure.name for measure in found.pairs[0].measures]
    assert "tokens a step, fixed(3)" in names and not any("fixed(5)" in name for name in names)
    row = next(m for m in found.pairs[0].measures if m.name == "tokens a step, fixed(3)")
    (known,) = simkit.replay(one, "fixed(3)").records()
    assert row.first.value == pytest.approx(known["tokens_per_step"])
