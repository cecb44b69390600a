"""What `simkit latency` prints: a row a shape, and the linear cost nearest to the samples."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from traces.messages import how_many

if TYPE_CHECKING:
    import pyarrow as pa

    from traces.record.latency import PassShape


def show(table: pa.Table) -> None:
    """Print median and quartiles of every shape, and how far the two control medians are apart."""
    import numpy as np

    from simkit.cli import tables
    from simkit.format_ratio import short
    from traces.conditions import CONTROL, conditions
    from traces.record.latency import PassShape, control

    groups: dict[PassShape, list[float]] = {}
    for row in table.to_pylist():
        shape = PassShape(row["component"], row["tokens_in"], row["context_len"], row["batch_size"])
        groups.setdefault(shape, []).append(row["seconds"])
    batched = len({shape.batch_size for shape in groups}) > 1
    heads = "component", *(["batch"] if batched else []), "context", "tokens"
    rows = []
    for shape in sorted(groups, key=_order):
        if shape.component.startswith(CONTROL):
            continue
        low, middle, high = np.quantile(groups[shape], [0.25, 0.5, 0.75]) * 1e3
        kind = f"{shape.component} prefill" if shape.context_len == 0 else shape.component
        sizes = [shape.batch_size] if batched else []
        counts = map(str, (*sizes, shape.context_len, shape.tokens_in))
        times = short(middle), f"{short(low)} – {short(high)}"
        rows.append((kind, *counts, *times, str(len(groups[shape]))))
    console = tables.page()
    tables.say(tables.table((*heads, "median ms", "quartiles ms", "samples"), rows), console)
    if found := control(table):
        shape, first, again = found
        several = f" of {how_many(shape.batch_size, 'sequence')}" if batched else ""
        console.print(
            f"control: {shape.component}{several}, {how_many(shape.tokens_in, 'token')} behind"
            f" {shape.context_len}, measured twice: {short(first * 1e3)} and"
            f" {short(again * 1e3)} ms, "
            f"{abs(again / first - 1):.1%} apart; {conditions(table).machine}",
            highlight=False,
            soft_wrap=True,
        )


def write_fit(table: pa.Table, out: Path | None) -> None:
    """Print the linear cost nearest to the medians and its residuals, and write it.

    Of several batch sizes the smallest one counts: a replay decodes one sequence at a time.
    """
    import json

    import pyarrow.compute as pc

    from simkit.cli import tables
    from simkit.costs import fit as nearest
    from traces.outputs import write_atomic

    batch_size = min(table["batch_size"].to_pylist())
    cost, residuals = nearest.linear(table.filter(pc.field("batch_size") == batch_size))
    given = nearest.arguments(cost)
    rows = []
    for row in residuals:
        shares = (f"{share:.1%}" for share in (row.median, row.p95, row.worst))
        rows.append((row.what, str(row.cells), *shares))
    console = tables.page()
    heads = "linear cost", "shapes", "median residual", "95% of them", "worst"
    tables.say(tables.table(heads, rows), console)
    spec = ", ".join(f"{name}={value:.6g}" for name, value in given.items())
    console.print(f"--cost 'linear({spec})'", highlight=False, soft_wrap=True, markup=False)
    if out is not None:
        named = {"models": cost.timed.written()} if cost.timed else {}
        text = json.dumps({"kind": cost.name, **given, **named}, indent=1)
        write_atomic(out, f"{text}\n".encode())


def _order(shape: PassShape) -> tuple[int, bool, str, int, int]:
    """Batch size by batch size, prefills last, then by component, context length and tokens."""
    prefill = shape.context_len == 0
    return shape.batch_size, prefill, shape.component, shape.context_len, shape.tokens_in
