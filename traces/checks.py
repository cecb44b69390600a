"""What must hold of the rows of a trace. Each check yields one line for each row that breaks it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from traces import schema
from traces.arrays import count_up

if TYPE_CHECKING:
    from traces.manifest import Manifest

_SHOWN = 3  # rows of one kind of problem that are told one by one
_ROUNDING = 1e-5  # of probabilities and entropies that were reduced in float32
_KEYS = ("sequence", "position", "start", "depth")
_UNORDERED = "the key does not follow the row before it"
_ORDERED = (  # the first is never above the second
    ("draft_prob_raw", "draft_top1_prob"),
    ("draft_top2_prob", "draft_top1_prob"),
    ("draft_top1_prob", "draft_top10_mass"),
    ("target_prob_raw", "target_top1_prob"),
    ("target_token_prob_raw", "target_top1_prob"),
    ("draft_entropy", "cross_entropy"),  # Gibbs' inequality
)


@dataclass(frozen=True)
class FileRows:
    """The columns of one file.

    Attributes:
        file: for the messages.
        columns: arrays of one length; `sequence` and `position` are among them.
    """

    file: Path
    columns: Mapping[str, np.ndarray]

    def __getitem__(self, name: str) -> np.ndarray:
        return self.columns[name]

    def __len__(self) -> int:
        return len(self.columns["sequence"])

    def problems(self, bad: np.ndarray, what: str) -> Iterator[str]:
        """A line for each bad row; `what` may name columns in braces."""
        rows = np.flatnonzero(bad)
        for row in rows[:_SHOWN]:
            values = {name: column[row] for name, column in self.columns.items()}
            where = ", ".join(f"{key} {values[key]}" for key in _KEYS if key in values)
            yield f"{self.file}: {where}: {what.format(**values)}"
        if len(rows) > _SHOWN:
            more = len(rows) - _SHOWN
            end = self["sequence"][rows[-1]]
            yield f"{self.file}: {more} more rows like the last, up to sequence {end}"


def check_keys(rows: FileRows, sequence: np.ndarray, n_output: np.ndarray) -> Iterator[str]:
    """On-path rows stand in order, 1 to T for each of these sequences."""
    if len(rows) != n_output.sum():
        yield f"{rows.file}: {len(rows)} rows, its sequences have {n_output.sum()} output tokens"
        return
    wrong = rows["sequence"] != np.repeat(sequence, n_output)
    wrong |= rows["position"] != count_up(n_output)
    yield from rows.problems(wrong, _UNORDERED)


def check_outputs(rows: FileRows, output_tokens: np.ndarray, manifest: Manifest) -> Iterator[str]:
    """The tokens of on-path rows whose keys hold, of sequences with these outputs, end to end."""
    eos = np.isin(rows["target_token"], manifest.eos_token_ids)
    goes_on = np.append(rows["position"][1:] != 1, False)
    yield from rows.problems(eos & goes_on, "rows after an EOS token")
    other = rows["target_token"] != output_tokens
    yield from rows.problems(
        other, "target_token {target_token} is not the sequence's output token"
    )


def check_positions(rows: FileRows, output_tokens: np.ndarray, manifest: Manifest) -> Iterator[str]:
    """On-path rows whose keys hold, of sequences with these outputs, end to end."""
    yield from check_outputs(rows, output_tokens, manifest)
    yield from check_values(rows, manifest)
    yield from check_verdicts(rows, manifest)


def check_verdicts(rows: FileRows, manifest: Manifest) -> Iterator[str]:
    """`accepted` against the tokens and the probabilities."""
    accepted, equal = rows["accepted"], rows["draft_token"] == rows["target_token"]
    tokens = "draft_token is {draft_token}, target_token is {target_token}"
    yield from rows.problems(accepted & ~equal, f"accepted, but {tokens}")
    if manifest.sampler.greedy:
        yield from rows.problems(~accepted & equal, f"rejected, but {tokens}")
    if "accept_prob" not in rows.columns:
        return
    chance = rows["accept_prob"]
    certain = np.inf if manifest.bits else 1  # rounded, what was nearly certain is certain
    impossible = np.where(accepted, chance <= 0, chance >= certain)
    yield from rows.problems(impossible, "accepted is {accepted}, accept_prob is {accept_prob}")
    if manifest.bits or not {"target_prob", "draft_prob"} <= rows.columns.keys():
        return
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
        if name in rows.columns and not _within(
            rows[name], 0, np.inf if size is None else size - 1
        ):
            outside = (rows[name] < 0) | (rows[name] >= (np.inf if size is None else size))
            yield from rows.problems(outside, f"{name} is {{{name}}}, the vocabulary has {size}")
    for name in (*schema.DRAFT_STATISTICS, *schema.TARGET_STATISTICS, "target_token_prob_raw"):
        if name not in rows.columns:
            continue
        highest = np.inf if name.endswith("entropy") else 1 + _ROUNDING
        if name in ("draft_entropy", "target_entropy") and size is not None:
            coarse = 2.0**-manifest.bits if manifest.bits else 0  # of a number that was rounded up
            highest = np.log(size) * (1 + _ROUNDING + coarse) + _ROUNDING
        if _within(rows[name], 0, highest):
            continue
        fine = np.isfinite(rows[name]) & (rows[name] >= 0) & (rows[name] <= highest)
        yield from rows.problems(~fine, f"{name} is {{{name}}}")
    for low, high in _ORDERED:
        if low in rows.columns and high in rows.columns:
            if _never_above(rows[low], rows[high]):
                continue
            above = rows[low] > rows[high] + _ROUNDING * (1 + np.abs(rows[high]))
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


def _counts_up(depth: np.ndarray, first: np.ndarray, start: np.ndarray) -> bool:
    """Whether depths are 1 where a run starts, which `first` flags too, and then one more each."""
    more = depth[1:] - depth[:-1] == 1
    return bool((depth[start] == 1).all() and (more | first[1:]).all())


def check_branches(branches: FileRows, positions: FileRows, manifest: Manifest) -> Iterator[str]:
    """The off-path rows, against the on-path rows of the same shard (whose keys hold)."""
    yield from check_values(branches, manifest)
    if manifest.branch_target:
        yield from check_verdicts(branches, manifest)
    sequence, position, depth = (branches[key] for key in ("sequence", "position", "depth"))
    first = np.ones(len(branches), bool)
    first[1:] = (np.diff(sequence) != 0) | (np.diff(position) != 0)
    start = np.flatnonzero(first)
    lengths = np.diff(start, append=len(branches))
    wrong = np.zeros(len(branches), bool)
    if not _counts_up(depth, first, start):
        wrong = depth != count_up(lengths)
    yield from branches.problems(wrong, "depths of a branch must be 1, 2, 3, …")
    stride = manifest.max_new_tokens + 1
    keys = sequence[start].astype(np.int64) * stride + position[start]
    known = positions["sequence"].astype(np.int64) * stride + positions["position"]
    unordered = np.zeros(len(branches), bool)
    unordered[start[1:][np.diff(keys) <= 0]] = True
    yield from branches.problems(unordered, "branches must ascend, each key once")
    owner = np.minimum(np.searchsorted(known, keys), max(len(known) - 1, 0))
    orphan = np.zeros(len(branches), bool)
    orphan[start[~_holds(known, owner, keys)]] = True
    yield from branches.problems(orphan, "a branch of a position that there is not")
    if not (wrong.any() or unordered.any() or orphan.any()):
        yield from _check_lengths(branches, positions, owner, start, lengths, manifest)


def check_lattice(
    rows: FileRows, sequence: np.ndarray, n_output: np.ndarray, manifest: Manifest
) -> Iterator[str]:
    """The drafts from each start of these sequences."""
    first = np.ones(len(rows), bool)
    first[1:] = (np.diff(rows["sequence"]) != 0) | (np.diff(rows["start"]) != 0)
    begins = np.flatnonzero(first)
    lengths = np.diff(begins, append=len(rows))
    if not _counts_up(rows["depth"], first, begins):
        wrong = rows["depth"] != count_up(lengths)
        yield from rows.problems(wrong, "depths of a draft must be 1, 2, 3, …")
    yield from rows.problems(rows["depth"] > manifest.max_draft, f"Γ is {manifest.max_draft}")
    index = np.minimum(np.searchsorted(sequence, rows["sequence"]), len(sequence) - 1)
    orphan = (sequence[index] != rows["sequence"]) | (rows["start"] < 1)
    orphan |= rows["start"] > n_output[index]
    yield from rows.problems(orphan, "a draft from a position that there is not")
    keys = rows["sequence"][begins].astype(np.int64) * (manifest.max_new_tokens + 1)
    unordered = np.zeros(len(rows), bool)
    unordered[begins[1:][np.diff(keys + rows["start"][begins]) <= 0]] = True
    yield from rows.problems(unordered & ~orphan, "drafts must ascend, each key once")
    if "draft_token" in rows.columns:
        eos = np.isin(rows["draft_token"], manifest.eos_token_ids)
        yield from rows.problems(eos & ~np.append(first[1:], True), "rows after an EOS token")
    yield from _check_views(rows, begins, n_output[index], manifest)


def _check_views(
    rows: FileRows, begins: np.ndarray, n_output: np.ndarray, manifest: Manifest
) -> Iterator[str]:
    """Values of a lattice: the target's are there where a draft is still that of the output.

    Behind a rejected token, and behind the output's end, they are NaN in the lattices that are
    attached to a recording.
    """
    of_target = [name for name in schema.TARGET_STATISTICS if name in rows.columns]
    if manifest.attached_to is None or not of_target:
        yield from check_values(rows, manifest)
        return
    rejected = ~rows["accepted"]
    before = np.cumsum(rejected) - rejected
    lengths = np.diff(begins, append=len(rows))
    known = before == np.repeat(before[begins], lengths)
    known &= rows["start"] + rows["depth"] - 1 <= n_output
    others = {name: column for name, column in rows.columns.items() if name not in of_target}
    yield from check_values(FileRows(rows.file, others), manifest)
    yield from check_values(
        FileRows(rows.file, {name: column[known] for name, column in rows.columns.items()}),
        manifest,
    )
    for name in of_target:
        there = ~known & ~np.isnan(rows[name])
        yield from rows.problems(there, f"{name} is {{{name}}} where the target's is not known")


def _holds(known: np.ndarray, index: np.ndarray, keys: np.ndarray) -> np.ndarray:
    return known[index] == keys if len(known) else np.zeros(len(keys), bool)


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
    eos = np.isin(branches["draft_token"], manifest.eos_token_ids)
    last = np.zeros(len(branches), bool)
    last[start + lengths - 1] = True
    yield from branches.problems(eos & ~last, "rows after an EOS token")
    ended = np.zeros(len(positions), bool)
    ended[owner] = eos[start + lengths - 1]
    held = FileRows(positions.file, {**positions.columns, "found": found, "whole": whole})
    bad = wanted & ((found > whole) | ((found < whole) & ~ended))
    yield from held.problems(bad, "its branch has {found} rows, not {whole}")


def check_hidden(
    rows: FileRows,
    positions: FileRows,
    branches: FileRows,
    sequence: np.ndarray,
    n_prompt: np.ndarray,
) -> Iterator[str]:
    """States of the prompts' tokens but the last, of the on-path rows and of the branches."""
    inside = np.maximum(n_prompt - 1, 0)
    prompts = {
        "sequence": np.repeat(sequence, inside),
        "position": count_up(inside) + 1 - np.repeat(n_prompt, inside),
    }
    path = [np.zeros(len(prompts["position"]) + len(positions), np.int32)]
    expected = {
        "sequence": np.concatenate([t["sequence"] for t in (prompts, positions, branches)]),
        "position": np.concatenate([t["position"] for t in (prompts, positions, branches)]),
        "depth": np.concatenate([*path, branches["depth"]]),
    }
    order = np.lexsort([expected[key] for key in ("depth", "position", "sequence")])
    if len(rows) != len(order):
        yield f"{rows.file}: {len(rows)} rows, its shard has {len(order)} states"
        return
    wrong = np.zeros(len(rows), bool)
    for key, column in expected.items():
        wrong |= rows[key] != column[order]
    yield from rows.problems(wrong, _UNORDERED)
    yield from _check_states(rows)


def check_mixed(rows: FileRows, positions: FileRows, manifest: Manifest) -> Iterator[str]:
    """Rows on mixed contexts, against the on-path rows of the same shard (whose keys hold)."""
    if len(rows) != len(positions):
        yield f"{rows.file}: {len(rows)} rows, its shard has {len(positions)} positions"
        return
    wrong = rows["sequence"] != positions["sequence"]
    wrong |= rows["position"] != positions["position"]
    yield from rows.problems(wrong, _UNORDERED)
    other = ~rows["from_draft"] & (rows["token"] != positions["target_token"])
    what = "token {token} is not the output's, and not from the draft"
    yield from rows.problems(other & ~wrong, what)
    other = rows["from_draft"] & (rows["token"] != positions["draft_token"])
    what = "token {token} is not the draft's own behind the output"
    yield from rows.problems(other & ~wrong, what)
    eos = rows["from_draft"] & np.isin(rows["token"], manifest.eos_token_ids)
    yield from rows.problems(eos, "an EOS token of the draft")
    yield from check_values(rows, manifest)
    yield from check_verdicts(rows, manifest)
    yield from _check_states(rows)


def _check_states(rows: FileRows) -> Iterator[str]:
    finite = np.isfinite(rows["state"].sum(1, dtype=np.float32))
    yield from rows.problems(~finite, "a state is not finite")
