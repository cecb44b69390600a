"""How far predicted speedups are from the clock, on the reference pair and this machine.

    python -m benchmarks.fidelity                  # the whole table, about an hour on two cores
    python -m benchmarks.fidelity --prompts 4 --calibration 3 --rounds 1    # does it work?

It runs `simkit fidelity` on the bundled trace with the bundled heads. Exit status 1 if equal arms
disagree (nothing else may run on the machine), or if the median error is above 3%, the worst above
8%, or a pair of policies that differ by more than the noise is ranked the wrong way round.
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
    parser.add_argument("--prompts", type=int, default=24)
    parser.add_argument("--calibration", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--out", type=Path, default=Path(".work/fidelity"))
    args = parser.parse_args()
    quiet()
    models = Path(REFERENCE) / "models"
    return fidelity(
        args.trace,
        str(models / "target"),
        str(models / "draft"),
        head=[str(HEAD)],
        prompts=args.prompts,
        calibration=args.calibration,
        rounds=args.rounds,
        threads=args.threads,
        device="cpu",
        strict=True,
        out=args.out,
    )


if __name__ == "__main__":
    sys.exit(main())
