"""Suffix decoding: the likeliest continuation of the last tokens, by counts."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from traces.attach.tokens import automaton
from traces.attach.tokens.arguments import Given, check_flag, check_real, check_whole, plain
from traces.attach.tokens.automaton import (
    CHILD,
    COUNT,
    LENGTH,
    LINK,
    TOKEN,
    Automaton,
    append,
    start,
    step,
)
from traces.attach.tokens.planting import Limits, plant_all
from traces.attach.tokens.proposals import Found, Listed, Proposals
from traces.attach.tokens.rule import TokenRule
from traces.kernels import compiled, compiled_part
from traces.trace import Trace
from traces.trees.shapes import DEEPEST, MOST_NODES, WIDEST, BestFirst, text_of

_DEEPEST = 65_536
_LARGEST = 1e6


class EarlierOutputs:
    """The outputs of earlier requests, counted together, in the order in which they were added.

    Attributes:
        counts: their automaton.
    """

    def __init__(self) -> None:
        self.counts = automaton.automaton(0)

    def add(self, output: np.ndarray, deepest: int) -> None:
        """Count one more output, int32, by substrings of up to so many tokens."""
        self.counts = automaton.with_room(self.counts, len(output))
        _append_all(self.counts, output, deepest)


@dataclass(frozen=True)
class Suffix(TokenRule):
    """SuffixDecoding (arXiv 2411.04975) as implemented in ArcticInference.

    For each match length m = 1, 2, …, as long as the last m tokens occur earlier: follow the child
    with the highest count, token by token. A token's probability is Π count(child) / count(node)
    along the way. The walk ends when it falls below `min_prob`, or after min(max_tokens,
    floor(m factor + offset + 1e-6), max_depth - m, T_max - i) tokens. A match's score is the sum of
    the probabilities. The best score wins; among equal scores, the longest match. m is less than
    the number of known tokens.

    Children with equal counts are kept in a list in order of counts, and the first is taken. A new
    child goes to the end of the list. A child that reaches a count goes in front of those that have
    it, if it was the first of those with its old count; else it goes behind them.

    Counts are over the known part of this request's prompt and output. They count substrings of up
    to `max_depth` tokens, including the last ones, which nothing follows. With `shared` there is a
    second set of counts, over the outputs of earlier requests; the first set wins ties.

    Where ArcticInference is not followed:

    - Its shared tree also holds outputs that are not finished, this request's own among them, and
      forgets the oldest beyond a limit. Here it is exact for requests that run one after another.
    - A draft ends *with* an EOS token: the engine continues, but nothing behind it is ever emitted.

    With `tree`, nodes are chosen one after another: each time the likeliest node whose parent was
    chosen. So a match may continue with several tokens. A node's probability is the product of
    count(child) / count(node) on the way to it, and is at least `min_prob`. A match has at most
    min(max_tokens, floor(m factor + offset + 1e-6), max_depth - m) nodes. Its score is the sum of
    their probabilities. Among equally likely nodes the one of the lower level comes first, and
    within a level the one with the earlier rank path; ArcticInference takes what its heap has on
    top. No tree is deeper than 64 levels or T_max - i, and a node has at most 64 children.
    Log-probabilities are float32, rounded up, and their sums are compared. The distribution behind
    a node consists of its children and, as one more outcome, its end.

    Probabilities and scores are float32 as in ArcticInference. It limits tokens by the model's
    length, which is T_max here.

    Source: ArcticInference 0.3.0 `csrc/suffix_decoding/suffix_tree.cc`, `suffix_decoding/cache.py`;
    its defaults and vLLM's (whose depth is 24) are these.

    Attributes:
        max_depth: largest number of tokens of a match and its draft together.
        max_tokens: largest number of tokens in a draft.
        factor: draft tokens that each matched token allows.
        offset: draft tokens that are allowed besides.
        min_prob: lowest probability of a drafted token.
        shared: whether earlier outputs count too.
        tree: whether trees are recorded, of all nodes of the best match.
    """

    name: ClassVar[str] = "suffix"
    has_score: ClassVar[bool] = True
    max_depth: int = 64
    max_tokens: int = 64
    factor: float = 1.0
    offset: float = 0.0
    min_prob: float = 0.1
    shared: bool = False
    tree: bool = False

    def __post_init__(self) -> None:
        check_whole(self, "max_depth", 2, _DEEPEST)
        check_whole(self, "max_tokens", 1)
        check_real(self, "factor", 0, _LARGEST)
        check_real(self, "offset", -_LARGEST, _LARGEST)
        check_real(self, "min_prob", 0, 1)
        check_flag(self, "shared")
        check_flag(self, "tree")
        if self.tree:
            check_whole(self, "max_tokens", 1, MOST_NODES)

    @property
    def longest(self) -> int:
        """See `TokenRule`."""
        return self.max_tokens

    def memory(self) -> EarlierOutputs | None:
        """What is carried from sequence to sequence, at first empty; None without `shared`."""
        return EarlierOutputs() if self.shared else None

    def propose(
        self,
        text: np.ndarray,
        n_prompt: int,
        eos: np.ndarray,
        max_new_tokens: int,
        memory: EarlierOutputs | None = None,
    ) -> Proposals:
        """Drafts from all starts of a sequence; from start i on text[: n_prompt + i - 1] is known.

        Args:
            text: prompt and output, (n_prompt + T,) int32.
            n_prompt: tokens of the prompt.
            eos: EOS tokens, int32.
            max_new_tokens: T_max; from start i a draft has at most T_max - i tokens.
            memory: with `shared`, of the sequences before; this one's output is added to it.

        Raises:
            ValueError: the prompt is longer than the text, there is a memory but not `shared` or
                the other way round, or it proposes trees.
        """
        if self.tree:
            raise ValueError("suffix: with tree=true it plants trees")
        own, others, given, allowed = self._counts(text, n_prompt, eos, max_new_tokens, memory)
        found = _propose(own, others, given, allowed, np.float32(self.min_prob))
        if memory:
            memory.add(given.text[n_prompt:], self.max_depth)
        lengths, accepted, tokens, score = found
        return Listed(lengths, accepted, score, tokens)

    def found(
        self,
        text: np.ndarray,
        n_prompt: int,
        eos: np.ndarray,
        max_new_tokens: int,
        memory: EarlierOutputs | None = None,
    ) -> Found:
        """See `TokenRule`: with `tree`, trees from all starts."""
        if not self.tree:
            return self.propose(text, n_prompt, eos, max_new_tokens, memory)
        own, others, given, allowed = self._counts(text, n_prompt, eos, max_new_tokens, memory)
        least = math.log(self.min_prob) if self.min_prob > 0 else -math.inf
        limits = Limits(least, self._width, DEEPEST)
        found = plant_all(own, others, given, allowed, limits)
        if memory:
            memory.add(given.text[n_prompt:], self.max_depth)
        return found

    def facts(self, recording: Trace) -> dict[str, Any]:
        """See `TokenRule`; the likeliest nodes nest in those that are recorded."""
        if not self.tree:
            return super().facts(recording)
        most = self.max_tokens, self.max_depth - 1, recording.max_new_tokens, DEEPEST
        shape = BestFirst(self.max_tokens, self.min_prob, self._width, max(1, min(most)))
        return {
            "kind": "tree",
            "sampler": replace(recording.sampler, draft_temperature=0.0),
            "shapes": (text_of(shape),),
            "width": shape.width,
            "max_draft": shape.levels,
        }

    @property
    def _width(self) -> int:
        """Children of a node at most: no more have a probability of `min_prob`."""
        likely = int(1 / self.min_prob + 1e-6) if self.min_prob > 1 / WIDEST else WIDEST
        return min(likely, self.max_tokens)

    def _counts(
        self,
        text: np.ndarray,
        n_prompt: int,
        eos: np.ndarray,
        max_new_tokens: int,
        memory: EarlierOutputs | None,
    ) -> tuple[Automaton, Automaton, Given, np.ndarray]:
        """Empty counts of a text, those of earlier ones, the text, and what matches allow."""
        if (memory is not None) != self.shared:
            raise ValueError("suffix: a memory goes with shared=true, and with nothing else")
        given = plain(text, n_prompt, eos, max_new_tokens)
        own = automaton.automaton(max(0, len(text) - 1))
        others = memory.counts if memory else automaton.automaton(0)
        return own, others, given, self._allowed(len(text))

    def _allowed(self, n_tokens: int) -> np.ndarray:
        """Tokens that a match of each length allows, up to that of all known tokens: int64."""
        m = np.arange(min(self.max_depth, n_tokens) + 1)
        room = np.floor(m * self.factor + self.offset + 1e-6).astype(np.int64)
        return np.clip(room, 0, np.minimum(self.max_tokens, self.max_depth - m))


@compiled
def _append_all(counts: Automaton, tokens: np.ndarray, deepest: int) -> None:
    end = start()
    for token in tokens:
        end = append(counts, end, np.int64(token), deepest)


@compiled
def _propose(
    own: Automaton,
    others: Automaton,
    given: Given,
    allowed: np.ndarray,
    least: float,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Lengths and accepted tokens by start; tokens and probabilities end to end."""
    text, n_prompt, eos, max_new_tokens = given
    deepest = len(allowed) - 1
    n_output = len(text) - n_prompt
    lengths = np.zeros(n_output, np.int32)
    accepted = np.zeros(n_output, np.int32)
    tokens = np.empty(n_output + 1, np.int32)
    score = np.empty(n_output + 1, np.float32)
    count = 0
    end = start()
    state, depth = np.int64(0), np.int64(0)  # of the longest suffix that others have
    for known in range(len(text)):
        if known > 0:
            token = np.int64(text[known - 1])
            end = append(own, end, token, deepest)
            state, depth = step(others, state, depth, token, deepest)
        i = known - n_prompt
        if i < 0 or known < 2:
            continue
        room = max_new_tokens - (i + 1)
        longest = min(known, deepest) - 1
        one, length, best = _best(own, end.state, min(end.depth, longest), allowed, room, least)
        two, other, better = _best(others, state, min(depth, longest), allowed, room, least)
        if better > best:
            length = other
        while count + length > len(tokens):
            tokens, score = np.concatenate((tokens, tokens)), np.concatenate((score, score))
        if better > best:
            _write(others, two, length, tokens[count:], score[count:])
        else:
            _write(own, one, length, tokens[count:], score[count:])
        lengths[i] = _cut(tokens[count : count + length], eos)
        accepted[i] = _agree(tokens[count : count + lengths[i]], text[known:])
        count += lengths[i]
    return lengths, accepted, tokens[:count].copy(), score[:count].copy()


@compiled_part
def _best(
    a: Automaton, state: int, longest: int, allowed: np.ndarray, room: int, least: float
) -> tuple[int, int, Any]:
    """The match whose draft scores best, of all lengths up to the longest.

    All lengths of one state have the same continuation, so that which allows most is asked alone.

    Args:
        a: the counts.
        state: of the last tokens, as many as are found; 0 if none are.
        longest: match that counts, all of whose states are on the way from there.
        allowed: tokens by match length.
        room: tokens at most.
        least: probability.

    Returns:
        The match's state, the draft's tokens and its score: (0, 0, 0) if there is no draft.
    """
    states = a.states
    best = np.float32(0)
    at, length = 0, 0
    while state > 0:
        shortest = states[states[state, LINK], LENGTH] + 1
        if states[state, CHILD] > 0:
            most = 0
            for m in range(shortest, longest + 1):
                most = max(most, allowed[m])
            most = min(most, room)
            if most > best:  # no probability is more than 1
                n, score = _follow(a, state, most, least)
                if score > best:
                    at, length, best = state, n, score
        longest = min(longest, shortest - 1)
        state = states[state, LINK]
    return at, length, best


@compiled_part
def _follow(a: Automaton, state: int, most: int, least: float) -> tuple[int, Any]:
    """Tokens of the draft behind a match, and its score."""
    states = a.states
    probability, score = np.float32(1), np.float32(0)
    for k in range(most):
        child = states[state, CHILD]
        if child > 0:
            probability *= np.float32(states[child, COUNT]) / np.float32(states[state, COUNT])
        if child == 0 or probability < least:
            return k, score
        score += probability
        state = child
    return most, score


@compiled_part
def _write(a: Automaton, state: int, length: int, tokens: np.ndarray, score: np.ndarray) -> None:
    """Write down a draft of so many tokens, and the probabilities."""
    states = a.states
    probability = np.float32(1)
    for k in range(length):
        child = states[state, CHILD]
        probability *= np.float32(states[child, COUNT]) / np.float32(states[state, COUNT])
        tokens[k] = states[state, TOKEN]
        score[k] = probability
        state = child


@compiled_part
def _cut(tokens: np.ndarray, eos: np.ndarray) -> int:
    """Tokens up to the first EOS, that one included."""
    for k in range(len(tokens)):
        for token in eos:
            if tokens[k] == token:
                return k + 1
    return len(tokens)


@compiled_part
def _agree(tokens: np.ndarray, output: np.ndarray) -> int:
    """Tokens that are the output's, from the first on."""
    k = 0
    while k < min(len(tokens), len(output)) and tokens[k] == output[k]:
        k += 1
    return k
