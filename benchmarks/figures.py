"""All figures, timed: `python -m benchmarks.figures`.

Draws every figure from a bundled trace and saves it, as `simkit figures` does, then tests all
claims, and prints the seconds on the clock, those of the processor, and the peak memory of each
(on Linux; elsewhere the process's so far). With `--rows N` the trace is a made-up one of so many
positions, under a linear cost; it has no heads, so that figures and policies of theirs are left
out. `--gallery DIR` writes small pictures of the bundled traces, those of docs/gallery.md, and
docs/_data/tables.json, which docs/tables.md shows; with `--only` some of the former.
"""

from __future__ import annotations

import argparse
import io
import json
import resource
import tempfile
import time
from collections.abc import Collection, Iterable
from pathlib import Path

from PIL import Image

from analysis import claims
from analysis.figures import FIGURES, Drawn
from analysis.figures.tables import tables, tree_tables
from analysis.study import Study
from traces.errors import UserError
from traces.outputs import write_atomic
from traces.synthetic import iid
from traces.trace import Trace, load

TARGET_S, LIMIT_GB = 60.0, 2.0
LENGTH = 256
CLEAR = Path("/proc/self/clear_refs")
COST = "linear(draft_s=0.001, target_s=0.006, target_per_token_s=0.0001, overhead_s=0.0002)"
SAMPLED = (  # whose papers sample
    "entropy_acceptance",
    "entropy_length",
    "entropy_ratio",
    "entropy_bound",
    "position_decay",
    "draft_lengths",
    "text_position",
)
TREES_SAMPLED = ("tree_budget", "tree_exits", "tree_head")
TREES_SERVED = ("tree_map",)  # of a drafter that makes one pass for a tree
ALONE = ("drafters_by_depth", "drafters_by_task", "drafters_entropy", "drafters_confidence")
RUNG = "q3-g32"  # the draft of `ladder` of which 80% of the tokens are accepted
RUNG_COST = "atlas(target=qwen2.5-32b, draft=qwen2.5-0.5b)"
ON_THE_RUNG = (  # others need times of heads, longer drafts or outputs, other drafters or trees
    "entropy_acceptance",
    "entropy_length",
    "entropy_ratio",
    "entropy_bound",
    "draft_lengths",
    "confidence_acceptance",
    "position_decay",
    "expected_length",
    "step_lengths",
    "optimal_lengths",
    "optimal_gain",
    "optimal_gamma",
    "gap_decomposition",
    "timeline",
    "mutual_waiting",
    "pearl_strategies",
    "pearl_accepted",
    "pearl_runs",
    "best_policy_map",
    "forward_passes",
    "dynamic_policies",
    "policies_by_task",
    "pacer_components",
    "pacer_attention",
    "pacer_criteria",
    "pacer_block",
    "pacer_growth",
    "pacer_threshold",
    "acceptance_head",
    "reliability",
    "frontier",
    "batch_speedup",
    "regret_by_task",
    "regret_by_position",
    "load_crossover",
    "load_frontier",
    "load_goodput",
    "load_latency",
    "load_timeline",
)


HEADLINES = ("drafters_by_task", "best_policy_map")  # of docs/papers.md, on a real model


def main() -> None:
    """Print all figures' times."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split(":")[0])
    parser.add_argument("trace", nargs="?", default="reference")
    parser.add_argument("--rows", type=int)
    parser.add_argument("--max-draft", type=int, default=12, help="Γ of the made-up trace")
    parser.add_argument("--only", nargs="+", choices=FIGURES, default=tuple(FIGURES))
    parser.add_argument("--gallery", type=Path)
    given = parser.parse_args()
    if given.gallery:
        gallery(given.gallery, given.only)
        return
    trace = made_up(given.rows, given.max_draft) if given.rows else load(given.trace)
    study = Study(trace)
    cost = COST if given.rows else None
    begun, cpu = time.perf_counter(), time.process_time()
    rows = f"{trace.n_positions:,} positions, {trace.n_branch_rows:,} branch rows"
    print(f"{rows}; before: {peak_gb():.2f} GB")
    print(f"{'figure':24}{'draw, s':>9}{'cpu, s':>9}{'save, s':>9}{'peak, GB':>10}")
    with tempfile.TemporaryDirectory() as folder:
        for name in given.only:
            restart_peak()
            start, used = time.perf_counter(), time.process_time()
            try:
                found = FIGURES[name].under(study, cost)
            except UserError as error:
                print(f"{name:24}{time.perf_counter() - start:9.1f} {error}", flush=True)
                continue
            drawn, used = time.perf_counter(), time.process_time() - used
            found.save(folder)
            saved = time.perf_counter()
            print(
                f"{name:24}{drawn - start:9.1f}{used:9.1f}{saved - drawn:9.1f}{peak_gb():10.2f}",
                flush=True,
            )
    restart_peak()
    start, used = time.perf_counter(), time.process_time()
    tested = claims.check(study, cost)
    used = time.process_time() - used
    print(f"{'claims':24}{time.perf_counter() - start:9.1f}{used:9.1f}{'':9}{peak_gb():10.2f}")
    print(tested.note())
    spent = time.perf_counter() - begun, time.process_time() - cpu
    print(f"{'all':24}{spent[0]:9.1f} s, {spent[1]:.1f} s of processor time")
    print(f"target: {TARGET_S:g} s on two cores for `reference`; {LIMIT_GB:g} GB for 20 M rows")


def made_up(rows: int, max_draft: int) -> Trace:
    """A trace in memory whose columns are made when a figure asks for them."""
    tasks = ("code", "prose")
    return iid(rows // LENGTH, LENGTH, 0.8, max_draft=max_draft, seed=0, tasks=tasks)


def gallery(folder: Path, only: Collection[str]) -> None:
    """Write NAME.png of a greedy trace, and NAME-sampled.png of a sampled one.

    The traces are `ladder` and `ladder-sampled` for figures `ON_THE_RUNG`, else `reference` and
    its relatives. With some figures only, headlines and tables stay as they are.
    """
    trees = tuple(name for name, entry in FIGURES.items() if entry.trees)
    off = (*ON_THE_RUNG, *trees)
    sampled = tuple(name for name in SAMPLED if name in ON_THE_RUNG)
    for trace, cost, names, end in (
        (load("ladder", RUNG), RUNG_COST, ON_THE_RUNG, ""),
        (load("ladder-sampled", RUNG), RUNG_COST, sampled, "-sampled"),
        ("reference", None, without(FIGURES, off), ""),
        ("reference-sampled", None, without(SAMPLED, off), "-sampled"),
        ("reference-target", None, ALONE, "-sampled"),
        ("reference-trees", None, without(trees, TREES_SERVED), ""),
        (load("reference-trees", "pard2-tree"), None, TREES_SERVED, ""),
        ("reference-trees-sampled", None, TREES_SAMPLED, "-sampled"),
    ):
        study = Study(trace)
        for name in (name for name in names if name in only):
            picture(FIGURES[name].under(study, cost), folder / f"{name}{end}.png")
    if len(only) < len(FIGURES):
        return
    study = Study("smollm2-sampled")
    for name in HEADLINES:
        picture(FIGURES[name].under(study, None), folder.parent / f"smollm2-{name}.png")
    long = FIGURES["text_position"].under(Study("smollm2-long"), None)
    picture(long, folder.parent / "smollm2-long.png")
    text = json.dumps(in_form(), ensure_ascii=False, indent=1) + "\n"
    write_atomic(folder.parent / "_data" / "tables.json", text.encode())


def without(names: Iterable[str], others: Collection[str]) -> tuple[str, ...]:
    """The names that are not among the others."""
    return tuple(name for name in names if name not in others)


def in_form() -> dict[str, dict[str, list]]:
    """The papers' tables by trace, and what is missing, with the reason."""
    found: dict[str, dict[str, list]] = {}
    for name, only in (("reference", ()), ("reference-sampled", ("SVIP Table 5", "SVIP Table 2"))):
        made, gone = tables(name)
        mine = [one._asdict() for one in made if not only or one.source in only]
        found[name] = {"tables": mine, "missing": [] if only else gone}
    for name in ("reference-trees", "reference-trees-sampled"):
        made, _ = tree_tables(Study(name))
        found[name] = {"tables": [one._asdict() for one in made], "missing": []}
    return found


def picture(found: Drawn, path: Path) -> None:
    """Write a figure with 256 colours, which makes it small."""
    image = (
        Image.open(io.BytesIO(found.picture("png", 100)))
        .convert("RGB")
        .quantize(256, Image.Quantize.MAXCOVERAGE)
    )
    small = io.BytesIO()
    image.save(small, format="png", optimize=True)
    write_atomic(path, small.getvalue())


def restart_peak() -> None:
    """Let the peak be that from now on, where the system can."""
    if CLEAR.exists():
        CLEAR.write_text("5")  # proc(5): resets VmHWM


def peak_gb() -> float:
    """The most memory that the process has held since `restart_peak`, GB."""
    if CLEAR.exists():
        lines = CLEAR.with_name("status").read_text().splitlines()
        (peak,) = (line.split()[1] for line in lines if line.startswith("VmHWM"))
        return int(peak) * 1024 / 1e9
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9


if __name__ == "__main__":
    main()
