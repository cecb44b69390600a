"""Which iterations rest on times beyond those that were taken.

A pass over n requests is priced by its tokens and its known tokens a request, on average, between
the sizes of batches that were timed: each of them has its own most tokens and longest context.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from simkit.policies import Setting
from simkit.serving.controllers.base import ByRule
from simkit.serving.run import ServingRun
from simkit.serving.state import MADE
from simkit.simulator.beyond import Beyond, of_batched, of_batched_contexts
from simkit.simulator.run import run as replayed
from simkit.simulator.step_costs import Charge


def beyond(charge: Charge, runs: Sequence[ServingRun]) -> list[Beyond]:
    """What of runs, and of their trace, lies beyond what was timed.

    Args:
        charge: that priced them.
        runs: of one trace.
    """
    most = _Most(charge, runs)
    batched = [one for run in runs for one in _of_run(charge, most, run)] if most.ends else []
    return [*charge.beyond, *batched]


class _Most:
    """How far passes were timed over so many sequences; infinite where times have no end."""

    def __init__(self, charge: Charge, runs: Sequence[ServingRun]) -> None:
        tables = (run.plan.prices.verify.sizes for run in runs)
        self.sizes = max(tables, key=len, default=np.ones(1, np.int64))
        alike = [charge.times.of_batch(int(size)) for size in self.sizes]
        self.timed = {
            "target": [one.most_tokens("target") for one in alike],
            "draft": [one.most_tokens("draft") for one in alike],
            "context": [one.longest_context for one in alike],
        }

    @property
    def ends(self) -> bool:
        """Whether anything ends."""
        return any(n is not None for some in self.timed.values() for n in some)

    def of(self, what: str, requests: np.ndarray) -> np.ndarray:
        """At each number of requests the less of the two sizes between which it lies."""
        known = np.array([np.inf if n is None else n for n in self.timed[what]])
        low = np.clip(np.searchsorted(self.sizes, requests, "right") - 1, 0, len(known) - 1)
        high = np.clip(np.searchsorted(self.sizes, requests), low, len(known) - 1)
        return np.minimum(known[low], known[high])


def _of_run(charge: Charge, most: _Most, run: ServingRun) -> list[Beyond]:
    if run.plan.outcomes.step_s.shape[1]:  # each request's steps are those of a replay
        assert isinstance(run.controller, ByRule)
        where = Setting(run.plan.layout, charge, run.plan.outcomes.first)
        return replayed(run.controller.policy, *where).beyond
    passes, name, found = _Passes(charge, run), str(run.controller), []
    for model, tokens in (("target", passes.verified), ("draft", passes.drafted)):
        limit = most.of(model, passes.requests)
        some = tokens > limit
        if some.any():
            timed = int(limit[some].min())
            found.append(of_batched(name, passes.share(some), model, timed))
    limit = most.of("context", passes.requests)
    alone = charge.times.longest_context or np.inf  # which all outputs are held to, see `Charge`
    some = (passes.context > limit) & (limit < alone)
    if some.any():
        timed = int(limit[some].min())
        found.append(of_batched_contexts(name, passes.share(some), timed))
    return found


class _Passes:
    """The passes of each iteration of a run, as they are priced: a request's part, on average."""

    def __init__(self, charge: Charge, run: ServingRun) -> None:
        self.charge, self.run, self.plan = charge, run, run.plan
        self.steps, self.iterations = run.steps, run.iterations
        self.requests = self.iterations["decoding"]

    def share(self, some: np.ndarray) -> float:
        """Of all iterations that decode, some of these, (I,) bool."""
        return float(np.count_nonzero(some) / np.count_nonzero(self.requests))

    @cached_property
    def verified(self) -> np.ndarray:
        """Tokens in the target's pass, (I,) float64; 0 without one."""
        n, prices = self.requests, self.plan.prices
        if not self.plan.rules.speculative:
            return np.minimum(n, 1)
        tokens = n + self.iterations["proposed"]
        if not prices.ragged:
            longest = np.zeros(len(n))
            np.maximum.at(longest, self.steps["iteration"], self.steps["proposed"])
            tokens = n * (longest + 1)
        if len(prices.captured) and prices.by_tokens:
            at = np.searchsorted(prices.captured, tokens)
            tokens = np.append(prices.captured, 0)[at] + np.where(
                at == len(prices.captured), tokens, 0
            )
        return tokens / np.maximum(n, 1)

    @cached_property
    def drafted(self) -> np.ndarray:
        """Tokens in the draft's widest pass, (I,) float64; 0 without one."""
        prices, drafts = self.plan.prices, self.steps["drafted"] > 0
        if not prices.from_model or not drafts.any():
            return np.zeros(len(self.requests))
        unread, missed = self._unread
        asked = self.steps["drafted"]
        if self.plan.outcomes.steps.shape[1]:
            asked = self.plan.outcomes.steps[MADE.asked, self._planned]
        reads = 1 + missed if prices.catch_up else self.charge.drafting.widest(asked, unread)
        found = self._means(reads, drafts)
        if prices.extra:
            found = np.maximum(found, self.verified)
        for level in range(1, self.plan.outcomes.widths.shape[1]):
            nodes = self.plan.outcomes.widths[self._planned, level]
            found = np.maximum(found, self._means(nodes, nodes > 0))
        return found

    @cached_property
    def context(self) -> np.ndarray:
        """Known tokens, (I,) float64; 0 where nothing is decoded."""
        of = self.run.server.sequence[self.steps["request"]]
        known = self.plan.layout.n_prompt[of] + self.steps["start"] - 1
        return self._means(known, np.ones(len(known), bool))

    def _means(self, values: np.ndarray, some: np.ndarray) -> np.ndarray:
        """The mean of some steps' values in each iteration, (I,); 0 without any."""
        which, n = self.steps["iteration"][some], len(self.requests)
        count = np.bincount(which, minlength=n)
        return np.bincount(which, values[some], n) / np.maximum(count, 1)

    @cached_property
    def _in_order(self) -> tuple[np.ndarray, np.ndarray]:
        """The steps by request, and of each of these the place where its request's first one is."""
        order = np.argsort(self.steps["request"], kind="stable")
        request = self.steps["request"][order]
        return order, np.searchsorted(request, request)

    @cached_property
    def _planned(self) -> np.ndarray:
        """Of each step its column in `ServedOutcomes.steps`."""
        order, first = self._in_order
        sequence = self.run.server.sequence[self.steps["request"][order]]
        found = np.empty(len(order), np.int64)
        found[order] = self.plan.outcomes.step_offsets[sequence] + np.arange(len(order)) - first
        return found

    @property
    def _unread(self) -> tuple[np.ndarray, np.ndarray]:
        """See `simkit.serving.state.Server`: `unread` and `missed` before each step, (M,) each."""
        order, first = self._in_order
        emitted = self.steps["emitted"][order].astype(np.int64)
        before, at = np.cumsum(emitted) - emitted, np.arange(len(order))
        last = np.maximum.accumulate(np.where(self.steps["drafted"][order] > 0, at, -1))
        last = np.append(-1, last[:-1])
        begun = last >= first
        since = np.where(begun, last, first)
        unread, missed = np.empty((2, len(order)), np.int64)
        unread[order] = before - before[since] + ~begun
        missed[order] = before - before[since] - np.where(begun, emitted[since], 0)
        return unread, missed
