"""The likeliest nodes behind a match in counts of substrings: trees of suffix decoding."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from traces.attach.tokens.arguments import Given
from traces.attach.tokens.automaton import (
    COUNT,
    FIRST,
    LENGTH,
    LINK,
    Automaton,
    append,
    edge_of,
    start,
    step,
)
from traces.attach.tokens.proposals import Found
from traces.columns import Columns
from traces.kernels import compiled, compiled_part
from traces.trees.forest import NONE

_PARENT, _DEPTH, _RANK, _TOKEN, _PATH = range(5)
_LOG_PROB, _ENTROPY, _TOP1 = range(3)


class Limits(NamedTuple):
    """Of trees.

    Attributes:
        least: lowest logarithm of a node's probability.
        width: children of a node at most.
        deepest: level.
    """

    least: float
    width: int
    deepest: int


@dataclass(frozen=True, eq=False)
class Planted(Found):
    """Trees from starts 1 … T of a sequence, end to end.

    Attributes:
        sizes: nodes of the tree from start i, its root among them, at index i - 1: (T,) int32; 0 is
            no tree.
        whole: (n, 5) int32: parent, depth, rank, token, whether it is on the output's path.
        real: (n, 3) float32: log-probability, entropy, probability of the likeliest child.
    """

    table: ClassVar[str] = "tree"
    sizes: np.ndarray
    whole: np.ndarray
    real: np.ndarray

    def rows(self, sequence: int) -> Columns:
        """See `Found`."""
        ends = np.cumsum(self.sizes, dtype=np.int64)
        node = np.arange(len(self.whole)) - np.repeat(ends - self.sizes, self.sizes)
        return {
            "sequence": np.full(len(node), sequence, np.int32),
            "start": np.repeat(np.arange(1, len(self.sizes) + 1, dtype=np.int32), self.sizes),
            "node": node.astype(np.int32),
            "parent": self.whole[:, _PARENT].astype(np.int16),
            "depth": self.whole[:, _DEPTH].astype(np.int16),
            "rank": self.whole[:, _RANK].astype(np.int16),
            "token": self.whole[:, _TOKEN],
            "log_prob": self.real[:, _LOG_PROB],
            "on_path": self.whole[:, _PATH] > 0,
            "draft_entropy": self.real[:, _ENTROPY],
            "draft_top1_prob": self.real[:, _TOP1],
        }


class Bed(NamedTuple):
    """The nodes of one tree as it grows, those among them that are not chosen; node 0 is the root.

    Attributes:
        node: (M, 7) int32: its state of the counts, parent, depth, rank, token, first child and
            number of children.
        log_prob: (M,) float32.
        total: (M,) float64, summed from the root on.
        chance: (M,) float32, probability given the root.
        number: (M,) int32, of a chosen node in the tree, then; -1 of others.
        front: (M,) int32, room for nodes that may be chosen next, and for those that were.
    """

    node: np.ndarray
    log_prob: np.ndarray
    total: np.ndarray
    chance: np.ndarray
    number: np.ndarray
    front: np.ndarray


_STATE, _ABOVE, _LEVEL, _AMONG, _BY, _FIRST, _MANY = range(7)


def plant_all(
    own: Automaton, others: Automaton, given: Given, allowed: np.ndarray, limits: Limits
) -> Planted:
    """The trees from all starts.

    Args:
        own: empty counts, which are filled with the text.
        others: counts of earlier outputs.
        given: prompt and output.
        allowed: (m + 1,) nodes that a match of each length allows.
        limits: of each tree.
    """
    n = 1 + limits.width * (int(allowed.max(initial=0)) + 1)  # all nodes' children
    room = Bed(
        node=np.zeros((n, 7), np.int32),
        log_prob=np.zeros(n, np.float32),
        total=np.zeros(n),
        chance=np.zeros(n, np.float32),
        number=np.full(n, NONE, np.int32),
        front=np.zeros(n, np.int32),
    )
    return Planted(*_plant_all(own, others, given, allowed, limits, room))


@compiled
def _plant_all(
    own: Automaton,
    others: Automaton,
    given: Given,
    allowed: np.ndarray,
    limits: Limits,
    room: Bed,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """See `Planted`."""
    text, n_prompt, eos, max_new_tokens = given
    longest = len(allowed) - 1
    sizes = np.zeros(len(text) - n_prompt, np.int32)
    whole, real = np.empty((64, 5), np.int32), np.empty((64, 3), np.float32)
    count = 0
    end = start()
    state, depth = np.int64(0), np.int64(0)  # of the longest suffix that others have
    for known in range(len(text)):
        if known > 0:
            token = np.int64(text[known - 1])
            end = append(own, end, token, longest)
            state, depth = step(others, state, depth, token, longest)
        i = known - n_prompt
        if i < 0 or known < 2:
            continue
        least, width, deepest = limits
        here = Limits(least, width, min(deepest, max_new_tokens - (i + 1)))
        most = min(known, longest) - 1
        one, n, best = _best(own, end.state, min(end.depth, most), allowed, here, eos, room)
        two, other, better = _best(others, state, min(depth, most), allowed, here, eos, room)
        if n + other == 0:
            continue
        while count + 1 + max(n, other) > len(whole):
            whole, real = np.concatenate((whole, whole)), np.concatenate((real, real))
        if better > best:
            _grow(others, two, other, here, eos, room)
            made = _write(others, room, text, known, whole[count:], real[count:])
        else:
            _grow(own, one, n, here, eos, room)
            made = _write(own, room, text, known, whole[count:], real[count:])
        sizes[i] = made
        count += made
    return sizes, whole[:count].copy(), real[:count].copy()


@compiled_part
def _best(
    a: Automaton,
    state: int,
    longest: int,
    allowed: np.ndarray,
    limits: Limits,
    eos: np.ndarray,
    room: Bed,
) -> tuple[int, int, Any]:
    """The match whose tree scores best, of all lengths up to the longest; see `suffix._best`.

    Returns:
        The match's state, the nodes that it allows and its tree's score: (0, 0, 0) if there is
        none.
    """
    states = a.states
    best = np.float32(0)
    at, nodes = 0, 0
    while state > 0:
        shortest = states[states[state, LINK], LENGTH] + 1
        if states[state, FIRST] > 0 and limits.deepest > 0:
            most = 0
            for m in range(shortest, longest + 1):
                most = max(most, allowed[m])
            if most > best:  # no probability is more than 1
                score = _grow(a, state, most, limits, eos, room)
                if score > best:
                    at, nodes, best = state, most, score
        longest = min(longest, shortest - 1)
        state = states[state, LINK]
    return at, nodes, best


@compiled_part
def _grow(a: Automaton, state: int, budget: int, limits: Limits, eos: np.ndarray, room: Bed) -> Any:
    """Choose the likeliest nodes behind a match, one after another; the sum of their chances."""
    node = room.node
    node[0, :] = 0
    node[0, _STATE], node[0, _ABOVE] = state, NONE
    room.total[0], room.chance[0], room.number[0] = 0.0, np.float32(1), 0
    made = _bear(a, room, 0, 1, limits)
    n_front = made - 1
    for k in range(n_front):
        room.front[k] = k + 1
    chosen, score = 0, np.float32(0)
    while chosen < budget and n_front > 0:
        best = 0
        for k in range(1, n_front):
            if _is_before(room, room.front[k], room.front[best]):
                best = k
        this = room.front[best]
        n_front -= 1
        room.front[best] = room.front[n_front]
        chosen += 1
        room.number[this] = chosen
        score += room.chance[this]
        if node[this, _LEVEL] >= limits.deepest or _is_in(eos, node[this, _BY]):
            continue
        born = _bear(a, room, this, made, limits)
        for k in range(made, born):
            room.front[n_front] = k
            n_front += 1
        made = born
    return score


@compiled_part
def _bear(a: Automaton, room: Bed, parent: int, made: int, limits: Limits) -> int:
    """Give a node its likeliest children; how many nodes there are then."""
    states, node = a.states, room.node
    state = np.int64(node[parent, _STATE])
    n, many = states[state, COUNT], 0
    edge = np.int64(states[state, FIRST])
    while edge > 0 and many < limits.width:
        token, child, edge = edge_of(a, edge)
        if room.total[parent] + np.float64(_log_of(states[child, COUNT], n)) < limits.least:
            break  # those behind it are counted no more often
        node[made + many, _STATE], node[made + many, _BY] = child, token
        many += 1
    for rank in range(many):
        k, mine = made + rank, states[node[made + rank, _STATE], COUNT]
        node[k, _ABOVE], node[k, _LEVEL] = parent, node[parent, _LEVEL] + 1
        node[k, _AMONG], node[k, _FIRST], node[k, _MANY] = rank, NONE, 0
        room.log_prob[k] = _log_of(mine, n)
        room.total[k] = room.total[parent] + np.float64(room.log_prob[k])
        room.chance[k] = room.chance[parent] * (np.float32(mine) / np.float32(n))
        room.number[k] = NONE
    node[parent, _FIRST], node[parent, _MANY] = made, many
    return made + many


@compiled_part
def _log_of(count: int, n: int) -> Any:
    """Logarithm of a share, float32, rounded up, so that what is likely enough stays so."""
    if count == 0:
        return np.float32(-np.inf)
    exact = math.log(count / n)
    found = np.float32(exact)
    if np.float64(found) < exact:
        found = np.nextafter(found, np.float32(0))
    return found


@compiled_part
def _is_before(room: Bed, one: int, other: int) -> bool:
    """Whether a node is chosen before another: by total, then level, then rank path."""
    if room.total[one] != room.total[other]:
        return room.total[one] > room.total[other]
    node = room.node
    if node[one, _LEVEL] != node[other, _LEVEL]:
        return node[one, _LEVEL] < node[other, _LEVEL]
    while node[one, _ABOVE] != node[other, _ABOVE]:
        one, other = node[one, _ABOVE], node[other, _ABOVE]
    return node[one, _AMONG] < node[other, _AMONG]


@compiled_part
def _write(
    a: Automaton,
    room: Bed,
    text: np.ndarray,
    known: int,
    whole: np.ndarray,
    real: np.ndarray,
) -> int:
    """Write down the nodes that were chosen, in order; how many."""
    node, front = room.node, room.front
    front[0], made = 0, 1
    _put(whole, real, 0, NONE, 0, 0)
    whole[0, _TOKEN], whole[0, _PATH], real[0, _LOG_PROB] = text[known - 1], 1, 0
    at = 0
    while at < made:
        this = front[at]
        above = node[this, _FIRST]
        for k in range(above, above + node[this, _MANY]):
            if room.number[k] < 0:
                continue
            token, place = node[k, _BY], known + node[this, _LEVEL]
            is_there = whole[at, _PATH] > 0 and place < len(text) and text[place] == token
            _put(whole, real, made, at, node[k, _LEVEL], node[k, _AMONG])
            whole[made, _TOKEN], whole[made, _PATH] = token, is_there
            real[made, _LOG_PROB] = room.log_prob[k]
            if node[k, _AMONG] == 0:
                real[at, _TOP1] = math.exp(room.log_prob[k])
                real[at, _ENTROPY] = _entropy(a, np.int64(node[this, _STATE]))
            front[made] = k
            made += 1
        at += 1
    return made


@compiled_part
def _put(whole: np.ndarray, real: np.ndarray, at: int, parent: int, depth: int, rank: int) -> None:
    whole[at, _PARENT], whole[at, _DEPTH], whole[at, _RANK] = parent, depth, rank
    real[at, _ENTROPY], real[at, _TOP1] = np.nan, np.nan


@compiled_part
def _entropy(a: Automaton, state: int) -> Any:
    """Of what comes behind a state by its counts, its end among it; nats."""
    n = a.states[state, COUNT]
    rest, entropy = n, 0.0
    edge = np.int64(a.states[state, FIRST])
    while edge > 0:
        _, child, edge = edge_of(a, edge)
        mine = a.states[child, COUNT]
        rest -= mine
        if mine > 0:
            entropy -= mine / n * math.log(mine / n)
    if rest > 0:
        entropy -= rest / n * math.log(rest / n)
    return entropy


@compiled_part
def _is_in(some: np.ndarray, token: int) -> bool:
    for other in some:
        if other == token:
            return True
    return False
