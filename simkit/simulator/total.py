"""The sums of a policy's steps and their seconds, by the fastest way there is for its family."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from simkit.drafters.layout import Layout, Span
from simkit.policies import Policy, Setting
from simkit.steps.family import add_up, family_of
from simkit.steps.loop_tables import NO_PRICES, LoopPrices
from simkit.steps.steps import Steps, Sums, extra_passes

if TYPE_CHECKING:
    from simkit.simulator.step_costs import Charge

Seconds = dict[str, np.ndarray]


def total(
    policy: Policy, setting: Setting, span: Span | None = None
) -> tuple[Sums, Seconds | None]:
    """The sums of each sequence, and its seconds.

    Args:
        policy: as `bind` gave it.
        setting: that it was bound to.
        span: sequences to replay; None means all. Only a policy that `divides` can be cut so.
    """
    layout, charge, first = setting
    family = family_of(policy)
    if family.loops(policy) and (prices := _prices(policy, layout, charge)) is not None:
        sums = family.sums(policy, layout, first, prices, span)
        return sums, charge.of_sums(policy, sums, span) if charge else None
    steps = family.walk(policy, layout, first, span)
    work = family.work(policy, steps, layout)
    sums = add_up(steps, work)
    if not charge:
        return sums, None
    seconds = charge.of_work(policy, steps, work)
    which, n = steps.sequence - steps.low, len(steps.counts)
    added = {part: np.bincount(which, values, n) for part, values in seconds.items()}
    return sums, added | charge.of_outputs(sums, slice(steps.low, steps.low + n))


def each(
    policy: Policy, setting: Setting, span: Span | None = None
) -> tuple[Steps, Seconds | None]:
    """Every step, and the seconds of each; the arguments are those of `total`."""
    steps = family_of(policy).walk(policy, setting.layout, setting.first, span)
    return steps, setting.charge.of_steps(policy, steps) if setting.charge else None


def divides(policy: Policy, setting: Setting) -> bool:
    """Whether a span of sequences can be replayed alone; the arguments are those of `total`."""
    return family_of(policy).in_pieces or (policy.carried != "run" and adds_up(policy, setting))


def adds_up(policy: Policy, setting: Setting) -> bool:
    """Whether `total` keeps no single step; the arguments are those of `total`."""
    if not family_of(policy).loops(policy):
        return False
    return _prices(policy, setting.layout, setting.charge) is not None


def _prices(policy: Policy, layout: Layout, charge: Charge | None) -> LoopPrices | None:
    """The loop's tables; None if they are too large, or a kind of drafter has passes of its own."""
    if callable(layout.paid):
        return None
    if charge is None:
        return NO_PRICES
    if charge.times.by_experts:  # no table has what a pass reads
        return None
    longest = layout.trace.max_new_tokens
    deepest = min(policy.max_draft, longest - 1)
    table = charge.verify_table(deepest)
    if table is None:
        return None
    drafting = charge.drafting
    found = LoopPrices(layout.n_prompt, drafting.sum_s, drafting.before_s, table)
    if opening := drafting.opening:
        blocks = drafting.blocks(opening.tokens(layout.deepest or 0, longest))
        if blocks is None:
            return None
        found = found._replace(opening=opening, blocks=blocks)
    if extra_passes(policy, layout):
        extra = drafting.block(np.arange(deepest + 1) + 1, charge.contexts[:, None])
        found = found._replace(extra=extra)
    return found
