"""`simkit latency --engine`: a real engine's own passes, from the steps that it streams."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from simkit.cli.engine_options import EngineChoice, host_of

if TYPE_CHECKING:
    from simkit.cli.latency import LatencyModels

_PROMPTS, _TOKENS, _WIDEST, _ROUNDS = 8, 128, 8, 3


def latency_engine(
    timed: LatencyModels,
    choice: EngineChoice,
    repeats: int | None,
    max_draft: int | None,
    out: Path | None,
) -> None:
    """Time an engine's passes on some of a trace's prompts, and keep the samples.

    Raises:
        EngineError: an option is none of an engine's, or the engine fails.
    """
    from simkit.cli.latency_tables import show
    from simkit.cli.places import destination, warn, write
    from simkit.cli.progress import decoding_bar
    from simkit.engines import EngineError
    from simkit.engines.run.host import check_engine
    from simkit.engines.run.recorded import recorded_part
    from simkit.engines.run.timing import n_settings, time_passes
    from traces.trace import load

    if choice.url or choice.engine is None:
        raise EngineError("latency starts the engine itself: give --engine instead of --url")
    check_engine(choice.engine)
    trace = timed.recorded
    if trace is None:
        raise EngineError("name a trace with prompts to decode: simkit latency TRACE --engine …")
    if timed.drafter or timed.revision or timed.dtype:
        raise EngineError("--drafter, --revision and --dtype cannot be used with --engine")
    rounds = _ROUNDS if repeats is None else repeats
    if rounds < 1:
        raise EngineError(f"--repeats must be at least 1, not {rounds}")
    kind = destination(out)
    if kind == "trace":
        raise EngineError("--out must be FILE.parquet: a trace keeps only times of its own models")
    widest = _WIDEST if max_draft is None else max_draft
    if not 1 <= widest <= 64:
        raise EngineError(f"--max-draft must be from 1 to 64 with --engine, not {widest}")
    there = load(trace)
    budget = min(_TOKENS, there.max_new_tokens)
    part = recorded_part(there, min(_PROMPTS, there.n_sequences), budget)
    host = host_of(choice, part, timed.target, timed.draft, timed.threads)
    total = n_settings(host, widest) * len(part.requests) * rounds
    with decoding_bar(total, "timing passes") as tick:
        table = time_passes(host, part, widest, rounds, timed.clock, tick)
    if out is not None:
        write(out, kind, table)
    show(table)
    warn(table)
