"""`simkit live --engine`: a real engine with the exported setting, on a trace's prompts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from simkit.cli.engine_options import EngineChoice, host_of

if TYPE_CHECKING:
    from simkit.cli.live_options import LiveOptions
    from simkit.cli.options import Drawing
    from simkit.engines.run.arms import EngineArm
    from simkit.engines.run.counted import RanArm
    from simkit.engines.run.host import EngineHost
    from simkit.engines.run.recorded import RecordedPart

_NOT_HERE = (
    *("prompts", "controller", "concurrency", "cost", "head", "revision", "turns", "trace"),
    *("rounds", "first_token", "batch_size", "stop", "device", "dtype", "clock"),
)
_DEFAULT_TOKENS = 256


def live_engine(asked: LiveOptions, choice: EngineChoice, drawing: Drawing) -> int:
    """Run each policy in the engine, write its log, and print what it did.

    Raises:
        EngineError: an option is none of an engine's, or the engine fails.
    """
    from simkit.cli.options import Drawing
    from simkit.engines import EngineError
    from simkit.engines.run.arms import arms_of
    from simkit.engines.run.host import check_engine
    from simkit.engines.run.recorded import recorded_part
    from traces.trace import load

    asked.refuse(_NOT_HERE, "{} cannot be used with --engine or --url")
    if drawing != Drawing():
        raise EngineError(
            "an engine decodes greedily, as its trace was recorded: leave out"
            " --temperature, --top-k, --top-p, --draft-temperature and --seed"
        )
    if asked.recorded is None:
        raise EngineError("name the trace whose prompts are sent: simkit live TRACE --engine …")
    if choice.engine and choice.url:
        raise EngineError("give --engine or --url, not both")
    if choice.engine is not None:
        check_engine(choice.engine)
    trace = load(asked.recorded, asked.drafter)
    budget = None if asked.max_new_tokens == _DEFAULT_TOKENS else asked.max_new_tokens
    budget = min(trace.max_new_tokens, _DEFAULT_TOKENS) if budget is None else budget
    part = recorded_part(trace, asked.n_prompts, budget)
    folder = asked.out and check_folder(asked.out, asked.recorded)
    if choice.url:
        ran = [_asked_there(choice, part, asked.policy or [], folder)]
    else:
        host = host_of(choice, part, asked.target, asked.draft, asked.threads)
        draft = None if host.draft is None else str(host.draft)
        arms = arms_of(trace, str(choice.engine), asked.policy or [], draft)
        ran = run_arms(host, part, arms, folder)
    report(choice.engine or str(choice.url), ran)
    return 0


def _asked_there(
    choice: EngineChoice, part: RecordedPart, policies: list[str], folder: Path | None
) -> RanArm:
    """Ask an engine that runs already; its setting is its own, one policy names it at most.

    Raises:
        EngineError: several policies are given, or see `simkit.engines.run.remote.remote`.
    """
    from simkit import policies as known
    from simkit.cli.progress import decoding_bar
    from simkit.engines import EngineError
    from simkit.engines.run.arms import ALONE
    from simkit.engines.run.counted import RanArm
    from simkit.engines.run.counted import asked as answers_of
    from simkit.engines.run.remote import remote
    from simkit.engines.run.written_log import write_log

    if len(policies) > 1:
        raise EngineError("an engine at --url has one setting: give at most one --policy")
    arm = ALONE._replace(policy=known.parse(policies[0])) if policies else ALONE
    with remote(str(choice.url), choice.time_limit, part.trace.eos_token_ids) as engine:
        with decoding_bar(len(part.requests), "prompts") as tick:
            ran = RanArm(arm, answers_of(engine, part, tick))
    write_log(folder, str(choice.url), arm, ran.answers)
    return ran


def check_folder(out: Path, trace: str) -> Path:
    """The folder of the logs, if it can be written to.

    Raises:
        EngineError: it is a file, or inside the trace.
    """
    from simkit.engines import EngineError
    from simkit.overwrite_guard import check_apart
    from traces.outputs import make_folder

    if out.exists() and not out.is_dir():
        raise EngineError(f"--out {out}: must be a folder, which gets one log for each policy")
    check_apart([("--out", out)], [trace])
    try:
        make_folder(out)
    except OSError as error:
        raise EngineError(f"--out {out}: {error.strerror}") from None
    return out


def run_arms(
    host: EngineHost, part: RecordedPart, arms: list[EngineArm], folder: Path | None
) -> list[RanArm]:
    """Run settings one after another, each with a start of the engine, and write their logs."""
    from simkit.cli.progress import decoding_bar
    from simkit.engines.run.counted import RanArm
    from simkit.engines.run.counted import asked as answers_of
    from simkit.engines.run.written_log import write_log

    ran = []
    with decoding_bar(len(arms) * len(part.requests), "prompts") as tick:
        for arm in arms:
            with host.start(arm) as engine:
                answers = answers_of(engine, part, tick)
            ran.append(RanArm(arm, answers))
            write_log(folder, host.options.engine, arm, answers)
    return ran


def report(engine: str, ran: list[RanArm]) -> None:
    """Print what each setting did."""
    from simkit.cli.tables import page, say, table

    heads = (
        "policy",
        "prompts",
        "tokens",
        "steps",
        "drafted",
        "accepted",
        "emitted/step",
        "tokens/s",
    )
    rows = [_row(one) for one in ran]
    console = page()
    console.print(f"counts and seconds as {engine} reports them", highlight=False)
    say(table(heads, rows), console)


def _row(ran: RanArm) -> tuple[str, ...]:
    answers = [answer for _, answer in ran.answers]
    steps = [step for answer in answers for step in answer.steps]
    tokens = sum(len(answer.tokens) for answer in answers)
    sums = [answer.counted for answer in answers if answer.counted is not None]
    drafted = sum(d for d, _ in sums) if sums else sum(step.drafted for step in steps)
    known = sums or all(step.drafted >= 0 for step in steps)
    accepted = sum(a for _, a in sums) if sums else sum(step.accepted for step in steps)
    each = sum(step.emitted for step in steps) / len(steps) if steps else 0.0
    seconds = sum(answer.seconds for answer in answers)
    return (
        ran.arm.name,
        f"{len(answers):,}",
        f"{tokens:,}",
        f"{len(steps):,}",
        f"{drafted:,}" if known else "–",
        f"{accepted:,}",
        f"{each:.3f}",
        f"{tokens / seconds:.1f}",
    )
