"""What a release is held against: `python tests/release.py lowest|size FOLDER`."""

import argparse
import sys
import tomllib
from pathlib import Path

from packaging.requirements import Requirement

PROJECT = Path(__file__).parents[1] / "pyproject.toml"
MOST_BYTES = 60_000_000


def lowest(*extras: str) -> list[str]:
    """`name==version` for the lower bound of each requirement."""
    project = tomllib.loads(PROJECT.read_text())["project"]
    wanted = project["dependencies"] + [
        line for extra in extras for line in project["optional-dependencies"][extra]
    ]
    return [
        f"{one.name}=={bound.version}"
        for one in map(Requirement, wanted)
        for bound in one.specifier
        if bound.operator == ">="
    ]


def size(folder: Path) -> str:
    """One line on the wheel in a folder.

    Raises:
        SystemExit: it is too large to publish.
    """
    (wheel,) = folder.glob("*.whl")
    n_bytes = wheel.stat().st_size
    line = f"{wheel.name}: {n_bytes / 1e6:.1f} MB, at most {MOST_BYTES / 1e6:.0f}"
    if n_bytes > MOST_BYTES:
        sys.exit(line)
    return line


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["lowest", "size"])
    parser.add_argument("folder", type=Path, nargs="?")
    given = parser.parse_args()
    print("\n".join(lowest()) if given.what == "lowest" else size(given.folder))
