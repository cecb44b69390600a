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
from contextlib import contextmanager, suppress
from itertools import count
from multiprocessing.connection import Connection
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any, NamedTuple

MOST_BYTES = 4 * 2**30
MOST_SECONDS = 60.0
_ROUNDS = 40  # of the quick families, before the slow ones come up
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


def family_of(number: int) -> str:
    """The family of a case: they take turns, those that take long come up once in many rounds."""
    from benchmarks.fuzz.families import FAMILIES, SLOW

    quick = [name for name in FAMILIES if name not in SLOW]
    place = number % (_ROUNDS * len(quick) + len(SLOW))
    return quick[place % len(quick)] if place < _ROUNDS * len(quick) else SLOW[place % len(SLOW)]


def numbers(family: str) -> Iterator[int]:
    """The numbers of a family's cases."""
    return (number for number in count() if family_of(number) == family)


def one(seed: int, number: int, base: Path, work: Path, missing: str = "") -> Done:
    """A case of a seed, in this process; equal seeds and numbers give equal cases.

    Args:
        seed: of all cases.
        number: of the case.
        base: the sound inputs.
        work: where it may write.
        missing: name of a guard that is removed meanwhile, see `benchmarks.fuzz.mutants`; what it
            would have the caches remember is forgotten.
    """
    from benchmarks.fuzz.families import FAMILIES
    from benchmarks.fuzz.judge import FaultError
    from benchmarks.fuzz.mutants import removed

    name = family_of(number)
    folder = work / f"{os.getpid()}-{number}{'-' if missing else ''}"
    folder.mkdir()
    caches = folder / "cache" if missing else Path(os.environ["XDG_CACHE_HOME"])
    begun = time.perf_counter()
    try:
        with warnings.catch_warnings(), removed(missing), _caches(caches):
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


@contextmanager
def _caches(folder: Path) -> Iterator[None]:
    """Have caches in another folder."""
    before = os.environ["XDG_CACHE_HOME"]
    os.environ["XDG_CACHE_HOME"] = str(folder)
    try:
        yield
    finally:
        os.environ["XDG_CACHE_HOME"] = before


def environment(work: Path) -> None:
    """What the processes of all cases have in common; compiled code stays where the user has it."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("NUMBA_CACHE_DIR", str(cache))
    os.environ["XDG_CACHE_HOME"] = str(work / "cache")


def _serve(pipe: Connection, seed: int, base: Path, work: Path) -> None:
    from benchmarks.fuzz.families import sound

    sound(base)  # before the first case's time runs: this imports and compiles
    pipe.send(None)
    while (given := pipe.recv()) is not None:
        number, missing = given
        pipe.send(one(seed, number, base, work, missing))


def run(numbers: range, seed: int, processes: int, base: Path, work: Path) -> Iterator[Done]:
    """The cases of these numbers, as they end."""
    todo: SimpleQueue[int | None] = SimpleQueue()
    done: SimpleQueue[Done] = SimpleQueue()
    for number in (*numbers, *[None] * processes):
        todo.put(number)
    environment(work)
    threads = [
        Thread(target=_watch, args=(todo, done, seed, base, work), daemon=True)
        for _ in range(processes)
    ]
    for thread in threads:
        thread.start()
    for _ in numbers:
        yield done.get()


def _watch(todo: SimpleQueue, done: SimpleQueue, seed: int, base: Path, work: Path) -> None:
    with Served(seed, base, work) as served:
        while (number := todo.get()) is not None:
            done.put(served.case(number))


class Served:
    """A process that is given one case after the other; one that is killed gets a successor.

    Args:
        seed: of the cases.
        base: the sound inputs.
        work: where cases may write.
    """

    def __init__(self, seed: int, base: Path, work: Path) -> None:
        self._setting = seed, base, work
        self._process: Any = None
        self._pipe: Any = None

    def __enter__(self) -> Served:
        return self

    def __exit__(self, *error: object) -> None:
        if self._process is not None:
            self._pipe.send(None)
            self._process.join()

    def case(self, number: int, missing: str = "") -> Done:
        """Run a case, see `one`."""
        if self._process is None:
            self._process, self._pipe = _start(*self._setting)
        self._pipe.send((number, missing))
        ended = _wait(self._process, self._pipe, number)
        if ended.word in ("hang", "memory", "died"):
            self._process.kill()
            self._process.join()
            self._process = None
        return ended


def _start(seed: int, base: Path, work: Path) -> tuple[Any, Connection]:
    here, there = mp.Pipe()
    process = mp.get_context("spawn").Process(
        target=_serve, args=(there, seed, base, work), daemon=True
    )
    process.start()
    there.close()
    with suppress(EOFError, OSError):  # one that has died is found out when it is given a case
        here.recv()  # it has imported and compiled everything
    return process, here


def _wait(process: Any, pipe: Connection, number: int) -> Done:
    family = family_of(number)
    begun, most = time.perf_counter(), 0
    while True:
        try:
            if pipe.poll(0.05):
                return pipe.recv()
        except (EOFError, OSError):
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
