"""A log of steps replayed: fixed lengths alone, and intervals alone.

Three intervals answer three questions; each is named in all that is printed.

band: for requests like these, if starts that the length would visit run on like those that the log
visited, and what cut drafts short has nothing to do with how they would have gone on: Kaplan and
Meier's estimate, bootstrapped over requests. Beyond the deepest draft nothing is estimated: there
the ends are 0 and what is left at that depth.

cut: for the logged starts themselves, whatever cut their drafts short: every draft that was
accepted whole would have ended there, or gone on to the end.

Where the sums of each request alone are known there is no band, and "cut" is for any steps that
come to these sums.

any: for these very outputs, whatever is not in the log: the fewest and the most steps that the
length can have taken, `log_bounds`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import NamedTuple

import numpy as np

from simkit.errors import ReplayError
from simkit.policies import Autoregressive, Fixed, Policy
from simkit.simulator.log_bounds import Starts, extremes, starts, unknown_starts
from simkit.simulator.step_costs import Charge
from simkit.statistics.interval import RESAMPLES, ends, resampled
from simkit.statistics.survival import (
    Risks,
    cut_bounds,
    kaplan_meier,
    risks,
    sum_bounds,
    sum_means,
)
from traces.trace import Trace

FIRST = 2  # position of the first logged step: the prefill emits the token before it
_SAME = 1e-12  # of a value: what differs by less is constant


class Interval(NamedTuple):
    """Two ends; NaN where nothing can be said."""

    low: float
    high: float


_UNKNOWN = Interval(np.nan, np.nan)

Ends = tuple[np.ndarray, np.ndarray]
"""Low and high ends of a statistic on several sums, (B,) each."""


class LogReplay(NamedTuple):
    """What a log says of one length k; intervals by the names of this module's first lines.

    Attributes:
        policy: with that length.
        length: k.
        tokens_per_step: the mean of a + 1.
        speedup: None without costs.
        marginal: of each depth 1, …, k, P(a >= depth); there is no "any".
        at_risk: of each depth, logged steps that drafted so deep and accepted all before it.
    """

    policy: Policy
    length: int
    tokens_per_step: dict[str, Interval]
    speedup: dict[str, Interval] | None
    marginal: list[dict[str, Interval]]
    at_risk: list[int]


def length_of(policy: Policy) -> int:
    """The length of a policy that a log can be replayed for.

    Raises:
        ReplayError: its lengths are not fixed.
    """
    if isinstance(policy, Fixed):
        return policy.length
    if isinstance(policy, Autoregressive):
        return 0
    raise ReplayError(
        f"{policy} cannot be replayed from a log, which has neither the draft's tokens nor its"
        " probabilities: only fixed(K) and autoregressive can, as intervals"
    )


class StepLog:
    """The steps of a log.

    Args:
        trace: of the kind "log".
        charge: of its outputs; None if there are no costs.
        confidence: of the bands.
        seed: of the bootstrap.

    Raises:
        ReplayError: there is no step in it.
    """

    def __init__(self, trace: Trace, charge: Charge | None, confidence: float, seed: int) -> None:
        self.trace = trace
        self.charge = charge
        self.confidence = confidence
        self.seed = seed
        self.drafted = trace.column("log", "drafted").astype(np.int64)
        self.accepted = trace.column("log", "accepted").astype(np.int64)
        if not len(self.drafted):
            raise ReplayError("the log has no step: there is nothing to replay")
        key = trace.sequences["sequence"].to_numpy()
        self.owner = np.searchsorted(key, trace.column("log", "sequence"))

    @property
    def n_requests(self) -> int:
        """Requests, those without any step too."""
        return self.trace.n_sequences

    @cached_property
    def risks(self) -> Risks:
        """What the steps of each request show of each depth."""
        return risks(self.owner, self.drafted, self.accepted, self.n_requests)

    @property
    def deepest(self) -> int:
        """The longest draft, in tokens."""
        return self.risks.at_risk.shape[1]

    @cached_property
    def emitted(self) -> np.ndarray:
        """(S,) int64, tokens that the steps of each request emitted."""
        return np.bincount(self.owner, self.accepted + 1, self.n_requests).astype(np.int64)

    @cached_property
    def steps(self) -> np.ndarray:
        """(S,) int64, of each request."""
        return np.bincount(self.owner, minlength=self.n_requests)

    def replay(self, policy: Policy) -> LogReplay:
        """The intervals of one policy.

        Raises:
            ReplayError: its lengths are not fixed.
        """
        length = length_of(policy)
        if self.trace.manifest.totals:
            return self._replay_sums(policy, length)
        cut = cut_bounds(self.drafted, self.accepted, length)
        marginal = [
            {"band": self._marginal(depth), "cut": Interval(low, high)}
            for depth, low, high in zip(
                range(1, length + 1), cut.low.tolist(), cut.high.tolist(), strict=True
            )
        ]
        tokens = {
            "band": self._band(
                lambda sums: self._tokens(sums, length), Interval(1.0, 1.0 + length)
            ),
            "cut": Interval(1 + float(cut.low.sum()), 1 + float(cut.high.sum())),
            "any": self._any_tokens(length),
        }
        speedup = self._speedups(length, tokens["cut"]) if self.charge else None
        seen = self.risks.at_risk.sum(0).tolist()
        at_risk = [*seen, *[0] * length][:length]
        return LogReplay(policy, length, tokens, speedup, marginal, at_risk)

    def _replay_sums(self, policy: Policy, length: int) -> LogReplay:
        """The same where the sums of each request alone are known."""
        accepted, most = self.emitted - self.steps, self.deepest
        cut = sum_bounds(accepted, self.steps, most, length)
        low, high = sum_means(accepted, self.steps, most, length)
        tokens = {
            "band": _UNKNOWN,
            "cut": Interval(1 + low, 1 + high),
            "any": self._any_tokens(length),
        }
        marginal = [
            {"band": _UNKNOWN, "cut": Interval(*ends)}
            for ends in zip(cut.low.tolist(), cut.high.tolist(), strict=True)
        ]
        speedup = self._speedups(length, tokens["cut"]) if self.charge else None
        reached = np.append(1.0, cut.low)[:length] * self.steps.sum()  # at the least
        at_risk = np.where(np.arange(length) < most, np.rint(reached), 0).astype(int).tolist()
        return LogReplay(
            policy, length, tokens, speedup and {**speedup, "band": _UNKNOWN}, marginal, at_risk
        )

    def _sums(self, *more: np.ndarray) -> np.ndarray:
        """What bands are made of, by request: at risk and rejected at each depth, and more."""
        parts = [self.risks.at_risk, self.risks.rejected, *(x[:, None] for x in more)]
        return np.concatenate([np.asarray(part, np.float64) for part in parts], axis=1)

    def _survival(self, sums: np.ndarray, depth: int) -> Ends:
        """P(R >= j) for j = 1 to a depth over sums of requests (B, m): its ends, (B, depth) each.

        They differ where no step was at risk.
        """
        known = min(depth, self.deepest)
        at_risk, rejected = sums[:, : self.deepest], sums[:, self.deepest : 2 * self.deepest]
        survival = np.full((len(sums), depth), np.nan)
        survival[:, :known] = kaplan_meier(at_risk, rejected)[:, :known]
        before = np.fmin.accumulate(np.concatenate([np.ones((len(sums), 1)), survival], axis=1), 1)
        missing = np.isnan(survival)
        return np.where(missing, 0.0, survival), np.where(missing, before[:, 1:], survival)

    def _tokens(self, sums: np.ndarray, length: int) -> Ends:
        low, high = self._survival(sums, length)
        return 1 + low.sum(1), 1 + high.sum(1)

    def _marginal(self, depth: int) -> Interval:
        def at_depth(sums: np.ndarray) -> Ends:
            low, high = self._survival(sums, depth)
            return low[:, -1], high[:, -1]

        return self._band(at_depth, Interval(0.0, 1.0))

    @cached_property
    def _drawn(self) -> np.ndarray:
        """`_sums` of requests drawn anew, (B, m)."""
        return np.concatenate(list(resampled(self._sums(), self.seed, RESAMPLES)))

    def _band(
        self,
        statistic: Callable[[np.ndarray], Ends],
        possible: Interval,
        sums: np.ndarray | None = None,
    ) -> Interval:
        """The interval of a statistic that has two ends itself, over requests.

        Where all requests agree a bootstrap sees no spread. Then so large a share of requests may
        be of any other kind that as many draws would have missed it with probability (1 -
        confidence) / 2.

        Args:
            statistic: its ends on sums of requests, (B, m) to (B,) each.
            possible: what it can be at all.
            sums: of each request; None: those without more.
        """
        drawn = self._drawn if sums is None else None
        sums = self._sums() if sums is None else sums
        n = int(np.count_nonzero(self.steps))  # requests that bear on it
        if n < 2:
            return Interval(np.nan, np.nan)
        if drawn is None:
            drawn = np.concatenate(list(resampled(sums, self.seed, RESAMPLES)))
        whole = sums.sum(0, keepdims=True)
        values, others, each = (statistic(part) for part in (whole, whole - sums, drawn))
        tail = (1 - self.confidence) / 2
        found = []
        for k in (0, 1):
            value, without = float(values[k][0]), others[k]
            if np.ptp(each[k]) <= _SAME * abs(value) and np.ptp(without) <= _SAME * abs(value):
                missed = 1 - tail ** (1 / n)
                found.append([value + missed * (end - value) for end in possible])
            elif np.ptp(without) <= _SAME * abs(value):
                found.append(np.quantile(each[k], [tail, 1 - tail]).tolist())
            else:
                found.append(ends(value, each[k], without, self.confidence, bearing=n))
        return Interval(float(found[0][0]), float(found[1][1]))

    def _starts(self, length: int) -> Starts:
        left = self._places[2]
        manifest = self.trace.manifest
        if manifest.unordered:  # where steps began is not known
            return unknown_starts(length, left)
        return starts(self.drafted, self.accepted, length, left, manifest.shared_path)

    @cached_property
    def _places(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Positions behind prefills' tokens: where outputs begin and end, and what is left at each.

        What the last step of an output emitted behind its end has positions too.
        """
        begins = np.cumsum(self.emitted) - self.emitted
        ends = begins + self._n_output
        left = np.repeat(ends, self.emitted) - np.arange(self.emitted.sum())
        return begins, ends, left

    @cached_property
    def _n_output(self) -> np.ndarray:
        """(S,) int64, tokens of each output behind the prefill's; 0 without steps."""
        return np.minimum(np.diff(self.trace.position_offsets) - 1, self.emitted)

    def _any_tokens(self, length: int) -> Interval:
        """The mean of a + 1 that courses of this length can have had, see `log_bounds`.

        An output that ends in an accepted EOS lacks a last token that a + 1 counts.
        """
        begins, ends, left = self._places
        one = np.ones(len(left))
        steps = extremes(begins, ends, *self._starts(length), one, one)
        same = self._same(length)
        reasons = np.array(self.trace.sequences["finish_reason"].to_pylist(), object)
        surplus = (reasons != "length") & (self.steps > 0)
        fewest = np.where(same, self.emitted, self._n_output).sum()
        most = np.where(same, self.emitted, self._n_output + surplus).sum()
        return Interval(float(fewest / steps[:, 1].sum()), float(most / steps[:, 0].sum()))

    def _same(self, length: int) -> np.ndarray:
        """Which requests would have had the very steps that were logged, (S,) bool.

        No draft was longer, and all shorter ones ended in a rejection or with the output.
        """
        last = np.append(self.owner[1:] != self.owner[:-1], True)
        ended = last & (self.emitted > self._n_output)[self.owner]
        as_is = (self.accepted < self.drafted) | (self.drafted == length) | ended
        as_is &= self.drafted <= length
        return np.bincount(self.owner, ~as_is, self.n_requests) == 0

    def _speedups(self, length: int, cut: Interval) -> dict[str, Interval]:
        assert self.charge is not None
        begins, ends, left = self._places
        full = self._prices(length, left)
        least = self._prices(np.clip(left - 1, 0, length), left)
        once = self.charge.prefill["target"] + (self.charge.prefill["draft"] if length else 0.0)
        paid = extremes(begins, ends, *self._starts(length), np.minimum(full, least), full)
        baseline = self.charge.baseline_s
        owners = np.repeat(np.arange(self.n_requests), self.emitted)
        mean = np.bincount(owners, full, self.n_requests)
        sums = self._sums(self.emitted, once, baseline, mean)

        def speed(sums: np.ndarray, per_step: np.ndarray) -> np.ndarray:
            emitted, once_s, baseline_s, price_s = sums[:, -4:].T
            return baseline_s / (once_s + price_s / per_step)

        def ends_of(sums: np.ndarray) -> Ends:
            low, high = self._tokens(sums, length)
            return speed(sums, low), speed(sums, high)

        whole = sums.sum(0, keepdims=True)
        possible = Interval(*(float(speed(whole, np.array([t]))[0]) for t in (1.0, 1.0 + length)))
        totals = once.sum() + paid.sum(0)
        return {
            "band": self._band(ends_of, possible, sums),
            "cut": Interval(*(float(speed(whole, np.array([end]))[0]) for end in cut)),
            "any": Interval(*(float(baseline.sum() / total) for total in totals[::-1])),
        }

    def _prices(self, length: np.ndarray | int, left: np.ndarray) -> np.ndarray:
        """Seconds of a step that drafts so many tokens from each position, (R,)."""
        charge = self.charge
        assert charge is not None
        n = np.repeat(charge.n_prompt, self.emitted)
        context = n + np.repeat(self._n_output, self.emitted) - left + FIRST - 1
        drafted = np.broadcast_to(length, context.shape)
        seconds = charge.drafting.seconds(context, drafted, 1) + charge.drafting.once_s[context]
        return seconds + charge.verify(drafted + 1, context) + charge.times.overhead()
