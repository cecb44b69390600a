"""The sentence that ends a table claims what the table's rows support, and nothing else."""

from types import SimpleNamespace

import pytest
from commands import run

from analysis.compare.answer import answer as of_pair
from analysis.compare.measures import Measured
from analysis.compare.ranks import Rank, Ranked
from analysis.stats import Estimate
from simkit.serving.answer import answer as of_served
from simkit.sweeps.answer import of_sweep, of_tuned
from simkit.sweeps.tuning import Choice

NAN = float("nan")


def served(*rows, more=True):
    """Rows (requests, controller, tokens a second, ratio to the first, its ends)."""
    names = ("value", "controller", "steady_tokens_s", "steady_against")
    names += ("steady_against_lo", "steady_against_hi")
    records = [{"load": "concurrency", **dict(zip(names, row, strict=True))} for row in rows]
    return SimpleNamespace(records=lambda: records, surely_more=lambda *_: more)


NONE = (8, "none()", 100.0, 1.0, None, None)
GAIN, UNSURE = (8, "static(3)", 150.0, 1.5, 1.4, 1.6), (8, "static(3)", 110.0, 1.1, 0.9, 1.3)
BETTER = (8, "goodput(6)", 160.0, 1.6, 1.5, 1.7)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (
            served(NONE, GAIN),
            "With 8 requests in flight static(3) serves the most tokens, 1.500 [1.400, 1.600] times"
            " no drafts.",
        ),
        (
            served(NONE, (8, "schedule({4: 4})", *GAIN[2:])),
            "With 8 requests in flight schedule({4: 4}) serves the most tokens, 1.500 [1.400,"
            " 1.600] times no drafts.",
        ),
        (
            served(NONE, UNSURE),
            "With 8 requests in flight no controller serves measurably more tokens than no drafts.",
        ),
        (
            served(NONE, GAIN, BETTER, more=False),
            "With 8 requests in flight goodput(6) serves the most tokens (not measurably more than"
            " static(3)), 1.600 [1.500, 1.700] times no drafts.",
        ),
        (
            served(NONE, (*GAIN[:4], None, None)),
            "With 8 requests in flight static(3) serves the most tokens, 1.500 times no drafts (no"
            " interval).",
        ),
        (
            served(NONE, GAIN, (1, *NONE[1:]), (1, *UNSURE[1:])),
            "With 1 request in flight no controller serves measurably more tokens than no drafts;"
            " with 8 requests in flight static(3) serves the most tokens, 1.500 [1.400, 1.600]"
            " times no drafts.",
        ),
        (
            served(NONE, GAIN, (16, *NONE[1:]), (16, *GAIN[1:3], 1.2, 1.1, 1.3)),
            "With 8 to 16 requests in flight static(3) serves the most tokens, 1.500 [1.400, 1.600]"
            " to 1.200 [1.100, 1.300] times no drafts.",
        ),
        (served(GAIN), "With 8 requests in flight static(3) serves 150 tokens per second."),
    ],
)
def test_serving(given, expected):
    assert of_served(given) == expected


def chosen(spec, setting, speed, against, lo, hi):
    return Choice(spec, None, 2, setting, speed, speed, speed, speed, against, lo, hi, {})


BASE = chosen("fixed(0:20)", "fixed(4)", 1.6, 1.0, 1.0, 1.0)


@pytest.mark.parametrize(
    ("lo", "hi", "verdict"),
    [
        (1.01, 1.2, "is faster than"),
        (0.8, 0.99, "is slower than"),
        (0.9, 1.1, "does not differ measurably from"),
        (NAN, NAN, "is compared, without an interval, with"),
    ],
)
def test_tune(lo, hi, verdict):
    said = of_tuned([BASE, chosen("svip(h=0:1:1)", "svip(h=1)", 1.5, 1.0, lo, hi)], BASE.spec)
    assert said.startswith(f"On held-out prompts svip(h=1) {verdict} fixed(4) (1.000")


def test_tune_where_nothing_else_was_chosen():
    for choices in ([BASE], [BASE, chosen("fixed(0:8)", "fixed(4)", 1.6, 1.0, 1.0, 1.0)]):
        assert "fixed(4) is 1.600 [1.600, 1.600] times as fast" in of_tuned(choices, BASE.spec)


def test_sweep():
    import simkit
    from traces.synthetic import iid

    trace = iid(12, 40, 0.6, max_draft=10, seed=4)
    cost = "linear(draft_s=0.004, target_s=0.03)"
    found = simkit.sweep(trace, "fixed(0:6)", cost)
    best = found.best()["policy"][0]
    assert of_sweep(found).startswith(f"The fastest of 7 settings is {best} (")
    assert of_sweep(simkit.sweep(trace, "fixed(2)", cost)).startswith("The only setting is fixed(2")
    assert "no times" in of_sweep(simkit.sweep(trace, "fixed(0:6)"))
    slow = simkit.sweep(trace, "autoregressive", cost, intervals=True)
    assert "not measurably different" in of_sweep(slow)


def estimate(value, lo=None, hi=None):
    return Estimate(value, lo, hi, 9)


def ranked(name, first, second, ratio, last=1):
    ranks = (Rank(1, 1, 1), Rank(1, 1, last))
    return Ranked(name, (name, name), estimate(first), estimate(second), estimate(*ratio), ranks)


def pair(*rows, measures=()):
    rankings = (SimpleNamespace(rows=rows),) if rows else ()
    return SimpleNamespace(names=("A", "B"), rankings=rankings, measures=measures)


def test_compare_names_the_fastest_on_each_side():
    fast, slow = ranked("x", 1.5, 1.4, (0.9, 0.8, 1.1)), ranked("y", 1.2, 1.1, (0.9, 0.8, 0.95))
    said = of_pair(pair(fast, slow))
    assert said.startswith("x is the fastest policy on both: 1.500") and "do not differ" in said
    assert of_pair(pair(slow)).endswith("the two differ.")
    other = ranked("y", 1.2, 1.6, (1.3, 1.2, 1.4), last=2)
    said = of_pair(pair(fast, other))
    assert said.startswith("The fastest policy is x (1.500") and "(rank 1 to 2)" in said
    assert "no interval" in of_pair(pair(ranked("x", 1.5, 1.4, (0.9,))))


def test_compare_without_times_names_a_statistic_that_differs():
    def one(lo, hi):
        both = estimate(0.6), estimate(0.5)
        return Measured("overlap β", ".3f", *both, estimate(-0.1, lo, hi))

    said = of_pair(pair(measures=[one(-0.2, 0.1), one(-0.2, -0.05)]))
    assert "overlap β is lower on B than on A" in said
    assert of_pair(pair(measures=[one(-0.2, 0.1)])) == "No statistic of A and B differs measurably."


@pytest.mark.parametrize(
    "words",
    [
        ["sweep", "reference", "--policy", "fixed(1:2)"],
        ["tune", "reference", "--policy", "fixed(1:2)", "--deals", "1"],
        ["compare", "reference", "reference-sampled", "--policy", "fixed(2)"],
    ],
)
def test_commands_end_with_it_where_people_read(words, capsys):
    status, out, _ = run(capsys, *words)
    assert status == 0 and out.splitlines()[-1].endswith(".") and not out.splitlines()[-2].strip()
    status, out, _ = run(capsys, *words, "--format", "csv")
    assert status == 0 and not out.rstrip().endswith(".")
