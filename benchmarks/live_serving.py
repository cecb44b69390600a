"""How far predicted throughputs are from a live server's, on the reference pair and this machine.

    python -m benchmarks.live_serving                      # about an hour on two cores
    python -m benchmarks.live_serving --concurrency 4 --prompts 8 --calibration 6 --tokens 24

    python -m benchmarks.live_serving --from .work/serving    # judge that run's logs again

At each concurrency a server of the pair runs controllers on held-out prompts of the bundled trace,
and others, of fixed lengths, on calibration prompts, all in turns by iterations. The simulator
predicts the former from times of the latter (`benchmarks.live_serving_judge`). Exit status 1 if a
bar is missed: the median error is above 5%, the worst above 10%, or of two controllers that the
measured throughputs tell apart the wrong one is ahead.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import traces
from benchmarks import live_serving_judge as judging
from benchmarks.recorded import REFERENCE
from simkit.fidelity.run import split
from simkit.live import served
from simkit.live.clock import ProcessorClock
from simkit.live.rotation import use_threads
from simkit.live.served import ServedRun
from simkit.live.serving_arms import ServingBench, run
from simkit.live.settings import DecoderSettings
from traces.conditions import Watch
from traces.outputs import make_folder
from traces.record.pair import load_pair, quiet

MODELS = Path(REFERENCE) / "models"


def main(argv: Sequence[str] | None = None) -> int:
    """Run from the command line; the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--concurrency", default="1,4,16")
    parser.add_argument("--prompts", type=int, default=32)
    parser.add_argument("--calibration", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=64, help="T_max")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--controller", action="append", help="spec; repeat it")
    parser.add_argument(
        "--clock",
        choices=["wall", "processor"],
        default="wall",
        help="processor: seconds of this process alone, where others run beside it (one thread)",
    )
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--from", type=Path, dest="folder", help="of an earlier run, same options")
    parser.add_argument("--out", type=Path, default=Path(".work/serving"))
    given = parser.parse_args(argv)
    trace = traces.load("reference")
    specs = tuple(given.controller or judging.CONTROLLERS)
    held_out, calibration = split(trace.prompt_numbers, given.prompts, given.calibration)
    plan = judging.ServingPlan(specs, held_out, calibration, given.tokens)
    sizes = [int(n) for n in given.concurrency.split(",")]
    out = given.folder or given.out
    make_folder(out)
    if given.folder is None:
        measure(trace, plan, sizes, given, out)
    runs = [judging.runs_of(judging.read(out / f"live-{n}.parquet")) for n in sizes]
    return report(trace, plan, runs, out)


def measure(
    trace: traces.Trace,
    plan: judging.ServingPlan,
    sizes: list[int],
    given: argparse.Namespace,
    out: Path,
) -> None:
    """Serve everything, and write a log for each concurrency."""
    quiet()
    use_threads(given.threads)
    pair = load_pair(str(MODELS / "target"), str(MODELS / "draft"), "cpu", "float32", None)
    settings = DecoderSettings.of(trace, max_new_tokens=plan.max_new_tokens)
    for concurrency in sizes:
        runs: list[ServedRun] = []
        watch = Watch()
        arms = plan.arms(trace)
        clock = ProcessorClock() if given.clock == "processor" else None
        bench = ServingBench(pair, settings, concurrency, clock=clock)
        run(bench, arms, given.rounds, runs)
        served.write(out / f"live-{concurrency}.parquet", served.table(runs))
        print(f"concurrency {concurrency}: {watch.conditions().machine}", flush=True)


def report(
    trace: traces.Trace, plan: judging.ServingPlan, runs: list[list[ServedRun]], out: Path
) -> int:
    """Print predictions beside measurements; the exit status."""
    errors, misranked, said, apart = [], [], [], 0
    print("| in flight | controller | predicted tok/s | measured | error | with the controller |")
    print("|---|---|---|---|---|---|")
    for mine in runs:
        n = mine[0].concurrency
        found = judging.judge(trace, plan, mine, out / f"cost-{n}.parquet")
        for row in found.rows:
            cells = f"{row.predicted:.1f} | {row.measured:.1f} | {row.error:+.1%} | {row.whole:.1f}"
            print(f"| {n} | `{row.controller}` | {cells} |")
            errors.append(abs(row.error))
        print(f"| {n} | control: the first one again | | | {found.control:+.1%} | |")
        said += found.notes
        apart += sum(pair.told_apart for pair in found.pairs)
        misranked += [(n, pair) for pair in found.pairs if pair.misranked]
    print(f"\nmedian error {np.median(errors):.1%}, worst {max(errors):.1%}")
    print(f"{apart} pairs are told apart, {len(misranked)} of them misranked")
    for line in dict.fromkeys(said):
        print(f"note: {line}")
    for n, pair in misranked:
        print(
            f"  {n} in flight: {pair.first} against {pair.second}: predicted {pair.predicted:.3f},"
            f" measured {pair.measured:.3f} [{pair.lo:.3f}, {pair.hi:.3f}]"
        )
    missed = np.median(errors) > judging.MEDIAN_BAR or max(errors) > judging.WORST_BAR
    return int(missed or bool(misranked))


if __name__ == "__main__":
    sys.exit(main())
