"""Time and memory of the statistics on a long trace: `python -m benchmarks.analysis_scale`.

Makes columns of 20 million rows in files of their own, then computes each statistic, reading its
columns as a trace does: whole, once. The process's peak memory stands beside each, so far.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from analysis.papers import svip
from analysis.stats import (
    acceptance_length,
    binned,
    correlation,
    depth,
    drafts,
    entropy,
    iid,
    optimal,
    reliability,
)

LENGTH = 256
GAMMA = 40
LIMIT_GB = 2.0
COLUMNS = ("draft_entropy", "cross_entropy", "overlap", "confidence")


def main() -> None:
    """Print seconds and peak memory of each statistic."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split(":")[0])
    parser.add_argument("--rows", type=int, default=20_000_000)
    given = parser.parse_args()
    n = given.rows // LENGTH
    offsets = np.arange(n + 1, dtype=np.int64) * LENGTH
    with tempfile.TemporaryDirectory() as folder:
        make(Path(folder), n)
        print(f"{n * LENGTH:,} rows of {n:,} prompts; making them: {peak_gb():.2f} GB")
        print(f"{'statistic':32}{'seconds':>9}{'peak so far, GB':>17}")
        begin = time.perf_counter()
        columns = {name: np.load(Path(folder) / f"{name}.npy") for name in (*COLUMNS, "accepted")}
        columns["ahead"] = ahead(columns["accepted"], offsets)
        print(f"{'reading':32}{time.perf_counter() - begin:9.1f}{peak_gb():17.2f}")
        for name, statistic in statistics(columns, offsets):
            start = time.perf_counter()
            statistic()
            print(f"{name:32}{time.perf_counter() - start:9.1f}{peak_gb():17.2f}", flush=True)
        print(f"{'all':32}{time.perf_counter() - begin:9.1f}{peak_gb():17.2f}")
    verdict = "within" if peak_gb() <= LIMIT_GB else "beyond"
    print(f"{verdict} {LIMIT_GB:g} GB")


def statistics(
    columns: dict[str, np.ndarray], offsets: np.ndarray
) -> Iterator[tuple[str, Callable[[], object]]]:
    """Each statistic by name."""
    h, x, overlap, confidence, accepted, run = (columns[name] for name in (*COLUMNS, *FLAGS))
    both = h, x, overlap, offsets
    yield "fit of c", lambda: entropy.fit(*both)
    yield "tightness of the bounds", lambda: entropy.tightness(*both, 0.08)
    yield "H(q,p) / H(q)", lambda: entropy.entropy_ratio(h, x, offsets, svip.RATIO)
    yield "Spearman, entropy and overlap", lambda: correlation.correlation(h, overlap, offsets)
    yield (
        "Kendall, entropy and overlap",
        lambda: correlation.correlation(h, overlap, offsets, "kendall"),
    )
    yield "acceptance by entropy", lambda: binned.curve(h, accepted, offsets)
    yield (
        "by depth, steps of fixed(40)",
        lambda: depth.by_depth(drafts.fixed_steps(run, offsets, LENGTH, GAMMA), GAMMA),
    )
    yield (
        "by depth, every start",
        lambda: depth.by_depth(drafts.every_start(run, offsets, LENGTH, GAMMA), GAMMA),
    )
    yield "run lengths", lambda: iid.run_lengths(drafts.runs(accepted, offsets))
    yield "lag-1 autocorrelation", lambda: iid.autocorrelation(accepted, offsets)
    yield "best lengths by step", lambda: optimal.lengths(drafts.runs(accepted, offsets))
    yield "reliability", lambda: reliability.reliability(confidence, accepted, offsets)
    yield (
        "CAT weights, K = 16",
        lambda: acceptance_length.prediction(confidence, run, offsets, 16),
    )


FLAGS = ("accepted", "ahead")


def make(folder: Path, n: int) -> None:
    """Write columns as a recording would store them: float32, and a flag."""
    rng = np.random.default_rng(0)
    rows = n * LENGTH
    columns = {name: _column(folder, name, np.float32, rows) for name in COLUMNS}
    accepted = _column(folder, "accepted", bool, rows)
    for low in range(0, n, 4096):
        prompts = min(4096, n - low)
        part = slice(low * LENGTH, (low + prompts) * LENGTH)
        size = prompts * LENGTH
        level = np.repeat(rng.lognormal(0, 0.4, prompts), LENGTH)
        h = level * rng.gamma(0.7, 1.0, size)
        kl = 0.2 * h * rng.gamma(2.0, 1.0, size)
        overlap = np.exp(-0.8 * np.sqrt(kl / 2))
        columns["draft_entropy"][part] = h
        columns["cross_entropy"][part] = h + kl
        columns["overlap"][part] = overlap
        columns["confidence"][part] = np.exp(-h / 2)
        accepted[part] = rng.random(size) < overlap
    for column in (*columns.values(), accepted):
        column.flush()


def ahead(accepted: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Tokens accepted in a row from each row on, as a trace's layout has them; int32."""
    runs = drafts.runs(accepted, offsets)
    size = runs.accepted + runs.rejected
    out = np.repeat((np.cumsum(size) - runs.rejected).astype(np.int32), size)
    out -= np.arange(len(out), dtype=np.int32)
    return out


def peak_gb() -> float:
    """The most memory that this process has held, GB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9


def _column(folder: Path, name: str, kind: type, rows: int) -> np.memmap:
    return np.lib.format.open_memmap(folder / f"{name}.npy", "w+", kind, (rows,))


if __name__ == "__main__":
    main()
