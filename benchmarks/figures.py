"""All figures, timed: `python -m benchmarks.figures`.

Draws every figure from a bundled trace and saves it, as `simkit figures` does, and prints the
seconds on the clock, those of the processor, and the process's peak memory so far. With `--rows N`
the trace is a made-up one of so many positions, and only the figures of its rows are drawn (those
that replay policies go by `benchmarks.sweep_speed`). `--gallery DIR` writes small pictures of both
bundled traces, those of docs/gallery.md.
"""

from __future__ import annotations

import argparse
import io
import resource
import tempfile
import time
from pathlib import Path

from PIL import Image

from analysis.figures import FIGURES, Drawn
from traces.errors import UserError
from traces.synthetic import iid
from traces.trace import Trace, load

TARGET_S, LIMIT_GB = 60.0, 2.0
LENGTH = 256
ROWS = (
    "entropy_acceptance",
    "entropy_length",
    "entropy_ratio",
    "entropy_bound",
    "position_decay",
    "optimal_lengths",
    "expected_length",
    "confidence_acceptance",
)
SAMPLED = (*ROWS[:5], "draft_lengths")  # whose papers sample


def main() -> None:
    """Print all figures' times."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split(":")[0])
    parser.add_argument("trace", nargs="?", default="reference")
    parser.add_argument("--rows", type=int)
    parser.add_argument("--gallery", type=Path)
    given = parser.parse_args()
    if given.gallery:
        gallery(given.gallery)
        return
    names = ROWS if given.rows else tuple(FIGURES)
    trace = made_up(given.rows) if given.rows else load(given.trace)
    begun, cpu = time.perf_counter(), time.process_time()
    print(f"{trace.n_positions:,} positions; before: {peak_gb():.2f} GB")
    print(f"{'figure':24}{'draw, s':>9}{'save, s':>9}{'peak so far, GB':>17}")
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            start = time.perf_counter()
            try:
                found = FIGURES[name].draw(trace)
            except UserError as error:
                print(f"{name:24}{error}")
                continue
            drawn = time.perf_counter()
            found.save(folder)
            saved = time.perf_counter()
            print(f"{name:24}{drawn - start:9.1f}{saved - drawn:9.1f}{peak_gb():17.2f}", flush=True)
    spent = time.perf_counter() - begun, time.process_time() - cpu
    print(f"{'all':24}{spent[0]:9.1f} s, {spent[1]:.1f} s of processor time")
    print(f"target: {TARGET_S:g} s on two cores for `reference`; {LIMIT_GB:g} GB for 20 M rows")


def made_up(rows: int) -> Trace:
    """A trace in memory whose columns are made when a figure asks for them."""
    return iid(rows // LENGTH, LENGTH, 0.8, max_draft=40, seed=0, tasks=("code", "prose"))


def gallery(folder: Path) -> None:
    """Write NAME.png of `reference`, and NAME-sampled.png of `reference-sampled`."""
    folder.mkdir(parents=True, exist_ok=True)
    for trace, names, end in (
        ("reference", tuple(FIGURES), ""),
        ("reference-sampled", SAMPLED, "-sampled"),
    ):
        read = load(trace)
        for name in names:
            picture(FIGURES[name].draw(read), folder / f"{name}{end}.png")


def picture(found: Drawn, path: Path) -> None:
    """Write a figure with 256 colours, which makes it small."""
    out = io.BytesIO()
    found.figure.savefig(out, format="png", dpi=100)
    image = Image.open(out).convert("RGB").quantize(256, Image.Quantize.MAXCOVERAGE)
    image.save(path, optimize=True)


def peak_gb() -> float:
    """The most memory that the process has held, GB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


if __name__ == "__main__":
    main()
