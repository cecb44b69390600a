"""What a trace stores of a pair of next-token distributions, reduced on the device that has them.

`LogitRows` holds one model's logits for N rows; the functions turn rows into the columns of
`traces.schema`. Logits are reduced in float32, or in float64 if they are; sums accumulate in
float64; the columns come out as float32, the values on which policies decide, live and replayed.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache, cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from traces.record import draws, sums
from traces.sampler import Sampler
from traces.schema import DRAFT_STATISTICS, TARGET_STATISTICS


class LogitRows:
    """Next-token distributions of one model at N rows, raw and as a sampler sees them.

    Args:
        logits: (N, V), any float dtype.
        temperature: 0 makes the processed distribution a point mass on the likeliest token.
        top_k: 0 keeps all.
        top_p: 1 keeps all.
        kernel: let the Triton kernel reduce them where it can run, see `statistics_triton`.
    """

    def __init__(
        self,
        logits: Tensor,
        temperature: float,
        top_k: int = 0,
        top_p: float = 1.0,
        kernel: bool = False,
    ) -> None:
        self.given, self.kernel = logits, kernel
        self.temperature, self.top_k, self.top_p = temperature, top_k, top_p

    def of(self, which: Tensor) -> LogitRows:
        """Some of the rows, (N,) bool; probabilities are worked out of all, once."""
        if bool(which.all()):
            return self
        rows = LogitRows(self.given[which], self.temperature, self.top_k, self.top_p, self.kernel)
        shared = ("best", "log_prob", "prob", *(["processed"] if self.temperature else []))
        vars(rows).update({name: getattr(self, name)[which] for name in shared})
        return rows

    @cached_property
    def logits(self) -> Tensor:
        """The logits (N, V) in float32, or in float64 if they are."""
        return widened(self.given)

    @cached_property
    def best(self) -> Tensor:
        """The likeliest token (N,), the lowest id of several."""
        if self.given.device.type == "cpu":  # by numpy: its search is many times as fast
            return torch.from_numpy(self.logits.detach().numpy().argmax(-1))
        return self.given.argmax(-1)

    @cached_property
    def top_prob(self) -> Tensor:
        """Raw probability of the likeliest token (N,)."""
        return at(self.prob, self.best)

    @cached_property
    def log_prob(self) -> Tensor:
        """Raw log-probabilities (N, V)."""
        return self.logits.log_softmax(-1)

    @cached_property
    def prob(self) -> Tensor:
        """Raw probabilities (N, V)."""
        return self.log_prob.exp()

    @property
    def is_raw(self) -> bool:
        """Whether the distribution that is sampled is the raw one."""
        return self.temperature == 1 and not self.top_k and self.top_p == 1

    @cached_property
    def processed(self) -> Tensor:
        """The distribution that is sampled (N, V)."""
        if self.temperature == 0:
            return torch.zeros_like(self.logits).scatter_(-1, self.best[:, None], 1.0)
        if self.is_raw:
            return self.prob
        logits = self.logits / self.temperature
        return _cut(logits, self.top_k, self.top_p).softmax(-1)

    @cached_property
    def entropy(self) -> Tensor:
        """H of the raw distribution (N,), nats, float64."""
        return -sums.of_products(self.prob, self.log_prob)

    def processed_at(self, token: Tensor) -> Tensor:
        """Processed probability of one token a row (N,)."""
        if self.temperature == 0:
            return (self.best == token).to(self.logits.dtype)
        return at(self.processed, token)


# What rounding moves a row by, as a share of its logits' standard deviation, in models whose norms
# and rotary embeddings are in float32.
ROUNDING = {torch.float64: 1e-5, torch.float32: 2e-4, torch.float16: 4e-3, torch.bfloat16: 2e-2}


def widened(logits: Tensor) -> Tensor:
    """Logits in float32, or in float64 if they are."""
    return logits if logits.dtype == torch.float64 else logits.float()


def rounding(logits: Tensor) -> Tensor:
    """Nats within which two tokens of a row (N, V) are as likely, in logits of this dtype (N,)."""
    return ROUNDING.get(logits.dtype, ROUNDING[torch.float32]) * sums.deviation(widened(logits))


def near_ties(p: LogitRows) -> Tensor:
    """Whether another token than the likeliest is as likely but for rounding (N,)."""
    most = sums.largest(p.logits, 2).double()
    return most[:, 0] - most[:, 1] <= rounding(p.given)


def target_rows(logits: Tensor, sampler: Sampler, kernel: bool = False) -> LogitRows:
    """The target's rows under a sampler."""
    return LogitRows(logits, sampler.temperature, sampler.top_k, sampler.top_p, kernel)


def draft_rows(logits: Tensor, sampler: Sampler, kernel: bool = False) -> LogitRows:
    """The draft's rows under a sampler."""
    return LogitRows(logits, sampler.q_temperature, sampler.top_k, sampler.top_p, kernel)


def at(values: Tensor, token: Tensor) -> Tensor:
    """values[n, token[n]] for every row n."""
    return values.gather(-1, token[:, None].long())[:, 0]


class Verified(NamedTuple):
    """What the keyed draws make of N rows; each (N,)."""

    draft_token: Tensor
    accepted: Tensor
    target_token: Tensor  # the output: the draft token if accepted, else the correction


def draft_token(q: LogitRows, key: Tensor) -> Tensor:
    """The token that the draft proposes at rows with these keys (N,)."""
    return q.best if q.temperature == 0 else draws.race(q.processed, key, draws.DRAFT)


def outcome(p: LogitRows, q: LogitRows, token: Tensor, key: Tensor) -> Verified:
    """Verify `token`, drawn from q: accepted iff v < p/q, else max(0, p − q) is drawn from."""
    if p.temperature == 0:
        return Verified(token, token == p.best, p.best)
    accepted = draws.uniform(key) < p.processed_at(token) / q.processed_at(token)
    correction = draws.race(residual(p.processed, q.processed), key, draws.CORRECTION)
    return Verified(token, accepted, torch.where(accepted, token, correction))


def target_token(p: LogitRows, key: Tensor) -> Tensor:
    """The token that the target draws by itself at rows with these keys (N,)."""
    return p.best if p.temperature == 0 else draws.race(p.processed, key, draws.CORRECTION)


def outcome_given(
    p: LogitRows,
    q: LogitRows,
    output: Tensor,
    key: Tensor,
    own_key: Tensor | None = None,
    ids: Tensor | None = None,
) -> Verified:
    """What a draft of q comes to where the output's token is known to be drawn from p.

    Accepted iff u p(y) < q(y), and then y is the draft's token too; else that is drawn from
    max(0, q - p). So draft token, acceptance and output have the joint law of `outcome`, but the
    output does not depend on q.

    Args:
        p: the target's rows.
        q: the draft's.
        output: y (N,), drawn from p with the same keys, or independently of q; -1 where it is not
            among the rows' columns.
        key: (N,), of the tokens before.
        own_key: (N,), of a rejected token's draw; `key` unless the draft depends on its start.
        ids: of the rows' columns (V,); None if they are ids.
    """
    if q.temperature == 0:  # a proposal that is certain
        return Verified(q.best, q.best == output, output)
    there = output.clamp_min(0)
    accepted = draws.uniform(key) * p.processed_at(there) < q.processed_at(there)
    accepted = accepted & (output >= 0)
    rejected = ~accepted
    rest = residual(q.processed[rejected], p.processed[rejected])
    own_key = key if own_key is None else own_key
    other = draws.race(rest, own_key[rejected], draws.DRAFT, ids)
    return Verified(output.masked_scatter(rejected, other.to(output.dtype)), accepted, output)


def residual(p: Tensor, q: Tensor) -> Tensor:
    """What a rejected token's place is drawn from: max(0, p − q), not normed, (..., V).

    The other way round it is what a rejected token is drawn from where the output is known.

    Where p = q nothing is rejected but by rounding; there it is p.
    """
    rest = (p - q).clamp_min(0)
    return torch.where(rest.sum(-1, keepdim=True) == 0, p, rest)


def draft_statistics(
    q: LogitRows, token: Tensor, names: Iterable[str] = DRAFT_STATISTICS
) -> dict[str, Tensor]:
    """Columns of `traces.schema.DRAFT_STATISTICS` of the rows' draft tokens, float32 (N,).

    Only those that are named are computed; each comes out the same whatever the others.
    """

    @cache
    def top() -> Tensor:
        values = sums.largest(q.logits, 10)
        log_norm = at(q.logits, token) - at(q.log_prob, token)
        return (values - log_norm[:, None]).double().exp()

    columns = {
        "draft_prob": lambda: q.processed_at(token),
        "draft_prob_raw": lambda: at(q.prob, token),
        "draft_entropy": lambda: q.entropy,
        "draft_top1_prob": lambda: top()[:, 0],
        "draft_top2_prob": lambda: top()[:, 1],
        "draft_top10_mass": lambda: top().sum(-1),
    }
    return {name: _column(columns[name](), name) for name in names}


def target_statistics(
    p: LogitRows, q: LogitRows, token: Tensor, names: Iterable[str] = TARGET_STATISTICS
) -> dict[str, Tensor]:
    """Columns of `traces.schema.TARGET_STATISTICS` of the rows' draft tokens, float32 (N,).

    Only those that are named are computed.
    """
    p_token, q_token = p.processed_at(token), q.processed_at(token)
    columns = {
        "accept_prob": lambda: (p_token.double() / q_token.double()).clamp_max(1),
        "target_prob": lambda: p_token,
        "target_prob_raw": lambda: at(p.prob, token),
        "target_entropy": lambda: p.entropy,
        "cross_entropy": lambda: -sums.of_products(q.prob, p.log_prob),
        "overlap": lambda: sums.of_least(p.prob, q.prob),
        "overlap_processed": lambda: _overlap_processed(p, q),
        "target_top1_prob": lambda: p.top_prob,
    }
    return {name: _column(columns[name](), name) for name in names}


def _overlap_processed(p: LogitRows, q: LogitRows) -> Tensor:
    if q.temperature == 0:
        return p.processed_at(q.best)
    return sums.of_least(p.processed, q.processed)


def _column(value: Tensor, name: str) -> Tensor:
    value = value.float().clamp_min(0)  # an entropy of a near point mass may round below zero
    return value if name.endswith("entropy") else value.clamp_max(1)


def _cut(logits: Tensor, top_k: int, top_p: float) -> Tensor:
    """Put -inf where top-k, then top-p leave a token out (the order of Hugging Face `generate`)."""
    if top_k:
        least = logits.topk(min(top_k, logits.shape[-1]), -1).values[:, -1:]
        logits = logits.masked_fill(logits < least, -torch.inf)
    if top_p < 1:
        ordered, ids = logits.sort(-1)
        tail = ordered.softmax(-1).cumsum(-1) <= 1 - top_p
        tail[:, -1] = False
        logits = logits.masked_fill(tail.scatter(-1, ids, tail), -torch.inf)
    return logits
