"""What must hold of the rows of a lattice; see `checks`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from traces import schema
from traces.checks import ORDERED, Outputs, changes, check_values, left_out, runs
from traces.messages import how_many
from traces.rows import FileRows, Some

if TYPE_CHECKING:
    from traces.manifest import Manifest


def check_lattice(rows: FileRows, sequences: pa.Table, manifest: Manifest) -> Iterator[str]:
    """The drafts from each start of these sequences."""
    sequence, n_output = sequences["sequence"].to_numpy(), sequences["n_output"].to_numpy()
    if rows.asks_for_keys():
        problems = list(_check_starts(rows, sequence, n_output, manifest))
        yield from problems
        if problems:
            return
        if manifest.draft is not None and not manifest.draft_ends:
            yield from _check_complete(rows, sequence, n_output, manifest)
    if rows.has("draft_token") and manifest.eos_token_ids:
        eos = np.isin(rows["draft_token"], manifest.eos_token_ids)
        last = np.append(changes(rows, "start")[1:], True)
        yield from rows.problems(eos & ~last, "rows after an EOS token")
    of_target = [name for name in schema.TARGET_STATISTICS if name in rows.columns]
    if manifest.attached_to is None or not of_target:
        yield from check_values(rows, manifest)
    else:
        yield from _check_views(rows, of_target, sequence, n_output, manifest)
    if manifest.attached_to is not None:
        yield from _check_verdicts(rows, sequences, manifest)


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


def _check_complete(
    rows: FileRows, sequence: np.ndarray, n_output: np.ndarray, manifest: Manifest
) -> Iterator[str]:
    """A network drafts from every start, and a draft goes on up to Γ, T_max or an EOS token."""
    longest = manifest.max_new_tokens
    wanted = np.minimum(n_output, longest - 1)  # the last position of T_max drafts nothing
    begins = np.flatnonzero(rows["depth"] == 1)
    found = np.bincount(_owners(rows, sequence)[begins], minlength=len(sequence))
    for index in np.flatnonzero(found != wanted)[:1]:
        what = f"{found[index]} drafts, its output has {how_many(wanted[index], 'start')} of one"
        yield f"{rows.file}: sequence {sequence[index]}: {what}"
    if manifest.eos_token_ids and "draft_token" not in rows.columns:
        return  # which drafts an EOS has ended is not known
    last = np.append(begins[1:], len(rows)) - 1
    short = rows["depth"][last] < np.minimum(manifest.max_draft, longest - rows["start"][last])
    if manifest.eos_token_ids:
        short &= ~np.isin(rows["draft_token"][last], manifest.eos_token_ids)
    yield from rows.problems_at(last[short], "its draft ends here, before Γ, T_max and an EOS")


def _check_verdicts(rows: FileRows, sequences: pa.Table, manifest: Manifest) -> Iterator[str]:
    """Of an attached drafter: a token is accepted if and only if it is the output's.

    Of a certain proposal that is the rule itself. A drawn one is rejected where p(y) > q(y) alone,
    and is then drawn from max(0, q - p), which is 0 at y. It holds up to a draft's first rejection,
    behind which verdicts mean nothing. Where tokens were left out, only EOS tokens are known.
    """
    tokens = [name for name in ("draft_token", "target_token") if name in rows.columns]
    outputs = Outputs.of(sequences)
    if outputs is None or not rows.has("accepted", *tokens):
        return
    accepted, reached = rows["accepted"], _reached(rows)
    inside, output = outputs.at(rows["sequence"], rows["start"] + rows["depth"] - 1)
    yield from rows.problems(accepted & reached & ~inside, "accepted, but the output ends before")
    known = reached & inside
    if "target_token" in tokens:
        other = known & (rows["target_token"] != output)
        what = "target_token {target_token} is not the sequence's output token"
        yield from rows.problems(other, what)
    if "draft_token" not in tokens:
        return
    draft, rejected = rows["draft_token"], known & ~accepted
    if manifest.tokens == "ends":
        ends = manifest.eos_token_ids
        output = np.where(np.isin(output, ends), output, left_out(ends))
        rejected &= np.isin(draft, ends)
    equal = draft == output
    lost, kept = "accepted, but draft_token {draft_token} is not", "rejected, but draft_token is"
    yield from rows.problems(known & accepted & ~equal, f"{lost} the output's token")
    yield from rows.problems(rejected & equal, f"{kept} the output's token, {{draft_token}}")


def _reached(rows: FileRows) -> np.ndarray:
    """Flags rows before which nothing in their draft was rejected."""
    rejected, begins = ~rows["accepted"], np.flatnonzero(changes(rows, "start"))
    before = np.cumsum(rejected) - rejected
    return before == np.repeat(before[begins], np.diff(begins, append=len(rows)))


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
    known = _reached(rows)
    known &= rows["start"] + rows["depth"] - 1 <= n_output[_owners(rows, sequence)]
    some = Some(rows.columns, list(rows.columns), known)
    yield from check_values(FileRows(rows.file, some, asked), manifest)
    for name in views:
        there = ~known & ~np.isnan(rows[name])
        yield from rows.problems(there, f"{name} is {{{name}}} where the target's is not known")
