"""`simkit latency`: time the forward passes of a target, a draft model, an attached drafter."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from simkit.cli import complete
from simkit.cli.engine_options import EngineChoice
from simkit.cli.groups import grouped
from simkit.cli.latency_tables import show, write_fit
from simkit.cli.options import Clock, Device, Revision, TargetModel
from simkit.cli.places import announce, check_option, destination, warn, write
from simkit.overwrite_guard import check_apart
from traces.messages import how_many

if TYPE_CHECKING:
    import pyarrow as pa

    from traces.record.latency import PassShape


_ALONE = {
    "context": "32,128,256,512",
    "tokens": "1,2,3,4,5,6,7,8,9,11,13,17,21,25,33,41",
    "batch-size": "1",
}
_GRID = {"context": "64,256,512", "tokens": "1,2,3,4,5,7,9,13,17"}
_MAX_BATCH = 64


def _defaults(name: str) -> str:
    alone, grid = (sizes[name].replace(",", ", ") for sizes in (_ALONE, _GRID))
    return f"Default: {alone}; with --grid {grid}."


@dataclass(frozen=True)
class LatencyModels:
    """The models that are timed."""

    recorded: Annotated[
        str | None,
        typer.Argument(
            metavar="[TRACE]",
            help="With --engine: the trace whose prompts are decoded.",
            show_default=False,
            autocompletion=complete.traces,
        ),
    ] = None
    target: Annotated[str, TargetModel] = ""
    draft: Annotated[
        str | None,
        typer.Option(
            help="Draft model: local folder or hub id. With --drafter, the drafter's new"
            " folder if it was moved."
        ),
    ] = None
    drafter: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Time this drafter, which is attached to the trace in --out."
        ),
    ] = None
    device: Device = "auto"
    dtype: Annotated[
        str | None,
        typer.Option(
            help="Number format of the models: float32, float64, bfloat16 or"
            " float16. Default: the drafter's with --drafter, else float32."
        ),
    ] = None
    revision: Revision = None
    threads: Annotated[
        int | None, typer.Option(help="With --engine: CPU threads. Default: the engine's choice.")
    ] = None
    clock: Annotated[
        Clock,
        typer.Option(
            help="With --engine: measure wall time or processor time. Use processor on a"
            " shared machine."
        ),
    ] = "wall"


@dataclass(frozen=True)
class Shapes:
    """The passes that are timed."""

    max_draft: Annotated[
        int | None,
        typer.Option(
            help="Longest draft in tokens (Γ). Default: Γ of the trace in --out, else 40."
        ),
    ] = None
    grid: Annotated[
        bool,
        typer.Option(
            "--grid",
            help="Also time batches of 1, 2, 4 … --max-batch sequences, for simkit serving.",
        ),
    ] = False
    max_batch: Annotated[
        int | None, typer.Option(help="Largest batch size of --grid. Default: 64.")
    ] = None
    context: Annotated[
        str | None, typer.Option(help=f"Tokens in the cache. {_defaults('context')}")
    ] = None
    tokens: Annotated[
        str | None,
        typer.Option(
            help="Tokens of each sequence in a pass; those beyond the widest pass are left out."
            f" {_defaults('tokens')}"
        ),
    ] = None
    batch_size: Annotated[
        str | None,
        typer.Option(
            help="Sequences per pass, such as 1,4,16; these sizes are timed in turns. Default: 1."
        ),
    ] = None

    def numbers(self) -> list[list[int]]:
        """Contexts, tokens and batch sizes."""
        from traces.errors import UserError

        grid, max_batch = self.grid, self.max_batch
        if max_batch is not None and not grid:
            raise UserError("--max-batch needs --grid; without --grid give --batch-size")
        if max_batch is not None and self.batch_size is not None:
            raise UserError("give --max-batch or --batch-size, not both")
        most = _MAX_BATCH if max_batch is None else max_batch
        if most < 1:
            raise UserError(f"--max-batch must be at least 1, not {most}")
        powers = [2**k for k in range(most.bit_length()) if 2**k < most]
        sizes = {"batch-size": ",".join(map(str, [*powers, most]))}
        known = _ALONE | ({**_GRID, **sizes} if grid else {})
        given = {"context": self.context, "tokens": self.tokens, "batch-size": self.batch_size}
        known |= {name: text for name, text in given.items() if text is not None}
        return [_numbers(name, text) for name, text in known.items()]


Out = Annotated[
    Path | None,
    typer.Option(
        "--out",
        "-o",
        help="Trace or FILE.parquet that gets the times. Without it they are only printed.",
    ),
]
Fit = Annotated[
    bool,
    typer.Option(
        "--fit",
        help="Fit a linear cost at the smallest batch size; print it and its residuals.",
    ),
]
CostOut = Annotated[
    Path | None,
    typer.Option(help="Fit a linear cost and write it to FILE.json, for use as --cost."),
]


@grouped
def latency(
    *,
    timed: LatencyModels,
    choice: EngineChoice,
    out: Out = None,
    wanted: Shapes,
    repeats: Annotated[
        int | None, typer.Option(help="Samples of every pass. Default: 20; with --engine, 3.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of random tokens and of passes' order.")] = 0,
    fit: Fit = False,
    cost_out: CostOut = None,
) -> None:
    """Time passes with real key-value caches: of a target, with --draft a pair's, or a drafter's.

    With --drafter NAME the passes of that attached drafter are timed, and kept beside its drafts.
    With --engine a real engine's own steps are timed.
    """
    if choice.given:
        from simkit.cli.latency_engine import latency_engine

        _check_engine_options(wanted, timed.device, fit, cost_out, seed)
        return latency_engine(timed, choice, repeats, wanted.max_draft, out)
    from traces.record.latency import plan

    repeats = 20 if repeats is None else repeats
    kind = destination(out)
    _check_models(timed, wanted, kind, fit, cost_out, seed)
    written = [("--out", out if kind == "file" else None), ("--cost-out", cost_out)]
    check_apart(written, [timed.target, timed.draft, out if kind == "trace" else None])
    max_draft = _max_draft(out, wanted.max_draft)
    contexts, widths, sizes = wanted.numbers()
    plan(max_draft, contexts, widths, sizes)
    found = _attached(timed, out) if timed.drafter and out else _models(timed, max_draft)
    shapes = plan(max_draft, contexts, widths, sizes, found.widest)
    place = found.folder or out
    announce(place, kind)
    tell = partial(_tell_time, len(shapes), repeats) if wanted.grid else None
    keep = partial(_keep, place, kind)
    table = _measure(found.models, shapes, keep, tell, repeats=repeats, seed=seed)
    try:
        if place is not None:
            write(place, kind, table)
    finally:
        show(table)
        warn(table)
    if fit or cost_out:
        write_fit(table, cost_out)
    if timed.drafter and out:
        _tell_use(out, timed.drafter, min(sizes))


def _check_engine_options(
    wanted: Shapes, device: str, fit: bool, cost_out: Path | None, seed: int
) -> None:
    """Refuse what an engine, which decodes as it does, cannot heed."""
    from traces.errors import UserError

    shapes = {name: value for name, value in vars(wanted).items() if name != "max_draft"}
    others = {"device": device != "auto", "fit": fit, "cost_out": cost_out, "seed": seed}
    names = [name.replace("_", "-") for name, value in (shapes | others).items() if value]
    if names:
        raise UserError(f"--{', --'.join(names)} cannot be used with --engine")


class _Chosen(NamedTuple):
    """What is timed.

    Attributes:
        models: see `traces.record.latency.measure`.
        widest: see `traces.record.latency.plan`.
        folder: of the attached drafter, if it is one.
    """

    models: dict[str, Any]
    widest: dict[str, int]
    folder: Path | None = None


def _check_models(
    timed: LatencyModels, wanted: Shapes, kind: str, fit: bool, cost_out: Path | None, seed: int
) -> None:
    from traces.errors import UserError

    _check_cost_out(cost_out)
    if timed.drafter and wanted.max_draft is not None:
        raise UserError("--max-draft cannot be used with --drafter: its passes are its own")
    if timed.recorded is not None or timed.threads is not None or timed.clock != "wall":
        raise UserError("a TRACE, --threads and --clock can be given only with --engine")
    if not timed.target:
        raise UserError("--target is missing: name the target model")
    if seed < 0:
        raise UserError(f"seed must be >= 0, not {seed}")
    if timed.drafter and kind != "trace":
        raise UserError(
            f"--drafter {timed.drafter}: name the trace that it is attached to with --out"
        )
    if (fit or cost_out) and (timed.drafter or not timed.draft):
        raise UserError("--fit and --cost-out need a pair: give --draft and leave out --drafter")


def _models(timed: LatencyModels, max_draft: int) -> _Chosen:
    """A pair, or a target alone."""
    from simkit.cli.running import PairNames, load_alone, load_models

    how = timed.device, timed.dtype or "float32", timed.revision
    if timed.draft is None:
        alone = load_alone(timed.target, *how)
        return _Chosen({"target": alone.target}, {"target": max_draft + 1})
    pair = load_models(PairNames(timed.target, timed.draft, *how))
    widest = {"draft": 1, "target": max_draft + 1}
    return _Chosen({"draft": pair.draft, "target": pair.target}, widest)


def _attached(timed: LatencyModels, trace: Path) -> _Chosen:
    """A drafter that was attached to a trace; `draft` says where it is now, if it was moved."""
    from dataclasses import replace

    from simkit.cli.running import load_alone, must_fit
    from traces.attach import registry
    from traces.finding import find
    from traces.trace import load

    folder, manifest = find(trace, timed.drafter)
    chosen = registry.parse(manifest.spec)
    if timed.draft is not None and hasattr(chosen, "path"):
        chosen = replace(chosen, path=timed.draft)  # pyright: ignore[reportArgumentType]
    if not chosen.runs_models:
        chosen.timed(None, "")  # it says why not
    from traces.record.drafters.target import check_target

    dtype = timed.dtype or manifest.dtype or "float32"
    alone = load_alone(timed.target, timed.device, dtype, timed.revision)
    check_target(load(trace), alone.target)
    with must_fit():
        ready = chosen.timed(alone, dtype)
    return _Chosen({"draft": ready}, {"draft": ready.widest}, folder)


def _tell_use(trace: Path, drafter: str, batch_size: int) -> None:
    """Say on stderr if these samples make no cost with those of the recording."""
    from simkit.costs import Measured
    from simkit.errors import CostError
    from traces.trace import load

    try:
        Measured(batch_size=batch_size).times(load(trace, drafter))
    except CostError as error:
        told = f"no cost of {drafter} with the recording's own times yet: {error}"
        print(
            f"note: {told}; time its target: simkit latency --target … --out {trace}",
            file=sys.stderr,
        )


def _tell_time(shapes: int, repeats: int, seconds: float) -> None:
    """Say how long the samples will take."""
    from simkit.cli.progress import in_words

    lasts = f"{'about ' if seconds >= 1 else ''}{in_words(seconds)}"
    print(
        f"{how_many(shapes, 'pass', 'passes')}, {how_many(repeats, 'sample')} of each: {lasts}",
        file=sys.stderr,
    )


def _measure(
    models: dict[str, Any],
    shapes: list[PassShape],
    keep: Callable[[list[pa.Table]], str],
    tell: Callable[[float], None] | None,
    repeats: int,
    seed: int,
) -> pa.Table:
    """Time all rounds; those that are whole when it breaks off are kept."""
    from simkit.cli.progress import bar
    from simkit.live.rotation import is_out_of_memory
    from traces.errors import RecordError
    from traces.record.latency import measure

    done: list[pa.Table] = []
    try:
        with bar("rounds", repeats) as (progress, task):

            def on_round(so_far: pa.Table) -> None:
                done.append(so_far)
                progress.update(task, completed=len(done))

            told: dict[str, Any] = {"on_round": on_round, **({"on_warm": tell} if tell else {})}
            return measure(models, shapes, repeats=repeats, seed=seed, **told)
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
        from traces.finding import find

        known = find(out)[1]
        if known.kind != "target":
            return known.max_draft
    return 40


def _numbers(name: str, text: str) -> list[int]:
    from traces.errors import UserError

    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise UserError(
            f"--{name} {text!r}: must be whole numbers separated by commas, such as 32,128"
        ) from None
