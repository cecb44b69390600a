"""Lengths from a table by the size of the batch: vLLM's, and TensorRT-LLM's with its gate."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from simkit.errors import PolicyError
from simkit.policies.arguments import Numbers, is_whole, real_number, whole_number
from simkit.serving.controllers.base import ByLength, Slots, View, register
from traces.specs import render

if TYPE_CHECKING:
    from simkit.serving.prices import Prices


def _column(k: int) -> Callable[[tuple[tuple[int, ...], ...]], np.ndarray]:
    """What makes (T,) int64 of the k-th numbers of a table's rows."""
    return lambda rows: np.array([row[k] for row in rows], np.int64)


def _by_batch(params: Any, state: Any, view: View, prices: Prices, drafted: np.ndarray) -> None:
    row = 0
    while row + 1 < len(params.low) and params.low[row + 1] <= view.before:
        row += 1
    drafted[:] = params.length[row]


@register
@dataclass(frozen=True)
class ByBatch(ByLength):
    """Choose the length by the number of requests in an iteration, including prefills.

    The drafts of an iteration are made at the end of the iteration before. So the size of that one
    counts, even if it only read prompts: vLLM looks up `len(num_scheduled_tokens)` of every step
    (`v1/core/sched/scheduler.py`, read in November 2026). Sizes between two rows, and beyond the
    last row, get the length of the row before them.

    Attributes:
        table: rows (smallest batch, largest batch, length), the first from 1, ascending.

    Raises:
        PolicyError: the table does not have this form.
    """

    table: tuple[tuple[int, int, int], ...] = ((1, 4, 5), (5, 16, 3), (17, 64, 1))

    name = "by_batch"
    source = "vLLM num_speculative_tokens_per_batch_size (#32374)"
    slots = Slots(_by_batch)
    _numbers: ClassVar[dict[str, Numbers]] = {"table": {"low": _column(0), "length": _column(2)}}

    def __post_init__(self) -> None:
        rows = _rows(self.name, self.table, 3)
        before = 0
        for low, high, length in rows:
            if low > high or low <= before or length < 0:
                raise PolicyError(
                    f"by_batch: [{low}, {high}, {length}] must be [smallest, largest, length], of"
                    f" batches above {before}, of a length >= 0"
                )
            before = high
        if rows[0][0] != 1:
            raise PolicyError(f"by_batch: the first row must begin at 1, not {rows[0][0]}")

    @property
    def max_draft(self) -> int:  # type: ignore[override]
        """See `Controller`."""
        return max(length for _, _, length in self.table)


_OFF, _DONE, _FIRST, _RING = range(4)  # FIRST: tokens before a first step, by the prefill


def _schedule(params: Any, state: Any, view: View, prices: Prices, drafted: np.ndarray) -> None:
    drafted[:] = 0
    if state[_OFF] > 0:
        return
    for k in range(len(params.batch)):
        if len(drafted) <= params.batch[k]:
            drafted[:] = params.length[k]
            return


def _gate(
    params: Any,
    state: Any,
    view: View,
    drafted: np.ndarray,
    proposed: np.ndarray,
    accepted: np.ndarray,
    ended: np.ndarray,
) -> None:
    if params.gate <= 0:
        return
    for k in range(len(ended)):
        if view.steps[k] == 0:
            state[_FIRST] = view.tokens[k]
    for k in range(len(ended)):
        if ended[k]:
            done = np.int64(state[_DONE])
            mean = (view.tokens[k] - state[_FIRST] + accepted[k] + 1) / (view.steps[k] + 1)
            state[_RING + done % params.window] = mean
            state[_DONE] = done + 1
            if done + 1 >= params.window and state[_RING:].mean() < params.gate:
                state[_OFF] = 1


@register
@dataclass(frozen=True)
class Schedule(ByLength):
    """Choose the length from a table by batch size; draft nothing in batches beyond the last row.

    Attributes:
        lengths: (largest batch, length) pairs, `{4: 4, 8: 2, 32: 1}`; the first pair that the batch
            does not exceed counts.
        gate: tokens a step. Once the last `window` finished requests had fewer on average, drafting
            ends for good. 0: no gate.
        window: number of requests.

    Raises:
        PolicyError: an argument is out of range.
    """

    lengths: tuple[tuple[int, int], ...] = ((4, 4), (8, 2), (32, 1))
    gate: float = real_number(0.0, 0)
    window: int = whole_number(16, 1, 10**6)

    name = "schedule"
    source = "TensorRT-LLM draft_len_schedule (#10860), acceptance gate (#7283)"
    slots = Slots(_schedule, observe=_gate)
    _numbers: ClassVar[dict[str, Numbers]] = {
        "lengths": {"batch": _column(0), "length": _column(1)}
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        rows = sorted(_rows(self.name, self.lengths, 2))
        object.__setattr__(self, "lengths", tuple(rows))
        if len({batch for batch, _ in rows}) < len(rows) or rows[0][0] < 1:
            raise PolicyError("schedule: batches must be whole numbers from 1 on, each once")
        if min(length for _, length in rows) < 0:
            raise PolicyError("schedule: a length is below 0")

    def __str__(self) -> str:
        given = {k: getattr(self, k) for k in ("gate", "window")}
        given = {k: v for k, v in given.items() if v != getattr(type(self), k)}
        rest = render("", (), given)[1:-1]
        pairs = ", ".join(f"{batch}: {length}" for batch, length in self.lengths)
        return f"schedule({{{pairs}}}{', ' if rest else ''}{rest})"

    @property
    def max_draft(self) -> int:  # type: ignore[override]
        """See `Controller`."""
        return max(length for _, length in self.lengths)

    def begin(self, max_batch: int) -> np.ndarray:
        """See `ByLength`: whether it is off, requests that are done, and means of the last ones."""
        return np.zeros(_RING + self.window)


def _rows(name: str, table: Any, width: int) -> tuple[tuple[int, ...], ...]:
    """The rows of a table of whole numbers."""
    what = "[smallest, largest, length]" if width == 3 else "batch: length"
    if not isinstance(table, tuple) or not table:
        raise PolicyError(f"{name}: give rows {what}, not {table!r}")
    for row in table:
        whole = isinstance(row, tuple) and all(map(is_whole, row))
        if not whole or len(row) != width:
            raise PolicyError(
                f"{name}: {row!r} is no row {what} of whole numbers from 0 to 2³¹ − 1"
            )
    return table
