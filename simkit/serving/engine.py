"""What serves: its limits, and how it makes its passes."""

from __future__ import annotations

from dataclasses import dataclass

from simkit.errors import ServingError

UNBOUNDED = 2**62


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

    Raises:
        ServingError: an argument is out of range.
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

    def __post_init__(self) -> None:
        for name in ("max_batch", "kv_tokens", "prefill_tokens"):
            value = getattr(self, name)
            if value is None and name != "max_batch":
                continue
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ServingError(f"{name} must be a whole number >= 1, not {value!r}")
        sizes = tuple(self.captured)
        whole = all(isinstance(size, int) and size > 0 for size in sizes)
        if not whole or sorted(set(sizes)) != list(sizes):
            raise ServingError(f"captured sizes must be whole numbers, ascending: {sizes}")
        object.__setattr__(self, "captured", sizes)
        if self.captured_in not in ("requests", "tokens"):
            raise ServingError(f"captured_in must be requests or tokens, not {self.captured_in!r}")
