"""Attach a drafter to a recording, from Python."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from traces.attach import registry
from traces.attach.drafter import Attachable, Means
from traces.attach.run import attach as run
from traces.errors import warn
from traces.trace import load
from traces.writer import folder_to_write

if TYPE_CHECKING:
    from traces.trace import Trace


def attach(
    trace: str | Path,
    drafter: str | Attachable,
    name: str | None = None,
    *,
    target: str | None = None,
    max_draft: int = 40,
    draft_temperature: float | None = None,
    columns: Sequence[str] | None = None,
    tree: Sequence[str] = (),
    device: str = "auto",
    dtype: str | None = None,
    revision: str | None = None,
    resume: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Trace:
    """Attach a drafter to a trace: what it would draft from every position of the outputs.

    `trace` is a folder, `drafter` a spec (`simkit list drafters`) or a drafter. Its name in the
    trace is that of its kind unless `name` is given. Other args are those of
    `traces.attach.drafter.Means`. With `resume` a stopped run goes on. `progress` is told how many
    prompts are done, and of how many. Warns of what should be known of the run.

    Returns:
        The trace with the drafter's drafts.

    Raises:
        DrafterError: there is no such drafter, or it does not fit the trace.
        TraceError: the folder cannot be written.

    >>> mine = simkit.record(f"{MODELS}/target", ["def add(a, b):"], "mine", max_new_tokens=8)
    >>> there = simkit.attach("mine", "prompt_lookup(length=4)")
    >>> simkit.replay(there, "fixed(2)").records()[0]["steps"] <= 8
    True
    """
    there = load(trace)
    folder_to_write(there, trace)
    chosen = registry.parse(drafter) if isinstance(drafter, str) else drafter
    if chosen.runs_models:
        import_module("traces.record.pair").quiet()
    kept = None if columns is None else tuple(columns)
    means = Means(target, device, dtype, revision, max_draft, draft_temperature, kept, tuple(tree))
    told = progress or (lambda done, of: None)
    found = run(there, chosen, name, means, resume, lambda n: told(n, there.n_sequences))
    for note in found.notes:
        warn(note)
    return load(trace, found.name)
