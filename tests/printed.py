"""Whether a figure is fit to print: what a careful reader would see at once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import Collection
from matplotlib.colors import to_hex
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle

from analysis.figures import Drawn
from analysis.figures.drawing.captions import LINES, Caption
from analysis.replays import FAMILIES
from analysis.series_styles import of_policy

EDGE = 0.06  # inches


def fit_to_print(found: Drawn) -> None:
    """Short captions, true legends, the looks of the registry, and nothing beyond the edges."""
    captions = found.ax.findobj(Caption)
    assert captions and all(one.get_text().count("\n") < LINES for one in captions)  # type: ignore[attr-defined]
    assert all(line in found.notes for one in captions for line in one.left)  # type: ignore[attr-defined]
    seen = set(drawn(found))
    for label, look in legend(found):
        assert any(_same(look, one) for one in seen), f"{label} is not drawn"
        if label in FAMILIES:
            assert look[0] == to_hex(of_policy(FAMILIES[label]).color)
            assert look[1] in (None, of_policy(FAMILIES[label]).marker)
    found.figure.draw_without_rendering()
    width, height = found.figure.get_size_inches()
    box = found.figure.get_tightbbox()
    assert -EDGE <= box.x0 and box.x1 <= width + EDGE, (box.bounds, width)
    assert -EDGE <= box.y0 and box.y1 <= height + EDGE, (box.bounds, height)


def legend(found: Drawn) -> list[tuple[str, tuple[str, Any]]]:
    """Each entry's words, colour and mark."""
    box = found.ax.get_legend()
    if box is None:
        return []
    words = [text.get_text() for text in box.get_texts()]
    assert words and len(set(words)) == len(words)
    return [(word, _look(one)) for word, one in zip(words, box.legend_handles, strict=True)]


def drawn(found: Drawn) -> Iterator[tuple[str, Any]]:
    """Colour and mark of everything that shows something."""
    for ax in _axes(found):
        for one in ax.get_children():
            if one.get_visible() and _shows(one):
                yield from _looks(one)


def _axes(found: Drawn) -> list[Axes]:
    return [one for ax in found.figure.axes for one in (ax, *ax.child_axes)]


def _shows(one: Any) -> bool:
    if isinstance(one, Line2D):
        xy = np.asarray(one.get_xydata(), float)
        return len(xy) > 0 and bool(np.isfinite(xy).all(1).any())
    if isinstance(one, Rectangle):
        return bool(one.get_width() and one.get_height())
    return isinstance(one, Patch) or (isinstance(one, Collection) and len(one.get_paths()) > 0)


def _looks(one: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(one, Collection):
        for some in (one.get_facecolor(), one.get_edgecolor()):
            yield from ((to_hex(color), None) for color in some)
    elif isinstance(one, Patch):
        yield from ((to_hex(color), None) for color in (one.get_facecolor(), one.get_edgecolor()))
    else:
        yield _look(one)


def _look(one: Any) -> tuple[str, Any]:
    if isinstance(one, Line2D):
        mark = one.get_marker()
        return to_hex(one.get_color()), None if mark in ("None", "none", "", " ", None) else mark
    return next(_looks(one))


def _same(mine: tuple[str, Any], other: tuple[str, Any]) -> bool:
    return mine[0] == other[0] and (mine[1] is None or mine[1] == other[1] or other[1] is None)
