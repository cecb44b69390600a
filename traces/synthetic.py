"""Made-up traces of any size, with acceptance of known law and features that go with it."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from dataclasses import asdict
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np

from traces import schema
from traces.arrays import count_up
from traces.manifest import Manifest
from traces.memory import Arrays
from traces.sampler import Sampler
from traces.trace import Trace

EOS = 0


def iid(
    n_sequences: int,
    n_output: int,
    accept_prob: float,
    *,
    max_draft: int,
    seed: int,
    sampler: Sampler | None = None,
    eos_prob: float = 0.0,
    vocab_size: int = 1000,
    tasks: tuple[str, ...] = ("synthetic",),
) -> Trace:
    """A trace in which each position is accepted independently with the same probability.

    Entropies are low where the draft is accepted. Each column is a function of the arguments and
    its name, and is made when it is first asked for, so ten million positions are cheap.

    Args:
        n_sequences: prompts, each of one token.
        n_output: T_max, tokens; every output has this length unless it meets an EOS.
        accept_prob: the mean of `accepted`, 0 to 1. If `sampler` samples, the rows' own
            `accept_prob` spreads around it.
        max_draft: Γ. Every rejection is followed by a branch, as long as a recording's.
        seed: >= 0.
        sampler: None is greedy.
        eos_prob: chance that a token, on the path or off it, is the EOS token (id 0).
        vocab_size: at least 3.
        tasks: given to the sequences in turn.
    """
    if not 0 <= accept_prob <= 1 or not 0 <= eos_prob < 1 or vocab_size < 3:
        raise ValueError("accept_prob in [0, 1], eos_prob in [0, 1), vocab_size >= 3")
    manifest = Manifest(
        max_draft=max_draft,
        max_new_tokens=n_output,
        sampler=sampler or Sampler(),
        seed=seed,
        eos_token_ids=(EOS,) if eos_prob else (),
        vocab_size=vocab_size,
        batch_size=max(1, n_sequences),
        n_prompts=n_sequences,
        complete=True,
    )
    return _trace(_Columns(manifest, accept_prob, eos_prob), tasks)


def mixed(
    n_sequences: int, n_output: int, accept_prob: float, spread: float, *, max_draft: int, seed: int
) -> Trace:
    """A greedy trace whose prompts are accepted with probabilities of their own.

    Within a prompt, positions are independent. The prompts' probabilities are drawn from the beta
    distribution of mean `accept_prob` and standard deviation `spread`.

    Args:
        n_sequences: see `iid`.
        n_output: see `iid`.
        accept_prob: the mean over prompts, in (0, 1).
        spread: > 0 and less than sqrt(accept_prob (1 - accept_prob)).
        max_draft: Γ.
        seed: >= 0.
    """
    size = accept_prob * (1 - accept_prob) / spread**2 - 1 if spread > 0 else 0.0
    if not 0 < accept_prob < 1 or size <= 0:
        raise ValueError("accept_prob in (0, 1), 0 < spread < sqrt(accept_prob (1 - accept_prob))")
    rng = np.random.default_rng([seed, zlib.crc32(b"mixed")])
    own = rng.beta(size * accept_prob, size * (1 - accept_prob), (n_sequences, 1))
    return _chain(_Law(own, (0,), (0,), (1.0,)), n_sequences, n_output, max_draft, seed)


def markov(
    n_sequences: int,
    n_output: int,
    after_accepted: float,
    after_rejected: float,
    *,
    max_draft: int,
    seed: int,
) -> Trace:
    """A greedy trace in which a position's acceptance depends on that of the one before.

    The chain is stationary: the mean of `accepted` is r / (1 - a + r), and its autocorrelation at
    lag k is (a - r)^k.

    Args:
        n_sequences: see `iid`.
        n_output: see `iid`.
        after_accepted: a, in [0, 1].
        after_rejected: r, in [0, 1]; not 0 where a is 1.
        max_draft: Γ.
        seed: >= 0.
    """
    leaves = 1 - after_accepted + after_rejected
    if not (0 <= after_accepted <= 1 and 0 <= after_rejected <= 1) or leaves == 0:
        raise ValueError("after_accepted and after_rejected in [0, 1], and not 1 and 0")
    share = after_rejected / leaves
    law = _Law((after_rejected, after_accepted), (1, 1), (0, 0), (1 - share, share))
    return _chain(law, n_sequences, n_output, max_draft, seed)


def decaying(
    n_sequences: int, n_output: int, accept_probs: tuple[float, ...], *, max_draft: int, seed: int
) -> Trace:
    """A greedy trace in which acceptance depends on the depth inside a draft.

    It is that of the steps of `fixed(k)` from position 1 on, k the number of probabilities: the
    token at depth j is accepted with probability accept_probs[j - 1] if all before it were. Other
    policies start their steps elsewhere, and see another law.

    Args:
        n_sequences: see `iid`.
        n_output: see `iid`.
        accept_probs: conditional on acceptance of all earlier tokens, in [0, 1].
        max_draft: Γ.
        seed: >= 0.
    """
    if not accept_probs or not all(0 <= p <= 1 for p in accept_probs):
        raise ValueError("accept_probs in [0, 1], one or more")
    k = len(accept_probs)  # state j: j tokens accepted; in state k the target's own token follows
    kept = (*range(1, k + 1), 0)
    law = _Law((*accept_probs, accept_probs[0]), kept, (0,) * (k + 1), (1.0,) + (0.0,) * k)
    return _chain(law, n_sequences, n_output, max_draft, seed)


class _Law(NamedTuple):
    """Acceptance by a state that the positions before have led to; K states.

    Attributes:
        accept_prob: in each state, (K,); or (S, K), each prompt's own.
        kept: (K,) the state after an accepted token.
        lost: (K,) the state after a rejected one.
        start: (K,) chances of the states at position 1.
    """

    accept_prob: Any
    kept: tuple[int, ...]
    lost: tuple[int, ...]
    start: tuple[float, ...]

    def accepted(self, lengths: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Draw each position's acceptance, prompt after prompt, bool."""
        n, k = len(lengths), len(self.kept)
        chance = np.broadcast_to(np.asarray(self.accept_prob, float), (n, k))
        kept, lost = np.array(self.kept), np.array(self.lost)
        state = rng.choice(k, n, p=self.start)
        starts = np.cumsum(lengths) - lengths
        out = np.empty(int(lengths.sum()), bool)
        for i in range(int(lengths.max(initial=0))):
            inside = np.flatnonzero(i < lengths)
            now = state[inside]
            good = rng.random(len(inside)) < chance[inside, now]
            out[starts[inside] + i] = good
            state[inside] = np.where(good, kept[now], lost[now])
        return out


def _chain(law: _Law, n_sequences: int, n_output: int, max_draft: int, seed: int) -> Trace:
    manifest = Manifest(
        max_draft=max_draft,
        max_new_tokens=n_output,
        sampler=Sampler(),
        seed=seed,
        vocab_size=1000,
        batch_size=max(1, n_sequences),
        n_prompts=n_sequences,
        complete=True,
    )
    return _trace(_Columns(manifest, 0.0, 0.0, law), ("synthetic",))


def _trace(rows: _Columns, tasks: tuple[str, ...]) -> Trace:
    n = len(rows.lengths)
    sequences = {
        "sequence": np.arange(n, dtype=np.int32),
        "n_output": rows.lengths.astype(np.int32),
        "prompt_tokens": [[1]] * n,
        "task": [tasks[i % len(tasks)] for i in range(n)],
    }
    columns = {
        "positions": {name: partial(rows.position, name) for name in schema.POSITIONS.names},
        "branches": {name: partial(rows.branch, name) for name in schema.BRANCHES.names},
    }
    lengths = {"positions": rows.n, "branches": lambda: int(rows.branch_lengths.sum())}
    source = Arrays(rows.manifest, sequences, columns, lengths)
    facts = [asdict(rows.manifest), rows.alpha, rows.eos_prob, tasks]
    if rows.law is not None:
        facts.append([np.asarray(part).tolist() for part in rows.law])
    source.fingerprint = json.dumps(facts)
    return Trace(rows.manifest, source)


class _Columns:
    """The columns. Only what several of them need is kept."""

    def __init__(
        self, manifest: Manifest, alpha: float, eos_prob: float, law: _Law | None = None
    ) -> None:
        self.manifest = manifest
        self.law = law
        self.alpha = alpha
        self.eos_prob = eos_prob
        self.greedy = manifest.sampler.greedy
        self.lengths = np.minimum(
            self._until_eos("lengths", manifest.n_prompts), manifest.max_new_tokens
        )
        self.n = int(self.lengths.sum())

    def position(self, name: str) -> np.ndarray:
        """A column of `positions`."""
        keys: dict[str, Callable[[], np.ndarray]] = {
            "sequence": lambda: np.repeat(
                np.arange(len(self.lengths), dtype=np.int32), self.lengths
            ),
            "position": lambda: count_up(self.lengths),
            "accepted": lambda: self.accepted,
            "accept_prob": self._accept_prob,
            "draft_token": self._draft_token,
            "target_token": self._target_token,
        }
        if name in keys:
            return keys[name]()
        return self._feature("positions", name, self.n, self.accepted)

    def branch(self, name: str) -> np.ndarray:
        """A column of `branches`."""
        if name == "depth":
            return count_up(self.branch_lengths)
        if name in ("sequence", "position"):
            return np.repeat(self.position(name)[self.branch_rows], self.branch_lengths)
        rows = int(self.branch_lengths.sum())
        if name == "draft_token":
            tokens = self._tokens("branches", rows)
            ends = np.cumsum(self.branch_lengths)
            tokens[ends[self._branch_plan[1]] - 1] = EOS
            return tokens
        return self._feature("branches", name, rows, None)

    @cached_property
    def accepted(self) -> np.ndarray:
        """Whether the draft token was accepted, bool, one for each position."""
        if self.law is not None:
            return self.law.accepted(self.lengths, self._rng("accepted"))
        uniform = self._rng("accepted").random(self.n, np.float32)
        return uniform < (np.float32(self.alpha) if self.greedy else self._accept_prob())

    @cached_property
    def branch_rows(self) -> np.ndarray:
        """On-path rows that have a branch, though it may be empty."""
        rejected = np.flatnonzero(~self.accepted)
        return rejected[self._draft_token()[rejected] != EOS] if self.eos_prob else rejected

    @property
    def branch_lengths(self) -> np.ndarray:
        """Rows of each of these branches."""
        return self._branch_plan[0]

    @cached_property
    def _branch_plan(self) -> tuple[np.ndarray, np.ndarray]:
        left = self.manifest.max_new_tokens - 1 - count_up(self.lengths)[self.branch_rows]
        whole = np.clip(left, 0, self.manifest.max_draft - 1)
        until = self._until_eos("branches", len(whole))
        return np.minimum(whole, until), until <= whole

    def _until_eos(self, name: str, n: int) -> np.ndarray:
        """Rows up to the first EOS token, beyond any length where there is none."""
        if not self.eos_prob:
            return np.full(n, np.iinfo(np.int32).max)
        return self._rng(name + ".eos").geometric(self.eos_prob, n)

    def _rng(self, name: str) -> np.random.Generator:
        return np.random.default_rng([self.manifest.seed, zlib.crc32(name.encode())])

    def _tokens(self, name: str, n: int) -> np.ndarray:
        """Ids other than EOS's."""
        size = self.manifest.vocab_size or 3
        return self._rng(name + ".token").integers(1, size, n, np.int32)

    def _target_token(self) -> np.ndarray:
        tokens = self._tokens("target", self.n)
        ended = self._until_eos("lengths", len(self.lengths)) <= self.manifest.max_new_tokens
        tokens[np.cumsum(self.lengths)[ended] - 1] = EOS
        return tokens

    def _draft_token(self) -> np.ndarray:
        target = self._target_token()
        other = self._tokens("draft", self.n)
        size = self.manifest.vocab_size or 3
        same = other == target
        other[same] = other[same] % (size - 1) + 1  # the next id, EOS left out
        if self.eos_prob:
            stop = self._rng("draft.eos").random(self.n, np.float32) < self.eos_prob
            other[stop & (target != EOS)] = EOS
        return np.where(self.accepted, target, other)

    def _accept_prob(self) -> np.ndarray:
        if self.greedy:
            return self.accepted.astype(np.float32)
        if self.alpha in (0, 1):
            return np.full(self.n, self.alpha, np.float32)
        beta = self._rng("accept_prob").beta(2 * self.alpha, 2 * (1 - self.alpha), self.n)
        return beta.astype(np.float32)

    def _feature(self, table: str, name: str, n: int, good: np.ndarray | None) -> np.ndarray:
        """A float column; `good` rows are sure of themselves, None stands for none of them."""

        def spread(what: str, low: float, high: float) -> np.ndarray:
            """Exponential, of mean `low` in good rows."""
            noise = self._rng(f"{table}.{what}").standard_exponential(n, np.float32)
            noise *= np.float32(high) if good is None else np.where(good, np.float32(low), high)
            return noise

        def entropy(what: str) -> np.ndarray:
            top = 0.8 * np.log(self.manifest.vocab_size or 3)
            return np.minimum(spread(what, 0.5, 2.0), np.float32(top))

        def top1(what: str) -> np.ndarray:
            """At least exp(-H), as for any distribution."""
            return np.exp(np.float32(-0.7) * entropy(what))

        def top2() -> np.ndarray:
            first = top1("draft")
            return np.minimum(first, 1 - first) * np.float32(0.5)

        def top10() -> np.ndarray:
            first, second = top1("draft"), top2()
            return np.minimum(first + 9 * second, np.float32(0.7) + np.float32(0.3) * first)

        sure = np.ones(n, bool) if good is None else good
        made: dict[str, Callable[[], np.ndarray]] = {
            "draft_entropy": lambda: entropy("draft"),
            "draft_top1_prob": lambda: top1("draft"),
            "draft_top2_prob": top2,
            "draft_top10_mass": top10,
            "draft_prob_raw": lambda: top1("draft"),
            "draft_prob": lambda: np.ones(n, np.float32) if self.greedy else top1("draft"),
            "target_entropy": lambda: entropy("target"),
            "target_top1_prob": lambda: top1("target"),
            "target_token_prob_raw": lambda: top1("target"),
            "target_prob_raw": lambda: top1("target") * np.where(sure, 1, np.float32(0.2)),
            "target_prob": lambda: (
                self._accept_prob() if self.greedy else self._accept_prob() * top1("draft")
            ),
            "cross_entropy": lambda: entropy("draft") + spread("divergence", 0.2, 1.5),
            "overlap": lambda: np.exp(-spread("distance", 0.1, 0.8)),
            "overlap_processed": lambda: (
                self._accept_prob() if self.greedy else np.exp(-spread("distance", 0.1, 0.8))
            ),
        }
        return made[name]()
