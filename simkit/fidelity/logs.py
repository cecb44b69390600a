"""What the log of an earlier run says of that run: who decoded what, and in which steps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from simkit.errors import CostError, LiveError
from simkit.fidelity.run import FITTED, FITTED_TREES, LivePlan
from simkit.live.log import read as read_log
from simkit.live.settings import Step
from simkit.policies import parse
from traces import reading
from traces.messages import how_many
from traces.same_prompts import to_deal
from traces.trace import Trace

_WHOLE = ("live.parquet", "live.partial*.parquet")
_PARTS = ("live-*.parquet", "live.parquet.parts/*.parquet")


def files(folder: Path) -> list[Path]:
    """Those of the log in a folder: `live.parquet`, or what a broken run has left.

    Several sittings of one run are one log: `live-1.parquet`, `live-2.parquet`, …

    Args:
        folder: or the log itself.

    Raises:
        LiveError: there is none, or there is more than one log.
    """
    if not folder.exists():
        reading.refuse_url(folder, LiveError)
        raise LiveError(f"{folder}: no such file or folder")
    if folder.is_file():
        return [folder]
    whole = [[file] for name in _WHOLE for file in sorted(folder.glob(name))]
    found = whole + [paths for name in _PARTS if (paths := sorted(folder.glob(name)))]
    if not found:
        raise LiveError(f"{folder}: there is no log in it ({', '.join(_WHOLE + _PARTS)})")
    if len(found) > 1:
        both = " and ".join(str(paths[0].relative_to(folder)) for paths in found)
        raise LiveError(
            f"{folder}: which log? {both} are of different runs; move one away, or name both"
            " live-1.parquet, live-2.parquet to judge them together"
        )
    return found[0]


def read(folder: Path) -> pa.Table:
    """The log in a folder, whose files must be of one run.

    Each sitting numbers its rounds from 0 on: here they follow on those of the file before.

    Raises:
        LiveError: see `files`; or it cannot be read, or its files say different things of the run.
    """
    paths = files(folder)
    tables = [read_log(file) for file in paths]
    first, *others = (table.schema.metadata or {} for table in tables)
    for file, facts in zip(paths[1:], others, strict=True):
        for key in sorted(first.keys() | facts.keys()):
            if (there := first.get(key)) != (here := facts.get(key)):
                raise LiveError(
                    f"{folder}: {paths[0].name} and {file.name} are of two runs: {key.decode()} is"
                    f" {_word(there)} in one and {_word(here)} in the other"
                )
    parts = paths[0].parent.suffix == ".parts"  # of one sitting: a round may go on in the next
    return pa.concat_tables(tables if parts else _in_turn(tables))


@contextmanager
def named(folder: Path | None) -> Iterator[None]:
    """Complaints about a log that was read name its file; None: it was not read from one."""
    try:
        yield
    except (LiveError, CostError) as error:
        if folder is None:
            raise
        paths = files(folder)
        raise LiveError(f"{paths[0] if len(paths) == 1 else folder}: {error}") from None


def fact(log: pa.Table, name: str, default: str) -> str:
    """What a log's metadata says of its run."""
    found = (log.schema.metadata or {}).get(name.encode())
    return default if found is None else found.decode()


def first_token(log: pa.Table) -> Literal["draft", "prefill"]:
    """Which pass emitted the first token."""
    first = (pc.field("kind") == "step") & (pc.field("step") == 1)
    starts = log.filter(first)["start"].to_numpy()
    return "prefill" if len(starts) and starts.min() > 1 else "draft"


def plan_of(log: pa.Table, trace: Trace) -> LivePlan:
    """The plan of the run that wrote a log, of prompts that all their arms have decoded.

    Raises:
        LiveError: no such run wrote it, it was a run on another trace, it broke off before
            anything can be compared, or it was cut to whole sequences.
    """
    rows = log.filter(pc.field("kind") == "sequence")
    arms = {*zip(rows["run"].to_pylist(), rows["policy"].to_pylist(), strict=True)}
    names = dict(arms)
    if len(arms) > len(names):
        raise LiveError("the log is of runs that tested different policies")
    fitted = FITTED_TREES if trace.manifest.kind == "tree" else FITTED
    n = max(names, default=0) - len(fitted) - 1
    tested = [names.get(k, "") for k in range(1, n + 1)]
    if n < 1 or not all(tested):
        raise LiveError("not a log of simkit fidelity: some of its runs are missing")
    policies = tuple(parse(name) for name in tested)
    rounds = int(rows["round"].to_numpy().max()) + 1
    plan = LivePlan(policies, (), (), rounds, fitted)
    if [arm.name for arm in plan.arms] != [names.get(k) for k in range(len(plan.arms))]:
        raise LiveError("not a log of simkit fidelity: it has other runs")
    if len(rows) == len(log):
        raise LiveError("holds whole sequences only: passes are needed to judge it again")
    calibration = _indices(trace, rows, plan.passes)
    prompt = to_deal(trace.prompt_numbers)
    timed = {int(prompt[k]) for k in _indices(trace, rows, plan.passes[-1:])}
    held_out = tuple(k for k in _indices(trace, rows, plan.tested) if prompt[k] not in timed)
    ruled = set(_indices(trace, rows, plan.rules)) & set(calibration)
    if len(held_out) < 2 or not ruled:
        raise LiveError("the run broke off before every arm had decoded enough prompts")
    _check_prompts(log, trace, (*held_out, *calibration))
    if fact(log, "sampler", str(trace.sampler)) != str(trace.sampler):
        raise LiveError("the log is of another trace: its sampling settings differ")
    return LivePlan(plan.policies, held_out, calibration, rounds, fitted)


def taken(log: pa.Table, plan: LivePlan) -> dict[tuple[int, int], list[Step]]:
    """The steps of each (arm, sequence) in the first round; a verification reads γ + 1 tokens."""
    first = log.filter((pc.field("round") == 0) & (pc.field("step") > 0))
    first = first.filter(pc.field("run").isin(list(plan.rules)))
    keys = ("run", "sequence", "step")
    steps = first.filter(pc.field("kind") == "step")
    reads = first.filter(pc.field("kind") == "verify").select([*keys, "tokens_in"])
    steps = steps.select([*keys, "start", "depth", "accepted"]).join(reads, list(keys))
    found: dict[tuple[int, int], list[Step]] = {}
    for row in steps.sort_by([(key, "ascending") for key in keys]).to_pylist():
        step = Step(row["start"], row["tokens_in"] - 1, row["depth"], row["accepted"])
        found.setdefault((row["run"], row["sequence"]), []).append(step)
    return found


def _indices(trace: Trace, rows: pa.Table, arms: Iterable[int]) -> tuple[int, ...]:
    """Prompts that all of some arms have decoded; indices in the trace, ascending."""
    run, sequence = rows["run"].to_numpy(), rows["sequence"].to_numpy()
    numbers = set.intersection(*(set(sequence[run == arm].tolist()) for arm in arms))
    index = {number: k for k, number in enumerate(trace.sequences["sequence"].to_pylist())}
    if missing := numbers - index.keys():
        raise LiveError(f"the log is of another trace: this one has no sequence {min(missing)}")
    return tuple(sorted(index[number] for number in numbers))


def _check_prompts(log: pa.Table, trace: Trace, indices: tuple[int, ...]) -> None:
    """The target reads a prompt, or all but its last token, before the first step."""
    reads = log.filter((pc.field("kind") == "prefill") & (pc.field("component") == "target"))
    sequence, tokens = reads["sequence"].to_numpy(), reads["tokens_in"].to_numpy()
    for index in indices:
        number, n = (trace.sequences[c][index].as_py() for c in ("sequence", "n_prompt"))
        found = tokens[sequence == number]
        if np.any((found != n) & (found != n - 1)):
            raise LiveError(
                f"the log is of another trace: sequence {number} has a prompt of"
                f" {how_many(n, 'token')} in the trace,"
                f" but {found.max()} in the log"
            )


def _in_turn(tables: list[pa.Table]) -> list[pa.Table]:
    """The same tables, their rounds numbered on from each to the next."""
    numbered, n_rounds = [], 0
    for table in tables:
        rounds = table["round"].to_numpy()
        if len(rounds):
            rounds = rounds - rounds.min() + np.int32(n_rounds)
            n_rounds = int(rounds.max()) + 1
        index = table.schema.get_field_index("round")
        numbered.append(table.set_column(index, table.schema.field(index), [rounds]))
    return numbered


def _word(value: bytes | None) -> str:
    return "not said" if value is None else value.decode()
