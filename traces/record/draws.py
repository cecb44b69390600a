"""Keyed randomness: what a token is drawn with depends on what came before it, on nothing else.

A key is a function of (seed, sequence, position, the generated tokens before it). A counter-based
hash of a key and a token id gives independent streams: an Exp(1) variable for each token of the
draft's race, another for each token of the correction's race, one uniform for acceptance, and one
that chooses between an output's token and the draft's in a mixed text.
Whoever holds the key draws the same numbers: the recorder, a live decoder, on any device.

Keys are int64 tensors (torch has no unsigned arithmetic; sums and products wrap).
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from traces.record.draws_kernel import fill, win

DRAFT, CORRECTION, ACCEPT, MIXING = 1, 2, 3, 4  # the streams

_GOLDEN = -0x61C8864680B583EB  # 2^64 / golden ratio, as a signed number
_MIX_1 = -0x40A7B892E31B1A47  # splitmix64's multipliers (Steele, Lea and Flood 2014)
_MIX_2 = -0x6B2FB644ECCEEE15


def first_key(seed: int, sequence: Tensor) -> Tensor:
    """Keys of position 1 for sequences (int64, any shape), before any generated token."""
    start = torch.tensor(seed, device=sequence.device) * _GOLDEN
    return _mix(_mix(start) + _mix(sequence.long()))


def next_key(key: Tensor, token: Tensor) -> Tensor:
    """The key one position on, after `token` (int, the shape of `key`) was generated."""
    return _mix(key * 3 + _mix(token.long() + _GOLDEN))


def keys_along(first: Tensor, tokens: Tensor) -> Tensor:
    """Keys (B, T) of the positions of texts (B, T), given those of position 1 (B,)."""
    keys = [first]
    for token in tokens[:, :-1].unbind(1):
        keys.append(next_key(keys[-1], token))
    return torch.stack(keys, 1)


def by_start(key: Tensor, start: Tensor) -> Tensor:
    """Keys of what a draft draws that depends on where it starts (int, the shape of `key`)."""
    return _mix(key ^ _mix(start.long() + (1 << 50)))


def uniforms(key: Tensor, stream: int, vocab_size: int, ids: Tensor | None = None) -> Tensor:
    """One uniform in (0, 1) for each token of a race, float64, shape (*key.shape, vocab_size).

    Args:
        key: int64, any shape.
        stream: DRAFT or CORRECTION.
        vocab_size: tokens of the race.
        ids: of these tokens (vocab_size,); None for 0, 1, ….
    """
    if key.device.type != "cpu":
        ids = torch.arange(vocab_size, device=key.device) if ids is None else ids
        return _uniform(key[..., None], stream, ids)
    out = torch.empty(*key.shape, vocab_size, dtype=torch.float64)
    fill(*_flat(key, _words(stream, vocab_size, ids)), out.numpy().reshape(-1, vocab_size))
    return out


def _words(stream: int, vocab_size: int, ids: Tensor | None) -> Tensor:
    ids = torch.arange(vocab_size) if ids is None else ids
    return _mix(ids + (stream << 40))


def _flat(*words: Tensor) -> list[np.ndarray]:
    return [word.contiguous().numpy().view(np.uint64).reshape(-1) for word in words]


def uniform(key: Tensor, stream: int = ACCEPT) -> Tensor:
    """The uniform in (0, 1) of a stream (ACCEPT or MIXING), float64, the shape of `key`."""
    return _uniform(key, stream, torch.zeros((), dtype=torch.long, device=key.device))


def race(weights: Tensor, key: Tensor, stream: int, ids: Tensor | None = None) -> Tensor:
    """Sample columns by an exponential race: argmin E_k / w_k draws k with chance w_k / sum w.

    Args:
        weights: >= 0, not all zero, shape (*key.shape, V); they need not sum to one.
        key: int64.
        stream: DRAFT or CORRECTION.
        ids: of the columns (V,), which say their uniforms; None if they are ids.
    """
    if key.device.type != "cpu":
        return winner(weights, uniforms(key, stream, weights.shape[-1], ids))
    out = torch.empty(key.shape, dtype=torch.long)
    rows = weights.detach().expand(*key.shape, -1).reshape(-1, weights.shape[-1]).contiguous()
    win(*_flat(key, _words(stream, weights.shape[-1], ids)), rows.numpy(), out.view(-1).numpy())
    return out


def winner(weights: Tensor, numbers: Tensor) -> Tensor:
    """The ids (...) that win races whose uniforms (..., V) are given as numbers; see `race`."""
    return (weights / -torch.log(numbers)).argmax(-1)


def _uniform(key: Tensor, stream: int, ids: Tensor) -> Tensor:
    bits = _mix(key ^ _mix(ids + (stream << 40)))
    return (_shift(bits, 11).double() + 0.5) * 2.0**-53


def _mix(x: Tensor) -> Tensor:
    x = (x ^ _shift(x, 30)) * _MIX_1
    x = (x ^ _shift(x, 27)) * _MIX_2
    return x ^ _shift(x, 31)


def _shift(x: Tensor, n: int) -> Tensor:
    return (x >> n) & ((1 << (64 - n)) - 1)  # logical, where torch shifts arithmetically
