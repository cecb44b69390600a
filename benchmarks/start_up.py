"""How long a command takes before it replays: `python -m benchmarks.start_up`.

First `simkit replay reference --policy 'fixed(3)'` as a process of its own, when its compiled code
is kept, beside a process that imports the same modules of other packages and does nothing: the
difference is what simkit itself adds. The two take turns; the least of several runs counts. Both
find byte code of all modules, as an installed package does.

Then what the first look at a trace's content adds to a replay of it: seconds of CPU, and on the
clock, of a replay that looks, less those of the next one, which remembers. Beside it, what is added
where the content is known and only the files are new: a trace that was written on this machine, or
a copy. Whether that is much depends on what is called a replay, so the share is given of all three:
the command as a user runs it, a process of its own; `simkit.replay` from Python, with its reading
of the columns; and the loop alone, over columns that lie in memory. The traces are bundled ones and
a made-up one that is written to disk. What the sums of the files and the decoding of all
columns take is given beside it; a look decodes only what the replay reads, and what a rule ties to
that.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from simkit.costs import Linear

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
COST = Linear(draft_s=0.002, target_s=0.03)
TARGET_S = 0.3
RECORDED = ("reference", "smollm2", "smollm2-long")


def main() -> None:
    """Print all figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split(":")[0])
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--positions", type=int, default=300_000, help="0: the command alone")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        command_s(Path(folder), given.repeats)
        if given.positions:
            look_s(Path(folder), given.positions, given.repeats)


def command_s(folder: Path, repeats: int) -> None:
    """Print the seconds of the command, and of its imports."""
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(folder / "byte code")}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    listing = subprocess.run(
        [sys.executable, "-c", MODULES], env=environment, text=True, capture_output=True, check=True
    )
    names = listing.stdout.rpartition("modules ")[2].split()
    bare = f"from importlib import import_module\nfor name in {names}:\n"
    bare += "    try:\n        import_module(name)\n    except ImportError:\n        pass"
    for code in (REPLAY, bare):
        process_s(code, environment)
    runs = [[process_s(code, environment) for code in (REPLAY, bare)] for _ in range(repeats)]
    print(f"least of {repeats}, seconds{'':12}{'clock':>8}{'CPU':>8}")
    least = np.min(runs, 0)
    for name, (cpu_s, clock_s) in zip(("simkit replay", "its imports alone"), least, strict=True):
        print(f"{name:28}{clock_s:8.2f}{cpu_s:8.2f}")
    cpu_s, clock_s = least[0] - least[1]
    print(f"{'above them':28}{clock_s:8.2f}{cpu_s:8.2f}   target ≤ {TARGET_S:g}")


def look_s(folder: Path, positions: int, repeats: int) -> None:
    """Print what the first look at a trace adds to a replay of it."""
    from traces import synthetic
    from traces.writer import save

    os.environ["XDG_CACHE_HOME"] = str(folder / "cache")  # where nothing is remembered
    length = 1000
    made_up = synthetic.iid(max(1, positions // length), length, 0.8, max_draft=40, seed=0)
    save(made_up, folder / "trace")
    time.sleep(3)  # a file that was written this moment is not remembered
    print(f"\nseconds, {repeats} rounds{'':19}{'replay':>8}{'first look':>18}", end="")
    print(f"{'known content':>18}")
    for trace in (*RECORDED, str(folder / "trace")):
        print_looks(folder / "cache" / "simkit", trace, repeats)


def print_looks(cache: Path, trace: str, repeats: int) -> None:
    """Print the lines of one trace."""
    import simkit
    from traces import load

    def command() -> np.ndarray:
        return process_s(REPLAY.replace("'reference'", repr(trace)).replace("fixed(3)", "svip"))

    def in_python() -> np.ndarray:
        started = now_s()
        simkit.replay(load(trace), "svip", COST).records()
        return now_s() - started

    opened = load(trace)
    name = trace if trace in RECORDED else "made up"
    print(f"{name}, {opened.n_positions:,} positions in {opened.n_sequences:,} outputs")
    print_shares("simkit replay, a process", *taken_s(command, cache, repeats))
    whole_s, *more_s = taken_s(in_python, cache, repeats)
    print_shares("simkit.replay, from Python", whole_s, *more_s)
    print_shares("the loop alone", loop_s(trace, repeats), *more_s)
    assert opened.path is not None
    print(f"  sums and decoding of all    CPU   {hash_and_decode_s(opened.path):26.3f}", flush=True)


def process_s(code: str, environment: Mapping[str, str] | None = None) -> np.ndarray:
    """Seconds of CPU that a process of its own takes to run some code, and on the clock."""
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run([sys.executable, "-c", code], env=environment, check=True, capture_output=True)
    after, clock_s = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter() - started
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return np.array([cpu_s, clock_s])


def now_s() -> np.ndarray:
    """Seconds of CPU that this process has taken, and on the clock."""
    return np.array([time.process_time(), time.perf_counter()])


def taken_s(call: Callable[[], np.ndarray], cache: Path, repeats: int) -> list[np.ndarray]:
    """What a call takes, the least of all, and how much more where it looks at a trace.

    Returns:
        The seconds, of CPU and on the clock; the median of what is added where nothing is
        remembered; and of what is added where the content is known and the files are not.
    """
    call()  # compiles
    whole, first, known = [], [], []
    for _ in range(repeats):
        shutil.rmtree(cache / "seen")
        known_s = call()
        shutil.rmtree(cache / "seen")
        shutil.rmtree(cache / "contents")
        first_s, again_s = call(), call()
        whole.append(again_s)
        first.append(first_s - again_s)
        known.append(known_s - again_s)
    return [np.min(whole, 0), np.median(first, 0), np.median(known, 0)]


def print_shares(what: str, whole_s: np.ndarray, *more_s: np.ndarray) -> None:
    """Two lines of the table."""
    for k, kind in enumerate(("CPU", "clock")):
        cells = [f"{more[k]:8.3f}{more[k] / whole_s[k]:10.1%}" for more in more_s]
        print(f"  {what:28}{kind:6}{whole_s[k]:8.3f}", *cells, sep="", flush=True)


def loop_s(trace: str, repeats: int) -> np.ndarray:
    """Seconds of one replay over columns that were read and laid out, of CPU and on the clock."""
    from simkit import policies
    from simkit.drafters.path import PathLayout
    from simkit.simulator.run import run
    from simkit.simulator.step_costs import Charge
    from traces import load

    layout = PathLayout(load(trace))
    policy, charge = policies.parse("svip"), Charge(COST, layout, 1)
    run(policy, layout, charge, 1)
    taken = []
    for _ in range(repeats):
        started = now_s()
        run(policy, layout, charge, 1)
        taken.append(now_s() - started)
    return np.min(taken, 0)


def hash_and_decode_s(folder: Path) -> float:
    """CPU seconds to take each file's sha256 and to read all columns."""
    from traces import files
    from traces.manifest import read_manifest

    listed = read_manifest(folder).files
    started = time.process_time()
    for name, info in listed.items():
        files.read_hashed(folder, name, info)
    return time.process_time() - started


if __name__ == "__main__":
    main()
