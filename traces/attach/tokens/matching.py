"""Where the last n tokens stood before, from every start of a sequence in one pass for each n.

A table (open addressing, at most half full) holds for each n-gram that was seen where its first, or
its last, occurrence ends. An entry counts only where the tokens themselves are equal, so n-grams
that share a place in the table are never taken for one another.
"""

from __future__ import annotations

import numpy as np

from traces.attach.tokens.arguments import Given
from traces.attach.tokens.proposals import Slices
from traces.kernels import compiled, compiled_part

_BASE = np.uint64(0x5851F42D4C957F2D)  # of the rolling hash; any odd number does
_SPREAD = np.uint64(0x9E3779B97F4A7C15)
_ONE = np.uint64(1)


def matched(
    given: Given, sizes: tuple[int, int], leftmost: bool, length: int, with_eos: bool
) -> Slices:
    """Drafts that follow a match of the last n known tokens, from all starts.

    Args:
        given: prompt and output.
        sizes: the smallest and the largest n; the largest that has a match counts.
        leftmost: take the first match, not the last before the end.
        length: tokens of a draft at most; it ends with what is known, and T_max - i tokens are the
            most from start i.
        with_eos: whether a draft, which ends at the first EOS token, holds that one.
    """
    begins = _begins(given.text, given.n_prompt, sizes[0], sizes[1], leftmost)
    lengths, accepted = cut(given, begins, length, with_eos)
    return Slices(lengths, accepted, None, given.text, begins)


def latest(text: np.ndarray, n: int) -> np.ndarray:
    """Where the last match of the last n tokens ends, by the number of known tokens, 0 … L - 1.

    Args:
        text: int32, (L,).
        n: tokens that are looked for.

    Returns:
        (L,) int32, 0 where there is none; at least one known token stands behind a match.
    """
    return _begins(text, 0, n, n, False)


@compiled
def _begins(text: np.ndarray, n_prompt: int, least: int, most: int, leftmost: bool) -> np.ndarray:
    """Ends of the matches, by start; 0 where there is none: (T,) int32."""
    found = np.zeros(len(text), np.int32)  # by the number of known tokens
    size = 4
    while size < 2 * len(text):
        size *= 2
    for n in range(min(most, len(text) - 1), least - 1, -1):
        _look_up(text, n, leftmost, np.zeros(size, np.int32), found)
    return found[n_prompt:].copy()


@compiled_part
def _look_up(
    text: np.ndarray, n: int, leftmost: bool, table: np.ndarray, found: np.ndarray
) -> None:
    """Fill in the matches of n-grams where no longer one has any.

    Where one has, this one's first occurrence is in the table: it came no later.
    """
    mask = np.uint64(len(table) - 1)
    shift = np.uint64(64)  # leaves as many bits as a place in the table has
    size = len(table)
    while size > 1:
        size //= 2
        shift -= _ONE
    out = _ONE  # what a token adds once it has left the window
    for _ in range(n):
        out *= _BASE
    state = np.uint64(0)
    for k in range(n - 1):
        state = state * _BASE + np.uint64(text[k])
    for end in range(n, len(text)):
        state = state * _BASE + np.uint64(text[end - 1])
        if end > n:
            state -= out * np.uint64(text[end - 1 - n])
        if leftmost and found[end] > 0:
            continue
        place = (state * _SPREAD) >> shift
        while table[place] > 0 and not _equal(text, table[place], end, n):
            place = (place + _ONE) & mask
        if table[place] > 0 and found[end] == 0:
            found[end] = table[place]
        if table[place] == 0 or not leftmost:
            table[place] = end


@compiled_part
def _equal(text: np.ndarray, end: int, other: int, n: int) -> bool:
    for k in range(1, n + 1):
        if text[end - k] != text[other - k]:
            return False
    return True


@compiled
def cut(
    given: Given, begins: np.ndarray, length: int, with_eos: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Lengths of the drafts that begin there, and how many of their tokens the output has.

    Args:
        given: prompt and output.
        begins: where the draft of each start begins, (T,) int32; 0 is no draft.
        length: see `matched`.
        with_eos: see `matched`.

    Returns:
        (T,) int32 both.
    """
    text, n_prompt, eos, max_new_tokens = given
    lengths = np.zeros(len(begins), np.int32)
    accepted = np.zeros(len(begins), np.int32)
    next_eos = _next_eos(text, eos)
    for i in range(len(begins)):
        begin = begins[i]
        if begin == 0:
            continue
        known = n_prompt + i
        room = max(0, min(length, known - begin, max_new_tokens - (i + 1)))
        if len(eos) > 0 and next_eos[begin] - begin < room:
            room = next_eos[begin] - begin + with_eos
        lengths[i] = room
        k = 0
        while k < min(room, len(text) - known) and text[begin + k] == text[known + k]:
            k += 1
        accepted[i] = k
    return lengths, accepted


@compiled_part
def _next_eos(text: np.ndarray, eos: np.ndarray) -> np.ndarray:
    """Index of the first EOS token from each index on, the text's length if there is none."""
    if len(eos) == 0:
        return np.empty(0, np.int32)
    out = np.empty(len(text), np.int32)
    here = len(text)
    for k in range(len(text) - 1, -1, -1):
        for token in eos:
            if text[k] == token:
                here = k
        out[k] = here
    return out
