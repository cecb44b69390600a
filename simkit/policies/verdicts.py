"""What a rule may say: True or False, and lengths in whole numbers. Nothing else is read into it.

A function that forgets to return says None, and a string is true whatever it says: to take either
for a decision would give numbers of another rule.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from simkit.errors import PolicyError
from simkit.policies.base import Row, Sequential, State

RULE = "a rule"  # with which sentences about one begin


def asked(policy: Sequential, state: State, depth: int, row: Row) -> tuple[bool, State]:
    """What a policy's `trips` says.

    Raises:
        PolicyError: that is not whether drafting stops, and the state.
    """
    said = policy.trips(state, depth, row)
    if not isinstance(said, tuple) or len(said) != 2:
        raise PolicyError(f"{policy}: trips must give (stop, state), not {_shown(said)}")
    return verdict(said[0], policy), said[1]


def longest(policy: Sequential, state: State, ahead: int = -1) -> int:
    """The longest draft of a policy's next step, as its `limit` says; see there.

    Raises:
        PolicyError: that is no whole number.
    """
    return whole(policy.limit(state, ahead), policy)


def sent(policy: Sequential, state: State, drafted: int) -> int:
    """How many of the drafted tokens are verified, as a policy's `proposed` says: 0 to all.

    Raises:
        PolicyError: that is no whole number.
    """
    return max(0, min(drafted, whole(policy.proposed(state, drafted), policy)))


def verdict(said: Any, rule: object) -> bool:
    """What a rule has said, if it is a boolean.

    Raises:
        PolicyError: it is something else.
    """
    if said is not True and said is not False and not isinstance(said, np.bool_):
        raise PolicyError(f"{rule}: {not_boolean(_shown(said))}")
    return bool(said)


def whole(given: Any, rule: object) -> int:
    """A length that a rule has given.

    Raises:
        PolicyError: it is no whole number.
    """
    if isinstance(given, bool) or not isinstance(given, int | np.integer):
        raise PolicyError(f"{rule}: {not_whole(_shown(given))}")
    return int(given)


def decisions(policy: Sequential, drafted: np.ndarray | int) -> np.ndarray:
    """Decisions of steps with so many drafted tokens, as a policy's `calls` says, (N,).

    Raises:
        PolicyError: they are no whole numbers.
    """
    found = np.asarray(policy.calls(drafted))
    if found.dtype.kind not in "iu":
        raise PolicyError(f"{policy}: {not_whole(str(found.dtype))}")
    return found


def not_boolean(given: str) -> str:
    """What is wrong with a rule that has given something else."""
    return f"{RULE} must say True or False in every case, not {given}"


def not_whole(given: str) -> str:
    """The same of a length, or of calls."""
    return f"{RULE}'s lengths and calls must be whole numbers, not {given}"


def _shown(value: Any) -> str:
    return " ".join(repr(value).split())[:60]
