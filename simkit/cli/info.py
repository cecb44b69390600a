"""`simkit info`: what is in a trace."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from collections.abc import Iterator


class Format(StrEnum):
    """How to print."""

    table = "table"
    json = "json"


def info(
    trace: Annotated[str, typer.Argument(help="A trace's folder, or a bundled trace's name.")],
    format: Annotated[Format, typer.Option(help="table or json.")] = Format.table,
) -> None:
    """Say what is in a trace."""
    from traces.describe import describe
    from traces.trace import load

    facts = describe(load(trace))
    if format is Format.json:
        import json

        typer.echo(json.dumps(facts, indent=2, ensure_ascii=False))
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    for name, value in _lines(facts):
        table.add_row(name, Text(value))
    Console().print(table)


def _lines(facts: dict[str, Any]) -> Iterator[tuple[str, str]]:
    yield "trace", facts["path"] or "in memory"
    yield "hash", facts["hash"][:16]
    for name in ("target", "draft"):
        if facts[name] is not None:
            yield name, _model(facts[name])
    if facts["device"] is not None:
        yield "recorded on", f"{facts['device']}, {facts['dtype']}"
    yield "sampler", f"{_sampler(facts['sampler'])}, seed {facts['seed']}"
    yield "limits", f"Γ = {facts['max_draft']}, T_max = {facts['max_new_tokens']} tokens"
    tasks = facts["sequences_by_task"]
    names = ", ".join(f"{task or 'no task'} {n:,}" for task, n in tasks.items())
    yield "sequences", f"{facts['sequences']:,} ({names})" if tasks else "0"
    yield "positions", f"{facts['positions']:,}"
    off_path = "lattice" if facts["kind"] == "lattice" else "branch"
    yield f"{off_path} rows", f"{facts[f'{off_path}_rows']:,}"
    if facts["accepted"] is not None:
        yield "accepted", f"{facts['accepted']:.1%} of draft tokens whose predecessors were"
    if facts["overlap"] is not None:
        yield "overlap", f"{facts['overlap']:.3f} on average"
    entropies = [
        f"{n} {facts[f'{n}_entropy']:.3f}"
        for n in ("draft", "target")
        if facts[f"{n}_entropy"] is not None
    ]
    if entropies:
        yield "entropy", f"{', '.join(entropies)} nats (medians)"
    if facts["bytes"]:
        total = sum(facts["bytes"].values())
        parts = ", ".join(f"{name} {_size(size)}" for name, size in facts["bytes"].items())
        yield "size", f"{_size(total)} ({parts})"
    for i, use in enumerate(facts["uses"]):
        yield "good for" if i == 0 else "", use


def _model(model: dict[str, Any]) -> str:
    count = model["n_parameters"]
    scale, unit = next(((s, u) for s, u in ((1e9, "B"), (1e6, "M")) if count >= s), (1e3, "k"))
    revision = f"@{model['revision'][:8]}" if model["revision"] else ""
    return (
        f"{model['id']}{revision} ({model['architecture']}, {count / scale:.3g}{unit} parameters,"
        f" {model['dtype']}, weights {model['weights_sha256'][:8]})"
    )


def _sampler(sampler: dict[str, Any]) -> str:
    if sampler["temperature"] == 0:
        return "greedy"
    words = [f"temperature {sampler['temperature']:g}"]
    if sampler["top_k"]:
        words.append(f"top-k {sampler['top_k']}")
    if sampler["top_p"] < 1:
        words.append(f"top-p {sampler['top_p']:g}")
    if sampler["draft_temperature"] is not None:
        words.append(f"draft temperature {sampler['draft_temperature']:g}")
    return ", ".join(words)


def _size(n_bytes: int) -> str:
    for scale, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if n_bytes >= scale:
            return f"{n_bytes / scale:.1f} {unit}"
    return f"{n_bytes} B"
