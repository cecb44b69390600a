"""How much of a drafter's drafts is accepted, as trainings report it."""

from __future__ import annotations

from torch import Tensor


def acceptance(table: Tensor) -> dict[str, object]:
    """Marginal acceptance at each depth and the tokens accepted a step.

    Args:
        table: chance (starts, K) that each token of a draft is accepted if those before it are.
    """
    marginal = table.cumprod(-1).mean(0)
    return {
        "by_depth": [round(float(a), 4) for a in marginal],
        "accepted_per_step": round(float(marginal.sum()), 4),
    }
