"""Sums over a vocabulary, of values in the rows' precision, in float64; on the host compiled.

There torch would write the products, and then all of them again as float64, to memory, and take 20
times as long for a standard deviation. And of the ten largest it looks for, only the blocks with
the ten largest maxima can hold any.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from torch import Tensor

from traces.kernels import compiled, compiled_part

_BLOCK = 32  # values


def of_products(a: Tensor, b: Tensor) -> Tensor:
    """sum_k a_k b_k of each row (N,), float64, of a and b (N, V)."""
    if a.device.type != "cpu":
        return (a * b).sum(-1, dtype=torch.float64)
    return _summed(_products, a, b)


def of_least(a: Tensor, b: Tensor) -> Tensor:
    """sum_k min(a_k, b_k) of each row (N,), float64, of a and b (N, V)."""
    if a.device.type != "cpu":
        return torch.minimum(a, b).sum(-1, dtype=torch.float64)
    return _summed(_least, a, b)


def largest(values: Tensor, n: int) -> Tensor:
    """The n largest of each row, or all, from the largest down (N, n), of values (N, V)."""
    size = values.shape[-1]
    if values.device.type != "cpu" or size % _BLOCK or size // _BLOCK < n:
        return values.topk(min(n, size), -1).values
    out = torch.empty(len(values), n, dtype=values.dtype)
    _largest(values.detach().contiguous().numpy(), out.numpy())
    return out


def deviation(values: Tensor) -> Tensor:
    """The standard deviation of each row (N,), in the values' precision, of values (N, V)."""
    if values.device.type != "cpu":
        return values.std(-1)
    return _summed(_squares, values).div(values.shape[-1] - 1).sqrt().to(values.dtype)


def _summed(kernel: Callable, *rows: Tensor) -> Tensor:
    out = torch.empty(len(rows[0]), dtype=torch.float64)
    kernel(*(x.detach().contiguous().numpy() for x in rows), out.numpy())
    return out


_in_any_order = partial(compiled, any_order=True)


@_in_any_order
def _products(a: np.ndarray, b: np.ndarray, out: np.ndarray) -> None:
    """Write the sums (N,) of the products of a and b (N, V)."""
    for n in range(len(a)):
        total = 0.0
        for k in range(a.shape[1]):
            total += np.float64(a[n, k] * b[n, k])
        out[n] = total


@_in_any_order
def _squares(a: np.ndarray, out: np.ndarray) -> None:
    """Write the sums (N,) of squares of a (N, V) around each row's mean."""
    for n in range(len(a)):
        total = 0.0
        for k in range(a.shape[1]):
            total += np.float64(a[n, k])
        mean, total = total / a.shape[1], 0.0
        for k in range(a.shape[1]):
            total += (np.float64(a[n, k]) - mean) ** 2
        out[n] = total


@_in_any_order
def _least(a: np.ndarray, b: np.ndarray, out: np.ndarray) -> None:
    """Write the sums (N,) of the lesser of a and b (N, V)."""
    for n in range(len(a)):
        total = 0.0
        for k in range(a.shape[1]):
            total += np.float64(min(a[n, k], b[n, k]))
        out[n] = total


@_in_any_order
def _largest(values: np.ndarray, out: np.ndarray) -> None:
    """Write the largest values of each row (N, n), of a multiple of `_BLOCK` (N, V)."""
    n_blocks = values.shape[1] // _BLOCK
    most = np.empty(n_blocks, values.dtype)
    for row, found in zip(values, out):  # noqa: B905 (numba's zip has no `strict`)
        found[:] = -np.inf
        for k in range(n_blocks):
            best = row[k * _BLOCK]
            for i in range(k * _BLOCK + 1, (k + 1) * _BLOCK):
                best = max(best, row[i])
            most[k] = best
            _put(found, best)
        least = found[-1]  # of the blocks' largest: no block below it holds any
        found[:] = -np.inf
        for k in range(n_blocks):
            if most[k] >= least:
                for i in range(k * _BLOCK, (k + 1) * _BLOCK):
                    _put(found, row[i])


@compiled_part
def _put(found: np.ndarray, value: float) -> None:
    """Put a value among the largest, which descend, if it is one of them."""
    k = len(found) - 1
    if value <= found[k]:
        return
    while k and found[k - 1] < value:
        found[k] = found[k - 1]
        k -= 1
    found[k] = value
