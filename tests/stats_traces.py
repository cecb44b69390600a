"""Rows for statistics: prompts of any lengths, some empty, and columns that fit together."""

import numpy as np
from hypothesis import strategies as st


def offsets_of(lengths):
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


@st.composite
def flags(draw, min_prompts=0, max_prompts=8, max_length=30):
    """accepted, offsets."""
    lengths = draw(st.lists(st.integers(0, max_length), min_size=min_prompts, max_size=max_prompts))
    n = sum(lengths)
    share = draw(st.sampled_from([0.0, 0.3, 0.8, 1.0]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    return rng.random(n) < share, offsets_of(lengths)


def ahead_of(accepted, offsets):
    """Tokens accepted in a row from each row on, by counting."""
    out = np.zeros(len(accepted), np.int32)
    for low, high in zip(offsets[:-1], offsets[1:], strict=True):
        run = 0
        for row in range(high - 1, low - 1, -1):
            run = run + 1 if accepted[row] else 0
            out[row] = run
    return out


def parts_of(found):
    """All numbers in a result, however nested."""
    if found is None or isinstance(found, str | bool | int):
        return []
    if isinstance(found, float):
        return [found]
    if isinstance(found, np.ndarray):
        return [float(value) for value in found.ravel()]
    if isinstance(found, dict):
        return [number for value in found.values() for number in parts_of(value)]
    if isinstance(found, list | tuple):
        return [number for value in found for number in parts_of(value)]
    return parts_of(vars(found))
