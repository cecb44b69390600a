"""`simkit calibrate`: the cost of a trace, taken from its own pair while it decodes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from simkit.cli import complete
from simkit.cli.options import (
    MORE,
    TURNS,
    Device,
    Drafter,
    Heads,
    Revision,
    Rounds,
    Threads,
    TraceName,
    TracesDtype,
    TracesMaxNewTokens,
    Turns,
)
from traces.messages import how_many

if TYPE_CHECKING:
    import pyarrow as pa

    from simkit.fidelity.run import LivePlan

TimedPolicies = Annotated[
    list[str] | None,
    typer.Option(
        help="Policy whose stopping rule is timed. Repeat it for several. Default: all whose"
        " rules look at drafted tokens.",
        autocompletion=complete.policies,
    ),
]
Prompts = Annotated[
    int,
    typer.Option(
        "--n-prompts",
        help="Number of prompts to decode, spread evenly from the shortest to the longest.",
    ),
]
Log = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE.parquet",
        help="Log every pass in this file. Without it, an interrupted run keeps nothing.",
        rich_help_panel=MORE,
    ),
]
Out = Annotated[
    Path | None,
    typer.Option(
        "-o",
        "--out",
        metavar="FILE.parquet",
        help="Write the times to this file instead of into the trace.",
    ),
]


def calibrate(
    trace: TraceName,
    target: Annotated[str, typer.Option(help="The trace's target: local folder or hub id.")],
    draft: Annotated[str, typer.Option(help="The trace's draft: local folder or hub id.")],
    drafter: Drafter = None,
    policy: TimedPolicies = None,
    head: Heads = None,
    n_prompts: Prompts = 12,
    rounds: Rounds = 3,
    max_new_tokens: TracesMaxNewTokens = None,
    device: Device = "auto",
    dtype: TracesDtype = None,
    revision: Revision = None,
    threads: Threads = None,
    turns: Annotated[Turns, typer.Option(help=TURNS, rich_help_panel=MORE)] = "sequence",
    log: Log = None,
    out: Out = None,
) -> None:
    """Time passes, rules and heads in running decoders; they become the trace's measured cost."""
    from simkit.cli.places import announce, destination
    from simkit.cli.running import PairNames, decoded
    from simkit.fidelity.calibration import planned
    from simkit.fidelity.run import check_recorded
    from simkit.overwrite_guard import check_apart, files_of
    from traces.trace import load
    from traces.writer import folder_to_write

    there = load(trace, drafter)
    check_recorded(there)
    out = out or folder_to_write(there, trace, "give -o FILE.parquet")
    kind = destination(out, "-o")
    _check_log(log)
    written = [("--log", log), ("-o", out if kind == "file" else None)]
    check_apart(written, [trace, target, draft, *files_of(head)])
    plan, settings, heads = planned(there, policy, head, n_prompts, rounds, max_new_tokens)
    names = PairNames(target, draft, device, dtype or there.manifest.dtype or "float32", revision)
    announce(out, kind)
    passes = decoded(there, plan, settings, heads, names, threads, turns, log)
    _keep(passes, plan, out, kind)


def _check_log(log: Path | None) -> None:
    from simkit.cli.places import check_option
    from simkit.errors import LiveError

    if log is not None:
        if log.suffix != ".parquet":
            raise LiveError(f"--log {log}: must be a .parquet file")
        check_option("--log", log)


def _keep(passes: pa.Table, plan: LivePlan, out: Path, kind: str) -> None:
    """Write the samples of a log of passes, and show them."""
    from simkit.cli.places import warn, write
    from simkit.costs import fit
    from simkit.costs.measured import DRAWS

    samples = fit.samples(passes, plan.passes, plan.rules, DRAWS)
    try:
        write(out, kind, samples)
    finally:
        _show(samples)
        warn(samples)
        _warn_of_few(len(plan.calibration))


def _warn_of_few(prompts: int) -> None:
    """Intervals take the spread of the times from draws of the prompts: few may leave none."""
    from traces.conditions import FEWEST_PROMPTS

    if prompts < FEWEST_PROMPTS:
        print(
            f"simkit: warning: {how_many(prompts, 'prompt')}: a cost is made, but intervals of"
            f" speeds may have no end with fewer than {FEWEST_PROMPTS}, most of all if their"
            " lengths differ",
            file=sys.stderr,
        )


def _show(samples: pa.Table) -> None:
    """A line for each kind of pass, rule and head."""
    import numpy as np

    from simkit.cli.tables import page, say, table
    from simkit.format_ratio import short
    from traces.conditions import DRAW, conditions

    groups: dict[str, list[float]] = {}
    for row in samples.to_pylist():
        kind = row["component"]
        if kind.startswith(DRAW):
            continue
        if kind in ("draft", "target"):
            tokens = "1 token" if row["tokens_in"] == 1 else "more tokens"
            kind = f"{kind} pass, {tokens}" if row["context_len"] else f"{kind} prefill"
        groups.setdefault(kind, []).append(row["seconds"] * 1e3)
    rows = []
    for kind, ms in groups.items():
        span = f"{short(min(ms))} – {short(max(ms))}" if len(ms) > 1 else ""
        rows.append((kind, short(float(np.median(ms))), span, str(len(ms))))
    say(table(("what", "median ms", "from – to, ms", "shapes"), rows))
    page().print(f"control: {conditions(samples)}", highlight=False, soft_wrap=True)
