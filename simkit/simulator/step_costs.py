"""Seconds put on the steps of a replay."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property

import numpy as np

from simkit.costs import CostError, Times
from simkit.costs.base import Model, RuleTime
from simkit.costs.drafting import CELLS, LONGEST_S, Drafting, checked, summed
from simkit.costs.measured import DRAWS
from simkit.costs.timed_models import another_pair
from simkit.drafters.experts import ExpertRows
from simkit.drafters.layout import Layout, Span
from simkit.policies import Policy, Setting
from simkit.simulator.beyond import Beyond, of_contexts, of_prompts
from simkit.simulator.rule_time import time_rule
from simkit.steps.family import family_of
from simkit.steps.steps import Steps, Sums
from simkit.steps.work import Work

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
        self.layout = layout
        self.first = first
        self.n_prompt = layout.n_prompt
        longest = int(self.n_prompt.max(initial=0)) + layout.trace.max_new_tokens
        self.contexts = np.arange(longest + 1)
        self._table = np.empty((longest + 1, 0))  # of `verify_table`, as wide as was asked so far
        self.drafting = Drafting(times, layout.paid, self.contexts, layout.trace.max_draft)
        self.decode_sum = self._decode_sum()
        prefill_s = self._target(lambda rows: rows.prompts).prefill("target", self.n_prompt)
        self.prefill = {
            "draft": np.zeros(len(self.n_prompt)),
            "target": checked("target prefill", prefill_s, self.n_prompt),
        }
        if layout.paid != "none":
            passes_s = times.prefill("draft", self.n_prompt)
            self.prefill["draft"] = checked("draft prefill", passes_s, self.n_prompt)
        ends = self.n_prompt + layout.n_output
        begins = np.minimum(self.n_prompt + first - 1, ends)
        which = np.arange(len(self.n_prompt))
        self.baseline_s = self.prefill["target"] + self._decode(which, begins, ends)

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

    def of_steps(self, policy: Policy, steps: Steps) -> dict[str, np.ndarray]:
        """The parts and the baseline of each step, in seconds; a first step pays the prefill.

        Args:
            policy: as `bind` gave it.
            steps: of it, on the charge's trace.
        """
        return self.of_work(policy, steps, family_of(policy).work(policy, steps, self.layout))

    def of_work(self, policy: Policy, steps: Steps, work: Work) -> dict[str, np.ndarray]:
        """The same where it is known what the steps did.

        Where both models run at once, draft_s is what the draft adds to the target's pass.
        """
        alone_s, beside_s = self.drafts(work)
        verify_s = self.verify_of(work)
        overhead_s = self._overhead_s
        if work.beside and work.beside.overlaps:
            overhead_s += self.communication_s
            if not work.beside.colocated:
                beside_s = np.maximum(beside_s - verify_s, 0.0)
        return {
            **self.once(steps, work.context, steps.draft_passes),
            "overhead_s": np.full(len(steps), overhead_s),
            "draft_s": alone_s + beside_s,
            "verify_s": verify_s,
            "policy_s": work.decisions * self.call_s(policy),
        }

    def once(self, steps: Steps, context: np.ndarray, passes: np.ndarray) -> dict[str, np.ndarray]:
        """What steps of any kind take: the prefill, by the first of a sequence, and the baseline.

        Args:
            steps: on the charge's trace.
            context: known tokens before each one.
            passes: of the draft model in each; a sequence without any has no prefill of it.
        """
        sequence = steps.sequence
        drafts = np.bincount(sequence, passes, len(self.n_prompt)) > 0
        prefill_s = self.prefill["target"] + np.where(drafts, self.prefill["draft"], 0.0)
        opening = steps.number == 1
        return {
            "prefill_s": np.where(opening, prefill_s[sequence], 0.0),
            "baseline_s": self._decode(sequence, context, context + steps.emitted)
            + np.where(opening, self.prefill["target"][sequence], 0.0),
        }

    def drafts(self, work: Work) -> tuple[np.ndarray, np.ndarray]:
        """Seconds that the draft works alone in each step, and beside the target's pass.

        What a step pays the draft once goes with the first of its passes: with those alone, unless
        there are some beside the target alone.
        """
        price, context, beside = self.drafting, work.context, work.beside
        once_s = price.once_s[context]
        later = work.asked == 0 if beside else np.False_
        alone_s = price.seconds(context, work.asked, work.unread) + np.where(later, 0.0, once_s)
        if np.any(work.again):
            again_s = price.block(work.verified, context)
            alone_s = alone_s + np.where(work.again, again_s, 0.0)
        if work.missed is not None and self.times.knows_blocks:
            late = (work.asked > 0) & (work.missed > 0)
            one_s = price.sum_s[context + 1] - price.sum_s[context]
            more_s = price.block(1 + work.missed, np.maximum(context - work.missed, 0)) - one_s
            alone_s = alone_s + np.where(late, more_s, 0.0)
        for level, width in enumerate(() if work.widths is None else work.widths.T, start=1):
            some = np.flatnonzero(width)
            if len(some):
                alone_s[some] += price.block(width[some], context[some] + level)
        if not beside:
            return alone_s, np.zeros(len(context))
        beside_s = price.seconds(context + work.verified - 1, beside.tokens, beside.unread)
        return alone_s, beside_s + np.where(later, once_s, 0.0)

    def widest(self, work: Work) -> dict[Model, np.ndarray]:
        """Tokens of each model's widest pass in each step, (N,); 0 where it makes none."""
        found = [self.drafting.widest(work.asked, work.unread)]
        found += [np.where(work.again, work.verified, 0)] if np.any(work.again) else []
        if work.missed is not None:
            found.append(np.where((work.asked > 0) & (work.missed > 0), 1 + work.missed, 0))
        found += [work.widths.max(1, initial=0)] if work.widths is not None else []
        if work.beside:
            found.append(self.drafting.widest(work.beside.tokens, work.beside.unread))
        return {"target": work.verified, "draft": np.max(found, axis=0)}

    def verify(self, tokens: np.ndarray, context: np.ndarray) -> np.ndarray:
        """A target pass over `tokens`, behind each context."""
        return checked("verification", self.times.verify(tokens, context), tokens, context)

    def verify_of(self, work: Work) -> np.ndarray:
        """The target's passes of steps."""
        if not self.times.by_experts:
            return self.verify(work.verified, work.context)
        found = self.times.reading(work.experts).verify(work.verified, work.context)
        return checked("verification", found, work.verified, work.context)

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
        n = self.layout.n_output
        known = n * (self.n_prompt + (n - 1) / 2)
        context = np.array([round(known.sum() / max(1, n.sum()))])
        times = self._target(lambda rows: np.array([rows.alone.mean()]))
        return float(times.cost_ratio(context, self.drafting.paid)[0])

    @cached_property
    def drawn_anew(self) -> list[Charge]:
        """Charges by times that other samples of the machine would have given; see `Times`."""
        return [Charge(times, self.layout, self.first) for times in self.times.drawn_anew(DRAWS)]

    @property
    def warnings(self) -> list[str]:
        """Why numbers that rest on these times may be wrong, one line each.

        They stand with every number, in captions too: times of other models than the trace's, and
        times that were taken badly; and beside them what lies `beyond` those that were taken, here
        and in `simkit.simulator.run.Run`.
        """
        other = another_pair(self.times.models, self.layout.trace.manifest)
        return [line for line in (other, self.times.weakness) if line]

    @property
    def remarks(self) -> list[str]:
        """What a reader of numbers that rest on these times must know, one line each."""
        found = [*self.warnings, *self.times.remarks(), *map(str, self.beyond)]
        if self.drafting.opening and not self.times.knows_blocks:
            found.append(
                "no draft pass over several tokens was timed: one that yields a whole draft, or"
                " reads kept tokens again, is charged like a pass over one token"
            )
        if not self.times_drafts:
            found.append("the cost has no time for drafting without a model: it is not charged")
        return found

    @cached_property
    def beyond(self) -> list[Beyond]:
        """How much of the trace lies beyond what was timed."""
        found, longest, prompt = [], self.times.longest_context, self.times.longest_prompt
        if longest is not None:
            # the step at position i, from `first` on, has n_prompt + i - 1 tokens before it
            steps = np.maximum(self.layout.n_output - self.first + 1, 0)
            last = self.n_prompt + self.layout.n_output - 1
            beyond = np.clip(last - longest, 0, steps).sum()
            found += [of_contexts(float(beyond / steps.sum()), longest)] if beyond else []
        if prompt is not None and (long := self.n_prompt > prompt).any():
            found.append(of_prompts(float(long.mean()), prompt))
        return found

    @property
    def times_drafts(self) -> bool:
        """Whether the cost has a time for drafts as they are made; else they are free."""
        return self.layout.paid != "none" or self.times.proposal() > 0

    @property
    def communication_s(self) -> float:
        """Between draft and target in a step, where they run at the same time."""
        return _positive("communication", self.times.communication())

    def _target(self, experts: Callable[[ExpertRows], np.ndarray]) -> Times:
        """The times, of target passes that read so many experts where that matters."""
        times = self.times
        return times.reading(experts(self.layout.experts)) if times.by_experts else times

    def _decode_sum(self) -> np.ndarray:
        """Decoding passes at all contexts below c, summed; or at all positions before a row."""
        if not self.times.by_experts:
            each_s = self.times.decode(self.contexts)
            return summed(checked("decoding", each_s, self.contexts))
        n, offsets = self.layout.n_output, self.layout.offsets
        context = np.arange(offsets[-1]) + np.repeat(self.n_prompt - offsets[:-1], n)
        each_s = self._target(lambda rows: rows.alone).decode(context)
        return summed(checked("decoding", each_s, context))

    def _decode(self, sequence: np.ndarray, begin: np.ndarray, end: np.ndarray) -> np.ndarray:
        """Autoregressive decoding of a sequence, at the contexts from `begin` to before `end`."""
        at = self.layout.offsets[sequence] - self.n_prompt[sequence] if self.times.by_experts else 0
        pass_s = self.decode_sum[end + at] - self.decode_sum[begin + at]
        return pass_s + (end - begin) * _positive("overhead", self.times.baseline_overhead())

    def shortest(self, layout: Layout, max_draft: int) -> np.ndarray:
        """See `Setting`; of the charge's trace, or of another layout of it."""
        from simkit.simulator.shortest_path import shortest

        if self.times.dips:
            raise CostError(
                "the best lengths with the future known are found only where no pass is faster over"
                " more tokens: leave out dips=true"
            )
        return shortest(layout, self, self.first, max_draft)

    def spent_s(self, policy: Policy) -> float:
        """See `Setting`."""
        from simkit.simulator.total import total

        _, seconds = total(policy, Setting(self.layout, self, self.first))
        assert seconds is not None
        spent = {part: float(seconds[part].sum()) for part in PARTS if part != "prefill_s"}
        if spent["policy_s"]:
            spent["policy_s"] *= self.weighed_s(policy) / self.call_s(policy)
        return sum(spent.values())

    def rule_time(self, policy: Policy) -> RuleTime | None:
        """What one decision takes, its head's call apart, and how that was found out.

        None for a policy that makes none: it looks at no token, or drafts while the target runs.

        Args:
            policy: as `bind` gave it.
        """
        if not policy.looks:
            return None
        known = self.times.rule_time(policy.timed_as)
        return known or (policy.like and time_rule(policy.like, self.times, self.layout))

    def call_s(self, policy: Policy) -> float:
        """One decision, head included; a policy that looks at no token makes none.

        Args:
            policy: as `bind` gave it.
        """
        taken = self.rule_time(policy)
        return _positive("policy", taken.seconds + self._head_s(policy)) if taken else 0.0

    def weighed_s(self, policy: Policy) -> float:
        """As `call_s`, for a rule that weighs a decision against what it may save.

        Where the cost has no times of rules, the rule's own is this process's microbenchmark. It is
        charged, but not weighed: else steps would differ from process to process.
        """
        known = self.times.timed_rules() or self.times.rule_time(policy.timed_as)
        if known or not (policy.looks and policy.like):
            return self.call_s(policy)
        return _positive("policy", self._head_s(policy))

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


def free_heads(charged: Iterable[tuple[Charge | None, Policy]]) -> list[str]:
    """Heads of policies whose calls cost nothing, for want of a time, a line each.

    Args:
        charged: policies, and what each was charged by.
    """
    free = (p.head for charge, p in charged if charge and charge.calls_for_nothing(p))
    return [
        f"the cost has no time for the head {head}: its calls are not charged"
        for head in dict.fromkeys(free)
    ]


def _positive(what: str, seconds: float) -> float:
    if not 0 <= seconds < LONGEST_S:
        raise CostError(f"the cost model gives {seconds} seconds for {what}")
    return float(seconds)
