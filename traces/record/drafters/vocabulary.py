"""A drafter's reduced vocabulary, in the form of EAGLE-3's checkpoints.

``d2t`` (D,) is what to add to an id of the reduced vocabulary, ``t2d`` (V,) says which ids of the
target are in it. All others have probability 0. Logits of such a drafter have D columns everywhere,
and its ``ids`` name them.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

from traces.errors import RecordError


def tables(ids: Tensor, n_rows: int) -> dict[str, Tensor]:
    """``d2t`` and ``t2d`` of ids (D,), which rise, in a vocabulary of ``n_rows``."""
    inside = torch.zeros(n_rows, dtype=torch.bool)
    inside[ids] = True
    return {"d2t": ids - torch.arange(len(ids)), "t2d": inside}


def add_tables(net: nn.Module, n_ids: int, n_rows: int) -> None:
    """Give a network the two tables, to be filled."""
    net.register_buffer("d2t", torch.zeros(n_ids, dtype=torch.long))
    net.register_buffer("t2d", torch.zeros(n_rows, dtype=torch.bool))


def ids_of(d2t: Tensor) -> Tensor:
    """The target's ids (D,)."""
    return torch.arange(len(d2t), device=d2t.device) + d2t


def named(columns: Tensor, ids: Tensor | None) -> Tensor:
    """The target's ids of columns, any shape, of logits; they are the columns if ids is None."""
    return columns if ids is None else ids[columns]


def check_tables(folder: Path, d2t: Tensor, t2d: Tensor, n_rows: int) -> None:
    """Refuse a reduced vocabulary that names an id twice, or one that the target lacks.

    Raises:
        RecordError: as said.
    """
    ids = ids_of(d2t)
    if bool((ids < 0).any()) or bool((ids >= n_rows).any()) or len(ids.unique()) < len(ids):
        raise RecordError(f"{folder}: d2t names ids twice or outside the vocabulary of {n_rows}")
    if not torch.equal(t2d.nonzero()[:, 0], ids.sort().values):
        raise RecordError(f"{folder}: d2t and t2d do not name the same ids")
