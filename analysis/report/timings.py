"""The timing samples of a trace: whose they are, and their table."""

from __future__ import annotations

import polars as pl
import pyarrow as pa

from analysis.report.cells import ReportTable, number
from simkit.simulator.display import Cell
from traces.conditions import DRAW
from traces.messages import how_many
from traces.trace import Trace

SHAPE = ["component", "engine", "batch_size", "tokens_in", "context_len"]


def one_each(samples: pa.Table) -> bool:
    """Whether no shape has more than one sample: then they are `simkit calibrate`'s.

    Each is then the mean over passes in running decoders (`simkit.costs.fit.samples`); the raw
    samples of `simkit latency` are many of each shape.

    Args:
        samples: `traces.schema.LATENCY`.
    """
    return not pl.DataFrame(without_draws(samples)).select(SHAPE).is_duplicated().any()


def without_draws(samples: pa.Table) -> pa.Table:
    """The samples themselves, without those of prompts drawn anew."""
    names = samples["component"].to_pylist()
    return samples.filter(pa.array([not name.startswith(DRAW) for name in names], pa.bool_()))


def devices(samples: pa.Table) -> str:
    """What they were timed on, in words."""
    return ", ".join(str(name) for name in samples["device"].unique().to_pylist())


def timings(trace: Trace) -> ReportTable | None:
    """The samples by component and tokens, in milliseconds; None if there are none."""
    samples = trace.latency()
    if samples is None or not len(samples):
        return None
    samples = without_draws(samples)
    alone, notes = one_each(samples), (f"Timed on {devices(samples)}.",)
    if alone:
        heads, title = ["mean of the central 90%, ms"], f"{how_many(len(samples), 'shape')}"
        notes += (
            "Means over passes in running decoders (simkit calibrate). For a policy or a head: its"
            " seconds ÷ its decisions or calls.",
        )
    else:
        heads, title = (
            ["median, ms", "5% to 95%, ms", "samples"],
            f"{how_many(len(samples), 'pass', 'passes')}",
        )
    heads = ["component", "tokens in", "context", *heads, "batch", "engine"]
    rows = _rows(samples, alone)
    return ReportTable("latency", f"Timing samples: {title}", heads, rows, notes, folded=True)


def _rows(samples: pa.Table, alone: bool) -> list[list[str | Cell]]:
    ms = 1e3 * pl.col("seconds")
    found = (
        pl.DataFrame(samples)
        .group_by(SHAPE)
        .agg(
            ms.median().alias("ms"),
            ms.quantile(0.05, "linear").alias("lo"),
            ms.quantile(0.95, "linear").alias("hi"),
            pl.len().alias("n"),
        )
    )
    rows: list[list[str | Cell]] = []
    for row in found.sort(SHAPE).iter_rows(named=True):
        spread = Cell(f"{row['lo']:.3f} to {row['hi']:.3f}", row["lo"], "number")
        rows.append(
            [
                Cell(row["component"]),
                number(row["tokens_in"]),
                number(row["context_len"]),
                number(row["ms"], ".3f"),
                *([] if alone else [spread, number(row["n"])]),
                number(row["batch_size"]),
                Cell(row["engine"] or ""),
            ]
        )
    return rows
