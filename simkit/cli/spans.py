"""`simkit spans`: say what the positions of a trace's outputs are part of."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from simkit.cli.options import TraceFolder


def spans(
    trace: TraceFolder,
    tokenizer: Annotated[
        str, typer.Option(help="Tokenizer of the target: a model's folder or hub id.")
    ],
    rules: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.toml",
            help="Rules for spans: [\\[span]] tables, each with name and either begin and end,"
            " or pattern. Default: common markers of thinking and tool calls, and code in"
            " ```.",
        ),
    ] = None,
) -> None:
    """Label positions as thinking, code, tool call or answer."""
    from simkit.cli.running import needs_torch
    from traces import spans as kinds
    from traces.trace import load
    from traces.writer import add_file, folder_to_write

    there = load(trace)
    folder_to_write(there, trace)
    wanted = kinds.BUILT_IN if rules is None else kinds.read_rules(rules)
    needs_torch("a tokenizer")
    from traces.record.pair import load_tokenizer, tokenizer_hash

    read = load_tokenizer(tokenizer)
    kinds.check_tokenizer(there, tokenizer_hash(read), tokenizer)
    table = kinds.find(there, read, wanted)
    assert there.path is not None
    add_file(there.path, kinds.FILE, table)
    there = load(trace)
    shown = kinds.shares(there, kinds.load(there))
    for name, n, accepted in shown:
        said = "" if accepted is None else f", {accepted:.1%} of draft tokens accepted"
        typer.echo(f"{name}: {n:,} positions ({n / there.n_positions:.1%}){said}")
