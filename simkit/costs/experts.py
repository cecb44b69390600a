"""Costs that price a target's pass by the experts that its tokens read."""

from __future__ import annotations

from simkit.errors import CostError
from traces.manifest import ExpertsInfo
from traces.trace import Trace


def experts_of(trace: Trace, cost: str) -> ExpertsInfo:
    """The experts of a trace that says which ones its tokens read.

    Args:
        trace: that is priced.
        cost: the name of the kind.

    Raises:
        CostError: it does not say.
    """
    manifest = trace.manifest
    if manifest.experts is not None:
        return manifest.experts
    if manifest.attached_to is not None:
        raise CostError(
            f"{cost} prices passes by the experts that they read, and those of {manifest.spec} were"
            " not recorded: a trace has only those of the draft model that it was recorded with"
        )
    raise CostError(
        f"{cost} prices passes by the experts that they read, which this trace does not have:"
        " record it with --experts"
    )


def unknown(cost: str) -> CostError:
    """What to say where a pass is to be priced, and its experts are not known."""
    return CostError(
        f"{cost} prices passes by the experts that they read: these are known for the steps of a"
        " replay, but not for passes that a rule, a bound or a server plans ahead"
    )
