"""What of the model's states its logits depend on."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

STATES = 20_000  # of which directions are taken


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


def _root(square: Tensor) -> tuple[Tensor, Tensor]:
    """The root of a symmetric matrix, and the root's inverse."""
    sizes, axes = torch.linalg.eigh(square)
    roots = sizes.clamp_min(1e-6).sqrt()
    return axes * roots @ axes.T, axes / roots @ axes.T
