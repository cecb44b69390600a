"""Policies on two sides: how fast each is, and whether they rank them alike."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple

import numpy as np
from scipy.stats import rankdata

from analysis.compare.seconds import Seconds
from analysis.compare.sides import Prompts
from analysis.stats import Estimate, clusters
from analysis.stats.two_samples import between
from simkit.statistics.enough import few

ROUNDED = 9  # digits of a logarithm: what differs by less is rounding, and equal

Both = Mapping[str, tuple[Seconds, Seconds]]


class Rank(NamedTuple):
    """A policy's place, 1 for the fastest, equal ones the same.

    Attributes:
        value: on all prompts.
        lo: the percentile interval over resamples of prompts; None for fewer than two prompts.
        hi: its upper end.
    """

    value: int
    lo: int | None
    hi: int | None


@dataclass(frozen=True)
class Ranked:
    """A policy on two sides.

    Attributes:
        name: its spec.
        settings: what was replayed on each; of a family, the fastest on all prompts.
        first: its speedup over the target alone on the one.
        second: on the other.
        ratio: the second speedup ÷ the first.
        ranks: its place on each.
    """

    name: str
    settings: tuple[str, str]
    first: Estimate
    second: Estimate
    ratio: Estimate
    ranks: tuple[Rank, Rank]


class Order(NamedTuple):
    """Two policies' order on two sides.

    Attributes:
        one: a policy.
        other: another.
        faster: which of them is on each side; None where they are equal.
        same: the share of resamples in which both sides order them alike; None for fewer than two
            prompts.
    """

    one: str
    other: str
    faster: tuple[str | None, str | None]
    same: float | None

    @property
    def alike(self) -> bool:
        """Whether the sides order them alike on all prompts."""
        return self.faster[0] == self.faster[1]


@dataclass(frozen=True)
class Ranking:
    """Policies on two sides, the first side's fastest first.

    Attributes:
        tuned: whether each is a family, tuned on other prompts.
        rows: the policies.
        orders: of each two of them.
        tau: Kendall's τ-b between the two rankings; its interval is that of percentiles, for τ
            jumps where two policies change places.
    """

    tuned: bool
    rows: tuple[Ranked, ...]
    orders: tuple[Order, ...]
    tau: Estimate


def ranking(found: Both, prompts: Prompts, tuned: bool, confidence: float) -> Ranking:
    """Compare policies' speeds and places.

    Args:
        found: seconds on both sides, by policy; at least one.
        prompts: on which they are compared.
        tuned: see `Ranking`.
        confidence: of the intervals.
    """
    logs = _logs(found, prompts)
    signs = [_signs(side) for side in logs]
    places = [_places(side) for side in logs]
    n = min(map(len, prompts.each))
    rows = [
        Ranked(
            name,
            (one.setting, other.setting),
            _speedup(one, confidence),
            _speedup(other, confidence),
            _ratio(one, other, prompts, confidence),
            (_rank(places[0][:, k], n, confidence), _rank(places[1][:, k], n, confidence)),
        )
        for k, (name, (one, other)) in enumerate(found.items())
    ]
    order = sorted(range(len(rows)), key=lambda k: (rows[k].ranks[0].value, k))
    orders, tau = _orders(list(found), signs, n), _tau(signs, n, confidence)
    return Ranking(tuned, tuple(rows[k] for k in order), orders, tau)


def _logs(found: Both, prompts: Prompts) -> list[np.ndarray]:
    """Logarithms of the speedups on each side, (1 + B, K): on all prompts, then on resamples.

    Resample b has draw d(b) of the times on both sides: sides that share their times share it.
    """
    sums = _sums(found, 0), _sums(found, 1)
    parts = list(prompts.pairing.draws(*sums))
    made = []
    for side in (0, 1):
        drawn = np.concatenate([sums[side].sum(0)[None], *(part[side] for part in parts)])
        with np.errstate(all="ignore"):
            logs = np.log(drawn[:, :1]) - np.log(drawn[:, 1:])
        logs[1:] += _moved(found, side, len(logs) - 1)
        made.append(np.round(logs, ROUNDED))
    return made


def _sums(found: Both, side: int) -> np.ndarray:
    """Baseline and each policy's seconds of each prompt, (S, 1 + K)."""
    mine = [pair[side] for pair in found.values()]
    return np.stack([mine[0].baseline_s, *(one.total_s for one in mine)], 1)


def _moved(found: Both, side: int, resamples: int) -> np.ndarray:
    """What other samples of the times add to the logarithms, (B, K)."""
    out = np.zeros((resamples, len(found)))
    for k, pair in enumerate(found.values()):
        factors = pair[side].factors
        if factors is not None:
            logs = np.log(factors)
            which = np.random.default_rng(resamples).integers(0, len(logs), resamples)
            out[:, k] = (logs - logs.mean())[which]
    return out


def _places(logs: np.ndarray) -> np.ndarray:
    """1 for the fastest, equal ones the same; (1 + B, K)."""
    return rankdata(-logs, method="min", axis=1).astype(np.int64)


def _rank(places: np.ndarray, n: int, confidence: float) -> Rank:
    if n < 2:
        return Rank(int(places[0]), None, None)
    ends = np.quantile(places[1:], _levels(confidence), method="nearest")
    return Rank(int(places[0]), int(ends[0]), int(ends[1]))


def _levels(confidence: float) -> tuple[float, float]:
    return (1 - confidence) / 2, (1 + confidence) / 2


def _signs(logs: np.ndarray) -> np.ndarray:
    """Which of each two policies is faster: 1 the one, -1 the other, 0 neither; (1 + B, P) int8."""
    one, other = np.array([*combinations(range(logs.shape[1]), 2)], np.int64).reshape(-1, 2).T
    return np.sign(logs[:, one] - logs[:, other]).astype(np.int8)


def _orders(names: list[str], signs: list[np.ndarray], n: int) -> tuple[Order, ...]:
    same = (signs[0][1:] == signs[1][1:]).mean(0)
    made = []
    for k, (one, other) in enumerate(combinations(names, 2)):
        first, second = ({1: one, -1: other, 0: None}[int(side[0, k])] for side in signs)
        made.append(Order(one, other, (first, second), float(same[k]) if n > 1 else None))
    return tuple(made)


def kendall(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Kendall's τ-b of orders of pairs, (...,); NaN where all of a side are equal.

    Args:
        first: (..., P) the signs of the one side's differences, over all pairs.
        second: (..., P) of the other's.
    """
    agree = (first * second).sum(-1, dtype=np.int64)
    there = np.count_nonzero(first, -1) * np.count_nonzero(second, -1)
    return np.divide(agree, np.sqrt(there), out=np.full(agree.shape, np.nan), where=there > 0)


def _tau(signs: list[np.ndarray], n: int, confidence: float) -> Estimate:
    taus = kendall(*signs)
    if not signs[0].shape[1]:
        return Estimate(None, None, None, n, "one policy has no ranking")
    if not np.isfinite(taus[0]):
        return Estimate(None, None, None, n, "all policies are equally fast")
    if n < 2:
        return clusters.lone(float(taus[0]), n)
    lo, hi = np.quantile(taus[1:][np.isfinite(taus[1:])], _levels(confidence))
    return Estimate(float(taus[0]), float(lo), float(hi), n, few(n))


def _speedup(one: Seconds, confidence: float) -> Estimate:
    return clusters.ratio(one.baseline_s, one.total_s, confidence, factors=one.factors)


def _ratio(one: Seconds, other: Seconds, prompts: Prompts, confidence: float) -> Estimate:
    """The second speedup over the first."""
    shared, mine = other.factors, one.factors
    if mine is not None and (shared is None or len(shared) == len(mine)):
        shared = (1.0 if shared is None else shared) / mine

    def ratio(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return (b[..., :1] / b[..., 1:]) / (a[..., :1] / a[..., 1:])

    (found,) = between(one.sums, other.sums, ratio, prompts.pairing, confidence, True, [shared])
    return found
