"""Counts of all substrings of a growing text, in room that is linear in its length.

A suffix automaton (Blumer et al., 1985): a state stands for all substrings that end at the same
places, so they have one count and the same continuations. Paths from the root spell the substrings
of the text; a state's suffix link leads to its longest suffixes that end elsewhere too. To append a
token, the states of all suffixes are counted once more: not one by each length, but one by each
set of places, mostly few.

Substrings longer than a depth D are never asked for, so suffixes up to D are counted only. Several
texts may be appended one after another; no substring reaches from one into the next.

The children of a state are a list in order of their counts. Among equal counts the order is that of
ArcticInference's list: a new child goes to the end; a child that is counted once more goes in front
of those that have its new count if it was the first of those with its old one, and behind them if
not. Edges of equal counts are a group that knows its first edge, so that a move takes a few steps
however many there are.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from traces.kernels import compiled, compiled_part

# Columns of states: the longest substring's length, the suffix link (root: -1), the count, the
# first child's state (0: none) and token, and the first and last edge of the list of children.
LENGTH, LINK, COUNT, CHILD, TOKEN, FIRST, _LAST = range(7)
# Columns of edges: whose they are, the token, where they lead, the next one and the one before in
# the list, and the group (0: not counted yet, or an only child).
_SOURCE, _BY, _TARGET, _NEXT, _BEFORE, _GROUP = range(6)
_N_STATES, _N_EDGES, _N_GROUPS, _FREE = range(4)

_A = np.uint64(0x9E3779B97F4A7C15)
_B = np.uint64(0xC2B2AE3D27D4EB4F)
_HALF = np.uint64(32)
_ONE = np.uint64(1)


class Automaton(NamedTuple):
    """A suffix automaton; state 0 is the root, edge 0 does not exist.

    Attributes:
        states: (s, 7) int32.
        edges: (e, 6) int32.
        heads: (e,) int32, the first edge of each group; of a free group the next free one.
        table: edges by state and token, open addressing, 0 for none: (2^k,) int32.
        used: how many states, edges and groups there are, and the first free group: (4,) int64.
    """

    states: np.ndarray
    edges: np.ndarray
    heads: np.ndarray
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
        np.empty((2 * n_tokens + 1, 7), np.int32),  # pages that are not used cost nothing
        np.empty((3 * n_tokens + 1, 6), np.int32),
        np.empty(3 * n_tokens + 1, np.int32),
        np.zeros(_places(3 * n_tokens), np.int32),
        np.array([1, 1, 1, 0]),
    )
    out.states[0] = (0, -1, 0, 0, 0, 0, 0)
    out.edges[0] = 0
    return out


def with_room(old: Automaton, n_tokens: int) -> Automaton:
    """The same automaton, or one twice as large, in which so many tokens more have room."""
    n_states, n_edges = old.used[:2]
    if n_states + 2 * n_tokens <= len(old.states) and n_edges + 3 * n_tokens <= len(old.edges):
        return old
    states = np.empty((2 * (n_states + 2 * n_tokens), 7), np.int32)
    edges = np.empty((2 * (n_edges + 3 * n_tokens), 6), np.int32)
    heads = np.empty(len(edges), np.int32)
    states[:n_states] = old.states[:n_states]
    edges[:n_edges] = old.edges[:n_edges]
    heads[:n_edges] = old.heads[:n_edges]
    new = Automaton(states, edges, heads, np.zeros(_places(len(edges)), np.int32), old.used)
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
    _rank_children(a, before, token, deepest)
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
def _rank_children(a: Automaton, before: int, token: int, deepest: int) -> None:
    """Put the child by a token, counted once more, in its place: at all suffixes before it.

    Args:
        a: after the token, its counts included.
        before: the state of the longest suffix before it that may have children.
        token: the new one.
        deepest: D; substrings of D tokens have no children.
    """
    states = a.states
    while before > 0:
        edge = np.int64(states[before, FIRST])
        alone = edge == states[before, _LAST]
        if not alone and states[states[before, LINK], LENGTH] < deepest - 1:
            if states[before, TOKEN] != token:
                edge = np.int64(a.table[_place(a, before, token)])
            _rank(a, before, edge)
        before = states[before, LINK]


@compiled_part
def _rank(a: Automaton, state: int, edge: int) -> None:
    """Put an edge in its place in the list of a state, and into the group of its count."""
    edges, heads = a.edges, a.heads
    count, group = _count_at(a, edge), edges[edge, _GROUP]
    before, after = edges[edge, _BEFORE], edges[edge, _NEXT]
    if group == 0 and before > 0 and edges[before, _GROUP] == 0:
        _make_group(a, before)  # an only child until now
    if group > 0:
        stays = before == 0 or _count_at(a, before) > count
        if stays and (after == 0 or edges[after, _GROUP] != group):
            return  # alone with its count, before and now
        _leave(a, edge)
        if not stays:
            _move(a, state, edge, heads[edges[before, _GROUP]])
    before, after = edges[edge, _BEFORE], edges[edge, _NEXT]
    if before > 0 and _count_at(a, before) == count:
        edges[edge, _GROUP] = edges[before, _GROUP]
    elif after > 0 and _count_at(a, after) == count:
        edges[edge, _GROUP] = edges[after, _GROUP]
        heads[edges[edge, _GROUP]] = edge
    else:
        _make_group(a, edge)


@compiled_part
def _count_at(a: Automaton, edge: int) -> Any:
    """Count of the child to which an edge leads."""
    return a.states[a.edges[edge, _TARGET], COUNT]


@compiled_part
def _leave(a: Automaton, edge: int) -> None:
    """Take an edge out of its group; a group without edges is free."""
    edges, heads = a.edges, a.heads
    group, after = edges[edge, _GROUP], edges[edge, _NEXT]
    edges[edge, _GROUP] = 0
    if heads[group] != edge:
        return
    if after > 0 and edges[after, _GROUP] == group:
        heads[group] = after
    else:
        heads[group] = a.used[_FREE]
        a.used[_FREE] = group


@compiled_part
def _make_group(a: Automaton, edge: int) -> None:
    """Make a group of an edge alone."""
    group = a.used[_FREE]
    if group > 0:
        a.used[_FREE] = a.heads[group]
    else:
        group = a.used[_N_GROUPS]
        a.used[_N_GROUPS] += 1
    a.heads[group] = edge
    a.edges[edge, _GROUP] = group


@compiled_part
def _move(a: Automaton, state: int, edge: int, place: int) -> None:
    """Move an edge, not the first of the list, in front of another one before it."""
    states, edges = a.states, a.edges
    before, after = edges[edge, _BEFORE], edges[edge, _NEXT]
    edges[before, _NEXT] = after
    if after > 0:
        edges[after, _BEFORE] = before
    else:
        states[state, _LAST] = before
    before = edges[place, _BEFORE]
    edges[edge, _BEFORE], edges[edge, _NEXT] = before, place
    edges[place, _BEFORE] = edge
    if before > 0:
        edges[before, _NEXT] = edge
    else:
        _lead(a, state, edge)


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
    for column in (LINK, COUNT):
        states[clone, column] = states[known, column]
    edge, group = states[known, FIRST], 0
    while edge > 0:
        copy = _connect(a, clone, np.int64(edges[edge, _BY]), np.int64(edges[edge, _TARGET]))
        if edges[edge, _GROUP] > 0 and edges[edge, _GROUP] == group:
            edges[copy, _GROUP] = edges[edges[copy, _BEFORE], _GROUP]
        elif edges[edge, _GROUP] > 0:
            _make_group(a, copy)
        group = edges[edge, _GROUP]
        edge = edges[edge, _NEXT]
    states[known, LINK] = clone
    while last >= 0:
        edge = a.table[_place(a, last, token)]
        if edges[edge, _TARGET] != known:
            break
        edges[edge, _TARGET] = clone
        if states[last, FIRST] == edge:
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
def _connect(a: Automaton, source: int, token: int, to: int) -> Any:
    """Add an edge, the last of its state."""
    states, edges = a.states, a.edges
    new = a.used[_N_EDGES]
    a.used[_N_EDGES] += 1
    last = states[source, _LAST]
    edges[new, _SOURCE], edges[new, _BY], edges[new, _TARGET] = source, token, to
    edges[new, _NEXT], edges[new, _BEFORE], edges[new, _GROUP] = 0, last, 0
    if last > 0:
        edges[last, _NEXT] = new
    else:
        _lead(a, source, new)
    states[source, _LAST] = new
    a.table[_place(a, source, token)] = new
    return new


@compiled_part
def _lead(a: Automaton, state: int, edge: int) -> None:
    """Put an edge first in the list of a state."""
    row = a.states[state]
    row[FIRST], row[CHILD], row[TOKEN] = edge, a.edges[edge, _TARGET], a.edges[edge, _BY]


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
