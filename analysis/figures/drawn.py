"""A figure that is drawn: its picture, and the frame of what is in it."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from matplotlib.figure import Figure

from analysis.figures.drawing.axes import width_of_fonts
from analysis.figures.drawing.styles import DEFAULT_FORMATS, DPI, check_dpi, metadata_of, style
from simkit.surface import Framed
from traces.messages import how_many
from traces.outputs import write_together

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True, eq=False, repr=False)
class Drawn(Framed):
    """A figure.

    Attributes:
        name: of the function that drew it.
        frame: every number that is drawn, intervals and counts included.
        ax: the Axes.
        notes: what the picture does not say: missing intervals, left-out rows, and what the
            caption had no room for.
        sheet: the style that it was drawn with, see `style`.
        nothing: why it says nothing of this trace, in the notes too; empty if it says something.
            Such a figure is left out unless it is asked for by name.

    >>> drawn = analysis.figures.position_decay("reference")
    >>> drawn.frame.columns[:4]
    ['series', 'depth', 'at_risk', 'acceptance']
    """

    name: str
    frame: pl.DataFrame
    ax: Axes
    notes: tuple[str, ...] = ()
    sheet: str | Path | None = None
    nothing: str = ""

    @property
    def figure(self) -> Figure:
        """The matplotlib figure that holds the Axes."""
        found = self.ax.get_figure(root=True)
        assert isinstance(found, Figure)
        return found

    def picture(self, form: str = "png", dpi: float = DPI) -> bytes:
        """The contents of a picture's file.

        Args:
            form: png, svg or pdf; words stay words in the last two.
            dpi: dots an inch, of png.

        Raises:
            FigureError: there is no such format, or the dots are too few or too many.
        """
        out, how = io.BytesIO(), {"metadata": metadata_of(form), "dpi": check_dpi(dpi)}
        with style(width_of_fonts(self.ax), self.sheet):
            self.figure.savefig(out, format=form, **how)
        return out.getvalue()

    def save(
        self, folder: str | Path, formats: Sequence[str] = DEFAULT_FORMATS, dpi: float = DPI
    ) -> list[Path]:
        """Write NAME.png and so on, and the frame as NAME.parquet; gives their paths.

        The frame's metadata have the notes, as JSON under the key "simkit".

        Args:
            folder: that they are written into.
            formats: see `picture`; none writes the frame alone.
            dpi: see `picture`.

        Raises:
            FigureError: see `picture`.
            TraceError: a file cannot be written; what was there is as it was.
        """
        made = {form: self.picture(form, dpi) for form in dict.fromkeys(formats)}
        made["parquet"] = self._table()
        contents = {Path(folder) / f"{self.name}.{end}": made[end] for end in made}
        write_together(contents)
        return list(contents)

    def _table(self) -> bytes:
        facts = {"figure": self.name, "title": self.ax.get_title(loc="left"), "notes": self.notes}
        said = {"simkit": json.dumps(facts, ensure_ascii=False)}
        sink = pa.BufferOutputStream()
        pq.write_table(self.frame.to_arrow().replace_schema_metadata(said), sink)
        return sink.getvalue().to_pybytes()

    def __repr__(self) -> str:
        return f"<Drawn {self.name}: {how_many(len(self.frame), 'row')}>"

    def _repr_png_(self) -> bytes:
        return self.picture("png", 100)
