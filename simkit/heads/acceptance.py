"""The acceptance head: a residual SiLU layer on the state that has consumed a draft token.

"Acceptance-guided adaptive speculative decoding", eqs. 4, 5, 8 to 10, and its public code: s =
σ(w · (x + SiLU(W x + b))). Its labels are min(1, p/q) of the token that it judges (eq. 9).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

from simkit.heads.registry import Kind, register
from simkit.heads.rows import MOST_LAYERS, RowHead

VARIANTS = {
    "paper": {},
    "code": {"reject_weight": 6.0},
    "proposed": {"layers": 2, "lag": 0},
}
"""`paper`: the paper gives no weights, 1 and 1 leave probabilities that mean what they say. `code`:
the weights of a comment in the public code (its mixed texts have 0.15 of their tokens from the
draft, the paper's half: that is the recording's `--mix`). `proposed`: two layers, on the state from
which the token was drawn, so that the score is there with the token."""


def _build(width: int, options: Mapping[str, Any]) -> nn.Module:
    return RowHead(width, options["layers"], outputs=1)


ACCEPTANCE = register(
    Kind(
        name="acceptance",
        policy="acceptance_head",
        options={
            "variant": "paper",
            "layers": 1,
            "lag": 1,
            "accept_weight": 1.0,
            "reject_weight": 1.0,
        },
        build=_build,
        label="accept_prob",
        mixed_only=True,
        limits={"layers": (1, MOST_LAYERS), "lag": (0, 1)},
        words={"variant": tuple(VARIANTS)},
        variants=VARIANTS,
    )
)
