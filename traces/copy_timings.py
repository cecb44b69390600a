"""Give a trace, or a drafter of it, the timing samples of another one of the same models.

``python -m traces.copy_timings FROM TO``

A live decoder cannot repeat outputs that are the target's own draws, so recordings of that coupling
take the times of another one.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import pyarrow.compute as pc

import traces
from traces.conditions import DRAW
from traces.errors import TraceError, UserError
from traces.writer import add_file


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("given", type=Path, metavar="FROM")
    parser.add_argument("to", type=Path, metavar="TO")
    args = parser.parse_args()
    try:
        copy(args.given, args.to)
    except UserError as error:
        sys.exit(f"error: {error}")


def copy(given: Path, to: Path) -> None:
    """Put the timing samples of the one folder into the other, those of models that it has.

    A recording without a draft model takes no draft passes, an attached drafter nothing else.

    Raises:
        TraceError: a folder is no trace or cannot be written, there are no samples, or the models
            are not the same.
    """
    one, other = traces.load(given), traces.load(to)
    samples = one.own_latency()
    if samples is None:
        raise TraceError(f"{given} has no timing samples")
    for name in ("target", "draft"):
        theirs, its = getattr(one.manifest, name), getattr(other.manifest, name)
        if its is not None and its != theirs:
            raise TraceError(f"{given} and {to} are not of the same {name}")
    drafts = pc.field("component").isin(["draft", f"{DRAW}draft"])
    if other.manifest.draft is None:
        samples = samples.filter(~drafts)
    elif other.manifest.attached_to:
        samples = samples.filter(drafts)
    add_file(to, "latency.parquet", samples)


if __name__ == "__main__":
    main()
