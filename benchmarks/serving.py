"""How fast the server is simulated: `python -m benchmarks.serving`.

10,000 requests of 256 tokens each, one core, under `static` and `budget`, in batches of 64 and one
by one, and what memory that takes. Loops are compiled and kept before the clock starts. Targets:
2 s under `static`, 20 s under `budget`, 1 GB in all.
"""

from __future__ import annotations

import argparse
import platform
import resource
import time

from simkit import serving
from simkit.costs import Linear
from simkit.serving import Engine, Served
from simkit.serving.state import ITERATIONS
from traces import synthetic
from traces.trace import Trace

COST = Linear(
    draft_s=1e-3,
    target_s=1e-2,
    draft_per_token_s=1e-5,
    target_per_token_s=1e-4,
    target_per_kv_token_s=1e-7,
)
TARGETS_S = {"static(3)": 2.0, "budget(7)": 20.0}
SPECS = ("none", "static(3)", "ema(3)", "goodput(7)", "budget(7)", "svip(h=0.4)")


def main() -> None:
    """Print all figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split(":")[0])
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--spec", nargs="*", default=SPECS)
    given = parser.parse_args()
    trace = synthetic.iid(200, 256, 0.7, max_draft=8, seed=0)
    print(f"{platform.processor() or platform.machine()}, Python {platform.python_version()}")
    print(f"{given.requests:,} requests of 256 tokens, one thread, best of {given.repeats}\n")
    print(f"{'controller':16}{'in flight':>10}{'s':>8}{'iterations':>12}{'steps':>12}{'MB':>8}")
    for spec in given.spec:
        for concurrency in (64, 1):
            served(trace, spec, concurrency, 64)
            taken = []
            for _ in range(given.repeats):
                started = time.perf_counter()
                found = served(trace, spec, concurrency, given.requests)
                taken.append(time.perf_counter() - started)
            server = found.runs[0].server
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
            print(
                f"{spec:16}{concurrency:>10}{min(taken):8.2f}{int(server.count[ITERATIONS]):>12,}"
                f"{int(server.steps.sum()):>12,}{peak:>8.0f}",
                flush=True,
            )
    print(f"\ntargets in batches: {TARGETS_S}; memory is the most so far")


def served(trace: Trace, spec: str, concurrency: int, requests: int) -> Served:
    """A run, with its numbers."""
    found = serving.serve(
        trace,
        spec,
        COST,
        concurrency=concurrency,
        requests=requests,
        seeds=1,
        workers=1,
        engine=Engine(64),
    )
    found.records()
    return found


if __name__ == "__main__":
    main()
