"""What of the model's states its logits depend on, and what is known of the next one beforehand."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from traces.recipes.smollm2.teacher import Texts

STATES = 20_000  # of which directions are taken
_TEXTS = 120  # of which the next states are taken
_RIDGE = 1e-3  # of the mean square


class Directions(NamedTuple):
    """What is kept of states h: logits E h are nearly E out (read h), but for a constant.

    Attributes:
        read: (n, H); what it reads has a mean square of 1 in each direction.
        out: (H, n).
    """

    read: Tensor
    out: Tensor


def metric(matrix: Tensor) -> Tensor:
    """M (H, H) so that |M (h - g)|² is the mean square by which logits of h and g differ.

    A constant on all logits changes nothing and is left out.

    Args:
        matrix: output matrix E (V, H).
    """
    centred = matrix.float() - matrix.float().mean(0)
    return _root(centred.T @ centred / len(centred))[0]


def main_directions(matrix: Tensor, states: Tensor, n: int) -> Directions:
    """The n directions in which the logits of these states are nearest to whole, in the square.

    The largest of the matrix alone would keep next to nothing: states are not round.

    Args:
        matrix: output matrix E (V, H).
        states: what it reads, h (N, H).
        n: at most H.
    """
    half, inverse = _root(states.float().T @ states.float() / len(states))
    seen = metric(matrix) @ half
    _, found = torch.linalg.eigh(seen.T @ seen)
    main = found[:, -n:]
    return Directions((inverse @ main).T.contiguous(), half @ main)


def next_state(texts: Texts, matrix: Tensor) -> Tensor:
    """The linear map (H, 2 H) that is nearest to the state behind a token in the mean square.

    It reads the token's embedding and the state behind the token before. Networks that begin with
    it need not learn it.

    Args:
        texts: to train on, of which some are taken.
        matrix: embeddings (V, H).
    """
    size = matrix.shape[1]
    squares, products = torch.zeros(2 * size, 2 * size), torch.zeros(2 * size, size)
    for place in texts.train[:: max(1, len(texts.train) // _TEXTS)]:
        text = texts.text(place)
        states = text.states[:-1].float()  # there is none behind the last
        read = torch.cat([F.embedding(text.tokens[1:-1], matrix).float(), states[:-1]], -1)
        squares += read.T @ read
        products += read.T @ states[1:]
    squares.diagonal().add_(_RIDGE * squares.diagonal().mean())
    return torch.linalg.solve(squares, products).T.contiguous()


@torch.no_grad()
def start_as_identity(layers: Iterable[Any]) -> None:
    """Let Llama's layers add nothing to what they read, before training."""
    for layer in layers:
        layer.self_attn.o_proj.weight.zero_()
        layer.mlp.down_proj.weight.zero_()


def _root(square: Tensor) -> tuple[Tensor, Tensor]:
    """The root of a symmetric matrix, and the root's inverse."""
    sizes, axes = torch.linalg.eigh(square)
    roots = sizes.clamp_min(1e-6).sqrt()
    return axes * roots @ axes.T, axes / roots @ axes.T
