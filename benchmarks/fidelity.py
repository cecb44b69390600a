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
from collections.abc import Sequence
from pathlib import Path

from benchmarks.recorded import REFERENCE
from simkit.cli import main as simkit

MODELS = Path(REFERENCE) / "models"
PAIR = {
    "--target": MODELS / "target",
    "--draft": MODELS / "draft",
    "--head": Path(REFERENCE) / "heads" / "pacer.safetensors",
    "--device": "cpu",
    "--out": Path(".work/fidelity"),
}


def main(argv: Sequence[str] | None = None) -> None:
    """Run from the command line; ends the program with the exit status of `simkit fidelity`."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trace", default="reference")
    parser.add_argument("--prompts", type=int)
    parser.add_argument("--calibration", type=int)
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--from", type=Path, help="folder of an earlier run")
    parser.add_argument("--out", type=Path)
    given = vars(parser.parse_args(argv))
    trace = given.pop("trace")
    options = {f"--{name}": value for name, value in given.items() if value is not None}
    if "--from" not in options:
        options = PAIR | options
    simkit(["fidelity", trace, "--strict", *(str(x) for pair in options.items() for x in pair)])


if __name__ == "__main__":
    main()
