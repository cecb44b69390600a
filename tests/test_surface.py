"""How results, traces and modules answer at a prompt and in a notebook."""

import importlib.util
import sys

import pytest

import simkit
import traces
from simkit.errors import UserError
from traces.did_you_mean import Helpful
from traces.synthetic import iid

COST = "linear(draft_s=0.001, target_s=0.01)"


@pytest.fixture(scope="module")
def trace():
    return iid(14, 40, 0.7, max_draft=10, seed=3)


@pytest.fixture(scope="module")
def result(trace):
    return simkit.replay(trace, ["fixed(2)", "svip(h=0.5)"], COST)


def test_a_comparison_shows_itself(result):
    found = result.compare("svip(h=0.5)", "fixed(2)")
    assert repr(found).startswith("<Comparison: svip(h=0.5) is ")
    assert repr(found).endswith("] times as fast as fixed(2)>")
    assert f'<td style="white-space: nowrap">{found.speedup:.3f} [' in found._repr_html_()


def test_a_trace_shows_itself():
    there = traces.load("reference")
    html = there._repr_html_()
    assert '<th style="text-align: left">target</th>' in html and "eagle, ngram" in html
    assert there.kept_bytes == 0  # no column was read


def test_misspelt_columns(trace):
    with pytest.raises(AttributeError, match="did you mean draft_prob_raw.* columns="):
        simkit.replay(trace, lambda depth, row: row.draft_prob_rwa > 0.3)
    with pytest.raises(UserError, match="draft_prob_rwa was not recorded .did you mean draft_prob"):
        traces.load("reference").positions("draft_prob_rwa")


def test_a_trace_as_a_table():
    there = traces.load("reference")
    table = there.to_arrow()
    assert table.column_names[:2] == ["sequence", "position"]
    assert table.num_rows == there.n_positions
    assert (table["accepted"].to_numpy() == there.positions("accepted")).all()
    drafts = there.with_drafter("suffix").to_arrow()
    assert drafts.column_names[:3] == ["sequence", "start", "depth"]
    if importlib.util.find_spec("pandas"):
        assert list(there.to_pandas().columns) == table.column_names
    with pytest.raises(UserError, match="of the target alone has no drafts"):
        traces.load("reference-target").to_arrow()


def test_sweeps_and_tuned_show_themselves(trace):
    swept = simkit.sweep(trace, "fixed(1:3)", COST)
    fastest = swept.best(1).row(0, named=True)
    name, speedup = fastest["policy"], fastest["speedup"]
    assert repr(swept) == f"<Sweep by trace: 3 settings, fastest {name}: {speedup:.3f}>"
    assert repr(simkit.sweep(trace, "fixed(1:3)")) == "<Sweep by trace: 3 settings>"
    assert "fixed(2)" in str(swept) and "<table>" in swept._repr_html_()
    tuned = simkit.tune(trace, "fixed(1:3)", COST, folds=2, deals=1)
    assert repr(tuned).startswith("<Tuned: fixed(") and repr(tuned).endswith(" held out>")
    assert "held-out speedup" in str(tuned) and "<table>" in tuned._repr_html_()


@pytest.mark.parametrize(
    ("owner", "name", "says"),
    [
        (simkit, "repaly", "module 'simkit' has no attribute 'repaly' (did you mean replay?)"),
        (simkit, "zzz", r"module 'simkit' has no attribute 'zzz' (there is Result, Served"),
        (traces, "laod", "module 'traces' has no attribute 'laod' (did you mean load?)"),
        (simkit.policies, "SVPI", "'simkit.policies' has no attribute 'SVPI' (did you mean SVIP?)"),
        (simkit.costs, "Linaer", "no attribute 'Linaer' (did you mean Linear?)"),
    ],
)
def test_misspelt_names_of_modules(owner, name, says):
    with pytest.raises(AttributeError) as error:
        getattr(owner, name)
    assert says in str(error.value)


def test_misspelt_attributes(result, trace):
    for owner, name, says in (
        (result, "farme", "a Result has no attribute 'farme' (did you mean frame?)"),
        (trace, "n_sequence", "a Trace has no attribute 'n_sequence' (did you mean n_sequences?)"),
        (result.compare("fixed(2)", "svip(h=0.5)"), "speed_up", "(did you mean speedup?)"),
        (simkit.sweep(trace, "fixed(1)"), "bset", "a Sweep has no attribute 'bset' (did you"),
    ):
        with pytest.raises(AttributeError) as error:
            getattr(owner, name)
        assert says in str(error.value)
    assert not hasattr(result, "_repr_png_")


def test_what_a_property_lacks_is_said_not_the_property():
    """Python asks `__getattr__` for a property inside which an attribute is missing."""

    class Mine(Helpful):
        @property
        def frame(self):
            return "text".splitlnies()

    with pytest.raises(AttributeError, match="'str' object has no attribute 'splitlnies'"):
        Mine().frame  # noqa: B018


def test_frames_of_other_libraries(result, monkeypatch):
    assert result.to_polars() is result.frame
    if importlib.util.find_spec("pandas"):
        assert list(result.to_pandas().columns) == result.frame.columns
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(UserError, match="^to_pandas needs pandas: pip install pandas$"):
        result.to_pandas()
