"""Networks that score a row by itself, from one state of the draft."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

MOST_LAYERS = 64


class RowHead(nn.Module):
    """Residual SiLU blocks and a linear layer on one of the draft's states.

    With one output it is the acceptance head (acceptance-head paper, eq. 8): P̂ = σ(logit). With two
    it is SpecDec++'s: the probability of class 1, accepted.

    Args:
        width: H, of the draft's states.
        layers: residual blocks, x + SiLU(Wx + b).
        outputs: 1 or 2.
    """

    def __init__(self, width: int, layers: int, outputs: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))
        self.out = nn.Linear(width, outputs)
        for block in self.blocks:  # a block starts as the identity
            nn.init.zeros_(block.weight)  # pyright: ignore[reportArgumentType]

    def forward(self, states: Tensor) -> Tensor:
        """Logits of acceptance, (rows,), of states (rows, H).

        With two outputs: the difference of the two classes' logits, whose sigmoid is the softmax's
        probability of class 1.
        """
        x = states
        for block in self.blocks:
            x = x + functional.silu(block(x))
        logits = self.out(x)
        return logits[..., 0] if logits.shape[-1] == 1 else logits[..., 1] - logits[..., 0]


def loss(logits: Tensor, labels: Tensor, accept_weight: float, reject_weight: float) -> Tensor:
    """Weighted binary cross-entropy over the rows' weighted mass (acceptance-head paper, eq. 10).

    For labels of 0 and 1 it is also the two-class weighted cross-entropy of SpecDec++. Both public
    programs divide by the labels' weighted mass, not by the number of rows.

    Args:
        logits: (rows,).
        labels: (rows,), 0 to 1.
        accept_weight: of the accepted part, w_acc.
        reject_weight: of the rejected part, w_rej.
    """
    accepted = labels * functional.logsigmoid(logits)
    rejected = (1 - labels) * functional.logsigmoid(-logits)
    mass = torch.sum(accept_weight * labels + reject_weight * (1 - labels))
    return -torch.sum(accept_weight * accepted + reject_weight * rejected) / mass
