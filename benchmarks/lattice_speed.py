"""How fast a lattice is replayed, on one core: `python -m benchmarks.lattice_speed`.

A made-up trace of which each start has a draft of its own, as parallel drafters, chains and rules
from tokens have. Printed are starts per second, of all those in the trace: positions from which a
step may begin. Each figure is the best of several runs, in CPU seconds of the one thread, behind
one that compiles and lays out the trace. Drafts are paid by the token, or all in one pass; with
`none` nothing is charged. The command ends with status 1 if `fixed(5)` is slower than 100 million.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

import numpy as np

from benchmarks.replay_speed import best
from simkit import policies
from simkit.costs import Linear
from simkit.drafters import layout_of
from simkit.policies import Setting
from simkit.simulator.run import run
from simkit.simulator.step_costs import Charge
from traces.drafters.passes import Passes
from traces.memory import from_drafts
from traces.trace import Trace

LENGTH, ALPHA = 1000, 0.8  # output tokens of a sequence; chance that a drafted token is accepted
LEAST = 100e6
COST = Linear(draft_s=2e-3, target_s=30e-3, target_per_token_s=1e-4, target_per_kv_token_s=1e-6)
RULES = ("fixed(5)", "oracle(max_draft=8)", "svip(h=0.5, max_draft=8)")
PAID: tuple[Passes, ...] = ("token", "draft", "chain", "none")


def main() -> None:
    """Print the table; exit with status 1 where it is too slow."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split(":")[0])
    parser.add_argument("--starts", type=int, default=1_000_000)
    parser.add_argument("--max-draft", type=int, default=8, help="Γ")
    parser.add_argument("--repeats", type=int, default=7)
    given = parser.parse_args()
    print("| policy | " + " | ".join(f"paid by {word}" for word in PAID) + " | nothing charged |")
    print("|---" * (len(PAID) + 2) + "|")
    slowest = np.inf
    found = {rule: [] for rule in RULES}
    for word in (*PAID, None):
        trace = made_up(given.starts, given.max_draft, word or "token")
        for rule in RULES:
            rate = trace.n_positions / least_s(replay_of(trace, rule, word), given.repeats)
            found[rule].append(rate)
        del trace
    for rule, rates in found.items():
        slowest = min(slowest, *rates) if rule == "fixed(5)" else slowest
        print(f"| `{rule}` | " + " | ".join(f"{rate / 1e6:.0f} M/s" for rate in rates) + " |")
    if slowest < LEAST:
        sys.exit(f"fixed(5): {slowest / 1e6:.0f} M starts/s, less than {LEAST / 1e6:.0f} M")


def made_up(starts: int, max_draft: int, draft_passes: Passes) -> Trace:
    """Drafts of `max_draft` tokens from so many starts, accepted at random up to some depth."""
    rng = np.random.default_rng(0)
    n = -(-starts // LENGTH)
    depth = np.tile(np.arange(1, max_draft + 1), n * LENGTH)
    reach = np.minimum(rng.geometric(1 - ALPHA, n * LENGTH) - 1, max_draft - 1)
    rows = {
        "sequence": np.repeat(np.arange(n), LENGTH * max_draft),
        "start": np.tile(np.repeat(np.arange(1, LENGTH + 1), max_draft), n),
        "depth": depth,
        "accepted": depth <= np.repeat(reach, max_draft),
        "draft_entropy": rng.random(len(depth), np.float32),
        "draft_top1_prob": np.full(len(depth), 0.5, np.float32),
        "draft_top10_mass": np.ones(len(depth), np.float32),
    }
    lengths = {"n_output": np.full(n, LENGTH), "n_prompt": np.full(n, 100)}
    return from_drafts(
        lengths, rows, draft_passes=draft_passes, max_draft=max_draft, max_new_tokens=LENGTH
    )


def replay_of(trace: Trace, rule: str, paid: str | None) -> Callable[[], object]:
    """One whole replay, with its costs unless none are asked for."""
    layout = layout_of(trace)
    charge = Charge(COST, layout, 1) if paid else None
    policy = policies.parse(rule).bind(Setting(layout, charge, 1))
    return lambda: run(policy, layout, charge, 1)


def least_s(job: Callable[[], object], repeats: int) -> float:
    """CPU seconds of the quickest run, behind one that is not counted."""
    job()
    return best(job, repeats)


if __name__ == "__main__":
    main()
