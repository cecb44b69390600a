"""What becomes of a broken input: how a command ended, and whether its numbers are true."""

from __future__ import annotations

import io
import json
import random
import re
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from simkit.cli import main
from traces.errors import UserError

REFUSED, EQUAL, ACCEPTED = "refused", "accepted, equal", "accepted, its own"
FAULTS = ("traceback", "wrong exit", "wrong number", "hang", "memory", "died")
VERDICTS = (REFUSED, EQUAL, ACCEPTED, *FAULTS)
LINEAR = "linear(draft_s=0.001, target_s=0.008)"
BY_TOKEN = "linear(draft_s=0.001, target_s=0.008, target_per_token_s=0.0002)"


class Ended(NamedTuple):
    """How a command ended: its status, what it printed, what it said."""

    status: int
    out: str
    err: str


class Verdict(NamedTuple):
    """What became of a case: one of `VERDICTS`, and what tells of it."""

    word: str
    detail: str


class FaultError(Exception):
    """A case that must not end so; its arguments are those of `Verdict`."""


def command(*arguments: object) -> Ended:
    """Run `simkit` in this process.

    Raises:
        FaultError: it ends neither well nor with status 2 and lines of our own.
    """
    out, err = io.StringIO(), io.StringIO()
    status: Any = None
    with redirect_stdout(out), redirect_stderr(err):
        try:
            main([str(word) for word in arguments])
        except SystemExit as end:
            status = end.code
    ended = Ended(status, out.getvalue(), err.getvalue())
    lines = [line for line in ended.err.splitlines() if line.strip()]
    if status not in (0, 2) or "Traceback" in ended.err:
        raise FaultError("wrong exit", f"status {status}: {ended.err[-300:]}")
    if status == 2 and not (
        lines and all(line.startswith(("simkit: ", "note: ")) for line in lines)
    ):
        raise FaultError("wrong exit", f"status 2, but says {ended.err[-300:]!r}")
    return ended


def replay(trace: Path | str, cost: str | None, *policies: str, drafter: str = "") -> Ended:
    """Run `simkit replay`, its numbers in JSON."""
    chosen = [word for policy in policies for word in ("--policy", policy)]
    priced = [] if cost is None else ["--cost", cost]
    whose = ["--drafter", drafter] if drafter else []
    return command("replay", trace, *chosen, *priced, *whose, "--format", "json")


def numbers(ended: Ended) -> Verdict:
    """Refused or, where numbers may be others, at least numbers."""
    if ended.status == 2:
        return Verdict(REFUSED, ended.err.strip())
    if re.search(r"\b(NaN|-?Infinity)\b", ended.out):
        raise FaultError("wrong number", f"NaN or infinite: {ended.out[:200]}")
    if below := re.search(r'"\w+_s": -[0-9.e-]+', ended.out):
        raise FaultError("wrong number", f"time below 0: {below[0]}")
    return Verdict(ACCEPTED, "")


def settings(name: str) -> tuple[str | None, tuple[str, ...]]:
    """Cost and policies that a sound trace is replayed with."""
    cost = LINEAR if name == "lattice" else None
    return cost, ("fixed(3)",) if name == "lattice" else ("fixed(3)", "svip(h=0.4)", "specdecpp")


def truth(trace: Path) -> str:
    """What the replay of a sound trace prints."""
    cost, policies = settings(trace.name)
    return truth_of(trace, cost, policies)


@cache
def truth_of(trace: Path, cost: str | None, policies: tuple[str, ...], drafter: str = "") -> str:
    """What a replay of a sound trace prints; it must not be refused."""
    ended = replay(trace, cost, *policies, drafter=drafter)
    if ended.status:
        raise FaultError("wrong exit", f"the sound trace is refused: {ended.err}")
    return ended.out


def judged(rng: random.Random, sound: Path, trace: Path) -> Verdict:
    """Refused, or equal counts and seconds."""
    cost, policies = settings(trace.name)
    expected = truth(sound)
    if rng.random() < 0.3:
        command(rng.choice(("info", "validate")), trace)
    return told(replay(trace, cost, *policies), expected)


def told(ended: Ended, expected: str) -> Verdict:
    """What a replay came to beside what it must print.

    It is refused whole, or a policy is: that one is left out with a note, and the others are equal.

    Raises:
        FaultError: it has other numbers.
    """
    if ended.status == 2:
        return Verdict(REFUSED, ended.err.strip())
    if ended.out == expected:
        return Verdict(EQUAL, "")
    rows = [json.dumps(row) for row in json.loads(expected)]
    found = [json.dumps(row) for row in json.loads(ended.out)]
    gone = ended.err.count(" is left out: ")
    if not gone or len(found) + gone != len(rows) or not set(found) <= set(rows):
        raise FaultError("wrong number", f"{ended.out[:300]} instead of {expected[:300]}")
    return Verdict(REFUSED, ended.err.strip())


@cache
def priced(file: Path, trace: Path) -> str:
    """What a replay of a trace with a cost in a file prints."""
    return replay(trace, str(file), "fixed(3)").out


def same(read: Callable[[Path], Any], sound: Path, file: Path, error: type[UserError]) -> Verdict:
    """What is read is refused in a line, or equal."""
    try:
        found = read(file)
    except error as problem:
        return refusal(problem)
    if found != read(sound):
        raise FaultError("wrong number", "what was read is not what was written")
    return Verdict(EQUAL, "")


def refusal(problem: UserError) -> Verdict:
    """An error as a user sees it: one line."""
    if len(str(problem).splitlines()) != 1:
        raise FaultError("wrong exit", f"not one line: {str(problem)[:300]!r}")
    return Verdict(REFUSED, str(problem))


def is_signed(file: Path, name: str) -> bool:
    """Whether a text in JSON has a field `name`."""
    return f'"{name}"' in file.read_text(errors="replace")
