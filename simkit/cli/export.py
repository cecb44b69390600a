"""`simkit export`: a setting as an engine's own configuration."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from simkit.cli import complete
from simkit.cli.options import Cost, Drafter, First, FirstToken, TraceName
from simkit.cli.places import check_option
from simkit.cli.tables import tell
from simkit.overwrite_guard import check_apart

if TYPE_CHECKING:
    from simkit.engines.synthetic import DrawnOutcome
    from traces.trace import Trace


EngineName = Annotated[
    str | None,
    typer.Option(help="Engine: vllm, sglang, tensorrt-llm, llama.cpp, openvino or transformers."),
]
ChosenPolicy = Annotated[
    str | None,
    typer.Option(
        help="Policy such as 'fixed(5)'. One with ranges, such as 'fixed(1:8)', is tuned on"
        " the trace. Default: the fastest fixed length.",
        show_default=False,
        autocompletion=complete.policies,
    ),
]
ChosenController = Annotated[
    str | None,
    typer.Option(
        help="Controller to export instead of a policy, such as 'by_batch([[1, 4, 5], [5, 16,"
        " 2]])'.",
        show_default=False,
    ),
]
LoadedDraft = Annotated[
    str | None,
    typer.Option(
        help="Draft model that the engine loads. Default: the one that the trace names.",
        show_default=False,
    ),
]
Synthetic = Annotated[
    bool,
    typer.Option(
        "--synthetic",
        help="vllm, llama.cpp: let the engine draw acceptance at the trace's rates instead of"
        " verifying drafts.",
    ),
]
Profile = Annotated[
    bool,
    typer.Option(
        "--profile",
        help="Write the acceptance of fixed(K) as NVIDIA's speculation_profile.json, which"
        " planners and engines read, instead of a configuration.",
    ),
]
Concurrency = Annotated[
    int | None,
    typer.Option(
        help="Requests in flight. If the engine cannot run the controller, the length that"
        " replaces it is chosen for this load.",
        show_default=False,
    ),
]


def export(
    trace: TraceName,
    *,
    engine: EngineName = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="Configuration or profile to write.")],
    profile: Profile = False,
    policy: ChosenPolicy = None,
    controller: ChosenController = None,
    drafter: Drafter = None,
    draft: LoadedDraft = None,
    cost: Cost = None,
    synthetic: Synthetic = False,
    concurrency: Concurrency = None,
    first_token: First = "draft",
) -> None:
    """Write a setting as an engine's own configuration, or a trace's acceptance as a profile."""
    from simkit import engines
    from simkit.serving import parse
    from traces.outputs import write_atomic
    from traces.trace import load

    if profile == (engine is not None):
        raise typer.BadParameter("give --engine NAME or --profile, one of the two")
    if profile and (controller is not None or synthetic or concurrency is not None):
        raise typer.BadParameter("--profile takes no --controller, --synthetic or --concurrency")
    check_apart([("--out", out)], [trace, cost])
    check_option("--out", out)
    if engine is None:
        _profile(load(trace, drafter), out, policy, cost, first_token, draft)
        return
    found = engines.export(
        load(trace, drafter),
        engine,
        policy,
        None if controller is None else parse(controller),
        cost,
        first_token,
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


def _profile(
    trace: Trace,
    out: Path,
    policy: str | None,
    cost: str | None,
    first_token: FirstToken,
    draft: str | None,
) -> None:
    from simkit.cli.tables import say, table
    from simkit.engines.profile import profile
    from traces.outputs import write_atomic

    found = profile(trace, policy, cost, first_token, draft)
    write_atomic(out, found.text.encode())
    typer.echo(f"written to {out}")
    drawn = [
        [f"{m.mean:.4g} [{m.low:.4g}, {m.high:.4g}]" for m in each]
        for each in found.errors.values()
    ]
    true = next(iter(found.errors.values()))
    rows = [(m.name, f"{m.true:.4g}", *cells) for m, *cells in zip(true, *drawn, strict=True)]
    say(table(("outcomes", "of the trace", *(f"drawn from {how}" for how in found.errors)), rows))
    tell(found.notes)


def _print(errors: list[DrawnOutcome]) -> None:
    from simkit.cli.tables import say, table

    rows = [
        (name, f"{true:.4g}", f"{mean:.4g} [{low:.4g}, {high:.4g}]")
        for name, true, mean, low, high in errors
    ]
    say(table(("outcomes", "of the trace", "drawn from the rates"), rows))
