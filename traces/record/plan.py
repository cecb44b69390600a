"""What a recording shall hold, and what one shard of it came out as."""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

from traces.errors import RecordError
from traces.manifest import Coupling
from traces.sampler import Sampler

_LARGEST = 2**24  # no context is longer


@dataclass(frozen=True)
class Plan:
    """Settings of a recording.

    Attributes:
        sampler: how p and q are processed and drawn from.
        seed: of the keyed draws, int64.
        max_new_tokens: T_max.
        max_draft: deepest draft that is recorded, Γ.
        eos_token_ids: ids that end an output.
        batch_size: prompts in a shard; they are run as one batch.
        branch_target: record the target's statistics on branch rows too.
        hidden: record the draft's final-norm states.
        experts: record which experts the target reads for each token.
        mix: share of the draft's own tokens in the mixed contexts; 0 records none.
        kernel: reduce logits with the Triton kernel, which changes their last bits.
        coupling: of draft and output, see `traces.manifest.Manifest`.
        at_once: tokens of an output in one pass, where the outputs are known.
        by_engine: outputs are known that another program drew, with numbers of its own.

    Raises:
        RecordError: a number is out of range.
    """

    sampler: Sampler = Sampler()
    seed: int = 0
    max_new_tokens: int = 256
    max_draft: int = 40
    eos_token_ids: tuple[int, ...] = ()
    batch_size: int = 8
    branch_target: bool = False
    hidden: bool = False
    experts: bool = False
    mix: float = 0.0
    kernel: bool = False
    coupling: Coupling = "draft"
    at_once: int = 1
    by_engine: bool = False

    def __post_init__(self) -> None:
        for name in ("max_new_tokens", "max_draft", "batch_size", "at_once"):
            if getattr(self, name) < 1:
                raise RecordError(f"{name} must be at least 1, not {getattr(self, name)}")
            if getattr(self, name) > _LARGEST:
                raise RecordError(f"{name} must be at most {_LARGEST}, not {getattr(self, name)}")
        if not -(2**63) <= self.seed < 2**63:
            raise RecordError(f"seed must fit in 64 bits, not {self.seed}")
        if self.coupling not in get_args(Coupling):
            words = " or ".join(get_args(Coupling))
            raise RecordError(f"coupling must be {words}, not {self.coupling}")
        if not 0 <= self.mix <= 1:
            raise RecordError(f"mix must be a share from 0 to 1, not {self.mix:g}")
