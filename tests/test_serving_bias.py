"""What is verified must not hang on what was drawn behind it: the law of the output, enumerated.

DSpark (arXiv:2607.05147) sizes a batch's budget by confidences. Those of tokens already drawn know
of the draws: the best budget of all looks at a token's successors to decide whether it is verified
at all, and then the target's law is lost. Stopping where the rate first falls looks at none of
them, and old confidences know of none.
"""

from __future__ import annotations

import numpy as np
import pytest

from simkit.costs import Linear
from simkit.drafters import layout_of
from simkit.serving.controllers.budget import best_budget
from simkit.serving.prices import PassTable, Pricing, prices_of
from traces import synthetic

P = np.array([0.7, 0.2, 0.1])  # the target's law of the next token
Q = np.array([0.3, 0.3, 0.4])  # the draft's
FIRST = 0.4  # confidence in the first drafted token, before it is drawn
SECOND = np.array([0.95, 0.05, 0.05])  # in the second, by what the first one is


def verified(survivals: np.ndarray, first_drop: bool) -> int:
    """The budget of one request; a pass over two drafted tokens takes as long as over one."""
    trace = synthetic.iid(1, 8, 0.5, max_draft=3, seed=0)
    cost = Linear(draft_s=1e-3, target_s=1.0, target_per_token_s=1e-3)
    prices = prices_of(cost.times(trace), layout_of(trace), Pricing(1, 2))
    staircase = np.repeat([1.0, 1.6, 1.6], 20).reshape(1, 3, 20)
    prices = prices._replace(verify=PassTable(np.array([1]), 1, staircase))
    return best_budget(survivals, 1, 2, 0.0, 0.0, first_drop, prices)


def law_of_output(length_of) -> np.ndarray:
    """The law of the next output token, if so many drafted tokens are verified."""
    residual = np.maximum(P - Q, 0) / np.maximum(P - Q, 0).sum()
    law = np.zeros(len(P))
    for x, q in enumerate(Q):
        if length_of(x) == 0:
            law += q * P
            continue
        accept = min(1.0, P[x] / q)
        law[x] += q * accept
        law += q * (1 - accept) * residual
    return law


def survivals_after(x: int) -> np.ndarray:
    return np.array([FIRST, FIRST * SECOND[x]])


def test_the_best_of_all_budgets_on_present_confidences_loses_the_target_s_law():
    lengths = [verified(survivals_after(x), first_drop=False) for x in range(3)]
    assert lengths == [2, 0, 0]  # the first token is verified only if the second is promising
    law = law_of_output(lengths.__getitem__)
    assert np.abs(law - P).max() > 0.05
    assert law.sum() == pytest.approx(1)


def test_stopping_at_the_first_drop_keeps_it():
    lengths = [verified(survivals_after(x), first_drop=True) for x in range(3)]
    assert lengths == [0, 0, 0]
    np.testing.assert_allclose(law_of_output(lengths.__getitem__), P, atol=1e-12)


@pytest.mark.parametrize("old", range(3))
@pytest.mark.parametrize("first_drop", [False, True])
def test_so_do_confidences_of_earlier_steps(old, first_drop):
    length = verified(survivals_after(old), first_drop)
    np.testing.assert_allclose(law_of_output(lambda x: length), P, atol=1e-12)
