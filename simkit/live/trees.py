"""Speculative decoding with draft trees, batch size 1, with the time of everything that it does.

It knows nothing of traces. A step drafts a tree level by level, one pass of the draft a level;
verifies the nodes that its policy chooses, and the token before them, in one pass of the target in
which each sees its own forbears; follows the target's own tokens down the tree as far as they are
there; and keeps what both models have read of that path.

A token is the target's likeliest, or the winner of its race with the draws of
`traces.record.draws`, whose key is that of the tokens before it: so the output is the same whatever
is drafted (coupling "target").
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from simkit.errors import LiveError
from simkit.live.clock import Clock, Mark
from simkit.live.decoder import Drafting, Facts, OneByOne, Taken, Text
from simkit.live.growing_tree import Sapling, lines
from simkit.live.node_scorer import Scorer, node_scorer
from simkit.live.settings import DecoderSettings
from simkit.live.tree_drafts import TreeDraft
from simkit.policies import PolicyError
from simkit.trees.base import TreePolicy
from simkit.trees.growing import Growing
from traces.record import draws
from traces.record.drafters.layers import Layers
from traces.record.drafters.trees import said
from traces.record.reader import Reader
from traces.record.statistics import target_rows, target_token

if TYPE_CHECKING:
    from simkit.heads.files import Head


class TreeStep(NamedTuple):
    """One step.

    Attributes:
        start: 1-based position of its first token in the output.
        verified: nodes that the target was given, the root apart.
        drafted: nodes that the draft proposed.
        accepted: of those, along the output.
        widths: nodes in each pass of the draft; 1 in the first one.
        paths: the tokens from the root to each verified node.
        emitted: tokens that came out.
    """

    start: int
    verified: int
    drafted: int
    accepted: int
    widths: tuple[int, ...]
    paths: frozenset[tuple[int, ...]]
    emitted: tuple[int, ...]


def check(policy: TreePolicy) -> Growing:
    """The policy, if it can run live.

    Raises:
        PolicyError: it needs the output, or a trace to be fitted to.
    """
    if not isinstance(policy, Growing) or policy.needs_future:
        raise PolicyError(f"{policy} does not grow its trees level by level: it cannot run live")
    if not policy.live:
        raise PolicyError(f"{policy} is fitted to a trace and its cost: it cannot run live")
    assert policy.levels > 0  # one that is fitted to a trace says here that it is not yet
    return policy


class Trees(Drafting):
    """A tree behind the only text; see the module.

    Rows of the log: the first pass of a draft reads what it had not read yet (`tokens_in`), those
    of deeper levels the nodes that get children; `context_len` are the tokens before each node.
    The draft's pass ends when the likeliest tokens behind its nodes are known, and begins with the
    choice of the nodes. A verification reads the nodes and the token before them.

    Args:
        target: reads the text.
        draft: what drafts; None decodes with the target alone.
        policy: which nodes; None likewise.
        settings: how to decode.
        head: of the policy, if it reads one.
    """

    def __init__(
        self,
        target: Reader,
        draft: TreeDraft | None,
        policy: Growing | None,
        settings: DecoderSettings,
        head: Scorer | None,
    ) -> None:
        super().__init__(target, settings)
        self.draft, self.policy, self.head = draft, policy, head

    def open(self, text: Text) -> None:
        """See `Drafting`."""
        super().open(text)
        if self.draft:
            self.draft.forget()
        self._prefilled = False
        number = torch.tensor([text.sequence], device=self.target.device)
        self.key = draws.first_key(self.settings.seed, number)

    def read(self, texts: list[Text]) -> None:
        """See `Drafting`."""
        if self.draft and self.draft.layers:
            self.draft.take(self.target.states)

    def first(self, logits: Tensor, texts: list[Text]) -> None:
        """See `Drafting`."""
        self._append(texts[0], [self._drawn(logits)])

    def step(self, batch: list[Text], now: Facts) -> list[Taken]:
        """Draft, verify, follow the target's tokens, and keep what was read of them."""
        (text,) = batch
        start = text.position
        sapling = Sapling(text.tokens[-1], self.eos)
        row, widths = self._draft(text, sapling)
        nodes = np.zeros(0, np.int64)
        if self.policy and widths:
            nodes = self.policy.chosen(sapling.tree)
        path, emitted = self._verify(text, sapling, nodes)
        if self.draft:
            self.draft.keep([int(row[node]) for node in path if row[node] >= 0])
        self._append(text, emitted)
        drafted = len(nodes) if self.policy and self.policy.whole else len(sapling.token) - 1
        step = TreeStep(
            start=start,
            verified=len(nodes),
            drafted=drafted,
            accepted=len(path),
            widths=tuple(widths),
            paths=_paths(sapling, nodes),
            emitted=tuple(emitted),
        )
        return [Taken(drafted, len(nodes), len(path), emitted, step if self.policy else None)]

    def _draft(self, text: Text, sapling: Sapling) -> tuple[np.ndarray, list[int]]:
        """Grow a tree.

        Returns:
            the row of each node in the draft's cache, -1 where it has none, and how many nodes
            each pass had.
        """
        row, widths = np.full(1, -1, np.int64), []
        self._unjudged: list[tuple[np.ndarray, Tensor]] = []
        if not (self.policy and self.draft):
            return row, widths
        room = min(self.policy.levels, self.settings.max_new_tokens - text.position)
        if room > 0 and not self._prefilled:
            self._prefill_draft(text, self.draft)
        for level in range(room):
            begun = self.spans.mark()
            nodes, begun = self._grown(sapling, level, begun)
            if not len(nodes):
                break
            if level == 0:
                read = self.draft.unread(text.tokens)
                context = len(text.tokens) - read
                logits = self.draft.roots(text.tokens)
            else:
                read, context = len(nodes), len(text.tokens) - 1 + level
                logits = self._below(self.draft, sapling, nodes, level, row)
            sapling.extend(nodes, said(logits, self.policy.width, self.draft.ids))
            row = np.pad(row, (0, len(sapling.token) - len(row)), constant_values=-1)
            widths.append(len(nodes))
            if self.head:
                self._unjudged.append((nodes, self.draft.states))
            self.spans.add("draft", "draft", begun, self.spans.mark(), read, context, level + 1)
        return row, widths

    def _prefill_draft(self, text: Text, draft: TreeDraft) -> None:
        self._prefilled = True
        if (n := len(text.tokens) - 1) > 0:
            begun = self.spans.mark()
            draft.prefill(text.tokens[:-1])
            self.spans.add("prefill", "draft", begun, self.spans.mark(), n)

    def _grown(self, sapling: Sapling, level: int, begun: Mark) -> tuple[np.ndarray, Mark]:
        """The nodes of a level that get children; when the pass over them begins."""
        assert self.policy is not None
        asked = bool(level) and self.policy.looks and self.policy.asks(level)
        if asked and self.head:
            begun = self._judge(sapling, begun)
        tree = sapling.tree
        nodes = self.policy.grows(tree, level)
        if not self.policy.whole:
            nodes = nodes[~tree.ended[nodes]]
        if not asked:
            return nodes, begun
        now, what = self.spans.mark(), f"policy:{self.policy.timed_as}"
        self.spans.add("policy", what, begun, now, depth=level)
        return nodes, now

    def _judge(self, sapling: Sapling, begun: Mark) -> Mark:
        """Have the head judge what the draft has read since it was asked last; when it has."""
        assert self.policy is not None and self.head is not None
        for nodes, states in self._unjudged:
            sapling.judge(nodes, self.head(states))
        n, self._unjudged = sum(len(nodes) for nodes, _ in self._unjudged), []
        now = self.spans.mark()
        self.spans.add("head", f"head:{self.policy.head}", begun, now, n)
        return now

    def _below(
        self, draft: TreeDraft, sapling: Sapling, nodes: np.ndarray, level: int, row: np.ndarray
    ) -> Tensor:
        """Logits behind nodes; their rows are set."""
        parent = sapling.tree.parent
        n_rows = int(row.max()) + 1
        row[nodes] = n_rows + np.arange(len(nodes))
        sees = lines(parent, nodes, row, n_rows + len(nodes))
        tokens = sapling.token[nodes].tolist()
        return draft.below(row[parent[nodes]], tokens, level, sees)

    def _verify(
        self, text: Text, sapling: Sapling, nodes: np.ndarray
    ) -> tuple[list[int], list[int]]:
        """Run the target over nodes and the token before them.

        Returns:
            the nodes on the path of its own tokens, and those tokens.
        """
        begun, context = self.spans.mark(), len(text.tokens) - 1
        logits = self._p(text, sapling, nodes)
        places, where = {}, {0: 0}  # the row of a child; of a node
        parent = sapling.tree.parent
        for k, node in enumerate(nodes.tolist()):
            where[node] = k + 1
            places[where[int(parent[node])], int(sapling.token[node])] = k + 1
        best = None
        if self.settings.sampler.greedy:
            best = target_rows(logits, self.settings.sampler).best.tolist()
        rows, emitted, at = [0], [], 0
        while True:
            token = best[at] if best is not None else self._drawn(logits[at : at + 1], emitted)
            emitted.append(token)
            if (at := places.get((at, token), 0)) == 0:
                break
            rows.append(at)
            if token in self.eos:
                break
        self.spans.add("verify", "target", begun, self.spans.mark(), 1 + len(nodes), context)
        self._keep(rows)
        return [int(nodes[k - 1]) for k in rows[1:]], emitted

    def _p(self, text: Text, sapling: Sapling, nodes: np.ndarray) -> Tensor:
        """The target's logits behind the last token and nodes of the tree."""
        if not len(nodes):
            before = self.target.lengths[0]
            logits = self.target.read([text.tokens[before:]])[0]
            self.target.lengths[0] = before  # `_keep` makes text of it
            return logits
        tree, rows = sapling.tree, np.concatenate([[0], nodes])
        row = np.full(len(sapling.token), -1, np.int64)
        row[rows] = np.arange(len(rows))
        sees = lines(tree.parent, rows, row, len(rows))
        return self.target.branch(sapling.token[rows].tolist(), tree.depth[rows], sees)

    def _keep(self, rows: list[int]) -> None:
        """What the target has read of accepted nodes, and of the token before them."""
        if self.draft and self.draft.layers:
            self.draft.take(self.target.states[rows])
        self.target.slots.keep(rows)

    def _drawn(self, logits: Tensor, before: list[int] | tuple[int, ...] = ()) -> int:
        """The target's own token behind the text and some tokens, by its logits (1, V)."""
        key = self.key
        for token in before:
            key = draws.next_key(key, torch.tensor([token], device=key.device))
        return int(target_token(target_rows(logits, self.settings.sampler), key))

    def _append(self, text: Text, tokens: list[int]) -> None:
        for token in () if self.settings.sampler.greedy else tokens:
            self.key = draws.next_key(self.key, torch.tensor([token], device=self.key.device))
        text.tokens += tokens


class TreeDecoder(OneByOne):
    """Decodes sequences one by one with draft trees.

    Args:
        target: a causal LM of the Llama kind, in eval mode.
        draft: what drafts; None decodes with the target alone.
        policy: which nodes; None likewise.
        settings: how to decode.
        vocab_size: ids that target and draft share.
        clock: of the times; None: the device's own.
        heads: by name, that of the policy among them if it reads one.

    Raises:
        PolicyError: see `check`; or the policy's head is not given, or none that judges nodes.
        LiveError: a policy without a draft.
    """

    def __init__(
        self,
        target: PreTrainedModel,
        draft: TreeDraft | None,
        policy: TreePolicy | None,
        settings: DecoderSettings,
        vocab_size: int,
        clock: Clock | None = None,
        heads: Mapping[str, Head] | None = None,
    ) -> None:
        if policy is not None and draft is None:
            raise LiveError(f"{policy} needs a draft")
        grows = None if policy is None else check(policy)
        head = node_scorer(policy, heads or {}) if policy else None
        draft = draft if policy is not None else None
        states = Layers(target, draft.layers) if draft and draft.layers else None
        reads = Reader(target, vocab_size, states=states)
        super().__init__(Trees(reads, draft, grows, settings, head), settings, clock=clock)


def _paths(sapling: Sapling, nodes: np.ndarray) -> frozenset[tuple[int, ...]]:
    """The tokens that lead from the root to each of some nodes, its own among them."""
    parent = sapling.tree.parent
    found: dict[int, tuple[int, ...]] = {0: ()}
    for node in nodes.tolist():
        found[node] = (*found[int(parent[node])], int(sapling.token[node]))
    return frozenset(found[node] for node in nodes.tolist())
