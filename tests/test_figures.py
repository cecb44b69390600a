"""Figures: what is drawn is in the frame, and traces that lack something are told so."""

from __future__ import annotations

import re
from pathlib import Path

import matplotlib as mpl
import numpy as np
import polars as pl
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from matplotlib.figure import Figure
from replay_traces import with_scores
from test_lattice import spelled_out

import simkit
from analysis import figures
from analysis.figures import FIGURES, Drawn, FigureError, position_decay
from analysis.figures.replayed import tuned
from analysis.figures.tables import speedup, tables, tokens_per_s
from analysis.replays import FAMILIES, of, per
from analysis.stats import accepted_runs, depth, drafts, waste
from analysis.stats import calibration as reliability
from simkit.cli import main
from simkit.costs import Measured
from simkit.simulator import parallel
from simkit.simulator.given import setting
from simkit.simulator.run import run
from traces import Sampler, schema, scores
from traces.errors import UserError
from traces.memory import from_arrays
from traces.synthetic import decaying, iid
from traces.trace import load

COST = "linear(draft_s=1, target_s=6, target_per_token_s=0.1)"


def draw(name: str, trace, **options) -> Drawn:
    """A figure, under a made-up cost if it takes one."""
    entry = FIGURES[name]
    if "cost" in entry.draw.__wrapped__.__annotations__:  # type: ignore[attr-defined]
        options.setdefault("cost", COST)
    return entry.draw(trace, **options)


def small(accept_prob: float = 0.7, tasks=("code", "prose"), prompts: int = 6, **more):
    trace = iid(prompts, 48, accept_prob, max_draft=40, seed=1, tasks=tasks, **more)
    return with_scores(trace)


@pytest.fixture(scope="module")
def trace():
    return small()


def check(found: Drawn) -> None:
    """Numbers are numbers, and what is missing is null."""
    assert isinstance(found, Drawn) and len(found.frame)
    floats = found.frame.select(pl.selectors.float())
    assert not any(floats[column].is_nan().any() for column in floats.columns)
    assert found.ax.get_title(loc="left") and found.ax.get_xlabel() + found.ax.get_ylabel()
    found.figure.canvas.draw()


@pytest.mark.parametrize("name", FIGURES)
def test_draws(name, trace, tmp_path):
    before = dict(mpl.rcParams)
    found = draw(name, trace)
    check(found)
    assert found.name == name
    assert FIGURES[name].what and FIGURES[name].source
    for path in found.save(tmp_path):
        assert path.stat().st_size
    assert pl.read_parquet(tmp_path / f"{name}.parquet").equals(found.frame)
    assert dict(mpl.rcParams) == before


@pytest.mark.parametrize("name", FIGURES)
@pytest.mark.parametrize("accept_prob", [0.0, 1.0])
def test_all_one_way(name, accept_prob):
    """All tokens rejected, or all accepted: drawn, or refused in one line."""
    try:
        check(draw(name, small(accept_prob)))
    except UserError as error:
        assert "\n" not in str(error)


@pytest.mark.parametrize("name", FIGURES)
def test_one_prompt_a_task(name):
    """There is no interval, and the caption or the notes say so; never a NaN."""
    found = draw(name, small(prompts=3, tasks=("code", "prose", "code")))
    check(found)
    alone = draw(name, small(prompts=1))
    check(alone)
    lows = [column for column in alone.frame.columns if column.endswith("_lo")]
    drawn = [c for c in lows if c not in ("bin_lo", "ratio_lo")]
    kept = alone.frame
    if "series" in kept.columns and name == "position_decay":
        kept = kept.filter(pl.col("series") != "greenwood")
    assert all(kept[column].is_null().all() for column in drawn)


def test_empty_trace():
    for name in FIGURES:
        with pytest.raises(UserError, match="empty"):
            draw(name, iid(0, 20, 0.5, max_draft=10, seed=0))


def test_short_branches():
    """Γ = 4: nothing drafts deeper, and what cannot be replayed is left out."""
    trace = with_scores(iid(6, 40, 0.7, max_draft=4, seed=2))
    for name in FIGURES:
        try:
            check(draw(name, trace))
        except FigureError as error:
            assert "\n" not in str(error)


def bare(trace):
    """Only what a recording must hold."""
    names = ("accepted", "draft_token", "target_token")
    return from_arrays(
        trace.sequences.to_pydict(),
        {name: trace.positions(name) for name in names},
        {name: trace.branches(name) for name in ("sequence", "position", "depth", "draft_token")},
        max_draft=trace.max_draft,
        max_new_tokens=trace.max_new_tokens,
    )


def nameless(trace):
    """Prompts without a task, and an empty one."""
    names = [None, "", "code"] * trace.n_sequences
    table = trace.sequences.to_pydict() | {"task": names[: trace.n_sequences]}
    columns = [n for n in schema.POSITIONS.names if n not in ("sequence", "position")]
    return from_arrays(
        table,
        {name: trace.positions(name) for name in columns},
        {name: trace.branches(name) for name in schema.BRANCHES.names},
        max_draft=trace.max_draft,
        max_new_tokens=trace.max_new_tokens,
    )


SAMPLED = Sampler(temperature=1.0)
EDGES = {
    "no scores": lambda: iid(6, 20, 0.7, max_draft=20, seed=3),
    "T = 1": lambda: with_scores(iid(6, 20, 0.7, max_draft=20, seed=3, sampler=SAMPLED)),
    "only tokens": lambda: bare(iid(6, 20, 0.7, max_draft=20, seed=3)),
    "lattice": lambda: spelled_out(with_scores(iid(6, 20, 0.7, max_draft=20, seed=3))),
    "no task": lambda: nameless(iid(6, 20, 0.7, max_draft=20, seed=3)),
    "one token": lambda: iid(6, 1, 0.7, max_draft=3, seed=3),
    "one token drafted": lambda: with_scores(iid(6, 20, 0.7, max_draft=1, seed=3)),
    "one prompt, all accepted": lambda: with_scores(iid(1, 20, 1.0, max_draft=20, seed=3)),
}
LATTICE = {"frontier", "gap_decomposition", "policies_by_task", "regret_by_task", "batch_speedup"}


@pytest.mark.parametrize(
    ("edge", "cost"), [*((edge, COST) for edge in EDGES), ("T = 1", None), ("lattice", None)]
)
def test_edges(edge, cost):
    """Every figure and table of every trace: drawn without a NaN, or refused in one line."""
    trace, drawn = EDGES[edge](), set()
    for name, entry in FIGURES.items():
        try:
            found = entry.under(trace, cost)
        except UserError as error:
            assert str(error) and "\n" not in str(error), name
            continue
        drawn.add(name)
        floats = found.frame.select(pl.selectors.float())
        assert not any(floats[column].is_nan().any() for column in floats.columns), name
    if edge == "T = 1" and cost:
        assert drawn == set(FIGURES)
    if edge == "lattice" and cost:
        assert drawn >= LATTICE
    if cost is None:
        with pytest.raises(UserError, match="needs times"):
            tables(trace, cost)
        return
    found, gone = tables(trace, cost)
    assert all("\n" not in line for line in gone)
    assert all("nan" not in cell for table in found for row in table.rows for cell in row)


def test_tables_have_the_papers_rows(trace):
    """All tables in form, as wide as their heads; numbers are those of the replay."""
    found, gone = tables(trace, COST)
    assert not gone and {one.name for one in found} <= set(FIGURES)
    assert all(len(row) == len(one.heads) for one in found for row in one.rows)
    sources = " ".join(one.source for one in found)
    for number in (1, 2, 3, 5, 6, 7, 8, 11, 12, 13, 15, 16):
        assert re.search(rf"PACER Table {number}\b", sources), number
    for name in (
        "SVIP Table 1",
        "Acceptance head Table 1",
        "PEARL Table 4",
        "PEARL Tables 5 and 6",
    ):
        assert name in sources
    (fixed,) = (one for one in found if one.source.startswith("PACER Table 16"))
    row = simkit.replay(trace, "fixed(3)", COST).frame.row(0, named=True)
    assert fixed.rows[2][-1] == f"{row['emitted'] / row['total_s']:.2f}"
    assert fixed.markdown().startswith("### PACER Table 16, PEARL Table 14\n\n| γ | code |")


def test_docs_hold_every_table():
    page = (Path(__file__).parents[1] / "docs" / "tables.md").read_text(encoding="utf-8")
    for one in tables(small(), COST)[0]:
        assert f"### {one.source}\n" in page


def test_missing_column():
    trace = iid(4, 20, 0.5, max_draft=4, seed=0)
    names = ("accepted", "draft_token", "target_token", "accept_prob")
    bare = from_arrays(
        trace.sequences.to_pydict(),
        {name: trace.positions(name) for name in names},
        {},
        max_draft=4,
        max_new_tokens=20,
    )
    with pytest.raises(FigureError, match="no column draft_entropy, cross_entropy, overlap"):
        FIGURES["entropy_bound"].draw(bare)
    check(FIGURES["position_decay"].draw(bare))


def test_no_times():
    with pytest.raises(UserError, match="needs times"):
        FIGURES["optimal_gamma"].draw(iid(4, 20, 0.5, max_draft=4, seed=0))


def test_step_lengths_without_times():
    """All but the best fixed length, and the caption says so."""
    trace = iid(4, 20, 0.5, max_draft=4, seed=0)
    found = figures.step_lengths(trace)
    assert found.notes == ("No times, so no best fixed length.",)
    assert found.notes[0] in found.ax.texts[-1].get_text()
    timed = figures.step_lengths(trace, cost=COST)
    assert found.frame.equals(timed.frame.drop("best_fixed")) and not timed.notes


def test_draws_on_given_axes(trace):
    ax = Figure().subplots()
    assert position_decay(trace, ax).ax is ax


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
    assert tuned(reference, families)[1] == []
    said = tuned(reference, families, Measured(file=str(file)))[1]
    assert said == ["The rule of best rate was not timed: it is free."]


def test_the_rival_of_pacer_is_the_best_fixed_length():
    """Figure and table hold the same: the length tuned on other prompts, not the paper's 9."""
    trace = small(prompts=10)
    found = draw("pacer_components", trace)
    rival = of(trace, COST).tuned_fixed()
    mine = of(trace, COST).replay("pacer(block=4, threshold=0.7, growth=1.05)")
    (row,) = found.frame.filter(arm="best fixed").to_dicts()
    assert row["policy"] == rival.spec and rival.spec in found.ax.texts[0].get_text()
    assert row["speed"] == pytest.approx(mine.total_s.sum() / rival.total_s.sum())
    (table,) = (one for one in tables(trace, COST)[0] if one.source == "PACER Table 5")
    (cells,) = (one for one in table.rows if one[:2] == ["all", "Speculative"])
    assert cells[2] == f"{rival.counts['emitted'].sum() / rival.total_s.sum():.2f}"


def test_passes_and_tau_are_compared_in_pairs(trace):
    """τ ÷ τ with its interval over prompts, the paper's beside it; the same in both figures."""
    found, at = draw("forward_passes", trace).frame, of(trace, COST)
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
    at, every = of(trace, COST), np.ones(trace.n_sequences, bool)
    for name, spec in (("Assist", "heuristic"), ("heuristic, tuned", "heuristic(initial=1:19:3)")):
        want = tokens_per_s(at.tuned(spec), every)
        assert [r[2] for r in rows["PACER Table 1"] if r[:2] == ["all", name]] == [want]
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


def test_mean_accepted_is_the_simulator_s(trace):
    where = setting(trace, COST, "draft")
    for spec in ("pearl(5)", "fixed(5)"):
        steps, _ = run(simkit.policies.parse(spec), *where).steps()
        found = accepted_runs.mean_accepted(accepted_runs.runs_of_prompts(steps))
        assert found.value == pytest.approx(parallel.mean_accepted(steps))


def test_seconds_by_position_sum_to_the_whole(trace):
    where = setting(trace, COST, "draft")
    steps, seconds = run(simkit.policies.parse("fixed(5)"), *where).steps()
    assert seconds is not None
    edges = np.array([1, 10, 25, 49])
    found = waste.by_position(steps, seconds["verify_s"], edges)
    want = np.bincount(steps.sequence, seconds["verify_s"])
    assert found.sum(1) == pytest.approx(want)
    assert (found >= 0).all()


def test_calibration_is_the_statistic(trace):
    found = figures.calibration(trace, bins=5).frame
    scored = scores.load(trace, "specdecpp").path
    want = reliability.calibration(scored, trace.positions("accepted"), trace.position_offsets, 5)
    mine = found.filter(signal="SpecDec++ head")
    assert mine["accepted"].drop_nulls().to_list() == [e.value for e in want.accepted]
    assert mine["error"].drop_nulls().to_list() == [want.error.value]
    assert mine["rows"].sum() == trace.n_positions


def test_calibration_without_scores_says_so():
    found = figures.calibration(iid(6, 20, 0.7, max_draft=20, seed=3))
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


def test_command_lists(capsys):
    with pytest.raises(SystemExit, match="0"):
        main(["figures", "--list"])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(FIGURES)


def test_command_writes(tmp_path, capsys):
    names = ("entropy_bound", "position_decay")
    with pytest.raises(SystemExit, match="0"):
        main(
            [
                "figures",
                "reference",
                "--out",
                str(tmp_path),
                "--only",
                *" --only ".join(names).split(),
            ]
        )
    assert "2 of 2 figures" in capsys.readouterr().out
    ends = ("parquet", "png", "svg")
    assert {p.name for p in tmp_path.iterdir()} == {f"{n}.{end}" for n in names for end in ends}


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["reference"], "needs a TRACE and --out"),
        (["reference", "--out", "x", "--only", "entropy_bounds"], "did you mean entropy_bound"),
        (["no-such-trace", "--out", "x"], "no-such-trace"),
        (["reference", "--out", "x", "--cost", "nonsense", "--only", "optimal_gamma"], "nonsense"),
        (["reference", "--out", "x", "--cost", "nonsense", "--only", "entropy_bound"], "nonsense"),
    ],
)
def test_command_refuses(arguments, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit, match="2"):
        main(["figures", *arguments])
    err = capsys.readouterr().err
    assert message in err and err.count("\n") == 1


def test_gallery_shows_every_figure():
    docs = Path(__file__).parents[1] / "docs"
    page = (docs / "gallery.md").read_text()
    shown = set(re.findall(r"\(gallery/([\w-]+)\.png\)", page))
    kept = {path.stem for path in (docs / "gallery").glob("*.png")}
    assert shown == kept and set(FIGURES) <= kept
    assert all(p.stat().st_size <= 60_000 for p in (docs / "gallery").iterdir())
