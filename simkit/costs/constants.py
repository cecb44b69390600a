"""The seconds that no pass explains, as arguments that several kinds of costs share."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any, TypeGuard

from simkit.errors import CostError
from traces.drafters.passes import FORMS, Form

_LARGEST = 10**300  # of whole numbers: a float holds no more
_MOST = 10**6  # sequences, and whole seconds that stay whole: their products fit 64 bits


@dataclass(frozen=True, kw_only=True)
class Constants:
    """Arguments and methods of the parts of `Times` that are one number each.

    Attributes:
        overhead_s: per step of speculative decoding, outside the passes.
        baseline_overhead_s: per token of autoregressive decoding, outside the passes. Its own
            argument, since a loop around one pass does less than one that drafts and compares.
        policy_s: per decision of a policy that looks at drafted tokens.
        head_s: per call of a learned head, whichever.
        resample_s: drawing anew after a rejection.
        communication_s: per step in which draft and target run at the same time.
        parallel: what the one pass of a parallel drafter holds: "kept", "padded" or "last", see
            `traces.drafters.passes.Form`.

    Raises:
        CostError: a time is negative or not finite, or there is no such form.
    """

    overhead_s: float = 0.0
    baseline_overhead_s: float = 0.0
    policy_s: float = 0.0
    head_s: float = 0.0
    resample_s: float = 0.0
    communication_s: float = 0.0
    parallel: Form = "kept"

    def __post_init__(self) -> None:
        check_fields(self)

    def overhead(self) -> float:
        """See `Times`."""
        return self.overhead_s

    def baseline_overhead(self) -> float:
        """See `Times`."""
        return self.baseline_overhead_s

    def policy(self, name: str) -> float:
        """See `Times`."""
        return self.policy_s

    def head(self, name: str) -> float:
        """See `Times`."""
        return self.head_s

    def resample(self) -> float:
        """See `Times`."""
        return self.resample_s

    def communication(self) -> float:
        """See `Times`."""
        return self.communication_s


def check_fields(cost: Any) -> None:
    """Check a cost's texts, flags, `batch_size` and `parallel`, and its fields that are seconds.

    Seconds are `…_s`, but not rates, `…_per_s`. Large whole numbers of them become floats: products
    with whole numbers of tokens would overflow.

    Raises:
        CostError: a time is negative or not finite, or another field is not of its kind (None
            passes where it is the default).
    """
    name = getattr(cost, "name", type(cost).__name__)
    for field in fields(cost):
        value = getattr(cost, field.name)
        if value is None and field.default is None:
            continue
        kind, ours = str(field.type).removesuffix(" | None"), f"{name}: {field.name}"
        if kind == "str" and not isinstance(value, str):
            raise CostError(f"{ours} must be a text, not {value!r}")
        if kind == "bool" and not isinstance(value, bool):
            raise CostError(f"{ours} must be true or false, not {value!r}")
        if field.name == "batch_size":
            check_batch(name, value)
        if not field.name.endswith("_s") or field.name.endswith("_per_s"):
            continue
        if not (is_number(value) and value >= 0):
            raise CostError(f"{ours} must be a number >= 0, not {value!r}")
        if value > _MOST:
            object.__setattr__(cost, field.name, float(value))
    if cost.parallel not in FORMS:
        known = ", ".join(FORMS)
        raise CostError(f"{name}: parallel must be one of {known}, not {cost.parallel!r}")


def check_batch(cost: str, batch: Any) -> None:
    """Refuse what is no number of sequences in a pass.

    Raises:
        CostError: it is no whole number, below 1 or above a million.
    """
    if type(batch) is not int or not 1 <= batch <= _MOST:
        most = " and at most a million" if type(batch) is int and batch > _MOST else ""
        raise CostError(f"{cost}: batch_size must be an integer >= 1{most}, not {batch!r}")


def is_number(value: Any) -> TypeGuard[float]:
    """Whether it is an int or a float, and finite."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    return math.isfinite(value) if isinstance(value, float) else abs(value) < _LARGEST
