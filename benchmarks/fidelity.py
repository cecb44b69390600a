"""How far predicted speedups are from the clock, on the reference pair and this machine.

    python -m benchmarks.fidelity                  # the whole table, about an hour on two cores
    python -m benchmarks.fidelity --prompts 5 --calibration 3 --rounds 1    # does it work?

    python -m benchmarks.fidelity --from .work/fidelity    # the table anew, from that run's log

It runs `simkit fidelity --strict` on the bundled trace with the bundled heads. Exit status 1 if a
bar is missed: equal arms may differ by more than 3% (nothing else may run on the machine), the
median error is above 3%, the worst above 8%, no pair of policies differs by more than the noise or
one that does is ranked the wrong way round, or a live step is not the replayed one.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from benchmarks.recorded import REFERENCE
from simkit.cli.fidelity import fidelity
from traces.record.pair import quiet

HEAD = Path(REFERENCE) / "heads" / "pacer.safetensors"


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trace", default="reference")
    parser.add_argument("--prompts", type=int)
    parser.add_argument("--calibration", type=int)
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--from", dest="earlier", type=Path, help="folder of an earlier run")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    sizes = {name: getattr(args, name) for name in ("prompts", "calibration", "rounds", "threads")}
    if args.earlier:
        return fidelity(args.trace, from_=args.earlier, strict=True, out=args.out, **sizes)
    quiet()
    models = Path(REFERENCE) / "models"
    return fidelity(
        args.trace,
        str(models / "target"),
        str(models / "draft"),
        head=[str(HEAD)],
        device="cpu",
        strict=True,
        out=args.out or Path(".work/fidelity"),
        **sizes,
    )


if __name__ == "__main__":
    sys.exit(main())
