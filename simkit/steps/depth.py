"""What to write in the place of a policy that drafts deeper than was recorded."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from simkit.drafters.layout import DepthError
from simkit.policies import Policy, shortened


@contextmanager
def advised(policy: Policy) -> Iterator[None]:
    """Say which policy drafted deeper than was recorded, and what to write in its place.

    Args:
        policy: that is replayed within, as it was given.
    """
    try:
        yield
    except DepthError as error:
        raise advice(policy, error) from None


def advice(policy: Policy, error: DepthError) -> DepthError:
    """The complaint with the policy's name, and what to write in its place; see `advised`."""
    return DepthError(f"{policy}: {error}{_remedy(policy, error.deepest)}", error.deepest)


def _remedy(policy: Policy, deepest: int) -> str:
    """How to write a policy that drafts no deeper; nothing where its `max_draft` does not do it."""
    other = shortened(policy, deepest) if policy.takes_turns else None
    if other is None or other is policy:
        return ""
    # A function goes by its label, whatever its bound.
    same = str(other) == str(policy)
    return f"; give it max_draft={deepest}" if same else f"; write {other}"
