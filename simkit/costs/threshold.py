"""The threshold that the acceptance-head paper derives from times."""

from __future__ import annotations

import numpy as np

from simkit.costs.base import Times
from simkit.errors import CostError
from traces.drafters.passes import Opening, Paid, opened


def rejection_threshold(
    times: Times, context: np.ndarray | int, k_max: int, paid: Paid = "token"
) -> np.ndarray:
    """h(k) = (T_v − T_d(k)) / T_r for k = 1 … k_max (acceptance head, equations 11 and 12).

    T_d(k) are the passes of a draft of k tokens and what a step pays the draft once, T_v is the
    verification of the k tokens, T_r = resampling + one more verification of as many. Drafting goes
    on while the probability of a rejection so far is below h(k); where the draft alone takes longer
    than the verification, h(k) is negative and it never does. Where one pass yields all k_max
    tokens, that is T_d of every k.

    Args:
        times: of a trace.
        context: known tokens before the step, any shape S.
        k_max: the longest draft, >= 1.
        paid: how drafts are paid.

    Returns:
        Shape (*S, k_max), float64.

    Raises:
        CostError: a time is negative or not finite, or T_r is nothing.

    >>> times = simkit.costs.Linear(draft_s=1, target_s=10)
    >>> simkit.costs.rejection_threshold(times, context=100, k_max=4).tolist()
    [0.9, 0.8, 0.7, 0.6]
    """
    known, before = np.asarray(context)[..., None], np.arange(k_max)
    paid = opened(paid, times.parallel)
    at_once = isinstance(paid, Opening) and not paid.each
    tokens = np.full(k_max, k_max) if at_once else before + 1
    draft_s = times.drafts(known, tokens, paid)
    verify_s = np.asarray(times.verify(before + 2, known), np.float64)
    rejected_s = times.resample() + verify_s
    for seconds in (draft_s, verify_s, rejected_s - verify_s):
        if not (np.isfinite(seconds) & (seconds >= 0)).all():
            raise CostError("a rejection threshold needs times >= 0, which this cost does not give")
    if not (rejected_s > 0).all():
        raise CostError("a rejection threshold needs a cost where verification takes time")
    return (verify_s - draft_s) / rejected_s
