"""How tokens are drawn: the settings that turn logits into the processed distributions p and q."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from traces.errors import RecordError

_COLDEST = 1e-30  # logits of up to 3e8 divided by it are still finite in float32


@dataclass(frozen=True)
class Sampler:
    """Temperature, then top-k, then top-p, as in Hugging Face `generate`.

    Attributes:
        temperature: of the target; 0 is greedy decoding. Others are at least 1e-30.
        top_k: keep the k likeliest tokens; 0 keeps all.
        top_p: keep the likeliest tokens that together reach this mass; 1 keeps all.
        draft_temperature: of the draft; None means the target's. 0 makes q a point mass.

    Raises:
        RecordError: a setting is out of range; the message names it.

    >>> from traces import Sampler
    >>> Sampler(temperature=0.7, top_p=0.9)
    Sampler(temperature=0.7, top_k=0, top_p=0.9, draft_temperature=None)
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    draft_temperature: float | None = None

    def __post_init__(self) -> None:
        for name in ("temperature", "draft_temperature"):
            value = getattr(self, name)
            if value is not None and not 0 <= value <= sys.float_info.max:
                raise RecordError(f"{name} must be a finite number >= 0, not {value}")
            if value and value < _COLDEST:
                raise RecordError(
                    f"{name} is {value}, too small to divide logits by: 0 is greedy, others are"
                    f" at least {_COLDEST:g}"
                )
        if self.top_k < 0:
            raise RecordError(f"top_k must be >= 0, not {self.top_k}")
        if not 0 < self.top_p <= 1:
            raise RecordError(f"top_p must be in (0, 1], not {self.top_p}")
        if self.greedy and self.q_temperature > 0:
            raise RecordError("a greedy target (temperature 0) needs a greedy draft")

    @property
    def greedy(self) -> bool:
        """Whether the target takes its likeliest token (then so does the draft)."""
        return self.temperature == 0

    @property
    def words(self) -> str:
        """The settings as people name them."""
        if self.greedy:
            return "greedy"
        words = [f"temperature {self.temperature:g}"]
        words += [f"top-k {self.top_k}"] if self.top_k else []
        words += [f"top-p {self.top_p:g}"] if self.top_p < 1 else []
        if self.draft_temperature is not None:
            words.append(f"draft temperature {self.draft_temperature:g}")
        return ", ".join(words)

    @property
    def raw(self) -> bool:
        """Whether the target's tokens are drawn from its distribution as it is."""
        return self.temperature == 1 and not self.top_k and self.top_p == 1

    @property
    def q_temperature(self) -> float:
        """The temperature in force for the draft."""
        return self.temperature if self.draft_temperature is None else self.draft_temperature
