"""How fast a replay runs, on one core: `python -m benchmarks.replay_speed`.

Measures positions per second of every registered policy on a made-up trace of ten million
positions, with costs from a table, after compiling and laying out the trace, whose times are given
apart. Policies that read a head's scores, and those that search or fit, run on a twentieth of it,
with made-up scores. On that smaller trace too: drafted tokens per second of a policy written as a
Python function, and the ratio to the plain Python loop. Each figure is the best of several runs, in
CPU seconds of the one thread, so that other work on the machine hardly shows.
Last, the whole `simkit replay` command on the bundled trace, in its own process, started twice, in
seconds of the clock on the wall.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numba
import numpy as np

from simkit import policies
from simkit.costs import Linear
from simkit.drafters.path import PathLayout
from simkit.policies import Policy, Sequential
from simkit.simulator.run import Run, run
from simkit.simulator.step_costs import Charge
from simkit.steps import interpreted
from traces import scores, synthetic
from traces.finding import bundled
from traces.trace import Trace

LENGTH = 1000  # output tokens of a sequence
ALPHA = 0.8
COST = Linear(
    draft_s=2e-3, target_s=30e-3, target_per_token_s=1e-4, target_per_kv_token_s=1e-6, policy_s=1e-6
)
COLUMNS = ("draft_entropy", "draft_prob_raw", "draft_top1_prob", "draft_top10_mass")
SPECS = {"fixed": "fixed(5)", "svip": "svip(h=0.5)"}  # others as they are by default
SEARCHING = ("confidence_adaptive", "prophet", "rate_optimal")
TARGETS = {"fixed(5)": 200e6, "svip(h=0.5)": 120e6}  # positions a second
OTHERS, SEARCHES = 50e6, 2e6  # the targets of other rules by row, and of those that search


def main() -> None:
    """Print all figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split(":")[0])
    parser.add_argument("--positions", type=int, default=10_000_000)
    parser.add_argument("--max-draft", type=int, default=40)
    parser.add_argument("--repeats", type=int, default=9)
    given = parser.parse_args()
    print(f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores,", end=" ")
    print(f"Python {platform.python_version()}, numba {numba.__version__}")
    whole = prepare(given.positions, given.max_draft)
    part = prepare(max(1, given.positions // 20), given.max_draft, ("by_row", "by_start"))
    fast = replay_speed(whole, part, given.repeats)
    python_speed(part, fast, given.repeats)
    command_speed()


class Prepared(NamedTuple):
    """A trace with its columns read, its layout, and its costs."""

    layout: PathLayout
    charge: Charge


def replay_speed(whole: Prepared, part: Prepared, repeats: int) -> dict[str, float]:
    """Positions per second of each policy, over all sequences and with their seconds."""
    print(f"\n{'policy':22}{'positions':>12}{'first run, s':>14}{'M positions/s':>15}", end="")
    print(f"{'ns/step':>9}{'target':>8}")
    speed = {}
    for name in policies.chains():
        policy = policies.parse(SPECS.get(name, name))
        on, target = whole, TARGETS.get(str(policy), OTHERS)
        if name == "pacer":
            on, target = part, 0.0
            policy = replace(policy, head="by_start")  # type: ignore
        elif policy.head:
            on, policy = part, replace(policy, head="by_row")  # type: ignore
        elif name in SEARCHING or not isinstance(policy, Sequential):
            on, target = part, SEARCHES if name in SEARCHING else 0.0
        label = SPECS.get(name, name)
        print(f"{label:22}", end="")
        speed[label] = one_speed(policy, on, target, repeats)
    return speed


def one_speed(policy: Policy, on: Prepared, target: float, repeats: int) -> float:
    """Print the rest of a policy's line; returns its positions per second."""

    def replay() -> Run:
        return run(policy, on.layout, on.charge, 1)

    n = len(on.layout.ahead)
    first, seconds = best(replay, 1), best(replay, repeats)
    steps = int(replay().counts["steps"].sum())
    wanted = f"≥ {target / 1e6:.0f}" if target else ""
    print(f"{n:12,}{first:14.2f}", end="")
    print(f"{n / seconds / 1e6:15.1f}{seconds / steps * 1e9:9.1f}{wanted:>8}", flush=True)
    return n / seconds


def python_speed(on: Prepared, fast: dict[str, float], repeats: int) -> None:
    """Drafted tokens per second in the plain loop, and what the compiled one gains."""
    unsure = policies.from_function(lambda depth, row: row[0] > 0.25, ("draft_entropy",))
    given = [policies.parse(spec) for spec in TARGETS] + [unsure]
    print(f"\nplain Python loop, {len(on.layout.ahead):,} positions\n")
    print(f"{'policy':18}{'M drafted/s':>14}{'M positions/s':>15}{'compiled':>10}{'target':>8}")
    for policy in given:
        assert isinstance(policy, Sequential)
        seconds = best(
            lambda policy=policy: interpreted.walk(policy, on.layout, 1), max(1, repeats // 3)
        )
        drafted = interpreted.walk(policy, on.layout, 1).drafted.sum() / seconds
        rate = len(on.layout.ahead) / seconds
        ratio = f"× {fast[str(policy)] / rate:.0f}" if str(policy) in fast else ""
        target = "" if ratio else "≥ 0.5"
        print(f"{policy!s:18}{drafted / 1e6:14.2f}{rate / 1e6:15.2f}{ratio:>10}{target:>8}")


def command_speed() -> None:
    """Seconds of the whole command on the bundled trace."""
    if "reference" not in bundled():
        return
    code = "from simkit.cli import main; main()"
    command = [sys.executable, "-c", code, "replay", "reference", "--policy", "fixed(5)"]

    def command_line() -> None:
        subprocess.run(command, check=True, capture_output=True)

    seconds = [best(command_line, 1, time.perf_counter) for _ in range(2)]
    print("\nsimkit replay reference --policy 'fixed(5)':", end=" ")
    print(f"{seconds[0]:.2f} s, again {seconds[1]:.2f} s (target ≤ 2.5)")


def prepare(positions: int, max_draft: int, heads: tuple[str, ...] = ()) -> Prepared:
    """A trace, maybe with scores by row and by start; says how long it took."""
    started = time.perf_counter()
    n_sequences = max(1, positions // LENGTH)
    trace = synthetic.iid(n_sequences, LENGTH, ALPHA, max_draft=max_draft, seed=0)
    for head in heads:
        trace = scores.attach(trace, head, made_up(trace, head == "by_start"))
    layout = PathLayout(trace)
    layout.columns(COLUMNS + tuple(map(policies.score_column, heads)))
    charge = Charge(COST, layout, 1)
    print(f"\ntrace: {trace.n_positions:,} positions, {trace.n_branch_rows:,} branch rows,", end="")
    print(f" Γ = {max_draft}, α = {ALPHA}; laid out in {time.perf_counter() - started:.1f} s")
    return Prepared(layout, charge)


def made_up(trace: Trace, by_start: bool) -> scores.Scores:
    """Scores that are high where the draft was accepted; by start, as if nothing were rejected."""
    path = trace.positions("draft_prob_raw") ** np.float32(0.3)
    if not by_start:
        return scores.RowScores(path, trace.branches("draft_prob_raw") ** np.float32(0.3))
    ahead = np.append(path, np.ones(trace.max_draft - 1, np.float32))
    return scores.StartScores(np.lib.stride_tricks.sliding_window_view(ahead, trace.max_draft))


def best(
    call: Callable[[], object], repeats: int, clock: Callable[[], float] = time.thread_time
) -> float:
    """The shortest time of a call, in seconds."""
    times = []
    for _ in range(repeats):
        started = clock()
        call()
        times.append(clock() - started)
    return float(np.min(times))


if __name__ == "__main__":
    main()
