"""What all results that have a data frame share: other libraries' frames, and answers to typos."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from simkit.errors import UserError
from traces.did_you_mean import Helpful

if TYPE_CHECKING:
    import polars as pl


class Framed(Helpful):
    """A result with a `frame`."""

    if TYPE_CHECKING:
        frame: Any

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
