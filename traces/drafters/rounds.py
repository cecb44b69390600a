"""A draft model whose children are drawn without replacement: a round for each position.

See `traces.record.drafters.rounds`. It replays fixed trees, and chains of a fixed length, whose
only child is the first that was drawn.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from traces import schema
from traces.checks import check_keys
from traces.drafters.kind import DrafterKind, Shard, register
from traces.errors import TraceError

if TYPE_CHECKING:
    from traces.manifest import Manifest
    from traces.trace import Trace


@register
class Rounds(DrafterKind):
    """A row for each output token; see `DrafterKind`."""

    name = stored = "rounds"
    layout = "simkit.drafters.rounds:RoundsLayout"
    own = ("width",)
    lacks = {
        "path": "the trace holds rounds alone: it has no rows of drafts",
        "select": "the trace holds rounds: only of a trace of rows can prompts be selected",
        "live": "the trace holds rounds: no live decoder draws children without replacement",
        "scores": "rounds have no states to make them from",
    }
    noun = ("round", "rounds")

    def widest(self) -> dict[str, pa.Schema]:
        """See `DrafterKind`."""
        return {"rounds": schema.ROUNDS}

    def check_header(self, manifest: Manifest) -> None:
        """See `DrafterKind`."""
        if manifest.width < 1:
            raise TraceError("a trace of rounds must say how many there are (width)")
        if manifest.draft_passes != "token":
            raise TraceError("draft_passes must be token: rounds are those of a draft model")

    def check_shard(self, shard: Shard) -> Iterator[str]:
        """See `DrafterKind`."""
        (table,) = self.tables(shard.manifest).items()
        rows, sequences = shard.rows(*table), shard.sequences
        key, n_output = sequences["sequence"].to_numpy(), sequences["n_output"].to_numpy()
        problems = list(check_keys(rows, key, n_output))
        yield from problems
        if not problems and rows.has("round"):
            most = shard.manifest.width
            wrong = (rows["round"] < 0) | (rows["round"] > most)
            yield from rows.problems(wrong, f"round is {{round}}, the trace has {most}")

    def n_positions(self, trace: Trace) -> int:
        """See `DrafterKind`."""
        return trace.rows("rounds")

    def offsets(self, trace: Trace, table: str) -> np.ndarray:
        """See `DrafterKind`: a row each."""
        return np.arange(trace.n_positions + 1)

    def outcomes(self, trace: Trace) -> tuple[str, slice]:
        """See `DrafterKind`."""
        return "rounds", slice(None)

    def uses(self, manifest: Manifest) -> str:
        """See `DrafterKind`."""
        return f"fixed trees of nodes with up to {manifest.width} children, and fixed lengths"
