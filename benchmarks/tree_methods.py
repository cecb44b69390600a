"""The acceptance head's Table 1 from live runs: speedup, its variance over the rounds, and τ.

    simkit live --target DIR --drafter 'feature("DIR")' --prompts FILE.jsonl --rounds 4 \
      --head HEAD.safetensors --policy 'tree_acceptance_head()' -o live.parquet
    python -m benchmarks.tree_methods live.parquet FILE.jsonl

A round is a run. As in the paper, entries are "mean ± variance" of the runs' speedups over the
target alone, and τ is tokens a step, the target's own among them. "mean" is the mean of the tasks,
and its ± the variance over all tasks and runs.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl
import pyarrow.parquet as pq

from simkit.live.log import BASELINE

ALL = "mean"


class Entry(NamedTuple):
    """What a method does on a task.

    Attributes:
        speedups: of each round.
        tau: tokens a step.
    """

    speedups: np.ndarray
    tau: float

    def __str__(self) -> str:
        spread = self.speedups.var(ddof=1) if len(self.speedups) > 1 else float("nan")
        return f"{self.speedups.mean():.3f} ± {spread:.4f}× | {self.tau:.2f}"


def entries(log: pl.DataFrame, tasks: Mapping[int, str]) -> dict[str, dict[str, Entry]]:
    """By method and task.

    Args:
        log: `traces.schema.LIVE`; rows of kind "sequence" are looked at.
        tasks: of the sequences' numbers.
    """
    rows = log.filter(pl.col("kind") == "sequence")
    rows = rows.with_columns(
        pl.col("sequence").replace_strict(tasks, return_dtype=pl.String).alias("task")
    )
    first = rows.group_by("policy").agg(pl.col("run").min())  # the last arm is the first one again
    rows = rows.join(first, on=["policy", "run"], how="semi").sort("run", "round")
    sums = rows.group_by("policy", "task", "round", maintain_order=True).agg(
        pl.col("seconds", "tokens_in", "step").sum()
    )
    alone = sums.filter(pl.col("policy") == BASELINE).select(
        "task", "round", pl.col("seconds").alias("alone_s"), pl.col("tokens_in").alias("tokens")
    )
    both = sums.join(alone, on=["task", "round"]).with_columns(
        (pl.col("alone_s") / pl.col("tokens") * pl.col("tokens_in") / pl.col("seconds")).alias("x")
    )
    found: dict[str, dict[str, Entry]] = {}
    for (policy, task), mine in both.group_by("policy", "task", maintain_order=True):
        tau = int(mine["tokens_in"].sum()) / max(1, int(mine["step"].sum()))
        found.setdefault(str(policy), {})[str(task)] = Entry(mine["x"].to_numpy(), tau)
    for one in found.values():
        parts = list(one.values())
        tau = float(np.mean([part.tau for part in parts]))
        one[ALL] = Entry(np.concatenate([part.speedups for part in parts]), tau)
    return found


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("log", type=Path)
    parser.add_argument("prompts", type=Path, help="of the run, with their tasks")
    args = parser.parse_args()
    lines = args.prompts.read_text(encoding="utf-8").splitlines()
    tasks = {k: json.loads(line).get("task") or "" for k, line in enumerate(lines)}
    log = pl.from_arrow(pq.read_table(args.log))
    assert isinstance(log, pl.DataFrame)
    found = entries(log, tasks)
    names = list(next(iter(found.values())))
    print("| method | " + " | ".join(f"{name}: speedup | τ" for name in names) + " |")
    print("| --- |" + " ---: | ---: |" * len(names))
    for policy, one in found.items():
        print(f"| `{policy}` | " + " | ".join(str(one[name]) for name in names) + " |")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
