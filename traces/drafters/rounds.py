"""A draft model whose children are drawn without replacement: a round for each position.

See `traces.record.drafters.rounds`. It replays fixed trees, and chains of a fixed length, whose
only child is the first that was drawn.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from traces import schema
from traces.drafters.kind import ByPosition, Shard, register
from traces.errors import TraceError

if TYPE_CHECKING:
    from traces.manifest import Manifest
    from traces.rows import FileRows


@register
class Rounds(ByPosition):
    """A row for each output token; see `DrafterKind`."""

    name = stored = "rounds"
    layout = "simkit.drafters.rounds:RoundsLayout"
    own = ("width",)
    on_path = "rounds"
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

    def check_rows(self, rows: FileRows, shard: Shard) -> Iterator[str]:
        """See `ByPosition`."""
        if rows.has("round"):
            most = shard.manifest.width
            wrong = (rows["round"] < 0) | (rows["round"] > most)
            yield from rows.problems(wrong, f"round is {{round}}, the trace has {most}")

    def uses(self, manifest: Manifest) -> str:
        """See `DrafterKind`."""
        return f"fixed trees of nodes with up to {manifest.width} children, and fixed lengths"
