"""EAGLE-2's trees: the same nodes as its published algorithm, done in whole arrays, would verify.

The second implementation goes as the paper and the engines' code do: expansion keeps the summed
scores of all k x k candidates of a level and the k best of them go on; then the best of the
flattened scores of all levels are taken, put in order, and given their parents. What a replay
verifies is read off its outcomes alone: one output for every path through the tree.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest

from simkit import policies
from simkit.drafters import layout_of
from simkit.drafters.tree import TreeLayout
from simkit.steps.tree import FAMILY as TREES
from simkit.trees import TreePolicy
from traces.manifest import Manifest
from traces.memory import Arrays
from traces.trace import Trace

EOS = 0
SIZES = [(2, 4), (3, 3), (4, 2), (2, 3), (3, 4)]  # children of a node, levels


class Draft(NamedTuple):
    """What a draft says, down to L levels, K children each.

    Attributes:
        log_prob: (K**l, K) float32 of each level l; the likeliest child first.
        token: as `log_prob`; the EOS token is among them.
    """

    log_prob: list[np.ndarray]
    token: list[np.ndarray]

    @property
    def width(self) -> int:
        return self.log_prob[0].shape[1]


def draft_of(rng: np.random.Generator, width: int, levels: int, kind: str) -> Draft:
    """A random one; the "tied" ones are powers of 1/2, or shares of small numbers."""
    log_prob, token = [], []
    for level in range(levels):
        shape = width**level, width
        if kind == "smooth":
            q = rng.dirichlet(np.full(width + 1, 0.6), shape[0])[:, :width] + 1e-12
        else:
            q = rng.choice([0.5, 0.25, 0.125] if kind == "dyadic" else [0.3, 0.2, 0.1], shape)
        log_prob.append(-np.sort(-np.log(q).astype(np.float32), axis=1))
        ids = np.broadcast_to(np.arange(1, width + 1), shape).copy()
        ended = rng.random(shape[0]) < 0.3
        ids[ended, rng.integers(0, width, ended.sum())] = EOS
        token.append(ids)
    return Draft(log_prob, token)


def published(draft: Draft, k: int, further: int, total: int) -> set[tuple[int, ...]]:
    """The rank paths of the verified nodes: expansion, then reranking.

    A node of level l is numbered by its path, read in base K. Candidates behind an EOS token have a
    score of -inf, and are never taken.
    """
    code = np.arange(k)
    scores = draft.log_prob[0][0, :k].astype(float)
    pool = [(scores, np.zeros(k, int), code, np.full(k, -1))]
    where = np.arange(k)  # of the beam in the flattened pool
    beam, ended, n = code, draft.token[0][0, :k] == EOS, k
    for level in range(1, further + 1):
        found = scores[:, None] + draft.log_prob[level][beam, :k]
        found[ended] = -np.inf
        codes = (beam[:, None] * draft.width + np.arange(k)).ravel()
        tokens = draft.token[level][beam, :k].ravel()
        found = found.ravel()
        pool.append((found, np.full(k * k, level), codes, np.repeat(where, k)))
        chosen = np.lexsort((codes, -found))[:k]
        scores, beam, ended, where = found[chosen], codes[chosen], tokens[chosen] == EOS, n + chosen
        n += k * k
    every, level, codes, parent = map(np.concatenate, zip(*pool, strict=True))
    best = np.lexsort((codes, level, -every))[: total - 1]
    best = np.sort(best[every[best] > -np.inf])
    inner = parent[best][parent[best] >= 0]
    assert np.array_equal(best[np.searchsorted(best, inner)], inner)  # they form a tree
    return {path_of(codes[b], level[b] + 1, draft.width) for b in best}


def path_of(code: int, depth: int, width: int) -> tuple[int, ...]:
    return tuple(int(code) // width**place % width for place in reversed(range(depth)))


def paths_of(draft: Draft) -> list[list[tuple[int, ...]]]:
    """All nodes by level, in order; none behind an EOS token."""
    levels: list[list[tuple[int, ...]]] = [[()]]
    for level, tokens in enumerate(draft.token):
        before = levels[-1]
        if level:
            before = [p for p in before if token_of(draft, p) != EOS]
        levels.append([(*p, rank) for p in before for rank in range(tokens.shape[1])])
    return levels


def code_of(draft: Draft, path: tuple[int, ...]) -> int:
    return sum(rank * draft.width**k for k, rank in enumerate(reversed(path)))


def token_of(draft: Draft, path: tuple[int, ...]) -> int:
    return int(draft.token[len(path) - 1][code_of(draft, path[:-1]), path[-1]])


def layout_for(draft: Draft, top_ks: tuple[int, ...]) -> tuple[TreeLayout, list[tuple[int, ...]]]:
    """A trace with an output for each path through the tree, whose first start has the whole tree.

    Returns:
        it, and the path of each output.
    """
    nodes = [path for level in paths_of(draft) for path in level]
    number = {path: k for k, path in enumerate(nodes)}
    deepest = len(draft.token)
    leaves = [p for p in nodes if len(p) == deepest or (p and token_of(draft, p) == EOS)]
    said = [draft.log_prob[len(p) - 1][code_of(draft, p[:-1]), p[-1]] if p else 0 for p in nodes]
    one = {
        "node": np.arange(len(nodes)),
        "parent": np.array([number[p[:-1]] if p else -1 for p in nodes]),
        "depth": np.array([len(p) for p in nodes]),
        "rank": np.array([p[-1] if p else 0 for p in nodes]),
        "token": np.array([token_of(draft, p) if p else 1 for p in nodes]),
        "log_prob": np.array(said, np.float32),
    }
    many = {name: np.tile(column, len(leaves)) for name, column in one.items()}
    many["sequence"] = np.repeat(np.arange(len(leaves)), len(nodes))
    many["start"] = np.ones(len(many["node"]), int)
    many["on_path"] = np.array([leaf[: len(p)] == p for leaf in leaves for p in nodes])
    many |= {name: np.ones(len(many["node"]), np.float32) for name in
             ("draft_entropy", "draft_top1_prob")}  # fmt: skip
    outputs = [[token_of(draft, leaf[: d + 1]) for d in range(len(leaf))] for leaf in leaves]
    manifest = Manifest(
        max_draft=deepest,
        max_new_tokens=deepest + 1,
        kind="tree",
        shapes=tuple(f"eagle2(top_k={k}, depth={deepest - 1})" for k in top_ks),
        width=draft.width,
        eos_token_ids=(EOS,),
        batch_size=len(leaves),
        n_prompts=len(leaves),
        complete=True,
    )
    sequences = {
        "sequence": np.arange(len(leaves)),
        "n_output": [len(output) for output in outputs],
        "output_tokens": outputs,
        "finish_reason": ["eos" if o[-1] == EOS else "length" for o in outputs],
    }
    source = Arrays(manifest, sequences, {"tree": many}, {"tree": len(many["node"])})
    layout = layout_of(Trace(manifest, source))
    assert isinstance(layout, TreeLayout)
    return layout, leaves


def replayed(
    layout: TreeLayout, leaves: list[tuple[int, ...]], spec: str
) -> tuple[set[tuple[int, ...]], int, int]:
    """The nodes that a policy verifies, and how many it says it drafts and verifies."""
    policy = policies.parse(spec)
    assert isinstance(policy, TreePolicy)
    firsts = layout.offsets[:-1]
    found = policy.outcomes(layout)
    work = found.work(firsts)
    assert len(set(work.drafted.tolist())) == len(set(work.verified.tolist())) == 1
    accepted = found.accepted[firsts].tolist()
    steps = TREES.walk(policy, layout, 1)
    begin = steps.offsets[:-1]
    assert steps.accepted[begin].tolist() == accepted
    assert set(steps.drafted[begin].tolist()) == set(work.drafted.tolist())
    assert set(steps.proposed[begin].tolist()) == set(work.verified.tolist())
    kept = {leaf[: d + 1] for leaf, a in zip(leaves, accepted, strict=True) for d in range(a)}
    return kept, int(work.drafted[0]), int(work.verified[0])


@pytest.mark.parametrize("kind", ["smooth", "dyadic", "few"])
def test_the_published_algorithm_verifies_the_same_nodes(kind):
    """400 drafts of each kind; in a third of the tied trees at least, two nodes are as likely."""
    rng = np.random.default_rng(17)
    ties = 0
    for trial in range(400):
        width, levels = SIZES[trial % (len(SIZES) - 1)] if trial % 20 else SIZES[-1]
        draft = draft_of(rng, width, levels, kind)
        top_ks = tuple(range(1, width + 1))
        layout, leaves = layout_for(draft, top_ks)
        for _ in range(3):
            k, further = int(rng.choice(top_ks)), int(rng.integers(0, levels))
            total = int(rng.integers(further + 2, k + k * k * further + 4))
            expected = published(draft, k, further, total)
            spec = f"eagle2(top_k={k}, depth={further}, total={total})"
            kept, drafted, verified = replayed(layout, leaves, spec)
            assert kept == expected, (trial, spec)
            assert verified == len(expected) <= drafted <= k + k * k * further
            assert drafted == len(published(draft, k, further, 10**6))
            ties += has_ties(draft, k, further)
    assert ties > 400 if kind != "smooth" else ties == 0


def has_ties(draft: Draft, k: int, further: int) -> bool:
    paths = published(draft, k, further, 10**6)
    sums = [
        sum(float(draft.log_prob[d][code_of(draft, p[:d]), p[d]]) for d in range(len(p)))
        for p in paths
    ]
    return len(set(sums)) < len(sums)


SAME = [
    (
        f"eagle2(top_k={k}, depth={levels - 1}, total={nodes + 1})",
        f"eagle2(top_k={k}, num_steps={levels}, num_draft_tokens={nodes + 1})",
        f"eagle2(top_k={k}, max_draft_len={levels}, max_total_draft_tokens={nodes})",
    )
    for k in (1, 2, 3)
    for levels in (1, 2, 3)
    for nodes in (levels, levels + 2, 9)
]


@pytest.mark.parametrize("same", SAME, ids=[names[0] for names in SAME])
def test_three_engines_numbers_name_the_same_tree(same):
    """EAGLE's depth is one less than the levels and its total counts the root; so does SGLang's
    num_draft_tokens, of whose pool (1 + (num_steps - 1) k) k candidates all but one are drafted.
    TensorRT-LLM's pool has k + (max_draft_len - 1) k^2, and its total counts no root.
    """
    eagle, sglang, tensorrt = map(policies.parse, same)
    assert eagle.levels == sglang.levels == tensorrt.levels
    assert eagle.nodes == sglang.nodes == tensorrt.nodes
    draft = draft_of(np.random.default_rng(3), 3, 3, "few")
    layout, leaves = layout_for(draft, (1, 2, 3))
    kept, *counts = replayed(layout, leaves, same[0])
    assert kept == published(draft, eagle.top_k, eagle.depth, eagle.total)
    for other in same[1:]:
        assert replayed(layout, leaves, other) == (kept, *counts)


def test_the_pool_is_as_large_as_the_engines_say():
    draft = draft_of(np.random.default_rng(1), 3, 4, "smooth")
    draft = draft._replace(token=[np.full_like(token, 1) + np.arange(3) for token in draft.token])
    layout, leaves = layout_for(draft, (3,))
    for levels in (1, 2, 3, 4):
        spec = f"eagle2(top_k=3, num_steps={levels}, num_draft_tokens=64)"
        kept, drafted, verified = replayed(layout, leaves, spec)
        assert drafted == verified == len(kept) == 3 + 9 * (levels - 1)


def test_a_smaller_beam_may_hold_what_a_wider_one_does_not():
    """Why a recording must name its beams: they do not nest."""
    rng = np.random.default_rng(0)
    outside = 0
    for _ in range(50):
        draft = draft_of(rng, 3, 4, "smooth")
        outside += not published(draft, 2, 3, 99) <= published(draft, 3, 3, 99)
    assert outside > 0
