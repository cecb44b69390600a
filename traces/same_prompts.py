"""Which sequences answer the same prompt: one prompt may have been recorded several times."""

from __future__ import annotations

from hashlib import blake2b

import numpy as np
import pyarrow as pa

COLUMNS = ("sequence", "id", "task", "prompt_tokens")  # of `schema.SEQUENCES`, that tell prompts


def keys(table: pa.Table) -> np.ndarray:
    """What tells the prompts of sequences, (S,) uint64; copies of one prompt have the same.

    A prompt is told by its tokens; where these are not known, by task and id; without an id it is
    the only one of its kind. One token, as drawn traces have, is no prompt: that is not known.

    Args:
        table: of sequences, with `COLUMNS`.
    """
    tokens = table["prompt_tokens"].combine_chunks()
    ends, values = tokens.offsets.to_numpy(), tokens.values.to_numpy().astype(np.int32)
    names = zip(*(table[name].to_pylist() for name in COLUMNS[:-1]), strict=True)
    found = np.empty(len(tokens), np.uint64)
    for k, (sequence, name, task) in enumerate(names):
        said = b"tokens" + values[ends[k] : ends[k + 1]].tobytes()
        if ends[k + 1] - ends[k] < 2:
            said = repr((task, name) if name is not None else sequence).encode()
        found[k] = int.from_bytes(blake2b(said, digest_size=8).digest())
    return found


def numbers(told: np.ndarray) -> np.ndarray:
    """Prompts numbered from 0 as they first appear, (S,) int64.

    Args:
        told: (S,), the same for copies of one prompt: `keys`, or some of a trace's numbers.
    """
    _, first, which = np.unique(told, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[which]


def to_deal(told: np.ndarray) -> np.ndarray:
    """`numbers` by which prompts are dealt out, so that copies of one stay together.

    Where all are copies of one prompt, its outputs are what was sampled: each counts for itself.

    Args:
        told: see `numbers`.
    """
    found = numbers(told)
    return found if found.any() else np.arange(len(found))
