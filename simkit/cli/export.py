"""`simkit export`: a setting as an engine's own configuration."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from simkit.cli import complete
from simkit.cli.options import Cost, Drafter, First, FirstToken, TraceName
from simkit.cli.overwrite_guard import check_apart
from simkit.cli.places import check_option
from simkit.cli.tables import tell

if TYPE_CHECKING:
    from simkit.engines.synthetic import DrawnOutcome


EngineName = Annotated[
    str, typer.Option(help="vllm, sglang, tensorrt-llm, llama.cpp, openvino or transformers.")
]
ChosenPolicy = Annotated[
    str | None,
    typer.Option(
        help="A spec such as 'fixed(5)'; with ranges, 'fixed(1:8)', it is tuned on the trace."
        " Default: the fastest fixed length.",
        show_default=False,
        autocompletion=complete.policies,
    ),
]
ChosenController = Annotated[
    str | None,
    typer.Option(
        help="In the place of a policy, as in serving: 'by_batch([[1, 4, 5], [5, 16, 2]])'.",
        show_default=False,
    ),
]
LoadedDraft = Annotated[
    str | None,
    typer.Option(
        help="What the engine loads as the draft. Default: what the trace names.",
        show_default=False,
    ),
]
Synthetic = Annotated[
    bool,
    typer.Option(
        "--synthetic",
        help="vllm, llama.cpp: with acceptance rates of the trace in the place of verdicts.",
    ),
]
Concurrency = Annotated[
    int | None,
    typer.Option(
        help="Requests in flight, under which what replaces a controller is chosen.",
        show_default=False,
    ),
]


def export(
    trace: TraceName,
    engine: EngineName,
    out: Annotated[Path, typer.Option("--out", "-o", help="The configuration.")],
    policy: ChosenPolicy = None,
    controller: ChosenController = None,
    drafter: Drafter = None,
    draft: LoadedDraft = None,
    cost: Cost = None,
    synthetic: Synthetic = False,
    concurrency: Concurrency = None,
    first_token: First = FirstToken.draft,
) -> None:
    """Write a setting as an engine's own configuration."""
    from simkit import engines
    from simkit.serving import parse
    from traces.outputs import write_atomic
    from traces.trace import load

    check_apart([("--out", out)], [trace, cost])
    check_option("--out", out)
    found = engines.export(
        load(trace, drafter),
        engine,
        policy,
        None if controller is None else parse(controller),
        cost,
        first_token.value,
        draft,
        synthetic,
        concurrency,
    )
    files = {out.with_name(f"{out.name}{name}"): text for name, text in found.beside.items()}
    check_apart([("--out", file) for file in files], [trace, cost])
    for file, text in {out: found.text, **files}.items():
        write_atomic(file, text.replace("{OUT}", str(out)).encode())
        typer.echo(f"written to {file}")
    if found.errors:
        _print(found.errors)
    tell(found.notes)


def _print(errors: list[DrawnOutcome]) -> None:
    from simkit.cli.tables import say, table

    rows = [
        (name, f"{true:.4g}", f"{mean:.4g} [{low:.4g}, {high:.4g}]")
        for name, true, mean, low, high in errors
    ]
    say(table(("outcomes", "of the trace", "drawn from the rates"), rows))
