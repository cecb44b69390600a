"""What all results that have a data frame share: other libraries' frames, and answers to typos."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from simkit.errors import UserError
from simkit.plot import Picture, draw
from traces.did_you_mean import Helpful

if TYPE_CHECKING:
    import polars as pl
    from matplotlib.axes import Axes


class Framed(Helpful):
    """A result with a `frame`."""

    if TYPE_CHECKING:
        frame: Any
        notes: Any

    def to_polars(self) -> pl.DataFrame:
        """`frame`, by the name under which other libraries have it."""
        return self.frame

    def to_pandas(self) -> Any:
        """`frame` as a pandas.DataFrame.

        Raises:
            UserError: pandas is not installed.
        """
        try:
            import_module("pandas")
        except ModuleNotFoundError:
            raise UserError("to_pandas needs pandas: pip install pandas") from None
        return self.frame.to_pandas()


class Plotted(Framed):
    """A result that can be drawn."""

    _picture = Picture("speedup", ("drafter", "policy", "task", "span", "sequence"))

    def plot(self, what: str | None = None, ax: Axes | None = None) -> Axes:
        """Draw a column of `frame`, with its interval where it has one, and the result's notes.

        Args:
            what: the column; None: the speedup, of a served run `steady_tokens_s`.
            ax: matplotlib's Axes; None: a new figure's.

        Raises:
            UserError: there is no such column, or it holds no numbers.

        >>> import simkit
        >>> found = simkit.replay("reference", ["fixed(3)", "svip(h=0.8)"])
        >>> found.plot("tokens_per_step").get_xlabel()
        'tokens_per_step'
        """
        return draw(self.frame, self._picture, what, ax, self.notes)
