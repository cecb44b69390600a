"""Seconds put on the steps of a replay."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from simkit.costs import CostError, Times
from simkit.policies import NumericPolicy, Policy
from simkit.policies.base import never
from simkit.simulator.layout import PathLayout
from simkit.simulator.steps import Steps, Sums

PARTS = ("prefill_s", "draft_s", "verify_s", "policy_s", "overhead_s")
CELLS = 2**25  # of a verification table; above that each step is asked for


class Charge:
    """What the steps on one trace take.

    The draft's pass for token j of a step at i has n_prompt + i - 1 + (j - 1) known tokens before
    it, the verification and a decoding pass for position i have n_prompt + i - 1. Each model's
    prefill is paid once a sequence, the draft's only where it drafts at all.

    Args:
        times: of the trace.
        layout: of the trace.
        first: position of each sequence's first step.

    Raises:
        CostError: a time is negative or not finite.
    """

    def __init__(self, times: Times, layout: PathLayout, first: int) -> None:
        self.times = times
        self.first = first
        self.n_prompt = layout.n_prompt
        longest = int(self.n_prompt.max(initial=0)) + layout.trace.max_new_tokens
        self.contexts = np.arange(longest + 1)
        self.draft_sum = _summed("draft", times.draft(self.contexts))
        self.decode_sum = _summed("decoding", times.decode(self.contexts))
        self.prefill = {
            "draft": _checked("draft prefill", times.prefill("draft", self.n_prompt)),
            "target": _checked("target prefill", times.prefill("target", self.n_prompt)),
        }
        ends = self.n_prompt + layout.n_output
        begins = np.minimum(self.n_prompt + first - 1, ends)
        self.baseline_s = self.prefill["target"] + self._decode(begins, ends)

    def verify_table(self, longest: int) -> np.ndarray | None:
        """T_verify at every context, after drafts of 0 to `longest` tokens; None if too large."""
        if (longest + 1) * len(self.contexts) > CELLS:
            return None
        if longest >= self._table.shape[1]:
            self._table = self._verify(np.arange(longest + 1) + 1, self.contexts[:, None])
        return self._table

    def of_sums(self, policy: Policy, sums: Sums) -> dict[str, np.ndarray]:
        """The parts and the baseline of each sequence, in seconds, shape (S,)."""
        return {
            "prefill_s": self._prefill_s(sums.drafted),
            "draft_s": sums.draft_s,
            "verify_s": sums.verify_s,
            "policy_s": sums.drafted * self._decision_s(policy),
            "overhead_s": sums.steps * self._overhead_s,
            "baseline_s": self.baseline_s,
        }

    def of_steps(self, policy: Policy, steps: Steps) -> dict[str, np.ndarray]:
        """The parts and the baseline of each step, in seconds; a first step pays the prefill."""
        sequence, emitted = steps.sequence, steps.emitted
        context = self.n_prompt[sequence] + steps.start - 1
        drafted = np.bincount(sequence, steps.drafted, len(self.n_prompt))
        opening = steps.number == 1
        return {
            "prefill_s": np.where(opening, self._prefill_s(drafted)[sequence], 0.0),
            "draft_s": self.draft_sum[context + steps.drafted] - self.draft_sum[context],
            "verify_s": self._verify(steps.proposed + 1, context),
            "policy_s": steps.drafted * self._decision_s(policy),
            "overhead_s": np.full(len(steps), self._overhead_s),
            "baseline_s": self._decode(context, context + emitted)
            + np.where(opening, self.prefill["target"][sequence], 0.0),
        }

    @cached_property
    def _table(self) -> np.ndarray:
        return np.empty((len(self.contexts), 0))

    def _verify(self, tokens: np.ndarray, context: np.ndarray) -> np.ndarray:
        return _checked("verification", self.times.verify(tokens, context))

    def _decode(self, begin: np.ndarray, end: np.ndarray) -> np.ndarray:
        """Autoregressive decoding at the contexts from `begin` to before `end`."""
        pass_s = self.decode_sum[end] - self.decode_sum[begin]
        return pass_s + (end - begin) * _positive("overhead", self.times.baseline_overhead())

    def _prefill_s(self, drafted: np.ndarray) -> np.ndarray:
        return self.prefill["target"] + np.where(drafted > 0, self.prefill["draft"], 0.0)

    def _decision_s(self, policy: Policy) -> float:
        """One decision; a policy that looks at no token makes none."""
        blind = isinstance(policy, NumericPolicy) and policy.slots.trips is never
        return 0.0 if blind else _positive("policy", self.times.policy(policy.name))

    @property
    def _overhead_s(self) -> float:
        return _positive("overhead", self.times.overhead())


def add_up(steps: Steps, seconds: dict[str, np.ndarray] | None) -> Sums:
    """The sums of each sequence over steps that were replayed one by one."""

    def over(values: np.ndarray) -> np.ndarray:
        return np.bincount(steps.sequence, values, len(steps.n_output))

    drafted, proposed, accepted = (
        over(x).astype(np.int64) for x in (steps.drafted, steps.proposed, steps.accepted)
    )
    none = np.zeros(len(steps.n_output))
    draft_s, verify_s = (over(seconds[k]) if seconds else none for k in ("draft_s", "verify_s"))
    return Sums(steps.counts, drafted, proposed, accepted, draft_s, verify_s)


def _summed(what: str, seconds: np.ndarray) -> np.ndarray:
    return np.concatenate([[0.0], np.cumsum(_checked(what, seconds))])


def _checked(what: str, seconds: np.ndarray) -> np.ndarray:
    seconds = np.asarray(seconds, np.float64)
    wrong = ~(np.isfinite(seconds) & (seconds >= 0))
    if wrong.any():
        raise CostError(f"the cost model gives {seconds[wrong].flat[0]} seconds for a {what} pass")
    return seconds


def _positive(what: str, seconds: float) -> float:
    if not (np.isfinite(seconds) and seconds >= 0):
        raise CostError(f"the cost model gives {seconds} seconds for {what}")
    return float(seconds)
