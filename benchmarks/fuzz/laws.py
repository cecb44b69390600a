"""Changes that break one law each, in traces that are written and signed anew.

Page checksums, hashes and signatures are right then, so that the law alone can tell. `validate`
must refuse the trace, and a replay must refuse it or give the numbers of the sound one.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.fuzz import judge
from benchmarks.fuzz.edit import Change, Edit
from benchmarks.fuzz.judge import LINEAR, REFUSED, FaultError, Verdict

NAN, INF = float("nan"), float("inf")
Where = Callable[[Callable[[str], np.ndarray]], np.ndarray]
"""Flags rows, given what takes a column by its name."""

POSITIONS, BRANCHES = "positions/00000.parquet", "branches/00000.parquet"
SEQUENCES, LATENCY = "sequences.parquet", "latency.parquet"
SCORES = "scores/specdecpp.parquet"
LOUD = ("fixed(3)", "svip(h=0.4)")  # rules of which one reads a statistic


class Law(NamedTuple):
    """A law, and how it is broken.

    Attributes:
        trace: the sound trace, or a drafter that is attached to one.
        change: breaks the law.
        policies: that are replayed then.
        written: how the change is written, see `Edit.write`.
    """

    trace: str
    change: Change
    policies: tuple[str, ...] = ("fixed(3)",)
    written: Mapping[str, bool] = {}


def accepted(c: Callable[[str], np.ndarray]) -> np.ndarray:
    """Rows whose token was accepted."""
    return c("accepted")


def rejected(c: Callable[[str], np.ndarray]) -> np.ndarray:
    """Rows whose token was rejected; EOS tokens are left out, which end what follows."""
    return ~c("accepted") & (c("draft_token") != 0) & (c("target_token") != 0)


def inner(c: Callable[[str], np.ndarray]) -> np.ndarray:
    """Rejected rows that are not the last of a sequence."""
    return rejected(c) & np.append(c("sequence")[1:] == c("sequence")[:-1], False)


def put(name: str, where: Where | None, **values: Any) -> Change:
    """Change columns of one row, drawn among those that are flagged, or among all.

    A value may be a function of the row's number and of what takes columns; a tuple is drawn from.
    """

    def change(rng: random.Random, edit: Edit) -> None:
        def column(of: str) -> np.ndarray:
            return edit.column(name, of)

        flags = np.ones(edit.table(name).num_rows) if where is None else where(column)
        row = rng.choice(np.flatnonzero(flags).tolist())
        for of, value in values.items():
            value = rng.choice(value) if isinstance(value, tuple) else value
            edit.put(name, of, {row: value(row, column) if callable(value) else value})

    return change


def other(of: str, by: int = 1) -> Callable[[int, Callable[[str], np.ndarray]], int]:
    """A column's value in the row, and some more."""
    return lambda row, c: int(c(of)[row]) + by


def same(of: str) -> Callable[[int, Callable[[str], np.ndarray]], int]:
    """A column's value in the row."""
    return other(of, 0)


def order(name: str, ordered: Callable[[random.Random, Edit], Any]) -> Change:
    """Take the rows in another order, or some of them."""
    return lambda rng, edit: edit.take(name, ordered(rng, edit))


def swapped(name: str) -> Change:
    """Two neighbours change places."""

    def rows(rng: random.Random, edit: Edit) -> np.ndarray:
        found = np.arange(edit.table(name).num_rows)
        k = rng.randrange(len(found) - 1)
        found[[k, k + 1]] = found[[k + 1, k]]
        return found

    return order(name, rows)


def dropped_last(name: str) -> Change:
    """The last row is not there."""
    return order(name, lambda rng, edit: np.arange(edit.table(name).num_rows - 1))


def runs(edit: Edit, name: str, key: str) -> list[np.ndarray]:
    """The rows of each branch, draft or tree of a file."""
    sequence, start = edit.column(name, "sequence"), edit.column(name, key)
    cuts = 1 + np.flatnonzero((np.diff(sequence) != 0) | (np.diff(start) != 0))
    return np.split(np.arange(len(sequence)), cuts)


def swapped_runs(name: str, key: str) -> Change:
    """Two neighbouring branches, drafts or trees of one sequence change places."""

    def rows(rng: random.Random, edit: Edit) -> np.ndarray:
        found, sequence = runs(edit, name, key), edit.column(name, "sequence")
        pairs = [
            k for k in range(len(found) - 1) if sequence[found[k][0]] == sequence[found[k + 1][0]]
        ]
        k = rng.choice(pairs)
        found[k], found[k + 1] = found[k + 1], found[k]
        return np.concatenate(found)

    return order(name, rows)


def dropped_run(name: str, key: str) -> Change:
    """A branch, draft or tree is not there; of a sequence the last one stays."""

    def rows(rng: random.Random, edit: Edit) -> np.ndarray:
        found = runs(edit, name, key)
        del found[rng.randrange(len(found) - 1)]
        return np.concatenate(found)

    return order(name, rows)


def shortened(name: str, key: str) -> Change:
    """A branch or a draft of several rows lacks its last one."""

    def rows(rng: random.Random, edit: Edit) -> np.ndarray:
        found = runs(edit, name, key)
        k = rng.choice([k for k, run in enumerate(found) if len(run) > 1])
        found[k] = found[k][:-1]
        return np.concatenate(found)

    return order(name, rows)


def moved_last(name: str, key: str, by: int = 1000) -> Change:
    """The last branch, draft or tree is there again, at a position that there is not."""

    def change(rng: random.Random, edit: Edit) -> None:
        n, last = edit.table(name).num_rows, runs(edit, name, key)[-1]
        edit.take(name, np.append(np.arange(n), last))
        place = int(edit.column(name, key)[last[0]]) + by
        edit.put(name, key, {n + k: place for k in range(len(last))})

    return change


def eos_within(name: str, key: str) -> Change:
    """An EOS token stands before the end of a branch or a draft."""

    def change(rng: random.Random, edit: Edit) -> None:
        found = [run for run in runs(edit, name, key) if len(run) > 1]
        good = edit.column(name, "accepted") if name.startswith("lattice") else None
        rows = [k for run in found for k in run[:-1] if good is None or not good[k]]
        edit.put(name, "draft_token", {rng.choice(rows): 0})

    return change


def calm(rng: random.Random, edit: Edit) -> None:
    """The draft is never unsure: no law is broken, but rules go on where they stopped."""
    for name in edit.names("positions"):
        edit.fill(name, "draft_entropy", 0.0)


def field(**values: Any) -> Change:
    """Fields of the manifest; a dict changes an object's own."""

    def change(rng: random.Random, edit: Edit) -> None:
        for name, value in values.items():
            value = rng.choice(value) if isinstance(value, tuple) else value
            if isinstance(value, dict) and isinstance(edit.manifest.get(name), dict):
                value = edit.manifest[name] | value
            edit.manifest[name] = value

    return change


_EVERY: list[Law] = []  # of all families


def broken(laws: Mapping[str, Law]) -> Callable[[random.Random, Path, Path], Verdict]:
    """The family of cases that break one of these laws."""
    _EVERY.extend(laws.values())

    def family(rng: random.Random, base: Path, work: Path) -> Verdict:
        name = rng.choice(list(laws))
        law = laws[name]
        recording, _, drafter = law.trace.partition("/drafters/")
        sound, trace = base / recording, work / recording
        others = [path.name for path in sound.glob("drafters/*") if path.name != drafter]
        shutil.copytree(sound, trace, ignore=shutil.ignore_patterns(*others) if drafter else None)
        edit = Edit(work / law.trace)
        if "specdecpp" not in law.policies:
            edit.drop("scores/")  # they have laws of their own, which would be broken too
        law.change(rng, edit)
        edit.write(**law.written)
        return judged(name, law, sound, work)

    return family


def judged(name: str, law: Law, sound: Path, work: Path) -> Verdict:
    """`validate` must refuse, and a replay must refuse or give what it gives of the sound trace."""
    drafter, cost = law.trace.partition("/drafters/")[2], cost_of(sound.name)
    ended = judge.replay(work / sound.name, cost, *law.policies, drafter=drafter)
    try:
        judge.told(ended, judge.truth_of(sound, cost, law.policies, drafter))
    except FaultError as fault:
        raise FaultError(fault.args[0], f"{name}: {fault.args[1]}") from None
    found = judge.command("validate", work / law.trace)
    if found.status == 0:
        raise FaultError("wrong number", f"{name}: validate finds nothing")
    return Verdict(REFUSED, found.err.strip())


def cost_of(name: str) -> str | None:
    """The cost of replays of a trace: its own, where it has times."""
    return None if name in ("greedy", "sampled") else LINEAR


def check_sound(base: Path) -> None:
    """Replay what the laws' cases replay, unbroken.

    Raises:
        FaultError: it is refused.
    """
    judge.truth_of(base / "greedy", None, LOUD)
    for law in _EVERY:
        recording, _, drafter = law.trace.partition("/drafters/")
        judge.truth_of(base / recording, cost_of(recording), law.policies, drafter)
