"""Counts of all substrings of a growing text, in room that is linear in its length.

A suffix automaton (Blumer et al., 1985): a state stands for all substrings that end at the same
places, so they have one count and the same continuations. Paths from the root spell the substrings
of the text; a state's suffix link leads to its longest suffixes that end elsewhere too. To append a
token, the states of all suffixes are counted once more: not one by each length, but one by each
set of places, mostly few.

Substrings longer than a depth D are never asked for, so suffixes up to D are counted only. Several
texts may be appended one after another; no substring reaches from one into the next.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from traces.kernels import compiled, compiled_part

# Columns of states: the longest substring's length, the suffix link (root: -1), the count, the
# first edge (0: none), and the child that is counted most: its state (0: none) and token.
LENGTH, LINK, COUNT, EDGE, CHILD, TOKEN = range(6)
# Columns of edges: whose they are, the token, where they lead, and the next one of the same state.
_SOURCE, _BY, _TARGET, _NEXT = range(4)
_N_STATES, _N_EDGES = range(2)

_A = np.uint64(0x9E3779B97F4A7C15)
_B = np.uint64(0xC2B2AE3D27D4EB4F)
_HALF = np.uint64(32)
_ONE = np.uint64(1)


class Automaton(NamedTuple):
    """A suffix automaton; state 0 is the root, edge 0 does not exist.

    Attributes:
        states: (s, 6) int32.
        edges: (e, 4) int32.
        table: edges by state and token, open addressing, 0 for none: (2^k,) int32.
        used: how many states and edges there are, (2,) int64.
    """

    states: np.ndarray
    edges: np.ndarray
    table: np.ndarray
    used: np.ndarray


class End(NamedTuple):
    """Where a text ends in its automaton.

    Attributes:
        last: state of the whole text.
        state: that of its last `depth` tokens.
        depth: how many, D at most.
    """

    last: int
    state: int
    depth: int


def automaton(n_tokens: int) -> Automaton:
    """An empty one with room for so many tokens."""
    out = Automaton(
        np.empty((2 * n_tokens + 1, 6), np.int32),  # pages that are not used cost nothing
        np.empty((3 * n_tokens + 1, 4), np.int32),
        np.zeros(_places(3 * n_tokens), np.int32),
        np.array([1, 1]),
    )
    out.states[0] = (0, -1, 0, 0, 0, 0)
    out.edges[0] = 0
    return out


def with_room(old: Automaton, n_tokens: int) -> Automaton:
    """The same automaton, or one twice as large, in which so many tokens more have room."""
    n_states, n_edges = old.used
    if n_states + 2 * n_tokens <= len(old.states) and n_edges + 3 * n_tokens <= len(old.edges):
        return old
    states = np.empty((2 * (n_states + 2 * n_tokens), 6), np.int32)
    edges = np.empty((2 * (n_edges + 3 * n_tokens), 4), np.int32)
    states[:n_states] = old.states[:n_states]
    edges[:n_edges] = old.edges[:n_edges]
    new = Automaton(states, edges, np.zeros(_places(len(edges)), np.int32), old.used)
    _enter_all(new)
    return new


def _places(n_edges: int) -> int:
    """Size of the table: a power of two, filled to three quarters at most."""
    return 1 << max(2, (n_edges * 4 // 3).bit_length())


@compiled_part
def start() -> End:
    """The end of a text that is yet empty."""
    return End(0, 0, 0)


@compiled_part
def append(a: Automaton, end: End, token: int, deepest: int) -> End:
    """Append a token to the text that ends there, and count its suffixes of up to D tokens."""
    states = a.states
    last, split, clone = _extend(a, end.last, token)
    before = end.state
    if clone > 0 and before == split and end.depth <= states[clone, LENGTH]:
        before = clone
    state = target(a, before, token)
    depth = end.depth + 1
    if depth > deepest:
        depth = deepest
        if states[states[state, LINK], LENGTH] >= depth:
            state = states[state, LINK]
    k = state
    while k > 0:
        states[k, COUNT] += 1
        k = states[k, LINK]
    _count_children(a, before, end.depth, state, token)
    return End(last, state, depth)


@compiled_part
def step(a: Automaton, state: int, depth: int, token: int, deepest: int) -> tuple[int, int]:
    """The state and length of a text's longest suffix in the automaton, one token on; D at most."""
    states = a.states
    to = target(a, state, token)
    while to == 0 and state > 0:
        state = states[state, LINK]
        depth = states[state, LENGTH]
        to = target(a, state, token)
    if to == 0:
        return 0, 0
    depth = min(depth + 1, deepest)
    while states[states[to, LINK], LENGTH] >= depth:
        to = states[to, LINK]
    return to, depth


@compiled_part
def target(a: Automaton, state: int, token: int) -> Any:
    """Where a state's edge by a token leads; 0 if there is none."""
    return np.int64(a.edges[a.table[_place(a, state, token)], _TARGET])


@compiled_part
def edge_of(a: Automaton, edge: int) -> tuple[Any, Any, Any]:
    """An edge's token, the state that it leads to, and the next edge of its state; 0: none."""
    return (
        np.int64(a.edges[edge, _BY]),
        np.int64(a.edges[edge, _TARGET]),
        np.int64(a.edges[edge, _NEXT]),
    )


@compiled_part
def _count_children(a: Automaton, before: int, depth: int, state: int, token: int) -> None:
    """Note the child by this token where none is counted more, at all suffixes before it.

    Args:
        a: after the token, its counts included.
        before: the state of the suffix of `depth` tokens before it.
        depth: see there.
        state: that of the suffix that is one token longer, or of D tokens.
        token: the new one.
    """
    states = a.states
    child = state
    while before > 0:
        while states[states[child, LINK], LENGTH] > depth:
            child = states[child, LINK]
        best = states[before, CHILD]
        if best == 0 or states[child, COUNT] >= states[best, COUNT]:
            states[before, CHILD] = child
            states[before, TOKEN] = token
        before = states[before, LINK]
        depth = states[before, LENGTH]


@compiled_part
def _extend(a: Automaton, last: int, token: int) -> tuple[int, int, int]:
    """Add the substrings that end with a new token.

    Returns:
        The state of the whole text, and the state that was split with its clone, (…, 0, 0) if none
        was.
    """
    states = a.states
    known = target(a, last, token)
    if known > 0:  # in an earlier text
        if states[known, LENGTH] == states[last, LENGTH] + 1:
            return known, 0, 0
        clone = _split(a, last, token, known)
        return clone, known, clone
    new = _state(a, states[last, LENGTH] + 1)
    known = 0
    while last >= 0 and known == 0:
        known = target(a, last, token)
        if known == 0:
            _connect(a, last, token, new)
            last = states[last, LINK]
    if known == 0:
        states[new, LINK] = 0
        return new, 0, 0
    if states[known, LENGTH] == states[last, LENGTH] + 1:
        states[new, LINK] = known
        return new, 0, 0
    clone = _split(a, last, token, known)
    states[new, LINK] = clone
    return new, known, clone


@compiled_part
def _split(a: Automaton, last: int, token: int, known: int) -> int:
    """Give the shorter substrings of a state, those up to `last` and a token, one of their own."""
    states, edges = a.states, a.edges
    clone = _state(a, states[last, LENGTH] + 1)
    for column in (LINK, COUNT, CHILD, TOKEN):
        states[clone, column] = states[known, column]
    edge = states[known, EDGE]
    while edge > 0:
        _connect(a, clone, np.int64(edges[edge, _BY]), np.int64(edges[edge, _TARGET]))
        edge = edges[edge, _NEXT]
    states[known, LINK] = clone
    while last >= 0:
        edge = a.table[_place(a, last, token)]
        if edges[edge, _TARGET] != known:
            break
        edges[edge, _TARGET] = clone
        if states[last, CHILD] == known:
            states[last, CHILD] = clone
        last = states[last, LINK]
    return clone


@compiled_part
def _state(a: Automaton, length: int) -> int:
    new = a.used[_N_STATES]
    a.used[_N_STATES] += 1
    a.states[new] = 0
    a.states[new, LENGTH] = length
    return new


@compiled_part
def _connect(a: Automaton, source: int, token: int, to: int) -> None:
    """Add an edge."""
    new = a.used[_N_EDGES]
    a.used[_N_EDGES] += 1
    a.edges[new, _SOURCE] = source
    a.edges[new, _BY] = token
    a.edges[new, _TARGET] = to
    a.edges[new, _NEXT] = a.states[source, EDGE]
    a.states[source, EDGE] = new
    a.table[_place(a, source, token)] = new


@compiled_part
def _place(a: Automaton, state: int, token: int) -> Any:
    """Where the table has the edge of a state by a token, or a free place for it."""
    mask = np.uint64(len(a.table) - 1)
    mixed = (np.uint64(state) * _A) ^ (np.uint64(token) * _B)
    place = (mixed ^ (mixed >> _HALF)) * _A
    place = (place ^ (place >> _HALF)) & mask
    edge = a.table[place]
    while edge > 0 and (a.edges[edge, _SOURCE] != state or a.edges[edge, _BY] != token):
        place = (place + _ONE) & mask
        edge = a.table[place]
    return np.int64(place)


@compiled
def _enter_all(a: Automaton) -> None:
    """Enter all edges into an empty table."""
    for edge in range(1, a.used[_N_EDGES]):
        source, token = a.edges[edge, _SOURCE], a.edges[edge, _BY]
        a.table[_place(a, np.int64(source), np.int64(token))] = edge
