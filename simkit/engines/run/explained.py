"""Why an engine's answer parts from the trace: in words, from what the models themselves say."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from simkit.engines.run.compared import Difference
from simkit.policies import Confidence, LlamaCpp, Policy

UNEXPLAINED = "not explained"
_NEAR = 1e-3  # nats, or share of a threshold, within which two programs' sums differ

NextToken = Callable[..., Any]
"""See `traces.record.margins.NextToken`."""


def of_token(found: Difference, target: NextToken) -> str:
    """Why another token came out."""
    if found.token is None:
        return "the engine's output ends there"
    text = found.request.prompt + found.request.output[: found.position - 1]
    if found.position > len(found.request.output):
        return "the trace's output ends there"
    margin = target(text, found.token)
    kind = "a tie" if margin.is_tie or margin.below <= _NEAR else "no tie"
    return f"{kind}: the trace's token is {margin.below:.2g} nats likelier"


def of_step(
    found: Difference,
    draft: NextToken | None,
    policy: Policy,
    eos: Sequence[int],
    bits: int = 0,
) -> str:
    """Why a step drafted or accepted something else, where the tokens are equal.

    Args:
        found: the difference.
        draft: the draft model; None: a drafter from tokens alone.
        policy: that was run.
        eos: tokens that end outputs.
        bits: to which the trace's statistics are rounded; 0: they are whole.
    """
    near = 2.0**-bits if bits else _NEAR  # of a ratio of two that are rounded
    assert found.replayed is not None and found.seen is not None
    if draft is None:
        return UNEXPLAINED
    text = found.request.prompt + found.request.output[: found.position - 1]
    tried, nearest = found.replayed.tried, float("inf")
    if isinstance(policy, Confidence) and tried >= policy.max_draft:
        return f"the replay's draft ends at {policy.max_draft} tokens, the engine's has no ceiling"
    for depth in range(1, max(tried, found.seen[0]) + 1):
        margin = draft(text)
        if margin.gap <= _NEAR:
            return f"a tie of the draft: its two likeliest tokens are {margin.gap:.2g} nats apart"
        apart = _from_threshold(margin, policy)
        if apart <= near:
            why = f"; the trace's is rounded to {bits} bits" if bits else ""
            return f"a tie of the rule: the score is {apart:.2g} of the threshold from it{why}"
        nearest = min(nearest, margin.gap)
        if margin.best in eos and depth <= tried < found.seen[0]:
            return "the engine drafts on behind a drafted EOS"
        text = [*text, margin.best]
    return f"{UNEXPLAINED} (the draft's two likeliest tokens are {nearest:.2g} nats apart at least)"


def _from_threshold(margin: Any, policy: Policy) -> float:
    """How far a rule's score is from its threshold, as a share of it."""
    if isinstance(policy, LlamaCpp) and policy.p_min:
        return abs(margin.best_of_ten / policy.p_min - 1)
    if isinstance(policy, Confidence) and policy.threshold:
        return abs(margin.probability / policy.threshold - 1)
    return float("inf")
