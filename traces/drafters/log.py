"""Steps that an engine has logged: how many tokens each drafted, and how many were accepted.

There are neither tokens nor probabilities, and what is known is censored. Fewer accepted than
drafted is a located rejection; as many as drafted says only that the run was no shorter; and of
positions at which no step started nothing is known.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from traces import schema
from traces.arrays import count_up, read_only
from traces.drafters.kind import DrafterKind, Shard, register
from traces.errors import TraceError

if TYPE_CHECKING:
    from traces.manifest import Manifest
    from traces.rows import FileRows
    from traces.trace import Trace

REFUSED = (
    "the trace is a log of steps: what other drafts would have given is not in it, so that only"
    " `simkit replay` reads it, for policies of a fixed length, and gives intervals"
)


@register
class Log(DrafterKind):
    """A row for each logged step; see `DrafterKind`.

    An output is what the logged steps emitted, a + 1 tokens each, behind the prefill's token; it
    may end inside the last of them.
    """

    name = stored = "log"
    layout = "simkit.drafters.log:LogLayout"
    own = ("shared_path", "unordered", "totals")
    known_outputs = known_prompts = False
    lacks = {
        "path": REFUSED,
        "select": REFUSED,
        "live": REFUSED,
        "scores": REFUSED,
        "replay": REFUSED,
    }
    noun = ("step", "log")

    def widest(self) -> dict[str, pa.Schema]:
        """See `DrafterKind`."""
        return {"log": schema.LOG}

    def check_header(self, manifest: Manifest) -> None:
        """See `DrafterKind`: it was imported."""
        if manifest.source is None:
            raise TraceError("a log of steps must name the file that it was imported from")

    def check_shard(self, shard: Shard) -> Iterator[str]:
        """See `DrafterKind`."""
        (table,) = self.tables(shard.manifest).items()
        rows = shard.rows(*table)
        most = shard.manifest.max_draft
        yield from rows.problems(
            (rows["drafted"] < 0) | (rows["drafted"] > most), f"drafted is {{drafted}}, Γ is {most}"
        )
        yield from rows.problems(
            (rows["accepted"] < 0) | (rows["accepted"] > rows["drafted"]),
            "accepted is {accepted}, drafted is {drafted}",
        )
        yield from _check_order(rows, shard.sequences)

    def offsets(self, trace: Trace, table: str) -> np.ndarray:
        """See `DrafterKind`: a row belongs to the position at which its step starts."""
        owner = np.searchsorted(
            trace.sequences["sequence"].to_numpy(), trace.column(table, "sequence")
        )
        emitted = trace.column(table, "accepted").astype(np.int64) + 1
        before = np.cumsum(emitted) - emitted
        first = np.searchsorted(owner, np.arange(trace.n_sequences))
        inside = before - np.append(before, 0)[first[owner]]
        begins = trace.position_offsets[owner] + 1 + inside
        if np.any(begins >= trace.position_offsets[owner + 1]):
            raise TraceError("a step of the log begins behind the end of its output")
        lengths = np.zeros(trace.n_positions, np.int64)
        lengths[begins] = 1
        return read_only(np.concatenate([[0], np.cumsum(lengths)]))

    def outcomes(self, trace: Trace) -> tuple[str, slice]:
        """See `DrafterKind`: verdicts of single tokens are in no table."""
        return "positions", slice(None)

    def uses(self, manifest: Manifest) -> str:
        """See `DrafterKind`."""
        return "fixed lengths, as intervals: no token behind a whole accepted draft is known"


def _check_order(rows: FileRows, sequences: pa.Table) -> Iterator[str]:
    """Steps 1, 2, 3, … of each sequence, which emit its output but for the prefill's token."""
    key, n_output = sequences["sequence"].to_numpy(), sequences["n_output"].to_numpy()
    owner = np.searchsorted(key, rows["sequence"])
    there = owner < len(key)
    there[there] = key[owner[there]] == rows["sequence"][there]
    yield from rows.problems(~there, "a step of a sequence that there is not")
    if not there.all():
        return
    if np.any(np.diff(owner) < 0):
        yield f"{rows.file}: the sequences do not ascend"
        return
    counts = np.bincount(owner, minlength=len(key))
    yield from rows.problems(rows["step"] != count_up(counts), "steps must be 1, 2, 3, …")
    each = rows["accepted"].astype(np.int64) + 1
    most = np.bincount(owner, each, len(key)) + 1
    last = np.zeros(len(key), np.int64)
    last[owner] = each  # of several the last one counts
    for s in np.flatnonzero((n_output > most) | (n_output <= most - np.maximum(last, 1))):
        yield (
            f"{rows.file}: sequence {key[s]}: n_output is {n_output[s]}, but with the prefill's"
            f" token its steps emit {most[s]:.0f}, {last[s]} of them in the last"
        )
