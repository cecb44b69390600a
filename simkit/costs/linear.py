"""Times that grow linearly, the form that vLLM and SpecDecode-Bench fit."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np

from simkit.costs.base import CostModel, Model, Times
from simkit.costs.constants import Constants
from simkit.costs.experts import experts_of, unknown
from simkit.costs.presets import PRESETS, models_of
from simkit.costs.registry import register
from simkit.costs.timed_models import TimedModels
from simkit.errors import CostError
from traces.conditions import TimedModel
from traces.registry import suggest
from traces.trace import Trace


@register
@dataclass(frozen=True)
class Linear(Constants, CostModel, Times):
    """A pass over n tokens at context c takes fixed + per_token * n + per_kv_token * c seconds.

    With `target_per_expert_s` a target's pass takes so long besides for each pair of a layer and an
    expert that any of its tokens is routed to, of a trace recorded with `--experts`.

    Of a batch n and c are those of all its sequences: with B of them alike,
    fixed + B * (per_token * n + per_kv_token * c), as vLLM and SpecDecode-Bench have it.

    A draft pass has n = 1, a verification n = γ + 1, a prefill n = n_prompt and c = 0. With
    `draft_per_step` it is not each pass of the draft that takes so long but all drafting of a step,
    n = γ + 1 even if γ = 0, and the draft has no prefill: it goes on from the target's states. Its
    n is that of one sequence whatever the batch, as the SpecDecode-Bench simulator has it.

    Attributes:
        draft_s: fixed part of a draft pass.
        target_s: fixed part of a target pass.
        draft_per_token_s: for each token in the pass.
        target_per_token_s: for each token in the pass.
        draft_per_kv_token_s: for each token of context.
        target_per_kv_token_s: for each token of context.
        decode_s: T_target(1) without its parts for context and experts; None means that of a
            verification of one token. Verification passes of papers are slower than their decoding
            passes.
        draft_per_step: see above.
        prefill_overhead_s: outside the target's prefill pass, once a sequence, also in
            autoregressive decoding.
        batch_size: B, sequences in a pass.
        preset: name of the preset whose models these times are of; empty: numbers that were given.
        timed: the models that they were fitted to, as a cost's file names them under `models`.
        target_per_expert_s: reading one expert of one layer, once a pass.

    The other arguments are those of `Constants`.

    Raises:
        CostError: a time is negative or not finite, a flag is not one, `batch_size` is no
            whole number from 1 on, or nothing says what more sequences in a pass add to it.

    >>> simkit.costs.Linear(draft_s=1, target_s=10, target_per_token_s=0.5).verify(4, context=100)
    12.0
    """

    draft_s: float
    target_s: float
    draft_per_token_s: float = 0.0
    target_per_token_s: float = 0.0
    draft_per_kv_token_s: float = 0.0
    target_per_kv_token_s: float = 0.0
    decode_s: float | None = None
    draft_per_step: bool = False
    prefill_overhead_s: float = 0.0
    batch_size: int = 1
    preset: str = ""
    timed: TimedModels | None = None
    target_per_expert_s: float = 0.0

    name = "linear"
    what = "for each model, seconds of a pass: fixed + per token + per token of context"
    source = "the form that vLLM and SpecDecode-Bench fit"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.timed is not None and not isinstance(self.timed, TimedModels):
            raise CostError("linear: only a cost's file can name the models that were timed")
        if self.preset and self.preset not in PRESETS:
            raise CostError(
                f"linear: unknown preset {self.preset!r} ({suggest(self.preset, PRESETS)})"
            )
        if self.batch_size > 1 and not (self.target_per_token_s or self.target_per_kv_token_s):
            raise CostError(
                "linear: give target_per_token_s, or more sequences in a batch would cost nothing"
            )
        if self.batch_size > 1 and self.target_per_expert_s:
            raise CostError("linear: the experts that a batch reads together are not known")

    def times(self, trace: Trace) -> Times:
        """See `CostModel`."""
        if self.by_experts:
            experts_of(trace, self.name)
        return self

    @property
    def by_experts(self) -> bool:
        """See `Times`."""
        return self.target_per_expert_s > 0

    def reading(self, experts: np.ndarray) -> Linear:
        """See `Times`."""
        given = {field.name: getattr(self, field.name) for field in fields(Linear)}
        return _Reading(**given, experts=experts)

    def _experts_s(self) -> np.ndarray | float:
        """Reading the experts of a target's pass."""
        if self.by_experts:
            raise unknown(self.name)
        return 0.0

    @property
    def models(self) -> TimedModels | None:
        """See `Times`."""
        if self.timed is not None or not self.preset:
            return self.timed
        target, draft = models_of(self.preset)
        return TimedModels(TimedModel(target), TimedModel(draft), f"the preset {self.preset}")

    @property
    def batch(self) -> int:
        """See `Times`."""
        return self.batch_size

    def of_batch(self, batch: int) -> Linear:
        """See `Times`."""
        return replace(self, batch_size=batch)

    def draft(self, context: np.ndarray) -> np.ndarray:
        """See `Times`."""
        if self.draft_per_step:
            return np.full(np.shape(context), self._draft_token_s)
        return self._drafting(context)

    def draft_step(self, context: np.ndarray) -> np.ndarray:
        """See `Times`."""
        return self._drafting(context) if self.draft_per_step else super().draft_step(context)

    def draft_block(self, tokens: np.ndarray, context: np.ndarray) -> np.ndarray:
        """See `Times`; under `draft_per_step` what its tokens add to the step's one payment."""
        if self.draft_per_step:
            return np.broadcast_arrays(self._draft_token_s * np.asarray(tokens), context)[0]
        return self._drafting(context) + self._draft_token_s * (np.asarray(tokens) - 1)

    @property
    def _draft_token_s(self) -> float:
        return (1 if self.draft_per_step else self.batch_size) * self.draft_per_token_s

    def _drafting(self, context: np.ndarray) -> np.ndarray:
        fixed_s = self.draft_s + self._draft_token_s
        return fixed_s + self.batch_size * self.draft_per_kv_token_s * context

    def verify(self, tokens: np.ndarray, context: np.ndarray) -> np.ndarray:
        """See `Times`."""
        kv_s = self.batch_size * self.target_per_kv_token_s * context
        tokens_s = self.batch_size * self.target_per_token_s * tokens
        return self.target_s + tokens_s + kv_s + self._experts_s()

    def decode(self, context: np.ndarray) -> np.ndarray:
        """See `Times`."""
        size, pass_s = self.batch_size, self.decode_s
        if pass_s is None:
            return self.verify(np.ones_like(context), context)
        pass_s = pass_s + (size - 1) * self.target_per_token_s
        return pass_s + size * self.target_per_kv_token_s * context + self._experts_s()

    def prefill(self, model: Model, tokens: np.ndarray) -> np.ndarray:
        """See `Times`."""
        if model == "draft" and self.draft_per_step:
            return np.zeros(np.shape(tokens))
        if model == "draft":
            return self.draft_s + self.batch_size * self.draft_per_token_s * tokens
        tokens_s = self.target_per_token_s * (self.batch_size * tokens)
        return self.prefill_overhead_s + self.target_s + tokens_s + self._experts_s()


@dataclass(frozen=True, eq=False)
class _Reading(Linear):
    """The same, of target passes that read so many experts."""

    experts: np.ndarray | int = 0

    def _experts_s(self) -> np.ndarray | float:
        return self.target_per_expert_s * self.experts
