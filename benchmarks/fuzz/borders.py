"""What comes from elsewhere than a folder: stores, windows, kept machine code, rules, servers."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from pyarrow import fs

import simkit
from benchmarks.fuzz import alter, judge
from benchmarks.fuzz.edit import Edit
from benchmarks.fuzz.judge import BY_TOKEN, EQUAL, LINEAR, REFUSED, FaultError, Verdict
from benchmarks.fuzz.laws import calm, other, put, rejected, same, swapped
from simkit.errors import PolicyError
from simkit.simulator.arguments import setting
from simkit.steps import interpreted
from traces import kernels, stores, streamed
from traces.errors import UserError
from traces.streamed import LEAST, stream
from traces.trace import load

STORED = ("greedy", "sampled", "lattice")
_COUNTS = ("steps", "drafted", "proposed", "accepted", "emitted")


@contextmanager
def _store(root: Path, copies: Path) -> Iterator[None]:
    """A folder as the store behind fake:// URLs; copies lie in another one."""
    system = fs.SubTreeFileSystem(str(root), fs.LocalFileSystem())

    def found(url: str) -> tuple[fs.FileSystem, str]:
        return system, url.partition("://")[2].partition("?")[0]

    before = os.environ.get(stores.FOLDER)
    os.environ[stores.FOLDER] = str(copies)
    with patch.object(stores, "_system", found), patch.object(stores, "_WAIT_S", 0.0):
        try:
            yield
        finally:
            os.environ.pop(stores.FOLDER)
            if before is not None:
                os.environ[stores.FOLDER] = before


def stored(rng: random.Random, base: Path, work: Path) -> Verdict:
    """A trace in a store, altered there, or in the copy that was brought of it."""
    sound = base / rng.choice(STORED)
    remote = Path(shutil.copytree(sound, work / "store" / sound.name))
    cost, policies = judge.settings(sound.name)
    replay = partial(judge.replay, f"fake://{sound.name}", cost, *policies)
    how = rng.choice(("there", "there", "copy", "copy", "gone", "anew"))
    with _store(work / "store", work / "copies"):
        if how == "there":
            _damage(rng, remote)
            return judge.told(replay(), judge.truth(sound))
        first = replay()
        if judge.told(first, judge.truth(sound)).word != EQUAL:
            raise FaultError("wrong exit", f"the sound store is refused: {first.err}")
        if how == "anew":
            _change_content(rng, remote)
            return judge.told(replay(), judge.truth(sound))
        (copied,) = (
            file.parent for file in (work / "copies").glob(f"*/{sound.name}/manifest.json")
        )
        _damage(rng, copied, gone=how == "gone")
        again = judge.told(replay(), judge.truth(sound))
    if again.word == REFUSED:
        raise FaultError("wrong exit", f"a damaged copy is not brought again: {again.detail}")
    return again


def _damage(rng: random.Random, folder: Path, gone: bool = False) -> None:
    file = rng.choice(sorted(path for path in folder.rglob("*") if path.is_file()))
    if gone:
        file.unlink()
    else:
        file.write_bytes(rng.choice((alter.alter_bytes(rng, file.read_bytes()), b"")))


def _change_content(rng: random.Random, remote: Path) -> None:
    """What changes in the store is another copy: the numbers are those of the new content."""
    edit = Edit(remote)
    edit.manifest["seed"] = rng.randrange(10**6)
    edit.write()


def _longer(rng: random.Random, edit: Edit) -> None:
    """A prompt is longer, and says so."""
    tokens = edit.table("sequences.parquet")["prompt_tokens"][1].as_py()
    edit.put("sequences.parquet", "prompt_tokens", {1: [*tokens, *tokens]})
    edit.put("sequences.parquet", "n_prompt", {1: 2 * len(tokens)})


_SECOND = "positions/00001.parquet"
_IN_WINDOWS: dict[str, tuple[Any, dict[str, bool]]] = {
    "rows stand in order": (swapped(_SECOND), {}),
    "rejected tokens differ": (put(_SECOND, rejected, draft_token=same("target_token")), {}),
    "hashes are the files'": (calm, {"hashed": False}),
    "signatures are the text's": (calm, {"signed": False}),
    "hashes of sequences are": (_longer, {"hashed": False}),
    "prompts are as long as they are": (
        put("sequences.parquet", None, n_prompt=other("n_prompt")),
        {},
    ),
    "lengths are the outputs'": (
        put("sequences.parquet", lambda c: c("sequence") == 1, n_output=9),
        {},
    ),
    "branches ascend": (swapped("branches/00001.parquet"), {}),
}


def windows(rng: random.Random, base: Path, work: Path) -> Verdict:
    """A recording read shard by shard, of whose second shard something is wrong."""
    trace = Path(shutil.copytree(base / "drafted", work / "drafted"))
    drafter = rng.choice((None, None, "suffix", "eagle"))
    if rng.random() < 0.5 or drafter:
        files = sorted(
            (trace if drafter is None else trace / "drafters" / drafter).rglob("*1.parquet")
        )
        file = rng.choice(files)
        file.write_bytes(alter.alter_bytes(rng, file.read_bytes()))
    else:
        change, written = _IN_WINDOWS[rng.choice(list(_IN_WINDOWS))]
        edit = Edit(trace)
        change(rng, edit)
        edit.write(**written)
    try:
        found = _in_windows(trace, drafter)
    except UserError as problem:
        return judge.refusal(problem)
    if found != _whole(base / "drafted", drafter):
        raise FaultError("wrong number", f"{found} in windows")
    return Verdict(EQUAL, "")


def _in_windows(trace: Path, drafter: str | None) -> list[Any]:
    with patch.object(streamed, "_FEWEST", 1), patch.object(streamed, "_SHARE", 1e-9):
        there = stream(trace, drafter, LEAST)
        assert isinstance(there, streamed.Streamed) and len(there.ranges) == 2
        return _numbers(there, drafter)


@cache
def _whole(trace: Path, drafter: str | None) -> list[Any]:
    return _numbers(load(trace, drafter), drafter)


def _numbers(trace: Any, drafter: str | None) -> list[Any]:
    rules = ["fixed(3)"] if drafter else ["fixed(3)", "svip(h=0.4)"]
    rows = simkit.replay(trace, rules, BY_TOKEN).records()
    return [[row[name] for name in (*_COUNTS, "total_s", "prefill_s")] for row in rows]


def _add(x: int) -> int:
    return x + 1


def _double(x: int) -> int:
    return 2 * x + 100


_KEPT = {_add: 6, _double: 110}  # what they give of 5


def keep_code(folder: Path) -> None:
    """Compile two functions into a folder."""
    for function, value in _KEPT.items():
        with _caching(folder):
            assert kernels.compiled(function)(5) == value


@contextmanager
def _caching(folder: Path) -> Iterator[None]:
    """Keep code in this folder, also that of the functions above, which are no package's."""
    with (
        patch.object(kernels, "_folder", lambda: folder),
        patch.object(kernels, "is_inside", lambda file: True),
    ):
        yield


def kept_code(rng: random.Random, base: Path, work: Path) -> Verdict:
    """Machine code that is kept between processes: damaged, exchanged, or somebody else's."""
    folder = Path(shutil.copytree(base / "kernels", work / "kernels"))
    files = sorted(path for path in folder.rglob("*.nb*") if path.is_file())
    file = rng.choice(files)
    how = rng.choice(("damage", "damage", "exchange", "empty", "gone", "folder"))
    if how == "damage":
        file.write_bytes(alter.alter_bytes(rng, file.read_bytes()))
    elif how == "exchange":
        one, two = rng.sample([path for path in files if path.suffix == file.suffix], 2)
        first, second = one.read_bytes(), two.read_bytes()
        one.write_bytes(second)
        two.write_bytes(first)
    elif how == "empty":
        file.write_bytes(b"")
    else:
        file.unlink()
        if how == "folder":
            file.mkdir()
    for function, value in _KEPT.items():
        with _caching(folder):
            found = kernels.compiled(function)(5)
        if found != value:
            raise FaultError(
                "wrong number", f"{how} {file.name}: {function.__name__}(5) is {found}"
            )
    return Verdict(EQUAL, "")


_ANSWERS = (
    None,
    0,
    1,
    2,
    "",
    "no",
    "yes",
    [],
    [0],
    0.0,
    0.5,
    float("nan"),
    {},
    np.int64(1),
    np.float64(0),
)


def rules(rng: random.Random, base: Path, work: Path) -> Verdict:
    """A user's rule that answers with something: only true and false say whether to stop."""
    stop = rng.randint(1, 5)
    answer = rng.choice((*_ANSWERS, True, np.True_))
    kind = rng.choice(("function", "class"))
    policy = _function(stop, answer) if kind == "function" else _class(stop, answer)
    try:
        (row,) = simkit.replay(str(base / "sampled"), policy, LINEAR).records()
    except PolicyError as problem:
        return judge.refusal(problem)
    if not isinstance(answer, bool | np.bool_):
        raise FaultError(
            "wrong number", f"a {kind} answers {answer!r}, and {row['drafted']} are drafted"
        )
    if [row[name] for name in _COUNTS] != fixed(base / "sampled", stop):
        raise FaultError("wrong number", f"a {kind} that stops at {stop} is not fixed({stop})")
    return Verdict(EQUAL, "")


def _function(stop: int, answer: Any) -> Any:
    return simkit.policies.from_function(
        lambda depth, row: answer if depth >= stop else False, max_draft=8
    )


def _class(stop: int, answer: Any) -> Any:
    class Rule:
        def stop(self, depth: int, row: Any) -> Any:
            return answer if depth >= stop else False

    return simkit.policy(columns=(), max_draft=8)(Rule)()


@cache
def fixed(trace: Path, length: int) -> list[int]:
    """The counts of a fixed length's replay."""
    return _counts(trace, f"fixed({length})")


def compiled_rules(rng: random.Random, base: Path, work: Path) -> Verdict:
    """A user's rules that are compiled: each has its own code, and reads the values of the day."""
    trace, length = base / "sampled", rng.randint(1, 6)
    if rng.random() < 0.5:
        space: dict[str, Any] = {}
        exec("def rule(depth, row):\n    return depth >= LENGTH\n", space)
        wanted = [length, length % 6 + 1, length]
        policy = simkit.policy(columns=("draft_entropy",), max_draft=8, compiled=True)(
            space["rule"]
        )
    else:
        space = {"LENGTH": length}
        exec("def trips(params, state, depth, row):\n    return depth >= LENGTH, state\n", space)
        slots = {"slots": simkit.policies.Slots(trips=space["trips"]), "name": "mine"}
        policy = dataclass(frozen=True)(type("Mine", (simkit.policies.SVIP,), slots))()
        wanted = [length]
    for each in wanted:
        space["LENGTH"] = each
        if (found := _counts(trace, policy)) != fixed(trace, each):
            raise FaultError("wrong number", f"{policy} stops at {each}, but has {found}")
    if _counts(trace, "svip(h=0.4)") != _svip(trace):
        raise FaultError("wrong number", "svip(h=0.4) has the code of a rule that derives from it")
    return Verdict(EQUAL, "")


@cache
def _svip(trace: Path) -> list[int]:
    """The counts of svip(h=0.4), step by step."""
    where = setting(load(trace), None, "draft")
    steps = interpreted.walk(simkit.policies.SVIP(0.4), where.layout, 1)
    drafted, proposed, accepted = (
        int(getattr(steps, name).sum()) for name in ("drafted", "proposed", "accepted")
    )
    return [len(steps.drafted), drafted, proposed, accepted, load(trace).n_positions]


def _counts(trace: Path, policy: Any) -> list[int]:
    (row,) = simkit.replay(str(trace), policy, LINEAR).records()
    return [row[name] for name in _COUNTS]


FAMILIES: dict[str, Callable[[random.Random, Path, Path], Verdict]] = {
    "stores": stored,
    "windows": windows,
    "kept machine code": kept_code,
    "users' rules": rules,
    "compiled rules": compiled_rules,
}
