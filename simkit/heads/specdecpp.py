"""SpecDec++'s head: two classes over residual blocks, a rejection weighing more."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

from simkit.heads.registry import Kind, register
from simkit.heads.rows import MOST_LAYERS, RowHead


def _build(width: int, options: Mapping[str, Any]) -> nn.Module:
    return RowHead(width, options["layers"], outputs=2)


SPECDECPP = register(
    Kind(
        name="specdecpp",
        policy="specdecpp",
        options={"layers": 3, "accept_weight": 1.0, "reject_weight": 6.0, "lag": 0},
        build=_build,
        limits={"layers": (1, MOST_LAYERS), "lag": (0, 1)},
    )
)
"""Its public code has lag 1."""
