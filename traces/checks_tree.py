"""What must hold of the nodes of trees; see `checks`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from traces.checks import Outputs
from traces.messages import how_many
from traces.rows import FileRows

if TYPE_CHECKING:
    from traces.manifest import Manifest

_ROUNDING = 1e-5


def check_tree(rows: FileRows, sequences: pa.Table, manifest: Manifest) -> Iterator[str]:
    """The trees from the starts of these sequences."""
    sequence, n_output = sequences["sequence"].to_numpy(), sequences["n_output"].to_numpy()
    of_network = manifest.draft is not None
    if rows.asks_for_keys():
        problems = list(_check_starts(rows, sequence, n_output, manifest)) if len(rows) else []
        if of_network and not problems:
            problems = list(_check_every_start(rows, sequence, n_output, manifest))
        yield from problems
        if problems:
            return
    if not len(rows):
        return
    if rows.has("parent", "depth", "rank"):
        problems = list(_check_nodes(rows, manifest))
        yield from problems
        if problems:
            return
    if rows.has("parent", "depth", "token", "on_path"):
        yield from _check_path(rows, sequences)
        if of_network:
            yield from _check_children(rows, manifest)
    if rows.has("token") and manifest.vocab_size is not None:
        outside = (rows["token"] < 0) | (rows["token"] >= manifest.vocab_size)
        what = f"token is {{token}}, the vocabulary has {manifest.vocab_size}"
        yield from rows.problems(outside, what)
    if rows.has("log_prob"):
        wrong = ~(rows["log_prob"] <= _ROUNDING)
        yield from rows.problems(wrong, "log_prob is {log_prob}")
    if rows.has("log_prob", "parent"):
        less = np.append(False, rows["log_prob"][1:] > rows["log_prob"][:-1])
        what = "log_prob {log_prob} is above that of the sibling before it"
        yield from rows.problems(less & _follows(rows), what)
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
    wrong = np.where(root, depth != 0, depth != depth[_parents(rows)] + 1)
    yield from rows.problems(wrong, "depth is {depth}, not one more than its parent's")
    yield from rows.problems(
        depth > manifest.max_draft, f"depth is {{depth}}, Γ is {manifest.max_draft}"
    )
    before = np.append(0, rank[:-1])
    wrong = np.where(root, rank != 0, np.where(_follows(rows), rank != before + 1, rank != 0))
    yield from rows.problems(wrong, "rank is {rank}: siblings must stand together, in order")
    yield from rows.problems(
        rank >= manifest.width, f"rank is {{rank}}, the width is {manifest.width}"
    )
    falls = np.append(False, parent[1:] < parent[:-1]) & ~root
    yield from rows.problems(falls, "children of an earlier node than the row before has")


def _follows(rows: FileRows) -> np.ndarray:
    """Flags nodes that have the parent of the row before."""
    parent = rows["parent"]
    return np.append(False, (parent[1:] == parent[:-1]) & (parent[1:] >= 0))


def _parents(rows: FileRows) -> np.ndarray:
    """The row of each node's parent; a root's is its own."""
    node, parent = rows["node"].astype(np.int64), rows["parent"]
    return np.arange(len(node)) - node + np.maximum(parent, 0)


def _check_path(rows: FileRows, sequences: pa.Table) -> Iterator[str]:
    """A node is on the path if and only if its parent is, and its token is the output's there."""
    root, path, parents = rows["node"] == 0, rows["on_path"], _parents(rows)
    yield from rows.problems(root & ~path, "a root that is not on_path")
    above = path[parents]
    yield from rows.problems(path & ~above, "on_path, but its parent is not")
    children = np.bincount(parents[path & ~root], minlength=len(rows))
    yield from rows.problems(children > 1, "a node with two children on the path")
    outputs = Outputs.of(sequences)
    if outputs is None:
        return
    position = rows["start"] + rows["depth"] - 1
    inside, output = outputs.at(rows["sequence"], position)
    equal = rows["token"] == output
    yield from rows.problems(
        ~root & path & ~(inside & equal), "on_path, but token {token} is not the output's"
    )
    yield from rows.problems(
        ~root & ~path & above & inside & equal, "off the path, but token {token} is the output's"
    )
    yield from rows.problems(
        root & inside & ~equal, "token {token} of a root is not the one before its start"
    )


def _check_every_start(
    rows: FileRows, sequence: np.ndarray, n_output: np.ndarray, manifest: Manifest
) -> Iterator[str]:
    """A network drafts from every start but the last one of T_max."""
    roots = rows["sequence"][rows["node"] == 0]
    found = np.bincount(np.searchsorted(sequence, roots), minlength=len(sequence))
    wanted = np.minimum(n_output, manifest.max_new_tokens - 1)
    for index in np.flatnonzero(found != wanted)[:1]:
        starts = how_many(wanted[index], "start")
        what = f"{how_many(found[index], 'tree')}, its output has {starts} of one"
        yield f"{rows.file}: sequence {sequence[index]}: {what}"


def _check_children(rows: FileRows, manifest: Manifest) -> Iterator[str]:
    """A network gives equally many children to each node that has any.

    All nodes of the path have some, but EOS tokens and those of the deepest level or at T_max.
    """
    root = rows["node"] == 0
    children = np.bincount(_parents(rows)[~root], minlength=len(rows))
    most = children.max()
    yield from rows.problems(
        (children > 0) & (children < most), f"fewer children than {most}, which others have"
    )
    depth = rows["depth"]
    wanted = rows["on_path"] & (depth < manifest.max_draft)
    wanted &= depth < manifest.max_new_tokens - rows["start"]
    wanted &= root | ~np.isin(rows["token"], manifest.eos_token_ids)
    yield from rows.problems(wanted & (children == 0), "a node of the path that has no children")
