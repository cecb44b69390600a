"""An engine's own passes, timed on some prompts of a trace."""

from __future__ import annotations

import platform
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Literal

import pyarrow as pa

from simkit.engines.base import EngineError
from simkit.engines.run import passes
from simkit.engines.run.answers import EngineAnswer
from simkit.engines.run.arms import ALONE, arms_of, lookup_arms
from simkit.engines.run.host import EngineHost
from simkit.engines.run.recorded import RecordedPart
from simkit.engines.run.rounds import Rounds, in_rounds
from traces.conditions import Conditions, Watch
from traces.messages import how_many

EngineClock = Literal["wall", "processor"]


def tokens_timed(max_draft: int) -> list[int]:
    """Lengths of the lookups that are timed: all short ones, then every other, and the longest."""
    short = range(1, min(max_draft, 5) + 1)
    return sorted({*short, *range(7, max_draft + 1, 2), max_draft})


def lengths_timed(host: EngineHost, max_draft: int) -> tuple[list[int], list[int]]:
    """Lengths of the lookups and of the draft model's drafts that are timed.

    Where the engine times the target's passes by themselves, the draft model's steps have them, and
    no lookups are needed.
    """
    if host.conventions.times_target:
        return [], sorted({*passes.FITTED, *tokens_timed(max_draft)})
    return tokens_timed(max_draft), list(passes.FITTED)


def n_settings(host: EngineHost, max_draft: int) -> int:
    """How many settings of an engine are timed."""
    return 1 + sum(map(len, lengths_timed(host, max_draft)))


def time_passes(
    host: EngineHost,
    part: RecordedPart,
    max_draft: int,
    rounds: int,
    clock: EngineClock,
    on_answer: Callable[[], None] = lambda: None,
) -> pa.Table:
    """Timing samples of an engine's passes, with the conditions under which they were taken.

    Args:
        host: the engine, with a draft model.
        part: whose prompts it decodes.
        max_draft: Γ, drafted tokens up to which verifications are timed.
        rounds: how often.
        clock: "wall": the engine's own; "processor": its CPU seconds, for a machine that is shared.
        on_answer: called after each answer.

    Raises:
        EngineError: see `passes.samples`, or there is no draft model.
    """
    if host.draft is None:
        raise EngineError(
            "there is no cost: the trace's drafter runs no draft model whose passes can be timed"
        )
    engine, watch = host.options.engine, Watch()
    looked_up, fitted = lengths_timed(host, max_draft)
    drafted = arms_of(part.trace, engine, [f"fixed({k})" for k in fitted], str(host.draft))
    lookups = lookup_arms(engine, looked_up)
    found = in_rounds(host, [ALONE, *lookups, *drafted], part, rounds, on_answer)
    own_s = sum(answer.processor_s for arm in found for some in arm for answer in some)
    if clock == "processor":
        found = on_processor(found)
    facts: dict[str, str | int] = {"batch_size": 1, "dtype": host.options.dtype, "engine": engine}
    facts["device"] = _device(host, clock)
    n = len(lookups)
    kinds = found[:1], found[1 : n + 1], found[n + 1 :]
    table = passes.samples(*(_flat(kind, part) for kind in kinds), facts=facts)
    known = conditions(watch, found[0], own_s, rounds)
    manifest = part.trace.manifest
    return known.of_models(manifest.target, manifest.draft).kept_in(table)


def on_processor(found: Rounds) -> Rounds:
    """The answers with CPU seconds, see `passes.by_processor`."""
    return [[[passes.by_processor(one) for one in some] for some in arm] for arm in found]


def conditions(
    watch: Watch, alone: list[list[EngineAnswer]], own_s: float, rounds: int
) -> Conditions:
    """What is known of the machine meanwhile; the rounds of the target alone are the control.

    Args:
        watch: from before the runs on.
        alone: answers by prompt and round.
        own_s: CPU seconds of the engines.
        rounds: how many.
    """
    known = watch.conditions()
    if known.others is not None:  # the engines' processes are none of ours to the system
        known = replace(known, others=round(max(0.0, known.others - own_s / watch.passed_s), 3))
    totals = [sum(some[k].seconds for some in alone) for k in range(rounds)]
    if rounds > 1:
        apart = max(totals) / min(totals) - 1
        said = f"{rounds} rounds of the target alone over the same prompts"
        known = replace(known, control=said, apart=round(apart, 4))
    return replace(known, prompts=len(alone), rounds=rounds)


def _flat(arms: Sequence[list[list[EngineAnswer]]], part: RecordedPart) -> list[passes.Asked]:
    return [
        passes.Asked(request, answer)
        for arm in arms
        for request, some in zip(part.requests, arm, strict=True)
        for answer in some
    ]


def _device(host: EngineHost, clock: EngineClock) -> str:
    """What computed, in words."""
    threads = host.options.threads
    how = "the engine's choice of threads" if threads is None else how_many(threads, "thread")
    name = platform.processor() or platform.machine()
    return f"{name}, {how}, {'CPU seconds' if clock == 'processor' else 'wall clock'}"
