"""`simkit fidelity`: how far a trace's predictions are from the clock."""

from __future__ import annotations

import io
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

import typer

from simkit.cli.engine_options import EngineChoice
from simkit.cli.groups import grouped
from simkit.cli.options import (
    TURNS,
    Clock,
    Drafter,
    Heads,
    Revision,
    Threads,
    TraceName,
    TracesDtype,
    TracesMaxNewTokens,
    Turns,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from rich.table import Table

    from simkit.fidelity import FidelityResult, LivePlan
    from simkit.heads.files import Head
    from simkit.live.settings import DecoderSettings
    from traces.trace import Trace


RESULTS = ("cost.parquet", "fidelity.parquet", "fidelity.md", "fidelity.png")
"""The files that follow from a log."""


class _Sizes(NamedTuple):
    n_prompts: int = 24
    calibration: int = 8
    rounds: int = 5


@dataclass(frozen=True)
class RunOptions:
    """What is run; an earlier run's log knows all of it."""

    target: Annotated[
        str | None, typer.Option(help="The trace's target: local folder or hub id.")
    ] = None
    draft: Annotated[
        str | None,
        typer.Option(
            help="The trace's draft: local folder or hub id. For draft trees, the drafter's folder."
        ),
    ] = None
    policy: Annotated[
        list[str] | None,
        typer.Option(
            help="Policy to test. Repeat it for several. Default: nine policies, of which"
            " pacer needs --head."
        ),
    ] = None
    head: Heads = None
    n_prompts: Annotated[
        int | None,
        typer.Option(
            "--n-prompts",
            help="Number of prompts to test policies on; a verdict needs 5 or more. Default: 24.",
        ),
    ] = None
    calibration: Annotated[
        int | None,
        typer.Option(help="Number of other prompts, to which the cost is fitted. Default: 8."),
    ] = None
    rounds: Annotated[
        int | None, typer.Option(help="How many times each prompt is decoded. Default: 5.")
    ] = None
    max_new_tokens: TracesMaxNewTokens = None
    first_token: Annotated[
        Literal["draft", "prefill"] | None,
        typer.Option(
            help="What emits the first output token: prefill (the pass over the"
            " prompt) or draft (the first speculative step). Default: draft."
        ),
    ] = None
    device: Annotated[
        str | None, typer.Option(help="Device: auto, cpu, cuda, cuda:1 … Default: auto.")
    ] = None
    dtype: TracesDtype = None
    revision: Revision = None
    threads: Threads = None
    turns: Annotated[Turns | None, typer.Option(help=TURNS)] = None
    clock: Annotated[
        Clock | None,
        typer.Option(
            help="For draft trees and engines on a CPU: measure wall time or"
            " processor time. Default: wall."
        ),
    ] = None

    def given(self) -> list[str]:
        """The options that are given."""
        named = {name: value for name, value in vars(self).items() if value not in (None, [])}
        return [f"--{name.replace('_', '-')}" for name in named]

    def sizes(self) -> _Sizes:
        """Those that are given, and the others by default."""
        given = {name: getattr(self, name) for name in _Sizes._fields}
        return _Sizes(**{name: n for name, n in given.items() if n is not None})


From = Annotated[
    Path | None,
    typer.Option(
        "--from",
        help="Run nothing; judge the log in this folder or file again. Logs live-1.parquet,"
        " live-2.parquet … of several runs are judged together.",
    ),
]
Out = Annotated[
    Path | None,
    typer.Option(
        "-o",
        "--out",
        help="Folder for log, cost, table and picture. Default: fidelity, or the folder of --from.",
    ),
]


@grouped
def fidelity(
    trace: TraceName,
    *,
    drafter: Drafter = None,
    from_: From = None,
    asked: RunOptions,
    choice: EngineChoice,
    strict: Annotated[
        bool,
        typer.Option(
            "--strict",
            help="Exit with status 1 also if the prediction errors exceed the bars (limits).",
        ),
    ] = False,
    out: Out = None,
) -> int:
    """Run policies live on some of a trace's prompts and compare with their replay.

    With --engine a real engine runs them, and each of its steps is compared.
    """
    if choice.given:
        from simkit.cli.fidelity_engine import fidelity_engine

        found = fidelity_engine(trace, drafter, asked, choice, out)
        return int(strict and not found.passes)
    from simkit.fidelity import logs
    from simkit.fidelity.run import check_recorded
    from traces.trace import load

    there = load(trace, drafter)
    if there.manifest.kind != "tree":
        check_recorded(there)
    if from_ is None:
        out = out or Path("fidelity")
        log = _run(there, trace, asked, out)
    else:
        out = out or (from_.parent if from_.is_file() else from_)
        log = _read(from_, trace, asked, out)
    with logs.named(from_):
        comparison = conclude(there, log, out)
    return int(not (comparison.passes if strict else comparison.conclusive))


def _read(file: Path, trace: str, asked: RunOptions, out: Path) -> pa.Table:
    """The log of an earlier run."""
    from simkit.errors import LiveError
    from simkit.fidelity import logs

    if given := asked.given():
        raise LiveError(f"--from runs nothing: leave out {', '.join(given)}")
    _check_apart(out, RESULTS, [trace, *logs.files(file)])
    log = logs.read(file)
    _make(out, RESULTS)
    return log


def _run(there: Trace, trace: str, asked: RunOptions, out: Path) -> pa.Table:
    """The log of a run, which is kept in the output folder too."""
    from simkit.cli.fidelity_trees import decoded_trees, tree_plan
    from simkit.cli.running import PairNames, decoded
    from simkit.errors import LiveError
    from simkit.live.settings import DecoderSettings
    from simkit.overwrite_guard import files_of

    target, draft, trees = asked.target, asked.draft, there.manifest.kind == "tree"
    if target is None or draft is None:
        raise LiveError("give --target and --draft, or --from FOLDER of an earlier run")
    settings = DecoderSettings.of(there, asked.first_token or "draft", asked.max_new_tokens)
    if asked.clock == "processor" and not trees:
        raise LiveError(
            "--clock processor is only for traces of trees; others are timed by wall time"
        )
    heads: dict[str, Head] = {}
    if trees:
        plan = tree_plan(there, asked.policy, asked.head, settings, asked.sizes())
    else:
        plan, heads = _planned(there, asked.policy, asked.head, settings, asked.sizes())
    files = (*RESULTS, "live.parquet")
    _check_apart(out, files, [trace, target, draft, *files_of(asked.head)])
    _make(out, files)
    dtype = asked.dtype or there.manifest.dtype or "float32"
    names = PairNames(target, draft, asked.device or "auto", dtype, asked.revision)
    how = asked.threads, asked.turns or "sequence"
    if trees:
        by_processor = asked.clock == "processor"
        given = *how, by_processor, asked.head, out / "live.parquet"
        return decoded_trees(there, plan, settings, names, *given)
    return decoded(there, plan, settings, heads, names, *how, out / "live.parquet")


def _planned(
    trace: Trace,
    policy: list[str] | None,
    head: list[str] | None,
    settings: DecoderSettings,
    sizes: _Sizes,
) -> tuple[LivePlan, dict[str, Head]]:
    """What to run, checked before the models are loaded; and the heads for it."""
    from simkit.cli.running import prepare
    from simkit.fidelity import run
    from simkit.simulator import replay
    from traces.subset import select

    budget = settings.max_new_tokens
    chosen, heads = prepare(policy or list(run.POLICIES), head, settings, (sizes.rounds, budget))
    held_out, fitted = run.split(trace.prompt_numbers, sizes.n_prompts, sizes.calibration)
    plan = run.LivePlan(tuple(chosen), held_out, fitted, sizes.rounds)
    run.check_policies(plan.policies, trace, settings, heads)
    run.check_heads(plan.policies, heads, trace)
    read = dict.fromkeys(p.head for p in plan.policies if p.head)
    part = select(trace, plan.held_out, list(read), budget)
    replay(part, list(plan.policies), first_token=settings.first_token)  # all of it is recorded
    return plan, heads


def conclude(trace: Trace, log: pa.Table, out: Path) -> FidelityResult:
    """Write and print all that follows from a log; see `simkit.fidelity.judge`."""
    from analysis.figures import fidelity_speedups
    from simkit.cli.places import warn
    from simkit.cli.tables import page, say
    from simkit.fidelity import judge
    from simkit.fidelity.report import frame, markdown
    from simkit.fidelity.results import verdict
    from traces.files import encode
    from traces.outputs import write_together

    comparison, samples, residuals, facts = judge(trace, log)
    policies = frame(comparison)
    table, picture = io.BytesIO(), io.BytesIO()
    policies.write_parquet(table)
    fidelity_speedups(policies).figure.savefig(picture, dpi=150)
    text = markdown(comparison, residuals, facts).encode()
    made = (encode(samples)[0], table.getvalue(), text, picture.getvalue())
    write_together({out / name: data for name, data in zip(RESULTS, made, strict=True)})
    console = page()
    say(_table(comparison), console)
    said = [f"{name}: {value}" for name, value in facts.items()]
    for line in (*said, *verdict(comparison)):
        console.print(line, soft_wrap=True, highlight=False, markup=False)
    console.print(f"log, cost, table and picture are in {out}", soft_wrap=True, highlight=False)
    warn(samples)
    return comparison


def _table(comparison: FidelityResult) -> Table:
    from simkit.cli.tables import table
    from simkit.fidelity.results import cells

    heads = "policy", "predicted", "measured", "error", "tokens/step", "policy ms", "without", ""
    rows = [(first.strip("`"), *others) for first, *others in map(cells, comparison.rows)]
    return table(heads, rows)


def _check_apart(out: Path, names: Iterable[str], inputs: list[str | Path]) -> None:
    from simkit.overwrite_guard import check_apart

    check_apart([("--out", out / name) for name in names], inputs)


def _make(out: Path, names: Iterable[str]) -> None:
    """Make the output folder, and refuse what cannot be written, before anything is measured."""
    from simkit.cli.places import check_option
    from simkit.errors import LiveError
    from traces.outputs import make_folder

    try:
        make_folder(out)
    except OSError as error:
        raise LiveError(f"-o {out}: {error.strerror}") from None
    for name in names:
        check_option("-o", out / name)
