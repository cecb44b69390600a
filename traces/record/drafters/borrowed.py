"""A parallel drafter that reads and writes tokens through the target's own matrices.

Its embedding of a token is a linear map of the target's, its logits are a reduced vocabulary's rows
of the target's output matrix times a linear map of its state. So its folder holds neither matrix,
and it may be wide: of a vocabulary of 49,152 each column costs a draft model 49,152 weights, this
one 2 x the target's width. Once they are folded in, it runs as any Llama with a small output
matrix. Its `drafter.json` says ``"embeddings": "target"``; the mask is the id behind the target's.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel

from traces.errors import RecordError
from traces.record.drafters import files
from traces.record.drafters.vocabulary import add_tables, check_tables, ids_of
from traces.record.pair import DTYPES, embedding

WEIGHTS = "model.safetensors"


class Embeddings(nn.Module):
    """Embeddings (V + 1, H) made of the target's (V, H of the target), and one for the mask."""

    weight: Tensor

    def __init__(self, theirs: int, width: int) -> None:
        super().__init__()
        self.map = nn.Linear(theirs, width, bias=False)
        self.mask = nn.Parameter(torch.zeros(width))
        self.register_buffer("weight", torch.empty(0, width), persistent=False)

    @property
    def num_embeddings(self) -> int:
        """Ids of the target and the mask's."""
        return len(self.weight)

    def fold(self, matrix: Tensor) -> None:
        """Work the table out from the target's (V, H of the target)."""
        self.weight = torch.cat([self.map(matrix), self.mask[None]])

    def forward(self, ids: Tensor) -> Tensor:
        """Embeddings (…, H) of ids."""
        return F.embedding(ids, self.weight)


class BorrowedHead(nn.Module):
    """Logits of a reduced vocabulary of D ids by the target's output matrix."""

    d2t: Tensor
    t2d: Tensor
    weight: Tensor

    def __init__(self, width: int, theirs: int, n_ids: int, n_rows: int) -> None:
        super().__init__()
        self.map = nn.Linear(width, theirs, bias=False)
        add_tables(self, n_ids, n_rows)
        self.register_buffer("weight", torch.empty(0, width), persistent=False)

    def of_rows(self, matrix: Tensor) -> Tensor:
        """The drafter's output matrix (n, H) of some rows (n, H of the target) of the target's."""
        return matrix @ self.map.weight

    def fold(self, matrix: Tensor) -> None:
        """Work the output matrix out from the target's (V, H of the target)."""
        self.weight = self.of_rows(matrix[ids_of(self.d2t)])

    def forward(self, states: Tensor) -> Tensor:
        """Logits (…, D) of states (…, H)."""
        return F.linear(states, self.weight)


def make(config: LlamaConfig, theirs: int, n_ids: int) -> LlamaForCausalLM:
    """The network without weights, for a target ``theirs`` wide."""
    n_rows, pad = config.vocab_size, config.pad_token_id
    config.vocab_size, config.pad_token_id = 1, None  # of its own matrices, which are thrown away
    model: Any = LlamaForCausalLM(config)
    config.vocab_size, config.pad_token_id = n_rows, pad
    model.model.embed_tokens = Embeddings(theirs, config.hidden_size)
    model.lm_head = BorrowedHead(config.hidden_size, theirs, n_ids, n_rows)
    return model


@torch.no_grad()
def fold(model: Any, target: PreTrainedModel) -> None:
    """Make it ready to run over texts of a target."""
    output: Any = target.get_output_embeddings()
    model.model.embed_tokens.fold(embedding(target).weight)
    model.lm_head.fold(output.weight)


def load(folder: Path, target: PreTrainedModel, device: str, dtype: str) -> LlamaForCausalLM:
    """Load such a drafter's folder.

    Raises:
        RecordError: it is none, or does not fit the target.
    """
    _, config = files.llama_config(folder)
    n_rows, theirs = embedding(target).weight.shape
    if config.vocab_size != n_rows:
        raise RecordError(
            f"{folder}: made for {config.vocab_size} token ids, the target has {n_rows}"
        )
    found = files.tensors(folder / WEIGHTS, ("lm_head.d2t", "lm_head.t2d", "lm_head.map.weight"))
    width = len(found["lm_head.map.weight"])
    if width != theirs:
        raise RecordError(f"{folder}: made for a target of width {width}, this one has {theirs}")
    model = make(config, theirs, len(found["lm_head.d2t"]))
    files.fill(folder, model, found, "parallel")
    check_tables(folder, found["lm_head.d2t"], found["lm_head.t2d"], n_rows)
    model = model.to(DTYPES[dtype]).to(device).eval()  # type: ignore[arg-type]
    fold(model, target)
    model.config._name_or_path = str(folder)
    return model
