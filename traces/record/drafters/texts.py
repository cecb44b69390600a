"""Known texts that a drafter is run over, and what it drafts at each start in them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from traces.errors import RecordError
from traces.record.forward import causal_mask, left_padded, right_padded

MOST_STARTS = 32  # of a sequence in one group
_MOST_LOGITS = 2**26  # of one group, over all its rows


@dataclass(frozen=True)
class Texts:
    """Prompts, padded in front, and their outputs, padded behind.

    Attributes:
        tokens: ids (B, W); what stands in a pad does not matter.
        pads: pads in front of each prompt (B,).
        n_output: tokens of each output (B,).
        start: the slot of output position 1.
        states: the target's states behind every token (B, W, F), for drafters that read them.
    """

    tokens: Tensor
    pads: Tensor
    n_output: Tensor
    start: int
    states: Tensor | None = None

    @property
    def text_positions(self) -> Tensor:
        """Where each slot's token stands in its own text, from 0; (B, W)."""
        slot = torch.arange(self.tokens.shape[1], device=self.tokens.device)
        return (slot - self.pads[:, None]).clamp_min(0)

    @property
    def mask(self) -> Tensor:
        """What each slot sees in one pass over all of them, (B, 1, W, W)."""
        return causal_mask(self.pads, 0, self.tokens.shape[1])

    @property
    def pair_mask(self) -> Tensor:
        """What each pair of a token and the state before it sees, (B, W, W).

        A text's first token has no state before it: it is in no pair, and sees itself alone.
        """
        return causal_mask(self.pads + 1, 0, self.tokens.shape[1])[:, 0]

    def one(self, row: int) -> Texts:
        """One of the texts, without pads."""
        first, end = int(self.pads[row]), self.start + int(self.n_output[row])
        return Texts(
            self.tokens[row : row + 1, first:end],
            torch.zeros_like(self.pads[:1]),
            self.n_output[row : row + 1],
            self.start - first,
            None if self.states is None else self.states[row : row + 1, first:end],
        )

    def read_states(self, width: int) -> Tensor:
        """The target's states (B, W, `width`).

        Raises:
            RecordError: they are missing or of another width.
        """
        if self.states is None:
            raise RecordError("this drafter reads the target's hidden states, and there are none")
        if self.states.shape[-1] != width:
            raise RecordError(
                f"the target's states are {self.states.shape[-1]} wide, the drafter reads {width}"
            )
        return self.states

    def one_later(self, features: Tensor) -> Tensor:
        """Features (B, W, H) of the slot before each; none (zeros) for a text's first token."""
        features = nn.functional.pad(features[:, :-1], (0, 0, 1, 0))
        slot = torch.arange(features.shape[1], device=features.device)
        return features.masked_fill(~(slot > self.pads[:, None])[:, :, None], 0)


def at_slots(features: Tensor, slot: Tensor) -> Tensor:
    """Features (B, W, H) at slots (B, R): (B, R, H)."""
    return features.gather(1, slot[:, :, None].expand(-1, -1, features.shape[-1]))


def make_texts(prompts: list[list[int]], outputs: list[list[int]], device: object = "cpu") -> Texts:
    """Texts of prompts (none empty) and outputs as lists of ids, without states."""
    tokens, pads = left_padded(prompts)
    n_output = torch.tensor([len(output) for output in outputs])
    joined = torch.cat([tokens, right_padded(outputs)], 1)
    place = torch.device(device)  # type: ignore[arg-type]
    return Texts(joined.to(place), pads.to(place), n_output.to(place), tokens.shape[1])


class DraftLogits(NamedTuple):
    """What a drafter says at S starts, K tokens deep."""

    sequence: Tensor  # (S,), counted from 0 inside the batch
    start: Tensor  # (S,), 1-based output position of the draft's first token
    logits: Tensor  # (S, K, D); at depth j of the token at position start + j - 1
    tokens: Tensor | None = None  # (S, K) that it went on with, where deeper rows depend on them


class StartGroup(NamedTuple):
    """Up to R starts of each of B sequences; tensors (B, R)."""

    start: Tensor  # 1-based output positions
    slot: Tensor  # of the last known token, the one before the start
    alive: Tensor  # whether the sequence has this start


def groups(
    texts: Texts, rows: int, n_columns: int, most: int = MOST_STARTS
) -> Iterator[StartGroup]:
    """All starts of all texts, in order, a group that fits one pass at a time.

    Args:
        texts: of one batch.
        rows: that a start has in a pass.
        n_columns: logits of a row.
        most: starts of a sequence in one group.
    """
    batch, longest = len(texts.tokens), int(texts.n_output.max())
    fit = max(1, _MOST_LOGITS // (batch * rows * n_columns))
    size = min(most, fit)
    for first in range(1, longest + 1, size):
        start = torch.arange(first, min(first + size, longest + 1), device=texts.tokens.device)
        start = start.expand(batch, -1)
        alive = start <= texts.n_output[:, None]
        yield StartGroup(start, texts.start + start - 2, alive)
