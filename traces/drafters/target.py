"""No drafter: what the target says and draws alone. Drafters are attached to it.

Each position has one row, the output's token. A recording without a draft model is of this kind,
and so is a log of chats, of which the tokens alone are known.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from traces import schema
from traces.checks import check_outputs, check_values
from traces.drafters.kind import ByPosition, Shard, register
from traces.errors import TraceError

if TYPE_CHECKING:
    from traces.manifest import Manifest
    from traces.rows import FileRows

_NONE = (
    "the trace has no draft of its own: name an attached drafter with --drafter (simkit"
    " attach adds one)"
)


@register
class TargetAlone(ByPosition):
    """A row for each output token, none of them accepted or rejected; see `DrafterKind`."""

    name = stored = "target"
    layout = "simkit.drafters.path:PathLayout"
    own = ("target_columns",)
    on_path = "target"
    lacks = {
        "path": _NONE,
        "select": "the trace has no draft of its own: select prompts in a trace that has one",
        "live": _NONE,
        "scores": _NONE,
    }
    noun = ("target", "target")

    def tables(self, manifest: Manifest) -> dict[str, pa.Schema]:
        """See `DrafterKind`."""
        return {"target": schema.target(manifest.target_columns)}

    def widest(self) -> dict[str, pa.Schema]:
        """See `DrafterKind`."""
        return {"target": schema.target()}

    def check_header(self, manifest: Manifest) -> None:
        """See `DrafterKind`."""
        for name in manifest.target_columns:
            if name not in schema.TARGET_COLUMNS:
                raise TraceError(f"target_columns names {name!r}, which is not for this trace")

    def check_rows(self, rows: FileRows, shard: Shard) -> Iterator[str]:
        """See `ByPosition`."""
        yield from check_outputs(rows, shard.sequences, shard.manifest)
        yield from check_values(rows, shard.manifest)

    def uses(self, manifest: Manifest) -> str:
        """See `DrafterKind`."""
        return "drafters that are attached to it (simkit attach)"
