"""A drafter whose proposal depends on where the draft starts.

Parallel drafters, chains on the target's features, n-grams, imported lengths: each start has a
draft of its own, and drafts share nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from traces import schema
from traces.checks_lattice import check_lattice
from traces.drafters.kind import DrafterKind, Shard, register, run_offsets
from traces.errors import TraceError

if TYPE_CHECKING:
    from traces.manifest import Manifest
    from traces.trace import Trace


@register
class Lattice(DrafterKind):
    """A row for each (start, depth); see `DrafterKind`."""

    name = stored = "lattice"
    layout = "simkit.drafters.lattice:LatticeLayout"
    own = ("lattice_columns", "draft_ends")
    known_outputs = False
    lacks = {
        "path": "the trace is a lattice: it has no rows on a path",
        "select": "the trace is a lattice: only of a trace of rows can prompts be selected",
        "live": "the trace is a lattice: a live decoder runs an autoregressive draft model, and its"
        " drafts are those of none",
        "scores": "a lattice has no states to make them from",
    }
    noun = ("lattice", "lattice")

    def tables(self, manifest: Manifest) -> dict[str, pa.Schema]:
        """See `DrafterKind`."""
        return {"lattice": schema.lattice(manifest.lattice_columns)}

    def widest(self) -> dict[str, pa.Schema]:
        """See `DrafterKind`."""
        return {"lattice": schema.lattice()}

    def check_header(self, manifest: Manifest) -> None:
        """See `DrafterKind`."""
        for name in manifest.lattice_columns:
            if name not in schema.LATTICE_COLUMNS:
                raise TraceError(f"lattice_columns names {name!r}, which is not for this trace")

    def check_shard(self, shard: Shard) -> Iterator[str]:
        """See `DrafterKind`."""
        (table,) = self.tables(shard.manifest).items()
        yield from check_lattice(shard.rows(*table), shard.sequences, shard.manifest)

    def offsets(self, trace: Trace, table: str) -> np.ndarray:
        """See `DrafterKind`: of the draft from each position."""
        return run_offsets(trace, table, "start")

    def outcomes(self, trace: Trace) -> tuple[str, np.ndarray]:
        """See `DrafterKind`: rows in the output before which their draft had no rejected one."""
        rejected = ~trace.lattice("accepted")
        before = np.cumsum(rejected) - rejected
        begins = trace.lattice_offsets[:-1]
        begins = begins[begins < len(before)]
        rows = np.arange(len(before))
        reached = before == before[begins][np.searchsorted(begins, rows, side="right") - 1]
        return "lattice", reached & _is_inside(trace)

    def uses(self, manifest: Manifest) -> str:
        """See `DrafterKind`."""
        names = ", ".join(manifest.lattice_columns)
        return f"policies that read {names}" if names else "policies that read no column"


def _is_inside(trace: Trace) -> np.ndarray | bool:
    """Which rows of an attached drafter stand at positions that the output has.

    An output that was stopped for other reasons says nothing of what was drafted behind it.
    """
    if trace.manifest.attached_to is None:
        return True
    sequence, start, depth = (
        trace.uncached("lattice", key) for key in schema.lattice(()).names[:3]
    )
    index = np.searchsorted(trace.sequences["sequence"].to_numpy(), sequence)
    return start + depth - 1 <= trace.sequences["n_output"].to_numpy()[index]
