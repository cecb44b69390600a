"""Captions, sizes, styles and files of figures."""

from __future__ import annotations

import json

import numpy as np
import pyarrow.parquet as pq
import pytest
from commands import refused, run
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure
from printed import fit_to_print
from test_figures import draw, small

from analysis import figures
from analysis.figures import FigureError
from analysis.figures.drawing.captions import LINES, Caption, fitted, length
from analysis.figures.drawing.styles import WIDTHS, inches
from analysis.figures.policies.frontier import spread
from analysis.study import Study
from traces.writer import save

pytestmark = pytest.mark.usefixtures("few_requests")

WORDS = st.text(st.sampled_from("abc(é"), min_size=1, max_size=9)
PRICED = "atlas(target=qwen2.5-32b, draft=qwen2.5-0.5b)"
SENTENCES = st.lists(st.lists(WORDS, min_size=1, max_size=12).map(" ".join), max_size=8)


@pytest.fixture(scope="module")
def trace():
    return small()


@pytest.fixture(scope="module")
def drawn(trace):
    return draw("frontier", trace)


@given(SENTENCES, st.floats(60, 600))
def test_what_a_caption_has_no_room_for_is_kept(sentences, room):
    """At most three lines, each within the width; and every word is shown or left."""
    shown, left = fitted(sentences, room, 7.0)
    assert len(shown) <= LINES
    assert all(length(line, 7.0) <= room or " " not in line for line in shown)
    words = [word.strip(".").lower() for line in sentences for word in line.split()]
    kept = " ".join([*shown, *left]) if not shown or not shown[-1].endswith("…") else " ".join(left)
    assert {word.strip(".").lower() for word in kept.split()} == set(words)


def test_captions_end_between_clauses():
    text = "first clause (with; brackets. In it) goes on; second clause is here. Third one."
    shown, left = fitted([text], 80.0, 7.0)
    assert " ".join(shown) == "first clause (with; brackets. In it) goes on."
    assert left == ("Second clause is here. Third one.",)


def test_a_caption_begins_with_a_capital_where_its_first_clause_is_too_long():
    shown, _ = fitted([f"{'long words ' * 30}; bars: 95% CI."], 120.0, 7.0)
    assert " ".join(shown) == "Bars: 95% CI."


def test_warnings_stand_behind_what_a_figure_shows(trace):
    """In full where there is room, else in short or counted; the notes begin with them in full."""
    found = figures.optimal_gain(trace, cost=PRICED, width="column")
    (words,) = (" ".join(one.get_text().split()) for one in found.ax.findobj(Caption))
    assert words.startswith("γ* is 1.36") and words.endswith(" Times may be another pair's.")
    assert found.notes[0].startswith("Times may be another pair's: the trace does not name its")
    text, forms = ["First clause; second clause."], ("in full " * 9, "in short " * 4, "2 warnings.")
    for room, end in ((400.0, forms[0]), (90.0, forms[1]), (60.0, forms[2])):
        shown, _ = fitted(text, room, 7.0, forms)
        assert shown[0].startswith("First") and " ".join(shown).endswith(end.strip())


@given(st.lists(st.floats(0, 1), max_size=20), st.floats(0, 0.3))
def test_names_are_spread_near_their_points(at, gap):
    found = spread(np.sort(at), gap)
    assert (found >= -1e-9).all() and (found <= 1 + 1e-9).all() and len(found) == len(at)
    least = min(gap, 1 / max(1, len(at) - 1))
    assert (np.diff(found) >= least - 1e-9).all()
    if len(at) > 1 and (np.diff(np.sort(at)) >= least).all():
        assert found == pytest.approx(np.sort(at))


NARROW = ("frontier", "best_policy_map", "runtime_breakdown", "gap_decomposition")


@pytest.mark.parametrize("name", NARROW)
@pytest.mark.parametrize("width", ["column", 5.5])
def test_narrow_figures_fit(name, width, trace):
    found = draw(name, trace, width=width)
    assert found.figure.get_figwidth() == inches(width)
    fit_to_print(found)
    fonts = {text.get_fontsize() for text in found.ax.texts}
    assert min(fonts) >= 6


@pytest.fixture(scope="module")
def many():
    return Study(small(tasks=tuple("abcdef"), prompts=12))


@pytest.mark.parametrize("name", ["policies_by_task", "regret_by_task", "pearl_accepted"])
def test_narrow_figures_show_few_tasks(name, many):
    """Three and all together; the frame has all."""
    narrow, wide = draw(name, many, width="column"), draw(name, many)
    fit_to_print(narrow)
    words = " ".join(" ".join(one.get_text().split()) for one in narrow.ax.findobj(Caption))
    assert words.startswith("Drawn are 3 of 6 tasks, from the highest to the lowest.")
    assert len(narrow.ax.get_xticks()) == 4 and len(wide.ax.get_xticks()) == 7
    assert narrow.frame.equals(wide.frame) and narrow.frame["task"].n_unique() == 7


def test_a_window_that_is_not_replayed_has_no_line(many):
    """Γ = 40: windows go to 20, so round(c) = 30 would leave a third of the picture empty."""
    for c, inside in ((6, True), (30, False)):
        found = figures.pearl_window(many, cost=f"linear(draft_s=1, target_s={c})")
        assert (found.ax.get_xlim()[1] < 25) and (f"round(c) = {c}" in labels(found)) == inside


def labels(found) -> list[str]:
    return [text.get_text() for text in found.ax.get_legend().get_texts()]


def test_a_given_axes_has_its_own_width(trace):
    with pytest.raises(FigureError, match="give an Axes or a width"):
        draw("frontier", trace, ax=Figure().subplots(), width=5)


@pytest.mark.parametrize("width", ["wide", "nan", 1, 99, "1"])
def test_widths_that_are_refused(width):
    with pytest.raises(FigureError, match="width"):
        inches(width)
    assert {inches(name) for name in WIDTHS} == {3.3, 5.5, 6.75}


def test_files_of_every_format_are_the_same_bytes_twice(drawn, trace, tmp_path):
    formats = ("png", "svg", "pdf")
    found = [figures.draft_lengths(trace).save(tmp_path / k, formats, dpi=40) for k in "ab"]
    first, again = ({path.suffix: path.read_bytes() for path in files} for files in found)
    assert first == again and set(first) == {".png", ".svg", ".pdf", ".parquet"}
    pdf = first[".pdf"]
    assert b"CreationDate" not in pdf and b"/FontFile2" in pdf and b"/Type3" not in pdf
    with pytest.raises(FigureError, match="format 'gif'"):
        drawn.save(tmp_path, ("gif",))
    for dpi in (1, 1e6, float("nan")):
        with pytest.raises(FigureError, match="dpi"):
            drawn.save(tmp_path, dpi=dpi)


def test_notes_go_with_the_frame(drawn, tmp_path):
    assert drawn.notes
    drawn.save(tmp_path, ())
    facts = json.loads(pq.read_schema(tmp_path / "frontier.parquet").metadata[b"simkit"])
    assert facts["notes"] == list(drawn.notes) and facts["figure"] == "frontier"
    assert [path.name for path in tmp_path.iterdir()] == ["frontier.parquet"]


def test_a_style_lies_on_top_of_ours(trace, tmp_path):
    sheet = tmp_path / "mine.mplstyle"
    sheet.write_text("axes.facecolor: eeeeff\nfont.size: 12\n")
    mine = figures.draft_lengths(trace, style=sheet)
    assert mine.ax.get_facecolor() == pytest.approx((14 / 15, 14 / 15, 1, 1))
    assert mine.ax.xaxis.label.get_fontsize() == 12 and mine.sheet == sheet
    assert figures.draft_lengths(trace, style="ggplot").ax.get_facecolor()[0] < 1


SHEETS = {
    "no.mplstyle": ("font.size: large as life\n", "font.size|float"),
    "unknown.mplstyle": ("font.colour: red\n", "font.colour"),
    "empty.mplstyle": ("", "no setting"),
}


@pytest.mark.parametrize("name", SHEETS)
def test_sheets_that_cannot_be_read_are_named(name, trace, tmp_path):
    text, why = SHEETS[name]
    (tmp_path / name).write_text(text)
    with pytest.raises(FigureError, match=f"style .*{name}: .*({why})") as caught:
        figures.draft_lengths(trace, style=tmp_path / name)
    assert "\n" not in str(caught.value)


def test_the_command_writes_what_is_asked_for(trace, tmp_path, capsys):
    save(trace, tmp_path / "trace")
    options = ("--only", "frontier", "--cost", "linear(draft_s=1, target_s=6)", "--format", "pdf")
    options += ("--width", "column", "--style", "grayscale")
    words = "figures", tmp_path / "trace", "--out", tmp_path / "f", *options
    ended, out, _ = run(capsys, *words)
    assert ended == 0 and "notes: " in out and "key simkit" in out
    assert {path.name for path in (tmp_path / "f").iterdir()} == {
        "frontier.pdf",
        "frontier.parquet",
    }


BAD = {
    "--width": ("wide", "neither inches nor one of column (3.3)"),
    "--dpi": ("7", "give 30 to 1200"),
    "--style": ("nothing", "neither a style of matplotlib nor a file"),
    "--format": ("gif", "'png', 'svg', 'pdf'"),
}


@pytest.mark.parametrize("option", BAD)
def test_bad_options(option, tmp_path, capsys):
    value, why = BAD[option]
    assert why in refused(capsys, "figures", "reference", "--out", tmp_path / "f", option, value)
    assert not (tmp_path / "f").exists()
