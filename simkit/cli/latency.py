"""`simkit latency`: time the forward passes of a draft/target pair."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from simkit.cli.options import Device, Dtype, Revision
from simkit.cli.places import announce, check_option, destination, write

if TYPE_CHECKING:
    import pyarrow as pa


def latency(
    target: Annotated[str, typer.Option(help="Target model: local folder or hub id.")],
    draft: Annotated[str, typer.Option(help="Draft model: local folder or hub id.")],
    out: Annotated[
        Path | None, typer.Option(help="A trace, or a FILE.parquet; nothing is kept without it.")
    ] = None,
    max_draft: Annotated[
        int | None, typer.Option(help="Γ. Default: that of the trace in --out, else 40.")
    ] = None,
    context: Annotated[str, typer.Option(help="Tokens in the cache.")] = "32,128,256,512",
    tokens: Annotated[
        str, typer.Option(help="Tokens in a verification; those beyond Γ + 1 are left out.")
    ] = "1,2,3,4,5,6,7,8,9,11,13,17,21,25,33,41",
    batch_size: Annotated[int, typer.Option(help="Sequences in a pass.")] = 1,
    repeats: Annotated[int, typer.Option(help="Samples of every pass.")] = 20,
    device: Device = "auto",
    dtype: Dtype = "float32",
    revision: Revision = None,
    seed: Annotated[int, typer.Option(help="Of the tokens and of the shuffled order.")] = 0,
    fit: Annotated[
        bool, typer.Option("--fit", help="Print the nearest linear cost, and how near it is.")
    ] = False,
    cost_out: Annotated[
        Path | None, typer.Option(help="Write that cost too: FILE.json, for --cost.")
    ] = None,
) -> None:
    """Time draft passes, verifications and prefills of a pair with real key-value caches."""
    from traces.errors import RecordError

    kind = destination(out)
    _check_cost_out(cost_out)
    if seed < 0:
        raise RecordError(f"seed must be >= 0, not {seed}")
    max_draft = _max_draft(out, max_draft)
    contexts, sizes = _numbers("context", context), _numbers("tokens", tokens)
    try:
        from traces.record.latency import plan
        from traces.record.pair import load_pair, quiet
    except ImportError as e:
        raise RecordError(f"measuring needs {e.name}: pip install 'draft-simkit[record]'") from e
    shapes = plan(max_draft, contexts, sizes)
    quiet()
    pair = load_pair(target, draft, device, dtype, revision)
    announce(out, kind)
    models = {"draft": pair.draft, "target": pair.target}
    settings = {"batch_size": batch_size, "repeats": repeats, "seed": seed}
    table = _measure(models, shapes, partial(_keep, out, kind), **settings)
    try:
        if out is not None:
            write(out, kind, table)
    finally:
        _show(table)
    if fit or cost_out:
        _fit(table, cost_out)


def _measure(
    models: Any, shapes: Any, keep: Callable[[list[pa.Table]], str], repeats: int, **settings: int
) -> pa.Table:
    """Time all rounds; those that are whole when it breaks off are kept."""
    from rich.console import Console
    from rich.progress import Progress

    from simkit.live.arms import is_out_of_memory
    from traces.errors import RecordError
    from traces.record.latency import measure

    done: list[pa.Table] = []
    try:
        with Progress(transient=True, console=Console(stderr=True)) as progress:
            task = progress.add_task("rounds", total=repeats)

            def on_round(so_far: pa.Table) -> None:
                done.append(so_far)
                progress.update(task, completed=len(done))

            return measure(models, shapes, repeats=repeats, on_round=on_round, **settings)
    except (KeyboardInterrupt, SystemExit):
        print(f"simkit: interrupted; {keep(done)}", file=sys.stderr)
        raise
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        raise RecordError(f"out of memory; {keep(done)}") from None


def _keep(out: Path | None, kind: str, rounds: list[pa.Table]) -> str:
    """Write what was measured when the command broke off, in place of nothing; says what is kept.

    Args:
        out: see `latency`.
        kind: see `destination`.
        rounds: the samples behind each round.
    """
    if not rounds:
        return "no round was whole yet"
    if out is None:
        return "nothing is kept without --out"
    file = out / "latency.parquet" if kind == "trace" else out
    if file.exists():
        return f"{file} is as it was"
    write(out, kind, rounds[-1])
    return f"{file} has the first {len(rounds)} of all rounds"


def _check_cost_out(file: Path | None) -> None:
    from traces.errors import UserError

    if file is not None:
        if file.suffix != ".json":
            raise UserError(f"--cost-out {file}: not a .json file")
        check_option("--cost-out", file)


def _max_draft(out: Path | None, max_draft: int | None) -> int:
    if max_draft is not None:
        return max_draft
    if out is not None and out.suffix != ".parquet":
        from traces.trace import load

        return load(out).max_draft
    return 40


def _numbers(name: str, text: str) -> list[int]:
    from traces.errors import UserError

    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise UserError(
            f"--{name} {text!r}: not whole numbers with commas between (32,128)"
        ) from None


def _show(table: pa.Table) -> None:
    """Print median and quartiles of every shape, and how far the two control medians are apart."""
    import numpy as np
    from rich.console import Console
    from rich.table import Table

    from traces.record.latency import CONTROL, control

    groups: dict[tuple[str, int, int], list[float]] = {}
    for row in table.to_pylist():
        key = (row["component"], row["context_len"], row["tokens_in"])
        groups.setdefault(key, []).append(row["seconds"])
    view = Table("component", "context", "tokens", "median ms", "quartiles ms", "samples")
    view.columns[0].no_wrap = True
    for (component, context_len, tokens_in), seconds in _in_order(groups):
        if component.startswith(CONTROL):
            continue
        low, middle, high = np.quantile(seconds, [0.25, 0.5, 0.75]) * 1e3
        kind = f"{component} prefill" if context_len == 0 else component
        cells = (kind, str(context_len), str(tokens_in), f"{middle:.3f}", f"{low:.3f} – {high:.3f}")
        view.add_row(*cells, str(len(seconds)))
    console = Console()
    console.print(view)
    if found := control(table):
        shape, first, again = found
        console.print(
            f"control: {shape.component}, {shape.tokens_in} tokens behind {shape.context_len}, "
            f"measured twice: {first * 1e3:.3f} and {again * 1e3:.3f} ms, "
            f"{abs(again / first - 1):.1%} apart",
            highlight=False,
            soft_wrap=True,
        )


def _fit(table: pa.Table, out: Path | None) -> None:
    """Print the linear cost nearest to the medians and its residuals, and write it."""
    import json

    from rich.console import Console
    from rich.table import Table

    from simkit.costs import fit
    from traces.files import write_atomic

    cost, residuals = fit.linear(table)
    given = fit.arguments(cost)
    view = Table("linear cost", "shapes", "median residual", "95% of them", "worst")
    for row in residuals:
        shares = (f"{share:.1%}" for share in (row.median, row.p95, row.worst))
        view.add_row(row.what, str(row.cells), *shares)
    console = Console()
    console.print(view)
    spec = ", ".join(f"{name}={value:.6g}" for name, value in given.items())
    console.print(f"--cost 'linear({spec})'", highlight=False, soft_wrap=True, markup=False)
    if out is not None:
        write_atomic(out, (json.dumps({"kind": cost.name, **given}, indent=1) + "\n").encode())


def _in_order(
    groups: dict[tuple[str, int, int], list[float]],
) -> list[tuple[tuple[str, int, int], list[float]]]:
    """Prefills last, otherwise by component, context length and tokens."""
    return sorted(groups.items(), key=lambda item: (item[0][1] == 0, item[0]))
