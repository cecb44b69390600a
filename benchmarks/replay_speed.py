"""How fast a replay runs, on one core: `python -m benchmarks.replay_speed`.

Measures positions per second of the compiled loop on a made-up trace of ten million positions,
with costs from a table, after compiling and laying out the trace, whose times are given apart. On a
smaller trace: drafted tokens per second of a policy written as a Python function, and the ratio to
the plain Python loop. Each figure is the best of several runs. Last, the whole `simkit replay`
command on the bundled trace, in a process of its own, started twice.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable

import numba
import numpy as np

from simkit import policies
from simkit.costs import Linear
from simkit.policies import NumericPolicy, Policy
from simkit.simulator import compiled, plain
from simkit.simulator.charge import Charge
from simkit.simulator.layout import PathLayout
from traces import synthetic
from traces.trace import bundled

LENGTH = 1000  # output tokens of a sequence
ALPHA = 0.8
COST = Linear(
    draft_s=2e-3, target_s=30e-3, target_per_token_s=1e-4, target_per_kv_token_s=1e-6, policy_s=1e-6
)
SPECS = ("autoregressive", "fixed(5)", "oracle", "heuristic", "confidence", "svip(h=0.5)")
TARGETS = {"fixed(5)": 200e6, "svip(h=0.5)": 120e6}  # positions a second


def main() -> None:
    """Print all figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split(":")[0])
    parser.add_argument("--positions", type=int, default=10_000_000)
    parser.add_argument("--max-draft", type=int, default=40)
    parser.add_argument("--repeats", type=int, default=9)
    given = parser.parse_args()
    print(f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores,", end=" ")
    print(f"Python {platform.python_version()}, numba {numba.__version__}")
    fast = compiled_speed(given.positions, given.max_draft, given.repeats)
    python_speed(max(1, given.positions // 20), given.max_draft, fast, given.repeats)
    command_speed()


def compiled_speed(positions: int, max_draft: int, repeats: int) -> dict[str, float]:
    """Positions per second of each policy in the compiled loop."""
    layout, charge, seconds = prepare(positions, max_draft)
    n = len(layout.ahead)
    print(f"\ntrace: {n:,} positions, {layout.trace.n_branch_rows:,} branch rows, Γ = {max_draft},")
    print(f"  α = {ALPHA}; made and laid out in {seconds:.1f} s\n")
    print(f"{'policy':18}{'first run, s':>14}{'M positions/s':>15}{'ns/step':>9}{'target':>8}")
    speed = {}
    for spec in SPECS:
        policy = policies.parse(spec)
        assert isinstance(policy, NumericPolicy)
        table = charge.verify_table(policy.max_draft)
        assert table is not None
        prices = compiled.Prices(layout.n_prompt, charge.draft_sum, table)

        def run(policy: NumericPolicy = policy, prices: compiled.Prices = prices) -> compiled.Sums:
            return compiled.total(policy, layout, 1, prices)

        first = best(run, 1)
        seconds = best(run, repeats)
        speed[spec] = n / seconds
        steps = int(run().steps.sum())
        target = f"≥ {TARGETS[spec] / 1e6:.0f}" if spec in TARGETS else ""
        rate = f"{speed[spec] / 1e6:15.0f}{seconds / steps * 1e9:9.1f}"
        print(f"{spec:18}{first:14.2f}{rate}{target:>8}")
    return speed


def python_speed(positions: int, max_draft: int, fast: dict[str, float], repeats: int) -> None:
    """Drafted tokens per second in the plain loop, and what the compiled one gains."""
    layout, _, _ = prepare(positions, max_draft)
    given: list[Policy] = [policies.parse(spec) for spec in TARGETS]
    given.append(policies.from_function(lambda depth, row: row[0] > 0.25, ("draft_entropy",)))
    print(f"\nplain Python loop, {len(layout.ahead):,} positions\n")
    print(f"{'policy':18}{'M drafted/s':>14}{'M positions/s':>15}{'compiled':>10}{'target':>8}")
    for policy in given:
        seconds = best(lambda policy=policy: plain.walk(policy, layout, 1), max(1, repeats // 3))
        drafted = plain.walk(policy, layout, 1).drafted.sum() / seconds
        rate = len(layout.ahead) / seconds
        ratio = f"× {fast[str(policy)] / rate:.0f}" if str(policy) in fast else ""
        target = "" if ratio else "≥ 0.5"
        print(f"{policy!s:18}{drafted / 1e6:14.2f}{rate / 1e6:15.2f}{ratio:>10}{target:>8}")


def command_speed() -> None:
    """Seconds of the whole command on the bundled trace."""
    if "reference" not in bundled():
        return
    code = "from simkit.cli import main; main()"
    command = [sys.executable, "-c", code, "replay", "reference", "--policy", "fixed(5)"]

    def run() -> None:
        subprocess.run(command, check=True, capture_output=True)

    print(f"\nsimkit replay reference --policy 'fixed(5)': {best(run, 1):.2f} s,", end=" ")
    print(f"again {best(run, 1):.2f} s (target ≤ 2.5)")


def prepare(positions: int, max_draft: int) -> tuple[PathLayout, Charge, float]:
    """A trace with its columns read, its layout and costs, and the seconds that took."""
    started = time.perf_counter()
    n_sequences = max(1, positions // LENGTH)
    trace = synthetic.iid(n_sequences, LENGTH, ALPHA, max_draft=max_draft, seed=0)
    layout = PathLayout(trace)
    for column in ("draft_entropy", "draft_prob_raw"):
        for table in ("positions", "branches"):
            trace.column(table, column)
    charge = Charge(COST, layout, 1)
    return layout, charge, time.perf_counter() - started


def best(run: Callable[[], object], repeats: int) -> float:
    """The shortest time of a call, in seconds."""
    times = []
    for _ in range(repeats):
        started = time.perf_counter()
        run()
        times.append(time.perf_counter() - started)
    return float(np.min(times))


if __name__ == "__main__":
    main()
