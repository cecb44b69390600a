"""Kill every command that writes, at random moments and while it writes, and fill its disk.

    python -m benchmarks.kill_writers [--kills 6] [--only NAME …] [--seed 0]

Each command runs once undisturbed, then it is killed (SIGKILL): half of the times at a moment drawn
between its start and its end, half of the times as soon as a passing file of its output is seen.
After each kill all that was there before must be there and whole (a trace valid, with all that it
listed; tables, pages, pictures and heads readable to their end), and the same command, run again,
must end well and leave nothing of the killed one but logs under a name that says so. Then it runs
on a disk that is full: a tmpfs of its own where one can be mounted, else under a limit on the size
of files (which stops at other calls). It must end with status 2 and one line, and change nothing.
`benchmarks.kill_recorder` does this for recordings.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pyarrow.parquet as pq

from benchmarks.kill_recorder import hashes, simkit_words
from traces.manifest import MANIFEST, read_manifest
from traces.outputs import waiting
from traces.subset import select
from traces.trace import load
from traces.validate import validate
from traces.writer import save

ROOT = Path(__file__).resolve().parent.parent
MODELS = ROOT / "traces" / "reference" / "models"
PROMPTS = ROOT / "traces" / "reference" / "prompts.jsonl"
ENDS = {".svg": b"</svg>\n", ".html": b"</html>\n", ".png": b"IEND\xaeB`\x82"}
PAIR = ("--target", MODELS / "target", "--draft", MODELS / "draft")
SHORT = ("--max-new-tokens", 24)
COST = ("--cost", "linear(draft_s=0.001, target_s=0.01)")
BATCHES = ("--cost", "linear(draft_s=0.001, target_s=0.01, target_per_token_s=0.0001)")
DISK_BYTES = 32 * 2**20


class Writer(NamedTuple):
    """A command, run in a folder of its own.

    Attributes:
        arguments: of `simkit`, the trace is `t`.
        hidden: whether its trace is one with hidden states.
        once: whether it has nothing to do where it has ended well before.
    """

    arguments: tuple
    hidden: bool = False
    once: bool = False


WRITERS = {
    "latency": Writer(
        ("latency", *PAIR, "--out", "t", "--repeats", 2, "--context", 32, "--tokens", "1,2")
    ),
    "calibrate": Writer(
        ("calibrate", "t", *PAIR, "--n-prompts", 2, "--rounds", 1, *SHORT, "--policy", "svip")
    ),
    "live": Writer(
        ("live", *PAIR, "--prompts", "prompts.jsonl", "--n-prompts", 3, "--rounds", 2, *SHORT)
        + ("--policy", "fixed(2)", "-o", "live.parquet")
    ),
    "live into the trace": Writer(
        ("live", *PAIR, "--prompts", "prompts.jsonl", "--n-prompts", 3, "--rounds", 2, *SHORT)
        + ("--policy", "fixed(2)", "--trace", "t")
    ),
    "train": Writer(("train", "specdecpp", "t", "-o", "h.safetensors", "--epochs", 2), True),
    "score": Writer(("score", "t", "--head", "h.safetensors"), True, True),
    "sweep": Writer(("sweep", "t", *COST, "--policy", "fixed(0:4)", "-o", "sweep.parquet")),
    "figures": Writer(("figures", "t", "--out", "out", "--only", "confidence_acceptance")),
    "report": Writer(("report", "t", *COST, "-o", "page.html", "--no-figures")),
    "import": Writer(("import", "specdecode-bench", "bench.jsonl", "--out", "imported"), once=True),
    "thin": Writer(("thin", "t", "--out", "thinned", "--bits", 8), once=True),
    "serving": Writer(
        ("serving", "t", *BATCHES, "--controller", "static(2)", "--rate", 9, "--requests", 99)
        + ("--seeds", 2, "-o", "served.parquet", "--requests-out", "requests.parquet")
        + ("--iterations-out", "iterations.parquet")
    ),
    "export": Writer(("export", "t", "--engine", "vllm", "--policy", "fixed(2)", "-o", "set.json")),
}
MADE = ("imported", "thinned")  # folders of commands that replace nothing


def main() -> None:
    """Print what was killed how often, and end with status 1 at the first loss."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=6)
    parser.add_argument("--only", nargs="*", choices=WRITERS, default=list(WRITERS))
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    rng = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as folder:
        starts = _starts(Path(folder))
        for name in options.only:
            writer = WRITERS[name]
            begun = time.perf_counter()
            start = starts[writer.hidden]
            kills = _killed(writer, start, Path(folder) / "run", options.kills, rng)
            full = _full(writer, start, Path(folder) / "disk")
            seconds = time.perf_counter() - begun
            print(f"{name}: {kills}; {full}; {seconds:.0f} s", flush=True)


def _starts(work: Path) -> dict[bool, Path]:
    """Folders with a trace and what else the commands read, by whether it has hidden states."""
    lines = PROMPTS.read_text().splitlines()[::12]
    found = {}
    for hidden in (False, True):
        folder = found[hidden] = work / f"start{int(hidden)}"
        folder.mkdir()
        (folder / "prompts.jsonl").write_text("\n".join(lines) + "\n")
        (folder / "bench.jsonl").write_text("\n".join(map(json.dumps, _records())) + "\n")
        if hidden:
            options = ("--prompts", "prompts.jsonl", "--out", "t", "--hidden", *SHORT)
            _whole(simkit_words("record", *PAIR, *options), folder)
            _whole(simkit_words(*WRITERS["train"].arguments), folder)
        else:
            whole = load("reference")
            save(select(whole, range(0, 96, 6), latency=whole.latency()), folder / "t")
    return found


def _records() -> Iterator[dict]:
    for k in range(200):
        accepted = [1 + (k + i) % 5 for i in range(20)]
        tokens = {"prompt_token_ids": [1, 2, 3], "generated_token_ids": [5] * 21}
        yield {"id": str(k), **tokens, "acc_eagle": {"acc_len": accepted}}


def _whole(command: list[str], folder: Path, **more) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=_env(), **more)
    if (
        done.returncode not in (0, 1) or "Traceback" in done.stderr
    ):  # 1: live runs of so few prompts conclude nothing
        sys.exit(f"{' '.join(command[3:5])}: {done.stderr}")


def _env() -> dict[str, str]:
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    return os.environ | {"PYTHONPATH": path}


def _killed(writer: Writer, start: Path, run: Path, kills: int, rng: random.Random) -> str:
    """Kill a command again and again, each time in a folder where it has ended well before."""
    command = simkit_words(*writer.arguments)
    shutil.copytree(start, run / "whole")
    begun = time.perf_counter()
    _whole(command, run / "whole")
    span_s = time.perf_counter() - begun
    if writer.once:
        shutil.rmtree(run / "whole")
        shutil.copytree(start, run / "whole")
    before = _listed(run / "whole")
    done = {"moments": 0, "writes": 0, "ended": 0}
    for kill in range(kills):
        folder = run / str(kill)
        shutil.copytree(run / "whole", folder)
        process = subprocess.Popen(
            command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=_env()
        )
        at_write = kill % 2 == 1
        seen = _wait(process, folder, None if at_write else rng.uniform(0, span_s))
        process.kill()
        process.wait()
        done["ended" if not seen else "writes" if at_write else "moments"] += 1
        _look(folder, before)
        for made in filter(Path.exists, (folder / name for name in MADE)):
            if problems := validate(made):  # it had ended: whole, and not to be replaced
                sys.exit(problems[0])
            shutil.rmtree(made)
        _whole(command, folder)
        _look(folder, before)
        _no_leftovers(folder)
        shutil.rmtree(folder)
    shutil.rmtree(run)
    words = f"killed at {done['moments']} moments and {done['writes']} writes"
    return words + (f" ({done['ended']} had ended)" if done["ended"] else "")


def _wait(process: subprocess.Popen, folder: Path, seconds: float | None) -> bool:
    """Wait for a moment or, without one, for a passing file; False if the process ends first."""
    until = None if seconds is None else time.perf_counter() + seconds
    while process.poll() is None:
        if until is not None and time.perf_counter() >= until:
            return True
        if until is None and any(_passing(folder)):
            return True
        time.sleep(0.0005 if until is None else 0.01)
    return False


def _passing(folder: Path) -> Iterator[Path]:
    for place in (folder, folder / "t", folder / "t" / "scores", folder / "out"):
        if place.is_dir():
            for name in os.listdir(place):
                if name.startswith(".") or name.endswith(".parts"):
                    yield place / name


def _full(writer: Writer, start: Path, disk: Path) -> str:
    """Run a command where nothing can be written, behind one that has ended well."""
    command = simkit_words(*writer.arguments)
    disk.mkdir()
    with _small_disk(disk) as (limits, how):
        folder = disk / "run"
        shutil.copytree(start, folder)
        if not writer.once:
            _whole(command, folder)
        before = hashes(folder)
        if limits is None:
            _fill(disk / "filler")
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, env=_env(), preexec_fn=limits
        )
        lines = [line for line in done.stderr.splitlines() if "cannot be written" in line]
        if done.returncode != 2 or len(lines) != 1 or "Traceback" in done.stderr:
            sys.exit(f"{how}: status {done.returncode}: {done.stderr}")
        if hashes(folder) != before:
            sys.exit(f"{how}: files are others than before: {_changed(hashes(folder), before)}")
        (disk / "filler").unlink(missing_ok=True)
        _whole(command, folder)
        _no_leftovers(folder)
    shutil.rmtree(disk, ignore_errors=True)
    return how


@contextmanager
def _small_disk(disk: Path) -> Iterator[tuple[Callable[[], None] | None, str]]:
    """A disk of its own that can be filled; else what limits a process's files."""
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(disk)]
    if shutil.which("mount") and subprocess.run(mount, capture_output=True).returncode == 0:
        try:
            yield None, "a full disk"
        finally:
            subprocess.run(["umount", str(disk)], check=True)
        return

    def limits() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (64, 64))

    yield limits, "no room in files"


def _fill(file: Path) -> None:
    with open(file, "wb", buffering=0) as stream:
        try:
            while True:
                stream.write(bytes(4096))
        except OSError:
            pass


def _listed(folder: Path) -> set[str]:
    """What must be there later: files, and what a trace lists."""
    names = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    return names | {f"t/{name}" for name in read_manifest(folder / "t").files}


def _look(folder: Path, before: set[str]) -> None:
    """All that was there is there, and whole."""
    listed = {f"t/{name}" for name in read_manifest(folder / "t").files}
    for name in before - listed:
        file = folder / name
        data = file.read_bytes() if file.exists() else b""
        if not data:
            sys.exit(f"{name} is gone or empty")
        if file.suffix == ".parquet":
            pq.read_table(file, page_checksum_verification=True)
        elif not data.rstrip(b"\n").endswith(ENDS.get(file.suffix, b"").rstrip(b"\n")):
            sys.exit(f"{name} is not whole")
    if gone := {name for name in before if name.startswith("t/")} - listed - {f"t/{MANIFEST}"}:
        sys.exit(f"the trace does not list {min(gone)} any more")
    if problems := validate(folder / "t"):
        sys.exit(problems[0])
    if (folder / "h.safetensors").exists():
        from simkit.heads import files

        files.load(folder / "h.safetensors")


def _no_leftovers(folder: Path) -> None:
    left = [path for path in folder.rglob("*") if path.name.startswith(".")]
    left += [path for path in folder.rglob("*.parts")]
    left += [other for path in folder.rglob("*") for other in waiting(path)]
    if left:
        sys.exit(f"{left[0].relative_to(folder)} is left over")


def _changed(after: dict[str, str], before: dict[str, str]) -> list[str]:
    return sorted(name for name in after.keys() | before if after.get(name) != before.get(name))


if __name__ == "__main__":
    main()
