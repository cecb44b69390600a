"""The writers that are stopped at each of their calls: what they do in a folder."""

from dataclasses import replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import torch
from trace_files import columns, record, trace

from simkit.cli.running import opened
from simkit.heads import files as heads
from simkit.heads import registry
from simkit.live.log import Log, Row
from traces import schema, scores
from traces.outputs import write_atomic, write_together
from traces.trace import load
from traces.writer import TraceWriter, add_file, save

OLD, NEW = b"old" * 1000, b"new" * 2000
NAMES = ("x.png", "x.svg", "x.parquet")


@cache
def source():
    return trace(n=3)


def samples(repeats: int) -> pa.Table:
    """Timing samples of two kinds of passes."""
    rows = [
        {"component": name, "tokens_in": 1, "context_len": 8, "batch_size": 1, "seconds": 0.5}
        | {"dtype": "float32", "device": "cpu", "engine": "eager", "repeat": repeat}
        for repeat in range(repeats)
        for name in ("draft", "target")
    ]
    return pa.Table.from_pylist(rows, schema=schema.LATENCY)


def recording(folder: Path) -> None:
    """What `simkit record --resume` does with the folder."""
    header = replace(source().manifest, batch_size=2)
    with TraceWriter(folder / "t", header, resume=True) as writer:
        try:
            for shard in sorted(set(range(writer.n_shards)) - writer.done):
                writer.write_shard(shard, *columns(source(), writer.shard_sequences(shard)))
            writer.finish()
        except BaseException:
            writer.discard_if_empty()
            raise


def saved(folder: Path) -> None:
    save(source(), folder / "t", batch_size=2)


def traced(folder: Path) -> None:
    record(folder / "t", source())
    add_file(folder / "t", "latency.parquet", samples(1))


def latency(folder: Path) -> None:
    add_file(folder / "t", "latency.parquet", samples(2))


def score(folder: Path) -> None:
    there = load(folder / "t")
    values = scores.RowScores(np.ones(there.n_positions), np.ones(there.n_branch_rows))
    scores.save(folder / "t", there, "pacer", values, {})


def earlier(folder: Path) -> None:
    for name in NAMES:
        write_atomic(folder / name, OLD)


def together(folder: Path) -> None:
    write_together({folder / name: NEW for name in NAMES})


def alone(folder: Path) -> None:
    write_atomic(folder / "below" / "x.html", NEW)


def head(weight: float):
    options = registry.get("specdecpp").settle({"layers": 1})
    module = heads.build("specdecpp", 4, options)
    for value in module.parameters():
        torch.nn.init.constant_(value, weight)
    return heads.Head("specdecpp", 4, options, module, {"weight": weight})


def old_head(folder: Path) -> None:
    heads.save(head(0.25), folder / "h.safetensors")


def new_head(folder: Path) -> None:
    heads.save(head(0.5), folder / "h.safetensors")


def decode(log: Log, policy: str) -> None:
    for n in range(3):
        log.add(0, 0, policy, n, [Row(1, 1, 0, "sequence", "", 0, 1, 9, 1, 0.5)])


def old_log(folder: Path) -> None:
    with Log(folder / "live.parquet", every_s=0) as log:
        decode(log, "old")


def new_log(folder: Path) -> None:
    bench = SimpleNamespace(facts={"device": "cpu"})
    with opened(folder / "live.parquet", bench) as log:  # type: ignore[arg-type]
        log.every_s = 0
        decode(log, "new")


def traced_log(folder: Path) -> None:
    traced(folder)
    into_trace(folder, "old")


def into_trace(folder: Path, policy: str = "new") -> None:
    bench = SimpleNamespace(facts={"device": "cpu"})
    with opened(folder / "t.live.parquet", bench, folder / "t") as log:  # type: ignore[arg-type]
        log.every_s = 0
        decode(log, policy)
