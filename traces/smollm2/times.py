"""Give a trace, or a drafter of it, the timing samples of another one of the same models.

``python -m traces.smollm2.times FROM TO``
"""

from __future__ import annotations

import argparse
from pathlib import Path

import traces
from traces.writer import add_file


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("given", type=Path, metavar="FROM")
    parser.add_argument("to", type=Path, metavar="TO")
    args = parser.parse_args()
    one, other = traces.load(args.given), traces.load(args.to)
    samples = one.own_latency()
    if samples is None:
        parser.error(f"{args.given} has no timing samples")
    for model in ("target", "draft"):
        if getattr(one.manifest, model) != getattr(other.manifest, model):
            parser.error(f"{args.given} and {args.to} are not of the same {model}")
    add_file(args.to, "latency.parquet", samples)


if __name__ == "__main__":
    main()
