"""Figures and claims of traces that lack a column, and of tasks that have nothing to show."""

from __future__ import annotations

import csv

import numpy as np
import polars as pl
import pytest
from commands import refused as refused_line
from commands import run
from replay_traces import build, with_scores
from test_lattice import spelled_out
from trace_files import rewrite

from analysis import serving
from analysis.claims import check
from analysis.figures import FIGURES
from analysis.figures.tables import tables
from analysis.report.pictures import pictures
from analysis.study import Study
from traces import schema
from traces.errors import TraceError, UserError
from traces.memory import from_arrays
from traces.synthetic import iid
from traces.trace import Trace
from traces.writer import save

pytestmark = pytest.mark.usefixtures("few_requests")

COST = "linear(draft_s=1, target_s=6, target_per_token_s=0.1)"


class Lacking:
    """A trace's source without one column; it remembers which ones were asked for."""

    def __init__(self, trace: Trace, table: str = "", column: str = "") -> None:
        self.source = source = trace._source
        self.gone = table, column
        self.asked: set[tuple[str, str]] = set()
        self.rows, self.sequences = source.rows, source.sequences
        self.extra, self.hash = source.extra, source.hash

    def columns(self, table: str) -> frozenset[str]:
        found = self.source.columns(table)
        return found - {self.gone[1]} if table == self.gone[0] else found

    def read(self, table: str, column: str) -> np.ndarray:
        self.asked.add((table, column))
        if (table, column) == self.gone:
            raise TraceError(f"{table}: column {column} is not in this trace")
        return self.source.read(table, column)


@pytest.fixture(scope="module")
def whole() -> Trace:
    return with_scores(iid(2, 16, 0.7, max_draft=16, seed=3, tasks=("a", "b")))


ONE = {n: e.under for n, e in FIGURES.items() if not (e.drafters or e.trees)}
MADE = ONE | {"claims": check, "tables": tables}


def refused(name: str, trace: Trace | Study) -> str:
    """Why a figure, the claims or the tables cannot be had; empty if they can."""
    try:
        found = MADE[name](trace, COST)
    except UserError as error:
        assert str(error) and "\n" not in str(error)
        return str(error)
    if name in FIGURES:
        floats = found.frame.select(pl.selectors.float())
        assert all(floats[column].is_finite().all() for column in floats.columns)
    return ""


READ = {
    "positions": (
        "sequence", "position", "accepted", "draft_token", "draft_prob_raw", "draft_entropy",
        "draft_top1_prob", "draft_top10_mass", "cross_entropy", "overlap",
        "target_token_prob_raw", "target_entropy",
    ),
    "branches": (
        "sequence", "position", "depth", "draft_token", "draft_entropy", "draft_prob_raw",
        "draft_top1_prob", "draft_top10_mass",
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def readers(whole) -> dict[tuple[str, str], list[str]]:
    """What reads each column."""
    found: dict[tuple[str, str], list[str]] = {}
    for name in MADE:
        source = Lacking(whole)
        assert not refused(name, Trace(whole.manifest, source)), name
        for column in source.asked:
            found.setdefault(column, []).append(name)
    return found


def test_these_are_the_columns_that_are_read(readers):
    assert set(readers) == {(table, name) for table in READ for name in READ[table]}


@pytest.mark.parametrize(
    ("table", "column"), [(table, column) for table in READ for column in READ[table]]
)
def test_without_a_column(whole, readers, table, column):
    """Drawn without it, or refused in one line that names it."""
    lacking = Study(Trace(whole.manifest, Lacking(whole, table, column)))
    for name in readers[table, column]:
        why = refused(name, lacking)
        assert not why or column in why, name


def test_lattice_is_named_as_the_reason(whole):
    """It has a column `accepted`, but not on a path."""
    assert refused("position_decay", spelled_out(whole)) == (
        "the trace is a lattice: it has no rows on a path"
    )


@pytest.mark.parametrize("only", [["position_decay"], ["position_decay", "entropy_bound"]])
def test_nothing_drawn_is_said_once(whole, only, tmp_path, capsys):
    save(spelled_out(whole), tmp_path / "lattice")
    words = ["figures", tmp_path / "lattice", "--out", tmp_path / "out"]
    line = refused_line(capsys, *words, *" ".join(f"--only {name}" for name in only).split())
    assert line.count("it has no rows on a path") == 1


def test_what_is_left_out_is_said(whole, tmp_path, capsys):
    save(spelled_out(whole), tmp_path / "lattice")
    words = ["figures", tmp_path / "lattice", "--out", tmp_path / "out", "--cost", COST]
    ended, out, err = run(capsys, *words, "--only", "position_decay", "--only", "draft_lengths")
    assert (ended, err) == (0, "") and "1 of 2 figures" in out
    assert "position_decay: skipped: the trace is a lattice: it has no rows on a path\n" in out


def test_what_says_nothing_is_left_out_unless_it_is_named(tmp_path, capsys, monkeypatch):
    """No draft token is accepted, so that no length pays."""
    weak = with_scores(iid(6, 20, 0.0, max_draft=16, seed=3))
    names = ("step_lengths", "position_decay")
    monkeypatch.setattr(FIGURES, "values", lambda: [FIGURES[name] for name in names])
    save(weak, tmp_path / "weak")
    words = ["figures", tmp_path / "weak", "--out", tmp_path / "out", "--cost", COST]
    ended, out, _ = run(capsys, *words)
    assert ended == 0 and "1 of 2 figures" in out
    why = "the best fixed length is 0 tokens, and most steps can use none"
    assert f"step_lengths: skipped: {why} (drawn if asked for by name)\n" in out
    skipped = dict(pictures(Study(weak), COST, None).skipped)
    assert skipped["step_lengths"].startswith(why) and "position_decay" not in skipped
    ended, out, _ = run(capsys, *words, "--only", "step_lengths")
    assert ended == 0 and "1 of 1 figure" in out
    drawn = FIGURES["step_lengths"].under(weak, COST)
    assert f"{why[0].upper()}{why[1:]}." in drawn.notes
    strong = iid(6, 40, 0.8, max_draft=16, seed=3)
    assert not FIGURES["step_lengths"].under(strong, COST).nothing


def test_other_peoples_prices_are_asked_for(tmp_path, capsys, monkeypatch):
    """A figure whose default cost is not the trace's own is drawn with a cost, or by its name."""
    names = ("tree_map", "load_timeline", "position_decay")
    monkeypatch.setattr(FIGURES, "values", lambda: [FIGURES[name] for name in names])
    trace = iid(6, 40, 0.8, max_draft=8, seed=3)
    save(trace, tmp_path / "own")
    words = ["figures", tmp_path / "own", "--out", tmp_path / "out"]
    why = f"no cost was given, and its default, {serving.COST}, is not of this trace"
    ended, out, _ = run(capsys, *words)
    assert ended == 0 and "1 of 3 figures" in out
    why += " (give one, or ask for the figure by name)"
    assert f"load_timeline: skipped: {why}\n" in out
    assert "tree_map: skipped: needs trees" in out
    assert dict(pictures(Study(trace), None, None).skipped)["load_timeline"] == why
    assert "load_timeline" not in dict(pictures(Study(trace), COST, None).skipped)
    assert "2 of 2 figures" in run(capsys, *words, *only("load_timeline", "position_decay"))[1]


def only(*names):
    return [word for name in names for word in ("--only", name)]


MORE = ["svip(h=0.3)", "fixed(2:3)"]


def test_figures_that_compare_policies_show_more_of_them(tmp_path, capsys):
    """With --policy only they are drawn; a policy that cannot be replayed does not stop others."""
    save(iid(12, 30, 0.7, max_draft=8, seed=3), tmp_path / "own")
    words = ["figures", tmp_path / "own", "--out", tmp_path / "out", "--cost", COST]
    given = [word for spec in (*MORE, "pacer") for word in ("--policy", spec)]
    ended, out, _ = run(capsys, *words, *given)
    compare = sum(entry.compares for entry in FIGURES.values())
    assert ended == 0 and f"{compare} of {compare} figures" in out
    assert out.startswith("without pacer(block=4): ")
    for path in (tmp_path / "out").glob("*.parquet"):
        frame = pl.read_parquet(path)
        assert "policy" not in frame or set(MORE) <= set(frame["policy"])
    line = refused_line(capsys, *words, "--policy", "svip", *only("entropy_bound"))
    assert "do not compare policies: entropy_bound" in line
    assert "did you mean svip" in refused_line(capsys, *words, "--policy", "sivp")


def test_policies_beside_a_figures_own_have_their_own_looks():
    trace = iid(12, 30, 0.7, max_draft=8, seed=3)
    drawn = FIGURES["regret_by_task"].under(trace, COST, policies=MORE)
    handles, labels = drawn.ax.get_legend_handles_labels()
    looks = [(one.get_color(), one.get_marker()) for one in handles]
    assert set(MORE) < set(labels) and len(set(looks)) == len(looks)
    with pytest.raises(UserError, match="entropy_ratio: does not compare policies"):
        FIGURES["entropy_ratio"].draw("reference", policies=MORE)


def test_more_policies_stand_beside_a_figures_own_whatever_they_are_called():
    """`fixed` and `oracle()` are no longer the tuned length and the bound; one setting is one."""
    trace = iid(12, 30, 0.7, max_draft=8, seed=3)
    more = ["fixed(length=3)", "fixed(3)", "heuristic", "oracle()", "pearl"]
    plain, whole = (
        FIGURES["frontier"].under(trace, COST, policies=some).frame for some in ([], more)
    )
    beside = ["fixed(3)", "heuristic(initial=5)", "oracle()", "pearl()"]
    added = whole.filter(~pl.col("policy").is_in(plain["policy"].to_list()))
    assert [name.partition("(")[0] for name in added["policy"]] == [
        name.partition("(")[0] for name in beside
    ]
    assert added.filter(hindsight=True)["policy"].to_list() == ["oracle()"]
    kept = whole.filter(pl.col("policy").is_in(plain["policy"].to_list()))
    assert kept["setting"].to_list() == plain["setting"].to_list()
    drawn = FIGURES["regret_by_task"].under(trace, COST, policies=["pearl", "fixed(3)"])
    assert "pearl()" not in drawn.frame["policy"].to_list()
    assert any("Without pearl(): the prophet, which is of chains" in one for one in drawn.notes)
    for wrong in ([3], [FIGURES]):
        with pytest.raises(UserError, match="figures show specs"):
            FIGURES["frontier"].under(trace, COST, policies=wrong)


def test_a_prophet_among_more_policies_is_not_the_best_that_can_be_had():
    """What can be reached is what policies reach that do not know the future."""
    trace = iid(12, 30, 0.7, max_draft=8, seed=3)
    plain = FIGURES["gap_decomposition"].under(trace, COST).frame
    assert FIGURES["gap_decomposition"].under(trace, COST, policies=["oracle"]).frame.equals(plain)


def test_settings_of_pacer_say_nothing_where_one_token_is_best():
    weak = Study("smollm2")
    said = {f"pacer_{n}": FIGURES[f"pacer_{n}"].under(weak, COST).nothing for n in SAID}
    assert said == {f"pacer_{name}": why for name, why in SAID.items()}


SAID = {
    "growth": "the best fixed length is 1 token, and no other setting of PACER is measurably faster"
    " or slower",
    "attention": "only full context can be replayed, and there is nothing to compare it with",
    "block": "",
}


@pytest.mark.parametrize("column", ["accepted", "draft_entropy"])
def test_a_trace_without_a_column_that_all_have_is_refused(whole, column, tmp_path, capsys):
    save(whole, tmp_path / "trace")
    rewrite(tmp_path / "trace", "positions/00000.parquet", lambda table: table.drop(column))
    words = ["figures", tmp_path / "trace", "--out", tmp_path / "out", "--cost", COST]
    missing = f"positions/00000.parquet: column {column} is missing"
    assert missing in refused_line(capsys, *words) and not (tmp_path / "out").exists()


def full(trace: Trace) -> Trace:
    """The same trace with every column: greedy acceptance, zeros where it has none."""

    def columns(table: str, n: int) -> dict[str, np.ndarray]:
        names = getattr(schema, table.upper()).names
        made = {m: trace.column(table, m) if trace.has(table, m) else np.zeros(n) for m in names}
        if "accepted" in made:  # greedy: the two are point masses
            made |= dict.fromkeys(
                ("accept_prob", "target_prob", "overlap_processed"), made["accepted"]
            )
            made["draft_prob"] = np.ones(n)
        return made

    return from_arrays(
        trace.sequences.to_pydict(),
        columns("positions", trace.n_positions),
        columns("branches", trace.n_branch_rows),
        max_draft=trace.max_draft,
        max_new_tokens=trace.max_new_tokens,
        eos_token_ids=trace.eos_token_ids,
    )


def short(tasks: list[str]) -> Trace:
    """Prompts of "idle" end with their first token; those of "silent" have no output."""
    long = [*[(5, 5), (5, 6), (7, 7)] * 5, (5, 5)]
    rows = [{"idle": [(0, 0)], "silent": []}.get(task, long) for task in tasks]
    return full(build(rows, t_max=16, max_draft=16, tasks=tasks, scored=False))


TASKS = {  # no recording holds a prompt without output
    "no output": ["code", "code", "silent", "silent"],
    "one token": ["code", "idle", "", "idle", "code", ""],
    "only such": ["idle", "idle"],
    "no name": ["", ""],
}
each_case = pytest.mark.parametrize("tasks", TASKS.values(), ids=TASKS)


@each_case
def test_empty_tasks(tasks):
    trace = short(tasks)
    silent = "silent" in tasks
    study = Study(trace if silent else with_scores(trace))
    found = {name: refused(name, study) for name in MADE}
    why = "sequence 2: its 0 output tokens do not fit the finish_reason and max_new_tokens = 16"
    assert found["policies_by_task"] == found["claims"] == (why if silent else "")


@pytest.mark.parametrize("first", ["draft", "prefill"])
@each_case
def test_replay_by_an_empty_task(tasks, first, tmp_path, capsys):
    """With the first token from the prefill, a prompt of one token has no step at all."""
    save(short(tasks), tmp_path / "trace")
    given = ["replay", str(tmp_path / "trace"), "--policy", "fixed(2)", "--policy", "pearl(2)"]
    given += ["--cost", COST, "--by", "task", "--first-token", first, "--format", "csv"]
    ended, out, err = run(capsys, *given)
    if "silent" in tasks:
        assert ended == 2 and err.count("\n") == 1 and "0 output tokens" in err
        return
    assert ended == 0 and "nan" not in out.lower()
    rows = list(csv.DictReader(out.splitlines()))
    assert {row["task"] for row in rows} == set(tasks) and len(rows) == 2 * len(set(tasks))
    for row in rows:
        assert (row["steps"] == "0") == (row["task"] == "idle" and first == "prefill")
