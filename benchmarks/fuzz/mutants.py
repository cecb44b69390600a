"""Remove guards one by one, and see whether the fuzz finds out.

A guard is removed in memory: the text of its function is changed, compiled, and put into the place
of the function's code, whoever holds that function. Nothing is copied, and no file is changed.
"""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from importlib import import_module
from itertools import islice
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from types import CodeType, FunctionType
from typing import Any, NamedTuple

from benchmarks.fuzz import workers
from benchmarks.fuzz.judge import FAULTS

MOST = 1000  # cases of a guard's families before it counts as not found


class Guard(NamedTuple):
    """A guard, and how it is removed.

    Attributes:
        name: what it refuses.
        family: whose cases look for it.
        where: "module:function" that has it.
        old: its text there.
        new: the text in its place.
    """

    name: str
    family: str
    where: str
    old: str
    new: str


_FILE = Path(__file__).with_name("guards.toml")
GUARDS = {
    name: Guard(name, family, *row)
    for family, rows in tomllib.loads(_FILE.read_text()).items()
    for name, row in rows.items()
}


class Hunted(NamedTuple):
    """A guard, and the case that found it missing.

    Attributes:
        guard: that was removed.
        cases: how many were run.
        found: the case, a fault without the guard and none with it; None: there was none.
    """

    guard: Guard
    cases: int
    found: workers.Done | None


def changed(guard: Guard) -> tuple[FunctionType, CodeType]:
    """The function that holds a guard, and its code without it.

    Raises:
        LookupError: the text of the guard is not there exactly once: it has moved or changed.
    """
    module, _, name = guard.where.partition(":")
    holder = import_module(module)
    file = Path(holder.__file__ or "")
    text = file.read_text()
    node: Any = ast.parse(text)
    for part in name.split("."):
        inside = [n for n in node.body if getattr(n, "name", None) == part]
        if not inside:
            raise LookupError(f"{guard.name}: {module} has no {name}")
        node = inside[-1]
    lines = text.splitlines(keepends=True)
    before, rest = "".join(lines[: node.lineno - 1]), "".join(lines[node.end_lineno :])
    body = "".join(lines[node.lineno - 1 : node.end_lineno])
    if (times := body.count(guard.old)) != 1:
        raise LookupError(f"{guard.name}: {guard.old!r} is {times} times in {guard.where}")
    whole = compile(before + body.replace(guard.old, guard.new) + rest, file, "exec", 0, True)
    return _function(holder, name), next(c for c in _codes(whole) if c.co_qualname == name)


def _codes(code: CodeType) -> Iterator[CodeType]:
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield inner
            yield from _codes(inner)


def _function(holder: Any, name: str) -> FunctionType:
    """A function by its qualified name, whatever is wrapped around it."""
    for part in name.split("."):
        holder = vars(holder)[part]
    if isinstance(holder, property):
        holder = holder.fget
    if isinstance(holder, cached_property):
        holder = holder.func
    holder = getattr(holder, "__func__", holder)
    while hasattr(holder, "__wrapped__"):
        holder = holder.__wrapped__
    assert isinstance(holder, FunctionType)
    return holder


@contextmanager
def removed(name: str) -> Iterator[None]:
    """Do without the guard of that name; without a name, change nothing."""
    if not name:
        yield
        return
    function, code = changed(GUARDS[name])
    sound = function.__code__
    function.__code__ = code
    try:
        yield
    finally:
        function.__code__ = sound


def run(
    names: list[str], seed: int, processes: int, base: Path, work: Path, most: int = MOST
) -> Iterator[Hunted]:
    """Hunt for these guards, in so many processes; results come as they are done."""
    for name in names:
        changed(GUARDS[name])  # a guard that has moved is said before the first case
    todo: SimpleQueue[str | None] = SimpleQueue()
    done: SimpleQueue[Hunted] = SimpleQueue()
    for name in (*names, *[None] * processes):
        todo.put(name)
    workers.environment(work)

    def watch() -> None:
        with workers.Served(seed, base, work) as served:
            while (name := todo.get()) is not None:
                done.put(hunt(GUARDS[name], served.case, most))

    for _ in range(processes):
        Thread(target=watch, daemon=True).start()
    for _ in names:
        yield done.get()


def hunt(guard: Guard, case: Any, most: int = MOST) -> Hunted:
    """Run cases without a guard until one is a fault that is none with it.

    Args:
        guard: to be removed.
        case: runs the case of a number, given the name of the guard that is missing or nothing.
        most: cases, before it is given up.
    """
    for k, number in enumerate(islice(workers.numbers(guard.family), most), 1):
        found = case(number, guard.name)
        if found.word in FAULTS and case(number, "").word not in FAULTS:
            return Hunted(guard, k, found)
    return Hunted(guard, most, None)


def table(hunted: list[Hunted]) -> list[str]:
    """The lines of a Markdown table: a guard a row."""
    lines = ["| guard that was removed | where | found after | by |", "|---|---|---|---|"]
    order = list(GUARDS)
    for one in sorted(hunted, key=lambda one: order.index(one.guard.name)):
        detail = "" if one.found is None else " ".join(one.found.detail.split())
        cells = "**not found**" if one.found is None else f"{one.cases} cases"
        by = "" if one.found is None else f"{one.found.word}: {detail[-90:]}".replace("|", "\\|")
        lines.append(f"| {one.guard.name} | `{one.guard.where}` | {cells} | {by} |")
    found = sum(one.found is not None for one in hunted)
    return [
        *lines,
        f"{found} of {len(hunted)} guards were found missing ({found / len(hunted):.0%})",
    ]
