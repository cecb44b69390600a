"""`simkit serving`: a simulated server with many requests."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from simkit.cli.groups import grouped
from simkit.cli.options import (
    MORE,
    Confidence,
    Cost,
    Drafter,
    First,
    Format,
    Printed,
    Ray,
    RowsOut,
    TraceName,
    Workers,
)
from simkit.cli.places import check_outputs
from simkit.cli.progress import settings_bar
from simkit.cli.tables import conclude, tell

if TYPE_CHECKING:
    from simkit.serving import Engine, Served


@dataclass(frozen=True)
class Arriving:
    """When requests come: by one of these."""

    rate: Annotated[
        str | None,
        typer.Option(
            metavar="R[,R…]", help="Requests per second; they arrive at random times (Poisson)."
        ),
    ] = None
    concurrency: Annotated[
        str | None, typer.Option(metavar="N[,N…]", help="Requests in flight at all times.")
    ] = None
    arrivals: Annotated[
        Path | None,
        typer.Option(
            help="File of arrival times: one number per line, or JSON Lines with arrival_s (in"
            " seconds) or timestamp."
        ),
    ] = None
    arrivals_unit: Annotated[
        Literal["s", "ms"] | None,
        typer.Option(
            rich_help_panel=MORE, help="Unit of timestamp values and bare numbers (default: s)."
        ),
    ] = None
    copies: Annotated[
        str | None,
        typer.Option(
            metavar="N[,N…]", rich_help_panel=MORE, help="Serve batches of N copies of one request."
        ),
    ] = None

    def arguments(self) -> dict[str, Any]:
        """As `simkit.serving.serve` has them."""
        return {
            "rate": _real("rate", self.rate),
            "concurrency": _whole("concurrency", self.concurrency),
            "arrivals": self.arrivals,
            "arrivals_unit": self.arrivals_unit,
            "copies": _whole("copies", self.copies),
        }


@dataclass(frozen=True)
class Repeated:
    """How many requests there are, and how often they are served."""

    requests: Annotated[
        int | None,
        typer.Option(
            help="Number of requests; each replays a randomly drawn sequence. Default: 1000, or as"
            " many as arrive.",
            show_default=False,
        ),
    ] = None
    once: Annotated[
        bool,
        typer.Option(
            "--once",
            rich_help_panel=MORE,
            help="Serve each recorded sequence once, in order, instead of drawing sequences.",
        ),
    ] = False
    seeds: Annotated[
        int, typer.Option(help="Number of runs of each setting; each run draws its own sequences.")
    ] = 5

    def arguments(self, random: bool) -> dict[str, Any]:
        """As `simkit.serving.serve` has them.

        Args:
            random: whether two runs of each sequence once differ.
        """
        from simkit.errors import ServingError

        if self.once and self.requests is not None:
            raise ServingError("--once serves each recorded sequence once: leave out --requests")
        return {
            "requests": None
            if self.once
            else "default"
            if self.requests is None
            else self.requests,
            "drawn": not self.once,
            "seeds": 1 if self.once and not random else self.seeds,
        }


@dataclass(frozen=True)
class EngineOptions:
    """What serves."""

    max_batch: Annotated[int, typer.Option(help="Largest number of requests that run at once.")] = (
        64
    )
    kv_tokens: Annotated[
        int | None,
        typer.Option(
            rich_help_panel=MORE,
            help="Capacity of the KV cache in tokens, shared by all requests. When it is"
            " full, the newest request is preempted.",
        ),
    ] = None
    prefill_tokens: Annotated[
        int | None,
        typer.Option(
            rich_help_panel=MORE,
            help="Most prompt tokens that one iteration reads. Default: whole prompts.",
        ),
    ] = None
    prefill_apart: Annotated[
        bool,
        typer.Option(
            "--prefill-apart",
            rich_help_panel=MORE,
            help="Read prompts in separate passes, which decode nothing.",
        ),
    ] = False
    captured: Annotated[
        str | None,
        typer.Option(
            metavar="N[,N…]",
            rich_help_panel=MORE,
            help="Sizes that passes are padded to, as captured CUDA graphs require.",
        ),
    ] = None
    captured_in: Annotated[
        Literal["requests", "tokens"],
        typer.Option(rich_help_panel=MORE, help="Unit of the sizes in --captured."),
    ] = "requests"
    padded: Annotated[
        bool,
        typer.Option(
            "--padded",
            rich_help_panel=MORE,
            help="Keep every request in each draft round until all have stopped.",
        ),
    ] = False
    uniform: Annotated[
        bool,
        typer.Option(
            "--uniform",
            rich_help_panel=MORE,
            help="Pad every verification to the longest draft in the batch.",
        ),
    ] = False
    no_catch_up: Annotated[
        bool,
        typer.Option(
            "--no-catch-up",
            rich_help_panel=MORE,
            help="Do not charge the draft for reading the tokens emitted while it was idle.",
        ),
    ] = False
    extrapolate: Annotated[
        bool,
        typer.Option(
            "--extrapolate",
            rich_help_panel=MORE,
            help="Extrapolate linearly to untimed batch sizes.",
        ),
    ] = False

    def engine(self) -> Engine:
        """The engine with these settings."""
        from simkit.serving import Engine

        return Engine(
            max_batch=self.max_batch,
            kv_tokens=self.kv_tokens,
            prefill_tokens=self.prefill_tokens,
            mixed=not self.prefill_apart,
            captured=tuple(_whole("captured", self.captured) or ()),
            captured_in=self.captured_in,
            padded=self.padded,
            ragged=not self.uniform,
            extrapolate=self.extrapolate,
            catch_up=not self.no_catch_up,
        )


@dataclass(frozen=True)
class ServedFiles:
    """What is written of the runs, beside the table that is printed."""

    out: RowsOut = None
    requests_out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.parquet", rich_help_panel=MORE, help="Write a row for each request."
        ),
    ] = None
    iterations_out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.parquet", rich_help_panel=MORE, help="Write a row for each iteration."
        ),
    ] = None

    def given(self) -> list[tuple[str, Path]]:
        """The files that are given, with their options."""
        return [(f"--{k.replace('_', '-')}", file) for k, file in vars(self).items() if file]


Controllers = Annotated[
    list[str],
    typer.Option(
        help="Controller of the draft lengths (simkit list controllers explains each): none,"
        " static(3), off_above(3, batch=32), 'by_batch([[1, 8, 5], [9, 64, 2]])',"
        " 'schedule({4: 4, 32: 1})', ema(3), goodput(8), budget(7), prophet(16),"
        " 'all_stopped(svip(h=0.4))', 'batch_mean(svip(h=0.4))', or a policy that each"
        " request follows. Ranges such as static(1:7:2) give several. Repeat it for more; all"
        " others are compared with the first one.",
    ),
]
Limits = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=SECONDS",
        rich_help_panel=MORE,
        help="Latency limit that requests must keep to count as goodput: ttft_s, tpot_s,"
        " latency_s or gap_s. Repeat it for several.",
    ),
]
Rates = Annotated[
    str | None,
    typer.Option(
        metavar="P[,P…]",
        rich_help_panel=MORE,
        help="Draw acceptance at random instead of replaying it. P is the acceptance"
        " probability at each depth, given that all earlier tokens were accepted.",
    ),
]


@grouped
def serving(
    trace: TraceName,
    *,
    controller: Controllers,
    arriving: Arriving,
    repeated: Repeated,
    cost: Cost = None,
    drafter: Drafter = None,
    first_token: First = "draft",
    server: EngineOptions,
    limit: Limits = None,
    rates: Rates = None,
    confidence: Confidence = 0.95,
    format: Printed = "table",
    files: ServedFiles,
    workers: Workers = None,
    ray: Ray = None,
) -> None:
    """Simulate a batched server that replays a trace."""
    from simkit.serving import serve

    check_outputs(files.given(), [trace, cost, arriving.arrivals])
    engine = server.engine()
    with settings_bar("runs") as progress:
        served = serve(
            trace,
            controller,
            cost,
            **arriving.arguments(),
            engine=engine,
            **repeated.arguments(random=bool(arriving.rate or rates)),
            first_token=first_token,
            drafter=drafter,
            rates=_real("rates", rates),
            limits=_limits(limit),
            confidence=confidence,
            workers=workers,
            progress=progress,
            ray=ray,
        )
    _print(served, format)
    _write(served, files)
    tell(served.notes)
    conclude(served.answer(), format)


def _print(served: Served, format: Format) -> None:
    if format == "table":
        from simkit.cli.tables import page, say

        say(served.table(), page(240))
    elif format == "json":
        typer.echo(served.to_json())
    else:
        from simkit.cli.tables import csv

        typer.echo(csv(served.frame), nl=False)


def _write(served: Served, files: ServedFiles) -> None:
    from io import BytesIO

    from traces.outputs import write_atomic

    made = {
        "--out": lambda: served.frame,
        "--requests-out": served.requests,
        "--iterations-out": served.iterations,
    }
    for option, file in files.given():
        buffer = BytesIO()
        made[option]().write_parquet(buffer)
        write_atomic(file, buffer.getvalue())


def _whole(name: str, text: str | None) -> list[int] | None:
    found = _real(name, text)
    if found is None:
        return None
    from simkit.errors import ServingError

    for value in found:
        if value != value or value in (float("inf"), float("-inf")) or value != int(value):
            raise ServingError(f"--{name} {text!r}: {value:g} is not a whole number")
    return [int(value) for value in found]


def _real(name: str, text: str | None) -> list[float] | None:
    if text is None:
        return None
    from simkit.errors import ServingError

    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise ServingError(f"--{name} {text!r}: must be numbers separated by commas") from None


def _limits(given: list[str] | None) -> dict[str, float]:
    from simkit.errors import ServingError

    found = {}
    for text in given or []:
        name, _, value = text.partition("=")
        if name.strip() in found:
            raise ServingError(f"--limit {name.strip()} is given twice")
        try:
            found[name.strip()] = float(value)
        except ValueError:
            raise ServingError(
                f"--limit {text!r}: write NAME=SECONDS, such as ttft_s=0.5"
            ) from None
    return found
