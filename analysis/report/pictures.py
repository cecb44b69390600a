"""The figures as pictures inside the page, and why some are not there."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import NamedTuple

from analysis.claims import PAPERS
from analysis.figures import FIGURES, Drawn, FigureEntry
from analysis.study import Study
from simkit.simulator.arguments import AnyCost
from simkit.sweeps.engine import Progress
from traces.errors import UserError

DPI = 110
NEW = "In no paper"


class Picture(NamedTuple):
    """A figure of the page.

    Attributes:
        entry: of the registry.
        src: the picture as a data URI, SVG or PNG, whichever is smaller.
        width: CSS pixels.
        height: CSS pixels.
        notes: what it does not say itself, see `Drawn.notes`.
    """

    entry: FigureEntry
    src: str
    width: int
    height: int
    notes: tuple[str, ...]


class Pictures(NamedTuple):
    """All figures.

    Attributes:
        of: by the paper that is named first in their source.
        skipped: names of those that this trace cannot give, or that say nothing of it, and the
            reason that they share.
    """

    of: dict[str, list[Picture]]
    skipped: list[tuple[str, str]]


def pictures(
    study: Study,
    cost: AnyCost | None,
    progress: Progress | None,
    policies: Sequence[str] = (),
) -> Pictures:
    """Draw all figures that the trace can give, under its times, and that say something of it."""
    found: dict[str, list[Picture]] = {paper: [] for paper in (*PAPERS, NEW)}
    skipped: dict[str, list[str]] = {}
    for k, entry in enumerate(FIGURES.values(), start=1):
        try:
            more = policies if entry.compares else ()
            found[_paper(entry)].append(_picture(entry, entry.unasked(study, cost, policies=more)))
        except UserError as error:
            skipped.setdefault(str(error), []).append(entry.name)
        if progress is not None:
            progress(k, len(FIGURES))
    gone = [(", ".join(names), why) for why, names in skipped.items()]
    return Pictures({paper: some for paper, some in found.items() if some}, gone)


def _paper(entry: FigureEntry) -> str:
    return next((paper for paper in PAPERS if entry.source.startswith(paper)), NEW)


def _picture(entry: FigureEntry, drawn: Drawn) -> Picture:
    kinds = {"svg+xml": drawn.picture("svg"), "png": drawn.picture("png", DPI)}
    kind = min(kinds, key=lambda name: len(kinds[name]))
    src = f"data:image/{kind};base64,{base64.b64encode(kinds[kind]).decode()}"
    width, height = (round(96 * inches) for inches in drawn.figure.get_size_inches())
    return Picture(entry, src, width, height, drawn.notes)
