"""Titles and captions: three lines at most, whatever a figure's width; what is left is kept."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.font_manager import FontProperties, findfont, get_font
from matplotlib.text import Annotation
from matplotlib.transforms import IdentityTransform

from analysis.figures.drawing.axes import height_of, width_of
from analysis.figures.drawing.styles import GREY, small
from analysis.series_styles import Look
from traces.messages import how_many

LINES = 3
_END = re.compile(r"(?<=;) +|(?<=\.) +(?=[^\W\d_]|[×*ρτ])")
_CUT = "…"
_WHOLE_DOTS = 0.97  # letters begin at whole dots, which makes some lines longer than their letters


class Caption(Annotation):
    """The words between the title and the axes.

    Attributes:
        title: that it stands below.
        lines: sentences, as they were given.
        left: sentences that found no place.
    """

    title: str = ""
    lines: tuple[str, ...] = ()
    left: tuple[str, ...] = ()


def caption(ax: Axes, title: str, *lines: str, last: Sequence[str] = ("",)) -> Caption:
    """A title, and below it what n is, what the intervals are, and how to read the picture.

    As many clauses as `LINES` lines hold are shown, from the first on, without those that are too
    long for them alone, such as a cost in full; what is left goes to the
    notes of the figure. What is missing from a picture belongs to its notes from the start.

    Args:
        ax: that they stand above.
        title: a few words.
        lines: sentences, the most important first.
        last: what stands behind them, see `fitted`.
    """
    wrap_labels(ax)
    size, room = small(), room_of(ax)
    given = [line for line in dict.fromkeys(lines) if line]
    shown, left = fitted(given, room, size, last)
    head = wrapped(title, room, points_of("axes.titlesize"), bold=True)
    pad = (6 + 1.36 * size * len(shown)) if shown else 6
    ax.set_title("\n".join(head), loc="left", pad=pad)
    how: Look = {"textcoords": "offset points", "xycoords": "axes fraction"}
    how |= {"fontsize": size, "color": GREY, "va": "bottom", "linespacing": 1.2}
    words = Caption("\n".join(shown), (0, 1), (0, 4), **how)
    words.title, words.lines, words.left = title, lines, left
    words.set_transform(IdentityTransform())  # or it would be cut at the Axes
    words.set_clip_on(False)
    words.set_in_layout(False)  # a line that is too long all the same leaves the Axes its room
    ax.add_artist(words)
    return words


def warn(ax: Axes, warnings: Sequence[str], short: Sequence[str]) -> None:
    """Put warnings behind an Axes' caption: in full, in short, or only how many they are.

    They are the figure's notes, too.

    Args:
        ax: whose caption it is.
        warnings: sentences.
        short: the same in fewer words.
    """
    if not warnings:
        return
    counted = f"{how_many(len(warnings), 'warning')} about the times: see the notes."
    for one in [child for child in ax.get_children() if isinstance(child, Caption)]:
        one.remove()
        caption(ax, one.title, *one.lines, last=(" ".join(warnings), " ".join(short), counted))


def left_out(ax: Axes) -> tuple[str, ...]:
    """What the captions of an Axes had no place for."""
    return tuple(line for one in ax.get_children() if isinstance(one, Caption) for line in one.left)


def fitted(
    lines: Sequence[str], room: float, size: float, last: Sequence[str] = ("",)
) -> tuple[list[str], tuple[str, ...]]:
    """The first clauses that fit into `LINES` lines, and behind them what is said last.

    Args:
        lines: sentences.
        room: a line's width, points.
        size: of the font, points.
        last: forms of what is said last, the longest first. One that takes more than a line is
            taken only if no clause is left for its sake.

    Returns:
        The lines, and the sentences that are left.
    """
    for behind in last:
        shown, left = _fitted(lines, room, size, behind)
        if not left or len(wrapped(behind, room, size)) < 2:
            break
    return shown, left


def _fitted(
    lines: Sequence[str], room: float, size: float, behind: str
) -> tuple[list[str], tuple[str, ...]]:
    ended = [line if line.rstrip()[-1] in ".;:!?" else f"{line.rstrip()}." for line in lines]
    every = _clauses(" ".join(ended))
    long = {one for one in every if len(wrapped(one, room, size)) > LINES}  # a cost, in full
    clauses = [one for one in every if one not in long] or every
    for n in range(len(clauses), 0, -1):
        some = re.sub(r"[;:]$", ".", " ".join(clauses[:n]))
        some = some if clauses[0] == every[0] else _capital(some)
        shown = wrapped(f"{some} {behind}", room, size)
        if len(shown) <= LINES:
            shown_too = set(clauses[:n])
            return shown, _sentences([one for one in every if one not in shown_too])
    end = wrapped(behind, room, size)[:LINES]
    if not clauses or len(end) == LINES:
        return end, _sentences(clauses)
    shown = wrapped(clauses[0], room - length(_CUT, size), size)[: LINES - len(end)]
    return [*shown[:-1], shown[-1] + _CUT, *end], _sentences(clauses)


def _clauses(text: str) -> list[str]:
    """Parts between semicolons and full stops, none of which ends inside of brackets."""
    found: list[str] = []
    for part in _END.split(text):
        if found and found[-1].count("(") != found[-1].count(")"):
            found[-1] += f" {part}"
        elif part:
            found.append(part)
    return found


def _sentences(clauses: Sequence[str]) -> tuple[str, ...]:
    return (_capital(" ".join(clauses)),) if clauses else ()


def _capital(text: str) -> str:
    return text[0].upper() + text[1:] if text[0].isascii() else text  # γ is no Γ


def wrapped(text: str, room: float, size: float, bold: bool = False) -> list[str]:
    """Words in lines that are no wider than `room` points; a longer word has its own."""
    lines: list[str] = []
    used, space = 0.0, 0.32 * size
    room *= _WHOLE_DOTS
    for word in text.split():
        wide = length(word, size, bold)
        if lines and used + space + wide <= room:
            lines[-1] += f" {word}"
            used += space + wide
        else:
            lines.append(word)
            used = wide
    return lines


def points_of(setting: Any) -> float:
    """A font's size that may be set in words, such as "large", in points."""
    return float(FontProperties(size=mpl.rcParams[setting]).get_size_in_points())


def length(text: str, size: float, bold: bool = False) -> float:
    """How long words are in the font that is set, points."""
    family = tuple(mpl.rcParams["font.family"])
    faces = tuple(mpl.rcParams["font.sans-serif"])
    return _length(text, bold, family, faces) * size / 100


@lru_cache(maxsize=4096)
def _length(text: str, bold: bool, family: tuple[str, ...], _: tuple[str, ...]) -> float:
    properties = FontProperties(family=list(family), weight="bold" if bold else "normal")
    font = get_font(findfont(properties))
    font.set_size(100, 72)
    font.set_text(text, 0.0)
    return font.get_width_height()[0] / 64


def room_of(ax: Axes) -> float:
    """Points from where the Axes begins to where its figure ends."""
    whole = ax.get_figure(root=True)
    wide = 72 * width_of(ax)
    if whole is not None and len(whole.axes) > 1 and ax.get_subplotspec() is not None:
        spec = ax.get_subplotspec()
        wide /= spec.get_gridspec().ncols if spec else 1
    return max(60.0, wide - beside(ax) - 8)


def wrap_labels(ax: Axes) -> None:
    """Break the labels of the axes where they are longer than the axes are."""
    size, high = points_of("axes.labelsize"), 72 * height_of(ax)
    for one in (ax, *ax.child_axes):
        n = max(1, len(ax.child_axes))
        for axis, room in ((one.xaxis, room_of(ax)), (one.yaxis, 0.62 * high / n)):
            words = " ".join(axis.label.get_text().split())
            axis.label.set_text("\n".join(wrapped(words, room, size)))


def beside(ax: Axes) -> float:
    """Points that words take to the left of an Axes."""
    found = [0.0]
    for one in (ax, *ax.child_axes):
        if not one.axison:
            continue
        size = mpl.rcParams["font.size"]
        labels = [line for t in one.get_yticklabels() for line in t.get_text().split("\n")]
        wide = max((length(line, size) for line in labels), default=0.0) or 2.5 * size
        lines = len(one.get_ylabel().splitlines())
        found.append(wide + 1.25 * size * lines + 12)
    return max(found)
