"""What must hold of the rows of tables with a wide column; see `checks`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from traces.arrays import count_up
from traces.checks import UNORDERED, check_values, check_verdicts
from traces.messages import how_many
from traces.rows import FileRows

if TYPE_CHECKING:
    from traces.manifest import Manifest


def check_hidden(
    rows: FileRows,
    positions: FileRows,
    branches: FileRows,
    sequence: np.ndarray,
    n_prompt: np.ndarray,
) -> Iterator[str]:
    """States of the prompts' tokens but the last, of the on-path rows and of the branches."""
    if rows.asks_for_keys():
        expected = _expected(positions, branches, sequence, n_prompt)
        yield from _check_keys(rows, expected, "states")
        if len(rows) != len(expected["depth"]):
            return
    yield from _check_states(rows)


def check_experts(
    rows: FileRows,
    positions: FileRows,
    branches: FileRows,
    sequence: np.ndarray,
    n_output: np.ndarray,
    manifest: Manifest,
) -> Iterator[str]:
    """Experts of the prompts, and of all that a verification may read."""
    if rows.asks_for_keys():
        expected = _expert_keys(positions, branches, sequence, n_output, manifest.max_new_tokens)
        yield from _check_keys(rows, expected, "rows of experts")
        if len(rows) != len(expected["depth"]):
            return
    if not rows.has("experts") or (info := manifest.experts) is None:
        return
    bits = rows["experts"].reshape(len(rows), info.layers, info.layer_bytes)
    known = np.packbits(np.arange(8 * info.layer_bytes) < info.count, bitorder="little")
    beyond = np.bitwise_or.reduce(bits & ~known, (1, 2)) > 0
    yield from rows.problems(beyond, f"experts beyond the {info.count} of a layer")
    most = np.bitwise_count(bits).sum(2, dtype=np.int64).max(1, initial=0)
    many = (most > info.per_token) & (rows["position"] > 0)
    yield from rows.problems(many, f"more experts in a layer than the {info.per_token} of a token")


def _expert_keys(
    positions: FileRows,
    branches: FileRows,
    sequence: np.ndarray,
    n_output: np.ndarray,
    longest: int,
) -> dict[str, np.ndarray]:
    """The keys of all rows of experts of a shard, see `schema.with_state`, in any order."""
    ended = n_output < longest
    rejected = ~positions["accepted"] & (positions["position"] < longest)
    at = {key: positions[key][rejected].astype(np.int64) for key in ("sequence", "position")}
    size = longest + 2
    tips = at["sequence"] * size + at["position"]
    rows = np.sort(branches["sequence"].astype(np.int64) * size + branches["position"])
    length = np.searchsorted(rows, tips, "right") - np.searchsorted(rows, tips)
    parts = [
        (sequence, np.zeros_like(sequence), 0),
        (positions["sequence"], positions["position"], 0),
        (sequence[ended], n_output[ended] + 1, 0),
        (branches["sequence"], branches["position"], branches["depth"]),
        (at["sequence"], at["position"], length + 1),
    ]
    whole = [np.broadcast_arrays(*part) for part in parts]
    names = ("sequence", "position", "depth")
    return {
        name: np.concatenate([part[k] for part in whole]).astype(np.int32)
        for k, name in enumerate(names)
    }


def _check_keys(rows: FileRows, expected: dict[str, np.ndarray], what: str) -> Iterator[str]:
    """Rows with these keys, in order."""
    order = np.lexsort([expected[key] for key in ("depth", "position", "sequence")])
    if len(rows) != len(order):
        yield f"{rows.file}: {how_many(len(rows), 'row')}, its shard has {len(order)} {what}"
        return
    wrong = np.zeros(len(rows), bool)
    for key, column in expected.items():
        wrong |= rows[key] != column[order]
    yield from rows.problems(wrong, UNORDERED)


def _expected(
    positions: FileRows, branches: FileRows, sequence: np.ndarray, n_prompt: np.ndarray
) -> dict[str, np.ndarray]:
    """The keys of all states of a shard, in any order."""
    inside = np.maximum(n_prompt - 1, 0)
    prompts = {
        "sequence": np.repeat(sequence, inside),
        "position": count_up(inside) + 1 - np.repeat(n_prompt, inside),
    }
    path = [np.zeros(len(prompts["position"]) + len(positions), np.int32)]
    return {
        "sequence": np.concatenate([t["sequence"] for t in (prompts, positions, branches)]),
        "position": np.concatenate([t["position"] for t in (prompts, positions, branches)]),
        "depth": np.concatenate([*path, branches["depth"]]),
    }


def check_mixed(rows: FileRows, positions: FileRows, manifest: Manifest) -> Iterator[str]:
    """Rows on mixed contexts, against the on-path rows of the same shard (whose keys hold)."""
    wrong = np.zeros(len(rows), bool)
    if rows.asks_for_keys():
        if len(rows) != len(positions):
            there = how_many(len(positions), "position")
            yield f"{rows.file}: {how_many(len(rows), 'row')}, its shard has {there}"
            return
        wrong |= rows["sequence"] != positions["sequence"]
        wrong |= rows["position"] != positions["position"]
        yield from rows.problems(wrong, UNORDERED)
    if rows.has("from_draft", "token"):
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
    if rows.has("state"):
        finite = np.isfinite(rows["state"].sum(1, dtype=np.float32))
        yield from rows.problems(~finite, "a state is not finite")
