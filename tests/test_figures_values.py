"""What figures draw is what statistics and replays say."""

from __future__ import annotations

import re

import numpy as np
import polars as pl
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure
from test_figures import COST, bare, draw, small

import simkit
from analysis import figures
from analysis.claims import Evidence
from analysis.figures import Drawn, FigureError, position_decay
from analysis.figures.arms import compare
from analysis.figures.drawing.captions import fitted
from analysis.figures.measures import speedup, tokens_per_s
from analysis.figures.plot import Plot
from analysis.figures.policies.gap_decomposition import _bar
from analysis.figures.tables import tables
from analysis.labelled_replays import choices, tuned
from analysis.papers import TableRow
from analysis.papers.pacer import DEEPSEEK, LLAMA
from analysis.replays import FAMILIES, of
from analysis.speeds import per
from analysis.stats import accepted_runs, depth, drafts, reliability, waste
from analysis.study import Study
from simkit.costs import Measured
from simkit.simulator.arguments import setting
from simkit.simulator.run import run
from simkit.steps import concurrent
from simkit.sweeps.folds import DEALS
from traces import scores
from traces.errors import UserError
from traces.memory import from_arrays
from traces.synthetic import decaying, iid
from traces.trace import load


@pytest.fixture(scope="module")
def trace():
    return small()


def test_position_decay_is_the_statistic():
    """The frame holds what `by_depth` gives, and that is the law of the trace."""
    law = (0.9, 0.8, 0.5, 0.4)
    trace = decaying(40, 200, law, max_draft=8, seed=3)
    found = position_decay(trace, max_draft=4).frame
    got = found.filter(pl.col("series") == "conditional")["acceptance"].to_numpy()
    assert got == pytest.approx(law, abs=0.05)
    layout = setting(trace, None, "draft").layout
    steps = drafts.fixed_steps(layout.ahead, layout.offsets, 200, 4)
    want = [e.value for e in depth.by_depth(steps, 4).marginal]
    marginal = found.filter(pl.col("series") == "marginal")["acceptance"].to_list()
    assert marginal == pytest.approx(want)


@pytest.mark.parametrize("first_token", ["draft", "prefill"])
def test_position_decay_counts_the_steps_of_the_replay(first_token):
    """A first token from the prefill is drafted by no step."""
    steps = simkit.replay("reference", "fixed(16)", first_token=first_token).steps()
    drafted = steps.filter(pl.col("proposed") > 0)
    found = position_decay("reference", first_token=first_token)
    row = found.frame.filter(series="conditional", depth=1)
    assert row["at_risk"].item() == len(drafted)
    assert row["acceptance"].item() == pytest.approx((drafted["accepted"] > 0).mean())
    assert f"{len(steps):,} steps of fixed(16)" in caption(found)
    at = Evidence(load("reference"), first_token=first_token).by_depth(16, 1)["with loops"].sum(0)
    assert at.tolist() == [len(drafted), (drafted["accepted"] == 0).sum()]


def test_optimal_gamma_is_the_replay(trace):
    found = draw("optimal_gamma", trace).frame
    got = found.filter((pl.col("series") == "all") & (pl.col("gamma") == 3))
    want = simkit.replay(trace, "fixed(3)", COST).frame["speedup"][0]
    assert got["speedup"][0] == pytest.approx(want)


def test_windows_are_tried_beyond_the_ratio_of_the_models(trace):
    cost = COST.replace("target_s=6", "target_s=12")  # T_target(1) = 12.1
    found = draw("pearl_window", trace, cost=cost).frame
    assert found["gamma"].max() == 14
    assert draw("mutual_waiting", trace, cost=cost).frame["gamma"].max() == 14
    assert draw("pearl_window", trace).frame["gamma"].max() == 10


def test_a_rule_that_was_not_timed_is_named(tmp_path):
    """Where others were: the bundled trace's times without those of the best rate's rule."""
    reference, file = load("reference"), tmp_path / "samples.parquet"
    samples = reference.latency()
    assert samples is not None
    pq.write_table(samples.filter(pc.field("component") != "policy:rate_optimal"), file)
    families = {"best rate": "rate_optimal", "SVIP": "svip(h=0.5)"}
    assert tuned(Study(reference), families)[1] == []
    said = tuned(Study(reference), families, Measured(file=str(file)))[1]
    assert said[0].startswith("Time of rules: rate_optimal: microbenchmark on this machine")


def test_the_rival_of_pacer_is_the_best_fixed_length():
    """Figure and table hold the same: the length tuned on other prompts, not the paper's 9."""
    trace = small(prompts=10)
    found = draw("pacer_components", trace)
    rival = of(Study(trace), COST).tuned_fixed()
    mine = of(Study(trace), COST).replay("pacer(block=4, threshold=0.7, growth=1.05)")
    (row,) = found.frame.filter(arm="best fixed").to_dicts()
    assert row["policy"] == rival.spec and rival.spec in found.ax.texts[0].get_text()
    assert row["speed"] == pytest.approx(mine.total_s.sum() / rival.total_s.sum())
    (table,) = (one for one in tables(trace, COST)[0] if one.source == "PACER Table 5")
    (cells,) = (one for one in table.rows if one[:2] == ["all", "Speculative"])
    assert cells[2] == f"{rival.counts['emitted'].sum() / rival.total_s.sum():.2f}"


def test_passes_and_tau_are_compared_in_pairs(trace):
    """τ ÷ τ with its interval over prompts, the paper's beside it; the same in both figures."""
    found, at = draw("forward_passes", trace).frame, of(Study(trace), COST)
    want = per(at.tuned(FAMILIES["PACER"]), at.tuned_fixed(), "accepted", "steps")
    (row,) = found.filter(task="all", measure="τ").to_dicts()
    assert (row["ratio"], row["ratio_lo"], row["ratio_hi"]) == (want.value, want.lo, want.hi)
    (paper,) = found.filter(task="paper", measure="τ").to_dicts()
    assert paper["ratio"] == pytest.approx(9.67 / 7.38)
    (row,) = draw("dynamic_policies", trace).frame.filter(policy="PACER").to_dicts()
    ends = row["tau_ratio"], row["tau_ratio_lo"], row["tau_ratio_hi"]
    assert ends == (want.value, want.lo, want.hi)


def test_parts_of_the_time_end_where_the_next_begins(trace):
    found = draw("runtime_breakdown", trace).frame
    for _, one in found.group_by("policy"):
        assert one["until"].to_list() == pytest.approx(one["share"].cum_sum().to_list())
        assert one["until"][-1] == pytest.approx(1)
        drawn = one.drop_nulls("until_lo")
        assert drawn.filter(pl.col("until").is_between("until_lo", "until_hi")).equals(drawn)


def test_baselines_are_the_papers_own(trace):
    """Assist is the heuristic with its defaults, SVIP's that of its code; tuned is a row more."""
    rows = {one.source: one.rows for one in tables(trace, COST)[0]}
    at, every = of(Study(trace), COST), np.ones(trace.n_sequences, bool)
    for name, spec in (("Assist", "heuristic"), ("heuristic, tuned", "heuristic(initial=1:19:3)")):
        want = tokens_per_s(at.tuned(spec), every)
        assert [r[2] for r in rows["PACER Table 1 and Fig. 3"] if r[:2] == ["all", name]] == [want]
        assert [r[-1] for r in rows["PACER Table 2"] if r[0] == name] == [want]
    spec = "heuristic(initial=5, feedback=nominal)"
    want = speedup(at.replay(spec), every)
    assert [r[-1] for r in rows["SVIP Table 1"] if r[0] == "Heuristics"] == [want]
    drawn = draw("draft_lengths", trace).frame.filter(policy="heuristic", task="all")
    counts = at.replay(spec).counts
    assert drawn["draft_length"][0] == counts["proposed"].sum() / counts["steps"].sum()


def test_captions_say_what_arguments_were_chosen_on():
    for prompts, words in ((4, "chosen on the prompts shown, fewer than 5"), (5, "on other")):
        texts = draw("frontier", small(prompts=prompts)).ax.texts
        said = " ".join(" ".join(one.get_text() for one in texts).split())
        assert words in said and said.count("chosen") == 1


@pytest.mark.parametrize("prompts", [4, 5])
def test_position_captions_say_what_settings_were_chosen_on(prompts):
    said = caption(draw("regret_by_position", small(prompts=prompts)))
    assert ("that most folds chose" in said) != ("chosen on the prompts shown" in said)
    assert ("that most folds chose" in said) == (prompts == 5)


def test_arms_that_are_missing_go_by_their_labels():
    one = iid(6, 48, 0.7, max_draft=40, seed=1)  # without scores
    arms = [TableRow("whole", "fixed(2)"), TableRow("w/o it", "pacer")]
    found = compare(Study(one), arms, "whole", {"here": COST})
    assert found.speeds["here"][1] is None
    assert found.notes == ["Without w/o it: no scores of pacer"]
    with pytest.raises(FigureError, match="^no scores of pacer, so there is nothing to"):
        compare(Study(one), arms, "w/o it", {"here": COST})


def test_table_15_names_the_length_under_each_pairs_times(trace):
    (note,) = (one.note for one in tables(trace, COST)[0] if one.source == "PACER Table 15")
    pairs = zip((DEEPSEEK, LLAMA), ("DeepSeek's", "Llama 2's"), strict=True)
    said = ", ".join(
        f"{choices(of(Study(trace), c).tuned_fixed())} for {w} times" for c, w in pairs
    )
    assert f"the best fixed length, {said}; arguments chosen" in note


def test_what_was_not_tuned_is_said_where_there_is_such():
    words = "is the fastest on these prompts"
    said = caption(draw("runtime_breakdown", small()))
    assert words in said and "Not tuned: svip(h=0.8)" in said
    one = iid(6, 20, 0.5, max_draft=4, seed=0)
    names = ("accepted", "draft_token", "target_token", "accept_prob")
    columns = {name: one.positions(name) for name in names}
    branches = {
        m: one.column("branches", m) for m in ("sequence", "position", "depth", "draft_token")
    }
    prompts = one.sequences.to_pydict()
    bare = from_arrays(prompts, columns, branches, max_draft=4, max_new_tokens=20)
    said = caption(draw("runtime_breakdown", bare))
    assert words in said and "Not tuned" not in said and "Without SVIP" in said


def caption(found: Drawn) -> str:
    """What the picture says, and the notes beside it."""
    return " ".join(" ".join((*(one.get_text() for one in found.ax.texts), *found.notes)).split())


BY_TASK = ("gap_decomposition", "policies_by_task", "regret_by_task", "forward_passes")


@pytest.mark.parametrize("name", (*BY_TASK, "acceptance_head"))
def test_captions_say_that_tasks_share_one_setting(name):
    words = "one setting for all tasks, chosen on other prompts"
    assert words in caption(draw(name, small(prompts=10)))
    alone = caption(draw(name, small(prompts=10, tasks=("code",))))
    assert words not in alone and "arguments chosen on other prompts" in alone


def test_a_family_is_named_after_what_most_folds_chose():
    """The setting of most folds comes first, as in `tune`, of equals the faster on all prompts."""
    at = of(Study("reference"), None)
    fixed, folds = at.tuned_fixed(), simkit.tune("reference", "fixed(0:20)").choices[0].folds
    assert sum(folds.values()) == 5 * DEALS
    assert [str(policy) for policy in fixed.choices] == list(folds)
    assert fixed.spec == at.best_fixed.spec == "fixed(4)"
    others = ", ".join(list(folds)[1:4])
    assert choices(fixed) == f"fixed(4) (in other folds {others})"
    assert choices(at.replay("fixed(4)")) == "fixed(4)"


def test_forward_passes_are_held_against_what_folds_chose():
    trace = small(prompts=10)
    found, fixed = draw("forward_passes", trace), of(Study(trace), COST).tuned_fixed()
    assert found.ax.get_ylabel() == "PACER ÷ the best fixed length"
    assert f"Best fixed length: {choices(fixed)}." in caption(found)


def test_the_time_s_parts_are_those_of_named_settings(trace):
    said = caption(draw("runtime_breakdown", trace))
    for spec in ("svip(h=0.8)", "specdecpp", "acceptance_head", "pacer"):
        assert str(simkit.policies.parse(spec)) in said.partition("Not tuned: ")[2]
    assert f"{of(Study(trace), COST).best_fixed.spec} is the fastest on these prompts" in said


def test_mutual_waiting_says_how_long_its_bars_are(trace):
    found = draw("mutual_waiting", trace)
    rows = found.frame.drop_nulls("ms_per_step_lo").filter(pl.col("ms_per_step") > 0)
    value, lo, hi = (rows[f"ms_per_step{end}"].to_numpy() for end in ("", "_lo", "_hi"))
    most = (np.maximum(hi - value, value - lo) / value).max()
    assert f"at most ±{most:.1%} of the value" in caption(found)


def test_frontier_says_how_many_are_compared():
    found = draw("frontier", iid(16, 30, 0.7, max_draft=20, seed=3))
    compared = len(found.frame) - 1  # oracle and prophet too, and not the fixed length itself
    assert f"for all {compared} at once" in caption(found)


def test_intervals_over_few_prompts_are_not_said_to_hold_together():
    """They do not: `against_fixed` gives each policy its own."""
    found = draw("dynamic_policies", iid(8, 30, 0.7, max_draft=20, seed=3))
    assert "each for its policy alone" in caption(found) and "at once" not in caption(found)


def test_what_a_caption_leaves_to_the_notes_keeps_its_symbols():
    """A γ at its beginning is the draft length; Γ would be the deepest draft that was recorded."""
    assert fitted(["Some words."] * 8 + ["γ = round(c) = 8."], 60, 9)[1] == ("γ = round(c) = 8.",)
    assert fitted(["Some words."] * 8 + ["other words."], 60, 9)[1] == ("Other words.",)


WITHOUT_SCORES = {
    "pacer_block": "no scores of pacer",
    "pacer_threshold": "no scores of pacer",
    "pacer_components": "no scores of pacer, so there is nothing to compare with",
    "acceptance_head": "no scores of acceptance_head",
}


@pytest.mark.parametrize("name", WITHOUT_SCORES)
def test_what_is_lacking_is_said_once_and_plainly(name):
    with pytest.raises(UserError) as error:
        figures.FIGURES[name].under(iid(6, 20, 0.7, max_draft=20, seed=3), COST)
    assert str(error.value) == WITHOUT_SCORES[name]


def test_what_an_import_cannot_show_is_said():
    """Without columns of the drafts no rule reads them; six prompts are a cell each."""
    blind = bare(iid(6, 20, 0.7, max_draft=20, seed=3))
    for name in ("gap_decomposition", "runtime_breakdown"):
        assert "no rule that looks at the drafts" in draw(name, blind).nothing
    trace = small()
    assert "in any cell" in figures.best_policy_map(trace).nothing
    assert not draw("gap_decomposition", trace).nothing
    assert "(the default)" in caption(figures.runtime_breakdown(trace))


def test_no_gap_is_drawn_as_none():
    """All accepted in drafts that reach the end: what is left is rounding, and no bar."""
    trace = iid(24, 16, 1.0, max_draft=20, seed=3, tasks=("code", "prose"))
    found = draw("gap_decomposition", trace, cost="linear(draft_s=0.1, target_s=1.1)")
    assert found.frame["seconds"].to_list() == [0.0] * 9
    assert found.frame["of_fixed"].to_list() == [0.0] * 9
    assert found.frame["of_gap"].null_count() == 9
    assert caption(found).count("no gap") == 3 and found.ax.get_xlim() == (0, 1)


def test_the_interval_of_a_loss_is_drawn_about_the_loss(trace):
    ax = Figure().subplots()
    reachable = np.linspace(-0.2, 0.0, 12)
    seconds = {"fixed": np.ones(12), "gap": np.full(12, 0.5), "reachable": reachable}
    seconds |= {"overhead": np.full(12, 0.1), "unreachable": 0.4 - reachable}
    plot = Plot(Study(trace), ax)
    _bar(plot, 0, "code", seconds)
    row = plot.rows[0]
    bar = next(c.lines[2][0] for c in ax.containers if isinstance(c, ErrorbarContainer))
    assert row["of_fixed"] == pytest.approx(-0.1)
    drawn = bar.get_segments()[0][:, 0]
    assert drawn == pytest.approx([row["of_fixed_lo"], row["of_fixed_hi"]])


def test_an_estimate_of_a_given_c_is_said_to_be(trace):
    found = figures.entropy_bound("reference", c=0.15)
    words = caption(found)
    assert "the estimate, here of c = 0.15, lies below β in 0.89" in words
    assert found.frame.filter(series="c of the estimate")["value"].item() == 0.15
    assert found.frame.filter(series="c")["value"].item() == pytest.approx(0.0635, abs=1e-4)


def test_equals_get_no_star():
    """All accepted: the rules draft as much as the longest fixed length, in the same time."""
    trace = iid(24, 16, 1.0, max_draft=20, seed=3)
    found = figures.best_policy_map(trace, groups=2)
    assert found.frame["chosen"].max() == 0
    assert not [one for one in found.ax.texts if re.fullmatch(r"[\d.]+\*", one.get_text())]


def test_mean_accepted_is_the_simulator_s(trace):
    where = setting(trace, COST, "draft")
    for spec in ("pearl(5)", "fixed(5)"):
        steps, _ = run(simkit.policies.parse(spec), *where).steps()
        found = accepted_runs.mean_accepted(accepted_runs.runs_of_prompts(steps))
        assert found.value == pytest.approx(concurrent.mean_accepted(steps))


def test_seconds_by_position_sum_to_the_whole(trace):
    where = setting(trace, COST, "draft")
    steps, seconds = run(simkit.policies.parse("fixed(5)"), *where).steps()
    assert seconds is not None
    edges = np.array([1, 10, 25, 49])
    found = waste.by_position(steps, seconds["verify_s"], edges)
    want = np.bincount(steps.sequence, seconds["verify_s"])
    assert found.sum(1) == pytest.approx(want)
    assert (found >= 0).all()


def test_reliability_is_the_statistic(trace):
    found = figures.reliability(trace, bins=5).frame
    scored = scores.load(trace, "specdecpp").path
    want = reliability.reliability(scored, trace.positions("accepted"), trace.position_offsets, 5)
    mine = found.filter(signal="SpecDec++ head")
    assert mine["accepted"].drop_nulls().to_list() == [e.value for e in want.accepted]
    assert mine["error"].drop_nulls().to_list() == [want.error.value]
    assert mine["rows"].sum() == trace.n_positions


def test_reliability_without_scores_says_so():
    found = figures.reliability(iid(6, 20, 0.7, max_draft=20, seed=3))
    signals = found.frame["signal"].unique(maintain_order=True).to_list()
    assert signals == ["draft's probability", "1 − √(0.15 H(q))"]
    missing = [line for line in found.notes if line.startswith("Without")]
    assert (
        missing[0] == "Without acceptance head: no scores of acceptance_head." and len(missing) == 2
    )


def test_regret_and_overhead_by_hand():
    assert waste.regret(np.array([2.0, 4.0]), np.array([1.0, 3.0])).value == pytest.approx(0.5)
    counts = {"drafted": np.array([4, 4]), "accepted": np.array([2, 4])}
    seconds = {
        "draft_s": np.array([4.0, 4.0]),
        "policy_s": np.array([1.0, 0.0]),
        "verify_s": np.array([5.0, 6.0]),
        "baseline_s": np.array([99.0, 99.0]),
    }  # 2 of 4 draft seconds lost, and 1 of decisions, in 20 seconds
    assert waste.overhead_share(counts, seconds).value == pytest.approx(3 / 20)


@pytest.mark.parametrize("n_prompts, kept", [(40, True), (40_000, False)])
def test_replays_of_a_long_trace_are_not_kept_between_figures(n_prompts, kept):
    """5 million positions are long; their columns are made when they are asked for."""
    trace = iid(n_prompts, 128, 0.7, max_draft=4, seed=1)
    study = Study(trace)
    at = of(study, COST)
    study.make_room()
    assert of(study, COST) is at
    study.make_room(replays=True)
    assert (of(study, COST) is at) == kept
