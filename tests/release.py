"""What a release is held against: `python tests/release.py lowest|check FOLDER`."""

import argparse
import sys
import tomllib
import zipfile
from pathlib import Path

from packaging.requirements import Requirement

from traces.bundle import LEFT_OUT

ROOT = Path(__file__).parents[1]
MOST_BYTES = {"draft_simkit-": 12_000_000, "draft_simkit_data-": 60_000_000}


def lowest(*extras: str) -> list[str]:
    """`name==version` for the lower bound of each requirement."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = project["dependencies"] + [
        line for extra in extras for line in project["optional-dependencies"][extra]
    ]
    return [
        f"{one.name}=={bound.version}"
        for one in map(Requirement, wanted)
        for bound in one.specifier
        if bound.operator == ">="
    ]


def check(folder: Path) -> list[str]:
    """A line on each of the two wheels in a folder.

    Raises:
        SystemExit: one is too large to publish, or lacks data or holds other data than it should.
    """
    lines = []
    for start, most in MOST_BYTES.items():
        (wheel,) = folder.glob(f"{start}*.whl")
        n_bytes = wheel.stat().st_size
        lines.append(f"{wheel.name}: {n_bytes / 1e6:.1f} MB, at most {most / 1e6:.0f}")
        if n_bytes > most:
            sys.exit(lines[-1])
    with zipfile.ZipFile(next(folder.glob("draft_simkit-*.whl"))) as code:
        _same("traces/data/", set(code.namelist()), LEFT_OUT)
    with zipfile.ZipFile(next(folder.glob("draft_simkit_data-*.whl"))) as data:
        _same("draft_simkit_data/data/", set(data.namelist()), ())
    return lines


def _same(start: str, names: set[str], left_out: tuple[str, ...]) -> None:
    """Exit if the data in a wheel are not those of the checkout without what is left out."""
    data = ROOT / "traces" / "data"
    files = (one.relative_to(data).as_posix() for one in data.rglob("*") if one.is_file())
    wanted = {f for f in files if not any(f"{f}/".startswith(f"{out}/") for out in left_out)}
    found = {name.removeprefix(start) for name in names if name.startswith(start)}
    if odd := sorted(found ^ wanted):
        sys.exit(f"{start}: {len(odd)} files are missing or too many: {', '.join(odd[:5])}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["lowest", "check"])
    parser.add_argument("folder", type=Path, nargs="?")
    given = parser.parse_args()
    print("\n".join(lowest() if given.what == "lowest" else check(given.folder)))
