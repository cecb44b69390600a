"""Texts that a model reads in its own passes, behind a state that can be cloned.

A recurrent state cannot be masked or cut, so these models take no packed passes. Each text has a
state of its own, as `generate` keeps it: the prompt in one pass, then a token a pass. A text that
goes on in two ways is cloned. Clones of one token each a pass are joined into the rows of one
state where the model's passes allow it: keys and values of shorter texts are padded in front.
Whether a model reads texts, clones and joined clones rightly is proved on it
(`traces.record.proof_own`).
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from traces.errors import RecordError
from traces.record.forward import Forward, embedding
from traces.record.proof_passes import own_along

# What carries a text on, by the names that models return it under, and take it.
_STATES = ("past_key_values", "cache_params", "state", "mems", "past_buckets_states")
_HEADS_FIRST = 4  # dimensions of keys and values: rows, heads, tokens, width


class OwnText:
    """A text, or several as rows, and the state that its passes leave.

    Args:
        model: a Hugging Face causal LM in eval mode.

    Attributes:
        lengths: tokens read, of each row.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        self.lengths = [0]
        self._model, self._is_padded = model, False
        self._state: dict[str, Any] = {}

    def read(self, tokens: Tensor) -> Tensor:
        """Logits (R, V) behind the last of the next tokens (R, n).

        Raises:
            RecordError: the model returns no state.
        """
        tokens = tokens.to(embedding(self._model).weight.device)
        with torch.inference_mode():
            found: Any = self._model(
                input_ids=tokens,
                use_cache=True,
                logits_to_keep=1,
                **self._state,
                **self._places(tokens),
            )
        self._state = {n: found[n] for n in _STATES if found.get(n) is not None}
        if not self._state:
            raise RecordError("its passes return no state to go on from")
        self.lengths = [length + tokens.shape[1] for length in self.lengths]
        return found.logits[:, -1]

    def clone(self) -> OwnText:
        """The same text, which goes on by itself."""
        other = copy.copy(self)
        with torch.inference_mode():
            other._state = copy.deepcopy(self._state)
        return other

    @classmethod
    def joined(cls, texts: Sequence[OwnText]) -> OwnText:
        """Texts of a row each as the rows of one.

        Raises:
            RecordError: their states cannot be rows of one.
        """
        whole, joint = copy.copy(texts[0]), _Joint()
        with torch.inference_mode():
            whole._state = joint([text._state for text in texts])
        whole.lengths = [length for text in texts for length in text.lengths]
        whole._is_padded = joint.is_padded
        return whole

    def _places(self, tokens: Tensor) -> dict[str, Tensor]:
        """What says where tokens stand, as far as the model takes it.

        Some models count positions from 0 in every pass that is not told.

        Raises:
            RecordError: rows are padded, and the model cannot be told.
        """
        lengths, n = torch.tensor(self.lengths, device=tokens.device)[:, None], tokens.shape[1]
        given = {"position_ids": lengths + torch.arange(n, device=tokens.device)}
        if self._is_padded:
            slots = torch.arange(int(lengths.max()) + n, device=tokens.device)
            given["attention_mask"] = (slots >= lengths.max() - lengths).long()
        taken = inspect.signature(self._model.forward).parameters
        if self._is_padded and not given.keys() <= taken.keys():
            raise RecordError("it takes no positions and masks of rows")
        return {name: value for name, value in given.items() if name in taken}


class _Joint:
    """Joins states of one row each, whatever holds them.

    Attributes:
        is_padded: keys and values were padded in front.
    """

    def __init__(self) -> None:
        self.is_padded = False

    def __call__(self, parts: list[Any]) -> Any:
        """One state of as many rows.

        Raises:
            RecordError: they differ in more than what they hold of their texts.
        """
        first = parts[0]
        if isinstance(first, Tensor):
            return self._rows(parts) if first.ndim else _same(parts)
        if isinstance(first, dict):
            return {name: self([part[name] for part in parts]) for name in first}
        if isinstance(first, list | tuple):
            return type(first)(self(list(some)) for some in zip(*parts, strict=True))
        if type(first).__module__.startswith("transformers.") and hasattr(first, "layers"):
            return self._held(parts)
        if type(first).__name__.endswith("Layer"):
            return self._held(parts)
        return _same(parts)

    def _held(self, parts: list[Any]) -> Any:
        """The same of an object's attributes."""
        whole = copy.copy(parts[0])
        vars(whole).update(self([vars(part) for part in parts]))
        return whole

    def _rows(self, parts: list[Tensor]) -> Tensor:
        """Tensors (1, …) as rows; those of fewer tokens are padded in front."""
        shapes = {part.shape for part in parts}
        if len(shapes) > 1:
            if parts[0].ndim != _HEADS_FIRST:
                raise RecordError("states of texts differ in shape")
            self.is_padded, most = True, max(part.shape[2] for part in parts)
            parts = [padded(part, most - part.shape[2]) for part in parts]
        return torch.cat(parts)


def padded(part: Tensor, more: int) -> Tensor:
    """Keys or values (1, heads, tokens, width) with so many more tokens in front."""
    return torch.nn.functional.pad(part, (0, 0, more, 0))


def _same(parts: list[Any]) -> Any:
    """What is the same in all.

    Raises:
        RecordError: it is not.
    """
    if any(bool(part != parts[0]) for part in parts[1:]):
        raise RecordError("states of texts differ in more than their values")
    return parts[0]


class Known:
    """What a model says along known outputs, read in one of its own passes for each text.

    Args:
        model: whose cache stays empty.
        prompts: token ids.
        outputs: of each.
    """

    def __init__(self, model: Forward, prompts: list[list[int]], outputs: list[list[int]]) -> None:
        self._place = 0
        rows = []
        for prompt, output in zip(prompts, outputs, strict=True):
            with torch.inference_mode():
                rows.append(model.common(own_along(model.model, prompt, output)))
        self._logits = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)

    @property
    def logits(self) -> Tensor:
        """At the position that is read (B, V)."""
        return self._logits[:, self._place]

    def go_on(self, tokens: Tensor, alive: Tensor) -> None:
        """Read the next position."""
        self._place += 1


class Stepped:
    """What a model says along outputs that grow, in its own passes, text by text.

    Args:
        model: whose cache stays empty.
        prompts: token ids.

    Attributes:
        logits: at the position that is read (B, V); what was last said of a text that has ended.
    """

    def __init__(self, model: Forward, prompts: list[list[int]]) -> None:
        self._model, self._texts = model, [OwnText(model.model) for _ in prompts]
        both = zip(self._texts, prompts, strict=True)
        self.logits = torch.cat([model.common(text.read(torch.tensor([p]))) for text, p in both])

    def go_on(self, tokens: Tensor, alive: Tensor) -> None:
        """Read the next position of those texts (B,) that go on, behind tokens (B, 1)."""
        rows = list(self.logits)
        for k in alive.nonzero()[:, 0].tolist():
            rows[k] = self._model.common(self._texts[k].read(tokens[k : k + 1]))[0]
        self.logits = torch.stack(rows)
