"""What a printed number, a printed table and one of its arms are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

ALONE = "target alone"  # in place of a policy's spec: the baseline of every speedup


class Printed(NamedTuple):
    """What a paper prints of one row.

    Attributes:
        tokens_per_s: decoding speed.
        speedup: over the target alone.
        tau: as the paper counts it: accepted tokens a step (PACER), or tokens a step, with the
            target's own (acceptance head).
    """

    tokens_per_s: float | None = None
    speedup: float | None = None
    tau: float | None = None

    @property
    def speed(self) -> float | None:
        """The number that says which row is faster."""
        return self.speedup if self.tokens_per_s is None else self.tokens_per_s


UNPRINTED = Printed()


@dataclass(frozen=True)
class PaperTable:
    """A table, or a column of one.

    Attributes:
        source: paper and number.
        of: benchmark and models.
        rows: by the paper's own names.
        slips: what is wrong in it, so that nobody copies it.
    """

    source: str
    of: str
    rows: Mapping[str, Printed]
    slips: str = ""

    def __getitem__(self, row: str) -> Printed:
        return self.rows[row]

    def speed(self, row: str, of: str) -> float:
        """How many times faster one row is than another.

        Raises:
            ValueError: one of them has no speed.
        """
        return _ratio(self.rows[row].speed, self.rows[of].speed)

    def tau(self, row: str, of: str) -> float:
        """τ of a row, times that of another.

        Raises:
            ValueError: one of them has no τ.
        """
        return _ratio(self.rows[row].tau, self.rows[of].tau)

    def speeds(self, of: str) -> dict[str, float]:
        """The speed of every row, times that of one of them."""
        return {row: self.speed(row, of) for row in self.rows}


@dataclass(frozen=True)
class TableRow:
    """A row of a table as a replay.

    Attributes:
        label: its name, or the value that is varied.
        spec: the policy; with ranges, the family that is tuned on other prompts.
        printed: what the paper has.
    """

    label: str
    spec: str
    printed: Printed = UNPRINTED


def spec(name: str, /, **arguments: object) -> str:
    """A policy in words: `spec("svip", h=0.4)` is "svip(h=0.4)"."""
    words = {key: str(v).lower() if isinstance(v, bool) else v for key, v in arguments.items()}
    return f"{name}({', '.join(f'{key}={value}' for key, value in words.items())})"


def ends(values: Iterable[float]) -> tuple[float, float]:
    """The least and the greatest of several printed numbers."""
    found = list(values)
    return min(found), max(found)


def words(span: tuple[float, float], form: str = ".3f") -> str:
    """Two ends in words, as 1.007–1.131; one number where they are the same."""
    low, high = (f"{end:{form}}" for end in span)
    return low if low == high else f"{low}–{high}"


def _ratio(top: float | None, bottom: float | None) -> float:
    if top is None or bottom is None:
        raise ValueError("the paper prints no such number")
    return top / bottom
