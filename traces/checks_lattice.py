"""What must hold of the rows of a lattice; see `checks`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from traces import schema
from traces.checks import ORDERED, changes, check_values, runs
from traces.rows import FileRows, Some

if TYPE_CHECKING:
    from traces.manifest import Manifest


def check_lattice(
    rows: FileRows, sequence: np.ndarray, n_output: np.ndarray, manifest: Manifest
) -> Iterator[str]:
    """The drafts from each start of these sequences."""
    if rows.asks_for_keys():
        yield from _check_starts(rows, sequence, n_output, manifest)
    if rows.has("draft_token") and manifest.eos_token_ids:
        eos = np.isin(rows["draft_token"], manifest.eos_token_ids)
        last = np.append(changes(rows, "start")[1:], True)
        yield from rows.problems(eos & ~last, "rows after an EOS token")
    of_target = [name for name in schema.TARGET_STATISTICS if name in rows.columns]
    if manifest.attached_to is None or not of_target:
        yield from check_values(rows, manifest)
    else:
        yield from _check_views(rows, of_target, sequence, n_output, manifest)


def _owners(rows: FileRows, sequence: np.ndarray) -> np.ndarray:
    return np.minimum(np.searchsorted(sequence, rows["sequence"]), len(sequence) - 1)


def _check_starts(
    rows: FileRows, sequence: np.ndarray, n_output: np.ndarray, manifest: Manifest
) -> Iterator[str]:
    """The drafts of a lattice stand in order, at positions that there are."""
    begins, problems = runs(rows, "start", "draft")
    yield from problems
    yield from rows.problems(rows["depth"] > manifest.max_draft, f"Γ is {manifest.max_draft}")
    index = _owners(rows, sequence)
    orphan = (sequence[index] != rows["sequence"]) | (rows["start"] < 1)
    orphan |= rows["start"] > n_output[index]
    yield from rows.problems(orphan, "a draft from a position that there is not")
    keys = rows["sequence"][begins].astype(np.int64) * (manifest.max_new_tokens + 1)
    unordered = begins[1:][np.diff(keys + rows["start"][begins]) <= 0]
    yield from rows.problems_at(unordered[~orphan[unordered]], "drafts must ascend, each key once")


def _check_views(
    rows: FileRows,
    of_target: list[str],
    sequence: np.ndarray,
    n_output: np.ndarray,
    manifest: Manifest,
) -> Iterator[str]:
    """Values of a lattice: the target's are there where a draft is still that of the output.

    Behind a rejected token, and behind the output's end, they are NaN in the lattices that are
    attached to a recording. Where that is, one of them tells as well as all.
    """
    others = [name for name in rows.columns if name not in of_target]
    yield from check_values(replace(rows, columns=Some(rows.columns, others)), manifest)
    views, asked = [name for name in of_target if rows.has(name)], rows.asked
    if not views and (rows.asks_for_keys() or rows.has("accepted")):
        views, asked = of_target[:1], {*(asked or ()), of_target[0]}
    tied = any(rows.has(*pair) for pair in ORDERED if not set(of_target).isdisjoint(pair))
    if not (views or tied):
        return
    rejected, begins = ~rows["accepted"], np.flatnonzero(changes(rows, "start"))
    before = np.cumsum(rejected) - rejected
    lengths = np.diff(begins, append=len(rows))
    known = before == np.repeat(before[begins], lengths)
    known &= rows["start"] + rows["depth"] - 1 <= n_output[_owners(rows, sequence)]
    some = Some(rows.columns, list(rows.columns), known)
    yield from check_values(FileRows(rows.file, some, asked), manifest)
    for name in views:
        there = ~known & ~np.isnan(rows[name])
        yield from rows.problems(there, f"{name} is {{{name}}} where the target's is not known")
