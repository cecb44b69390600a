"""Seconds put on the steps of a replay."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from simkit.costs import CostError, Times
from simkit.costs.base import RuleTime
from simkit.costs.drafting import CELLS, LONGEST_S, Drafting, checked, summed
from simkit.costs.measured import DRAWS
from simkit.costs.timed_models import another_pair
from simkit.drafters.layout import Layout, Span
from simkit.policies import Branching, Policy, Sequential
from simkit.simulator.rule_time import time_rule
from simkit.simulator.steps import Steps, Sums, extra_passes
from traces.messages import how_many

PARTS = ("prefill_s", "draft_s", "verify_s", "policy_s", "overhead_s")


class Charge:
    """What the steps on one trace take.

    `Times.price` in tables. The draft's pass for token j of a step at i has n_prompt + i - 1 +
    (j - 1) known tokens before it, the verification and a decoding pass for position i have
    n_prompt + i - 1. Each model's prefill is paid once a sequence, the draft's only where it drafts
    at all.

    Args:
        times: of the trace.
        layout: of the trace.
        first: position of each sequence's first step.

    Raises:
        CostError: a time is negative or not finite.
    """

    def __init__(self, times: Times, layout: Layout, first: int) -> None:
        self.times = times
        self._layout = layout
        self.first = first
        self.n_prompt = layout.n_prompt
        longest = int(self.n_prompt.max(initial=0)) + layout.trace.max_new_tokens
        self.contexts = np.arange(longest + 1)
        self.drafting = Drafting(times, layout.paid, self.contexts, layout.trace.max_draft)
        self.decode_sum = summed(checked("decoding", times.decode(self.contexts)))
        self.prefill = {
            "draft": np.zeros(len(self.n_prompt)),
            "target": checked("target prefill", times.prefill("target", self.n_prompt)),
        }
        if layout.paid != "none":
            passes_s = times.prefill("draft", self.n_prompt)
            self.prefill["draft"] = checked("draft prefill", passes_s)
        ends = self.n_prompt + layout.n_output
        begins = np.minimum(self.n_prompt + first - 1, ends)
        self.baseline_s = self.prefill["target"] + self._decode(begins, ends)

    def verify_table(self, longest: int) -> np.ndarray | None:
        """T_verify at every context, after drafts of 0 to `longest` tokens; None if too large."""
        if (longest + 1) * len(self.contexts) > CELLS:
            return None
        table = self._table
        if longest >= table.shape[1]:  # another thread may put a smaller one there meanwhile
            table = self._table = self.verify(np.arange(longest + 1) + 1, self.contexts[:, None])
        return table

    def of_sums(
        self, policy: Policy, sums: Sums, span: Span | None = None
    ) -> dict[str, np.ndarray]:
        """The parts and the baseline of each sequence (of a span of them), in seconds."""
        which = slice(*span) if span else slice(None)
        return {
            **self.of_outputs(sums, which),
            "draft_s": sums.draft_s,
            "verify_s": sums.verify_s,
            "policy_s": sums.calls * self.call_s(policy),
            "overhead_s": sums.steps * self._overhead_s,
        }

    def of_outputs(self, sums: Sums, which: slice) -> dict[str, np.ndarray]:
        """What a sequence takes once, also one without any step: prefill, and the baseline."""
        draft_s = np.where(sums.draft_passes > 0, self.prefill["draft"][which], 0.0)
        return {
            "prefill_s": self.prefill["target"][which] + draft_s,
            "baseline_s": self.baseline_s[which],
        }

    def of_steps(self, policy: Sequential, steps: Steps) -> dict[str, np.ndarray]:
        """The parts and the baseline of each step, in seconds; a first step pays the prefill."""
        context, extra = self.context(steps), extra_passes(policy, self._layout)
        unread = steps.unread if self.drafting.by_unread and not extra else 1
        draft_s = self.drafting.seconds(context, steps.asked, unread)
        draft_s = draft_s + self.drafting.once_s[context]
        if extra:
            draft_s = draft_s + self.drafting.block(steps.proposed + 1, context)
        return {
            **self.common(steps, context),
            "draft_s": draft_s,
            "verify_s": self.verify(steps.proposed + 1, context),
            "policy_s": policy.calls(steps.drafted) * self.call_s(policy),
        }

    def common(self, steps: Steps, context: np.ndarray) -> dict[str, np.ndarray]:
        """What steps of any kind take: prefill, overhead, and the baseline.

        Args:
            steps: on the charge's trace.
            context: known tokens before each one, see `context`.
        """
        sequence = steps.sequence
        passes = np.bincount(sequence, steps.draft_passes, len(self.n_prompt))
        opening = steps.number == 1
        return {
            "prefill_s": np.where(opening, self._prefill_s(passes)[sequence], 0.0),
            "overhead_s": np.full(len(steps), self._overhead_s),
            "baseline_s": self._decode(context, context + steps.emitted)
            + np.where(opening, self.prefill["target"][sequence], 0.0),
        }

    def context(self, steps: Steps) -> np.ndarray:
        """Known tokens before each step's first one, int64."""
        return self.n_prompt[steps.sequence] + steps.start - 1

    def verify(self, tokens: np.ndarray, context: np.ndarray) -> np.ndarray:
        """A target pass over `tokens`, behind each context."""
        return checked("verification", self.times.verify(tokens, context))

    def cost_ratio(self) -> float:
        """C = T_target(1) / T_draft(1) at the mean context of the trace's output tokens.

        Raises:
            CostError: drafting takes no time.
        """
        if np.isinf(self._ratio):
            raise CostError("drafting takes no time under this cost: there is no ratio c")
        return self._ratio

    @cached_property
    def _ratio(self) -> float:
        n = self._layout.n_output
        known = n * (self.n_prompt + (n - 1) / 2)
        context = np.array([round(known.sum() / max(1, n.sum()))])
        return float(self.times.cost_ratio(context, self.drafting.paid)[0])

    @cached_property
    def drawn_anew(self) -> list[Charge]:
        """Charges by times that other samples of the machine would have given; see `Times`."""
        return [Charge(times, self._layout, self.first) for times in self.times.drawn_anew(DRAWS)]

    @property
    def warnings(self) -> list[str]:
        """Why numbers that rest on these times may be wrong, one line each.

        They stand with every number, in captions too: times of other models than the trace's, and
        times that were taken badly.
        """
        other = another_pair(self.times.models, self._layout.trace.manifest)
        return [line for line in (other, self.times.weakness) if line]

    @property
    def remarks(self) -> list[str]:
        """What a reader of numbers that rest on these times must know, one line each."""
        found = [*self.warnings, *self.times.remarks(), *self.beyond]
        if self.drafting.opening and not self.times.knows_blocks:
            found.append(
                "no draft pass over several tokens was timed: one that yields a whole draft, or"
                " encodes kept tokens anew, is charged as one over a single token"
            )
        if not self.times_drafts:
            found.append("the cost has no time for proposals that take no pass: they are free")
        return found

    @cached_property
    def beyond(self) -> list[str]:
        """How much of the trace lies beyond what was timed."""
        found, longest, prompt = [], self.times.longest_context, self.times.longest_prompt
        if longest is not None:
            # the step at position i, from `first` on, has n_prompt + i - 1 tokens before it
            steps = np.maximum(self._layout.n_output - self.first + 1, 0)
            last = self.n_prompt + self._layout.n_output - 1
            beyond = np.clip(last - longest, 0, steps).sum()
            if beyond:
                found.append(
                    f"{share_text(beyond / steps.sum())} of output positions lie behind contexts"
                    f" longer than the longest timed ({how_many(longest, 'token')}): the times of"
                    " steps there"
                    " are extrapolated"
                )
        if prompt is not None and (self.n_prompt > prompt).any():
            found.append(
                f"{share_text(np.mean(self.n_prompt > prompt))} of prompts are longer than the"
                f" longest timed ({how_many(prompt, 'token')}): the times of their prefills are"
                " extrapolated"
            )
        return found

    @property
    def times_drafts(self) -> bool:
        """Whether the cost has a time for drafts as they are made; else they are free."""
        return self._layout.paid != "none" or self.times.proposal() > 0

    @property
    def communication_s(self) -> float:
        """Between draft and target in a step, where they run at the same time."""
        return _positive("communication", self.times.communication())

    @cached_property
    def _table(self) -> np.ndarray:
        return np.empty((len(self.contexts), 0))

    def _decode(self, begin: np.ndarray, end: np.ndarray) -> np.ndarray:
        """Autoregressive decoding at the contexts from `begin` to before `end`."""
        pass_s = self.decode_sum[end] - self.decode_sum[begin]
        return pass_s + (end - begin) * _positive("overhead", self.times.baseline_overhead())

    def _prefill_s(self, draft_passes: np.ndarray) -> np.ndarray:
        return self.prefill["target"] + np.where(draft_passes > 0, self.prefill["draft"], 0.0)

    def rule_time(self, policy: Policy) -> RuleTime | None:
        """What one decision takes, its head's call apart, and how that was found out.

        None for a policy that makes none: it looks at no token, or drafts while the target runs.

        Args:
            policy: as `bind` gave it.
        """
        if not (isinstance(policy, Sequential | Branching) and policy.looks):
            return None
        known = self.times.rule_time(policy.timed_as)
        rule = policy.like if isinstance(policy, Branching) else policy
        return known or (rule and time_rule(rule, self.times, self._layout))

    def call_s(self, policy: Policy) -> float:
        """One decision, head included; a policy that looks at no token makes none.

        Args:
            policy: as `bind` gave it.
        """
        taken = self.rule_time(policy)
        return _positive("policy", taken.seconds + self._head_s(policy)) if taken else 0.0

    def _head_s(self, policy: Policy) -> float:
        """A call of its head; a variant that was not timed takes as long as the policy's own."""
        if policy.head is None:
            return 0.0
        return self.times.head(policy.head) or self.times.head(policy.name)

    def calls_for_nothing(self, policy: Policy) -> bool:
        """Whether the policy calls a head for whose calls the cost has no time."""
        return policy.head is not None and self._head_s(policy) == 0

    @property
    def _overhead_s(self) -> float:
        return _positive("overhead", self.times.overhead())


def add_up(
    policy: Policy,
    steps: Steps,
    seconds: dict[str, np.ndarray] | None,
    charge: Charge | None,
) -> tuple[Sums, dict[str, np.ndarray] | None]:
    """The sums of each sequence over steps that were replayed one by one, and its seconds."""
    n = len(steps.counts)
    which = steps.sequence - steps.low
    some = np.flatnonzero(steps.counts)

    def over(values: np.ndarray) -> np.ndarray:
        out = np.zeros(n, np.int64)
        out[some] = np.add.reduceat(values, steps.offsets[some], dtype=np.int64)
        return out

    calls = policy.calls(steps.drafted) if isinstance(policy, Sequential) else steps.drafted
    counted = (steps.drafted, steps.draft_passes, steps.proposed, steps.accepted, calls)
    counts = [over(x) for x in counted]
    added = {k: np.bincount(which, x, n) for k, x in seconds.items()} if seconds else None
    none = np.zeros(n)
    spent = [added[part] if added else none for part in ("draft_s", "verify_s")]
    sums = Sums(steps.counts, *counts, *spent)
    if not (added and charge):
        return sums, added
    return sums, added | charge.of_outputs(sums, slice(steps.low, steps.low + n))


def share_text(share: float | np.floating) -> str:
    """A share above 0, in words."""
    return "under 1%" if share < 0.01 else f"{share:.0%}"


def _positive(what: str, seconds: float) -> float:
    if not 0 <= seconds < LONGEST_S:
        raise CostError(f"the cost model gives {seconds} seconds for {what}")
    return float(seconds)
