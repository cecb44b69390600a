"""`simkit serving`: what it prints, and what it says of bad input in one line."""

from __future__ import annotations

import json
from contextlib import contextmanager
from types import SimpleNamespace

import polars as pl
import pytest
from commands import refused, run

import simkit
from simkit import serving
from simkit.cli import progress
from simkit.errors import PolicyError, UserError
from simkit.serving import Engine, Plain
from traces import synthetic

ATLAS = "atlas(target=qwen3-8b, draft=qwen3-0.6b)"
QUICK = ("--requests", "20", "--seeds", "2")


def test_it_prints_a_row_for_each_load_and_controller(capsys):
    chosen = ("--controller", "none", "--controller", "static(1:3:2)", "--concurrency", "1,4")
    status, out, _ = run(
        capsys, "serving", "reference", *chosen, "--cost", ATLAS, *QUICK, "--format", "json"
    )
    rows = json.loads(out)
    assert status == 0
    assert [(row["value"], row["controller"]) for row in rows] == [
        (n, name) for name in ("none()", "static(1)", "static(3)") for n in (1, 4)
    ]
    for row in rows:
        assert row["tokens_s_lo"] <= row["tokens_s"] <= row["tokens_s_hi"]
        assert row["against"] == pytest.approx(1) or row["controller"] != "none()"


def test_time_is_counted_from_the_first_run_on(monkeypatch):
    """What compiles before it says nothing of how long the others take."""
    moved = []

    @contextmanager
    def bar(what):
        yield (
            SimpleNamespace(
                reset=lambda task, total: moved.append(("reset", total)),
                update=lambda task, completed, total: moved.append((completed, total)),
            ),
            0,
        )

    monkeypatch.setattr(progress, "bar", bar)
    with progress.settings_bar("runs") as told:
        given = {"concurrency": 2, "requests": 4, "seeds": 3, "workers": 1}
        serving.serve("reference", "none", ATLAS, progress=told, **given)
    assert moved == [("reset", 3), (1, 3), (2, 3), (3, 3)]


def test_it_writes_rows_requests_and_iterations(capsys, tmp_path):
    files = {
        name: tmp_path / f"{name}.parquet" for name in ("out", "requests-out", "iterations-out")
    }
    given = [part for name, file in files.items() for part in (f"--{name}", str(file))]
    status, _, said = run(
        capsys, "serving", "reference", "--controller", "ema(3)", "--rate", "2", "--cost", ATLAS,
        "--limit", "ttft_s=0.2", *QUICK, *given,
    )  # fmt: skip
    assert status == 0 and "exact given the simulated schedule" in said
    requests = pl.read_parquet(files["requests-out"])
    assert len(requests) == 40
    assert (requests["done_s"] > requests["arrival_s"]).all()
    rows = pl.read_parquet(files["iterations-out"])
    assert (rows["end_s"] > rows["begin_s"]).all()
    assert pl.read_parquet(files["out"])["good_share"].is_between(0, 1).all()


BAD = {
    "no load": ([], "give one of rate, concurrency, arrivals and copies (none is given)"),
    "two loads": (["--rate", "1", "--concurrency", "2"], "(rate and concurrency)"),
    "rate 0": (["--rate", "0"], "rate must be a finite number of requests a second above 0"),
    "rate infinite": (["--rate", "inf"], "rate must be a finite number"),
    "rate tiny": (["--rate", "1e-320"], "rate must be a finite number"),
    "concurrency huge": (["--concurrency", "1e30"], "concurrency must be a whole number"),
    "cache huge": (
        ["--concurrency", "2", "--kv-tokens", "9" * 18],
        "kv_tokens must be a whole number",
    ),
    "copies beyond a batch": (["--copies", "128"], "128 copies do not fit in a batch of 64"),
    "rates and drafts": (
        ["--concurrency", "2", "--rates", "0.5", "--controller", "prophet(3)"],
        "prophet(3) reads the drafts",
    ),
    "rate huge": (["--rate", "1e300"], "above 0, up to 1e+09, not 1e+300"),
    "requests huge": (["--rate", "5", "--requests", "2000000000"], "at most 100000000, not 2000"),
    "seeds huge": (
        ["--rate", "5", "--requests", "5", "--seeds", "2000000000"],
        "at most 100000, not 2000",
    ),
    "captured huge": (["--rate", "5", "--captured", "9" * 20], "captured sizes must be whole"),
    "rate nan": (["--rate", "nan"], "rate must be a finite number"),
    "rate a word": (["--rate", "fast"], "--rate 'fast': must be numbers separated by commas"),
    "concurrency 0": (["--concurrency", "0"], "concurrency must be a whole number >= 1"),
    "concurrency half": (["--concurrency", "1.5"], "1.5 is not a whole number"),
    "concurrency infinite": (["--concurrency", "inf"], "is not a whole number"),
    "beyond the grid": (
        ["--concurrency", "256", "--max-batch", "256"],
        "passes over 64 sequences at most were timed (1, 4, 16, 64)",
    ),
    "small cache": (
        ["--concurrency", "2", "--kv-tokens", "20"],
        "kv_tokens 20 is too small: sequence",
    ),
    "no cache": (["--concurrency", "2", "--kv-tokens", "0"], "kv_tokens must be a whole number"),
    "limit": (["--concurrency", "2", "--limit", "ttft=1"], "unknown limit 'ttft'"),
    "limit's form": (["--concurrency", "2", "--limit", "ttft_s"], "write NAME=SECONDS"),
    "limit twice": (
        ["--concurrency", "2", "--limit", "ttft_s=1", "--limit", "ttft_s=2"],
        "--limit ttft_s is given twice",
    ),
    "captured": (["--concurrency", "2", "--captured", "4,2"], "captured sizes must be"),
    "captured in": (["--concurrency", "2", "--captured-in", "tokens"], "needs captured"),
    "rates": (["--concurrency", "2", "--rates", "0.5,1.5"], "rates must be chances"),
    "drafter": (["--concurrency", "2", "--drafter", "none"], "none"),
    "requests": (["--concurrency", "2", "--requests", "0"], "requests must be a whole number"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_line(case, capsys):
    given, expected = BAD[case]
    arguments = ["reference", "--controller", "static(3)", "--cost", ATLAS, *given]
    if "--requests" not in given:
        arguments += QUICK
    assert expected in refused(capsys, "serving", *arguments)


CONTROLLERS = {
    "statik(3)": "unknown controller 'statik' (did you mean static?)",
    "static(-1)": "static: length must be a whole number >= 0, not -1",
    "static(length=x)": "length must be a whole number",
    "by_batch([[2, 4, 5]])": "by_batch: the first row must begin at 1, not 2",
    "by_batch([[1, 4]])": "is no row [smallest, largest, length]",
    "by_batch([[1, 4, 5], [3, 8, 2]])": "of batches above 4",
    "schedule({4: 4, 0: 2})": "schedule: batches must be whole numbers from 1 on",
    "schedule({4: 4}, gate=-1)": "gate must be a number >= 0",
    "ema(3, candidates={1: []})": "candidates are {batch: [lengths]}",
    "ema(3, candidates={8: [1], 1: [2]})": "ascending",
    "budget(0)": "max_draft must be a whole number >= 1",
    "budget(5, search=best)": "search must be first_drop or global",
    "budget(5, column=nothing)": "nothing",
    "all_stopped(oracle())": "oracle() needs the future",
    "all_stopped(svp(h=0.4))": "did you mean svip?",
    "pearl()": "one request in a batch",
    "static(41)": "depth",
    "static([[1,2)": "cannot read",
}


@pytest.mark.parametrize("spec", CONTROLLERS)
def test_so_is_a_bad_controller(spec, capsys):
    words = "reference", "--controller", spec, "--cost", ATLAS, "--concurrency", "2", *QUICK
    assert CONTROLLERS[spec] in refused(capsys, "serving", *words)


def test_a_trace_without_times_needs_a_cost(capsys, tmp_path):
    trace = synthetic.iid(3, 20, 0.5, max_draft=4, seed=0)
    with pytest.raises(UserError, match="there are no times: give a cost"):
        serving.serve(trace, "static(3)", concurrency=1)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "there are none"),
        ("0\n1\nx\n", "line 3: 'x' is no number and no JSON"),
        ("0\n2\n1\n", "never fall"),
        ('{"time": 1}\n', "neither arrival_s nor timestamp (fields: 'time')"),
        ("NaN\n", "line 1: nan is no time"),
        ('{"arrival_s": true}\n', "True is no time"),
        ('{"arrival_s": 1' + "0" * 400 + "}\n", "is no time"),
        (
            '{"timestamp": 27482}\n',
            "line 1: a timestamp may be in seconds or milliseconds: say --arrivals-unit s or ms",
        ),
        ("0\n1\n", "20 requests, but 2 arrival times"),
    ],
)
def test_bad_arrival_times_are_one_line(text, expected, capsys, tmp_path):
    file = tmp_path / "times.txt"
    file.write_text(text)
    words = "reference", "--controller", "none", "--cost", ATLAS, "--arrivals", file, *QUICK
    assert expected in refused(capsys, "serving", *words)


@pytest.mark.parametrize(
    ("name", "unit", "each_s"),
    [
        ("timestamp", "s", 1.0),
        ("timestamp", "ms", 1e-3),
        ("arrival_s", None, 1.0),
        ("arrival_s", "ms", 1.0),
        ("", None, 1.0),
        ("", "ms", 1e-3),
    ],
)
def test_arrival_times_are_read_in_their_unit(name, unit, each_s, tmp_path):
    """As many requests come as the file has, unless it is said how many."""
    file = tmp_path / "times.jsonl"
    lines = [f'{{"{name}": {10 + k}}}' if name else str(10 + k) for k in range(5)]
    file.write_text("\n".join(lines))
    how = {"arrivals": file, "arrivals_unit": unit, "seeds": 1}
    found = serving.serve("reference", "none", ATLAS, **how)
    wanted = [k * each_s for k in range(5)]
    assert found.runs[0].server.arrival_s.tolist() == pytest.approx(wanted)
    few = serving.serve("reference", "none", ATLAS, requests=3, **how)
    assert few.runs[0].server.arrival_s.tolist() == pytest.approx(wanted[:3])


def test_the_command_takes_a_file_of_arrivals_and_its_unit(capsys, tmp_path):
    file = tmp_path / "trace.jsonl"
    file.write_text('{"timestamp": 0}\n{"timestamp": 500}\n')
    given = ("reference", "--controller", "none", "--cost", ATLAS, "--seeds", "1")
    arrivals = ("--arrivals", str(file), "--arrivals-unit", "ms")
    status, out, _ = run(capsys, "serving", *given, *arrivals, "--format", "json")
    (row,) = json.loads(out)
    assert status == 0 and row["requests"] == 2 and row["value"] == 4
    said = refused(capsys, "serving", *given, "--rate", "1", "--arrivals-unit", "ms")
    assert "arrivals_unit needs arrivals" in said
    with pytest.raises(UserError, match="must be s or ms, not 'us'"):
        serving.serve("reference", "none", ATLAS, arrivals=file, arrivals_unit="us")


def by_room(view):
    return view.room.clip(max=3)


class Alternating(Plain):
    """A length and none in turn."""

    name, max_draft = "alternating", 4

    def begin(self, max_batch):
        self.seen = []

    def lengths(self, view):
        return 4 if view.number % 2 else 0

    def observe(self, view, drafted, proposed, accepted, ended):
        self.seen.append((drafted.copy(), accepted.copy()))

    def __str__(self):
        return "alternating"


def test_a_function_is_a_controller_and_does_what_the_same_built_in_does():
    given = dict(cost=ATLAS, concurrency=4, requests=30, seeds=1)
    mine = serving.serve("reference", by_room, **given).runs[0]
    theirs = serving.serve("reference", "static(3)", **given).runs[0]
    assert mine.server.done_s.tolist() == theirs.server.done_s.tolist()
    assert str(mine.controller) == "by_room"


def test_so_is_a_class():
    mine = Alternating()
    found = simkit.serve("reference", [mine], ATLAS, concurrency=3, requests=9, seeds=1)
    steps = found.runs[0].steps
    assert set(steps["drafted"][steps["iteration"] % 2 == 0].tolist()) == {0}
    assert len(mine.seen) > 0


@pytest.mark.parametrize("wrong", [-1, 2.5, "3", [1, 2]])
def test_what_a_function_gives_is_checked(wrong):
    with pytest.raises(PolicyError, match="must give a whole number >= 0"):
        serving.serve("reference", lambda view: wrong, ATLAS, concurrency=3, requests=6, seeds=1)


class Counting(Plain):
    """One whose state shows if two runs share it."""

    name, max_draft = "counting", 4

    def begin(self, max_batch):
        self.count = 0

    def lengths(self, view):
        self.count += 1
        return self.count % 4

    def chosen(self, view, drafted):
        assert set(view.ahead.tolist()) <= {-1}
        return drafted


def test_runs_of_one_object_do_not_meet():
    given = dict(cost=ATLAS, concurrency=[2, 5], requests=20, seeds=3)
    one, many = (serving.serve("reference", Counting(), workers=n, **given) for n in (1, 4))
    assert one.seeds["tokens_s"].to_list() == many.seeds["tokens_s"].to_list()


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([lambda view: 1, lambda view: 3], "two different controllers are both called function"),
        (Counting, "Counting is a class: give an object of it"),
    ],
)
def test_controllers_that_are_mistaken_are_refused(given, expected):
    with pytest.raises(UserError, match=expected):
        serving.serve("reference", given, ATLAS, concurrency=2, requests=4, seeds=1)


def test_a_load_counts_once():
    found = serving.serve("reference", "none", ATLAS, concurrency=[2, 2], requests=6, seeds=2)
    assert found.frame["seeds"].to_list() == [2]


def test_no_function_sees_what_will_be_accepted():
    seen = []

    def look(view):
        seen.append(view.ahead.max())
        return 1

    serving.serve("reference", look, ATLAS, concurrency=2, requests=4, seeds=1)
    assert set(seen) == {-1}


def test_drawn_outcomes_have_the_given_rates():
    rates = (0.8, 0.5, 0.25)
    found = serving.serve(
        "reference", "static(3)", ATLAS, concurrency=8, requests=400, seeds=1, rates=rates
    )
    steps = found.runs[0].steps
    whole = steps["proposed"] == 3
    reached = [(steps["accepted"][whole] >= k).mean() for k in (1, 2, 3)]
    assert reached == pytest.approx([0.8, 0.4, 0.1], abs=0.02)


def test_captured_sizes_pad_a_pass_up():
    given = dict(cost=ATLAS, concurrency=5, requests=20, seeds=1)
    plain = serving.serve("reference", "static(3)", **given)
    padded = serving.serve("reference", "static(3)", engine=Engine(captured=(4, 16)), **given)
    whole = serving.serve(
        "reference", "static(3)", engine=Engine(captured=(1, 2, 3, 4, 5)), **given
    )
    seconds = [one.records()[0]["seconds"] for one in (plain, padded, whole)]
    assert seconds[0] == pytest.approx(seconds[2]) and seconds[1] > seconds[0]


def test_contradicting_numbers_of_requests_are_refused(capsys):
    words = ["serving", "reference", "--controller", "none", "--once", "--requests", 5]
    cost = ["--cost", "linear(draft_s=1, target_s=10, target_per_token_s=0.1)"]
    assert "--once serves each recorded sequence once" in refused(capsys, *words, *cost)
