"""`simkit train`: train a learned head on a trace."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from simkit.cli.groups import grouped
from simkit.cli.options import MORE, Draft, Drafter, Target
from simkit.cli.places import check_outputs
from simkit.cli.progress import training_bar
from simkit.cli.running import models_of, needs_torch

if TYPE_CHECKING:
    from simkit.heads.files import Head
    from simkit.heads.training import TrainingSettings


@dataclass(frozen=True)
class HeadOptions:
    """Options of some heads; those that are not given are a head's own."""

    max_depth: Annotated[
        int | None,
        typer.Option(
            rich_help_panel=MORE,
            help="pacer: deepest draft position to score. Default: 40, at most the recorded Γ.",
        ),
    ] = None
    position_embedding: Annotated[
        bool | None,
        typer.Option(
            "--position-embedding/--no-position-embedding",
            rich_help_panel=MORE,
            help="pacer: embed each token's depth in the draft.",
        ),
    ] = None
    attention: Annotated[
        str | None,
        typer.Option(
            rich_help_panel=MORE,
            help="pacer: attention: full, local-draft or local-block. Default: full.",
        ),
    ] = None
    block: Annotated[
        int | None,
        typer.Option(rich_help_panel=MORE, help="pacer: block size of local-block. Default: 4."),
    ] = None
    text_position: Annotated[
        str | None,
        typer.Option(
            rich_help_panel=MORE,
            help="pacer: encoding of text positions: rope (rotary) or none. Default: rope.",
        ),
    ] = None
    variant: Annotated[
        str | None,
        typer.Option(
            rich_help_panel=MORE,
            help="acceptance: variant: paper, code, or proposed (two layers, no lag)."
            " Default: paper.",
        ),
    ] = None
    layers: Annotated[
        int | None,
        typer.Option(
            rich_help_panel=MORE,
            help="Number of residual blocks. Default: acceptance 1, specdecpp 3.",
        ),
    ] = None
    accept_weight: Annotated[
        float | None,
        typer.Option(
            rich_help_panel=MORE, help="Weight of accepted tokens in the loss. Default: 1."
        ),
    ] = None
    reject_weight: Annotated[
        float | None,
        typer.Option(
            rich_help_panel=MORE,
            help="Weight of rejected tokens in the loss. Default: acceptance 1, specdecpp 6.",
        ),
    ] = None
    lag: Annotated[
        int | None,
        typer.Option(
            rich_help_panel=MORE,
            help="Hidden state that judges a token. 0: the state that proposed it; 1: the"
            " state after reading it. Default: acceptance 1, specdecpp 0.",
        ),
    ] = None


@dataclass(frozen=True)
class Optimizing:
    """How weights are found."""

    epochs: Annotated[
        int, typer.Option(help="Passes over the prompts; the best epoch is kept.")
    ] = 12
    seed: Annotated[
        int, typer.Option(help="Seed of the prompts' split, the initial weights and the order.")
    ] = 0
    learning_rate: Annotated[
        float | None,
        typer.Option(help="Initial learning rate of AdamW. Default: pacer 2e-3, others 1e-3."),
    ] = None
    noise: Annotated[
        float,
        typer.Option(
            rich_help_panel=MORE,
            help="Noise added to the training states, in standard deviations.",
        ),
    ] = 0.5
    device: Annotated[str, typer.Option(help="Device: cpu, cuda …")] = "cpu"
    starts: Annotated[
        int,
        typer.Option(
            rich_help_panel=MORE, help="pacer: drafts per prompt in each epoch; 0 takes all."
        ),
    ] = 32

    def settings(self, head: str) -> TrainingSettings:
        """With the learning rate of a head, if none is given."""
        from simkit.heads import registry
        from simkit.heads.training import TrainingSettings

        rate = self.learning_rate
        rate = registry.get(head).learning_rate if rate is None else rate
        return TrainingSettings(**{**vars(self), "learning_rate": rate})


HeadTrace = Annotated[
    str,
    typer.Argument(
        help="A trace recorded with --hidden, or any trace with --drafter and --target."
    ),
]
Mix = Annotated[
    float | None,
    typer.Option(
        rich_help_panel=MORE,
        help="With --target: share of draft tokens in the training texts; 0 trains on the"
        " drafts themselves. Default: 0.5; for variant code 0.15.",
    ),
]


@grouped
def train(
    head: Annotated[str, typer.Argument(help="Head: pacer, acceptance or specdecpp.")],
    trace: HeadTrace,
    *,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="File of the trained head: FILE.safetensors.")
    ],
    drafter: Drafter = None,
    target: Target = None,
    draft: Draft = None,
    mix: Mix = None,
    optimizing: Optimizing,
    options: HeadOptions,
) -> None:
    """Train a learned head on a trace."""
    needs_torch("training")
    import traces
    from simkit.heads import files, run

    files.check_suffix(output)
    check_outputs([("--output", file) for file in files.pair(output)], [trace])
    settings = optimizing.settings(head)
    given = {name: value for name, value in vars(options).items() if value is not None}
    models = models_of(target, draft, optimizing.device)
    console = Console(stderr=True)
    start = time.perf_counter()
    with training_bar(console) as bar:
        task = bar.add_task(f"training {head}", total=optimizing.epochs)

        def on_epoch(epoch: int, loss: float, held_out: float) -> None:
            bar.update(task, advance=1, description=f"loss {loss:.4f}, held out {held_out:.4f}")

        there = traces.load(trace, drafter)
        trained = run.train(head, there, given, settings, on_epoch, models, mix)
    files.save(trained, output)
    Console().print(_table(trained))
    size = output.stat().st_size / 1000
    seconds = time.perf_counter() - start
    console.print(f"wrote {output} ({size:.0f} kB) after {seconds:.0f} s", soft_wrap=True)


def _table(head: Head) -> Table:
    metrics = head.facts["metrics"]
    title = f"{head.kind}: {metrics['tokens']:,} tokens of {{}} prompts, {{:.1%}} accepted"
    prompts = head.facts["training"]["test_prompts"]
    table = Table(title=title.format(prompts, metrics["accepted"]), box=None, title_justify="left")
    heads, rows = head.cells()
    for k, name in enumerate(heads):
        table.add_column(name if k else "", justify="right" if k else "left")
    for row in rows:
        table.add_row(*row, style="bold" if row[0] == "head" else None)
    return table
