"""Under which conditions times were taken: the same thing timed twice, and what else ran.

They lie in the metadata of a table of timing samples, and so in its Parquet file. Older files have
none; their control, where they hold one, is read off the samples themselves.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import numpy as np
import pyarrow as pa

CONTROL = "control:"  # prefix of the component that was timed a second time
DRAW = "draw:"  # prefix of components of a cost of prompts drawn anew; `repeat` numbers the draws
APART = 0.05  # between two timings of the same thing; with more, times are not to be trusted
_KEY = b"conditions"
_STAT = Path("/proc/stat")
_SHAPE = ("component", "tokens_in", "context_len", "batch_size", "engine")


@dataclass(frozen=True)
class Conditions:
    """What is known of the machine while times were taken; None: not known.

    Attributes:
        control: what was timed more than once, in words.
        apart: how far its times are apart, 0.05 for 5%.
        load: mean of the load averages over a minute.
        others: processor cores that other processes kept busy, on average.
        cores: of the machine.
    """

    control: str | None = None
    apart: float | None = None
    load: float | None = None
    others: float | None = None
    cores: int | None = None

    @property
    def good(self) -> bool:
        """Whether a control is known, and agrees."""
        return self.apart is not None and self.apart <= APART

    @property
    def warning(self) -> str:
        """What a reader of numbers that rest on these times must know; empty if nothing."""
        if self.apart is None or self.good:
            return ""
        return (
            f"do not trust these times: {self.control} took times that are {self.apart:.0%} apart"
            f" (more than {APART:.0%}); {self.machine}; time them again on a quiet machine"
        )

    @property
    def machine(self) -> str:
        """The load, in words."""
        if self.load is None:
            return "load not known"
        others = "" if self.others is None else f", others kept {self.others:.1f} cores busy"
        return f"load {self.load:.1f} on {self.cores} cores{others}"

    def __str__(self) -> str:
        if self.apart is None:
            return f"control not known; {self.machine}"
        return f"{self.control}: {self.apart:.1%} apart; {self.machine}"

    def kept_in(self, table: pa.Table) -> pa.Table:
        """The table with these conditions in its metadata."""
        text = json.dumps(asdict(self)).encode()
        return table.replace_schema_metadata({**(table.schema.metadata or {}), _KEY: text})


def conditions(table: pa.Table) -> Conditions:
    """Those of a table of timing samples (`traces.schema.LATENCY`) or live runs, if it has any."""
    text = (table.schema.metadata or {}).get(_KEY)
    try:
        given = json.loads(text) if text else {}
        known = Conditions(**{f.name: given[f.name] for f in fields(Conditions) if f.name in given})
    except (ValueError, TypeError):
        known = Conditions()
    if known.apart is None and (found := twice(table)):
        row, first_s, again_s = found
        known = Conditions(
            f"{row['component']} over {row['tokens_in']} tokens behind {row['context_len']}",
            abs(again_s / first_s - 1) if first_s > 0 else None,
            known.load,
            known.others,
            known.cores,
        )
    return known


def twice(table: pa.Table) -> tuple[dict, float, float] | None:
    """What timing samples have of one shape under two names, and its two medians in seconds.

    Returns:
        The shape as a row, the first one's median, that of the control; None if there is none.
    """
    if "engine" not in table.column_names:
        return None
    columns = [table[name].to_pylist() for name in _SHAPE]
    seconds = np.asarray(table["seconds"].to_numpy(), float)
    named = np.array([name.startswith(CONTROL) for name in columns[0]], bool)
    if not named.any():
        return None
    k = int(np.flatnonzero(named)[0])
    shape = {name: column[k] for name, column in zip(_SHAPE, columns, strict=True)}
    shape["component"] = shape["component"].removeprefix(CONTROL)
    alike = np.array([row == tuple(shape.values()) for row in zip(*columns, strict=True)], bool)
    if not alike.any():
        return None
    return shape, float(np.median(seconds[alike])), float(np.median(seconds[named]))


class Watch:
    """Looks at the machine from its making on."""

    def __init__(self) -> None:
        self._begun = time.monotonic(), _busy_s(), _own_s()
        self._loads = [load] if (load := _load()) is not None else []

    def look(self) -> None:
        """Take note of the load."""
        self._loads += [load] if (load := _load()) is not None else []

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
