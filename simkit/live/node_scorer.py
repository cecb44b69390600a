"""A head that judges nodes of trees in a live decoder."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import torch
from torch import Tensor

from simkit.heads.files import Head, check_width
from simkit.policies import PolicyError
from simkit.policies.base import Policy

Scorer = Callable[[Tensor], np.ndarray]


def node_scorer(policy: Policy, heads: Mapping[str, Head]) -> Scorer | None:
    """What gives the scores that a policy reads; None if it reads none.

    States (n, H) are rounded to float16 first and scores (n,) last, as a trace has them.

    Raises:
        PolicyError: its head is not given, or judges tokens before they are consumed.
    """
    if policy.head is None:
        return None
    if policy.head not in heads:
        raise PolicyError(f"{policy} reads the head {policy.head}, which is not given (--head)")
    head = heads[policy.head]
    if head.by_start or not head.lag:
        raise PolicyError(
            f"{policy}: a {head.kind} head of this kind cannot judge nodes of trees: give one that"
            " simkit train acceptance --drafter … has made"
        )
    modules: dict[torch.device, torch.nn.Module] = {}

    def score(states: Tensor) -> np.ndarray:
        if states.device not in modules:
            check_width(head, states.shape[-1], "this drafter")
            modules[states.device] = head.network(states.device)
        with torch.inference_mode():
            logits = modules[states.device](states.half().double())
            return logits.sigmoid().float().half().float().cpu().numpy()

    return score
