"""Laws of lattices, trees and attached drafters, see `laws`."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pyarrow.parquet as pq

from benchmarks.fuzz.edit import Edit
from benchmarks.fuzz.laws import (
    INF,
    NAN,
    Change,
    Law,
    broken,
    calm,
    dropped_last,
    dropped_run,
    eos_within,
    field,
    moved_last,
    other,
    put,
    runs,
    same,
    shortened,
    swapped,
    swapped_runs,
)
from benchmarks.fuzz.recordings import TREE

LATTICE, NODES, PATH = "lattice/00000.parquet", "tree/00000.parquet", "positions/00000.parquet"
_SUFFIX, _NGRAM, _EAGLE, _TREE = (
    f"drafted/drafters/{n}" for n in ("suffix", "ngram", "eagle", "tree")
)
_PARD, _DRAFT = "target/drafters/pard", "target/drafters/draft"
_TREES = (TREE, "fixed(2)")


def _verdicts(new: Callable[[np.ndarray, random.Random], np.ndarray]) -> Change:
    """The verdicts of one draft, or of all, are others."""

    def change(rng: random.Random, edit: Edit) -> None:
        old = edit.column(LATTICE, "accepted")
        changed = new(old, rng)
        rows = np.flatnonzero((changed != old) & _reached(edit)).tolist()
        chosen = rows if rng.random() < 0.5 else [rng.choice(rows)]
        edit.put(LATTICE, "accepted", {row: bool(changed[row]) for row in chosen})

    return change


def _reached(edit: Edit) -> np.ndarray:
    """Flags rows before which nothing of their draft was rejected."""
    accepted = edit.column(LATTICE, "accepted")
    parts = [
        np.append(True, np.cumprod(accepted[run[:-1]])) for run in runs(edit, LATTICE, "start")
    ]
    return np.concatenate(parts).astype(bool)


def _tokens(rng: random.Random, edit: Edit) -> None:
    """An accepted draft token is another one than the output's."""
    column = edit.column
    rows = np.flatnonzero(column(LATTICE, "accepted") & _reached(edit)).tolist()
    chosen = rows if rng.random() < 0.5 else [rng.choice(rows)]
    old = column(LATTICE, "draft_token")
    edit.put(LATTICE, "draft_token", {row: 1 + int(old[row]) % 9 for row in chosen})


def _last_elsewhere(rng: random.Random, edit: Edit) -> None:
    """The last tree is at a position that there is not."""
    last = runs(edit, NODES, "start")[-1].tolist()
    edit.put(NODES, "start", dict.fromkeys(last, 1000))


def _first(c: Callable[[str], np.ndarray]) -> np.ndarray:
    return c("depth") == 1


def _behind(c: Callable[[str], np.ndarray]) -> np.ndarray:
    """Rows behind a rejected one of the same draft."""
    return np.append(False, ~c("accepted")[:-1]) & (c("depth") > 1)


def _nodes(c: Callable[[str], np.ndarray]) -> np.ndarray:
    return c("depth") > 0


def _roots(c: Callable[[str], np.ndarray]) -> np.ndarray:
    return c("depth") == 0


def _leaves(c: Callable[[str], np.ndarray]) -> np.ndarray:
    """Accepted nodes at the deepest level, which have no children, or the other ones there."""
    return c("depth") == c("depth").max()


def _second(c: Callable[[str], np.ndarray]) -> np.ndarray:
    """Second children at the deepest level whose parent is not the first node of its level."""
    before = np.maximum(np.arange(len(c("node"))) - c("node") + c("parent") - 1, 0)
    return _leaves(c) & (c("rank") == 1) & (c("depth")[before] == c("depth") - 1)


def _of_lost(rng: random.Random, edit: Edit) -> None:
    """A node is accepted, and its token is the output's, but its parent is not."""
    parent, node, depth, path, start = (
        edit.column(NODES, name) for name in ("parent", "node", "depth", "on_path", "start")
    )
    above = np.arange(len(node)) - node + np.maximum(parent, 0)
    outputs = pq.read_table(edit.folder.parent.parent / "sequences.parquet")["output_tokens"]
    tokens = outputs[0].as_py()
    position = start + depth - 1
    inside = (position <= len(tokens)) & (edit.column(NODES, "sequence") == 0)
    row = rng.choice(np.flatnonzero((depth > 1) & ~path[above] & inside).tolist())
    edit.put(NODES, "on_path", {row: True})
    edit.put(NODES, "token", {row: tokens[position[row] - 1]})


def _rates(trace: str, column: str, *values: float) -> Law:
    return Law(
        trace, put(LATTICE, _first, **{column: values}), ("fixed(3)", "confidence(threshold=0.5)")
    )


LATTICES = {
    "starts ascend": Law(_EAGLE, swapped_runs(LATTICE, "start")),
    "depths of a draft count up": Law(
        _EAGLE, put(LATTICE, lambda c: c("depth") > 2, depth=other("depth"))
    ),
    "starts are positions": Law(_EAGLE, moved_last(LATTICE, "start")),
    "drafts are no deeper than Gamma": Law(_EAGLE, field(max_draft=2)),
    "an EOS token ends a draft": Law(_EAGLE, eos_within(LATTICE, "start")),
    "columns are those of a lattice": Law(_EAGLE, field(lattice_columns=["draft_token", "secret"])),
    "rates are probabilities": _rates(_EAGLE, "draft_prob_raw", 1.5, -0.5, NAN, INF),
    "rates of suffixes are": _rates(_SUFFIX, "draft_prob_raw", 1.5, -0.5, NAN),
    "tokens are of the vocabulary": Law(_PARD, put(LATTICE, _behind, draft_token=-7)),
    "the target's view is in range": _rates(_PARD, "overlap", 1.5, -0.5, NAN),
    "the target's view ends with the output": Law(_PARD, put(LATTICE, _behind, overlap=0.5)),
    "an imported draft has positions": Law("lattice", moved_last(LATTICE, "start")),
    "imported depths count up": Law(
        "lattice", put(LATTICE, lambda c: c("depth") > 1, depth=other("depth"))
    ),
}
ATTACHED = {
    "suffixes that differ are not accepted": Law(_SUFFIX, _verdicts(lambda a, _: np.ones_like(a))),
    "n-grams that differ are not accepted": Law(_NGRAM, _verdicts(lambda a, _: np.ones_like(a))),
    "equal suffixes are accepted": Law(_SUFFIX, _verdicts(lambda a, _: np.zeros_like(a))),
    "verdicts of suffixes are not flipped": Law(_SUFFIX, _verdicts(lambda a, _: ~a)),
    "equal greedy drafts are accepted": Law(_EAGLE, _verdicts(lambda a, _: np.zeros_like(a))),
    "greedy drafts that differ are not": Law(_EAGLE, _verdicts(lambda a, _: np.ones_like(a))),
    "accepted suffixes are the outputs'": Law(_SUFFIX, _tokens),
    "accepted drafts are the outputs'": Law(_EAGLE, _tokens),
    "accepted sampled drafts are the outputs'": Law(_PARD, _tokens),
    "drafts of networks are whole": Law(_EAGLE, shortened(LATTICE, "start")),
    "networks draft from every start": Law(_EAGLE, dropped_run(LATTICE, "start")),
    "proposals are those of the rule": Law(
        _SUFFIX, put(LATTICE, _behind, draft_token=lambda r, c: 1 + c("draft_token")[r] % 9)
    ),
    "rates are those of the rule": Law(_SUFFIX, put(LATTICE, _behind, draft_prob_raw=0.123)),
    "drafters keep to the outputs' T_max": Law(_SUFFIX, field(max_new_tokens=63)),
    "drafters keep to the outputs' EOS": Law(_NGRAM, field(eos_token_ids=[1])),
    "drafters belong to their recording": Law("drafted", calm, written={"tied": False}),
    "a draft model's tokens are the outputs'": Law(
        _DRAFT, put(PATH, lambda c: ~c("accepted"), target_token=other("target_token"))
    ),
    "a draft model's accepted tokens are equal": Law(
        _DRAFT,
        put(PATH, lambda c: c("accepted"), draft_token=lambda r, c: 1 + c("target_token")[r] % 9),
    ),
    "a draft model has a row a token": Law(_DRAFT, dropped_last(PATH)),
    "a draft model's rows stand in order": Law(_DRAFT, swapped(PATH)),
}
TREES = {
    "nodes are numbered": Law(_TREE, put(NODES, _nodes, node=other("node")), _TREES),
    "trees ascend": Law(_TREE, swapped_runs(NODES, "start"), _TREES),
    "trees have a position": Law(_TREE, _last_elsewhere, _TREES),
    "parents come first": Law(_TREE, put(NODES, _nodes, parent=same("node")), _TREES),
    "roots have no parent": Law(_TREE, put(NODES, _roots, parent=(0, -2)), _TREES),
    "depths are the parents' and one": Law(
        _TREE, put(NODES, _leaves, depth=lambda r, c: c("depth")[r] - 1), _TREES
    ),
    "trees are no deeper than Gamma": Law(
        _TREE, field(max_draft=2, shapes=["eagle2(top_k=2, depth=1)"]), ("fixed(2)",)
    ),
    "siblings are ranked": Law(_TREE, put(NODES, lambda c: c("rank") == 1, rank=0), _TREES),
    "ranks are below the width": Law(
        _TREE, field(width=1, shapes=["eagle2(top_k=1, depth=2)"]), ("fixed(2)",)
    ),
    "children stand in their parents' order": Law(
        _TREE, put(NODES, _second, rank=0, parent=other("parent", -1)), _TREES
    ),
    "accepted nodes have accepted parents": Law(_TREE, _of_lost, _TREES),
    "nodes that differ are not accepted": Law(
        _TREE, put(NODES, lambda c: ~c("on_path") & (c("depth") == 1), on_path=True), _TREES
    ),
    "roots are accepted": Law(_TREE, put(NODES, _roots, on_path=False), _TREES),
    "accepted nodes are the outputs'": Law(
        _TREE,
        put(NODES, lambda c: c("on_path") & _nodes(c), token=lambda r, c: 1 + c("token")[r] % 9),
        _TREES,
    ),
    "the outputs' nodes are accepted": Law(
        _TREE, put(NODES, lambda c: c("on_path") & _leaves(c), on_path=False), _TREES
    ),
    "roots are the tokens before": Law(
        _TREE, put(NODES, lambda c: _roots(c) & (c("start") > 1), token=other("token")), _TREES
    ),
    "every start has a tree": Law(_TREE, dropped_run(NODES, "start"), _TREES),
    "nodes have as many children": Law(_TREE, shortened(NODES, "start"), _TREES),
    "siblings fall": Law(_TREE, put(NODES, lambda c: c("rank") == 1, log_prob=0.0), _TREES),
    "nodes are of the vocabulary": Law(
        _TREE, put(NODES, lambda c: ~c("on_path"), token=(4096, -1)), _TREES
    ),
    "log-probabilities are up to 0": Law(
        _TREE, put(NODES, _nodes, log_prob=(0.5, NAN, INF)), _TREES
    ),
    "entropies of nodes are none below 0": Law(
        _TREE, put(NODES, _nodes, draft_entropy=-1.0), _TREES
    ),
    "probabilities of nodes are up to 1": Law(
        _TREE, put(NODES, _nodes, draft_top1_prob=(1.5, -0.5)), _TREES
    ),
    "shapes are known": Law(_TREE, field(shapes=(["guess(3)"], [])), ("fixed(2)",)),
    "widths are from 1": Law(_TREE, field(width=0), ("fixed(2)",)),
    "shapes are no deeper than Gamma": Law(
        _TREE, field(shapes=["eagle2(top_k=2, depth=5)"]), ("fixed(2)",)
    ),
}
FAMILIES = {
    "laws of lattices": broken(LATTICES),
    "laws of attached drafters": broken(ATTACHED),
    "laws of trees": broken(TREES),
}
