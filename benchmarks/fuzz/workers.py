"""Cases in processes of their own, each watched: its time and its memory."""

from __future__ import annotations

import multiprocessing as mp
import os
import random
import resource
import shutil
import time
import traceback
import warnings
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any, NamedTuple

MOST_BYTES = 4 * 2**30
MOST_SECONDS = 60.0
_START_SECONDS = 300.0  # to import and compile everything
_PAGE_BYTES = resource.getpagesize()


class Done(NamedTuple):
    """A case that has ended.

    Attributes:
        number: of the case.
        family: of what was broken.
        word: one of `judge.VERDICTS`.
        detail: what was said.
        seconds: that it took.
        peak_bytes: the most memory that its process has held so far.
    """

    number: int
    family: str
    word: str
    detail: str
    seconds: float
    peak_bytes: int


def one(seed: int, number: int, base: Path, work: Path) -> Done:
    """A case of a seed, in this process; equal seeds and numbers give equal cases."""
    from benchmarks.fuzz.families import FAMILIES
    from benchmarks.fuzz.judge import FaultError

    name = list(FAMILIES)[number % len(FAMILIES)]
    folder = work / f"case{number}"
    folder.mkdir()
    begun = time.perf_counter()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            verdict = FAMILIES[name](random.Random(f"{seed}/{number}"), base, folder)
    except FaultError as fault:
        word, detail = fault.args
    except Exception:
        word, detail = "traceback", traceback.format_exc()
    else:
        word, detail = verdict
    seconds = time.perf_counter() - begun
    shutil.rmtree(folder, ignore_errors=True)
    peak = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    if word not in ("traceback", "wrong exit", "wrong number") and peak > MOST_BYTES:
        word, detail = "memory", f"{peak / 2**30:.1f} GiB"
    return Done(number, name, word, detail[-1500:], seconds, peak)


def _serve(pipe: Connection, seed: int, base: Path, work: Path) -> None:
    from benchmarks.fuzz.families import sound

    sound(base)  # before the first case's time runs: this imports and compiles
    pipe.send(None)
    while (number := pipe.recv()) is not None:
        pipe.send(one(seed, number, base, work))


def run(cases: int, seed: int, processes: int, base: Path, work: Path) -> Iterator[Done]:
    """All cases, as they end."""
    todo: SimpleQueue[int | None] = SimpleQueue()
    done: SimpleQueue[Done] = SimpleQueue()
    for number in (*range(cases), *[None] * processes):
        todo.put(number)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ["XDG_CACHE_HOME"] = str(work / "cache")
    threads = [
        Thread(target=_watch, args=(todo, done, seed, base, work), daemon=True)
        for _ in range(processes)
    ]
    for thread in threads:
        thread.start()
    for _ in range(cases):
        yield done.get()


def _watch(todo: SimpleQueue, done: SimpleQueue, seed: int, base: Path, work: Path) -> None:
    """Give a process one case after the other; one that is killed gets a successor."""
    process: Any = None
    while (number := todo.get()) is not None:
        if process is None:
            process, pipe = _start(seed, base, work)
        pipe.send(number)
        ended = _wait(process, pipe, number)
        done.put(ended)
        if ended.word in ("hang", "memory", "died"):
            process.kill()
            process.join()
            process = None
    if process is not None:
        pipe.send(None)
        process.join()


def _start(seed: int, base: Path, work: Path) -> tuple[Any, Connection]:
    here, there = mp.Pipe()
    process = mp.get_context("spawn").Process(
        target=_serve, args=(there, seed, base, work), daemon=True
    )
    process.start()
    there.close()
    if here.poll(_START_SECONDS):
        here.recv()
    return process, here


def _wait(process: Any, pipe: Connection, number: int) -> Done:
    from benchmarks.fuzz.families import FAMILIES

    family = list(FAMILIES)[number % len(FAMILIES)]
    begun, most = time.perf_counter(), 0
    while True:
        try:
            if pipe.poll(0.05):
                return pipe.recv()
        except EOFError:
            return Done(number, family, "died", "the process ended", 0.0, most)
        seconds = time.perf_counter() - begun
        most = max(most, _rss_bytes(process.pid))
        if most > MOST_BYTES:
            return Done(number, family, "memory", f"{most / 2**30:.1f} GiB", seconds, most)
        if seconds > MOST_SECONDS:
            return Done(number, family, "hang", f"over {MOST_SECONDS:.0f} s", seconds, most)


def _rss_bytes(pid: int) -> int:
    try:
        return _PAGE_BYTES * int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, IndexError):
        return 0
