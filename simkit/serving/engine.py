"""What serves: its limits, and how it makes its passes."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from simkit.errors import ServingError

UNBOUNDED = 2**62
MOST = 2**31 - 1


@dataclass(frozen=True)
class Engine:
    """A server's settings.

    Attributes:
        max_batch: requests that run at most.
        kv_tokens: tokens that the caches of all running requests hold at most; None: no limit. What
            does not fit is preempted, last come first, and read anew later.
        prefill_tokens: tokens of prompts that an iteration reads at most; None: whole prompts.
        mixed: whether prompts are read in the pass of a verification, where there is one; else in a
            pass of their own.
        captured: sizes of batches to which a pass is padded up; beyond the last one it is not.
        captured_in: "requests", as SGLang has it, or "tokens", as vLLM.
        padded: whether a draft round holds all requests until the last one has stopped; else those
            that draft on.
        ragged: whether a verification holds of each request the tokens that it drafted; else of all
            as many as the longest draft has.
        extrapolate: whether times of larger batches than were timed go on in a line.
        catch_up: whether a model that drafts token by token reads what came out while it drafted
            nothing, in the first pass of its next draft; else it knows that for nothing, as in a
            replay.

    Raises:
        ServingError: an argument is out of range.

    >>> cost = "linear(draft_s=1, target_s=10, draft_per_token_s=0.01, target_per_token_s=0.1)"
    >>> engine = simkit.serving.Engine(max_batch=8)
    >>> served = simkit.serve("reference", "none", cost, concurrency=16, engine=engine, requests=40)
    >>> int(max(served.runs[0].iterations["decoding"]))
    8
    """

    max_batch: int = 64
    kv_tokens: int | None = None
    prefill_tokens: int | None = None
    mixed: bool = True
    captured: tuple[int, ...] = ()
    captured_in: str = "requests"
    padded: bool = False
    ragged: bool = True
    extrapolate: bool = False
    catch_up: bool = True

    def __post_init__(self) -> None:
        for name in ("max_batch", "kv_tokens", "prefill_tokens"):
            value: Any = getattr(self, name)
            if value is not None or name == "max_batch":
                check_count(name, value)
        sizes = check_numbers("captured", self.captured)
        whole = ((sizes > 0) & (sizes <= MOST) & (sizes % 1 == 0)).all()
        if not whole or (np.diff(sizes) <= 0).any():
            raise ServingError(f"captured sizes must be whole numbers, ascending: {self.captured}")
        object.__setattr__(self, "captured", tuple(int(size) for size in sizes))
        if self.captured_in not in ("requests", "tokens"):
            raise ServingError(f"captured_in must be requests or tokens, not {self.captured_in!r}")
        if self.captured_in == "tokens" and not self.captured:
            raise ServingError("captured_in needs captured, the sizes that it counts")


def check_count(name: str, value: Any, most: int = MOST) -> None:
    """Refuse what is no whole number from 1 to `most`, beyond which no run ends."""
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not whole or not 1 <= value <= most:
        above = f", at most {most}" if whole and value > most else ""
        raise ServingError(f"{name} must be a whole number >= 1{above}, not {value!r:.40}")


def check_numbers(name: str, given: Any) -> np.ndarray:
    """Several numbers, (n,) float64.

    Raises:
        ServingError: they are none, or one alone.
    """
    with suppress(TypeError, ValueError):
        found = np.asarray(list(given), np.float64)
        if found.ndim == 1 and not isinstance(given, str):
            return found
    raise ServingError(f"{name} must be a list of numbers, not {given!r:.40}")
