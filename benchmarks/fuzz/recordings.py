"""Sound recordings with attached drafters of every kind, cut from the bundled ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from traces.attach import registry
from traces.attach.run import attach
from traces.copying import copy_rows
from traces.finding import DRAFTERS
from traces.memory import Arrays
from traces.subset import select
from traces.trace import Trace, load
from traces.writer import TraceWriter, save

TREE = "eagle2(top_k=2, depth=2)"  # the shape of the cut trees: 2 children, 3 levels
_WIDTH, _LEVELS = 2, 3


def make(folder: Path) -> None:
    """A greedy pair with token, network and tree drafters; a sampled target with two networks."""
    pair, target = folder / "drafted", folder / "target"
    save(
        select(load("reference-trees"), [0, 8], latency=load("reference-trees").latency()), pair, 1
    )
    for spec in ("suffix", "ngram(least=2, most=4)"):
        attach(load(pair), registry.parse(spec))
    _attach(pair, "eagle", part(load("reference-trees", "eagle"), [0, 8]))
    _attach(pair, "tree", thinned(part(load("reference-trees", "eagle-tree"), [0, 8])))
    save(part(load("reference-target"), [0, 1]), target, 1)
    for name in ("draft", "pard"):
        _attach(target, name, part(load("reference-target", name), [0, 1]))


def part(trace: Trace, chosen: Sequence[int]) -> Trace:
    """A trace of any kind in memory, of some sequences."""
    begins = trace.position_offsets.tolist()
    starts = np.concatenate([np.arange(begins[k], begins[k + 1]) for k in chosen])
    columns, sizes = {}, {}
    for table, known in trace.manifest.tables.items():
        offsets = trace.offsets(table).tolist()
        rows = np.concatenate([np.arange(offsets[k], offsets[k + 1]) for k in starts.tolist()])
        columns[table] = {name: trace.column(table, name)[rows] for name in known.names}
        sizes[table] = len(rows)
    changed = {"batch_size": 1, "n_prompts": len(chosen), "prompts_sha256": None, "files": {}}
    header = replace(trace.manifest, **changed)
    sequences = trace.sequences.take(list(chosen)).to_pydict()
    return Trace(header, Arrays(header, sequences, columns, sizes, trace.own_latency()))


def thinned(trace: Trace) -> Trace:
    """Trees of which only the first children are kept, down to a few levels."""
    columns = {name: trace.column("tree", name) for name in trace.manifest.tables["tree"].names}
    node, parent, depth = (columns[name] for name in ("node", "parent", "depth"))
    begin = np.arange(len(node)) - node
    kept = (columns["rank"] < _WIDTH) & (depth <= _LEVELS)
    for level in range(1, _LEVELS + 1):
        here = np.flatnonzero(depth == level)
        kept[here] &= kept[begin[here] + parent[here]]
    number = np.cumsum(kept) - 1
    columns["node"] = (number - number[begin]).astype(np.int32)
    above = number[begin + np.maximum(parent, 0)] - number[begin]
    columns["parent"] = np.where(parent < 0, -1, above).astype(np.int32)
    columns = {name: values[kept] for name, values in columns.items()}
    header = replace(trace.manifest, shapes=(TREE,), width=_WIDTH, max_draft=_LEVELS)
    sequences = trace.sequences.to_pydict()
    source = Arrays(
        header, sequences, {"tree": columns}, {"tree": int(kept.sum())}, trace.latency()
    )
    return Trace(header, source)


def _attach(recording: Path, name: str, drafter: Trace) -> None:
    """Write a drafter into a recording, as `simkit attach` would have."""
    header = replace(drafter.manifest, attached_to=load(recording).hash, complete=False)
    with TraceWriter(recording / DRAFTERS / name, header) as writer:
        copy_rows(drafter, header, writer)
        if (times := drafter.extra("latency.parquet")) is not None:
            writer.write_latency(times)
        writer.finish()
