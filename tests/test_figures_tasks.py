"""Figures of a trace with more tasks than fit side by side."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure

from analysis import figures
from analysis.figures.drawing.tasks import MOST, MOST_NARROW, few, tasks_on

AXES = {width: Figure((width, 4.2)).subplots() for width in (3.3, 6.4)}
VALUES = st.dictionaries(
    st.text(min_size=1, max_size=3), st.floats(0, 9) | st.just(float("nan")) | st.none()
)


@pytest.mark.parametrize(("width", "most"), [(6.4, MOST), (3.3, MOST_NARROW)])
@given(values=VALUES)
def test_of_many_series_the_highest_the_lowest_and_the_last_are_drawn(width, most, values):
    shown, said = few(AXES[width], values)
    assert shown == [name for name in values if name in shown]
    if len(values) <= most:
        assert (shown, said) == (list(values), "")
        return
    *each, last = values
    assert len(shown) == most and shown[-1] == last and f"of {len(each)} tasks" in said
    known = [v for v in map(values.get, each) if v is not None and v == v]
    drawn = [v for v in map(values.get, shown[:-1]) if v is not None and v == v]
    if len(known) == len(each):
        assert max(drawn) == max(known) and min(drawn) == min(known)


@pytest.mark.parametrize("word, width", [("math", 6.4), ("math", 3.3), ("summarization", 6.4)])
@pytest.mark.parametrize("number", [3, MOST, MOST + 1, 16])
def test_names_of_tasks_do_not_hide_each_other(number, word, width):
    figure = Figure((width, 4.2))
    ax = figure.subplots()
    tasks_on(ax, {f"{word} {k}": np.ones(20, bool) for k in range(number)}, "outside of")
    figure.canvas.draw()
    labels = ax.get_xticklabels()
    aslant = {label.get_rotation() > 0 for label in labels}
    assert number <= MOST or aslant == {True}
    if aslant == {False}:
        boxes = [label.get_window_extent() for label in labels]
        assert all(a.x1 < b.x0 for a, b in pairwise(boxes))


def test_a_picture_has_some_of_fourteen_tasks_and_its_frame_has_all():
    drawn = figures.optimal_lengths("smollm2")
    legend = drawn.ax.get_legend()
    assert legend is not None and len(legend.get_texts()) == MOST + 1  # and all, outside of loops
    names = {name for name in drawn.frame["task"].unique() if "outside" not in name}
    assert len(names) == 15


def test_a_figure_grows_with_its_tasks_and_a_given_one_does_not():
    cost = "linear(draft_s=0.001, target_s=0.01)"
    assert figures.gap_decomposition("smollm2", cost=cost).figure.get_figheight() > 5
    given = Figure((5, 3))
    figures.gap_decomposition("smollm2", given.subplots(), cost=cost)
    assert given.get_figheight() == 3
