"""`simkit serving`: many requests on one clock."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from simkit.cli.options import (
    Cost,
    Drafter,
    First,
    FirstToken,
    Format,
    Printed,
    Ray,
    ReplayThreads,
    TraceName,
)
from simkit.cli.tables import tell

if TYPE_CHECKING:
    from simkit.serving import Served


def serving(
    trace: TraceName,
    controller: Annotated[
        list[str],
        typer.Option(
            help="none, static(3), off_above(3, batch=32), 'by_batch([[1, 8, 5], [9, 64, 2]])',"
            " 'schedule({4: 4, 32: 1})', ema(3), goodput(8), budget(7), prophet(16),"
            " 'all_stopped(svip(h=0.4))', 'batch_mean(svip(h=0.4))', or a policy that each request"
            " follows; with ranges, static(1:7:2). Give it again for more; the first one is what"
            " the others are held against.",
        ),
    ],
    rate: Annotated[
        str | None, typer.Option(metavar="R[,R…]", help="Requests a second, at random.")
    ] = None,
    concurrency: Annotated[
        str | None, typer.Option(metavar="N[,N…]", help="Requests in flight, in a closed loop.")
    ] = None,
    arrivals: Annotated[
        Path | None,
        typer.Option(
            help="Times: seconds a line, or JSON lines with arrival_s (seconds) or timestamp."
        ),
    ] = None,
    arrivals_unit: Annotated[
        Literal["s", "ms"] | None,
        typer.Option(help="Of timestamp, which traces differ in, and of bare numbers (else s)."),
    ] = None,
    copies: Annotated[
        str | None, typer.Option(metavar="N[,N…]", help="Batches of copies of one request.")
    ] = None,
    requests: Annotated[
        int | None,
        typer.Option(
            help="How many, each of a sequence drawn. Default: 1000, or as many as arrive.",
            show_default=False,
        ),
    ] = None,
    once: Annotated[
        bool, typer.Option("--once", help="Each sequence once, in order, instead.")
    ] = False,
    seeds: Annotated[
        int, typer.Option(help="Runs of each setting; each draws its prompts anew.")
    ] = 5,
    cost: Cost = None,
    drafter: Drafter = None,
    first_token: First = FirstToken.draft,
    max_batch: Annotated[int, typer.Option(help="Requests that run at most.")] = 64,
    kv_tokens: Annotated[
        int | None, typer.Option(help="That all caches hold; the last that came is preempted.")
    ] = None,
    prefill_tokens: Annotated[
        int | None, typer.Option(help="Of prompts, read in an iteration. Default: whole prompts.")
    ] = None,
    prefill_apart: Annotated[
        bool, typer.Option("--prefill-apart", help="Prompts are read in a pass of their own.")
    ] = False,
    captured: Annotated[
        str | None,
        typer.Option(metavar="N[,N…]", help="Sizes to which a pass is padded up (CUDA graphs)."),
    ] = None,
    captured_in: Annotated[
        Literal["requests", "tokens"], typer.Option(help="What those are sizes of.")
    ] = "requests",
    padded: Annotated[
        bool, typer.Option("--padded", help="Draft rounds hold all until the last has stopped.")
    ] = False,
    uniform: Annotated[
        bool, typer.Option("--uniform", help="Verify as many tokens of all as of the longest.")
    ] = False,
    no_catch_up: Annotated[
        bool,
        typer.Option(
            "--no-catch-up",
            help="A draft model knows for nothing what came out while it was left out, as in a"
            " replay.",
        ),
    ] = False,
    extrapolate: Annotated[
        bool, typer.Option("--extrapolate", help="Larger batches than were timed, in a line.")
    ] = False,
    limit: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=SECONDS",
            help="For goodput: ttft_s, tpot_s, latency_s or gap_s; give it again for more.",
        ),
    ] = None,
    rates: Annotated[
        str | None,
        typer.Option(
            metavar="P[,P…]", help="Draw outcomes: chance of each depth, given those before it."
        ),
    ] = None,
    confidence: Annotated[
        float, typer.Option(help="Confidence level of the intervals over prompts.")
    ] = 0.95,
    format: Printed = Format.table,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE.parquet", help="Write all rows.")
    ] = None,
    requests_out: Annotated[
        Path | None, typer.Option(metavar="FILE.parquet", help="Write a row for each request.")
    ] = None,
    iterations_out: Annotated[
        Path | None, typer.Option(metavar="FILE.parquet", help="Write a row for each iteration.")
    ] = None,
    threads: ReplayThreads = None,
    ray: Ray = None,
) -> None:
    """Serve many requests with a trace's outcomes."""
    from simkit.cli.overwrite_guard import check_apart
    from simkit.cli.places import check_option
    from simkit.cli.progress import settings_bar
    from simkit.serving import Engine, serve

    files = [
        ("--out", out),
        ("--requests-out", requests_out),
        ("--iterations-out", iterations_out),
    ]
    for option, file in files:
        if file is not None:
            check_option(option, file)
    check_apart([(o, f) for o, f in files if f], [trace, cost, arrivals])
    engine = Engine(
        max_batch=max_batch,
        kv_tokens=kv_tokens,
        prefill_tokens=prefill_tokens,
        mixed=not prefill_apart,
        captured=tuple(_whole("captured", captured) or ()),
        captured_in=captured_in,
        padded=padded,
        ragged=not uniform,
        extrapolate=extrapolate,
        catch_up=not no_catch_up,
    )
    with settings_bar("runs") as progress:
        served = serve(
            trace,
            controller,
            cost,
            rate=_real("rate", rate),
            concurrency=_whole("concurrency", concurrency),
            arrivals=arrivals,
            arrivals_unit=arrivals_unit,
            copies=_whole("copies", copies),
            engine=engine,
            requests=None if once else "default" if requests is None else requests,
            drawn=not once,
            seeds=1 if once and rate is None and rates is None else seeds,
            first_token=first_token.value,
            drafter=drafter,
            rates=_real("rates", rates),
            limits=_limits(limit),
            confidence=confidence,
            threads=threads,
            progress=progress,
            ray=ray,
        )
    _print(served, format)
    _write(served, dict(files))
    tell(served.notes)


def _print(served: Served, format: Format) -> None:
    if format is Format.table:
        from simkit.cli.tables import page, say

        say(served.table(), page(240))
    elif format is Format.json:
        typer.echo(served.to_json())
    else:
        from simkit.cli.tables import csv

        typer.echo(csv(served.frame), nl=False)


def _write(served: Served, files: dict[str, Path | None]) -> None:
    from io import BytesIO

    from traces.outputs import write_atomic

    made = {
        "--out": lambda: served.frame,
        "--requests-out": served.requests,
        "--iterations-out": served.iterations,
    }
    for option, file in files.items():
        if file is not None:
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
            raise ServingError(f"--{name} {text!r}: {value:g} is no whole number")
    return [int(value) for value in found]


def _real(name: str, text: str | None) -> list[float] | None:
    if text is None:
        return None
    from simkit.errors import ServingError

    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise ServingError(f"--{name} {text!r}: not numbers with commas between") from None


def _limits(given: list[str] | None) -> dict[str, float]:
    from simkit.errors import ServingError

    found = {}
    for text in given or []:
        name, _, value = text.partition("=")
        try:
            found[name.strip()] = float(value)
        except ValueError:
            raise ServingError(f"--limit {text!r}: write NAME=SECONDS, ttft_s=0.5") from None
    return found
