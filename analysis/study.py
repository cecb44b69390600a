"""A study: one trace, which pass emits the first token, and what is kept of both while it lasts.

Figures, claims and the report are given one object, so that none of them replays what another has
replayed. A long trace does not stay in memory as a whole: between families of settings its columns
are dropped, where they are many, and read again (`make_room`).
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cached_property
from typing import Literal, TypeVar, cast

from analysis.stats import drafts
from analysis.stats.drafts import Drafts
from analysis.stats.loops import Loops, Outside, split
from simkit import costs
from simkit.drafters import layout_of
from simkit.drafters.layout import Layout
from simkit.drafters.path import PathLayout
from simkit.errors import CostError, ReplayError
from simkit.policies import Setting
from simkit.simulator.arguments import FIRST, AnyCost, AnyTrace, setting
from simkit.simulator.step_costs import Charge
from traces.errors import UserError
from traces.trace import Trace, load

LONG = 5_000_000  # positions of a trace whose replays are not kept from one figure to the next
ROOM_BYTES = 150_000_000  # of a trace's columns, beyond which they are dropped between families
KEPT_COSTS = 4  # whose replays are kept
FirstToken = Literal["draft", "prefill"]
T = TypeVar("T")


class MissingError(UserError):
    """What this trace cannot give; the message says why."""


class Study:
    """A trace and what is kept of it.

    Args:
        trace: of any kind; or its folder, or a bundled trace's name.
        first_token: see `simkit.replay`.

    Raises:
        ReplayError: first_token is neither draft nor prefill.
        TraceError: there is no such trace.

    >>> from analysis import Study
    >>> f"{Study('reference').loops.share:.0%} of the positions repeat a loop"
    '69% of the positions repeat a loop'
    """

    def __init__(self, trace: AnyTrace, first_token: FirstToken = "draft") -> None:
        if first_token not in FIRST:
            raise ReplayError(f"first_token must be draft or prefill, not {first_token!r}")
        self.trace = trace if isinstance(trace, Trace) else load(trace)
        self.first_token: FirstToken = first_token
        self._layout: Layout | None = None
        self._kept: OrderedDict[tuple[AnyCost | None, tuple[int, ...]], object] = OrderedDict()

    @property
    def layout(self) -> Layout:
        """The trace's rows, as its kind of drafter lays them out."""
        if self._layout is None:
            self._layout = layout_of(self.trace)
        return self._layout

    @cached_property
    def loops(self) -> Loops:
        """Where the outputs loop; raises as `loops_of` does."""
        return loops_of(self.trace)

    @property
    def path(self) -> PathLayout:
        """The rows of the output; MissingError for a lattice."""
        layout = self.layout
        if not isinstance(layout, PathLayout):
            raise MissingError("the trace is a lattice: it has no rows on a path")
        return layout

    def need_draft_model(self) -> None:
        """Refuse what means a draft model of its own.

        That is a model that runs beside the target, or its own probabilities and states.

        Raises:
            MissingError: the drafts are those of another program's drafter.
        """
        if not self.trace.has_draft_model:
            if self.trace.manifest.attached_to is not None:
                raise MissingError(
                    "needs a draft model: these drafts are those of"
                    f" {self.trace.manifest.spec}, which runs none"
                )
            source = self.trace.manifest.source
            drafter = f"the drafter {source.drafter}" if source and source.drafter else "a drafter"
            raise MissingError(
                f"needs a draft model of its own: this trace is another program's data, and its"
                f" drafts are those of {drafter}"
            )

    def charge(self, cost: AnyCost | None) -> Charge | None:
        """Times under a cost, None without; raises as `simkit.replay` does."""
        return setting(self.trace, cost, self.first_token, self.layout).charge

    def where(self, charge: Charge | None) -> Setting:
        """What a policy is replayed in."""
        return Setting(self.layout, charge, FIRST[self.first_token])

    def runs(self, outside: Outside | None = None) -> Drafts:
        """Unbroken runs of accepted tokens, from each output's first step on; see `drafts.runs`.

        Args:
            outside: of loops: only there, each stretch a text of its own.
        """
        accepted, offsets = self.trace.positions("accepted"), self.path.offsets
        first = FIRST[self.first_token]
        if outside is None:
            return drafts.runs(accepted, offsets, first)
        return outside.runs(accepted, outside.first(first, offsets))

    def kept(self, cost: AnyCost | None, make: Callable[[], T]) -> T:
        """What `make()` gives for a cost, until the cost's file changes; of a few costs, the last.

        Args:
            cost: an object, a spec or a file's name.
            make: called where there is nothing yet.
        """
        key = cost, _stamp(cost)
        if key not in self._kept:
            self._kept[key] = make()
        self._kept.move_to_end(key)
        while len(self._kept) > KEPT_COSTS:
            self._kept.popitem(last=False)
        return cast(T, self._kept[key])

    def make_room(self, replays: bool = False) -> None:
        """Drop the trace's columns if they take much memory; what is used next is read again.

        Args:
            replays: those that are kept are dropped then, too; of a long trace always, for what
                they hold is no column of it.
        """
        trace = self.trace
        if trace.kept_bytes > ROOM_BYTES or (replays and trace.n_positions > LONG):
            self._layout = None
            if replays:
                self._kept.clear()
            trace.forget()


def loops_of(trace: Trace) -> Loops:
    """Where the outputs of a trace loop.

    Raises:
        MissingError: outputs are not known token by token.
    """
    recording = trace.recording or trace  # an attached drafter has the outputs of its recording
    if not recording.manifest.drafter.known_outputs:
        raise MissingError("outputs are not known token by token, so loops cannot be found")
    tokens = trace.sequences["output_tokens"].combine_chunks().flatten().to_numpy()
    return split(tokens, trace.position_offsets)


def attached(recording: Trace) -> Iterator[tuple[str, Trace]]:
    """The drafters that were attached to a recording, each with its name, but for half attached."""
    for name in recording.drafters:
        with suppress(UserError):
            yield name, recording.with_drafter(name)


def study_of(given: AnyTrace | Study, first_token: FirstToken = "draft") -> Study:
    """A study that there is, or one of a trace; raises as `Study` does."""
    return given if isinstance(given, Study) else Study(given, first_token)


def _stamp(cost: AnyCost | None) -> tuple[int, ...]:
    """When and how large the file of a cost is; empty if it is in none."""
    try:
        model = costs.parse(cost) if isinstance(cost, str) else cost
    except CostError:  # it is refused where it is used, with the reason
        return ()
    file = getattr(model, "file", None) or (cost if isinstance(cost, str) else None)
    if not file or not os.path.exists(file):
        return ()
    found = os.stat(file)
    return found.st_mtime_ns, found.st_size, found.st_ino
