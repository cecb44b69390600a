"""Policies as they are replayed: fitted to a setting, refused where drafts lack what they read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from simkit.costs.base import RuleTime
from simkit.drafters.lattice import LatticeLayout
from simkit.drafters.layout import DepthError, Layout
from simkit.errors import PolicyError
from simkit.policies import Branching, Policy, Sequential, Setting, shortened
from traces.errors import TraceError


def fitted(policy: Policy, setting: Setting) -> Policy:
    """The policy as it is replayed: what it reads is there, and it is bound to the setting.

    One pass that yields a whole draft yields Γ tokens: there the draft ends, and a rule's
    `max_draft` goes no further. A length that another argument names, as in `fixed(12)`, stays.

    Raises:
        UserError: see `check_lag`; or the policy lacks what it must be fitted to.
    """
    check_lag(policy, setting.layout)
    deepest = setting.layout.deepest
    within = shortened(policy, deepest) if deepest else policy
    with advised(policy, setting.layout.trace.max_draft):
        return (within or policy).bind(setting)


def known_rule(policy: Policy, setting: Setting) -> RuleTime | None:
    """What a decision of a policy that is not bound yet takes; None for one that makes none.

    Raises:
        UserError: it lacks what it must be fitted to, or as a replay does.
    """
    charge = setting.charge
    if charge is None or not (isinstance(policy, Sequential) and policy.looks):
        return None
    known = charge.times.rule_time(policy.timed_as)
    return known or charge.rule_time(fitted(policy, setting))


def check_lag(policy: Policy, layout: Layout) -> None:
    """Refuse a policy that reads a token's score before a decoder could know it.

    And one that reads what the drafts do not have.

    Raises:
        PolicyError: as said.
        TraceError: there are no scores of its head, or a column of the drafts is not there.
    """
    _check_columns(policy, layout)
    if policy.head is not None and not policy.lag and layout.lag(policy.head):
        raise PolicyError(
            f"{policy}: the head {policy.head} judges a token from the state that has consumed it,"
            " a token late: give lag=1"
        )


def _check_columns(policy: Policy, layout: Layout) -> None:
    """Refuse a policy that reads a column of drafts which theirs lack."""
    if isinstance(policy, Branching) and not layout.has_trees:
        raise PolicyError(
            f"{policy} drafts trees, and {layout.trace.manifest.spec or 'this trace'} holds none:"
            " attach a drafter with --tree, and name it with --drafter"
        )
    if not isinstance(layout, LatticeLayout):
        return
    for name in policy.columns(layout.trace.sampler):
        if name.startswith("score:") or layout.has(name):
            continue
        there = layout.readable
        known = f"{', '.join(there)} alone, or no column" if there else "no column"
        raise TraceError(
            f"{policy} reads the column {name} of drafts, which those of"
            f" {layout.trace.manifest.spec or 'this trace'} have not: take a policy that reads"
            f" {known}, as fixed(5)"
        )


@contextmanager
def advised(policy: Policy, deepest: int) -> Iterator[None]:
    """Say which policy drafted deeper than was recorded, and what to write in its place.

    Args:
        policy: that is replayed within, as it was given.
        deepest: Γ.
    """
    try:
        yield
    except DepthError as error:
        raise advice(policy, deepest, error) from None


def advice(policy: Policy, deepest: int, error: DepthError) -> DepthError:
    """The complaint with the policy's name, and what to write in its place; see `advised`."""
    return DepthError(f"{policy}: {error}{_remedy(policy, deepest)}")


def _remedy(policy: Policy, deepest: int) -> str:
    """How to write a policy that drafts no deeper; nothing where its `max_draft` does not do it."""
    other = shortened(policy, deepest) if isinstance(policy, Sequential) else None
    if other is None or other is policy:
        return ""
    # A function goes by its label, whatever its bound.
    same = str(other) == str(policy)
    return f"; give it max_draft={deepest}" if same else f"; write {other}"
