"""What a step of a replay sees, for each kind of drafter (`traces.drafters`)."""

from __future__ import annotations

from importlib import import_module

from simkit.drafters.layout import Layout
from traces.streamed import Streamed
from traces.trace import Trace


def layout_of(trace: Trace) -> Layout:
    """The layout of a trace: the one that its kind of drafter names.

    Raises:
        ReplayError: its outputs' lengths do not fit its limits.
    """
    if isinstance(trace, Streamed):
        from simkit.drafters.streamed import WindowedOutputs

        return WindowedOutputs(trace)
    module, _, name = trace.manifest.drafter.layout.partition(":")
    return getattr(import_module(module), name)(trace)
