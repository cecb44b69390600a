"""What commands that run a pair of models share: heads and policies, the pair, the log."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import pyarrow as pa
    from rich.console import Console

    from simkit.fidelity import LivePlan
    from simkit.heads.files import Head
    from simkit.heads.nodes import Models
    from simkit.live.interleave import Turns
    from simkit.live.log import LiveLog
    from simkit.live.rotation import Arm, BatchOutputs, Bench, Benches, LiveJob
    from simkit.live.settings import DecoderSettings
    from simkit.live.summary import Drift
    from simkit.policies import Sequential
    from traces.manifest import ModelInfo
    from traces.record.pair import Alone, Pair
    from traces.trace import Trace

_ROW_BYTES = 11  # of a log, as the bundled one has them


class PairNames(NamedTuple):
    """Two models and how they are run, as `traces.record.pair.load_pair` takes them."""

    target: str
    draft: str
    device: str
    dtype: str
    revision: str | None


class Ran(NamedTuple):
    """A live run: its log, what came out by arm and sequence, and who decoded what."""

    log: LiveLog
    found: dict[tuple[int, int], BatchOutputs]
    arms: list[Arm]
    jobs: list[LiveJob]


def prepare(
    specs: list[str], heads: list[str] | None, settings: DecoderSettings, numbers: tuple[int, ...]
) -> tuple[list[Sequential], dict[str, Head]]:
    """Policies and heads, checked before the models are loaded."""
    from simkit.errors import LiveError
    from simkit.live.chosen import choose, load_heads

    if min(numbers) < 1:
        raise LiveError("rounds, prompts, batch size and max_new_tokens must be at least 1")
    if not specs:
        raise LiveError("there is no policy to run: give --policy")
    found = load_heads(heads)
    return choose(specs, found, settings), found


def warn_of_heads(heads: Mapping[str, Head], **models: ModelInfo) -> None:
    """Say on stderr which heads were trained for other weights than those that run."""
    for name, head in heads.items():
        known = head.facts.get("trained_on", {})
        for model, here in models.items():
            if known.get(f"{model}_sha256", here.weights_sha256) != here.weights_sha256:
                print(
                    f"simkit: warning: the head {name} was trained for another {model} model than"
                    f" {here.id}, or for another number format of it",
                    file=sys.stderr,
                )


def load_bench(
    names: PairNames,
    settings: DecoderSettings,
    heads: dict[str, Head],
    turns: Turns,
    stop: str = "all",
) -> Bench:
    """A pair and its heads, loaded; see `load_models`, `simkit.live.rotation.Bench`."""
    from dataclasses import replace

    from simkit.live.block_scorer import BlockScorer
    from simkit.live.rotation import Bench

    pair = load_models(names)
    with must_fit():
        scorers = {name: BlockScorer(head, pair.target.device) for name, head in heads.items()}
    settings = replace(settings, eos_token_ids=pair.eos_token_ids)
    return Bench(pair, settings, scorers, stop, turns)


def load_models(names: PairNames) -> Pair:
    """Load a pair; running out of memory is one line."""
    from traces.record.pair import load_pair, quiet

    quiet()
    with must_fit():
        return load_pair(*names)


def load_alone(target: str, device: str, dtype: str, revision: str | None) -> Alone:
    """Load a target without a draft; running out of memory is one line."""
    from traces.record.pair import load_target, quiet

    quiet()
    with must_fit():
        return load_target(target, device, dtype, revision)


def models_of(target: str | None, draft: str | None, device: str) -> Models | None:
    """With what an attached drafter is run again; None if no target is given.

    Raises:
        HeadError: a draft without a target.
    """
    from simkit.errors import HeadError
    from simkit.heads.nodes import Models
    from traces.record.pair import quiet

    if target is None:
        if draft is not None:
            raise HeadError("--draft needs --target")
        return None
    quiet()
    return Models(target, draft, device)


@contextmanager
def must_fit(advice: str = "the models do not fit") -> Iterator[None]:
    """Say in one line that models, or their work, do not fit into memory.

    Args:
        advice: what is said of it.
    """
    from simkit.errors import LiveError

    try:
        yield
    except (MemoryError, RuntimeError) as error:
        from simkit.live.rotation import is_out_of_memory

        if not is_out_of_memory(error):
            raise
        raise LiveError(f"out of memory: {advice}") from None


@contextmanager
def opened(file: Path | None, bench: Benches, trace: Path | None = None) -> Iterator[LiveLog]:
    """A log that is kept whatever happens, in the end as a part of a trace if there is one.

    A run that breaks off replaces no log that is there, in a trace neither.
    """
    from simkit.errors import LiveError, UserError
    from simkit.live.log import LiveLog
    from traces.writer import add_file

    log = LiveLog(file, bench.facts, where=trace / "live.parquet" if trace else None)
    for left in log.recovered:
        print(f"simkit: what an earlier run measured and left behind is in {left}", file=sys.stderr)
    try:
        try:
            with log:
                yield log
        finally:
            if trace and file and log.written == file:
                try:
                    add_file(trace, "live.parquet", log.table().combine_chunks())
                except UserError as error:
                    raise LiveError(f"{file} has the log, the trace does not: {error}") from None
                file.unlink()
    except (KeyboardInterrupt, SystemExit):
        print(f"simkit: interrupted; {log.kept}", file=sys.stderr)
        raise


def ran(
    bench: Benches,
    arms: list[Arm],
    jobs: list[LiveJob],
    rounds: int,
    file: Path | None,
    trace: Path | None = None,
) -> Ran:
    """Run all jobs in turns, into a log as `opened` keeps it."""
    from simkit.cli.progress import decoding_bar
    from simkit.live.rotation import run

    with opened(file, bench, trace) as log:
        with decoding_bar(rounds * len(jobs) * len(arms)) as tick:
            return Ran(log, run(bench, arms, jobs, rounds, log, tick), arms, jobs)


def decoded(
    trace: Trace,
    plan: LivePlan,
    settings: DecoderSettings,
    heads: dict[str, Head],
    names: PairNames,
    threads: int | None,
    turns: Turns,
    file: Path | None,
) -> pa.Table:
    """Run a plan; the log, which is kept in a file too."""
    from dataclasses import replace

    from simkit.fidelity import run
    from simkit.live.rotation import use_threads

    use_threads(threads)
    bench = load_bench(names, settings, heads, turns)
    bench.settings = replace(bench.settings, eos_token_ids=trace.eos_token_ids)
    run.check_pair(trace, bench.pair)
    return measured(trace, plan, bench, file, tell=True)


def measured(
    trace: Trace, plan: LivePlan, bench: Benches, file: Path | None, tell: bool
) -> pa.Table:
    """Run a plan on a bench, see `decoded`; `tell` says how large it is."""
    from simkit.cli.progress import decoding_bar
    from simkit.fidelity import run

    total = run.runs_of(trace, plan)

    def on_size(seconds: float, rows: int) -> None:
        tell_size(total, seconds, rows if file else 0)

    with opened(file, bench) as log:
        with decoding_bar(total) as tick:
            return run.logged(trace, bench, plan, log, tick, on_size if tell else None)


def tell_size(runs: int, seconds: float, rows: int) -> None:
    """Say on stderr, before anything is measured, how long it takes and how large its log will be.

    Args:
        runs: prompts decoded, by all arms in all rounds.
        seconds: of all of them, about.
        rows: of the log; none if it is not kept.
    """
    from simkit.cli.progress import in_words
    from traces.describe import size_in_words

    said = f"simkit: {runs:,} runs of a prompt take about {in_words(seconds)}"
    said += f", their log about {size_in_words(rows * _ROW_BYTES)}" if rows else ""
    print(said, file=sys.stderr, flush=True)


def say_control(found: list[Drift], console: Console) -> int:
    """Print by how much equal arms differ, and what speaks against them; the exit status."""
    for drift in found:
        console.print(f"control: {drift}", soft_wrap=True, highlight=False, markup=False)
        if not drift.agrees:
            print(f"simkit: {drift.complaint}", file=sys.stderr)
    return int(not all(drift.agrees for drift in found))


def needs_torch(what: str) -> None:
    """Refuse in one line where the extra is not installed."""
    from simkit.errors import HeadError

    for module in ("torch", "safetensors", "sklearn"):
        if find_spec(module) is None:
            raise HeadError(f"{what} needs {module}: pip install 'draft-simkit[heads]'")
