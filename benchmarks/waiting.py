"""Does a recording stall beside another program? Threads that spin against threads that sleep.

    python -m benchmarks.waiting [--prompts 12] [--repeats 3] [--limit 300]

`simkit record` of some prompts of the reference pair on two threads, on the machine as it is and
beside one process that keeps a core busy, with torch's OpenMP threads spinning as GNU's library has
them do by itself (GOMP_SPINCOUNT=300000) and as the commands set them (OMP_WAIT_POLICY=passive).
The arms take turns, so that other work on the machine meets all of them; what counts is the ratio.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from benchmarks.kill_recorder import REFERENCE, recording

THREADS = "2"
ARMS = {"spinning": {"GOMP_SPINCOUNT": "300000"}, "sleeping": {}}
_SET = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME", "OMP_NUM_THREADS")


def main() -> None:
    """Print the seconds of each recording, then medians and paired ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--prompts", type=int, default=12)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--limit", type=float, default=300.0, help="seconds of one recording")
    options = parser.parse_args()
    seconds: dict[tuple[str, str], list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        prompts = _prompts(Path(folder) / "prompts.jsonl", options.prompts)
        for repeat in range(options.repeats):
            for beside in ("nothing", "one busy process"):
                for arm in ARMS if repeat % 2 else reversed(ARMS):
                    with _busy(beside != "nothing"):
                        out = Path(folder) / f"{arm}-{repeat}-{len(beside)}"
                        taken = _record(prompts, out, ARMS[arm], options.limit)
                    seconds.setdefault((beside, arm), []).append(taken)
                    load = os.getloadavg()[0]
                    print(f"beside {beside}, {arm}: {taken:.1f} s (load {load:.1f})", flush=True)
    for beside in ("nothing", "one busy process"):
        spin, sleep = (np.array(seconds[beside, arm]) for arm in ARMS)
        print(
            f"beside {beside}: spinning {np.median(spin):.1f} s, sleeping {np.median(sleep):.1f} s,"
            f" ratio {np.median(spin / sleep):.2f}"
            f" ({', '.join(f'{r:.2f}' for r in spin / sleep)})"
        )


def _prompts(file: Path, n: int) -> Path:
    lines = (REFERENCE / "prompts.jsonl").read_text().splitlines()
    file.write_text("\n".join(lines[k * len(lines) // n] for k in range(n)) + "\n")
    return file


def _record(prompts: Path, out: Path, settings: dict[str, str], limit_s: float) -> float:
    """Seconds of the whole command; the limit where it takes longer."""
    kept = {name: value for name, value in os.environ.items() if name not in _SET}
    begun = time.perf_counter()
    try:
        subprocess.run(
            recording(prompts, out, "--max-new-tokens", 64, "--max-draft", 12),
            env=kept | {"OMP_NUM_THREADS": THREADS} | settings,
            check=True,
            capture_output=True,
            timeout=limit_s,
        )
    except subprocess.TimeoutExpired:
        return limit_s
    return time.perf_counter() - begun


@contextmanager
def _busy(wanted: bool) -> Iterator[None]:
    """A process beside that keeps one core busy."""
    other = subprocess.Popen([sys.executable, "-c", "while True: pass"]) if wanted else None
    try:
        yield
    finally:
        if other:
            other.kill()
            other.wait()


if __name__ == "__main__":
    main()
