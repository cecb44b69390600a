"""Finished runs of `simkit fidelity`: predictions beside the clock, read without torch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import polars as pl
import pyarrow.parquet as pq

from simkit.costs import Measured
from simkit.errors import LiveError
from traces.trace import DATA

BUNDLED = DATA / "fidelity"  # benchmarks.bundle_fidelity writes it
FILES = ("fidelity.parquet", "cost.parquet", "live.parquet")


@dataclass(frozen=True, eq=False)
class Fidelity:
    """A run of `simkit fidelity`.

    Attributes:
        policies: one row a tested policy, the fields of `simkit.fidelity.PolicyRow`.
        measured: one row for each arm and held-out prompt: run (the arm; 0 is the target alone, the
            last is the first policy again), policy ("baseline" is the target alone), sequence,
            rounds, steps (mean over rounds), seconds (of the whole sequence; median over rounds).
        cost: fitted to the passes of other prompts; gives `predicted` again in a replay.
        device: where it ran.
    """

    policies: pl.DataFrame
    measured: pl.DataFrame
    cost: Measured
    device: str


def load(folder: str | Path | None = None) -> Fidelity:
    """Read what `simkit fidelity -o FOLDER` wrote.

    Args:
        folder: None means the run on the reference pair that comes with the package, whose log is
            cut to whole sequences.

    Raises:
        LiveError: a file is missing.
    """
    folder = BUNDLED if folder is None else Path(folder)
    for name in FILES:
        if not (folder / name).is_file():
            raise LiveError(f"{folder}: no finished run of simkit fidelity ({name} is missing)")
    policies = pl.read_parquet(folder / "fidelity.parquet")
    log = pl.read_parquet(folder / "live.parquet").filter(pl.col("kind") == "sequence")
    control = len(policies) + 1  # decodes held-out prompts, and no others
    held_out = log.filter(pl.col("run") == control)["sequence"].unique()
    arms = log.filter(pl.col("run") <= control, pl.col("sequence").is_in(held_out.implode()))
    keys = ("run", "policy", "sequence")
    measured = arms.group_by(keys).agg(
        rounds=pl.len(), steps=pl.col("step").mean(), seconds=pl.col("seconds").median()
    )
    facts = pq.read_schema(folder / "live.parquet").metadata or {}
    device = facts.get(b"device", b"unknown device").decode()
    cost = Measured(file=str(folder / "cost.parquet"))
    return Fidelity(policies, measured.sort(keys), cost, device)
