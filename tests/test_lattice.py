"""Lattices: a path spelled out as one replays the same; what they hold is kept and checked."""

from pathlib import Path

import numpy as np
import pytest
import trace_files
from commands import run
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from replay_traces import EOS, SEQUENTIAL, START_HEADS, bound, build, holds, tiny_traces

import simkit
import traces
from simkit import policies
from simkit.drafters import layout_of
from simkit.drafters.lattice import LatticeLayout
from simkit.drafters.path import PathLayout
from simkit.errors import ReplayError
from simkit.policies.pearl import PEARL
from simkit.steps import compiled, concurrent, interpreted
from traces import scores
from traces.attach import registry
from traces.attach.run import attach
from traces.describe import describe
from traces.errors import TraceError
from traces.manifest import MANIFEST, SourceInfo, read_manifest
from traces.memory import from_drafts, from_outputs
from traces.schema import DRAFT_STATISTICS
from traces.trace import DATA, Trace
from traces.validate import validate
from traces.writer import save

HEADS = ("acceptance_head", "specdecpp", *START_HEADS)
NAMES = ("draft_token", *DRAFT_STATISTICS)


def spelled_out(trace: Trace, **more) -> Trace:
    """A trace of rows as a lattice: the draft from each start, with features and scores."""
    layout = PathLayout(trace)
    places = []  # (row, index into path rows with branch rows behind them) of each draft token
    for row, ahead in enumerate(layout.ahead.tolist()):
        end = layout.offsets[np.searchsorted(layout.offsets, row, side="right")]
        m = row + ahead
        drafted = [*range(row, min(m + 1, end))]
        if m < end:
            drafted += range(
                len(layout.ahead) + layout.branch[m], len(layout.ahead) + layout.branch[m + 1]
            )
        places += [(row, depth, at) for depth, at in enumerate(drafted, start=1)]
    row, depth, at = np.array(places, np.int64).reshape(-1, 3).T
    sequence = np.searchsorted(layout.offsets, row, side="right") - 1

    def column(name: str) -> np.ndarray:
        return np.concatenate([trace.positions(name), trace.branches(name)])[at]

    off_path = np.zeros(trace.n_branch_rows, bool)
    table = trace.sequences.to_pydict()
    lattice = from_drafts(
        {
            "sequence": table["sequence"],
            "prompt_tokens": [[1] * n for n in table["n_prompt"]],
            "n_output": table["n_output"],
        },
        {
            "sequence": np.array(table["sequence"])[sequence],
            "start": row - layout.offsets[sequence] + 1,
            "depth": depth,
            "accepted": np.concatenate([trace.positions("accepted"), off_path])[at],
            **{name: column(name) for name in NAMES},
        },
        max_draft=max(1, int(depth.max(initial=1))),
        max_new_tokens=trace.max_new_tokens,
        eos_token_ids=trace.eos_token_ids,
        sampler=trace.sampler,
        **more,
    )
    for head in HEADS:
        found = scores.load(trace, head)
        values = np.full((len(layout.ahead), depth.max(initial=1)), np.nan, np.float32)
        if isinstance(found, scores.StartScores):
            values[row, depth - 1] = found.values[row, depth - 1]
        else:
            values[row, depth - 1] = np.concatenate([found.path, found.branches])[at]
        lattice = scores.attach(lattice, head, scores.StartScores(values))
    return lattice


def outcomes(data: list[list[list[bool]]], **more) -> Trace:
    """A lattice of nothing but accept flags: for each sequence the draft of each of its starts."""
    keys = [
        (s, i, j, flag)
        for s, sequence in enumerate(data)
        for i, draft in enumerate(sequence, start=1)
        for j, flag in enumerate(draft, start=1)
    ]
    columns = zip(*keys, strict=True)
    names = ("sequence", "start", "depth", "accepted")
    given = {"max_draft": 8, "max_new_tokens": 9} | more
    lengths = {"n_output": [len(sequence) for sequence in data]}
    return from_drafts(lengths, dict(zip(names, map(np.array, columns), strict=True)), **given)


def counts(steps) -> list[tuple[int, ...]]:
    columns = (steps.start, steps.drafted, steps.proposed, steps.accepted, steps.emitted)
    return list(zip(*(column.tolist() for column in columns), strict=True))


@pytest.mark.parametrize("spec", [*SEQUENTIAL, "fixed(2)", "heuristic(initial=3)"])
@settings(max_examples=12, deadline=None)
@given(trace=tiny_traces(), first=st.sampled_from([1, 2]))
def test_a_path_spelled_out_replays_the_same(spec, trace, first):
    assume(holds(spec, trace))
    policy = bound(spec, trace, first)
    path, lattice = layout_of(trace), layout_of(spelled_out(trace))
    assert isinstance(path, PathLayout) and isinstance(lattice, LatticeLayout)
    np.testing.assert_array_equal(path.ahead, lattice.ahead)
    expected = counts(interpreted.walk(policy, path, first))
    assert counts(interpreted.walk(policy, lattice, first)) == expected
    assert counts(compiled.walk(policy, lattice, first)) == expected
    ours, theirs = (compiled.total(policy, layout, first) for layout in (path, lattice))
    for name in ("steps", "drafted", "proposed", "accepted", "calls"):
        np.testing.assert_array_equal(getattr(ours, name), getattr(theirs, name))


@settings(max_examples=30, deadline=None)
@given(
    trace=tiny_traces(),
    policy=st.builds(PEARL, st.integers(1, 5), st.booleans(), st.booleans()),
    first=st.sampled_from([1, 2]),
)
def test_so_does_a_parallel_policy(trace, policy, first):
    path, lattice = (
        concurrent.FAMILY.walk(policy, layout_of(t), first) for t in (trace, spelled_out(trace))
    )
    assert counts(path) == counts(lattice)
    np.testing.assert_array_equal(path.alone, lattice.alone)


def test_a_parallel_policy_goes_on_with_the_draft_that_it_began():
    """The draft from 1 is accepted up to 4, though that from 2 would be rejected at once."""
    trace = outcomes([[[True] * 4 + [False], *[[False]] * 8]])
    steps = concurrent.FAMILY.walk(PEARL(2), layout_of(trace), 1)
    assert counts(steps)[:3] == [(1, 2, 1, 1, 1), (2, 2, 2, 2, 2), (4, 2, 2, 1, 2)]


@pytest.mark.parametrize("engine", [interpreted, compiled])
def test_without_features_drafting_goes_on_behind_a_rejection_and_behind_the_end(engine):
    trace = outcomes([[[True, False], [False], [False], [True] * 5, [False]]], max_new_tokens=20)
    layout = layout_of(trace)
    assert layout.ahead.tolist() == [1, 0, 0, 2, 0]
    steps = counts(engine.walk(policies.Fixed(3), layout, 1))
    assert steps == [(1, 3, 3, 1, 2), (3, 3, 3, 0, 1), (4, 3, 3, 2, 2)]
    oracle = counts(engine.walk(policies.Oracle(), layout, 1))
    assert oracle == [(1, 1, 1, 1, 2), (3, 0, 0, 0, 1), (4, 2, 2, 2, 2)]


@pytest.mark.parametrize("engine", [interpreted, compiled])
def test_nothing_is_known_behind_a_draft_accepted_whole(engine):
    layout = layout_of(outcomes([[[True, True], [False], [False], [False], [False]]]))
    assert engine.walk(policies.Fixed(2), layout, 1).accepted.tolist()[0] == 2
    with pytest.raises(ReplayError, match="position 1: depth 3 was .* the draft there ends at 2$"):
        engine.walk(policies.Fixed(3), layout, 1)


@pytest.mark.parametrize("engine", [interpreted, compiled])
def test_a_policy_that_reads_is_told_what_was_not_recorded(engine):
    trace = spelled_out(build([[(1, 2)] * 7], t_max=7, max_draft=3))
    steps = engine.walk(policies.Fixed(6), layout_of(trace), 1)
    assert steps.drafted.tolist() == [6, 5, 4, 3, 2, 1, 0]
    with pytest.raises(ReplayError, match=r"position 1: depth 4 was not .* \(Γ\) = 3 tokens"):
        engine.walk(policies.SVIP(h=9.0), layout_of(trace), 1)


@pytest.mark.parametrize("spec", ["svip(h=0.4)", "draft_verify()"])
def test_a_policy_whose_column_is_missing_is_refused_by_its_name(spec):
    trace = outcomes([[[False]]])
    (column,) = policies.parse(spec).columns(trace.sampler)
    with pytest.raises(TraceError, match=f"column {column}, which"):
        simkit.replay(trace, spec)


def test_scores_by_row_do_not_fit():
    trace = build([[(1, 1)] * 3], t_max=3, max_draft=3)
    table = trace.extra(scores.file_name("specdecpp"))
    lattice = spelled_out(trace)
    facts = table.schema.metadata[b"simkit"].replace(trace.hash.encode(), lattice.hash.encode())
    lattice = Trace(
        lattice.manifest,
        scores._With(
            lattice,
            scores.file_name("specdecpp"),
            table.replace_schema_metadata({b"simkit": facts}),
        ),
    )
    with pytest.raises(TraceError, match="specdecpp do not fit the trace's rows"):
        scores.load(lattice, "specdecpp")


def test_an_output_longer_than_the_budget_is_refused():
    with pytest.raises(ReplayError, match="sequence 0: 3 output tokens, max_new_tokens is 2"):
        layout_of(outcomes([[[False]] * 3], max_new_tokens=2))


def test_a_lattice_has_no_path():
    with pytest.raises(ReplayError, match="no rows on a path"):
        PathLayout(outcomes([[[False]]]))


@settings(max_examples=8, deadline=None)
@given(trace=tiny_traces())
def test_round_trip(tmp_path_factory, trace):
    lattice, folder = spelled_out(trace), tmp_path_factory.mktemp("lattice") / "t"
    save(lattice, folder, batch_size=2)
    assert validate(folder) == []
    again = traces.load(folder)
    assert again.manifest.lattice_columns == lattice.manifest.lattice_columns
    assert (again.n_positions, again.n_lattice_rows) == (trace.n_positions, lattice.n_lattice_rows)
    for name in ("sequence", "start", "depth", "accepted", *NAMES):
        np.testing.assert_array_equal(again.lattice(name), lattice.lattice(name))
    np.testing.assert_array_equal(again.lattice_offsets, lattice.lattice_offsets)
    assert describe(again)["accepted"] == describe(lattice)["accepted"]


def test_info_and_validate(tmp_path, capsys):
    save(outcomes([[[True, False], [False], [True, True]], [[False]]]), tmp_path / "t")
    facts = describe(traces.load(tmp_path / "t"))
    assert facts["lattice_rows"] == 6 and facts["positions"] == 4
    assert facts["accepted"] == 3 / 6
    assert facts["uses"][0] == "policies that read no column"
    for command, words in (
        ("info", "lattice rows  6"),
        ("validate", "4 positions, 6 lattice rows"),
    ):
        ended, out, _ = run(capsys, command, tmp_path / "t")
        assert ended == 0 and words in out


@pytest.mark.parametrize(
    ("column", "row", "value", "message"),
    [
        ("depth", 1, 3, "sequence 0, start 1, depth 3: depths of a draft must be 1, 2, 3"),
        ("start", 2, 7, "start 7, depth 1: a draft from a position that there is not"),
        ("start", 3, 1, "start 1, depth 1: drafts must ascend, each key once"),
        ("sequence", 3, 1, "sequence 1, start 3, depth 1: a draft from a position that there"),
        ("draft_token", 0, EOS, "start 1, depth 1: rows after an EOS token"),
        ("draft_prob", 0, 2.0, "start 1, depth 1: draft_prob is 2.0"),
    ],
)
def test_damage_is_found(tmp_path, column, row, value, message):
    trace = build(
        [[(1, 1), (1, 2), (2, 1)]], t_max=3, max_draft=1, values=lambda n: np.full(n, 0.5)
    )
    lattice = spelled_out(trace)
    assert lattice.lattice("start").tolist() == [1, 1, 2, 3]
    save(lattice, tmp_path / "t")
    assert validate(tmp_path / "t") == []
    trace_files.rewrite(
        tmp_path / "t",
        "lattice/00000.parquet",
        lambda table: trace_files.with_value(table, column, row, value),
    )
    assert any(message in problem for problem in validate(tmp_path / "t"))


def test_too_deep_and_too_long(tmp_path):
    save(outcomes([[[True, False], [False]]]), tmp_path / "t")
    trace_files.edit(tmp_path / "t", max_draft=1)
    assert any("Γ is 1" in problem for problem in validate(tmp_path / "t"))
    trace_files.edit(tmp_path / "t", max_draft=2, max_new_tokens=1)
    assert any("2 output tokens, not 1 to 1" in problem for problem in validate(tmp_path / "t"))


def test_columns_of_a_lattice_are_known_ones(tmp_path):
    save(outcomes([[[False]]]), tmp_path / "t")
    with pytest.raises(TraceError, match="lattice_columns names 'mood'"):
        trace_files.edit(tmp_path / "t", lattice_columns=("mood",))
    with pytest.raises(TraceError, match="lattice_columns is not for"):
        trace_files.edit(tmp_path / "t", kind="path", lattice_columns=("draft_prob",))


@pytest.mark.parametrize("name", ["reference", "reference-sampled"])
def test_the_manifests_of_traces_of_rows_stay_as_they_were(name):
    file = Path(DATA / name / MANIFEST)
    assert read_manifest(DATA / name).to_json() == file.read_text(encoding="utf-8")


@pytest.mark.parametrize("spec", ["ngram(length=4, least=1, most=1)", "suffix(max_tokens=4)"])
def test_what_is_drafted_behind_an_output_that_was_stopped_is_not_rejected(tmp_path, spec):
    """From its second position the draft is 8, 9, …: the output has the 8, and no more."""
    rows = {"prompt_tokens": [[7, 8, 9]], "output_tokens": [[7, 8]], "finish_reason": ["unknown"]}
    source = SourceInfo("log.jsonl", "0" * 64)
    save(from_outputs(rows, max_new_tokens=20, source=source), tmp_path / "log")
    attach(traces.load(tmp_path / "log"), registry.parse(spec), "rule")
    assert describe(traces.load(tmp_path / "log", "rule"))["accepted"] == 1
