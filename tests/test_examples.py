"""The examples in the docstrings of public names, run as they stand."""

import doctest

import matplotlib
import pytest

import analysis
import simkit
import traces
from analysis import claims, compare
from analysis.claims import ByAcceptance
from simkit.surface import Plotted
from traces.bundle import ROOT

TOP = {
    f"{module.__name__}.{name}": getattr(module, name)
    for module in (simkit, traces, analysis)
    for name in module.__all__
    if callable(getattr(module, name)) and not name.endswith("Error")
}
MORE = (claims.check, claims.by_acceptance, compare.compare, ByAcceptance.plot, Plotted.plot)


NAMES = {
    "simkit": simkit,
    "traces": traces,
    "analysis": analysis,
    "check": claims.check,
    "CLAIMS": claims.CLAIMS,
    "MODELS": ROOT / "reference" / "models",
}
"""What the shortest examples take for granted."""


@pytest.fixture(autouse=True)
def somewhere_else(tmp_path, monkeypatch):
    matplotlib.use("Agg")
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("name", TOP)
def test_public_names_have_an_example(name):
    assert ">>> " in TOP[name].__doc__, "no example"


@pytest.mark.parametrize("name", [*TOP, *(thing.__qualname__ for thing in MORE)])
def test_examples_give_what_they_show(name):
    thing = TOP.get(name) or next(one for one in MORE if one.__qualname__ == name)
    finder, runner = doctest.DocTestFinder(recurse=False), doctest.DocTestRunner(verbose=False)
    found = finder.find(thing, name, globs=dict(NAMES))
    said = []
    for one in found:
        runner.run(one, out=said.append)
    assert not runner.failures, "".join(said)


SPECS = ["fixed(1:3)", "svip(h=0.8)"]
COST = "linear(draft_s=1, target_s=10, draft_per_token_s=0.01, target_per_token_s=0.1)"
RESULTS = {
    "replay": lambda: simkit.replay("reference", ["fixed(3)", "svip(h=0.8)"], COST),
    "by task": lambda: simkit.replay("reference", "fixed(3)", COST, by="task"),
    "drafters": lambda: simkit.replay("reference", {"own": "fixed(3)", "suffix": "fixed(3)"}, COST),
    "sweep": lambda: simkit.sweep("reference", SPECS, COST),
    "tune": lambda: simkit.tune("reference", SPECS, COST),
    "serve": lambda: simkit.serve("reference", ["none", "static(2)"], COST, concurrency=[1, 4],
                                  requests=20, seeds=2),
}  # fmt: skip


@pytest.mark.parametrize("kind", RESULTS)
def test_results_are_drawn(kind):
    """Each row's value and interval are in the picture."""
    result = RESULTS[kind]()
    what = "steady_tokens_s" if kind == "serve" else "speedup"
    ax = result.plot()
    assert what in (ax.get_xlabel(), ax.get_ylabel())
    along = 1 if kind == "serve" else 0
    drawn = [point[along] for one in ax.containers for point in one[0].get_xydata()]
    values = [value for value in result.frame[what].to_list() if value is not None]
    assert sorted(drawn) == pytest.approx(sorted(values))
    if kind == "replay":
        (bars,) = ax.containers[0][2]
        ends = [end for segment in bars.get_segments() for end in segment[:, 0]]
        wanted = [*result.frame["speedup_lo"], *result.frame["speedup_hi"]]
        assert sorted(ends) == pytest.approx(sorted(wanted))


def test_notes_of_weak_numbers_are_in_the_picture():
    """Times beyond those that were taken, loops: what the table says, the picture says."""
    result = simkit.replay("reference", ["fixed(3)", "oracle"])
    drawn = result.plot().get_title(loc="left").replace("\n", " ")
    assert len(result.notes) > 1 and all(note in drawn for note in result.notes)


def test_of_many_rows_the_largest_are_drawn():
    found = simkit.sweep("reference", "svip(h=0.1:2:0.02)", COST)
    ax = found.plot()
    assert ax.get_title(loc="left").startswith("40 of 96, the largest\n")
    largest = found.frame["speedup"].top_k(40).min()
    assert min(ax.containers[0][0].get_xdata()) == pytest.approx(largest)


@pytest.mark.parametrize("what", ["speed", "policy"])
def test_what_cannot_be_drawn_is_refused(what):
    with pytest.raises(traces.UserError, match=f"no column '{what}' of numbers .did you mean"):
        simkit.replay("reference", "fixed(3)", COST).plot(what)
