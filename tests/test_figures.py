"""Figures: what is drawn is in the frame, and traces that lack something are told so."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import matplotlib as mpl
import polars as pl
import pytest
from commands import refused, run
from matplotlib.figure import Figure
from printed import fit_to_print
from replay_traces import bare_trace, with_scores
from test_lattice import spelled_out

import simkit
from analysis import figures
from analysis.figures import FIGURES, Drawn, FigureError, position_decay
from analysis.figures.drawing.axes import spell_out
from analysis.figures.tables import tables
from analysis.replays import groups
from analysis.study import Study
from traces import Sampler, schema
from traces.errors import UserError
from traces.memory import from_arrays
from traces.synthetic import iid

pytestmark = pytest.mark.usefixtures("few_requests")

TOO_SHORT = "drafts in this trace have at most max_draft"
SINGLE = [name for name, one in FIGURES.items() if not (one.drafters or one.trees)]
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
    fit_to_print(found)


@pytest.mark.parametrize("name", SINGLE)
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


def drawn_or_refused(draw_one, refused: dict[str, frozenset[str]]) -> None:
    """Every figure is drawn, but those that are named, for the reason given, in one line."""
    why = {name: reason for reason, names in refused.items() for name in names}
    assert why.keys() <= set(SINGLE)
    for name in SINGLE:
        if name not in why:
            check(draw_one(name))
            continue
        with pytest.raises(UserError, match=why[name]) as caught:
            draw_one(name)
        assert "\n" not in str(caught.value), name


@pytest.mark.parametrize("accept_prob", [0.0, 1.0])
def test_all_one_way(accept_prob):
    """All tokens rejected, or all accepted."""
    trace = Study(small(accept_prob))
    none = {"accepts no token": frozenset({"dynamic_policies"})}
    drawn_or_refused(lambda name: draw(name, trace), none if accept_prob == 0 else {})


@pytest.fixture(scope="module")
def few():
    return Study(small(prompts=3, tasks=("code", "prose", "code"))), Study(small(prompts=1))


@pytest.mark.parametrize("name", SINGLE)
def test_one_prompt_a_task(name, few):
    """There is no interval, and the caption or the notes say so; never a NaN."""
    found, alone = (draw(name, study) for study in few)
    check(found)
    check(alone)
    lows = [column for column in alone.frame.columns if column.endswith("_lo")]
    drawn = [c for c in lows if c not in ("bin_lo", "ratio_lo")]
    kept = alone.frame
    if "series" in kept.columns and name == "position_decay":
        kept = kept.filter(pl.col("series") != "greenwood")
    assert all(kept[column].is_null().all() for column in drawn)


FORMULAS = ("$\\frac{1", "all")  # tasks: a formula that ends nowhere, and the word for all of them
WITH_TASKS = ("optimal_gamma", "optimal_lengths", "policies_by_task", "regret_by_task")


@pytest.mark.parametrize("name", [*WITH_TASKS, "step_lengths", "gap_decomposition"])
def test_words_of_tasks_are_shown_as_they_are(name, tmp_path):
    found = draw(name, small(tasks=FORMULAS, prompts=10))
    check(found)
    assert any(
        FORMULAS[0] in path.read_text() for path in found.save(tmp_path) if path.suffix == ".svg"
    )
    names = {str(task) for task in found.frame.get_column(found.frame.columns[0])}
    names |= set(found.frame["task"].to_list() if "task" in found.frame.columns else [])
    assert set(FORMULAS) <= names
    assert name == "step_lengths" or "all tasks" in names


def test_a_task_of_any_name_has_its_own_prompts():
    one = small(tasks=("all", "all tasks", "code"), prompts=6)
    masks = groups(one)
    assert list(masks) == ["all", "all tasks", "code", "all tasks together"]
    assert [int(some.sum()) for some in masks.values()] == [2, 2, 2, 6]
    assert list(groups(small(tasks=("all",)))) == ["all"]


def test_powers_of_ten_stay_formulas():
    ax = Figure().subplots()
    ax.set_xscale("log")
    ax.set_xlim(1, 1000)
    spell_out(ax)
    assert all(label.get_parse_math() for label in ax.get_xticklabels())
    assert not any(label.get_parse_math() for label in ax.get_yticklabels())


def test_empty_trace():
    for name in FIGURES:
        with pytest.raises(UserError, match="empty"):
            draw(name, iid(0, 20, 0.5, max_draft=10, seed=0))


def test_short_branches():
    """Γ = 4: nothing drafts deeper, and what cannot be replayed is left out."""
    trace = Study(with_scores(iid(6, 40, 0.7, max_draft=4, seed=2)))
    short = {"drafts of up to 4 tokens only": frozenset({"acceptance_head"})}
    drawn_or_refused(lambda name: draw(name, trace), short)


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
SCORED = frozenset(
    {"acceptance_head", "forward_passes", "pacer_attention", "pacer_block", "pacer_components"}
    | {"pacer_criteria", "pacer_growth", "pacer_threshold"}
)
ENTROPIES = frozenset({"entropy_acceptance", "entropy_bound", "entropy_length", "entropy_ratio"})
ENTROPIES |= {"text_position"}
CONFIDENCES = frozenset({"best_policy_map", "confidence_acceptance", "expected_length"})
OF_A_PATH = ENTROPIES | CONFIDENCES | {"reliability", "position_decay"}
OF_A_PATH |= {"optimal_gamma", "optimal_lengths", "step_lengths"}
TIMED = frozenset(
    {"acceptance_head", "dynamic_policies", "forward_passes", "frontier", "gap_decomposition"}
    | {"mutual_waiting", "optimal_gain", "optimal_gamma", "pearl_accepted", "pearl_runs"}
    | {"pearl_window", "policies_by_task", "regret_by_position", "regret_by_task", "timeline"}
)
NO_SCORES = {"no scores of": SCORED}
LATTICE = {"it has no rows on a path": OF_A_PATH}
REFUSED = {
    "no scores": NO_SCORES,
    "T = 1": {},
    "only tokens": {
        "the trace has no column": ENTROPIES | CONFIDENCES,
        "column draft_prob_raw is not in this trace": frozenset({"reliability"}),
    }
    | NO_SCORES,
    "lattice": LATTICE,
    "no task": NO_SCORES,
    "one token": {
        "accepts no token": frozenset({"dynamic_policies"}),
        "outputs are too short for drafts": frozenset({"expected_length"}),
        "outputs are too short for a time": frozenset({"load_frontier"}),
        "no scores of": SCORED,
    },
    "one token drafted": {
        "drafts of up to 1 token only": frozenset({"acceptance_head"}),
        TOO_SHORT: frozenset({"load_timeline"}),
    },
    "one prompt, all accepted": {},
}
N_TABLES = 21  # those that a trace with one drafter and short outputs can give
TABLES = {"no scores": 8, "only tokens": 7, "no task": 8, "lattice": 20, "one token": 7}
TABLES["one token drafted"] = 16


def of_one_drafter(trace):
    """The tables, and what is missing but for those that compare drafters or need long outputs."""
    found, gone = tables(trace, COST)
    several = [line for line in gone if "simkit attach" in line or "training differs" in line]
    long = [line for line in gone if "no output has 256 tokens" in line]
    assert len(several) == 4 and len(long) == 1
    return found, [line for line in gone if line not in several + long]


@pytest.mark.parametrize("edge", EDGES)
def test_edges(edge):
    """Every figure and table is made without a NaN but for what the trace lacks."""
    trace = Study(EDGES[edge]())
    drawn_or_refused(lambda name: FIGURES[name].under(trace, COST), REFUSED[edge])
    found, gone = of_one_drafter(trace)
    assert len(found) == TABLES.get(edge, N_TABLES) == N_TABLES - len(gone)
    assert all("\n" not in line for line in gone)
    assert all("nan" not in cell for table in found for row in table.rows for cell in row)


@pytest.mark.parametrize("edge", ["T = 1", "lattice"])
def test_edges_without_times(edge):
    trace = Study(EDGES[edge]())
    others = frozenset[str]().union(*REFUSED[edge].values())
    refused = REFUSED[edge] | {"needs times": TIMED - others}
    drawn_or_refused(lambda name: FIGURES[name].under(trace, None), refused)
    with pytest.raises(UserError, match="needs times"):
        tables(trace, None)


def test_tables_have_the_papers_rows(trace):
    """All tables in form, as wide as their heads; numbers are those of the replay."""
    found, gone = of_one_drafter(trace)
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


def test_missing_column():
    bare = bare_trace()
    with pytest.raises(FigureError, match="no column draft_entropy, cross_entropy, overlap"):
        FIGURES["entropy_bound"].draw(bare)
    check(FIGURES["position_decay"].draw(bare))


def test_no_times():
    with pytest.raises(UserError, match="needs times"):
        FIGURES["optimal_gamma"].draw(iid(4, 20, 0.5, max_draft=4, seed=0))


def test_step_lengths_without_times():
    """All but the best fixed length, and the notes say so."""
    trace = iid(4, 20, 0.5, max_draft=4, seed=0)
    found = figures.step_lengths(trace)
    assert found.notes == ("No best fixed length, because there are no times.",)
    timed = figures.step_lengths(trace, cost=COST)
    assert found.frame.equals(timed.frame.drop("best_fixed")) and not timed.notes


def test_draws_on_given_axes(trace):
    ax = Figure().subplots()
    assert position_decay(trace, ax).ax is ax


def test_command_lists(capsys):
    ended, out, _ = run(capsys, "figures", "--list")
    assert ended == 0 and [line.split()[0] for line in out.splitlines()] == list(FIGURES)


def test_command_writes(tmp_path, capsys):
    names = ("entropy_bound", "position_decay")
    words = "--out", tmp_path, "--only", *" --only ".join(names).split()
    ended, out, _ = run(capsys, "figures", "reference", *words)
    assert ended == 0 and "2 of 2 figures" in out
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
        (["--list", "--policy", "mistyped"], "unknown policy 'mistyped'"),
        (["--list", "--cost", "nonsense"], "nonsense"),
        (["--list", "--width", "-1"], "width"),
        (["--list", "--out", "gs://x"], "is a URL"),
        (["no-such-trace", "--list"], "no-such-trace"),
        (["reference", "--list", "--drafter", "nonsense"], "nonsense"),
        (["reference", "--list", "--by", "span"], "spans are missing"),
    ],
)
def test_command_refuses(arguments, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert message in refused(capsys, "figures", *arguments)


@pytest.mark.parametrize("name", FIGURES)
def test_users_find_every_argument(name):
    draw = getattr(figures, name)
    for argument in inspect.signature(draw).parameters:
        assert f"\n    {argument}: " in draw.__doc__
    assert inspect.signature(draw).return_annotation == "Drawn"
    assert name in dir(figures) and draw is FIGURES[name].draw


def test_gallery_shows_every_figure():
    docs = Path(__file__).parents[1] / "docs"
    page = (docs / "gallery.md").read_text()
    shown = set(re.findall(r"\(gallery/([\w-]+)\.png\)", page))
    kept = {path.stem for path in (docs / "gallery").glob("*.png")}
    assert shown == kept and set(FIGURES) <= kept
    assert all(p.stat().st_size <= 60_000 for p in (docs / "gallery").iterdir())
