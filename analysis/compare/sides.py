"""What is compared: traces, or a trace's drafters, and which prompts two of them share."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from analysis.replays import Replays, tasks
from analysis.stats.two_samples import Pairing
from analysis.study import FirstToken, Study
from simkit.errors import ReplayError
from simkit.simulator.arguments import AnyCost, AnyTrace
from traces.describe import describe, in_words
from traces.messages import how_many
from traces.trace import OWN, Trace, opened
from traces.urls import shown
from traces.validate import check_schemas

LEAST_SHARED = 0.5  # of the smaller trace's prompts; with fewer, traces are not paired
PASSES = "linear(draft_s=0, target_s=1)"  # a cost that counts passes of the target
SEED = 0
FACTS = ("target", "draft", "drafter", "imported from", "recorded on", "sampler", "coupling")
FACTS += ("limits", "sequences", "positions")


@dataclass(frozen=True, eq=False)
class Side:
    """One of those that are compared.

    Attributes:
        name: that tells it from the others.
        at: its trace under its cost.
    """

    name: str
    at: Replays

    def counting(self) -> Side:
        """The same, with passes of the target counted in the place of seconds."""
        return Side(self.name, Replays(self.at.study, PASSES))

    @property
    def trace(self) -> Trace:
        """Its trace; that of a drafter has the outputs of its recording."""
        return self.at.trace

    def facts(self) -> list[tuple[str, str]]:
        """What it is: models, sampler, prompts, machine, Γ, T_max; names and words."""
        said = [(name, what) for name, what in in_words(describe(self.trace)) if name in FACTS]
        return [*said, ("times", self._times())]

    def _times(self) -> str:
        if not self.at.timed:
            return "none"
        if self.at.cost is not None:
            return f"of the cost {self.at.cost}"
        samples = self.trace.latency()
        assert samples is not None  # else there are no times
        return "its own, of " + ", ".join(map(str, samples["device"].unique().to_pylist()))


@dataclass(frozen=True, eq=False)
class Prompts:
    """The prompts on which two sides are compared.

    Attributes:
        first: (S,) int64, of the one, in its order unless paired.
        second: (T,) of the other; where they are paired, prompt i is that of `first`.
        pairing: how they are resampled.
        strata: of each side, (S,) and (T,), by which folds are dealt: tasks.
        numbers: of each side, (S,) and (T,), of the prompts, see `Trace.prompt_numbers`.
        said: in words.
    """

    first: np.ndarray
    second: np.ndarray
    pairing: Pairing
    strata: tuple[np.ndarray, np.ndarray]
    numbers: tuple[np.ndarray, np.ndarray]
    said: str

    @property
    def each(self) -> tuple[np.ndarray, np.ndarray]:
        """Those of both sides."""
        return self.first, self.second


def sides(
    given: Sequence[AnyTrace],
    drafters: Sequence[str],
    cost: AnyCost | None,
    first_token: FirstToken,
) -> list[Side]:
    """Each drafter of each trace.

    Args:
        given: traces, their folders, or bundled traces' names.
        drafters: names of drafters of each; none means the one that each was recorded with.
        cost: see `simkit.replay`; None means each trace's own times.
        first_token: see `simkit.replay`.

    Raises:
        ReplayError: there are fewer than two.
        UserError: a trace, a drafter or the cost cannot be read.
    """
    names = list(dict.fromkeys(drafters)) or [OWN]
    if len(given) * len(names) < 2:
        raise ReplayError(
            "there is one trace only: give another to compare it with, or several of its drafters"
            " (--drafter own --drafter NAME)"
        )
    traces = [opened(one) for one in given]
    labels = _labels(given, names)
    for label, trace in zip(labels[:: len(names)], traces, strict=True):
        check_schemas(trace)  # what a trace may lack is left out, what it must have is not
        if not trace.n_sequences:
            raise ReplayError(f"{label}: has no prompts to be compared on")
    studies = [Study(t.with_drafter(name), first_token) for t in traces for name in names]
    found = [Replays(study, cost) for study in studies]
    for label, at in zip(labels, found, strict=True):
        if at.timed and not at.charge.baseline_s.any():
            raise ReplayError(f"{label}: under this cost nothing takes time")
    return [Side(name, at) for name, at in zip(labels, found, strict=True)]


def _labels(given: Sequence[AnyTrace], drafters: Sequence[str]) -> list[str]:
    """Names that differ: of folders; whole paths or numbers where those are the same."""
    paths = [Path(t.place if isinstance(t, Trace) else shown(str(t))) for t in given]
    short = [path.name for path in paths]
    if [path.parent.name for path in paths].count("drafters"):  # a drafter's own folder
        short = ["/".join(p.parts[-3::2]) if p.parent.name == "drafters" else p.name for p in paths]
    if len(set(short)) < len(short):
        short = [str(path) for path in paths]
    several = len(drafters) > 1 or drafters[0] != OWN
    wanted = [f"{n}/{d}" if several else n for n in short for d in drafters]
    seen: Counter[str] = Counter()
    made = []
    for name in wanted:
        seen[name] += 1
        made.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return made


def prompts_of(first: Side, second: Side) -> Prompts:
    """Pair two sides' prompts where they have the same.

    A prompt is told by its text; by its tokens, where texts are not known and the tokenizer is the
    same; else by task and id. What is there several times is paired in order. Sides are paired if
    at least half of the smaller one's prompts are the other's, too, and compared on these alone.
    """
    seeds = _seed(first.trace), _seed(second.trace)
    by, keys = _keys(first.trace, second.trace)
    places = [{key: i for i, key in enumerate(side)} for side in keys]
    shared = sorted(
        places[0].keys() & places[1].keys(),  # in an order that knows no first and second
        key=lambda key: (sum(side[key] for side in places), repr(key)),
    )
    fewer = min(map(len, keys))
    task = tasks(first.trace), tasks(second.trace)
    numbers = first.trace.prompt_numbers, second.trace.prompt_numbers
    if not shared or len(shared) < LEAST_SHARED * fewer:
        alike = how_many(len(shared), "prompt is", "prompts are") if shared else "no prompts are"
        said = f"not paired: {alike} the same (by {by})"
        every, others = (np.arange(len(side)) for side in keys)
        apart = Pairing(False, seeds)
        said = f"{said}; resampled independently"
        return Prompts(every, others, apart, task, numbers, said)
    one, other = (np.array([side[key] for key in shared], np.int64) for side in places)
    both = np.array([_joint(*names) for names in zip(task[0][one], task[1][other], strict=True)])
    said = f"paired over {how_many(len(shared), 'prompt')} that are the same (by {by})"
    left = [
        f"{len(side) - len(shared)} of {at.name}"
        for at, side in zip((first, second), keys, strict=True)
        if len(side) > len(shared)
    ]
    said += f"; left out: {', '.join(left)}" if left else ""
    same = numbers[0][one]
    return Prompts(one, other, Pairing(True, (SEED, SEED)), (both, both), (same, same), said)


def _joint(one: str, other: str) -> str:
    """The task of a prompt that two traces may name differently."""
    return one if one == other else " / ".join(sorted((one, other)))


def _seed(trace: Trace) -> int:
    """Of a side's own resampling: its contents', so that order and names do not matter."""
    return zlib.crc32(trace.hash.encode())


def _keys(first: Trace, second: Trace) -> tuple[str, tuple[list[Hashable], list[Hashable]]]:
    """What tells prompts, in words, and that of each prompt of both."""
    tables = first.sequences, second.sequences
    texts = [table["prompt_text"].to_pylist() for table in tables]
    same = first.manifest.tokenizer_sha256 == second.manifest.tokenizer_sha256
    tokens = [[tuple(one) for one in table["prompt_tokens"].to_pylist()] for table in tables]
    if all(text for side in texts for text in side):
        by, found = "text", texts
    elif same and all(one for side in tokens for one in side):
        by, found = "tokens", tokens
    else:  # of an import that has no prompts nothing else is known
        by = "task and id"
        found = [
            [
                (task, name) if name is not None else (task, side, i)
                for i, (task, name) in enumerate(
                    zip(table["task"].to_pylist(), table["id"].to_pylist(), strict=True)
                )
            ]
            for side, table in enumerate(tables)
        ]
    return by, (_numbered(found[0]), _numbered(found[1]))


def _numbered(keys: Sequence[Hashable]) -> list[Hashable]:
    """Keys that are there several times, each with its number among its like."""
    seen: Counter[Hashable] = Counter()
    made: list[Hashable] = []
    for key in keys:
        made.append((key, seen[key]))
        seen[key] += 1
    return made
