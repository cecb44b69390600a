"""`simkit fidelity --engine`: whether a real engine did what the replay said."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from simkit.cli.engine_options import EngineChoice, host_of

if TYPE_CHECKING:
    import pyarrow as pa

    from simkit.cli.fidelity import RunOptions
    from simkit.engines.run.arms import EngineArm
    from simkit.engines.run.host import EngineHost
    from simkit.engines.run.recorded import RecordedPart
    from simkit.fidelity.engine import EngineFidelity
    from traces.trace import Trace

POLICIES = ("fixed(1)", "fixed(3)", "fixed(5)", "fixed(8)")
"""Tested by default; none of them fits the cost."""
_PROMPTS, _CALIBRATION, _ROUNDS = 24, 8, 3
_TOKENS = 128
_WIDEST = 8  # tokens drafted, up to which verifications are timed at least


def fidelity_engine(
    trace: str, drafter: str | None, asked: RunOptions, choice: EngineChoice, out: Path | None
) -> EngineFidelity:
    """Run settings in an engine, and compare steps and speeds with the replay.

    Raises:
        EngineError: an option is none of an engine's, or the engine fails.
    """
    from simkit.cli.live_engine import check_folder
    from simkit.engines import EngineError
    from simkit.engines.run.arms import arms_of
    from simkit.engines.run.host import check_engine
    from simkit.engines.run.recorded import recorded_at
    from traces.trace import load

    for name in ("head", "revision", "turns", "first_token", "device", "dtype"):
        if getattr(asked, name) is not None:
            raise EngineError(f"--{name.replace('_', '-')} cannot be used with --engine")
    if choice.url or choice.engine is None:
        raise EngineError("fidelity starts the engine itself: give --engine instead of --url")
    check_engine(choice.engine)
    there = load(trace, drafter)
    budget = min(_TOKENS, there.max_new_tokens)
    budget = budget if asked.max_new_tokens is None else asked.max_new_tokens
    held_out, fitted = _split(there, asked)
    part = recorded_at(there, held_out, budget)
    folder = check_folder(out or Path("fidelity"), trace)
    host = host_of(choice, part, asked.target, asked.draft, asked.threads)
    draft = None if host.draft is None else str(host.draft)
    arms = arms_of(there, choice.engine, asked.policy or list(POLICIES), draft)
    samples = _timed(there, fitted, budget, host, asked, arms) if fitted else None
    if samples is not None:
        from simkit.cli.places import write

        write(folder / "cost.parquet", "file", samples)
        part = recorded_at(there, held_out, budget, samples)
    found = _compared(host, part, arms, asked, samples is not None, folder)
    _conclude(found, host, part, samples, folder)
    return found


def _split(trace: Trace, asked: RunOptions) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Prompts to test, and prompts to calibrate; without any of these nothing is timed."""
    import numpy as np

    from simkit.engines.run.recorded import spread
    from simkit.fidelity.run import split
    from traces.same_prompts import to_deal

    number = trace.prompt_numbers
    n = len(np.unique(to_deal(number)))
    calibration = _CALIBRATION if asked.calibration is None else asked.calibration
    prompts = min(_PROMPTS, n - calibration) if asked.n_prompts is None else asked.n_prompts
    if calibration == 0:
        return tuple(spread(trace.n_sequences, prompts)), ()
    return split(number, prompts, calibration)


def _timed(
    trace: Trace,
    fitted: tuple[int, ...],
    budget: int,
    host: EngineHost,
    asked: RunOptions,
    arms: list[EngineArm],
) -> pa.Table:
    from simkit.cli.progress import decoding_bar
    from simkit.engines.run.recorded import recorded_at
    from simkit.engines.run.timing import n_settings, time_passes

    part = recorded_at(trace, fitted, budget)
    widest = max([_WIDEST, *(arm.length for arm in arms)])
    rounds = _ROUNDS if asked.rounds is None else asked.rounds
    total = n_settings(host, widest) * len(fitted) * rounds
    with decoding_bar(total, "timing passes") as tick:
        return time_passes(host, part, widest, rounds, asked.clock or "wall", tick)


def _compared(
    host: EngineHost,
    part: RecordedPart,
    arms: list[EngineArm],
    asked: RunOptions,
    is_timed: bool,
    folder: Path,
) -> EngineFidelity:
    """Run the settings in turns, and compare what came back."""
    from simkit.cli.progress import decoding_bar
    from simkit.engines.run.arms import ALONE
    from simkit.engines.run.counted import RanArm, counted
    from simkit.engines.run.rounds import in_rounds
    from simkit.engines.run.timing import on_processor
    from simkit.engines.run.written_log import write_log
    from simkit.fidelity import engine as compared
    from traces.record.margins import NextToken

    rounds = (_ROUNDS if asked.rounds is None else asked.rounds) if is_timed else 1
    all_arms = [ALONE, *arms, arms[0]] if is_timed else list(arms)
    with decoding_bar(rounds * len(all_arms) * len(part.requests), "prompts") as tick:
        answers = in_rounds(host, all_arms, part, rounds, tick)
    tested = answers[1:-1] if is_timed else answers
    counts = []
    for arm, own in zip(arms, tested, strict=True):
        first = [(request, some[0]) for request, some in zip(part.requests, own, strict=True)]
        counts.append(counted(RanArm(arm, first), part, host.conventions))
        write_log(folder, host.options.engine, arm, first)
    draft = None if host.options.draft is None else NextToken(host.options.draft)
    models = NextToken(host.options.target), draft
    known = part.trace.manifest
    why = compared.differences(counts, arms, models, known.eos_token_ids, known.bits)
    if not is_timed:
        return compared.EngineFidelity(host.options.engine, counts, why, [], float("nan"))
    if asked.clock == "processor":
        answers = on_processor(answers)
    predicted = compared.predictions(part, arms, host.conventions.first_token)
    speeds = compared.speeds(arms, predicted, answers[0], answers[1:-1])
    control = compared.medians(answers[-1]).sum() / compared.medians(answers[1]).sum()
    return compared.EngineFidelity(host.options.engine, counts, why, speeds, float(control))


def _conclude(
    found: EngineFidelity,
    host: EngineHost,
    part: RecordedPart,
    samples: pa.Table | None,
    folder: Path,
) -> None:
    """Write and print what came of it."""
    from simkit.cli.places import warn
    from simkit.cli.tables import page, say, table
    from simkit.fidelity import engine_report as report
    from traces.conditions import conditions
    from traces.outputs import write_together

    how = host.options
    facts = {
        "prompts": f"{len(part.requests)}, outputs of up to {part.max_new_tokens} tokens",
        "weights": how.dtype,
    }
    if samples is not None:
        facts["machine"] = f"{samples['device'][0].as_py()}; {conditions(samples).machine}"
    text = report.markdown(found, facts).encode()
    data = report.as_json(found, facts).encode()
    write_together({folder / "engine.md": text, folder / "engine.json": data})
    console = page()
    say(table(report.COUNT_HEADS, [report.count_row(count) for count in found.counts]), console)
    if found.speeds:
        say(table(report.SPEED_HEADS, report.speed_rows(found)), console)
    for line in report.verdict(found):
        console.print(line, soft_wrap=True, highlight=False, markup=False)
    for one in found.differences:
        said = f"{one.policy}, prompt {one.prompt}, position {one.position}, {one.what}: {one.why}"
        console.print(said, soft_wrap=True, highlight=False, markup=False)
    console.print(f"tables, logs and cost are in {folder}", soft_wrap=True, highlight=False)
    if samples is not None:
        warn(samples)
