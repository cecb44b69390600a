"""`simkit import` of engines' logs: a trace of their steps, or what they look like (`--check`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

import typer

from simkit.cli.tables import tell
from traces.messages import how_many

if TYPE_CHECKING:
    from simkit.importers.doctor import Diagnosis
    from simkit.importers.steps import Imported
    from traces.trace import Trace


NAMES = ("vllm", "sglang", "aiperf", "tensorrt-llm", "llama.cpp", "openvino")
SUMMED = ("sglang", "llama.cpp", "openvino", "tensorrt-llm")
"""Engines whose logs may not have what each step drafted."""


class Found(NamedTuple):
    """A trace that an import makes.

    Attributes:
        trace: what is written.
        said: what is in it.
        more: lines below that.
        notes: what a reader of the numbers should know.
    """

    trace: Trace
    said: str
    more: Sequence[str] = ()
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class LogOptions:
    """Options of engines' logs."""

    check: Annotated[
        bool,
        typer.Option(
            "--check",
            help="For engine logs: check the numbers for contradictions and for known faults of"
            " engines; write no trace. Exit status 1 if there is a problem.",
        ),
    ] = False
    draft_length: Annotated[
        int | None,
        typer.Option(
            help="Tokens drafted in every step. sglang always needs it; llama.cpp, openvino"
            " and tensorrt-llm need it for logs that have only sums.",
            show_default=False,
        ),
    ] = None
    shared_path: Annotated[
        bool,
        typer.Option(
            "--shared-path",
            help="For engine logs: a token's acceptance does not depend on where its draft began."
            " True for a draft model with a cache; not for EAGLE, MTP, parallel or n-gram"
            " drafters.",
        ),
    ] = False
    passes: Annotated[
        Literal["token", "draft", "none"] | None,
        typer.Option(
            help="For engine logs: draft passes that a cost charges: one per token, one per draft"
            " (parallel drafters) or none (drafters without a model). Default: token.",
        ),
    ] = None


def load_of(name: str, file: Path, asked: LogOptions) -> Callable[[], Imported]:
    """The import of an engine's log."""
    from simkit.importers import aiperf, llama_cpp, openvino, sglang, steps, tensorrt_llm, vllm

    drafts = steps.LoggedDrafts(asked.shared_path, asked.passes or "token")
    if name in ("vllm", "aiperf"):
        return partial((vllm if name == "vllm" else aiperf).load, file, drafts)
    rooms = {
        "sglang": sglang,
        "llama.cpp": llama_cpp,
        "openvino": openvino,
        "tensorrt-llm": tensorrt_llm,
    }
    return partial(rooms[name].load, file, asked.draft_length, drafts)


def imported(name: str, file: Path, out: Path, asked: LogOptions) -> Found:
    """The trace of an engine's log, for a folder."""
    trace, notes = load_of(name, file, asked)()
    drafted, accepted = trace.column("log", "drafted"), trace.column("log", "accepted")
    times = ", with their times (live.parquet)" if trace.extra("live.parquet") else ""
    said = (
        f"{how_many(trace.n_sequences, 'request')}, {how_many(len(drafted), 'step')}{times};"
        f" first rejections are located in {int((accepted < drafted).sum()):,} of them;"
        f" simkit replay {out} --policy 'fixed(3)' gives intervals"
    )
    return Found(trace, said, notes=notes)


def check(name: str, file: Path, asked: LogOptions) -> None:
    """Print what an engine's log looks like."""
    from simkit.importers.doctor import examine

    found = examine(load_of(name, file, asked))
    _print(file, found)
    if not found.is_sound:
        raise typer.Exit(1)


def _print(file: Path, found: Diagnosis) -> None:
    from simkit.cli.tables import say, table

    requests, steps = how_many(found.requests, "request"), how_many(found.steps, "step")
    refused = how_many(len(found.refused), "line")
    typer.echo(f"{file}: {requests} with {steps} are read, {refused} refused")
    laws = [
        (law.words, law.verdict, f"{law.kept:,}", f"{law.broken:,}", law.first)
        for law in found.laws
    ]
    say(table(("law", "verdict", "held", "broken", "first complaint"), laws))
    faults = [(fault.name, fault.seen or "no", fault.source) for fault in found.faults]
    say(table(("known fault", "seen", "known from"), faults))
    others = [line for line in found.refused if line not in {law.first for law in found.laws}]
    tell(others[:5])
    if others[5:]:
        tell([f"{how_many(len(others) - 5, 'line')} more refused"])
