"""Drafters from tokens alone that were attached to a recording: alone, and before its own model.

They stand where papers have drafts from n-grams or from a text store, which no recording here
holds: Lookahead, REST, Ouroboros.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from analysis import priced
from analysis.replays import Replayed, Replays, folds, means
from analysis.study import MissingError
from simkit.drafters.route import Route
from simkit.policies import Fixed, parse
from simkit.simulator.routed import RoutedRun, routed
from simkit.sweeps.folds import chosen, outside
from traces.trace import OWN

LEASTS = (1, 2, 3, 4, 6, 8)  # fewest tokens of a proposal that is taken, of which one is chosen
PREFERRED = ("suffix", "ngram", "prompt_lookup")  # before a model, the first that is there


@dataclass(frozen=True, eq=False)
class Hybrid:
    """A lookup first, then the recording's own draft model under a policy.

    Attributes:
        replayed: each prompt with the `least` that is fastest on other prompts.
        least: those that folds chose, by most of them first.
    """

    replayed: Replayed
    least: tuple[int, ...]


def names(at: Replays) -> list[str]:
    """The drafters that propose from tokens alone; none where the trace is no recording."""
    folder = at.trace.path
    if folder is None or not at.trace.has_draft_model or at.trace.recording is not None:
        return []
    found = {name: at.trace.with_drafter(name).manifest for name in at.trace.drafters}
    return [name for name, known in found.items() if known.draft_passes == "none"]


def alone(at: Replays, name: str) -> Replayed:
    """A lookup whose whole proposals are verified.

    Raises:
        UserError: as a replay does.
    """
    there = at.trace.with_drafter(name)
    one = Replays(there, at.cost, at.study.first_token)
    found = one.run(str(Fixed(there.max_draft, max_draft=there.max_draft)))
    return Replayed(
        found.policy,
        found.counts,
        found.seconds or {},
        timing=lambda: found.spread,
        runs=(found,),
        beyond=tuple(found.beyond),
    )


def before(at: Replays, name: str, spec: str) -> Hybrid:
    """A lookup first, then the recording's own draft model.

    Args:
        at: of the recording.
        name: of the lookup.
        spec: the policy of the model.

    Raises:
        MissingError: there are no times.
        UserError: as a replay does.
    """
    _ = at.charge
    runs = [_run(at, name, spec, least) for least in LEASTS]
    deals = folds(at.trace)
    outside_s = np.stack([outside(run.total_s, deals) for run in runs])
    _, share = chosen(outside_s, deals, at.trace.n_sequences)
    order = sorted(share, key=lambda k: -float(share[k].sum()))
    shares = [share[k] for k in order]
    first, beyond = runs[order[0]], tuple(one for k in order for one in runs[k].beyond)
    for arm in first.arms:
        priced.note(arm.layout.trace, at.cost, arm.charge)
    priced.note(at.trace, at.cost, beyond=beyond)
    found = Replayed(
        first.policy,
        means([runs[k].counts for k in order], shares),
        means([runs[k].seconds or {} for k in order], shares),
        shares=tuple(shares),
        timing=lambda: first.spread,
        runs=tuple(runs[k] for k in order),
        beyond=beyond,
    )
    return Hybrid(found, tuple(LEASTS[k] for k in order))


def first_of(at: Replays) -> str:
    """The lookup that stands before a model.

    Raises:
        MissingError: none is attached.
    """
    there = names(at)
    if not there:
        raise MissingError("no drafter from tokens alone is attached (simkit attach)")
    return next((name for name in PREFERRED if name in there), there[0])


def _run(at: Replays, name: str, spec: str, least: int) -> RoutedRun:
    choice = Route((name, OWN), least=least)
    there = [at.trace.with_drafter(name), at.trace]
    (found,) = routed(choice, there, [parse(spec)], at.cost, at.study.first_token)
    return found
