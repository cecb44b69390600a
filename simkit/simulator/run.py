"""One policy replayed on one trace."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simkit.policies import NumericPolicy, Policy
from simkit.simulator import plain
from simkit.simulator.charge import PARTS, Charge, add_up
from simkit.simulator.layout import PathLayout
from simkit.simulator.steps import Steps, Sums


@dataclass(frozen=True, eq=False)
class Run:
    """One policy's sums over the steps of each sequence, arrays of shape (S,).

    Attributes:
        policy: that was replayed.
        layout: of the trace.
        charge: the costs; None if there are none.
        first: position of each sequence's first step.
        counts: steps, drafted, proposed, accepted, emitted; int64.
        seconds: the parts of the time, and the baseline; None without costs.
    """

    policy: Policy
    layout: PathLayout
    charge: Charge | None
    first: int
    counts: dict[str, np.ndarray]
    seconds: dict[str, np.ndarray] | None

    @property
    def total_s(self) -> np.ndarray:
        """Seconds of each sequence, all parts together."""
        assert self.seconds is not None
        return np.sum([self.seconds[part] for part in PARTS], axis=0)

    def steps(self) -> tuple[Steps, dict[str, np.ndarray] | None]:
        """Every step, replayed anew, and the seconds of each."""
        steps = walk(self.policy, self.layout, self.first)
        return steps, self.charge.of_steps(self.policy, steps) if self.charge else None


def run(policy: Policy, layout: PathLayout, charge: Charge | None, first: int) -> Run:
    """Replay a policy.

    Raises:
        UserError: see `walk`; or a time is negative or not finite.
    """
    sums = _sums(policy, layout, charge, first)
    counts = {
        "steps": sums.steps,
        "drafted": sums.drafted,
        "proposed": sums.proposed,
        "accepted": sums.accepted,
        "emitted": layout.n_output - first + 1,
    }
    seconds = charge.of_sums(policy, sums) if charge else None
    return Run(policy, layout, charge, first, counts, seconds)


def walk(policy: Policy, layout: PathLayout, first: int) -> Steps:
    """Every step of a policy, by the fastest way there is for it.

    Raises:
        ReplayError: the policy wants a row that was not recorded.
        PolicyError: the policy does not hold under the trace's sampler.
        TraceError: a column that it reads was not recorded.
    """
    if not isinstance(policy, NumericPolicy):
        return plain.walk(policy, layout, first)
    from simkit.simulator import compiled

    engine = compiled if compiled.compiles(policy) else plain
    return engine.walk(policy, layout, first)


def _sums(policy: Policy, layout: PathLayout, charge: Charge | None, first: int) -> Sums:
    if isinstance(policy, NumericPolicy):
        from simkit.simulator import compiled

        prices = compiled.NO_PRICES
        longest = min(policy.max_draft, layout.trace.max_new_tokens - 1)
        table = charge.verify_table(longest) if charge else None
        if charge is not None and table is not None:
            prices = compiled.Prices(layout.n_prompt, charge.draft_sum, table)
        if compiled.compiles(policy) and (charge is None or table is not None):
            return compiled.total(policy, layout, first, prices)
    steps = walk(policy, layout, first)
    return add_up(steps, charge.of_steps(policy, steps) if charge else None)
