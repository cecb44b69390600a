"""What a recording will take of a processor and of a disk, from a trial of its first tokens."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import NamedTuple

import pyarrow as pa

from traces import files, schema
from traces.columns import state_table, to_table
from traces.manifest import Manifest
from traces.record.pair import Alone, Pair
from traces.record.plan import Plan
from traces.record.prompts import Prompt
from traces.record.proof_own import Way
from traces.record.shard import ShardColumns, record_shard

_SHARE = 20  # of all tokens in a row, one in so many is tried
_FEWEST = 512  # tokens in a row that a recording must have before it is tried
_WARM = 2  # tokens of the runs that come first
_MORE = 8  # tokens behind the deepest draft: enough to see branches of that length


class SizeEstimate(NamedTuple):
    """Of all shards that are left, if no output ends before T_max.

    Attributes:
        prompts: how many they hold.
        seconds: to record them.
        n_bytes: of their files.
    """

    prompts: int
    seconds: float
    n_bytes: float


class _Tried(NamedTuple):
    """A shard of a few tokens: seconds, and by table its rows and its file's bytes."""

    seconds: float
    rows: dict[str, int]
    n_bytes: dict[str, int]


def estimate(
    pair: Pair | Alone, batches: list[list[Prompt]], plan: Plan, header: Manifest
) -> SizeEstimate | None:
    """What the shards that are left take; None where a trial would take too long for that.

    The first of them is run for a few tokens, twice, and for some more: what a token more takes is
    what every token takes, but for the growth of contexts. Where a draft's branches are read token
    by token, time goes by rows instead: branches of the trial are shorter than those of the rest.

    Args:
        pair: the models.
        batches: prompts of the shards that are left.
        plan: the recording's settings.
        header: of the recording.
    """
    in_a_row = len(batches) * plan.max_new_tokens
    tried = min(in_a_row // _SHARE, plan.max_draft + _MORE, plan.max_new_tokens)
    if in_a_row < _FEWEST or tried <= _WARM:
        return None
    _run(pair, batches[0], plan, header, _WARM)
    first = _run(pair, batches[0], plan, header, _WARM)
    more = _run(pair, batches[0], plan, header, tried)
    token_s = max(0.0, more.seconds - first.seconds) / (tried - _WARM)
    seconds = first.seconds + token_s * (plan.max_new_tokens - _WARM)
    rows = _rows_of_all(more.rows, tried, plan)
    if isinstance(pair, Pair) and pair.prove(0).draft is not Way.packed:
        seconds = more.seconds * _passes(rows) / _passes(more.rows)
    n_bytes = sum(_bytes_of(name, rows[name], first, more) for name in rows)
    prompts = sum(map(len, batches))
    shards = prompts / len(batches[0])
    return SizeEstimate(prompts, seconds * shards, n_bytes * shards)


def _passes(rows: dict[str, int]) -> int:
    """Rows on path and of branches: a draft that takes no masks reads a token for each."""
    return rows["positions"] + rows["branches"]


def _rows_of_all(tried: dict[str, int], tokens: int, plan: Plan) -> dict[str, int]:
    """Rows of a whole shard, from those of one of so many tokens.

    Branches begin at a share of the positions, and are as long as budget and Γ leave room for.
    """
    longer = plan.max_new_tokens / tokens
    found = {name: round(n * longer) for name, n in tried.items()}
    if "branches" in tried:
        off_path = _room(plan.max_new_tokens, plan.max_draft) / _room(tokens, plan.max_draft)
        found["branches"] = round(tried["branches"] * off_path)
        if "hidden" in tried:
            on_path = round((tried["hidden"] - tried["branches"]) * longer)
            found["hidden"] = on_path + found["branches"]
        if "experts" in tried:  # a row more for each branch
            roots = tried["experts"] - tried["branches"]
            found["experts"] = round(roots * longer) + found["branches"]
    return found


def _room(tokens: int, max_draft: int) -> int:
    """Rows of an output of so many tokens, if a branch begins at each."""
    return max(1, sum(min(max_draft - 1, tokens - 1 - m) for m in range(1, tokens)))


def _bytes_of(name: str, rows: int, first: _Tried, more: _Tried) -> float:
    """Of a table of so many rows: what a file has without any, and what a row adds."""
    added = more.rows[name] - first.rows[name]
    if added <= 0:
        return more.n_bytes[name] * rows / max(1, more.rows[name])
    row_bytes = (more.n_bytes[name] - first.n_bytes[name]) / added
    return more.n_bytes[name] + row_bytes * (rows - more.rows[name])


def _run(
    pair: Pair | Alone, prompts: list[Prompt], plan: Plan, header: Manifest, tokens: int
) -> _Tried:
    """Record a shard of so many tokens, and write it nowhere."""
    begun = time.perf_counter()
    rows = record_shard(pair, prompts, 0, replace(plan, max_new_tokens=tokens))
    tables = _tables(rows, header)
    n_bytes = {name: len(files.encode(table)[0]) for name, table in tables.items()}
    seconds = time.perf_counter() - begun
    n_rows = {name: table.num_rows for name, table in tables.items()}
    n_rows["sequences"] = sum(rows.sequences["n_output"])  # what they hold grows with outputs
    return _Tried(seconds, n_rows, n_bytes)


def _tables(rows: ShardColumns, header: Manifest) -> dict[str, pa.Table]:
    """A shard's files as they would be written."""
    found = {name: to_table(rows.tables[name], kind) for name, kind in header.tables.items()}
    states = {"hidden": rows.hidden, "mixed": rows.mixed, "experts": rows.experts}
    found |= {name: state_table(name, columns) for name, columns in states.items() if columns}
    return {"sequences": to_table(rows.sequences, schema.SEQUENCES), **found}
