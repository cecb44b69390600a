"""Figures of serving: what they draw is what `simkit.serve` gives."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from scipy.stats import t
from test_figures import COST, check, small
from test_lattice import spelled_out

import simkit
import traces
from analysis import figures, serving
from analysis.figures.drawing.panels import round_ticks
from analysis.serving import At, LoadCurve, burst, crossing, curves, falls, over_time
from analysis.study import MissingError, Study
from simkit.serving import Engine
from simkit.serving.pools import Sample
from traces.errors import UserError

ENGINE = Engine(max_batch=8, extrapolate=True)
FEW = {"seeds": 2, "controllers": ("static(1)", "ema")}


@pytest.fixture(scope="module")
def trace():
    return small(prompts=8)


def known(trace, controllers, **how) -> dict[tuple[str, float], dict]:
    served = simkit.serve(trace, controllers, COST, **how)
    return {(row["controller"], row["value"]): row for row in served.records()}


def test_crossover_is_what_is_served(trace):
    found = figures.load_crossover(trace, cost=COST, concurrency=(1, 8), **FEW).frame
    rows = {}
    for size, requests in ((1, serving.LEAST), (8, 8 * serving.EACH)):
        how = {"concurrency": size, "requests": requests, "seeds": 2, "engine": ENGINE}
        rows |= known(trace, ["none", "static(1)", "ema"], **how)
    for mine in found.iter_rows(named=True):
        label = {"none": "none()", "ema": "ema(3)"}.get(mine["controller"], mine["controller"])
        row = rows[label, mine["concurrency"]]
        for end in ("", "_lo", "_hi"):
            for name in ("steady_against", "steady_tokens_s"):
                assert mine[f"{name}{end}"] == pytest.approx(row[f"{name}{end}"])


def test_frontier_is_what_is_served(trace):
    given = {"controllers": ("static(1)",), "batches": (4,), "seeds": 2}
    found = figures.load_frontier(trace, cost=COST, **given).frame
    how = {"concurrency": 4, "requests": 4 * serving.EACH, "seeds": 2, "engine": ENGINE}
    rows = known(trace, ["none", "static(1)"], **how)
    for mine, row in zip(found.iter_rows(named=True), rows.values(), strict=True):
        assert mine["steady_tokens_s"] == pytest.approx(row["steady_tokens_s"])
        assert mine["user_tokens_s"] == pytest.approx(row["user_tokens_s"])
        assert mine["user_tokens_s_hi"] == pytest.approx(row["user_tokens_s_hi"])


def test_latencies_are_what_is_served(trace):
    found = figures.load_latency(trace, cost=COST, shares=(0.5, 1.1), **FEW).frame
    rates = found["rate"].unique(maintain_order=True).to_list()
    how = {"rate": rates, "requests": 240, "seeds": 2, "engine": Engine(extrapolate=True)}
    rows = known(trace, ["none", "static(1)", "ema"], **how)
    for mine, row in zip(
        found.iter_rows(named=True),
        sorted(
            rows.values(),
            key=lambda row: (
                ["none()", "static(1)"].index(row["controller"])
                if row["controller"] != "ema(3)"
                else 2
            ),
        ),
        strict=True,
    ):
        for name in ("ttft_s_p50", "ttft_s_p99", "tpot_s_p50", "tpot_s_p99"):
            assert mine[name] == pytest.approx(row[name])
    closed = known(trace, ["none"], concurrency=64, requests=64 * serving.EACH, seeds=2)
    assert found["saturates"][0] == pytest.approx(closed["none()", 64]["steady_requests_s"])
    assert rates[0] == pytest.approx(0.5 * found["saturates"][0])


def test_goodput_is_what_is_served(trace):
    limits = {"ttft_s": 200.0, "tpot_s": 9.0}
    found = figures.load_goodput(trace, cost=COST, shares=(0.5,), **limits, **FEW).frame
    how = {"rate": found["rate"][0], "requests": 240, "seeds": 2, "limits": limits}
    rows = known(trace, ["none", "static(1)", "ema"], **how)
    for mine, row in zip(found.iter_rows(named=True), rows.values(), strict=True):
        assert mine["goodput_s"] == pytest.approx(row["goodput_s"])
        assert mine["good_share"] == pytest.approx(row["good_share"])
        assert 0 <= mine["good_share"] <= 1 and mine["goodput_s"] <= mine["rate"] * 1.5


def test_timeline_adds_up_to_the_run(trace):
    """Over one interval that holds all: the mean batch and length of `simkit.serve`."""
    times = burst(0.2, 60, seed=3)
    (run,) = simkit.serve(trace, "static(2)", COST, arrivals=times, requests=60, seeds=1)
    row = simkit.serve(trace, "static(2)", COST, arrivals=times, requests=60, seeds=1).records()[0]
    end_s = float(run.server.done_s.max())
    whole = over_time(run, np.array([0.0, end_s]))
    assert whole["batch"][0] == pytest.approx(row["batch"])
    assert whole["drafted"][0] == pytest.approx(row["length"])
    parts = over_time(run, np.linspace(0, end_s, 8))
    assert parts["batch"].mean() == pytest.approx(row["batch"])


def test_timeline_is_drawn_of_one_run(trace):
    found = figures.load_timeline(trace, cost=COST, requests=40)
    check(found)
    assert set(found.frame["controller"]) == {"ema", "by_batch", "budget"}
    assert found.frame["batch"].max() <= serving.LARGEST


@pytest.mark.parametrize(
    ("ratio", "at"),
    [
        ([1.5, 1.25, 0.75], 4 * 2**0.5 * 2**0.5 / 2**0.5),  # half way from 4 to 8, in octaves
        ([0.9, 1.1, 0.9], 4 * 2**0.5),
        ([1.5, 1.2, 1.0], None),
        ([0.5, 0.4, 0.3], None),
        ([1.0, 0.5, 0.3], 2.0),
    ],
)
def test_falls(ratio, at):
    found = falls(np.array([2.0, 4.0, 8.0]), np.array(ratio))
    assert found == (None if at is None else pytest.approx(at))


def test_crossing_lies_between_the_loads(trace):
    """Dear drafts lose from some batch on: where one and the other load are on either side."""
    cost = "linear(draft_s=1, target_s=10, target_per_token_s=1)"
    loads = serving.closed((1, 4, 16, 64))
    found = curves(Study(trace), ["none", "static(3)"], loads, cost, seeds=3)
    end = crossing(found.of["static(3)"], found.of["none"])
    means = found.of["static(3)"].seeds["steady_against"].mean(axis=1)
    assert end.value is not None and end.lo is not None and end.hi is not None
    assert means[0] > 1 > means[-1] and 1 < end.value < 64 and end.lo <= end.value <= end.hi
    never = crossing(found.of["none"], found.of["none"])
    assert never.value is None and "at or above" in never.note


def test_loads_away_from_a_crossing_have_no_say_in_its_interval():
    """Seeds cross between loads 2 and 8, whose runs serve 64 requests at most."""
    at, base = np.array([1.0, 2, 4, 8, 64]), np.ones((5, 3))
    ratio = np.array([[2.0, 2, 2], [1.2, 1.5, 1.1], [0.9, 1.2, 0.6], [0.5, 0.8, 0.4], [0.2] * 3])
    samples = [Sample(100, n) for n in (48, 48, 56, 64, 1024)]
    one, other = (
        LoadCurve("", "", at, {"steady_tokens_s": values}, [90] * 5, samples)
        for values in (ratio, base)
    )
    each = np.log([falls(at, column) for column in ratio.T])
    found = crossing(one, other)
    half = t.ppf(0.975, 2) * each.std(ddof=1) * (64 / 99) ** 0.5
    assert found.value == pytest.approx(falls(at, ratio.mean(1)))
    assert np.log([found.lo, found.hi]) == pytest.approx(np.log(found.value) + [-half, half])


def test_burst_is_faster_in_its_middle():
    times = burst(2.0, 4000, seed=1, times=5.0)
    gaps = np.diff(times, prepend=0.0)
    assert gaps[:1000].mean() == pytest.approx(0.5, rel=0.1)
    assert gaps[1000:3000].mean() == pytest.approx(0.1, rel=0.1)
    assert (gaps >= 0).all()


def test_one_drafter_of_each_kind():
    assert list(serving.of_kinds(Study("reference"))) == ["own", "eagle", "suffix", "pard2"]
    assert list(serving.of_kinds(Study("reference-target"))) == [
        "draft",
        "eagle",
        "suffix",
        "pard2",
    ]
    alone = traces.load("reference", drafter="pard2")
    assert "own" in serving.of_kinds(Study(alone))
    asked = traces.load("ladder", drafter="q3-g32")
    assert list(serving.of_kinds(Study(asked))) == ["q3-g32"]


def test_frontier_of_several_drafters():
    given = {"controllers": ("static(3)",), "batches": (2,), "seeds": 1}
    found = figures.load_frontier("reference", **given)
    check(found)
    assert found.frame["drafter"].to_list() == [None, "own", "eagle", "suffix", "pard2"]
    words = [found.ax.texts[-1].get_text().replace("\n", " "), *found.notes]
    assert "eagle and pard2 are priced" in " ".join(words)


@pytest.mark.parametrize("name", ["load_crossover", "load_frontier", "load_goodput"])
def test_a_lattice_is_drawn(name, trace):
    check(figures.FIGURES[name].under(spelled_out(trace), COST))


def test_controllers_that_do_not_fit_are_left_out(trace):
    """Γ = 40 here: a draft of 41 is more than was recorded, and the others are drawn."""
    given = {"controllers": ("static(1)", "static(41)"), "concurrency": (1, 2), "seeds": 1}
    found = figures.load_crossover(small(1.0, prompts=4), cost=COST, **given)
    assert "static(1)" in set(found.frame["controller"])
    with pytest.raises(UserError) as error:
        curves(Study(trace), ["nonsense"], [At("concurrency", 1, 4)], COST)
    assert "\n" not in str(error.value) and "nonsense" in str(error.value)
    with pytest.raises(MissingError, match="nonsense"):
        serving.served(Study(trace), ["nonsense"], COST, burst(1.0, 4))


def test_times_of_one_sequence_alone_are_refused():
    with pytest.raises(UserError, match="one sequence alone were timed") as error:
        figures.load_crossover("reference", cost="measured")
    assert "\n" not in str(error.value)


def test_what_is_said_of_times():
    """The atlas has batches of 64; beyond, and of drafts in one pass, captions say so."""
    given = {"controllers": ("static(1)",), "concurrency": (1, 128), "seeds": 1}
    said = figures.load_crossover(traces.load("reference", drafter="pard2"), **given)
    words = " ".join([said.ax.texts[-1].get_text().replace("\n", " "), *said.notes])
    assert "Passes over more than 64 sequences were not timed: their times up to 128" in words
    assert "utcomes are exact, the schedule is simulated" in words  # a note begins with a capital
    assert "priced as the cost's draft model's" in words and serving.COST in words
    assert words.startswith("Slower than no drafts: ")
    assert said.notes[0].startswith("Acceptance and times are of different pairs: ")
    given["concurrency"] = (1, 2)
    words = figures.load_crossover("reference", **given).ax.texts[-1].get_text()
    assert "not timed" not in words and "priced as" not in words


@pytest.mark.parametrize(
    ("lo", "hi", "ticks"), [(1, 10, [1, 2, 5, 10]), (30, 40, [30]), (0, 1, []), (0.9, 1.1, [1])]
)
def test_round_ticks(lo, hi, ticks):
    assert round_ticks(lo, hi) == pytest.approx(ticks)


def test_a_function_is_a_controller(trace):
    found = simkit.serve(trace, [serving.fewer], COST, concurrency=[1, 4], requests=6, seeds=1)
    lengths = found.frame["length"].to_list()
    assert found.frame["controller"].to_list() == ["fewer", "fewer"] and lengths[0] > lengths[1] > 0
    assert isinstance(found.frame, pl.DataFrame)
