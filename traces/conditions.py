"""Under which conditions times were taken: of which models, with what control, beside what else.

They lie in the metadata of a table of timing samples, and so in its Parquet file. Older files have
none; their control, where they hold one, is read off the samples themselves.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

CONTROL = "control:"  # prefix of the component that was timed a second time
DRAW = "draw:"  # prefix of components of a cost of prompts drawn anew; `repeat` numbers the draws
APART = 0.05  # between two timings of the same thing; with more, times are not to be trusted
FEWEST_PROMPTS = 8  # whose draws give intervals the spread of times
FEWEST_ROUNDS = 2  # of which one is the control of the other
_CROWDED = 1.5  # load for each core, from which on processes wait for a core
_TAKEN = 0.2  # of the cores, busy for other processes
_KEY = b"conditions"
_STAT = Path("/proc/stat")
_SHAPE = ("component", "tokens_in", "context_len", "batch_size", "engine")


class TimedModel(NamedTuple):
    """A model whose passes were timed.

    Attributes:
        id: its name on the hub, or that of its folder.
        weights_sha256: of its weights; empty if only its name is known.
        dtype: that it ran in; empty likewise.
        n_parameters: all of them; 0 likewise.
    """

    id: str
    weights_sha256: str = ""
    dtype: str = ""
    n_parameters: int = 0

    @classmethod
    def of(cls, info: Any) -> TimedModel:
        """The model that a `traces.manifest.ModelInfo` describes."""
        return cls(*(getattr(info, name) for name in cls._fields))

    def same(self, other: TimedModel) -> bool:
        """Whether the two are one model, which may have run in two dtypes."""
        if not (self.weights_sha256 and other.weights_sha256):
            return _bare(self.id) == _bare(other.id)
        if self.weights_sha256 == other.weights_sha256 or self.dtype == other.dtype:
            return self.weights_sha256 == other.weights_sha256
        return self.n_parameters == other.n_parameters


def _bare(name: str) -> str:
    """A model's name without its owner's."""
    return name.rpartition("/")[2].casefold()


@dataclass(frozen=True)
class Conditions:
    """What is known of times that were taken; None: not known.

    Attributes:
        control: what was timed more than once, in words.
        apart: how far its times are apart, 0.05 for 5%.
        load: mean of the load averages over a minute.
        others: processor cores that other processes kept busy, on average.
        cores: of the machine.
        prompts: that were decoded, where times are those of running decoders.
        rounds: in which each of them was decoded.
        target: whose passes verify.
        draft: whose passes draft.
    """

    control: str | None = None
    apart: float | None = None
    load: float | None = None
    others: float | None = None
    cores: int | None = None
    prompts: int | None = None
    rounds: int | None = None
    target: TimedModel | None = None
    draft: TimedModel | None = None

    @property
    def good(self) -> bool:
        """Whether a control is known, and agrees."""
        return self.apart is not None and self.apart <= APART

    @property
    def busy(self) -> bool:
        """Whether other processes are known to have taken much of the machine."""
        cores = self.cores or 1
        crowded = self.load is not None and self.load > _CROWDED * cores
        return crowded or (self.others is not None and self.others > _TAKEN * cores)

    @property
    def warning(self) -> str:
        """What a reader of numbers that rest on these times must know; empty if nothing."""
        if self.apart is not None and not self.good:
            return (
                f"do not trust these times: {self.control} took times that are {self.apart:.0%}"
                f" apart (more than {APART:.0%}); {self.machine};"
                " time them again on a quiet machine"
            )
        found = [] if self.good else ["nothing was timed twice as a control"]
        found += [self.machine] if self.busy or not self.good else []
        few = self.prompts is not None and self.prompts < FEWEST_PROMPTS
        few |= self.rounds is not None and self.rounds < FEWEST_ROUNDS
        found += [self._sizes] if few else []
        return f"weak times: {', '.join(found)}" if found else ""

    @property
    def _sizes(self) -> str:
        known = (("prompt", self.prompts), ("round", self.rounds))
        return ", ".join(f"{n} {word}{'s' * (n != 1)}" for word, n in known if n is not None)

    @property
    def machine(self) -> str:
        """The load, in words."""
        if self.load is None:
            return "load not known"
        others = "" if self.others is None else f", others kept {self.others:.1f} cores busy"
        return f"load {self.load:.1f} on {self.cores or '?'} cores{others}"

    def __str__(self) -> str:
        if self.apart is None:
            return f"control not known; {self.machine}"
        return f"{self.control}: {self.apart:.1%} apart; {self.machine}"

    def of_models(self, target: Any, draft: Any) -> Conditions:
        """The same with whose passes were timed.

        Args:
            target: a `traces.manifest.ModelInfo`, or None.
            draft: likewise.
        """
        named = [None if info is None else TimedModel.of(info) for info in (target, draft)]
        return replace(self, target=named[0], draft=named[1])

    @property
    def facts(self) -> dict[str, str]:
        """These conditions as metadata of a file."""
        return {_KEY.decode(): json.dumps(asdict(self))}

    def kept_in(self, table: pa.Table) -> pa.Table:
        """The table with these conditions in its metadata."""
        facts = {name.encode(): text for name, text in self.facts.items()}
        return table.replace_schema_metadata({**(table.schema.metadata or {}), **facts})


def conditions(table: pa.Table) -> Conditions:
    """Those of a table of timing samples (`traces.schema.LATENCY`) or live runs, if it has any."""
    known = _read((table.schema.metadata or {}).get(_KEY))
    if known.apart is None and (found := twice(table)):
        row, first_s, again_s = found
        words = f"{row['component']} over {row['tokens_in']} tokens behind {row['context_len']}"
        apart = abs(again_s / first_s - 1) if first_s > 0 else None
        known = replace(known, control=words, apart=apart)
    return known


def _read(text: bytes | None) -> Conditions:
    """What `kept_in` wrote; nothing is known from what it cannot have written."""
    try:
        given = json.loads(text) if text else {}
        words = {name: given[name] for name in ("control",) if isinstance(given.get(name), str)}
        numbers = {name: given[name] for name in _NUMBERS if _is_number(given.get(name))}
        models = {name: TimedModel(*given[name]) for name in ("target", "draft") if given.get(name)}
    except (ValueError, TypeError, AttributeError, RecursionError):
        return Conditions()
    whole = {n: m for n, m in models.items() if all(map(isinstance, m, (str, str, str, int)))}
    return replace(Conditions(), **words, **numbers, **whole)


_NUMBERS = ("apart", "load", "others", "cores", "prompts", "rounds")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e300


def worse(one: Conditions, other: Conditions) -> Conditions:
    """What holds of times of which some were taken under the one, some under the other.

    Each of the two has its own control and machine: those that are to be trusted less count. The
    target is the first one's, the draft the second's.
    """
    first, second = sorted((one, other), key=lambda c: (c.good, not c.busy, -(c.apart or 0)))
    machine = second if second.busy and not first.busy else first
    return Conditions(
        first.control,
        first.apart,
        machine.load,
        machine.others,
        machine.cores,
        _least(one.prompts, other.prompts),
        _least(one.rounds, other.rounds),
        one.target,
        other.draft,
    )


def _least(*counts: int | None) -> int | None:
    return min((n for n in counts if n is not None), default=None)


def twice(table: pa.Table) -> tuple[dict, float, float] | None:
    """What timing samples have of one shape under two names, and its two medians in seconds.

    Of several such shapes, the one whose medians are farthest apart.

    Returns:
        The shape as a row, the first one's median, that of the control; None if there is none.
    """
    if "engine" not in table.column_names:
        return None
    names = np.array(table["component"].to_pylist(), object)
    if not any(name.startswith(CONTROL) for name in set(names)):
        return None
    seconds = np.asarray(table["seconds"].to_numpy(), float)
    places: dict[tuple, list[int]] = {}
    columns = [table[name].to_pylist() for name in _SHAPE]
    for k, row in enumerate(zip(*columns, strict=True)):
        places.setdefault(row, []).append(k)
    found = []
    for row, again in places.items():
        first = places.get((row[0].removeprefix(CONTROL), *row[1:]))
        if row[0].startswith(CONTROL) and first:
            first_s, again_s = (float(np.median(seconds[some])) for some in (first, again))
            shape = dict(zip(_SHAPE, row, strict=True)) | {"component": row[0][len(CONTROL) :]}
            found.append((shape, first_s, again_s))
    return max(found, key=lambda one: abs(one[2] - one[1]) / max(one[1], 1e-300), default=None)


class Watch:
    """Looks at the machine from its making on."""

    def __init__(self) -> None:
        self._begun = time.monotonic(), _busy_s(), _own_s()
        self._loads = [load] if (load := _load()) is not None else []

    def look(self) -> None:
        """Take note of the load."""
        self._loads += [load] if (load := _load()) is not None else []

    @property
    def passed_s(self) -> float:
        """Seconds since it was made."""
        return time.monotonic() - self._begun[0]

    def conditions(self, control: str | None = None, apart: float | None = None) -> Conditions:
        """What was seen until now, with a control."""
        self.look()
        begun, busy_s, own_s = self._begun
        now_s = _busy_s()
        passed_s = time.monotonic() - begun
        others = None
        if now_s is not None and busy_s is not None and passed_s > 0:
            others = round(max(0.0, now_s - busy_s - (_own_s() - own_s)) / passed_s, 3)
        load = round(float(np.mean(self._loads)), 3) if self._loads else None
        return Conditions(control, apart, load, others, os.cpu_count())


def _load() -> float | None:
    try:
        return os.getloadavg()[0]
    except (AttributeError, OSError):  # not every system has it
        return None


def _own_s() -> float:
    taken = os.times()
    return taken.user + taken.system + taken.children_user + taken.children_system


def _busy_s() -> float | None:
    """Seconds that all cores together were busy since the machine started; None if not known."""
    try:
        counts = [int(n) for n in _STAT.read_text().split("\n", 1)[0].split()[1:9]]
        return (sum(counts) - counts[3] - counts[4]) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError, AttributeError):
        return None
