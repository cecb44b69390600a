"""What must hold of the nodes of trees; see `checks`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from traces.rows import FileRows

if TYPE_CHECKING:
    from traces.manifest import Manifest

_ROUNDING = 1e-5


def check_tree(
    rows: FileRows, sequence: np.ndarray, n_output: np.ndarray, manifest: Manifest
) -> Iterator[str]:
    """The trees from the starts of these sequences."""
    if not len(rows):
        return
    if rows.asks_for_keys():
        problems = list(_check_starts(rows, sequence, n_output, manifest))
        yield from problems
        if problems:
            return
    if rows.has("parent", "depth", "rank"):
        yield from _check_nodes(rows, manifest)
    if rows.has("token") and manifest.vocab_size is not None:
        outside = (rows["token"] < 0) | (rows["token"] >= manifest.vocab_size)
        what = f"token is {{token}}, the vocabulary has {manifest.vocab_size}"
        yield from rows.problems(outside, what)
    if rows.has("log_prob"):
        wrong = ~(rows["log_prob"] <= _ROUNDING)
        yield from rows.problems(wrong, "log_prob is {log_prob}")
    if rows.has("draft_entropy"):
        negative = rows["draft_entropy"] < -_ROUNDING
        yield from rows.problems(negative, "draft_entropy is {draft_entropy}")
    if rows.has("draft_top1_prob"):
        value = rows["draft_top1_prob"]
        wrong = (value < 0) | (value > 1 + _ROUNDING)
        yield from rows.problems(wrong, "draft_top1_prob is {draft_top1_prob}")


def _check_starts(
    rows: FileRows, sequence: np.ndarray, n_output: np.ndarray, manifest: Manifest
) -> Iterator[str]:
    """Trees stand in order, at positions that there are, their nodes numbered from 0."""
    node = rows["node"]
    after = node[1:] == node[:-1] + 1
    same = (rows["sequence"][1:] == rows["sequence"][:-1]) & (
        rows["start"][1:] == rows["start"][:-1]
    )
    wrong = np.append(node[0] != 0, np.where(same, ~after, node[1:] != 0))
    yield from rows.problems(wrong, "nodes must be numbered from 0, in order")
    index = np.minimum(np.searchsorted(sequence, rows["sequence"]), len(sequence) - 1)
    orphan = (sequence[index] != rows["sequence"]) | (rows["start"] < 1)
    orphan |= rows["start"] > n_output[index]
    yield from rows.problems(orphan, "a tree from a position that there is not")
    roots = np.flatnonzero(node == 0)
    keys = rows["sequence"][roots].astype(np.int64) * (manifest.max_new_tokens + 1)
    unordered = roots[1:][np.diff(keys + rows["start"][roots]) <= 0]
    yield from rows.problems_at(unordered, "trees must ascend, each start once")


def _check_nodes(rows: FileRows, manifest: Manifest) -> Iterator[str]:
    """Parents come before their children, which stand together, in order of rank."""
    parent, depth, rank = (rows[name].astype(np.int64) for name in ("parent", "depth", "rank"))
    node = rows["node"].astype(np.int64)
    root = node == 0
    wrong = np.where(root, parent != -1, (parent < 0) | (parent >= node))
    yield from rows.problems(wrong, "parent is {parent}: no node before it")
    if wrong.any():
        return
    at = np.arange(len(node)) - node + np.maximum(parent, 0)
    wrong = np.where(root, depth != 0, depth != depth[at] + 1)
    yield from rows.problems(wrong, "depth is {depth}, not one more than its parent's")
    yield from rows.problems(
        depth > manifest.max_draft, f"depth is {{depth}}, Γ is {manifest.max_draft}"
    )
    follows = np.append(False, (parent[1:] == parent[:-1]) & ~root[1:] & ~root[:-1])
    before = np.append(0, rank[:-1])
    wrong = np.where(root, rank != 0, np.where(follows, rank != before + 1, rank != 0))
    yield from rows.problems(wrong, "rank is {rank}: siblings must stand together, in order")
    yield from rows.problems(
        rank >= manifest.width, f"rank is {{rank}}, the width is {manifest.width}"
    )
    falls = np.append(False, parent[1:] < parent[:-1]) & ~root
    yield from rows.problems(falls, "children of an earlier node than the row before has")
    if rows.has("on_path"):
        lost = rows["on_path"] & ~root & ~rows["on_path"][at]
        yield from rows.problems(lost, "on_path, but its parent is not")
        yield from rows.problems(root & ~rows["on_path"], "a root that is not on_path")
