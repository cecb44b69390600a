"""Small traces on disk for the tests, and ways to damage them."""

import hashlib
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from traces import files, schema
from traces.manifest import MANIFEST, ModelInfo, read_manifest
from traces.sampler import Sampler
from traces.synthetic import iid
from traces.trace import Trace
from traces.writer import TraceWriter

GREEDY = Sampler()
SAMPLED = Sampler(temperature=1.0)
MODEL = ModelInfo("a/b", None, "0" * 64, "float32", 50, 1_200_000, "LlamaForCausalLM", {"n": 2})


def trace(seed: int = 0, sampler: Sampler = GREEDY, n: int = 7, **more) -> Trace:
    options = {"max_draft": 6, "eos_prob": 0.04, "vocab_size": 50, "tasks": ("code", "math")} | more
    return iid(n, 20, 0.6, seed=seed, sampler=sampler, **options)


def columns(source: Trace, shard: range) -> tuple[dict, dict, dict]:
    """What a recorder would hand over for the prompts of a shard."""
    rows = slice(*source.position_offsets[[shard.start, shard.stop]])
    off = slice(*source.branch_offsets[[rows.start, rows.stop]])
    return (
        source.sequences.slice(shard.start, len(shard)).to_pydict(),
        {name: source.positions(name)[rows] for name in schema.POSITIONS.names},
        {name: source.branches(name)[off] for name in schema.BRANCHES.names},
    )


def record(folder: Path, source: Trace, batch_size: int = 3, resume: bool = False) -> None:
    """Write a trace as a recorder does: shard by shard, what is done left out."""
    header = replace(source.manifest, batch_size=batch_size)
    with TraceWriter(folder, header, resume=resume) as writer:
        for shard in sorted(set(range(writer.n_shards)) - writer.done):
            writer.write_shard(shard, *columns(source, writer.shard_sequences(shard)))
        writer.finish()


def hashes(folder: Path) -> dict[str, str]:
    """A sha256 of every file below a folder."""
    return {
        file.relative_to(folder).as_posix(): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(folder.rglob("*"))
        if file.is_file()
    }


def rewrite(folder: Path, name: str, change) -> None:
    """Put change(table) in a file's place and list it, as a wrong recorder would have."""
    data, info = files.encode(change(pq.read_table(folder / name)))
    (folder / name).write_bytes(data)
    edit(folder, files={**read_manifest(folder).files, name: info})


def edit(folder: Path, **changes) -> None:
    """Change fields of the manifest."""
    (folder / MANIFEST).write_text(replace(read_manifest(folder), **changes).to_json())


def with_value(table: pa.Table, column: str, row: int, value) -> pa.Table:
    """The table with one value changed."""
    values = table[column].to_pylist()
    values[row] = value
    field = table.schema.field(column)
    index = table.schema.names.index(column)
    return table.set_column(index, field, pa.array(values, field.type))
