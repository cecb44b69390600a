"""What must hold of the rows of a trace. Each check yields one line for each row that breaks it.

A rule ties some columns to each other. It is applied where one of them is asked for, and then reads
the others (`FileRows.has`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import count
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from traces import schema
from traces.arrays import count_up
from traces.messages import how_many
from traces.rows import FileRows

if TYPE_CHECKING:
    from traces.manifest import Manifest

_ROUNDING = 1e-5  # of probabilities and entropies that were reduced in float32
UNORDERED = "the key does not follow the row before it"
ORDERED = (  # the first is never above the second
    ("draft_prob_raw", "draft_top1_prob"),
    ("draft_top2_prob", "draft_top1_prob"),
    ("draft_top1_prob", "draft_top10_mass"),
    ("target_prob_raw", "target_top1_prob"),
    ("target_token_prob_raw", "target_top1_prob"),
    ("draft_entropy", "cross_entropy"),  # Gibbs' inequality
)


class Outputs(NamedTuple):
    """Output tokens of sequences whose numbers follow each other.

    Attributes:
        first: number of the first sequence.
        begins: where each one's tokens begin, (s,) int64.
        lengths: of each, in tokens, (s,).
        tokens: of all, end to end.
    """

    first: int
    begins: np.ndarray
    lengths: np.ndarray
    tokens: np.ndarray

    @classmethod
    def of(cls, sequences: pa.Table) -> Outputs | None:
        """Those of a table, `schema.SEQUENCES`; None where the tokens are not known."""
        lengths = sequences["n_output"].to_numpy()
        tokens = sequences["output_tokens"].combine_chunks().flatten().to_numpy()
        if not len(lengths) or len(tokens) != lengths.sum():
            return None
        begins = np.cumsum(lengths, dtype=np.int64) - lengths
        return cls(int(sequences["sequence"][0].as_py()), begins, lengths, tokens)

    def at(self, sequence: np.ndarray, position: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Whether an output has these positions, and its tokens there (of others: any token)."""
        index = sequence - self.first
        last = self.lengths[index]
        place = self.begins[index] + np.clip(position, 1, last) - 1
        return (position >= 1) & (position <= last), self.tokens[place]


def left_out(eos_token_ids: Collection[int]) -> int:
    """The token that stands for all others where only EOS tokens were kept, see `Manifest`."""
    return next(token for token in count() if token not in eos_token_ids)


def check_keys(rows: FileRows, sequence: np.ndarray, n_output: np.ndarray) -> Iterator[str]:
    """On-path rows stand in order, 1 to T for each of these sequences."""
    if not rows.asks_for_keys():
        return
    if len(rows) != n_output.sum():
        tokens = how_many(n_output.sum(), "output token")
        yield f"{rows.file}: {how_many(len(rows), 'row')}, its sequences have {tokens}"
        return
    wrong = rows["sequence"] != np.repeat(sequence, n_output)
    wrong |= rows["position"] != count_up(n_output)
    yield from rows.problems(wrong, UNORDERED)


def check_outputs(rows: FileRows, sequences: pa.Table, manifest: Manifest) -> Iterator[str]:
    """The tokens of on-path rows whose keys hold, of these sequences."""
    if not rows.has("target_token"):
        return
    output_tokens = sequences["output_tokens"].combine_chunks().flatten().to_numpy()
    eos = np.isin(rows["target_token"], manifest.eos_token_ids)
    goes_on = np.append(rows["position"][1:] != 1, False)
    yield from rows.problems(eos & goes_on, "rows after an EOS token")
    other = rows["target_token"] != output_tokens
    yield from rows.problems(
        other, "target_token {target_token} is not the sequence's output token"
    )


def check_positions(rows: FileRows, sequences: pa.Table, manifest: Manifest) -> Iterator[str]:
    """On-path rows whose keys hold, of these sequences."""
    yield from check_outputs(rows, sequences, manifest)
    yield from check_values(rows, manifest)
    yield from check_verdicts(rows, manifest)


def check_verdicts(rows: FileRows, manifest: Manifest, off_path: bool = False) -> Iterator[str]:
    """`accepted` against the tokens and the probabilities.

    Accepted tokens are the target's, and rejected ones are not: a correction is drawn from
    max(0, p - q), which is 0 at the token that was rejected. What another program has sampled may
    follow another rule. Off the path, draft tokens may be left out (`Manifest.tokens`).
    """
    if rows.has("accepted", "draft_token", "target_token"):
        accepted, equal, named = rows["accepted"], *_equal_tokens(rows, manifest, off_path)
        tokens = "draft_token is {draft_token}, target_token is {target_token}"
        yield from rows.problems(accepted & ~equal, f"accepted, but {tokens}")
        if manifest.sampler.greedy or manifest.source is None:
            yield from rows.problems(~accepted & equal & named, f"rejected, but {tokens}")
    if rows.has("accepted", "accept_prob"):
        accepted, chance = rows["accepted"], rows["accept_prob"]
        certain = np.inf if manifest.bits else 1  # rounded, what was nearly certain is certain
        impossible = np.where(accepted, chance <= 0, chance >= certain)
        yield from rows.problems(impossible, "accepted is {accepted}, accept_prob is {accept_prob}")
    if not manifest.bits and rows.has("accept_prob", "target_prob", "draft_prob"):
        yield from _check_ratios(rows)


def _equal_tokens(
    rows: FileRows, manifest: Manifest, off_path: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Whether draft and target token are equal, as far as is known, and where the first is known.

    Where tokens were left out, only EOS tokens are.
    """
    draft, target = rows["draft_token"], rows["target_token"]
    if manifest.tokens != "ends" or not off_path:
        return draft == target, np.ones(len(draft), bool)
    ends = manifest.eos_token_ids
    target = np.where(np.isin(target, ends), target, left_out(ends))
    return draft == target, np.isin(draft, ends)


def _check_ratios(rows: FileRows) -> Iterator[str]:
    chance = rows["accept_prob"]
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.minimum(1, rows["target_prob"] / rows["draft_prob"])
        if not len(rows) or np.abs(chance - ratio).max() <= 0.9 * _ROUNDING:
            return  # in float32, which is off by far less than what is left of the bound
        ratio = np.minimum(1, rows["target_prob"].astype(float) / rows["draft_prob"])
    yield from rows.problems(
        ~(np.abs(chance - ratio) <= _ROUNDING),
        "accept_prob is {accept_prob}, but target_prob/draft_prob is {target_prob}/{draft_prob}",
    )


def check_values(rows: FileRows, manifest: Manifest) -> Iterator[str]:
    """Ranges of all numbers.

    The least and the largest of a column tell whether all is well, at a fraction of the time of a
    look at each value.
    """
    size = manifest.vocab_size
    for name in ("draft_token", "target_token", "token"):
        if rows.has(name) and not _within(rows[name], 0, np.inf if size is None else size - 1):
            outside = (rows[name] < 0) | (rows[name] >= (np.inf if size is None else size))
            yield from rows.problems(outside, f"{name} is {{{name}}}, the vocabulary has {size}")
    for name in (*schema.DRAFT_STATISTICS, *schema.TARGET_STATISTICS, "target_token_prob_raw"):
        if not rows.has(name):
            continue
        highest = np.inf if name.endswith("entropy") else 1 + _ROUNDING
        if name in ("draft_entropy", "target_entropy") and size is not None:
            coarse = 2.0**-manifest.bits if manifest.bits else 0  # of a number that was rounded up
            highest = np.log(size) * (1 + _ROUNDING + coarse) + _ROUNDING
        if _within(rows[name], 0, highest):
            continue
        fine = np.isfinite(rows[name]) & (rows[name] >= 0) & (rows[name] <= highest)
        yield from rows.problems(~fine, f"{name} is {{{name}}}")
    for low, high in ORDERED:
        if rows.has(low, high):
            if _never_above(rows[low], rows[high]):
                continue
            # Two that are equal but for their last bits may be rounded to neighbours.
            apart = _ROUNDING + (2.0 ** (1 - manifest.bits) if manifest.bits else 0)
            above = rows[low] > rows[high] + _ROUNDING + apart * np.abs(rows[high])
            what = f"{low} is {{{low}}}, above {high}, {{{high}}}"
            yield from rows.problems(above, what)


def _within(column: np.ndarray, low: float, high: float) -> bool:
    """Whether all values are finite and in [low, high]; a NaN is in no range."""
    if not len(column):
        return True
    least, most = column.min(), column.max()
    return bool(low <= least and most <= high and most < np.inf)


def _never_above(low: np.ndarray, high: np.ndarray) -> bool:
    """Whether it is plain that no value is above its bound: half of the rounding is kept aside."""
    with np.errstate(invalid="ignore"):
        return not len(low) or bool((low - high).max() <= 0.5 * _ROUNDING)


def changes(rows: FileRows, key: str) -> np.ndarray:
    """Flags rows whose sequence or `key` is not that of the row before."""
    first = np.ones(len(rows), bool)
    first[1:] = rows["sequence"][1:] != rows["sequence"][:-1]
    first[1:] |= rows[key][1:] != rows[key][:-1]
    return first


def runs(rows: FileRows, key: str, what: str) -> tuple[np.ndarray, list[str]]:
    """Where depths 1, 2, 3, … of one sequence and `key` start, and what is wrong with depths."""
    first, depth = changes(rows, key), rows["depth"]
    start = np.flatnonzero(first)
    goes_on = depth[1:] - depth[:-1] == 1
    goes_on |= first[1:]
    if goes_on.all() and (depth[start] == 1).all():
        return start, []
    wrong = depth != count_up(np.diff(start, append=len(rows)))
    return start, list(rows.problems(wrong, f"depths of a {what} must be 1, 2, 3, …"))


def check_branches(branches: FileRows, positions: FileRows, manifest: Manifest) -> Iterator[str]:
    """The off-path rows, against the on-path rows of the same shard (whose keys hold)."""
    yield from check_values(branches, manifest)
    if manifest.branch_target:
        yield from check_verdicts(branches, manifest, off_path=True)
    if branches.asks_for_keys():
        yield from _check_order(branches, positions, manifest)


def _check_order(branches: FileRows, positions: FileRows, manifest: Manifest) -> Iterator[str]:
    """Branches stand in order, where they must, and end where they must."""
    start, problems = runs(branches, "position", "branch")
    yield from problems
    lengths = np.diff(start, append=len(branches))
    sequence, position = branches["sequence"][start], branches["position"][start]
    keys = sequence.astype(np.int64) * (manifest.max_new_tokens + 1) + position
    unordered = start[1:][np.diff(keys) <= 0]
    yield from branches.problems_at(unordered, "branches must ascend, each key once")
    owner, there = _owners(positions, sequence, position)
    orphan = start[~there]
    yield from branches.problems_at(orphan, "a branch of a position that there is not")
    if not (problems or len(unordered) or len(orphan)):
        yield from _check_lengths(branches, positions, owner, start, lengths, manifest)


def _owners(
    positions: FileRows, sequence: np.ndarray, position: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The on-path rows with these keys, and whether there is such a row."""
    begins = np.flatnonzero(positions["position"] == 1)
    if not len(begins):
        return np.zeros(len(sequence), int), np.zeros(len(sequence), bool)
    known = positions["sequence"][begins]
    index = np.minimum(np.searchsorted(known, sequence), len(known) - 1)
    lengths = np.diff(begins, append=len(positions))
    there = (known[index] == sequence) & (position >= 1) & (position <= lengths[index])
    return begins[index] + position - 1, there


def _check_lengths(
    branches: FileRows,
    positions: FileRows,
    owner: np.ndarray,
    start: np.ndarray,
    lengths: np.ndarray,
    manifest: Manifest,
) -> Iterator[str]:
    """Branches stand where they must, and end where they must."""
    wanted = ~positions["accepted"] & ~np.isin(positions["draft_token"], manifest.eos_token_ids)
    found = np.zeros(len(positions), int)
    found[owner] = lengths
    why = "a branch of a token that was accepted or is EOS"
    yield from positions.problems((found > 0) & ~wanted, why)
    left = manifest.max_new_tokens - 1 - positions["position"]
    whole = np.where(wanted, np.clip(left, 0, manifest.max_draft - 1), 0)
    ended = np.zeros(len(positions), bool)
    if manifest.eos_token_ids:
        eos = np.isin(branches["draft_token"], manifest.eos_token_ids)
        last = np.zeros(len(branches), bool)
        last[start + lengths - 1] = True
        yield from branches.problems(eos & ~last, "rows after an EOS token")
        ended[owner] = eos[start + lengths - 1]
    columns = {key: positions[key] for key in ("sequence", "position")}
    held = FileRows(positions.file, {**columns, "found": found, "whole": whole})
    bad = wanted & ((found > whole) | ((found < whole) & ~ended))
    yield from held.problems(bad, "its branch has {found} rows, not {whole}")
