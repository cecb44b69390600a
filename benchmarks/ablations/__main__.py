"""Ablations of the papers on one recorded trace, with intervals, beside the printed numbers.

    python -m benchmarks.ablations                      # everything, on the bundled trace
    python -m benchmarks.ablations --only table-5 --cost measured -o ablations/

Prints Markdown; -o DIR also writes ablations.md and ablations.parquet there. The tables of the
PACER paper, Figure 2 of the acceptance-head paper and its sweep of h are replayed at the papers'
settings, and tuned: every row keeps what it is about, the rest is chosen for each of five folds of
the prompts by the other folds. Each under the trace's own times and under those of the paper's
pair. What the columns mean, and why signs differ, is in docs/ablations.md.
"""

from __future__ import annotations

import argparse
import io
import sys
from pathlib import Path

from benchmarks.ablations.arms import ABLATIONS
from benchmarks.ablations.replays import Replays, frame
from benchmarks.ablations.tables import markdown
from traces.errors import UserError
from traces.outputs import write_together
from traces.trace import load


def main(argv: list[str] | None = None) -> None:
    """Command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.ablations",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    names = [ablation.name for ablation in ABLATIONS]
    parser.add_argument("trace", nargs="?", default="reference")
    parser.add_argument("--only", action="append", choices=names, help="may be repeated")
    parser.add_argument("--cost", action="append", help="default: measured, and the paper's")
    parser.add_argument("-o", "--output", type=Path)
    given = parser.parse_args(argv)
    try:
        run(given)
    except (UserError, OSError) as error:
        sys.exit(f"error: {error}")


def run(given: argparse.Namespace) -> None:
    """Replay and print."""
    trace = load(given.trace)
    chosen = [
        ablation for ablation in ABLATIONS if ablation.name in (given.only or [ablation.name])
    ]
    costs = {ablation.name: given.cost or ablation.costs for ablation in chosen}
    replayed = {
        cost: Replays(trace, cost, [a for a in chosen if cost in costs[a.name]])
        for cost in dict.fromkeys(cost for some in costs.values() for cost in some)
    }
    rows = [row for a in chosen for cost in costs[a.name] for row in replayed[cost].rows(a)]
    text = "\n".join(markdown(trace, replayed, chosen, rows))
    print(text)
    if given.output:
        table = io.BytesIO()
        frame(rows).write_parquet(table)
        contents = {"ablations.md": (text + "\n").encode(), "ablations.parquet": table.getvalue()}
        write_together({given.output / name: data for name, data in contents.items()})


if __name__ == "__main__":
    main()
