"""Cut a bundled recording to a few prompts of each task, to which more can be attached.

``python -m traces.recipes.reference.cut TRACE -o FOLDER``
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import traces
from traces.errors import UserError
from traces.recipes.command import parser_of
from traces.subset import select
from traces.trace import Trace
from traces.writer import save


def main() -> None:
    """Command line."""
    parser = parser_of(__doc__)
    parser.add_argument("trace", type=Path)
    parser.add_argument("-o", "--out", type=Path, required=True)
    parser.add_argument("--a-task", type=int, default=4, help="Prompts of each task.")
    parser.add_argument("--least", type=int, default=16, help="Tokens of an output.")
    parser.add_argument("--max-new-tokens", type=int, default=64, help="T_max of the cut.")
    args = parser.parse_args()
    try:
        whole = traces.load(args.trace)
        chosen = first_of_each(whole, args.a_task, args.least)
        save(select(whole, chosen, (), args.max_new_tokens, whole.latency()), args.out)
    except UserError as error:
        sys.exit(f"error: {error}")


def first_of_each(trace: Trace, a_task: int, least: int) -> list[int]:
    """Indices of the first prompts of each task whose outputs have at least so many tokens."""
    taken: Counter[str | None] = Counter()
    chosen = []
    columns = (trace.sequences[name].to_pylist() for name in ("task", "n_output"))
    for index, (task, n_output) in enumerate(zip(*columns, strict=True)):
        if n_output >= least and taken[task] < a_task:
            taken[task] += 1
            chosen.append(index)
    return chosen


if __name__ == "__main__":
    main()
