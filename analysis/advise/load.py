"""Whether advice for a request alone holds where many requests share the machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from analysis.advise.candidates import NONE, Field, Setting
from analysis.serving import ALONE, SEEDS, LoadCurve, closed, crossing, curves
from analysis.stats import Estimate
from analysis.study import Study
from simkit.policies import Fixed
from simkit.simulator.arguments import AnyCost
from traces.errors import UserError

SIZES = (1, 4, 16, 64)
LENGTHS = (1, 2, 3, 5, 8)  # that are served beside the advised setting
UNTIMED = (
    "Load was not simulated, because the times are those of one request: give --cost, or time"
    " batches (simkit latency --grid)."
)


@dataclass(frozen=True)
class AtLoad:
    """What serves the most tokens a second with so many requests in flight.

    Attributes:
        requests: in flight.
        best: the controller; "none" drafts nothing.
        gain: its steady throughput over that without drafts.
        advised: that of the setting that is advised for a request alone.
    """

    requests: int
    best: str
    gain: Estimate
    advised: Estimate


@dataclass(frozen=True)
class LoadAdvice:
    """Under load.

    Attributes:
        at: by requests in flight, ascending.
        off: requests in flight from which on the advised setting loses to no drafts; its note says
            why there is none.
    """

    at: tuple[AtLoad, ...]
    off: Estimate


def under_load(
    found: Field, setting: Setting, cost: AnyCost | None, concurrency: Sequence[int]
) -> LoadAdvice | str:
    """Serve requests with the advised setting, with fixed lengths and without drafts.

    Args:
        found: what was tried.
        setting: that is advised for a request alone.
        cost: that was given.
        concurrency: requests in flight; none: `SIZES`.

    Returns:
        What was found, or why nothing is known.
    """
    if setting.family == NONE:
        return "Load was not simulated, because drafting does not pay even for one request."
    study = found.replays[setting.drafter].study
    if cost is None and not _in_batches(study):
        return UNTIMED
    sizes = sorted(set(concurrency)) or SIZES
    deepest = study.trace.max_draft
    lengths = [str(Fixed(n, max_draft=deepest)) for n in LENGTHS if n <= deepest]
    names = list(dict.fromkeys([ALONE, setting.policy, *lengths]))
    try:
        served = curves(study, names, closed(sizes), cost, SEEDS)
    except UserError as error:
        return f"Load was not simulated: {str(error).rstrip('.')}."
    if setting.policy not in served.of:
        return f"Load was not simulated: {'; '.join(served.gone).rstrip('.')}."
    of, mine = served.of, served.of[setting.policy]
    return LoadAdvice(_at(of, mine, sizes), crossing(mine, of[ALONE]))


def _in_batches(study: Study) -> bool:
    """Whether the trace's own times are of batches too."""
    samples = (study.trace.recording or study.trace).latency()
    return samples is not None and len(samples["batch_size"].unique()) > 1


def _at(
    of: Mapping[str, LoadCurve], advised: LoadCurve, sizes: Sequence[int]
) -> tuple[AtLoad, ...]:
    gains = {name: one.estimates("steady_against") for name, one in of.items()}
    made = []
    for k, size in enumerate(sizes):
        best = max(gains, key=lambda name: gains[name][k].value or 0)
        made.append(AtLoad(size, best, gains[best][k], gains[advised.label][k]))
    return tuple(made)
