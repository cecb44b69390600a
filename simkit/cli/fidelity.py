"""`simkit fidelity`: how far a trace's predictions are from the clock."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

if TYPE_CHECKING:
    import pyarrow as pa

    from simkit.fidelity import Comparison, Plan
    from traces.trace import Trace


def fidelity(
    trace: Annotated[str, typer.Argument(help="A trace's folder, or a bundled trace's name.")],
    target: Annotated[str, typer.Option(help="The trace's target: local folder or hub id.")],
    draft: Annotated[str, typer.Option(help="Its draft: local folder or hub id.")],
    policy: Annotated[
        list[str] | None,
        typer.Option(help="To test; repeat it. Default: nine, of which pacer needs its head."),
    ] = None,
    head: Annotated[
        list[str] | None, typer.Option(help="FILE.safetensors or NAME=FILE.safetensors; repeat it.")
    ] = None,
    prompts: Annotated[int, typer.Option(help="On which policies are tested.")] = 24,
    calibration: Annotated[int, typer.Option(help="Other prompts, which fit the cost.")] = 8,
    rounds: Annotated[int, typer.Option(help="How often every prompt is decoded.")] = 5,
    first_token: Annotated[
        Literal["draft", "prefill"], typer.Option(help="Which pass emits the first token.")
    ] = "draft",
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1 …")] = "auto",
    dtype: Annotated[str | None, typer.Option(help="Default: the trace's.")] = None,
    revision: Annotated[
        str | None, typer.Option(help="Hub revision of the target, or TARGET,DRAFT.")
    ] = None,
    threads: Annotated[
        int | None, typer.Option(help="Of torch on a CPU. Default: its own.")
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit status 1 if a bar is missed, too.")
    ] = False,
    out: Annotated[
        Path, typer.Option("-o", "--out", help="Folder: log, cost, table and picture.")
    ] = Path("fidelity"),
) -> int:
    """Run policies live on some of a trace's prompts and compare with their replay."""
    from simkit.cli.live import bar, load_bench, opened, prepare
    from simkit.fidelity import run
    from simkit.live.arms import use_threads
    from simkit.live.decoder import Settings
    from traces.trace import load

    there = load(trace)
    settings = Settings(
        there.sampler, there.manifest.seed, there.max_new_tokens, there.eos_token_ids, first_token
    )
    numbers = (rounds, prompts, calibration)
    chosen, heads = prepare(policy or list(run.POLICIES), head, settings, numbers)
    held_out, fitted = run.split(there.n_sequences, prompts, calibration)
    plan = run.Plan(tuple(chosen), held_out, fitted, rounds)
    chosen_trace = _held_out(there, plan, list(heads))
    _folder(out)
    use_threads(threads)
    dtype = dtype or there.manifest.dtype or "float32"
    bench = load_bench((target, draft, device, dtype, revision), settings, heads)
    run.check_policies(plan.policies, chosen_trace, bench)
    run.check_pair(there, bench)
    jobs = run.jobs_of(there, plan)
    with opened(out / "live.parquet", bench) as log:
        with bar(rounds * sum(len(job.arms) for job in jobs)) as tick:
            runs = run.measure(there, bench, plan, log, tick)
        table = log.table()
    facts = {
        "trace": f"{trace}, {len(held_out)} prompts held out, {len(fitted)} for calibration",
        "live": f"{rounds} rounds, {bench.pair.target.dtype}, {_device(table)}",
    }
    comparison = finish(chosen_trace, there, table, runs, first_token, facts, out)
    return int(not comparison.conclusive or (strict and not comparison.passes))


def _held_out(trace: Trace, plan: Plan, heads: list[str]) -> Trace:
    """The trace of the held-out prompts, with the scores that the policies read."""
    from simkit.fidelity import select

    read = {p.head for p in plan.policies if p.head}
    return select(trace, plan.held_out, [head for head in heads if head in read])


def finish(
    chosen: Trace,
    trace: Trace,
    log: pa.Table,
    runs: Any,
    first_token: Any,
    facts: dict[str, str],
    out: Path,
) -> Comparison:
    """Fit, replay, compare, write, print."""
    from rich.console import Console

    from simkit import replay
    from simkit.costs import Measured, fit
    from simkit.fidelity import compare
    from traces.files import encode, write_atomic

    samples = _samples(log, trace, runs.plan)
    write_atomic(out / "cost.parquet", encode(samples)[0])
    policies = list(runs.plan.policies)
    cost = Measured(file=str(out / "cost.parquet"))
    comparison = compare(log, runs, replay(chosen, policies, cost, first_token=first_token))
    _write(comparison, fit.linear(samples)[1], facts, out)
    console = Console()
    if not console.is_terminal:
        console = Console(width=200)
    console.print(_table(comparison))
    from simkit.fidelity.report import verdict

    for line in verdict(comparison):
        console.print(line, soft_wrap=True, highlight=False, markup=False)
    console.print(f"log, cost, table and picture are in {out}", soft_wrap=True, highlight=False)
    return comparison


def _samples(log: pa.Table, trace: Trace, plan: Plan) -> pa.Table:
    """The calibration prompts' passes."""
    import pyarrow as pa
    import pyarrow.compute as pc

    from simkit.costs import fit

    numbers = [trace.sequences["sequence"][index].as_py() for index in plan.calibration]
    mine = log.filter(pc.field("sequence").isin(pa.array(numbers, pa.int32())))
    return fit.samples(mine, plan.passes, plan.rules)


def _write(comparison: Comparison, residuals: Any, facts: dict[str, str], out: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from simkit.fidelity.report import frame, markdown, picture
    from traces.files import write_atomic

    frame(comparison).write_parquet(out / "fidelity.parquet")
    write_atomic(out / "fidelity.md", markdown(comparison, residuals, facts).encode())
    figure: Any = picture(comparison).figure
    figure.savefig(out / "fidelity.png", dpi=150)


def _table(comparison: Comparison) -> Any:
    from rich.table import Table

    from simkit.fidelity.report import cells

    view = Table()
    view.add_column("policy", no_wrap=True)
    for name in ("predicted", "measured", "error", "tokens/step", "policy ms", "free", ""):
        view.add_column(name)
    for row in comparison.rows:
        first, *others = cells(row)
        view.add_row(first.strip("`"), *others)
    return view


def _device(log: pa.Table) -> str:
    return (log.schema.metadata or {}).get(b"device", b"unknown device").decode()


def _folder(out: Path) -> None:
    """The output folder, made before anything is measured."""
    from simkit.errors import LiveError

    try:
        out.mkdir(parents=True, exist_ok=True)
        probe = out / ".probe"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise LiveError(f"-o {out}: {error.strerror}") from None
