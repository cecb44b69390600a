"""Intervals of speeds in figures, claims and the report hold the spread of the timing samples."""

import re

import numpy as np
import pytest
from test_conditions import timed, trace_of
from typer.testing import CliRunner

import simkit
from analysis.claims import check, claims
from analysis.figures import optimal_gain, optimal_gamma, pearl_window
from analysis.replays import of
from analysis.report import report
from analysis.speeds import factors, speed, speedup
from analysis.stats import clusters, compare
from analysis.study import Study
from simkit.cli import app
from simkit.costs import Linear
from traces.synthetic import iid
from traces.writer import add_file, save

pytestmark = pytest.mark.usefixtures("few_requests")

HELD = "ntervals of speeds hold the spread of the timing samples"


@pytest.fixture(scope="module")
def studies() -> list[Study]:
    """The same alike prompts, timed with little noise and with ten times as much."""
    return [Study(trace_of(timed(20, noise))) for noise in (0.02, 0.2)]


def test_speeds_are_those_of_a_replay(studies):
    """Value and ends, of a policy over the target alone, and of two paired by the same draws."""
    for study in studies:
        at, specs = of(study, None), ["fixed(2)", "fixed(4)"]
        result = simkit.replay(study.trace, specs)
        one, other = (at.replay(spec) for spec in specs)
        for mine, row in zip((one, other), result.records(), strict=True):
            found = speedup(mine)
            want = (row["speedup"], row["speedup_lo"], row["speedup_hi"])
            assert (found.value, found.lo, found.hi) == pytest.approx(want)
        found, pair = speed(one, other), result.compare(*specs)
        assert (found.value, found.lo, found.hi) == pytest.approx(
            (pair.speedup, pair.speedup_lo, pair.speedup_hi)
        )
        same = speed(one, one)
        assert (same.lo, same.hi) == pytest.approx((1, 1))


def test_more_noise_is_wider(studies):
    def width(study, spec="fixed(2)"):
        found = speedup(of(study, None).replay(spec))
        return found.hi / found.lo - 1

    assert 5 * width(studies[0]) < width(studies[1]) < 20 * width(studies[0])


def test_the_target_alone_is_priced_by_the_same_draws(studies):
    at = of(studies[1], None)
    one, alone = at.replay("fixed(2)"), at.replay("target alone")
    found, want = speed(one, alone), speedup(one)
    assert (found.lo, found.hi) == pytest.approx((want.lo, want.hi))


def test_intervals_at_once_hold_it_too():
    """The arm of a logarithm is the root of both squares; p-values stay those of prompts."""
    rng = np.random.default_rng(0)
    other = rng.uniform(1, 2, 40)
    seconds = {"a": other * rng.uniform(0.7, 0.9, 40), "b": other}
    drawn = {"a": np.exp(rng.normal(0, 0.1, 32)), "b": np.ones(32)}
    plain = compare.simultaneous(seconds, "b")["a"]
    wider = compare.simultaneous(seconds, "b", factors=drawn)["a"]
    arms = [np.log(one.hi / one.lo) for one in (plain, wider)]
    assert plain.value == wider.value and arms[1] > 1.5 * arms[0]
    (one,), (two,) = (compare.compare(seconds, "b", factors=f) for f in (None, drawn))
    assert one.p_value == two.p_value and two.speed.hi > one.speed.hi
    alike = clusters.ratio(other, other, factors=drawn["a"])
    assert alike.lo < 1 < alike.hi and clusters.ratio(other, other).lo is None


def test_given_times_have_no_spread():
    at = of(Study(iid(12, 30, 0.7, max_draft=8, seed=1)), Linear(0.001, 0.004))
    one = at.replay("fixed(2)")
    assert one.timing() is None and factors({"a": one}) is None
    plain = clusters.ratio(one.seconds["baseline_s"], one.total_s)
    assert speedup(one) == plain


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> str:
    """Prompts that differ; times in 20 rounds whose control was 100% apart."""
    place = tmp_path_factory.mktemp("timed") / "trace"
    save(iid(12, 30, 0.7, max_draft=16, seed=1), place)
    add_file(place, "latency.parquet", timed(20, 0.2, apart=1.0))
    return str(place)


def test_captions_and_pages_say_it(folder):
    study = Study(folder)
    for draw in (pearl_window, optimal_gain, optimal_gamma):
        drawn = draw(study)
        told = [*(t.get_text() for t in drawn.ax.texts), *drawn.notes]  # a long caption goes on
        assert HELD in " ".join(" ".join(told).split())
        given = draw(study.trace, cost=Linear(0.001, 0.004))
        assert "spread" not in " ".join(t.get_text() for t in given.ax.texts)
    some = [one for one in claims() if one.name == "optimal_is_faster"]
    assert HELD in check(study, claims=some, placebo=None).note()
    assert any(HELD in line for line in report(study.trace, figures=False).caveats)
    once = Study(trace_of(timed(1, 0.0)))
    said = check(once, claims=some, placebo=None).note()
    assert "Intervals do not hold the spread of the times, which is not known." in said


@pytest.mark.parametrize("command", ["claims", "figures"])
def test_commands_warn_of_bad_times(command, folder, tmp_path):
    words = [command, folder]
    words += [] if command == "claims" else ["--out", str(tmp_path), "--only", "optimal_gain"]
    found = CliRunner().invoke(app, words)
    assert found.exit_code == 0
    assert re.search(r"note: do not trust these times: target over 3 tokens", found.stderr)
    assert not CliRunner().invoke(app, [*words, "--cost", "linear(draft_s=1, target_s=6)"]).stderr
