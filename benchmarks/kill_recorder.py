"""Kill a recording at random moments, resume it, and compare the bytes with an undisturbed one.

    python -m benchmarks.kill_recorder [--kills 20]

Every kill is SIGKILL to a real `simkit record` of the reference pair, at a moment drawn between its
first write and its end. After each one, whatever the manifest lists must be whole (size, sha256).
"""

from __future__ import annotations

import argparse
import hashlib
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from traces.manifest import MANIFEST, read_manifest

REFERENCE = Path("traces/reference")


def main() -> None:
    """Print what was killed when, and whether the bytes are the same."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    rng = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        prompts = _prompts(work / "prompts.jsonl")
        span = _undisturbed(prompts, work / "whole")
        expected = hashes(work / "whole")
        kills, rounds = 0, 0
        while kills < options.kills:
            out = work / f"round{rounds}"
            killed = _until_done(prompts, out, span, rng)
            if hashes(out) != expected:
                sys.exit(f"round {rounds}: other bytes after {killed} kills")
            kills, rounds = kills + killed, rounds + 1
            print(f"round {rounds}: {killed} kills, same bytes", flush=True)
    print(f"{kills} kills in {rounds} recordings of {len(expected)} files: all in the same bytes")


def _prompts(path: Path) -> Path:
    lines = (REFERENCE / "prompts.jsonl").read_text().splitlines()
    path.write_text("\n".join(lines[::46]) + "\n")
    return path


def simkit_words(*words: object) -> list[str]:
    """The words that run `simkit` in a process of its own."""
    return [sys.executable, "-c", "from simkit.cli import main; main()", *map(str, words)]


def recording(prompts: Path, out: Path, *options: object) -> list[str]:
    """The words that record the reference pair."""
    models = REFERENCE / "models"
    pair = ("--target", models / "target", "--draft", models / "draft")
    return simkit_words("record", *pair, "--prompts", prompts, "--out", out, *options)


def _start(prompts: Path, out: Path) -> subprocess.Popen:
    options = ("--max-new-tokens", 48, "--max-draft", 12, "--batch-size", 1, "--resume")
    return subprocess.Popen(recording(prompts, out, *options), stderr=subprocess.PIPE)


def _undisturbed(prompts: Path, out: Path) -> float:
    """Record once; returns the seconds between the first write and the end."""
    process = _start(prompts, out)
    _wait_for(out / MANIFEST, process)
    start = time.perf_counter()
    _, error = process.communicate()
    if process.returncode:
        sys.exit(error.decode())
    return time.perf_counter() - start


def _until_done(prompts: Path, out: Path, span: float, rng: random.Random) -> int:
    """Start, kill and resume until a run gets to the end; returns the number of kills."""
    kills = 0
    while True:
        process = _start(prompts, out)
        if not kills:
            _wait_for(out / MANIFEST, process)
        else:
            time.sleep(_START_S)
        try:
            process.wait(rng.uniform(0, span))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            kills += 1
            _check_listed(out)
            continue
        if process.returncode:
            assert process.stderr is not None
            sys.exit(process.stderr.read().decode())
        return kills


_START_S = 3.0  # imports and loading, before a resumed run writes


def _wait_for(path: Path, process: subprocess.Popen) -> None:
    while not path.exists() and process.poll() is None:
        time.sleep(0.001)


def _check_listed(folder: Path) -> None:
    for name, info in read_manifest(folder).files.items():
        data = (folder / name).read_bytes()
        if (len(data), hashlib.sha256(data).hexdigest()) != (info.bytes, info.sha256):
            sys.exit(f"{name} is listed but not whole")


def hashes(folder: Path) -> dict[str, str]:
    """SHA-256 of each file in a folder."""
    return {
        file.relative_to(folder).as_posix(): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(folder.rglob("*"))
        if file.is_file()
    }


if __name__ == "__main__":
    main()
