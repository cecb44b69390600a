"""Another simulator's numbers, from its data: `python -m benchmarks.peers FILE.jsonl`.

Reads a file of SpecDecode-Bench (arXiv:2601.11580; or the one that SIMKIT_PEER_DATA names) and
replays it with that simulator's cost for Llama-3.1-8B-Instruct and its EAGLE drafter on an H100.
Beside its sample of GSM8K (300 requests, known by the file's hash) stand the speedups that the
simulator prints at batch size 1, and those at batches of 8 to 128 copies of a request; of another
file it prints others, which are not known here. It takes 300 requests at most, drawn with seed 42,
before it averages: so does --sample 300. Larger batches are served (`simkit.serve`, copies): as
they are, and as the simulator does it in three things, which makes its ratios to the printed digit.
Its oracle drafts past an output's end; a drafter that was left out of a step reads nothing of what
it missed; and its copies draft one after another, behind the tokens that those before them have
just added, and without those of copies that have just ended. Then the time of one setting in
process: steps, costs and sums of each request; the layout and the tables of costs, which all
settings of a sweep share, are made before.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import time

import numpy as np

import simkit
from simkit import policies
from simkit.costs import Linear, parse
from simkit.importers import specdecode_bench
from simkit.serving import Engine, ServingRun, serve
from simkit.simulator.arguments import setting
from simkit.simulator.run import Run, run
from traces.trace import Trace

COST = "specdecode-bench:eagle"
TARGET_S = 2e-3
# The simulator's sample of GSM8K, the file that PRINTED holds for.
GSM8K_SHA256 = "6d6bfb9993f4a540ff73cb330bdd4348dc3e6a6c77a111d3e35b96caf83c26f1"
# Its speedups as a ratio of mean throughputs, and as a ratio of summed times.
PRINTED = {
    "fixed(1)": ("1.29", "1.30"),
    "fixed(3)": ("1.81", "1.81"),
    "fixed(5)": ("2.01", "2.00"),
    "oracle()": ("2.13", "2.11"),
}
# Its ratios of mean throughputs at larger batches, each of so many copies of one request.
BATCHES = {
    1: ("1.2937", "1.8099", "2.0103", "2.1291"),
    8: ("1.2774", "1.7260", "1.8608", "2.0556"),
    32: ("1.2324", "1.5211", "1.5297", "1.8693"),
    64: ("1.1897", "1.3568", "1.2947", "1.7127"),
    128: ("1.1359", "1.1823", "1.0699", "1.5382"),
}
MORE = ("prophet()", "heuristic()")


def main() -> None:
    """Print all figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split(":")[0])
    parser.add_argument("file", nargs="?", default=os.environ.get("SIMKIT_PEER_DATA"))
    parser.add_argument("--repeats", type=int, default=50)
    parser.add_argument("--sample", type=int, help="requests to draw; all unless given")
    parser.add_argument("--seed", type=int, default=42)
    given = parser.parse_args()
    if not given.file:
        parser.error("name the sample, or set SIMKIT_PEER_DATA")
    trace = specdecode_bench.load(given.file, sample=given.sample, seed=given.seed).trace
    printed = printed_of(trace)
    print(f"{platform.processor() or platform.machine()}, Python {platform.python_version()}")
    print(f"{trace.n_sequences} requests, {trace.n_positions:,} positions, {COST}\n")
    print(f"{'':24}{'mean throughputs':^20}{'summed times':^20}{'one setting':>12}")
    print(f"{'policy':24}" + f"{'simkit':>10}{'printed':>10}" * 2 + f"{'ms':>12}")
    result = simkit.replay(trace, [*PRINTED, *MORE], COST, first_token="prefill")
    for row, replayed in zip(result.records(), result.runs, strict=True):
        ours = (throughput_ratio(replayed), row["speedup"])
        theirs = printed.get(row["policy"], ("", ""))
        cells = "".join(f"{a:10.2f}{b:>10}" for a, b in zip(ours, theirs, strict=True))
        spent_s = setting_s(trace, row["policy"], given.repeats)
        print(f"{row['policy']:24}{cells}{1e3 * spent_s:12.2f}")
    if printed:
        batches(trace)
    print(f"\ntarget: one setting in {1e3 * TARGET_S:g} ms (median of {given.repeats})")


def batches(trace: Trace) -> None:
    """Print the ratios of mean throughputs at larger batches: served, its way, and printed."""
    print(f"\n{'batch':8}{'':10}" + "".join(f"{spec:>12}" for spec in PRINTED))
    for size, theirs in BATCHES.items():
        ratios = {
            "served": served_ratios(trace, size, False),
            "its way": served_ratios(trace, size),
        }
        for what, ours in ratios.items():
            print(f"{size:<8}{what:10}" + "".join(f"{ratio:12.4f}" for ratio in ours))
        print(f"{size:<8}{'printed':10}" + "".join(f"{ratio:>12}" for ratio in theirs))


def served_ratios(trace: Trace, size: int, its_way: bool = True) -> list[float]:
    """Ratios of mean throughputs of batches of so many copies of each request."""
    longest = int(np.diff(trace.lattice_offsets).max())
    specs = ["none", "static(1)", "static(3)", "static(5)", f"prophet({longest})"]
    found = serve(
        trace, specs, COST, copies=size, requests=None, seeds=1, first_token="prefill",
        engine=Engine(size, catch_up=not its_way),
    )  # fmt: skip
    means = [np.mean(throughputs(one, size, its_way)) for one in found.runs]
    return [float(mean / means[0]) for mean in means[1:]]


def throughputs(served: ServingRun, size: int, its_way: bool) -> np.ndarray:
    """Tokens a second of each batch of copies."""
    server, layout = served.server, served.plan.layout
    seconds = (server.done_s - server.arrival_s)[::size]
    if its_way and str(served.controller) != "none()":
        cost = parse(COST)
        assert isinstance(cost, Linear)
        steps = {
            name: values[served.steps["request"] % size == 0]
            for name, values in served.steps.items()
        }
        batch = steps["request"] // size
        last = np.append(np.diff(batch) > 0, True)
        context = layout.n_prompt[batch] + steps["start"] - 1
        kv = np.where(last, -context, steps["emitted"]) * (size - 1) / 2
        rows = layout.offsets[batch] + steps["start"] - 1
        further = np.diff(layout.trace.lattice_offsets)[rows] - steps["proposed"] - 1
        oracle = str(served.controller).startswith("prophet")
        more = np.where(last & oracle, np.maximum(further, 0), 0)
        token_s = size * cost.target_per_token_s + cost.draft_per_token_s
        extra_s = kv * cost.draft_per_kv_token_s + more * token_s
        seconds = seconds + np.bincount(batch, extra_s, len(seconds))
    return size * layout.n_output / seconds


def printed_of(trace: Trace) -> dict[str, tuple[str, str]]:
    """What the simulator prints of a trace's file; nothing where that is not known."""
    source = trace.manifest.source
    known = (GSM8K_SHA256, "eagle", "simulator", "")
    if source and (source.sha256, source.drafter, source.align, source.sample) == known:
        return PRINTED
    print("another file than the simulator's sample of GSM8K: what it prints is not known\n")
    return {}


def throughput_ratio(replayed: Run) -> float:
    """The mean of requests' tokens a second over that of autoregressive decoding."""
    assert replayed.seconds is not None
    tokens = replayed.layout.n_output
    mean = np.mean(tokens / replayed.total_s)
    return float(mean / np.mean(tokens / replayed.seconds["baseline_s"]))


def setting_s(trace: Trace, spec: str, repeats: int) -> float:
    """Seconds of one setting, the median."""
    where = setting(trace, COST, "prefill")
    policy = policies.parse(spec)
    spent = []
    for _ in range(repeats):
        started = time.perf_counter()
        replayed = run(policy, *where)
        assert replayed.total_s.sum() > 0
        spent.append(time.perf_counter() - started)
    return statistics.median(spent)


if __name__ == "__main__":
    main()
