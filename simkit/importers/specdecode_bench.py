"""Records of the SpecDecode-Bench simulator (arXiv:2601.11580): accepted lengths as a lattice.

A record holds `id`, `prompt_token_ids`, `generated_token_ids`, and for each drafter, as
`acc_NAME.acc_len`, the tokens that one step would emit from every output position, the bonus token
included. Draft tokens and probabilities are not there. Tokens and lengths come from separate runs,
so there may be a few more of the ones than of the others; an output is as long as `acc_len`.

A draft is written as `acc_len` - 1 accepted rows and a rejected one.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Literal, NamedTuple, get_args

import numpy as np
import pyarrow.compute as pc

from simkit.errors import ImporterError
from simkit.importers import jsonl
from traces import reading
from traces.arrays import count_up
from traces.manifest import SourceInfo
from traces.memory import from_drafts
from traces.messages import how_many
from traces.trace import Trace

Align = Literal["simulator", "measured"]

_PREFIX = "acc_"
DRAFTER = "eagle"  # whose lengths are taken where there are several, and none is named


class ImportedRecords(NamedTuple):
    """What a file gives.

    Attributes:
        trace: a lattice with no columns but `accepted`, in memory.
        drafter: whose lengths it holds.
        others: drafters that the first record has besides.
        notes: what a reader should know of it, one line each.
    """

    trace: Trace
    drafter: str
    others: tuple[str, ...]
    notes: list[str]


def load(
    file: str | Path,
    drafter: str | None = None,
    align: Align = "simulator",
    sample: int | None = None,
    seed: int = 42,
) -> ImportedRecords:
    """A lattice of one drafter's accepted lengths.

    Args:
        file: JSON lines.
        drafter: NAME of `acc_NAME`; None takes the only one of the first record, or `DRAFTER`.
        align: which step entry k of `acc_len`, counted from 0, is for. "simulator": that at
            position k + 2, as the simulator reads it: the prefill's token is out, then one entry
            for each token. There is none for position 1. "measured": that at position k + 1, where
            its n-gram drafts were found (see docs/importing.md).
        sample: take so many records, drawn by Python's `random.Random(seed).sample`, in the file's
            order; all if there are no more.
        seed: of the sample.

    Raises:
        ImporterError: the file cannot be read, a record has wrong fields, or no such drafter; or
            sample is below 1, or align neither of the two.
    """
    if align not in get_args(Align):
        raise ImporterError(f"align must be simulator or measured, not {align!r}")
    if sample is not None and sample < 1:
        raise ImporterError(f"sample must be at least 1, not {sample}")
    records = jsonl.read(file)
    first = next(records)
    there = _drafters(first)
    drafter = drafter or (there[0] if len(there) == 1 else DRAFTER)
    given, picked = chain([first], records), ""
    if sample is not None:
        every = list(given)
        if sample < len(every):
            kept = sorted(random.Random(seed).sample(range(len(every)), sample))
            picked = f"{sample} of {how_many(len(every), 'record')}, seed {seed}"
            every = [every[k] for k in kept]
        given = iter(every)
    source = SourceInfo(
        Path(file).name, reading.file_hash(file, ImporterError), drafter, align, picked
    )
    trace = _trace(given, drafter, source)
    others = tuple(name for name in there if name != drafter)
    return ImportedRecords(trace, drafter, others, list(_notes(trace)))


def _notes(trace: Trace) -> Iterator[str]:
    """What to say of outputs of which there are not as many tokens as lengths."""
    lists = trace.sequences["output_tokens"]
    tokens = pc.call_function("list_value_length", [lists]).to_numpy()
    apart = np.abs(tokens - trace.sequences["n_output"].to_numpy())
    if apart.any():
        yield (
            f"{np.count_nonzero(apart):,} of {len(apart):,} outputs have other numbers of tokens"
            f" than of lengths, by up to {apart.max():,}: the two come from separate runs, and"
            " outputs are as long as acc_len"
        )


def _trace(records: Iterable[jsonl.Record], drafter: str, source: SourceInfo) -> Trace:
    sequences: dict[str, list] = {name: [] for name in ("id", "prompt_tokens", "output_tokens")}
    emitted: list[np.ndarray] = []
    for record in records:
        sequences["id"].append(record.text("id", numbers=True))
        for column, name in (
            ("prompt_tokens", "prompt_token_ids"),
            ("output_tokens", "generated_token_ids"),
        ):
            sequences[column].append(record.whole(name, record.get(name), 0))
        lengths = np.array(_accepted(record, drafter), np.int64)
        emitted.append(lengths if source.align == "measured" else np.append(1, lengths[:-1]))
    n_output = np.array([len(lengths) for lengths in emitted])
    return from_drafts(
        {**sequences, "n_output": n_output, "finish_reason": ["unknown"] * len(emitted)},
        lattice_rows((every := np.concatenate(emitted)), every - 1, n_output),
        max_draft=int(max(lengths.max() for lengths in emitted)),
        max_new_tokens=int(n_output.max()) + jsonl.ROOM,
        source=source,
    )


def _accepted(record: jsonl.Record, drafter: str) -> list[int]:
    name = f"{_PREFIX}{drafter}"
    if name not in record.fields:
        there = _drafters(record)
        known = f"there is {', '.join(there)}" if there else f"it has no field {_PREFIX}NAME at all"
        raise record.error(f"no drafter {drafter}: {known}")
    field = f"{name}.acc_len"
    lengths = record.whole(field, record.get(name, "acc_len"), 1, jsonl.LONGEST_DRAFT)
    if not lengths:
        raise record.error(f"{field} is empty")
    return lengths


def _drafters(record: jsonl.Record) -> list[str]:
    return [key.removeprefix(_PREFIX) for key in record.fields if key.startswith(_PREFIX)]


def lattice_rows(
    rows: np.ndarray, accepted: np.ndarray, n_output: np.ndarray
) -> dict[str, np.ndarray]:
    """A row for each draft token that is known; the starts stand end to end.

    Args:
        rows: (starts,) draft tokens of each start.
        accepted: (starts,) how many of them, from the first on.
        n_output: (sequences,) starts of each.
    """
    depth = count_up(rows)
    keys = {"sequence": np.repeat(np.arange(len(n_output)), n_output), "start": count_up(n_output)}
    columns = {name: np.repeat(key, rows).astype(np.int32) for name, key in keys.items()}
    return {**columns, "depth": depth, "accepted": depth <= np.repeat(accepted, rows)}
