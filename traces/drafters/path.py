"""A draft model with a cache: its next token depends on the tokens before it alone.

So drafts from all starts share one row for each output position, and one branch behind each
rejected one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from traces import schema
from traces.checks import check_branches, check_positions
from traces.checks_states import check_experts, check_hidden, check_mixed
from traces.drafters.kind import ByPosition, Shard, register, run_offsets
from traces.errors import TraceError
from traces.messages import how_many

if TYPE_CHECKING:
    from traces.manifest import Manifest
    from traces.rows import FileRows
    from traces.trace import Trace


@register
class OnPath(ByPosition):
    """Rows on the path and branches off it; see `DrafterKind`."""

    name = "path"
    stored = "rows"
    layout = "simkit.drafters.path:PathLayout"
    own = ("path_columns", "experts")
    on_path = "positions"
    noun = ("branch", "branches")

    def tables(self, manifest: Manifest) -> dict[str, pa.Schema]:
        """See `DrafterKind`."""
        branches = schema.BRANCHES_WITH_TARGET if manifest.branch_target else schema.BRANCHES
        tables = {"positions": schema.POSITIONS, "branches": branches}
        if not manifest.path_columns:
            return tables
        few = manifest.path_columns
        return {name: schema.with_few(table, few) for name, table in tables.items()}

    def widest(self) -> dict[str, pa.Schema]:
        """See `DrafterKind`."""
        return {"positions": schema.POSITIONS, "branches": schema.BRANCHES_WITH_TARGET}

    def check_header(self, manifest: Manifest) -> None:
        """See `DrafterKind`: every token is a pass."""
        if manifest.draft_passes != "token":
            raise TraceError("draft_passes must be token where drafts share the rows of a path")
        for name in manifest.path_columns:
            if name not in schema.STATISTICS:
                raise TraceError(f"path_columns names {name!r}, which is no statistic")

    def check_rows(self, rows: FileRows, shard: Shard) -> Iterator[str]:
        """See `ByPosition`."""
        manifest, sequences = shard.manifest, shard.sequences
        branches = shard.rows("branches", self.tables(manifest)["branches"])
        yield from check_positions(rows, sequences, manifest)
        yield from check_branches(branches, rows, manifest)
        key, n_prompt, n_output = (
            sequences[name].to_numpy() for name in ("sequence", "n_prompt", "n_output")
        )
        for table in shard.states:
            states = shard.rows(table, schema.with_state(table, shard.state_width(table)))
            if table == "hidden":
                yield from check_hidden(states, rows, branches, key, n_prompt)
            elif table == "experts":
                yield from check_experts(states, rows, branches, key, n_output, manifest)
            else:
                yield from check_mixed(states, rows, manifest)

    def offsets(self, trace: Trace, table: str) -> np.ndarray:
        """See `DrafterKind`; a branch is one of the position where its draft is rejected."""
        if table == self.on_path:
            return super().offsets(trace, table)
        return run_offsets(trace, table, "position")

    def uses(self, manifest: Manifest) -> str:
        """See `DrafterKind`."""
        few = ", ".join(manifest.path_columns)
        which = f"policies that read {few}" if few else "any policy"
        return f"{which}; up to {how_many(manifest.max_draft - 1, 'token')} past a rejection"
