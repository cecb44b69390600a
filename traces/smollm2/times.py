"""Give a trace, or a drafter of it, the timing samples of another one of the same models.

``python -m traces.smollm2.times FROM TO``
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import traces
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
    """Put the timing samples of the one folder into the other.

    Raises:
        TraceError: a folder is no trace or cannot be written, there are no samples, or the models
            are not the same.
    """
    one, other = traces.load(given), traces.load(to)
    samples = one.own_latency()
    if samples is None:
        raise TraceError(f"{given} has no timing samples")
    for model in ("target", "draft"):
        if getattr(one.manifest, model) != getattr(other.manifest, model):
            raise TraceError(f"{given} and {to} are not of the same {model}")
    add_file(to, "latency.parquet", samples)


if __name__ == "__main__":
    main()
