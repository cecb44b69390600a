"""Policies that draft a chain of tokens, then verify it."""

from __future__ import annotations

from typing import Any

import numpy as np

from simkit.drafters.lattice import LatticeLayout
from simkit.drafters.layout import Layout, Span
from simkit.policies import NumericPolicy, Sequential
from simkit.policies.verdicts import decisions
from simkit.steps import compiled, interpreted
from simkit.steps.family import Family
from simkit.steps.loop_tables import LoopPrices
from simkit.steps.steps import Steps, Sums, extra_passes
from simkit.steps.work import Work
from traces.errors import TraceError


class ChainFamily(Family[Sequential, Steps]):
    """See the module."""

    by_row = True

    def walk(
        self, policy: Sequential, layout: Layout, first: int, span: Span | None = None
    ) -> Steps:
        """See `Family`: by the fastest way there is for the policy."""
        if isinstance(policy, NumericPolicy) and compiled.compiles(policy):
            return compiled.walk(policy, layout, first, span)
        return interpreted.walk(policy, layout, first)

    def work(self, policy: Sequential, steps: Steps, layout: Layout) -> Work:
        """See `Family`."""
        again = extra_passes(policy, layout) > 0
        return Work(
            steps.known(layout),
            steps.proposed + 1,
            steps.asked,
            steps.unread if layout.reads_back and not again else 1,
            decisions(policy, steps.drafted) if policy.looks else np.zeros(len(steps), np.int64),
            again=again,
            reads=lambda: layout.experts.union(steps.row(layout), steps.proposed + 1),
        )

    def loops(self, policy: Sequential) -> bool:
        """See `Family`."""
        return isinstance(policy, NumericPolicy) and compiled.compiles(policy)

    def sums(
        self,
        policy: Sequential,
        layout: Layout,
        first: int,
        prices: LoopPrices,
        span: Span | None = None,
    ) -> Sums:
        """See `Family`."""
        assert isinstance(policy, NumericPolicy)
        return compiled.total(policy, layout, first, prices, span)

    def kind(self, policy: Sequential, layout: Layout) -> tuple[Any, ...] | None:
        """See `Family`."""
        if not isinstance(policy, NumericPolicy) or not compiled.compiles(policy):
            return None
        return compiled.rule(policy).params, policy.columns(layout.trace.sampler)

    def check(self, policy: Sequential, layout: Layout) -> None:
        """See `Family`."""
        if not isinstance(layout, LatticeLayout):
            return
        for name in policy.columns(layout.trace.sampler):
            if name.startswith("score:") or layout.has(name):
                continue
            there = layout.readable
            known = f"{', '.join(there)} alone, or no column" if there else "no column"
            raise TraceError(
                f"{policy} reads the column {name}, which drafts of"
                f" {layout.trace.manifest.spec or 'this trace'} do not have: take a policy that"
                f" reads {known}, such as fixed(5)"
            )


FAMILY = ChainFamily()
