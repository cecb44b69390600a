"""Run several policies side by side on the same prompts, in turns, and log what takes how long."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol, cast

import torch

from simkit.errors import LiveError
from simkit.live.block_scorer import BlockScorer
from simkit.live.decoder import Decoded, Decoder, Request
from simkit.live.decoders import BatchDecoder, TimedDecoder
from simkit.live.interleave import Turns, finished, in_turns
from simkit.live.log import BASELINE, LiveLog
from simkit.live.settings import DecoderSettings, Step
from simkit.policies import Policy, Sequential
from traces.conditions import Conditions
from traces.manifest import ModelInfo
from traces.messages import how_many
from traces.record.header import device_name, library_versions, model_info
from traces.record.latency import no_collection
from traces.record.pair import Pair

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_NO_MEMORY = (
    "out of memory",
    "can't allocate memory",
    "not enough memory",
    "cannot allocate",
    "alloc_failed",  # cuBLAS and cuDNN
)
MOST_THREADS = 4096


@dataclass(frozen=True)
class Arm:
    """What is run: a policy, or the target alone.

    Attributes:
        policy: None decodes with the target alone.
    """

    policy: Policy | None = None

    @property
    def name(self) -> str:
        """As the log has it."""
        return BASELINE if self.policy is None else str(self.policy)


class LiveJob(NamedTuple):
    """A prompt (or a batch of them) and the arms that decode it.

    Attributes:
        prompts: tokens of each.
        sequence: number of the first one, which keys its draws and stands in the log.
        arms: their numbers.
    """

    prompts: tuple[list[int], ...]
    sequence: int
    arms: tuple[int, ...]


class Benches(Protocol):
    """Models, and how to decode with them."""

    settings: DecoderSettings
    turns: Turns

    @property
    def facts(self) -> dict[str, str]:
        """What a log says of its run."""
        ...

    def decoder(self, arm: Arm, batched: bool) -> Decoder:
        """A decoder with a state of its own."""
        ...


@dataclass
class Bench:
    """A pair and how to decode with it.

    Attributes:
        pair: the models.
        settings: how to decode.
        heads: learned heads by name.
        stop: of a batch: draft until "all" or "any" of its sequences' rules stop.
        turns: what the arms decode before another's turn comes: a "sequence" or a "step".
    """

    pair: Pair
    settings: DecoderSettings
    heads: Mapping[str, BlockScorer] = field(default_factory=dict)
    stop: str = "all"
    turns: Turns = "sequence"

    @property
    def facts(self) -> dict[str, str]:
        """See `facts_of`."""
        pair = self.pair
        return facts_of(pair.target, model_info(pair.draft), self.settings, self.turns)

    def decoder(self, arm: Arm, batched: bool) -> Decoder:
        """A decoder with a state of its own."""
        pair = self.pair
        of = {
            "target": pair.target,
            "draft": pair.draft,
            "policy": cast(Sequential | None, arm.policy),
            "settings": self.settings,
            "vocab_size": pair.vocab_size,
        }
        if batched:
            return BatchDecoder(**of, stop=self.stop)
        return TimedDecoder(**of, heads={n: head.another() for n, head in self.heads.items()})


class BatchOutputs(NamedTuple):
    """What came of some sequences: the steps of each, and its tokens."""

    steps: list[list[Step]]
    outputs: list[list[int]]


def facts_of(
    target: PreTrainedModel,
    draft: ModelInfo,
    settings: DecoderSettings,
    turns: Turns,
    clock: str = "wall",
) -> dict[str, str]:
    """What a log says of its run: models, device, dtype, T_max, sampler, turns, libraries.

    Turns by sequences and the wall's clock go without saying.
    """
    return {
        "device": device_name(target),
        "dtype": str(target.dtype).removeprefix("torch."),
        "engine": "eager",
        "max_new_tokens": str(settings.max_new_tokens),
        "sampler": str(settings.sampler),
        **({} if turns == "sequence" else {"turns": turns}),
        **({} if clock == "wall" else {"clock": clock}),
        **Conditions().of_models(model_info(target), draft).facts,
        **library_versions(),
    }


class Warm(NamedTuple):
    """What a prompt took that is not logged: seconds, and rows that a log would have of it."""

    seconds: float
    rows: int


def run(
    bench: Benches,
    arms: Sequence[Arm],
    jobs: Sequence[LiveJob],
    rounds: int,
    log: LiveLog,
    on_sequence: Callable[[], None] = lambda: None,
    on_warm: Callable[[dict[int, Warm]], None] = lambda warm: None,
) -> dict[tuple[int, int], BatchOutputs]:
    """Decode every job by each of its arms in every round.

    One job after another, all of its arms, which take turns as the bench says; their order moves
    on by one from job to job and from round to round. Every arm decodes one prompt first that is
    not logged. State that lasts a whole run begins anew with a round. Python's garbage collector
    runs between jobs only.

    Args:
        bench: the models.
        arms: by number.
        jobs: in ascending order of sequences.
        rounds: how often.
        log: is told everything.
        on_sequence: called after every sequence.
        on_warm: told, before anything is logged, what the first prompt took by each arm.

    Returns:
        What came out, by (arm, sequence), in the first round.

    Raises:
        LiveError: a number is out of range; or memory ran out: the log has what came before.
    """
    check_rounds(rounds)
    found: dict[tuple[int, int], BatchOutputs] = {}
    batched = any(len(job.prompts) > 1 for job in jobs)
    on_warm(_warmed(bench, arms, jobs, batched, log))
    for round_ in range(rounds):
        decoders = [bench.decoder(arm, batched) for arm in arms]
        for k, job in enumerate(jobs):
            begins = {
                number: partial(_decoding, decoders[number], job, arms[number], log)
                for number in moved_on(job.arms, round_ + k)
            }
            with no_collection():
                for number, decoded in in_turns(begins, bench.turns):
                    log.add(number, round_, arms[number].name, job.sequence, decoded.rows)
                    outputs = BatchOutputs(decoded.steps, decoded.outputs)
                    found.setdefault((number, job.sequence), outputs)
                    on_sequence()
    return found


def check_rounds(rounds: int) -> None:
    """Refuse none at all."""
    if rounds < 1:
        raise LiveError(f"rounds must be at least 1, not {rounds}")


def moved_on(arms: Sequence[int], by: int) -> list[int]:
    """Arms in their order, which begins so many later."""
    first = by % len(arms)
    return [*arms[first:], *arms[:first]]


def _warmed(
    bench: Benches, arms: Sequence[Arm], jobs: Sequence[LiveJob], batched: bool, log: LiveLog
) -> dict[int, Warm]:
    """What the first prompt takes by each arm that any job has; nothing of it is logged."""
    warm = {}
    for number in sorted({number for job in jobs for number in job.arms}):
        begun = time.perf_counter()
        decoder = bench.decoder(arms[number], batched)
        decoded = finished(_decoding(decoder, jobs[0], arms[number], log))
        warm[number] = Warm(time.perf_counter() - begun, len(decoded.rows))
    return warm


def _decoding(
    decoder: Decoder, job: LiveJob, arm: Arm, log: LiveLog
) -> Generator[int, None, Decoded]:
    """Decode a job."""
    longest = how_many(max(map(len, job.prompts)), "token")
    requests = [Request(job.sequence + k, prompt) for k, prompt in enumerate(job.prompts)]
    return guarded(
        lambda: decoder.stepwise(requests),
        lambda: f"{arm.name} on sequence {job.sequence}, {longest} of prompt; {log.kept}",
    )


def guarded(
    begin: Callable[[], Generator[int, None, Decoded]], what: Callable[[], str]
) -> Generator[int, None, Decoded]:
    """Decode; running out of memory becomes one line, which says what was decoded."""
    try:
        return (yield from begin())
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        raise LiveError(f"out of memory: {what()}") from None


def is_out_of_memory(error: Exception) -> bool:
    """Whether a device or the host had no memory left; a CPU's allocator says so in words."""
    known = isinstance(error, MemoryError | torch.OutOfMemoryError)
    return known or any(part in str(error).lower() for part in _NO_MEMORY)


def use_threads(threads: int | None) -> None:
    """Let torch use so many threads on a CPU; None leaves its own number.

    Raises:
        LiveError: fewer than one, or more than any machine has.
    """
    if threads is None:
        return
    if not 1 <= threads <= MOST_THREADS:
        raise LiveError(f"threads must be from 1 to {MOST_THREADS}, not {threads}")
    torch.set_num_threads(threads)
