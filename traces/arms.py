"""What was accepted of the arms of PARD-2's ablations: drafters that differ in one setting.

``traces/recipes/reference/arms.py`` trains and measures them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

ARMS = Path(__file__).parent / "reference" / "arms.parquet"


@dataclass(frozen=True, order=True)
class ParallelArm:
    """What is varied; see ``traces/recipes/reference/parallel.py``.

    Attributes:
        loss: "pard", "cat" or "decay=G".
        features: "none", "one" or "four" layers of the target that are read.
        block: K of training.
        rho: share of texts without features.
    """

    loss: str
    features: str
    block: int = 16
    rho: float = 0.1

    @property
    def name(self) -> str:
        """Of its folder."""
        gate = "" if self.rho == 0.1 else f"-rho{self.rho:g}"
        return f"{self.loss.replace('=', '')}-{self.features}-{self.block}{gate}"

    @property
    def modes(self) -> tuple[str, ...]:
        """In which it is measured: PARD-2's own arm in both."""
        if self.features == "none":
            return ("independent",)
        both = (self.loss, self.features, self.rho) == ("cat", "four", 0.1)
        return ("dependent", "independent") if both else ("dependent",)


@dataclass(frozen=True, eq=False)
class MeasuredArm:
    """One arm, trained with one seed, in one mode.

    Attributes:
        arm: what was varied.
        mode: "dependent" or "independent".
        seed: of the training.
        accepted: tokens accepted from every start of the trace, at most `arm.block`, (R,) int32.
    """

    arm: ParallelArm
    mode: str
    seed: int
    accepted: np.ndarray


def measured_on(file: Path) -> str:
    """The hash of the trace that arms were measured on."""
    return pq.read_schema(file).metadata[b"trace"].decode()


def measured(file: Path) -> list[MeasuredArm]:
    """All that were measured."""
    return list(_rows(pq.read_table(file)))


def _rows(table: pa.Table) -> Iterator[MeasuredArm]:
    keys = ("loss", "features", "block", "rho", "mode", "seed")
    columns = {name: table[name].to_pylist() for name in keys}
    found = list(zip(*columns.values(), strict=True))
    starts = [n for n, key in enumerate(found) if n == 0 or key != found[n - 1]]
    for first, last in zip(starts, [*starts[1:], len(found)], strict=True):
        loss, features, block, rho, mode, seed = found[first]
        lists = table["accepted"].slice(first, last - first).combine_chunks()
        accepted = lists.flatten().to_numpy().astype(np.int32)
        yield MeasuredArm(ParallelArm(loss, features, block, rho), mode, seed, accepted)
