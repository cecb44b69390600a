"""The Triton kernel behind `traces.record.statistics_triton`; importable only where Triton is.

One program takes one row and sweeps over its logits twice. The first sweep reads them from memory
and sums relative to a reference that lies close to the row's largest logit, so that no sum has to
be rescaled while it runs. The second needs the normalisers, for the overlap alone, and finds the
row in the L2 cache as long as the rows in flight fit there. Exponentials are powers of two.
"""

from __future__ import annotations

import triton  # pyright: ignore[reportMissingImports]
import triton.language as tl  # pyright: ignore[reportMissingImports]

_LEAST = tl.constexpr(-1.0e30)  # stands for -inf in products with a probability of zero
_SLACK = tl.constexpr(23.0)  # bits (16 nats) that the reference may lie below the largest logit
_TOP = tl.constexpr(10)
_LOG2_E = tl.constexpr(1.4426950408889634)
_LN_2 = tl.constexpr(0.6931471805599453)


@triton.jit
def _add(a0, a1, a2, a3, a4, b0, b1, b2, b3, b4):
    return a0 + b0, a1 + b1, a2 + b2, a3 + b3, a4 + b4


@triton.jit
def _load(row_ptr, start, size, MASKED: tl.constexpr, BLOCK: tl.constexpr):
    index = start + tl.arange(0, BLOCK)
    if MASKED:
        x = tl.load(row_ptr + index, mask=index < size, other=float("-inf"))
    else:
        x = tl.load(row_ptr + index)
    return x.to(tl.float32)


@triton.jit
def _step(
    state, p_row, q_row, start, size, p_ref, q_ref,
    HAS_P: tl.constexpr, MASKED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One block of the first sweep. References are in bits, logits in nats."""
    first, second, third, q_at, p_first, p_at, q_mass, q_moment, p_mass, p_moment, cross = state
    b = _load(q_row, start, size, MASKED, BLOCK)
    q_at = tl.where(b > first, start, q_at)
    less = tl.minimum(first, b)
    first = tl.maximum(first, b)
    third = tl.maximum(third, tl.minimum(second, less))
    second = tl.maximum(second, less)
    q_d = tl.maximum(b * _LOG2_E - q_ref, _LEAST)
    q_e = tl.exp2(q_d)
    q_mass += q_e
    q_moment += q_e * q_d
    if HAS_P:
        a = _load(p_row, start, size, MASKED, BLOCK)
        p_at = tl.where(a > p_first, start, p_at)
        p_first = tl.maximum(p_first, a)
        p_d = tl.maximum(a * _LOG2_E - p_ref, _LEAST)
        p_e = tl.exp2(p_d)
        p_mass += p_e
        p_moment += p_e * p_d
        cross += q_e * p_d
    return first, second, third, q_at, p_first, p_at, q_mass, q_moment, p_mass, p_moment, cross


@triton.jit
def _first_sweep(
    p_row, q_row, size, p_ref, q_ref,
    HAS_P: tl.constexpr, BLOCK: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Per lane: the three largest q logits, the largest p logit, where the largest are, five sums.

    With d = log2(e)·logit − reference the sums are Σ 2^d and Σ 2^d·d of q and of p, and
    Σ 2^(d of q)·(d of p), each in float32 over a lane's tokens (a few dozen to a few hundred).
    """
    none = tl.full([BLOCK], float("-inf"), tl.float32)
    zero = tl.zeros([BLOCK], tl.float32)
    place = tl.zeros([BLOCK], tl.int32)
    state = (none, none, none, place, none, place, zero, zero, zero, zero, zero)
    whole = size // BLOCK * BLOCK
    for start in tl.range(0, whole, BLOCK, num_stages=STAGES):
        state = _step(state, p_row, q_row, start, size, p_ref, q_ref, HAS_P, False, BLOCK)
    if whole < size:
        state = _step(state, p_row, q_row, whole, size, p_ref, q_ref, HAS_P, True, BLOCK)
    return state


@triton.jit
def _ranks(first, second, third, size, q_norm, BLOCK: tl.constexpr):
    """Second likeliest probability, mass of the ten likeliest, and whether both are sure.

    They are, unless some lane's third largest logit is among the ten.
    """
    lane = tl.arange(0, BLOCK)
    second_prob = 0.0
    mass = 0.0
    value = float("-inf")
    for k in tl.static_range(_TOP):
        value, holder = tl.max(first, axis=0, return_indices=True)
        prob = tl.exp2(value * _LOG2_E - q_norm)
        mass += prob
        if k == 1:
            second_prob = prob
        taken = lane == holder
        first = tl.where(taken, second, first)
        second = tl.where(taken, float("-inf"), second)
    return second_prob, mass, tl.max(third, axis=0) <= value


@triton.jit
def _slow_ranks(q_row, size, q_norm, BLOCK: tl.constexpr):
    """As `_ranks`, for any row: ten sweeps, each for the next value and how often it is there."""
    below = float("inf")
    mass = 0.0
    second_prob = 0.0
    rank = 0
    for _ in range(10):
        top = tl.full([BLOCK], float("-inf"), tl.float32)
        for start in range(0, size, BLOCK):
            b = _load(q_row, start, size, True, BLOCK)
            top = tl.maximum(top, tl.where(b < below, b, float("-inf")))
        value = tl.max(top, axis=0)
        count = tl.zeros([BLOCK], tl.int32)
        for start in range(0, size, BLOCK):
            count += (_load(q_row, start, size, True, BLOCK) == value).to(tl.int32)
        here = tl.minimum(tl.sum(count, axis=0), 10 - rank)
        prob = tl.exp2(value * _LOG2_E - q_norm)
        mass += prob * here
        if (rank < 2) & (rank + here >= 2):
            second_prob = prob
        rank += here
        below = value
    return second_prob, mass


@triton.jit
def _overlap(
    p_row, q_row, size, p_norm, q_norm, BLOCK: tl.constexpr, STAGES: tl.constexpr
):  # fmt: skip
    """The second sweep: Σ min(p, q)."""
    sums = tl.zeros([BLOCK], tl.float32)
    whole = size // BLOCK * BLOCK
    for start in tl.range(0, whole, BLOCK, num_stages=STAGES):
        a = _load(p_row, start, size, False, BLOCK) * _LOG2_E - p_norm
        b = _load(q_row, start, size, False, BLOCK) * _LOG2_E - q_norm
        sums += tl.exp2(tl.minimum(a, b))
    if whole < size:
        a = _load(p_row, whole, size, True, BLOCK) * _LOG2_E - p_norm
        b = _load(q_row, whole, size, True, BLOCK) * _LOG2_E - q_norm
        sums += tl.exp2(tl.minimum(a, b))
    return tl.sum(sums, axis=0)


@triton.jit
def _lowest_id(values, starts, top, BLOCK: tl.constexpr):
    """The lowest id among the lanes that hold the largest logit."""
    return tl.min(tl.where(values == top, starts + tl.arange(0, BLOCK), 2147483647), axis=0)


@triton.jit
def row_kernel(
    p_ptr, q_ptr, token_ptr, floats_ptr, ids_ptr,
    p_stride, q_stride, size,
    HAS_P: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """All statistics of one row: WIDTH floats and two ids (likeliest of q, of p)."""
    row = tl.program_id(0).to(tl.int64)
    q_row = q_ptr + row * q_stride
    p_row = p_ptr + row * p_stride
    q_ref = tl.max(_load(q_row, 0, size, True, BLOCK), axis=0) * _LOG2_E
    p_ref = q_ref
    if HAS_P:
        p_ref = tl.max(_load(p_row, 0, size, True, BLOCK), axis=0) * _LOG2_E
    state = _first_sweep(p_row, q_row, size, p_ref, q_ref, HAS_P, BLOCK, STAGES)
    q_top = tl.max(state[0], axis=0)
    p_top = tl.max(state[4], axis=0)
    if (q_top * _LOG2_E - q_ref > _SLACK) | (p_top * _LOG2_E - p_ref > _SLACK):
        q_ref = q_top * _LOG2_E
        if HAS_P:
            p_ref = p_top * _LOG2_E
        state = _first_sweep(p_row, q_row, size, p_ref, q_ref, HAS_P, BLOCK, STAGES)
    first, second, third, q_at, p_first, p_at, q_mass, q_moment, p_mass, p_moment, cross = state
    q_mass, q_moment, p_mass, p_moment, cross = tl.reduce(
        (q_mass, q_moment, p_mass, p_moment, cross), 0, _add
    )
    q_bits = tl.log2(q_mass)
    q_norm = q_ref + q_bits
    second_prob, ten_mass, sure = _ranks(first, second, third, size, q_norm, BLOCK)
    if not sure:
        second_prob, ten_mass = _slow_ranks(q_row, size, q_norm, BLOCK)
    token = tl.load(token_ptr + row)
    out = floats_ptr + row * WIDTH
    tl.store(out + 0, q_norm * _LN_2)
    tl.store(out + 1, (q_bits - q_moment / q_mass) * _LN_2)
    tl.store(out + 2, tl.exp2(q_top * _LOG2_E - q_norm))
    tl.store(out + 3, second_prob)
    tl.store(out + 4, ten_mass)
    tl.store(out + 5, tl.exp2(tl.load(q_row + token).to(tl.float32) * _LOG2_E - q_norm))
    tl.store(ids_ptr + row * 2, _lowest_id(first, q_at, q_top, BLOCK))
    if HAS_P:
        p_bits = tl.log2(p_mass)
        p_norm = p_ref + p_bits
        tl.store(out + 6, p_norm * _LN_2)
        tl.store(out + 7, (p_bits - p_moment / p_mass) * _LN_2)
        tl.store(out + 8, (p_bits - cross / q_mass) * _LN_2)
        tl.store(out + 9, _overlap(p_row, q_row, size, p_norm, q_norm, BLOCK, STAGES))
        tl.store(out + 10, tl.exp2(p_top * _LOG2_E - p_norm))
        tl.store(out + 11, tl.exp2(tl.load(p_row + token).to(tl.float32) * _LOG2_E - p_norm))
        tl.store(ids_ptr + row * 2 + 1, _lowest_id(p_first, p_at, p_top, BLOCK))
