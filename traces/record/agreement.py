"""Whether outputs that another program produced are the target's: its argmax, or draws from its p.

Greedily, each token should be the likeliest, but where two are as likely up to rounding. Sampled,
two statistics are taken at every position, given all tokens before it. So under the stated sampler
they are independent of each other, or a martingale, whatever prompts and outputs are like:

- the log-probability of the token, ln p(y), less its mean −H(p): their sum over the root of the
  summed variances is a standard normal deviate. It is the score of the temperature, so no test
  finds a wrong one sooner; a top-k, top-p or min-p that was not said moves it as well.
- the randomised probability-integral transform: the mass of all likelier tokens and a uniform
  share of the token's own. It is uniform on (0, 1).
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from traces.errors import RecordError
from traces.messages import how_many
from traces.outputs import write_atomic
from traces.record.plan import Plan
from traces.record.statistics import LogitRows, at, near_ties, rounding
from traces.sampler import Sampler

# Named like what a writer leaves behind, so it goes away as that does.
_KEPT = ".agreement.json.tmp"
_BINS = 1000  # of the transform
_TILTS = (0.25, 0.5, 1.0, 2.0, 4.0)  # inverse temperatures, of the stated one's
_MOST_OTHER = 0.02  # share of tokens that rounding may account for
_FEWEST = 50  # tokens of which a share says something
_UNLIKELY = 1e-3  # chance of a statistic under the stated sampler, below which it is refused
_EARLY = 1e-6  # the same before all were read: it is looked at after every shard
_DOUBTFUL = 0.01  # and below which it is said
_SMALL = 0.05  # share by which the temperature may be off and is not refused
_FAR = 0.02  # of the transform's distribution from uniform, likewise: an engine's own rounding


class DisagreementError(RecordError):
    """Outputs are not the target's under the stated sampler."""


@dataclass
class Agreement:
    """What was seen at some positions; sums, so that shards add up.

    Attributes:
        tokens: positions.
        other: greedy tokens that are not the likeliest; or tokens to which p gives nothing.
        ties: of these greedy ones, those within rounding of it.
        near: greedy positions where another token is as likely but for rounding.
        margin: nats by which the likeliest token was likelier, at most.
        score: sum of ln p(y) + H(p), of processed distributions.
        information: sum of the variances of ln p under p.
        transform: histogram of the transform (BINS,).
        tilted: sums of the mean and of the variance of ln p (2, TILTS), under p as it would be at
            other temperatures.
    """

    tokens: int = 0
    other: int = 0
    ties: int = 0
    near: int = 0
    margin: float = 0.0
    score: float = 0.0
    information: float = 0.0
    transform: np.ndarray = field(default_factory=lambda: np.zeros(_BINS, np.int64))
    tilted: np.ndarray = field(default_factory=lambda: np.zeros((2, len(_TILTS))))

    def __add__(self, more: Agreement) -> Agreement:
        both = {f.name: getattr(self, f.name) + getattr(more, f.name) for f in fields(self)}
        return Agreement(**{**both, "margin": max(self.margin, more.margin)})

    def see(self, p: LogitRows, output: Tensor, randomness: np.random.Generator) -> None:
        """Count rows of the target (N,) whose tokens are known.

        Args:
            p: the rows.
            output: their tokens (N,).
            randomness: of the transform.
        """
        self.tokens += len(output)
        if p.temperature == 0:
            self._see_greedy(p, output)
        else:
            self._see_sampled(p, output, randomness)

    def _see_greedy(self, p: LogitRows, output: Tensor) -> None:
        self.near += int(near_ties(p).sum())
        other = p.best != output
        if not bool(other.any()):
            return
        logits = p.logits[other]
        most = at(logits, p.best[other])
        apart = (most - at(logits, output[other])).double()
        self.other += int(other.sum())
        self.ties += int((apart <= rounding(p.given[other])).sum())
        self.margin = max(self.margin, float(apart.max()))

    def _see_sampled(self, p: LogitRows, output: Tensor, randomness: np.random.Generator) -> None:
        chances = p.processed.double()
        own = at(chances, output)
        possible = own > 0
        self.other += int((~possible).sum())
        logs = torch.where(chances > 0, chances, 1).log()
        root, square = chances.sqrt(), chances.square()
        tilted = (root.sqrt(), root, chances, square, square.square())
        moments = torch.stack([_moments(weights, logs)[:, possible].sum(1) for weights in tilted])
        self.tilted = self.tilted + moments.T.cpu().numpy()
        self.score += float((own[possible].log() - _moments(chances, logs)[0, possible]).sum())
        self.information += float(moments[_TILTS.index(1.0), 1])
        likelier = torch.where(chances > own[:, None], chances, 0).sum(-1)
        equal = torch.where(chances == own[:, None], chances, 0).sum(-1)
        share = torch.from_numpy(randomness.random(len(output))).to(equal.device)
        place = (likelier + share * equal)[possible].cpu().numpy()
        bins = np.minimum((place * _BINS).astype(int), _BINS - 1)
        self.transform += np.bincount(bins, minlength=_BINS)

    @property
    def deviate(self) -> float:
        """The score's standard normal deviate: above 0 where tokens are likelier than drawn ones.

        0 where p was certain everywhere.
        """
        return self.score / self.information**0.5 if self.information > 0 else 0.0

    @property
    def p_of_score(self) -> float:
        """Chance of a deviate as large, if the tokens were drawn as stated."""
        from scipy.stats import norm

        return float(2 * norm.sf(abs(self.deviate)))

    @property
    def apart(self) -> float:
        """How far the transform's distribution is from uniform, at most (Kolmogorov, Smirnov)."""
        steps = self.transform.cumsum() / max(1, self.transform.sum())
        return float(np.abs(steps - np.arange(1, _BINS + 1) / _BINS).max())

    @property
    def p_of_transform(self) -> float:
        """Chance of a transform as far from uniform, likewise."""
        from scipy.stats import kstwo

        seen = int(self.transform.sum())
        return float(kstwo.sf(self.apart, seen)) if seen else 1.0

    @property
    def p_of_other(self) -> float:
        """Chance of as many others, if their share were the largest that is put up with."""
        from scipy.stats import binom

        return float(binom.sf(self.other - 1, self.tokens, _MOST_OTHER))

    @property
    def chance(self) -> float:
        """Of the less likely of the two statistics, for two tests."""
        return min(1.0, 2 * min(self.p_of_score, self.p_of_transform))

    def temperature(self, sampler: Sampler) -> float:
        """The likeliest temperature, from a quarter of the stated one to four times as much.

        There ln p(y) of the tokens is what is expected of them. The expectation is interpolated
        between tilts, with its derivatives, which are the variances.
        """
        from scipy.interpolate import CubicHermiteSpline
        from scipy.optimize import brentq

        tilts, (means, variances) = np.array(_TILTS), self.tilted
        said = self.score + means[_TILTS.index(1.0)]
        if self.information <= 0:
            return sampler.temperature
        if not means[0] < said < means[-1]:
            return sampler.temperature / (_TILTS[0] if said <= means[0] else _TILTS[-1])
        expected = CubicHermiteSpline(np.log(tilts), means - said, tilts * variances)
        root: Any = brentq(expected, np.log(tilts[0]), np.log(tilts[-1]))
        return sampler.temperature / float(np.exp(root))

    def instead(self, sampler: Sampler) -> str:
        """The likeliest temperature in words."""
        found = self.temperature(sampler)
        ends = {
            sampler.temperature / _TILTS[-1]: " or less",
            sampler.temperature / _TILTS[0]: " or more",
        }
        return f"temperature {found:.2f}{ends.get(found, '')} would fit better"


def _moments(weights: Tensor, logs: Tensor) -> Tensor:
    """Mean and variance (2, N) of values under weights (N, V)."""
    weights = weights / weights.sum(-1, keepdim=True)
    mean = (weights * logs).sum(-1)
    return torch.stack([mean, (weights * logs.square()).sum(-1) - mean.square()])


_ARRAYS = {name: vars(Agreement())[name] for name in ("transform", "tilted")}


class Kept(NamedTuple):
    """What was seen of a recording that is not finished, and in which of its shards."""

    found: Agreement = Agreement()
    shards: frozenset[int] = frozenset()

    def of(self, done: set[int]) -> Kept:
        """This, if it is of these very shards; else nothing is known."""
        return self if self.shards == done else Kept()


def keep(folder: Path, found: Agreement, shards: set[int]) -> None:
    """Keep what was seen in shards beside them, until the recording is finished or given up."""
    sums = {**vars(found), **{name: vars(found)[name].tolist() for name in _ARRAYS}}
    text = json.dumps({"found": sums, "shards": sorted(shards)})
    write_atomic(folder / _KEPT, text.encode())


def kept(folder: Path) -> Kept:
    """What was kept there."""
    try:
        known = json.loads((folder / _KEPT).read_text(encoding="utf-8"))
        sums = known["found"]
        sums |= {name: np.array(sums[name], like.dtype) for name, like in _ARRAYS.items()}
        there = Kept(Agreement(**sums), frozenset(known["shards"]))
        is_sums = all(bool(np.isfinite(value).all()) for value in sums.values())
        fits = all(sums[name].shape == like.shape for name, like in _ARRAYS.items())
    except (OSError, ValueError, TypeError, KeyError, OverflowError):
        return Kept()
    return there if is_sums and fits else Kept()


def check(found: Agreement, sampler: Sampler, whole: bool = True) -> None:
    """Refuse outputs that are not the target's under a sampler.

    Args:
        found: of the positions that were read.
        sampler: the stated one.
        whole: all of them were read; else only what more of them cannot mend is refused.

    Raises:
        DisagreementError: as said.
    """
    if not whole and found.tokens < _FEWEST:
        return
    share = found.other / max(1, found.tokens)
    if found.other > 1 and share > _MOST_OTHER and (whole or found.p_of_other < _EARLY):
        what = (
            f"are not the target's likeliest: another was up to {found.margin:.3g} nats likelier"
            if sampler.greedy
            else f"cannot come out of the target at {sampler.words}"
        )
        raise DisagreementError(
            f"{found.other:,} of {how_many(found.tokens, 'output token')} ({share:.1%}) {what}."
            " Another model or tokenizer made them, or another sampler"
        )
    if sampler.greedy or found.chance >= (_UNLIKELY if whole else _EARLY):
        return
    instead = found.temperature(sampler)
    if abs(instead / sampler.temperature - 1) > _SMALL or found.apart > _FAR:
        raise DisagreementError(
            f"these outputs were not drawn at {sampler.words} (p = {found.chance:.1g}, over"
            f" {how_many(found.tokens, 'token')}): {found.instead(sampler)}."
            " State the engine's own sampler"
        )


def remark(found: Agreement, sampler: Sampler) -> str:
    """What a reader of the recording should know of its outputs, in one line."""
    tokens = how_many(found.tokens, "output token")
    if sampler.greedy:
        if not found.other:
            return f"all {tokens} are the target's likeliest"
        return (
            f"{found.other:,} of {tokens} ({found.other / found.tokens:.2%}) are not the target's"
            f" likeliest, {found.ties:,} of them ties up to rounding; another was at most"
            f" {found.margin:.3g} nats likelier"
        )
    fits = "fits" if found.chance >= _DOUBTFUL else "hardly fits"
    said = f"{tokens} were drawn by an engine; {sampler.words} {fits} them"
    said += f" (p = {found.chance:.2g})"
    if found.chance < _DOUBTFUL:
        said += f", {found.instead(sampler)}"
    if found.other:
        said += f"; {found.other:,} of them cannot come out of that sampler"
    return said


def randomness_of(plan: Plan, first: int) -> np.random.Generator:
    """Of the transform, for the shard that begins with this sequence."""
    return np.random.default_rng([plan.seed % 2**63, first])


def held_to(p: LogitRows, output: Tensor) -> LogitRows:
    """Rows whose distributions can give the tokens that came out.

    Greedily the output is the likeliest token, also where it is so but for rounding; sampled, a
    token that top-k or top-p leaves out is taken in. So verdicts never contradict the output.

    Args:
        p: the target's rows; changed.
        output: their tokens (N,).
    """
    if p.temperature == 0:
        vars(p).update(top_prob=p.top_prob, best=output)  # the likeliest one's stays what it is
        return p
    left_out = at(p.processed, output) == 0
    if bool(left_out.any()):
        tempered = (p.logits / p.temperature).softmax(-1)
        kept = torch.where((p.processed > 0), tempered, 0)
        kept = kept.scatter(-1, output[:, None].long(), at(tempered, output)[:, None])
        widened = kept / kept.sum(-1, keepdim=True)
        vars(p)["processed"] = torch.where(left_out[:, None], widened, p.processed)
    return p
