"""Cut a pair's latency table out of the atlas, for replays at that pair's cost.

Run `python -m benchmarks.gpu.atlas_pair --target deepseek-coder-33b --draft deepseek-coder-1.3b
--out pair.parquet`, then `simkit replay TRACE --policy "fixed(5)" --cost pair.parquet`.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.gpu.atlas_table import DATA
from benchmarks.gpu.grid import FORWARD, GRAPH, HEAD
from traces import schema
from traces.files import encode
from traces.outputs import write_atomic


def pair(
    atlas: pa.Table, target: str, draft: str, engine: str = GRAPH, batch_size: int = 1
) -> pa.Table:
    """The samples of a draft/target pair as a trace's latency table.

    Args:
        atlas: rows of `benchmarks.gpu.latency_atlas.SCHEMA`.
        target: model whose passes verify.
        draft: model whose one-token passes draft; its head calls come along.
        engine: "cuda_graph" or "eager".
        batch_size: of verifications and draft passes.

    Returns:
        `traces.schema.LATENCY` with components draft, target and head:pacer; prefills (context 0)
        and head calls were measured at batch 1 only and are left out at any other.

    Raises:
        ValueError: the atlas has no samples of one of the two.
    """
    rows = []
    for row in atlas.to_pylist():
        model, component = row.pop("model"), row["component"]
        if (row["engine"], row["batch_size"]) != (engine, batch_size):
            continue
        one_token = row["tokens_in"] == 1 or not row["context_len"]
        if model == draft and (component == HEAD or (component == FORWARD and one_token)):
            rows.append(row | {"component": "draft" if component == FORWARD else component})
        if model == target and component == FORWARD:
            rows.append(row | {"component": "target"})
    missing = {"draft", "target"} - {row["component"] for row in rows}
    if missing:
        names = {"draft": draft, "target": target}
        raise ValueError(
            f"no samples of {', '.join(names[m] for m in sorted(missing))} "
            f"with engine {engine} and batch size {batch_size}"
        )
    return pa.Table.from_pylist(rows, schema=schema.LATENCY)


def main(argv: Sequence[str] | None = None) -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description="Cut a pair out of the latency atlas.")
    parser.add_argument("--target", required=True)
    parser.add_argument("--draft", required=True)
    parser.add_argument("--engine", default=GRAPH)
    parser.add_argument("--batch-size", type=int, default=1)
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--out", type=Path, required=True, help="Parquet file to write")
    arguments = parser.parse_args(argv)
    atlas = pq.read_table(arguments.data / "latency.parquet")
    try:
        table = pair(
            atlas, arguments.target, arguments.draft, arguments.engine, arguments.batch_size
        )
    except ValueError as error:
        parser.error(str(error))
    write_atomic(arguments.out, encode(table)[0])


if __name__ == "__main__":
    main()
