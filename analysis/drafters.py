"""The drafters of one recording side by side: its own, and those that were attached to it."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

import numpy as np

from analysis import outside_loops
from analysis.replays import Replays
from analysis.stats.drafts import Drafts, of_steps
from analysis.study import MissingError, Study
from simkit.simulator.arguments import AnyCost
from traces.errors import UserError
from traces.trace import OWN

ALONE = "has no drafter beside its own: attach some (simkit attach)"


class DrafterGroup(NamedTuple):
    """Drafters of a recording.

    Attributes:
        replays: of each, by its name; the recording's own comes first, if it has one.
        gone: a line for each that is left out, with the reason.
    """

    replays: dict[str, Replays]
    gone: list[str]


def side_by_side(
    study: Study,
    cost: AnyCost | None = None,
    timed: bool = False,
    only: Collection[str] = (),
) -> DrafterGroup:
    """The drafters of a recording, under one cost.

    Args:
        study: of the recording, or of one drafter that is attached to it.
        cost: see `simkit.replay`; None means what was measured with the recording and with each
            drafter.
        timed: leave out those for which there are no times.
        only: names of those that are asked for; none means all.

    Raises:
        MissingError: there is only one drafter; or none has times, and they are asked for.
        UserError: the cost cannot be read.
    """
    trace = study.trace
    recording = trace.recording or trace
    if recording.path is None or not recording.drafters:
        raise MissingError(f"the trace {ALONE}")
    names = ([] if recording.manifest.kind == "target" else [OWN]) + recording.drafters
    names = [name for name in names if not only or name in only]
    found: dict[str, Replays] = {}
    why: dict[str, list[str]] = {}
    for name in names:
        try:
            some = recording.with_drafter(name)
            at = Replays(study if some is trace else Study(some, study.first_token), cost)
            if timed:
                _ = at.charge
        except UserError as error:  # half attached, or without times
            why.setdefault(str(error).rstrip("."), []).append(name)
            continue
        found[name] = at
    gone = [f"{', '.join(some)}: {reason}." for reason, some in why.items()]
    if not found:
        raise MissingError("; ".join(line.rstrip(".") for line in gone))
    return DrafterGroup(found, gone)


def drafts(at: Replays, length: int, apart: bool = False) -> Drafts:
    """The drafts of the steps of `fixed(length)`, of any kind of drafter.

    Args:
        at: one drafter.
        length: γ; a draft that was shorter is censored where it ends.
        apart: of the steps outside of verbatim loops only, which end a draft.

    Raises:
        MissingError: nothing lies outside of loops, or everything.
        UserError: see `simkit.replay`.
    """
    parts = [steps for steps, _ in at.run(f"fixed({length})").pieces()]
    found = [of_steps(steps) for steps in parts]
    if apart:
        rooms = [outside_loops.room(at, steps) for steps in parts]
        found = [_within(one, room) for one, room in zip(found, rooms, strict=True)]
    begins = np.cumsum([0, *(one.offsets[-1] for one in found)])
    offsets = [one.offsets[:-1] + low for one, low in zip(found, begins, strict=False)]
    return Drafts(
        np.concatenate([*offsets, begins[-1:]]),
        np.concatenate([one.accepted for one in found]),
        np.concatenate([one.rejected for one in found]),
    )


def _within(found: Drafts, room: np.ndarray) -> Drafts:
    """Those that begin outside of loops, cut off where one begins."""
    kept = room > 0
    total = np.concatenate([[0], np.cumsum(kept)])
    return Drafts(
        total[found.offsets],
        np.minimum(found.accepted, room)[kept].astype(np.int32),
        (found.rejected & (found.accepted < room))[kept],
    )
