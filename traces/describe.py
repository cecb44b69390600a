"""A trace in brief: what `simkit info` shows."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from typing import Any

import numpy as np

from traces.trace import Trace


def describe(trace: Trace) -> dict[str, Any]:
    """Settings, sizes and a few statistics, ready for JSON.

    Shares and means are over all positions (those of a lattice, over the tokens of all drafts up to
    the first rejected one): `accepted` is the chance that a draft token is accepted given that all
    before it were; `overlap` is the mean of sum min(p, q), raw; entropies
    are medians, in nats. None stands for what is not known.
    """
    manifest = trace.manifest
    return {
        "path": None if trace.path is None else str(trace.path),
        "hash": trace.hash,
        "kind": manifest.kind,
        "target": None if manifest.target is None else asdict(manifest.target),
        "draft": None if manifest.draft is None else asdict(manifest.draft),
        "vocab_size": manifest.vocab_size,
        "dtype": manifest.dtype,
        "device": manifest.device,
        "libraries": dict(manifest.libraries),
        "sampler": asdict(manifest.sampler),
        "seed": manifest.seed,
        "max_draft": manifest.max_draft,
        "max_new_tokens": manifest.max_new_tokens,
        "eos_token_ids": list(manifest.eos_token_ids),
        "sequences": trace.n_sequences,
        "sequences_by_task": _by_task(trace),
        "positions": trace.n_positions,
        "branch_rows": trace.n_branch_rows,
        "lattice_rows": trace.n_lattice_rows,
        "mixed_rows": manifest.rows("mixed"),
        "mix": manifest.mix,
        "accepted": _summary(trace, "accepted", np.mean),
        "overlap": _summary(trace, "overlap", np.mean),
        "draft_entropy": _summary(trace, "draft_entropy", np.median),
        "target_entropy": _summary(trace, "target_entropy", np.median),
        "bytes": _sizes(trace),
        "uses": _uses(trace),
    }


def _by_task(trace: Trace) -> dict[str, int]:
    """Sequences of each task, most first; those without one under ""."""
    return dict(Counter(task or "" for task in trace.sequences["task"].to_pylist()).most_common())


def _summary(trace: Trace, column: str, reduce: Any) -> float | None:
    table = "lattice" if trace.manifest.kind == "lattice" else "positions"
    if not trace.n_positions or not trace.has(table, column):
        return None
    values = trace.column(table, column).astype(np.float64)
    return float(reduce(values[_reached(trace)] if table == "lattice" else values))


def _reached(trace: Trace) -> np.ndarray:
    """Rows of a lattice before which nothing in their draft was rejected, (n_lattice_rows,)."""
    rejected = ~trace.lattice("accepted")
    before = np.cumsum(rejected) - rejected
    begins = trace.lattice_offsets[:-1]
    begins = begins[begins < len(before)]
    rows = np.arange(len(before))
    return before == before[begins][np.searchsorted(begins, rows, side="right") - 1]


def _sizes(trace: Trace) -> dict[str, int]:
    sizes: Counter[str] = Counter()
    for name, info in sorted(trace.manifest.files.items()):
        sizes[name.split("/")[0]] += info.bytes
    return dict(sizes)


def _uses(trace: Trace) -> list[str]:
    """What the trace can be used for, beyond what any trace can."""
    manifest, files = trace.manifest, trace.manifest.files
    uses = []
    if manifest.kind == "rows":
        uses.append(f"any policy; up to {manifest.max_draft - 1} tokens past a rejection")
    else:
        names = ", ".join(manifest.lattice_columns)
        uses.append(f"policies that read {names}" if names else "policies that read no column")
    if manifest.sampler.greedy:
        uses.append("rules that drop drafted tokens (greedy)")
    if manifest.branch_target:
        uses.append("the target's view of branches")
    if manifest.hidden:
        uses.append("training heads on the draft's states")
    if manifest.mix:
        rows, share = manifest.rows("mixed"), f"{manifest.mix:g} of the tokens the draft's"
        uses.append(f"training the acceptance head on {rows:,} mixed contexts ({share})")
    if "latency.parquet" in files or trace.latency() is not None:
        uses.append("measured costs")
    for name in sorted(files):
        if name.startswith("scores/"):
            uses.append(f"scores of {name.removeprefix('scores/').removesuffix('.parquet')}")
    return uses
