"""Predicted speedups against the clock of a GPU, on the larger reference pair.

There, after `benchmarks.gpu.reference_large` on the same machine (no polars needed):

    python -m benchmarks.gpu.fidelity --out DIR

Here, with the trace that was recorded there:

    python -m benchmarks.gpu.fidelity --compare DIR --trace .work/reference-large/large

The protocol is that of `simkit fidelity` (docs/fidelity.md): calibration and held-out prompts in
turns, every policy on every held-out prompt, the order of the arms moves on by one from prompt to
prompt and round to round. No policy here reads a head. How many prompts fit into the time is found
from what the target alone takes for one of them. A run that comes to the end of its time ends
behind a prompt; one that is killed leaves its log in parts. The steps that were taken are in the
log, so that the comparison needs nothing else.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Sequence
from itertools import accumulate, cycle
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch

from benchmarks.gpu import device_rates
from benchmarks.gpu.delivery import Budget, write_json
from benchmarks.gpu.reference_large import PAIR, WORK
from simkit import policies
from simkit.fidelity import run
from simkit.live.decoders import TimedDecoder
from simkit.live.log import LiveLog
from simkit.live.rotation import Bench, LiveJob
from simkit.live.settings import DecoderSettings
from simkit.live.summary import drifts, sequences
from simkit.statistics.enough import FOR_AGREEMENT
from traces.record.pair import load_pair, quiet
from traces.trace import Trace, load

POLICIES = (
    "fixed(1)",
    "fixed(3)",
    "fixed(5)",
    "fixed(9)",
    "svip(h=0.4)",
    "svip(h=0.8)",
    "heuristic",
    "confidence",
    "cumulative_confidence",
    "adaedl",
)
CALIBRATION_SHARE = 0.25
# enough are held out to conclude
LEAST_PROMPTS = math.ceil(FOR_AGREEMENT / (1 - CALIBRATION_SHARE))
PART_S = 90.0  # of a part of the log: few files go back from there
SPARE = 0.85  # of the time: sequences differ, and policies may be slower than the target alone


def load_bench(trace: Trace, folder: Path, device: str) -> Bench:
    """The pair as it was recorded."""
    dtype = trace.manifest.dtype or "float32"
    pair = load_pair(str(folder / "target"), str(folder / "draft"), device, dtype)
    return Bench(pair, DecoderSettings.of(trace))


def n_prompts(trace: Trace, bench: Bench, seconds: float, rounds: int, n_arms: int) -> int:
    """Prompts, held out or not, for which `rounds` rounds of all arms take so many seconds."""
    pair = bench.pair
    decoder = TimedDecoder(pair.target, pair.draft, None, bench.settings, pair.vocab_size)
    lengths = trace.sequences["n_output"].to_numpy()
    index = int(np.argmax(lengths))
    prompt = trace.sequences["prompt_tokens"][index].as_py()
    decoder.decode(prompt, index)
    token_s = decoder.decode(prompt, index).seconds / int(lengths[index])
    one_s = token_s * float(lengths.mean()) * n_arms
    fitting = int(SPARE * seconds / one_s) // (rounds + 1)  # a round goes on warming up
    return min(max(fitting, LEAST_PROMPTS), trace.n_sequences)


def sizes(total: int) -> tuple[int, int]:
    """Of so many prompts, how many are held out and how many calibrate."""
    n_fitted = max(1, round(total * CALIBRATION_SHARE))
    return total - n_fitted, n_fitted


def make_plan(
    trace: Trace, bench: Bench, wanted: int | None, rounds: int, seconds: float
) -> run.LivePlan:
    """Which arms decode which prompts."""
    chosen = run.check_policies(
        [policies.parse(spec) for spec in POLICIES], trace, bench.settings, bench.heads
    )
    total = wanted or n_prompts(trace, bench, seconds, rounds, len(chosen) + 2)
    held_out, fitted = run.split(trace.prompt_numbers, *sizes(total))
    return run.LivePlan(tuple(chosen), held_out, fitted, rounds)


def stopper(jobs: list[LiveJob], budget: Budget) -> Callable[[], None]:
    """What is called after each sequence; it raises TimeoutError behind a job's last arm."""
    ends = set(accumulate(len(job.arms) for job in jobs))
    numbers = cycle(range(1, max(ends) + 1))

    def after_sequence() -> None:
        if next(numbers) in ends:
            budget.check()

    return after_sequence


def measure(trace: Trace, bench: Bench, plan: run.LivePlan, budget: Budget, out: Path) -> pa.Table:
    """Run all arms into `live.parquet`, written in parts as the run goes on."""
    with LiveLog(out / "live.parquet", bench.facts, PART_S) as log:
        try:
            run.measure(trace, bench, plan, log, stopper(run.jobs_of(trace, plan), budget))
        except TimeoutError:
            print("the time is over")
    return log.table()


def print_measured(log: pa.Table, plan: run.LivePlan) -> None:
    """Speeds on the clock, and whether equal arms agree."""
    seen = sequences(log, plan.tested)
    print("\n| policy | tokens/s | measured speedup | 95% interval |\n|---|---|---|---|")
    for row, name in enumerate(seen.names):
        low, high = seen.interval(seen.names.index("baseline"), row)
        speed = seen.tokens[row].sum() / seen.seconds[row].sum()
        print(f"| `{name}` | {speed:.1f} | {seen.speedup(row):.3f} | {low:.3f} – {high:.3f} |")
    for drift in drifts(seen):
        print(f"control: {drift}" + ("" if drift.agrees else f"; {drift.complaint}"))


def compare(folder: Path, trace: Trace, out: Path) -> int:
    """Hold predictions against what was decoded there; the exit status."""
    from simkit.cli.fidelity import conclude
    from simkit.fidelity import logs

    out.mkdir(parents=True, exist_ok=True)
    return int(not conclude(trace, logs.read(folder), out).conclusive)


def live(arguments: argparse.Namespace, budget: Budget) -> None:
    """The part there."""
    trace = load(arguments.trace)
    bench = load_bench(trace, arguments.pair, arguments.device)
    run.check_pair(trace, bench.pair)
    plan = make_plan(trace, bench, arguments.prompts, arguments.rounds, budget.left_s)
    arguments.out.mkdir(parents=True, exist_ok=True)
    print(f"{len(plan.held_out)} prompts held out, {len(plan.calibration)} for calibration")
    manifest = device_rates.describe(torch.device(arguments.device)) | {
        "dtype": trace.manifest.dtype,
        "policies": [str(policy) for policy in plan.policies],
        "held_out": plan.held_out,
        "calibration": plan.calibration,
        "rounds": plan.rounds,
        "target_sha256": trace.manifest.target and trace.manifest.target.weights_sha256,
        "draft_sha256": trace.manifest.draft and trace.manifest.draft.weights_sha256,
    }
    write_json(arguments.out / "manifest.json", manifest)
    log = measure(trace, bench, plan, budget, arguments.out)
    write_json(arguments.out / "manifest.json", manifest | {"seconds": budget.spent_s})
    print_measured(log, plan)


def main(argv: Sequence[str] | None = None) -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--compare", type=Path, metavar="DIR", help="of a run there")
    parser.add_argument("--out", type=Path, help="there: needed; here: default is --compare's")
    parser.add_argument("--trace", type=Path, default=WORK / "large")
    parser.add_argument("--pair", type=Path, default=WORK / PAIR, help="of target and draft")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--prompts", type=int, help="in all; default: as many as fit")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tiny", action="store_true", help="few prompts, one round")
    parser.add_argument("--budget-s", type=float, default=540.0, help="no prompt begins after it")
    arguments = parser.parse_args(argv)
    if arguments.compare:
        return compare(arguments.compare, load(arguments.trace), arguments.out or arguments.compare)
    if not arguments.out:
        parser.error("give --out or --compare")
    quiet()
    if arguments.tiny:
        arguments.prompts, arguments.rounds = 4, 1
    live(arguments, Budget(arguments.budget_s))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
