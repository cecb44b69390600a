"""SGLang's adaptive steps: an average of accepted lengths moves along candidates, by batch size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from simkit.errors import PolicyError
from simkit.policies.arguments import is_whole, real_number, whole_number
from simkit.serving.controllers.base import ByLength, Slots, View, register

if TYPE_CHECKING:
    from simkit.serving.prices import Prices

CANDIDATES = ((1, (1, 3, 5, 7)), (8, (0, 1, 3)), (32, (0, 1)), (64, (0,)))
DOWN = ((1, -0.25), (8, 0.0), (32, 0.0), (64, 0.0))  # beside these candidates
UNNAMED = -0.25  # the same of slots that a configuration does not give one
CAPTURED = (*range(1, 9), *range(10, 33, 2), *range(40, 65, 4), *range(72, 257, 8))
"""Sizes that SGLang captures for speculation (`_generate_decode_cuda_graph_batch_sizes`)."""
_LARGEST = 10**6  # batch: a table has a row for each up to the largest that is named
_AT, _EMA, _COUNT, _WIDTH = 0, 1, 2, 3  # of a slot: index of its candidate, average, batches


class EmaParams(NamedTuple):
    """See `Ema`.

    Attributes:
        slot: (N,) int64, that of a batch of so many requests; the last one of all larger ones.
        steps: (S, C) int64, its candidates, ascending; the last one again where there are fewer.
        count: (S,) int64, of candidates.
        down: (S,) float64.
        up: see there, and the following.
    """

    slot: np.ndarray
    steps: np.ndarray
    count: np.ndarray
    down: np.ndarray
    up: float
    alpha: float
    warmup: int
    interval: int


def _decide(params: Any, state: Any, view: View, prices: Prices, drafted: np.ndarray) -> None:
    slot = params.slot[min(len(drafted), len(params.slot) - 1)]
    drafted[:] = params.steps[slot, np.int64(state[slot * _WIDTH + _AT])]


def _observe(
    params: Any,
    state: Any,
    view: View,
    drafted: np.ndarray,
    proposed: np.ndarray,
    accepted: np.ndarray,
    ended: np.ndarray,
) -> None:
    slot = params.slot[min(len(drafted), len(params.slot) - 1)]
    own = state[slot * _WIDTH : (slot + 1) * _WIDTH]
    steps = params.steps[slot]
    at = np.int64(own[_AT])
    if steps[at] > 0:
        own[_EMA] = (1 - params.alpha) * own[_EMA] + params.alpha * accepted.mean()
    own[_COUNT] += 1
    asked = np.int64(own[_COUNT]) - params.warmup
    if asked <= 0 or asked % params.interval != 0:
        return
    last = params.count[slot] - 1
    if steps[at] == 0:  # nothing is known while nothing is drafted: it always looks one up
        at = min(at + 1, last)
        if steps[at] > 0 and own[_EMA] < 0:
            own[_EMA] = steps[at] - 1
        own[_AT] = at
        return
    before = at
    while at > 0:
        lower = steps[at - 1]
        threshold = (0.5 if lower == 0 else lower - 0.5) + params.down[slot]
        if own[_EMA] > threshold:
            break
        at -= 1
    if at == before:
        while at < last and own[_EMA] > steps[at] - 0.5 + params.up:
            at += 1
    own[_AT] = at


@register
@dataclass(frozen=True)
class Ema(ByLength):
    """Choose among candidate lengths by an exponential average of the batch's accepted length.

    Each slot of batch sizes has its own candidates and its own average, which begins at the slot's
    length less one. A batch belongs to the slot of the captured size that it is padded up to; a
    batch larger than all of them belongs to the slot of its own size. After `warmup` batches, the
    length may change every `interval` batches. It goes down by one candidate, and further, while
    the average is at most the lower candidate less 0.5, plus `down` (for candidate 0: at most 0.5
    plus `down`). Otherwise it goes up while the average is above the present length less 0.5, plus
    `up`. From 0 it always goes up.

    Attributes:
        steps: the first length, in slots that have it; other slots begin with the middle candidate.
        candidates: {smallest batch: [lengths]}.
        down: {smallest batch: hysteresis}; -0.25 in slots that it does not name.
        up: hysteresis.
        alpha: weight of a new batch.
        warmup: batches of a slot before its length changes.
        interval: batches between changes.
        captured: sizes that batches are padded up to before their slot is chosen, ascending; empty
            if no graphs are captured.

    Raises:
        PolicyError: an argument is out of range.
    """

    steps: int = whole_number(3)
    candidates: tuple[tuple[int, tuple[int, ...]], ...] = CANDIDATES
    down: tuple[tuple[int, float], ...] = DOWN
    up: float = real_number(0.0, -1e6)
    alpha: float = real_number(0.2, 0, 1)
    warmup: int = whole_number(10)
    interval: int = whole_number(5, 1)
    captured: tuple[int, ...] = CAPTURED

    name = "ema"
    source = (
        "SGLang adaptive_spec_params.py (#21599, #24055; commit 015c872), adaptive_step_router.py"
    )
    slots = Slots(_decide, observe=_observe)

    def __post_init__(self) -> None:
        super().__post_init__()
        for slot in self.candidates if isinstance(self.candidates, tuple) else [None]:
            if not _is_slot(slot):
                raise PolicyError(
                    f"ema: candidates are {{batch: [lengths]}} of whole numbers, not {slot!r}"
                )
        batches = [batch for batch, _ in self.candidates]
        if not batches or sorted(set(batches)) != batches or not _are_batches(batches):
            raise PolicyError(
                "ema: candidates need batches from 1 to a million, ascending, each once"
            )
        for row in self.down if isinstance(self.down, tuple) else [None]:
            pair = isinstance(row, tuple) and len(row) == 2
            if not pair or not all(isinstance(x, int | float) and abs(x) < 1e300 for x in row):  # type: ignore[union-attr]
                raise PolicyError(f"ema: down is {{batch: number}}, not {row!r}")
            if row[0] not in batches and self.down != DOWN:  # type: ignore[index]
                raise PolicyError(f"ema: down names {row[0]}, which is no key of candidates")  # type: ignore[index]
        sizes = self.captured if isinstance(self.captured, tuple) else (0,)
        if not _are_batches(sizes) or list(sizes) != sorted(set(sizes)):
            raise PolicyError(
                "ema: captured are whole numbers from 1 to a million, ascending, each once"
            )

    @property
    def max_draft(self) -> int:  # type: ignore[override]
        """See `Controller`."""
        return max(max(steps) for _, steps in self.candidates)

    @cached_property
    def params(self) -> EmaParams:
        """See `ByLength`."""
        lengths = [sorted(set(steps)) for _, steps in self.candidates]
        widest = max(map(len, lengths))
        padded = [steps + steps[-1:] * (widest - len(steps)) for steps in lengths]
        return EmaParams(
            slot=_slots([batch for batch, _ in self.candidates], self.captured),
            steps=np.array(padded, np.int64),
            count=np.array(list(map(len, lengths)), np.int64),
            down=np.array([self.down_of(batch) for batch, _ in self.candidates], np.float64),
            up=float(self.up),
            alpha=float(self.alpha),
            warmup=self.warmup,
            interval=self.interval,
        )

    def down_of(self, batch: int) -> float:
        """The hysteresis downwards of the slot from a batch size on."""
        return float(dict(self.down).get(batch, UNNAMED))

    def begin(self, max_batch: int) -> np.ndarray:
        """See `ByLength`: of each slot its candidate's index, its average, and its batches."""
        found = []
        for _, steps in self.candidates:
            lengths = sorted(set(steps))
            has = self.steps in lengths
            at = lengths.index(self.steps) if has else len(lengths) // 2
            found += [at, lengths[at] - 1, 0]
        return np.array(found, np.float64)


def _slots(batches: list[int], captured: tuple[int, ...]) -> np.ndarray:
    """The slot of each batch size from 0 up to the largest that any of the numbers names."""
    sizes = np.arange(max(batches[-1], *captured, 0) + 1)
    padded = sizes.copy()
    if captured:
        within = sizes <= captured[-1]
        padded[within] = np.array(captured)[np.searchsorted(captured, sizes[within])]
    return np.maximum(np.searchsorted(batches, padded, side="right") - 1, 0).astype(np.int64)


def _is_slot(slot: Any) -> bool:
    if not (isinstance(slot, tuple) and len(slot) == 2 and isinstance(slot[1], tuple) and slot[1]):
        return False
    return all(map(is_whole, (slot[0], *slot[1])))


def _are_batches(sizes: Sequence[Any]) -> bool:
    return all(is_whole(size, 1, _LARGEST) for size in sizes)
