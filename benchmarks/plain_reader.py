"""One causal LM with the keys and values of the text that it has read, batch size 1."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from transformers import DynamicCache


class Reader:
    """Reads a text piece by piece, and takes back its end.

    Args:
        model: a Hugging Face causal LM in eval mode, proved (`traces.record.proof`).
        vocab_size: ids beyond it are cut from the logits (common vocabulary of a pair).
        keep_states: whether to keep the model's states.

    Attributes:
        length: tokens read.
        states: (length, width), the final-norm state after each token that was read, from which
            the logits were computed; empty if they are not kept.
    """

    def __init__(self, model: nn.Module, vocab_size: int, keep_states: bool = False) -> None:
        self.model = model
        self.vocab_size = vocab_size
        self.device = model.get_input_embeddings().weight.device  # pyright: ignore
        self.keep_states = keep_states
        self.forget()

    def forget(self) -> None:
        """Start a new text."""
        self._cache = DynamicCache()
        self.length = 0
        self.states = torch.empty(0)

    def read(self, tokens: list[int], keep: int) -> Tensor:
        """Append tokens to the text.

        Returns:
            logits after each of the last `keep` tokens, (keep, vocab_size).
        """
        with torch.inference_mode(), self._keeping_states():
            logits = self.model(
                input_ids=torch.tensor([tokens], device=self.device),
                past_key_values=self._cache,
                use_cache=True,
                logits_to_keep=keep,
            ).logits
        self.length += len(tokens)
        return logits[0, :, : self.vocab_size]

    @contextmanager
    def _keeping_states(self) -> Iterator[None]:
        if not self.keep_states:
            yield
            return

        def keep(module: nn.Module, args: Any, output: Any) -> None:
            read = output.last_hidden_state[0]
            self.states = torch.cat([self.states, read]) if self.length else read

        handle = self.model.base_model.register_forward_hook(keep)  # pyright: ignore
        try:
            yield
        finally:
            handle.remove()

    def cut(self, length: int) -> None:
        """Forget what was read beyond the first `length` tokens, if anything was."""
        if self.length > length:
            self._cache.crop(length - self.length)  # negative: so many tokens less
            self.length = length
            self.states = self.states[:length]
