"""How a live decoder decodes, and what it says of a step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from simkit.errors import LiveError
from traces.sampler import Sampler
from traces.trace import Trace

FirstToken = Literal["draft", "prefill"]
UNKNOWN = 1.0
"""In the place of a score that is not there yet, which no rule with a lag heeds."""


@dataclass(frozen=True)
class DecoderSettings:
    """How to decode.

    Attributes:
        sampler: how p and q are processed and drawn from.
        seed: of the keyed draws, int64.
        max_new_tokens: T_max.
        eos_token_ids: ids that end an output.
        first_token: "draft": the first step starts at position 1; "prefill": the pass over the
            prompt emits position 1 and the first step starts at 2.
        look_ahead: grant policies that need the future a look at it, by drafting twice.
        kernel: reduce the draft's logits with the Triton kernel. A trace was recorded with it or
            without it (its manifest's `statistics`); steps agree where the decoder does the same.

    Raises:
        LiveError: the seed is out of range.
    """

    sampler: Sampler = Sampler()
    seed: int = 0
    max_new_tokens: int = 256
    eos_token_ids: tuple[int, ...] = ()
    first_token: FirstToken = "draft"
    look_ahead: bool = False
    kernel: bool = False

    def __post_init__(self) -> None:
        if not -(2**63) <= self.seed < 2**63:
            raise LiveError(f"seed must fit in 64 bits, not {self.seed}")

    @classmethod
    def of(
        cls, trace: Trace, first_token: FirstToken = "draft", max_new_tokens: int | None = None
    ) -> DecoderSettings:
        """As a trace was recorded, T_max too where none is given."""
        known = trace.manifest
        return cls(
            sampler=trace.sampler,
            seed=known.seed,
            max_new_tokens=trace.max_new_tokens if max_new_tokens is None else max_new_tokens,
            eos_token_ids=trace.eos_token_ids,
            first_token=first_token,
            kernel=known.statistics == "kernel",
        )


class Step(NamedTuple):
    """One step.

    Attributes:
        start: 1-based position of its first token in the output.
        draft_length: γ, tokens sent to the target.
        drafted: draft passes, the extra ones for bonus tokens left out.
        accepted: a, of the tokens sent.
    """

    start: int
    draft_length: int
    drafted: int
    accepted: int
