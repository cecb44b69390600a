"""Traces larger than memory: `python -m benchmarks.scale`.

Makes a trace in a folder, shard by shard, and replays `fixed` and `svip`, sweeps 20 settings and
takes statistics with `--memory`, each in a process of its own: seconds on the clock, CPU seconds a
million positions, and the most memory that the process ever had. Beside them stands how long the
same files take to be read from the disk and not looked into; all of them begin with no file in
memory. The first of them looks at each row (hashes, rules); it is timed apart, and what it found is
remembered as usual.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import simkit
from analysis.stats.outline import outline
from benchmarks.replay_speed import ALPHA, COST
from traces import synthetic
from traces.streamed import Streamed, stream
from traces.trace import Trace, load
from traces.writer import TraceWriter

LENGTH, SHARD = 1000, 1000  # tokens of an output, prompts of a shard
MAX_DRAFT, VOCABULARY = 8, 16
KEPT = ("draft_entropy",)
SWEEP = "svip(h=0.1:2.0:0.1, max_draft=8)"


def look(trace: Streamed) -> None:
    """Read two columns of each window, which looks at them first."""
    for window in trace.windows():
        for name in ("accepted", "draft_entropy"):
            window.positions(name)


TASKS = {
    "look": look,
    "fixed(5)": lambda trace: simkit.replay(trace, "fixed(5)", COST),
    "svip(h=0.5)": lambda trace: simkit.replay(trace, "svip(h=0.5, max_draft=8)", COST),
    "sweep of 20": lambda trace: simkit.sweep(trace, SWEEP, COST),
    "statistics": lambda trace: outline(trace.windows()),
}


def main() -> None:
    """Print a table for each size."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split(":")[0])
    parser.add_argument("--positions", type=int, nargs="+", default=[10**6, 10**7, 10**8])
    parser.add_argument("--memory", type=float, default=4.0, help="GB")
    parser.add_argument("--folder", type=Path, help="Keep the traces there; go on with them.")
    parser.add_argument("--task", choices=list(TASKS), help="Do this on the folder, and say it.")
    given = parser.parse_args()
    memory = int(given.memory * 1e9)
    if given.task:
        print(*measured(given.folder, given.task, memory))
        return
    with tempfile.TemporaryDirectory() as scratch:
        for n in given.positions:
            report((given.folder or Path(scratch)) / f"{n}", n, given.memory)


def report(folder: Path, n: int, memory: float) -> None:
    """Make a trace and print what it takes."""
    begin = time.perf_counter()
    make(folder, n)
    made_s, size = time.perf_counter() - begin, sum(f.stat().st_size for f in shards(folder))
    print(
        f"\n{n:,} positions, {size / 1e9:.2f} GB (written in {made_s:.0f} s); --memory {memory:g}GB"
    )
    read_s = read(folder)
    print(f"{'files read':14} {read_s:8.1f} s, {size / 1e6 / read_s:,.0f} MB/s", flush=True)
    cache = folder.parent / f"{folder.name}-cache"
    shutil.rmtree(cache, ignore_errors=True)  # what was remembered of these rows
    for task in TASKS:
        forget(folder)
        words = [sys.executable, "-m", "benchmarks.scale", "--folder", folder, "--task", task]
        done = subprocess.run(
            [*map(str, words), "--memory", str(memory)],
            env=os.environ | {"XDG_CACHE_HOME": str(cache.resolve())},
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        )
        wall_s, cpu_s, peak = map(float, done.stdout.split()[-3:])
        each = cpu_s / n * 1e9
        print(
            f"{task:14} {wall_s:8.1f} s, {each:6.1f} CPU ns a position, {peak:5.2f} GB at most;"
            f" load {os.getloadavg()[0]:.1f}",
            flush=True,
        )


def measured(folder: Path, task: str, memory: int) -> tuple[float, float, float]:
    """Seconds on the clock, CPU seconds, and the most memory in GB; compiling and imports apart."""
    warm = synthetic.iid(4, 50, ALPHA, max_draft=MAX_DRAFT, seed=0, vocab_size=VOCABULARY)
    simkit.sweep(warm, [SWEEP, "fixed(5)"], COST)
    trace = stream(folder, memory=memory)
    assert isinstance(trace, Streamed)
    wall, cpu = time.perf_counter(), time.process_time()
    TASKS[task](trace)
    took = time.perf_counter() - wall, time.process_time() - cpu
    return *took, peak_gb()


def peak_gb() -> float:
    """The most memory that this program ever had.

    `ru_maxrss` will not do: it keeps what the process had before it became this program, which is
    that of the one that wrote the trace.
    """
    status = Path("/proc/self/status").read_text(encoding="ascii")
    (line,) = (line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024 / 1e9


def make(folder: Path, n: int) -> None:
    """Write a trace of n positions, a shard at a time; what is there already stays."""
    prompts = max(1, n // LENGTH)
    whole = made(min(SHARD, prompts), 0)
    header = whole.manifest
    header = type(header)(
        **{name: getattr(header, name) for name in ("max_draft", "max_new_tokens", "vocab_size")},
        seed=0,
        batch_size=SHARD,
        n_prompts=prompts,
        path_columns=KEPT,
    )
    if (folder / "manifest.json").exists() and load(folder).n_sequences == prompts:
        return
    with TraceWriter(folder, header, resume=folder.exists()) as writer:
        for shard in range(writer.n_shards):
            if shard not in writer.done:
                write(writer, shard)
        writer.finish()


def made(prompts: int, seed: int) -> Trace:
    """One shard's rows."""
    return synthetic.iid(
        prompts, LENGTH, ALPHA, max_draft=MAX_DRAFT, seed=seed, vocab_size=VOCABULARY
    )


def write(writer: TraceWriter, shard: int) -> None:
    """Add a shard."""
    numbers = writer.shard_sequences(shard)
    part = made(len(numbers), shard)
    tables = {}
    for table, columns in writer.manifest.tables.items():
        tables[table] = {name: part.column(table, name) for name in columns.names}
        tables[table]["sequence"] = tables[table]["sequence"] + np.int32(numbers.start)
    sequences = {
        name: part.sequences[name].combine_chunks() for name in part.sequences.column_names
    }
    sequences["sequence"] = np.asarray(numbers, np.int32)
    writer.write_shard(shard, sequences, **tables)


def shards(folder: Path) -> list[Path]:
    """The files of rows."""
    return sorted(folder.glob("*/*.parquet"))


def forget(folder: Path) -> None:
    """Have the system drop what it keeps of the files in memory."""
    os.sync()
    for file in shards(folder):
        with open(file, "rb") as stream_:
            os.posix_fadvise(stream_.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def read(folder: Path) -> float:
    """Seconds to read all of them from the disk."""
    forget(folder)
    begin = time.perf_counter()
    for file in shards(folder):
        with open(file, "rb", buffering=0) as stream_:
            while stream_.read(2**22):
                pass
    return time.perf_counter() - begin


if __name__ == "__main__":
    main()
