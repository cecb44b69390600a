"""How long a command takes before it replays: `python -m benchmarks.start_up`.

First `simkit replay reference --policy 'fixed(3)'` as a process of its own, when its compiled code
is kept, beside a process that imports the same modules of other packages and does nothing: the
difference is what simkit itself adds. The two take turns; the least of several runs counts. Both
find byte code of all modules, as an installed package does.
Then what the first look at a trace's content adds to a replay of it, on a made-up trace that is
written to disk: in seconds, and as a share of a replay that includes reading its columns. A look is
at each value of each column. What their sums and decoding take, the least of it, is given too.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

REPLAY = "from simkit.cli import main; main(['replay', 'reference', '--policy', 'fixed(3)'])"
MODULES = f"""
import sys
try:
    {REPLAY}
except SystemExit:
    pass
own = ("simkit", "traces", "analysis", "__main__")
print("modules", *(m for m in sys.modules if m.partition(".")[0] not in own))
"""
TARGET_S, TARGET_SHARE = 0.3, 0.05


def main() -> None:
    """Print all figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split(":")[0])
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--positions", type=int, default=2_000_000, help="0: the command alone")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        command_s(Path(folder), given.repeats)
        if given.positions:
            check_s(Path(folder), given.positions)


def command_s(folder: Path, repeats: int) -> None:
    """Print the seconds of the command, and of its imports."""
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(folder / "byte code")}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)

    def seconds(code: str) -> tuple[float, float]:
        before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        subprocess.run([sys.executable, "-c", code], env=environment, **quiet)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return time.perf_counter() - started, cpu_s

    quiet = {"check": True, "capture_output": True}
    listing = subprocess.run(
        [sys.executable, "-c", MODULES], env=environment, text=True, capture_output=True, check=True
    )
    names = listing.stdout.rpartition("modules ")[2].split()
    bare = f"from importlib import import_module\nfor name in {names}:\n"
    bare += "    try:\n        import_module(name)\n    except ImportError:\n        pass"
    for code in (REPLAY, bare):
        seconds(code)
    runs = [(seconds(REPLAY), seconds(bare)) for _ in range(repeats)]
    print(f"least of {repeats}, seconds{'':12}{'clock':>8}{'CPU':>8}")
    least = [[min(run[k][j] for run in runs) for j in range(2)] for k in range(2)]
    for name, (clock_s, cpu_s) in zip(("simkit replay", "its imports alone"), least, strict=True):
        print(f"{name:28}{clock_s:8.2f}{cpu_s:8.2f}")
    more = [whole - imports for whole, imports in zip(*least, strict=True)]
    print(f"{'above them':28}{more[0]:8.2f}{more[1]:8.2f}   target ≤ {TARGET_S:g}")


def check_s(folder: Path, positions: int) -> None:
    """Print what the first look at a trace adds to a replay of it."""
    import simkit
    from traces import content, load, synthetic
    from traces.writer import save

    length = 1000
    trace = synthetic.iid(max(1, positions // length), length, 0.8, max_draft=40, seed=0)
    save(trace, folder / "trace")
    cost = "linear(draft_s=0.002, target_s=0.03)"
    simkit.replay(synthetic.iid(2, 9, 0.8, max_draft=8, seed=0), "svip", cost)  # compiles
    looks: list[float] = []
    check = content.check

    def timed(*arguments) -> None:
        started = time.process_time()
        check(*arguments)
        looks.append(time.process_time() - started)

    content.check = timed
    try:
        os.environ["XDG_CACHE_HOME"] = str(folder / "cache")  # where nothing is remembered
        time.sleep(3)  # a file that was written this moment is not remembered
        for what in ("first", "second"):
            started = time.process_time()
            simkit.replay(load(folder / "trace"), "svip", cost).records()
            whole_s, look_s = time.process_time() - started, sum(looks)
            looks.clear()
            share = look_s / (whole_s - look_s)
            print(
                f"{what} replay of {trace.n_positions:,} positions: {whole_s:.2f} s of CPU,", end=""
            )
            print(
                f" {look_s:.2f} s of them to look at its content: {share:.1%} of the rest", end=""
            )
            print(f" (target < {TARGET_SHARE:.0%})" if what == "first" else "")
        least_s = hash_and_decode_s(folder / "trace")
        print(
            f"the sums of its files and the decoding of its columns alone: {least_s:.2f} s of CPU"
        )
    finally:
        content.check = check


def hash_and_decode_s(folder: Path) -> float:
    """CPU seconds to take each file's sha256 and to read all columns: no look costs less."""
    from traces import files
    from traces.manifest import read_manifest

    listed = read_manifest(folder).files
    started = time.process_time()
    for name, info in listed.items():
        files.read_hashed(folder, name, info)
    return time.process_time() - started


if __name__ == "__main__":
    main()
