"""Advice: what a plain sweep finds, prices by brute force, what cannot be told, words."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from commands import refused, run

import simkit
import traces
from analysis.advise import Advice, advise
from analysis.advise.candidates import NONE, Setting, regret, tried
from analysis.advise.load import AtLoad, LoadAdvice
from analysis.advise.price import Piece, alike, break_even, pieces, today
from analysis.stats import Estimate
from analysis.study import MissingError, Study
from traces.errors import UserError
from traces.subset import select

GPU = "atlas(target=llama-3.1-8b, draft=qwen2.5-0.5b)"
DEAR = "linear(draft_s=1, target_s=1)"  # drafts as dear as the target


@cache
def small():
    whole = traces.load("reference")
    return select(whole, range(0, 128, 5), latency=whole.latency())


@cache
def advised(cost: str | None = None, engine: str | None = None) -> Advice:
    return advise(small(), cost, engine=engine)


def test_the_advised_setting_is_the_best_of_a_plain_sweep():
    found = tried(Study(small()), None)
    swept = simkit.sweep(small(), sorted({one.policy for one in found.settings[1:]}))
    whole = (
        swept.frame.filter(swept.frame["task"].is_null())
        if "task" in swept.frame.columns
        else swept.frame
    )
    best = whole.sort("speedup", descending=True).row(0, named=True)
    assert found.best.policy == best["policy"]
    assert advised().setting == found.best


def test_following_it_is_judged_on_prompts_that_had_no_part():
    found = advised()
    assert found.speedup.value is not None
    in_sample = found.rows[0].speedup
    one = simkit.replay(small(), found.setting.policy).records()[0]["speedup"]
    assert found.speedup.value <= one + 1e-12
    assert in_sample.value is not None
    assert all((row.against.value or 0) >= 0.97 for row in found.rows)


@pytest.mark.parametrize("cost", [None, GPU, DEAR])
def test_pieces_are_the_fastest_settings_at_every_price(cost):
    found = tried(Study(small()), cost)
    some = pieces(found)
    assert some[0].low == 0
    assert np.isinf(some[-1].high)
    assert [one.high for one in some[:-1]] == [one.low for one in some[1:]]
    assert some[today(some)].setting[:2] == found.best[:2]
    for price in (0, 0.01, 0.3, 0.9, 1, 1.1, 3, 10, 1000):
        seconds = found.total_s + (price - 1) * found.draft_s
        piece = next(one for one in some if one.low <= price < one.high)
        fastest = [
            s
            for s, t in zip(found.settings, seconds, strict=True)
            if t <= seconds.min() * (1 + 1e-9)
        ]
        assert piece.setting[:2] in [one[:2] for one in fastest], price


def test_where_drafts_do_not_pay_none_are_advised():
    found = advised(DEAR)
    assert found.setting.family == NONE
    assert found.answer.startswith(
        "Do not draft: no drafter and no rule is faster than the target alone (times: linear("
    )
    assert found.even is None
    assert found.config == ""
    assert "drafting does not pay even for one request" in found.sentences()[-1]


def test_where_none_are_advised_the_fastest_rule_may_be_no_slower():
    found = advised(DEAR)
    first = found.rows[0]
    close = replace(first, against=Estimate(1.01, 0.98, 1.04, 26))
    said = replace(found, rows=(close, *found.rows[1:])).sentences()
    assert any(f"no difference to {first.setting.words}" in line for line in said)


def test_at_the_break_even_drafting_takes_as_long_as_the_target_alone():
    """With as many steps as make so many tokens each; prefills are paid whatever these are."""
    cost = "linear(draft_s=0.001, target_s=0.01, target_per_token_s=0.001)"
    found = tried(Study(small()), cost, drafters=["own"])
    even = break_even(found, found.best)
    one = found.replay(found.best)
    prefill_s, steps = one.seconds["prefill_s"].sum(), one.counts["steps"].sum()
    a_step_s = (one.total_s.sum() - prefill_s) / steps
    assert prefill_s > 0.05 * one.total_s.sum() and even is not None
    assert even.now == pytest.approx(one.counts["tokens"].sum() / steps)
    taken_s = prefill_s + one.counts["tokens"].sum() / even.least * a_step_s
    assert taken_s == pytest.approx(found.baseline_s.sum())


def test_regret_is_none_where_one_setting_is_always_the_fastest():
    rng = np.random.default_rng(0)
    fast = rng.uniform(1, 2, 20)
    assert regret(np.stack([fast, fast * 1.1])) == 0
    other = fast.copy()
    other[:10] *= 0.5
    other[10:] *= 1.6
    assert regret(np.stack([fast, other])) > 0.05
    assert np.isnan(regret(fast[None, :1]))


@pytest.mark.parametrize("noise", [0.02, 0.04])
def test_regret_holds_on_as_many_other_prompts(noise):
    """Ten settings that are alike: the best of one sample loses no more on another, in 97.5%."""
    rng = np.random.default_rng(0)
    held = 0
    for _ in range(200):
        one, other = np.exp(noise * rng.standard_normal((2, 10, 40)))
        ranked = one[np.argsort(one.sum(1))]
        again = other[np.argsort(one.sum(1))].sum(1)
        held += again[0] / again.min() - 1 <= regret(ranked)
    assert held >= 188  # of 195 expected


def test_drafters_that_the_cost_does_not_tell_apart_are_not_chosen_between():
    """An atlas has one draft model; by their own times, or alone, the same drafters have prices."""
    found = advise("reference-target", GPU)
    assert found.setting.drafter == "pard2" and found.alike == ("pard2", "draft", "eagle", "pard")
    assert "one price for the draft passes of pard2, draft, eagle, pard (see" in found.answer
    assert advise("reference-target").alike == ()
    assert advise("reference-target", GPU, drafters=["pard2"]).alike == ()


def test_nor_are_they_refused_by_such_a_price():
    """What needs no draft model is the fastest: one of those priced alike may be faster still."""
    found = tried(Study("reference-target"), GPU)
    free, slow = Setting("suffix", "fixed", "fixed(9)"), Setting("eagle", "fixed", "fixed(2)")
    some = [Piece(slow, 0, 0.5), Piece(free, 0.5, np.inf)]
    assert alike(found, free, some) == ("eagle", "draft", "pard", "pard2")
    assert alike(found, Setting("draft", NONE, "autoregressive"), some)[0] == "eagle"
    far = [Piece(slow, 0, 0.01), Piece(free, 0.01, np.inf)]
    assert alike(found, free, far) == ()


def test_its_worth_without_outputs_that_loop():
    found = advise("reference", GPU, drafters=["own"])
    study = Study("reference")
    looped = np.diff(
        np.concatenate([[0], np.cumsum(study.loops.rows)])[study.trace.position_offsets]
    )
    kept = np.flatnonzero(looped < 0.1 * study.trace.sequences["n_output"].to_numpy())
    (row,) = simkit.replay(select(study.trace, kept), found.setting.policy, GPU).records()
    assert found.apart is not None and found.apart.n_prompts == len(kept)
    assert found.apart.value == pytest.approx(row["speedup"])
    assert f"On the {len(kept)} outputs that do not repeat themselves" in str(found)
    assert found.records()[0]["apart"]["value"] == found.apart.value


def test_few_prompts_cannot_tell():
    found = advise(select(small(), range(5)), GPU)
    assert not found.sure
    assert "This is not settled: 5 prompts are too few to choose by" in found.answer


def test_a_load_at_which_nothing_changes_is_said():
    found = advised(GPU)
    at = (
        AtLoad(1, "fixed(3)", *(2 * [found.speedup])),
        AtLoad(64, "fixed(1)", *(2 * [found.speedup])),
    )
    for note, word in (("at or above", "no slower"), ("below", "slower")):
        off = Estimate(None, None, None, 8, f"{note} from the first load to the last")
        said = str(replace(found, load=LoadAdvice(at, off)))
        assert f"From 1 to 64 in flight, {found.setting.policy} is {word} than no drafts." in said


def test_an_engine_is_advised_what_it_can_run():
    found = advised(GPU, "transformers")
    assert {row.setting.family for row in found.rows} <= {
        "fixed",
        "confidence",
        "confidence, adaptive",
    }
    assert found.default[0].startswith("confidence(threshold=0.4")
    assert json.loads(found.config)["num_assistant_tokens"] > 0
    assert "SVIP" in " ".join(found.gone)
    assert advised().default == ""


def test_an_engine_without_a_default_is_said_to_have_none():
    said = "vllm has no default draft length to compare with."
    assert advised(GPU, "vllm").default == said
    assert said in advised(GPU, "vllm").sentences()
    assert advised(GPU, "sglang").default[0] == "fixed(3)"


def test_an_engines_default_is_that_with_a_draft_model():
    found = advise(traces.load("reference", "eagle"), GPU, engine="sglang")
    assert found.default == "sglang's default, fixed(3), is for draft models: it is not compared."


def test_rows_are_in_the_order_that_is_said():
    found = advised(GPU)
    speedups = [row.speedup.value for row in found.rows[1:]]
    assert found.rows[0].setting[:2] == found.setting[:2]
    assert speedups == sorted(speedups, reverse=True)
    assert "is the first row. The others follow by tuned speedup" in found.table().note
    assert "first row" not in advised(DEAR).table().note
    assert "first row" not in replace(found, rows=found.rows[:1]).table().note


def test_load_is_served_where_times_are_of_batches():
    at = advised(GPU).load
    assert not isinstance(at, str)
    assert [one.requests for one in at.at] == [1, 4, 16, 64]
    assert all((one.gain.value or 0) >= (one.advised.value or 0) for one in at.at)
    assert str(advised().load).startswith("Load was not simulated, because the times are those of")


@pytest.mark.parametrize("name", ["reference", "reference-target"])
def test_drafters_of_a_recording_are_held_against_each_other(name):
    found = tried(Study(traces.load(name)), None)
    drafters = {one.drafter for one in found.settings}
    assert {"suffix", "prompt_lookup"} <= drafters
    assert ("own" in drafters) == (name == "reference")
    (only,) = tried(Study(traces.load(name, "suffix")), None).replays
    assert only == "suffix"


def test_what_cannot_be_advised_is_said():
    with pytest.raises(MissingError, match="needs times: the trace holds none"):
        advise(select(small(), range(6)))
    with pytest.raises(traces.TraceError, match="no such folder and no bundled trace"):
        advise("nothing-there")
    with pytest.raises(UserError, match="concurrency must be a whole number"):
        advise("reference", concurrency=2.5)  # type: ignore[arg-type]


def test_command_and_words(capsys):
    words = ["advise", "reference-target", "--drafter", "suffix", "--format", "json"]
    ended, out, said = run(capsys, *words)
    assert ended == 0, said
    (record,) = json.loads(out)
    assert record["answer"].startswith("Draft with suffix and stop by ")
    assert record["sure"] in (True, False)
    found = advised()
    assert str(found).startswith(found.answer)
    assert found.markdown().startswith(found.answer)
    assert found.answer in found._repr_html_().replace("&#x27;", "'")
    assert found.frame.height == len(found.rows)
    assert found.rows[0].setting.words == found.setting.policy
    assert Setting("suffix", "fixed", "fixed(3)").words == "fixed(3) on suffix"


def test_drafters_and_loads_that_are_asked_for(capsys):
    words = ["advise", "reference", "--cost", GPU, "--format", "json", "--drafter", "own"]
    ended, out, said = run(capsys, *words, "--concurrency", 8, "--concurrency", 2)
    assert ended == 0, said
    (record,) = json.loads(out)
    assert {row["drafter"] for row in record["rows"]} == {"own"}
    assert "eagle" not in out + said and "different pairs" in out + said
    assert "no time for the head acceptance_head: its calls are not charged" in out + said
    assert [one["requests"] for one in record["load"]["at"]] == [2, 8]
    assert "no drafter 'owm'" in refused(capsys, *words[:-1], "owm")


def test_an_engine_is_advised_no_drafter_in_whose_place_it_has_its_own():
    found = advise("reference", GPU, engine="llama.cpp")
    assert {row.setting.drafter for row in found.rows} <= {"own", "eagle"}
    assert "suffix: llama.cpp has no such drafter, but one of its own" in " ".join(found.gone)
    assert "--spec-type" in found.config


def test_trees_and_costs_that_cannot_be_read_are_refused_in_one_line(capsys):
    line = refused(capsys, "advise", "reference-trees", "--drafter", "eagle-tree")
    assert "nothing to choose from: " in line
    assert "trees are not tried" in line
    cost = "linear(draft_s=nan, target_s=1)"
    line = refused(capsys, "advise", "reference", "--cost", cost)
    assert line == "simkit: linear: draft_s must be a number >= 0, not 'nan'"


def test_all_rules_have_one_longest_draft():
    """Also where a drafter holds fewer tokens than a rule's default."""
    found = tried(Study(traces.load("reference", "pard")), GPU)
    deepest = {simkit.policies.parse(one.policy).max_draft for one in found.settings[1:]}
    assert deepest == {8}
    assert "llama.cpp" in {one.setting.family for one in found.families} or any(
        "draft_top1_prob" in line for line in found.gone
    )
