"""What a recording will take of a processor and of a disk, from a trial of its first tokens."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import NamedTuple

from traces import files, schema
from traces.columns import state_table, to_table
from traces.manifest import Manifest
from traces.record.pair import Alone, Pair
from traces.record.plan import Plan
from traces.record.prompts import Prompt
from traces.record.shard import ShardColumns, record_shard

_SHARE = 20  # of all tokens in a row, one in so many is tried
_FEWEST = 512  # tokens in a row that a recording must have before it is tried
_WARM = 2  # tokens of the runs that come first
_MORE = 8  # tokens behind the deepest draft: enough to see branches of that length


class Estimate(NamedTuple):
    """At most, as every output may end before T_max.

    Attributes:
        seconds: of all shards that are left.
        n_bytes: of their files.
    """

    seconds: float
    n_bytes: float


def estimate(
    pair: Pair | Alone, batches: list[list[Prompt]], plan: Plan, header: Manifest
) -> Estimate | None:
    """What the shards that are left take at most; None where a trial would take too long for that.

    The first of them is run for a few tokens, twice, and for some more: what a token more takes is
    what every token takes, but for the growth of contexts.

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
    rest = (plan.max_new_tokens - _WARM) / (tried - _WARM)
    of_shard = [a + max(0.0, b - a) * rest for a, b in zip(first, more, strict=True)]
    shards = sum(map(len, batches)) / len(batches[0])
    return Estimate(*(value * shards for value in of_shard))


def _run(
    pair: Pair | Alone, prompts: list[Prompt], plan: Plan, header: Manifest, tokens: int
) -> Estimate:
    """Record a shard of so many tokens, and write it nowhere."""
    begun = time.perf_counter()
    rows = record_shard(pair, prompts, 0, replace(plan, max_new_tokens=tokens))
    n_bytes = sum(len(files.encode(table)[0]) for table in _tables(rows, header))
    return Estimate(time.perf_counter() - begun, n_bytes)


def _tables(rows: ShardColumns, header: Manifest) -> list:
    """A shard's files as they would be written."""
    found = [to_table(rows.tables[name], columns) for name, columns in header.tables.items()]
    found.append(to_table(rows.sequences, schema.SEQUENCES))
    states = {"hidden": rows.hidden, "mixed": rows.mixed}
    found += [state_table(name, columns) for name, columns in states.items() if columns]
    return found
