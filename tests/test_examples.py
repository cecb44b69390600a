"""The examples in the docstrings of public names, run as they stand."""

import doctest
from functools import cache

import matplotlib
import pytest

import analysis
import simkit
import traces
from analysis import claims, compare, figures, stats
from analysis.claims import ByAcceptance
from analysis.figures import FIGURES, Drawn
from simkit import costs, engines, policies, serving
from simkit.costs.registry import COSTS
from simkit.policies.registry import POLICIES
from simkit.surface import Plotted
from traces.bundle import ROOT
from traces.subset import select

pytestmark = pytest.mark.usefixtures("few_requests")

MODULES = (policies, costs, serving, engines, stats, figures, simkit, traces, analysis)
NAMED = {  # what two modules offer goes by its name in the last one
    getattr(module, name): f"{module.__name__}.{name}"
    for module in MODULES
    for name in module.__all__
    if callable(getattr(module, name)) and not name.endswith("Error")
}
TOP = {name: thing for thing, name in NAMED.items()}
MORE = (claims.check, claims.by_acceptance, compare.compare, ByAcceptance.plot, Plotted.plot)


NAMES = {
    "simkit": simkit,
    "traces": traces,
    "analysis": analysis,
    "engines": engines,
    "check": claims.check,
    "CLAIMS": claims.CLAIMS,
    "MODELS": ROOT / "reference" / "models",
}
"""What the shortest examples take for granted."""


@pytest.fixture(autouse=True)
def somewhere_else(tmp_path, monkeypatch):
    """What examples write and register is gone after them."""
    matplotlib.use("Agg")
    monkeypatch.chdir(tmp_path)
    for registry in (POLICIES, COSTS, engines.ENGINES):
        for kept in ("_things", "_origins"):
            monkeypatch.setattr(registry, kept, dict(getattr(registry, kept)))


@pytest.mark.parametrize("name", TOP)
def test_public_names_have_an_example(name):
    assert ">>> " in TOP[name].__doc__, "no example"


def check(thing, name):
    finder, runner = doctest.DocTestFinder(recurse=False), doctest.DocTestRunner(verbose=False)
    found = finder.find(thing, name, globs=dict(NAMES))
    said = []
    for one in found:
        runner.run(one, out=said.append)
    assert runner.tries and not runner.failures, "".join(said)


OTHERS = {name: thing for name, thing in TOP.items() if name.rpartition(".")[2] not in FIGURES}
OTHERS |= {thing.__qualname__: thing for thing in MORE}


@pytest.mark.parametrize("name", OTHERS)
def test_examples_give_what_they_show(name):
    check(OTHERS[name], name)


@cache
def study(name, few):
    trace = traces.load(name)
    if few:
        heads = [file.stem for file in (trace.path / "scores").iterdir()]
        trace = select(trace, range(0, 128, 16), heads, 64, trace.latency())
    return analysis.Study(trace)


@pytest.mark.parametrize("name", FIGURES)
def test_examples_of_figures_give_what_they_show(name, monkeypatch):
    """Of short outputs of eight prompts unless drafters or trees are needed; pictures are empty."""
    few = not (FIGURES[name].drafters or FIGURES[name].trees)
    monkeypatch.setattr("analysis.figures.base.study_of", lambda trace, _: study(trace, few))
    monkeypatch.setattr(Drawn, "picture", lambda *_: b"")
    check(getattr(figures, name), name)


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
