"""A trace that is read in windows: the same numbers to the bit, at a memory that does not grow."""

import gc
import sys
import weakref

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commands import refused, run
from replay_traces import Bare

import simkit
import traces
from analysis.stats.outline import outline
from simkit.errors import ReplayError
from simkit.policies import parse
from simkit.policies.registry import BUILT_IN
from simkit.simulator.streamed import check_prompts_apart
from traces import schema, streamed, synthetic
from traces.errors import TraceError
from traces.sampler import Sampler
from traces.streamed import LEAST, Streamed, stream
from traces.writer import save

ROUTE = "best_of(suffix, own)"
RULES = [
    "autoregressive",
    "fixed(5)",
    "svip(h=1.2, max_draft=6)",
    "confidence(threshold=0.4, max_draft=6)",
    "heuristic(initial=3, max_draft=6)",
    "oracle(max_draft=6)",
]


@pytest.fixture
def small_windows(monkeypatch):
    """A shard or two a window, and the spread of times from the first window alone."""
    monkeypatch.setattr(streamed, "_FEWEST", 1)
    monkeypatch.setattr(streamed, "_SHARE", 2e-4)
    monkeypatch.setattr(sys.modules["simkit.simulator.run"], "ENOUGH", 1000)


def assert_same(a, b):
    assert a.frame.equals(b.frame)
    assert but_for_loops(a) == but_for_loops(b)


def but_for_loops(result):
    """Notes, but for what is said of loops, which are not looked for in windows."""
    return [note for note in result.notes if "repeat themselves" not in note]


@pytest.mark.parametrize("first_token", ["draft", "prefill"])
def test_a_replay_in_windows_is_the_replay(small_windows, first_token):
    trace = stream("reference", memory=LEAST)
    assert isinstance(trace, Streamed) and len(trace.ranges) > 4
    rules = [*RULES, "prophet", "pearl", "draft_verify", "adaedl"]
    for by in ("task", "sequence"):
        settings = {"by": by, "first_token": first_token}
        assert_same(
            simkit.replay("reference", rules, **settings), simkit.replay(trace, rules, **settings)
        )


def test_a_rule_that_is_not_compiled_in_windows(small_windows):
    # Its interval has the spread of times over the first window, in memory over all prompts.
    def rule(depth, row):
        return depth == 3

    whole, mine = (simkit.replay(t, rule).frame for t in ("reference", stream("reference")))
    ends = ["speedup_lo", "speedup_hi"]
    assert whole.drop(ends).equals(mine.drop(ends))
    assert np.allclose(whole[ends].to_numpy(), mine[ends].to_numpy(), rtol=0.02)


@pytest.mark.parametrize(
    "name, drafter",
    [("reference", "eagle"), ("reference", "suffix"), ("reference-target", "pard2")],
)
def test_an_attached_drafter_in_windows(small_windows, name, drafter):
    trace = stream(name, drafter, LEAST)
    assert len(trace.ranges) > 1
    rules = ["fixed(4)", "autoregressive"]
    whole = traces.load(name, drafter)
    cost = "linear(draft_s=0.001, target_s=0.01)"
    assert_same(simkit.replay(whole, rules, cost), simkit.replay(trace, rules, cost))


def test_several_drafters_of_one_recording_in_windows(small_windows):
    given = {name: "fixed(4)" for name in ("own", "eagle", "suffix")}
    assert_same(simkit.replay("reference", given), simkit.replay(stream("reference"), given))


def test_a_sweep_and_a_tuning_in_windows(small_windows):
    trace = stream("reference", memory=LEAST)
    specs = ["svip(h=0.1:2:0.3)", "fixed(0:6)"]
    whole, mine = (simkit.sweep(t, specs, intervals=True) for t in ("reference", trace))
    assert_same(whole, mine)
    assert {**whole.facts, "notes": None} == {**mine.facts, "notes": None}
    whole, mine = (simkit.tune(t, specs[:1], deals=2) for t in ("reference", trace))
    assert whole.records() == mine.records() and but_for_loops(whole) == but_for_loops(mine)


def test_what_lies_beyond_the_times_is_of_all_windows(small_windows, tmp_path):
    """Passes over four tokens at most were timed; some prompts' drafts exceed that more often."""
    rows = [
        {"component": model, "tokens_in": n, "context_len": c, "batch_size": 1, "seconds": n + s}
        | {"dtype": "float32", "device": "cpu", "engine": "eager", "repeat": 0}
        for model, s in (("target", 9.0), ("draft", 0.5))
        for n, c in ((1, 1), (1, 400), (4, 1), (4, 400))
    ]
    cost = tmp_path / "cost.parquet"
    pq.write_table(pa.Table.from_pylist(rows, schema=schema.LATENCY), cost)
    rules = ["oracle(max_draft=6)", "svip(h=1.2, max_draft=6)", "fixed(2)", "fixed(6)"]
    for drafter, some in ((None, rules), ("suffix", ["fixed(4)"])):
        whole = simkit.replay(traces.load("reference", drafter), some, str(cost))
        mine = simkit.replay(stream("reference", drafter, LEAST), some, str(cost))
        assert [run.wide for run in mine.runs] == [run.wide for run in whole.runs]
        assert but_for_loops(mine) == but_for_loops(whole)
        assert any("than the most timed (4)" in note for note in mine.notes)


def test_settings_whose_sums_take_too_much_are_done_some_at_a_time(small_windows, monkeypatch):
    monkeypatch.setattr(sys.modules["simkit.simulator.streamed"], "_SHARE", 5e-5)  # three or so
    seen = []
    mine = simkit.sweep(
        stream("reference", memory=LEAST), "fixed(0:7)", progress=lambda *n: seen.append(n)
    )
    assert mine.frame.equals(simkit.sweep("reference", "fixed(0:7)").frame)
    assert seen[-1] == (8, 8) and seen == sorted(seen)


def test_every_policy_is_replayed_the_same_or_refused(small_windows):
    trace = stream("reference", memory=LEAST)
    refused = []
    for name in BUILT_IN:
        try:
            check_prompts_apart(parse(name))
        except (ReplayError, traces.UserError) as error:
            refused.append(name)
            assert "--memory" in str(error) or "argument" in str(error) or name in str(error)
            continue
        try:
            whole = simkit.replay("reference", name)
        except traces.UserError as error:
            with pytest.raises(type(error)):
                simkit.replay(trace, name)
            continue
        assert whole.frame.equals(simkit.replay(trace, name).frame), name
    assert "rate_optimal" in refused and "pacer" in refused and "svip" not in refused


def test_a_sampled_trace_with_branches_of_any_length(small_windows, tmp_path):
    made = synthetic.iid(
        60, 80, 0.7, max_draft=12, seed=3, sampler=Sampler(temperature=1.0), eos_prob=0.01
    )
    save(made, tmp_path / "t", batch_size=7)
    trace = stream(tmp_path / "t", memory=LEAST)
    cost = "linear(draft_s=0.001, target_s=0.01)"
    rules = ["fixed(5)", "svip(h=1)", "oracle", "prophet"]
    assert_same(
        simkit.replay(made, rules, cost, by="sequence"),
        simkit.replay(trace, rules, cost, by="sequence"),
    )


def test_windows_cover_all_prompts_once(small_windows):
    trace, whole = stream("reference", memory=LEAST), traces.load("reference")
    found = [window.positions("target_token") for window in trace.windows()]
    assert np.array_equal(np.concatenate(found), whole.positions("target_token"))
    numbers = [n for window in trace.windows() for n in window.sequences["sequence"].to_pylist()]
    assert numbers == whole.sequences["sequence"].to_pylist()


def test_a_damaged_row_is_found_in_its_window(small_windows, tmp_path):
    save(synthetic.iid(40, 50, 0.7, max_draft=4, seed=3), tmp_path / "t", batch_size=4)
    file = tmp_path / "t" / "positions" / "00007.parquet"
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(bytes(data))
    with pytest.raises(TraceError, match="00007.*sha256"):
        simkit.replay(stream(tmp_path / "t", memory=LEAST), "fixed(2)")


@pytest.mark.parametrize(
    "what, said",
    [
        (lambda: stream("reference", memory=10**6), "at least 1 GiB"),
        (lambda: stream("nowhere"), "no such folder"),
        (lambda: stream("reference").positions("accepted"), "leave out --memory"),
        (lambda: simkit.replay(stream("reference"), "rate_optimal"), "fitted to all prompts"),
        (lambda: simkit.replay(stream("reference"), "pacer"), "a head's scores"),
        (lambda: simkit.replay(stream("reference"), "fixed(2)", by="step"), "a replay by step"),
        (lambda: simkit.replay(stream("reference"), "fixed(2)", by="span"), "a replay by span"),
        (
            lambda: simkit.replay(stream("reference"), {ROUTE: "fixed(2)"}),
            "decoder",
        ),
        (lambda: simkit.sweep(stream("reference"), "fixed(2)", ray="local", workers=1), "--ray"),
    ],
)
def test_what_cannot_be_done_in_windows_is_said(what, said):
    with pytest.raises(traces.UserError, match=said) as error:
        what()
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("command", [["replay"], ["sweep"], ["tune", "--deals", "1"]])
def test_the_commands(capsys, small_windows, command):
    given = [*command, "reference", "--policy", "fixed(3)", "--format", "json"]
    plain, mine = run(capsys, *given)[:2], run(capsys, *given, "--memory", "2GB")[:2]
    assert plain == mine and plain[0] == 0


def test_a_size_that_is_none(capsys):
    words = "sweep", "reference", "--policy", "fixed(3)", "--memory", "lots"
    assert "'lots' is no size" in refused(capsys, *words)


def test_statistics_from_windows_are_those_of_the_trace(small_windows):
    trace = stream("reference", memory=LEAST)
    assert isinstance(trace, Streamed)
    whole, mine = outline([traces.load("reference")]), outline(trace.windows())
    assert whole == mine
    accepted = traces.load("reference").positions("accepted")
    assert whole["accepted"].value == pytest.approx(accepted.mean(), rel=1e-12)
    assert whole["marginal 2"].value < whole["marginal 1"].value == whole["conditional 1"].value
    with pytest.raises(traces.UserError, match="no part"):
        outline([])


@pytest.mark.parametrize("name, drafter", [("reference", None), ("reference", "suffix")])
@pytest.mark.parametrize(
    "use",
    [
        lambda trace: simkit.replay(trace, ["fixed(3)", "svip(h=1, max_draft=4)"][: trace.both]),
        lambda trace: simkit.sweep(trace, "fixed(1:4)"),
        lambda trace: [w.position_offsets for w in trace.windows()],
    ],
    ids=["replay", "sweep", "read"],
)
def test_no_window_stays_but_the_one_before(small_windows, monkeypatch, name, drafter, use):
    """Though no garbage is collected: what refers to itself would stay until then."""
    trace = stream(name, drafter, LEAST)
    trace.both = 2 if drafter is None else 1
    seen, alive = [], []
    window = trace.window

    def watched(shards):
        alive.append(sum(one() is not None for one in seen))
        found = window(shards)
        seen.append(weakref.ref(found))
        seen.append(weakref.ref(found._source))
        return found

    monkeypatch.setattr(trace, "window", watched)
    gc.collect()
    gc.disable()
    try:
        use(trace)
    finally:
        gc.enable()
    assert len(seen) > 4 and max(alive) <= 2, alive  # the one before, and its source


class Numbered(Bare):
    """Drafts as many tokens as the number of its prompt says."""

    name, max_draft = "numbered", 8

    def begin(self, sequence):
        return (1 + 2 * (sequence // 32),)

    def limit(self, state, ahead):
        return state[0]


class Unknown(Numbered):
    def begin(self, sequence):
        return 3, lambda: None


class Alike(Numbered):
    def begin(self, sequence):
        return (3,)


def test_a_rule_that_begins_prompts_by_their_numbers_is_refused(small_windows):
    """In a window a prompt has another number."""
    assert len(set(simkit.replay("reference", Numbered()).steps()["drafted"])) > 3
    with pytest.raises(ReplayError, match="^numbered begins prompts by their numbers: leave"):
        simkit.replay(stream("reference", memory=LEAST), Numbered())
    with pytest.raises(
        ReplayError, match="^numbered: .* cannot be compared .*: leave --memory out"
    ):
        simkit.replay(stream("reference", memory=LEAST), Unknown())
    alike = simkit.replay(stream("reference", memory=LEAST), Alike()).frame["steps"]
    assert alike.equals(simkit.replay("reference", Alike()).frame["steps"])
