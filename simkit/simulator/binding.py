"""Policies as they are replayed: fitted to a setting, refused where drafts lack what they read."""

from __future__ import annotations

from simkit.costs.base import RuleTime
from simkit.drafters.layout import Layout
from simkit.errors import PolicyError
from simkit.policies import Policy, Setting, shortened
from simkit.steps.depth import advised
from simkit.steps.family import family_of


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
    with advised(policy):
        return (within or policy).bind(setting)


def known_rule(policy: Policy, setting: Setting) -> RuleTime | None:
    """What a decision of a policy that is not bound yet takes; None for one that makes none.

    Raises:
        UserError: it lacks what it must be fitted to, or as a replay does.
    """
    charge = setting.charge
    if charge is None or not policy.looks:
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
    family_of(policy).check(policy, layout)
    if policy.head is not None and not policy.lag and layout.lag(policy.head):
        raise PolicyError(
            f"{policy}: the head {policy.head} judges a token from the state that has consumed it,"
            " a token late: give lag=1"
        )
