"""Coin flips in a recording's place: what any statistic would find if acceptance had no structure.

A placebo keeps the prompts, the outputs, their lengths, the tasks and the times of a trace, and how
each feature is distributed. It breaks every tie between what is known of a draft token and whether
it is accepted, and every tie between the tokens of one draft.
"""

from __future__ import annotations

import hashlib
import zlib
from dataclasses import replace
from functools import cached_property

import numpy as np
import pyarrow as pa

from traces import schema, scores
from traces.arrays import count_up
from traces.errors import TraceError
from traces.trace import Trace

_SHUFFLED = (*schema.DRAFT_STATISTICS, *schema.TARGET_STATISTICS, "target_token_prob_raw")
_GREEDY = ("accept_prob", "target_prob", "overlap_processed")  # 0 or 1, as `accepted`, when greedy


def placebo(trace: Trace, seed: int) -> Trace:
    """The trace with acceptance by coin flips and features that say nothing of it, in memory.

    - Each draft token is accepted independently of all else, with the trace's share accepted; so
      are those of branches, where the trace says what the target thinks of them.
    - What the draft knows of its token (`schema.DRAFT_STATISTICS`, heads' scores by row) is
      shuffled over the rows of a table, all columns by one permutation. Branch rows are dealt out
      from those of the trace's branches, with their tokens: a branch ends after its first EOS.
    - What only the pair knows (`schema.TARGET_STATISTICS`, `target_token_prob_raw`) is shuffled by
      a permutation of its own. The cross entropy goes as KL(q‖p) = H(q,p) - H(q), which stays >= 0,
      and `target_prob` as its ratio to `draft_prob`, of which `accept_prob` is made.
    - A head's scores by start are shuffled over starts within each depth, all heads alike.
    - A rejected token is one of the trace's rejected tokens. Outputs, prompts, tasks and timing
      samples stay; hidden states, experts, mixed rows and live runs are left out.

    A lattice's drafts keep their lengths and tokens. Under sampling a row's shuffled `accept_prob`
    is one more feature that says nothing of the flag.

    Args:
        trace: of any kind.
        seed: >= 0; the placebo is a function of the trace and of it.
    """
    if seed < 0:
        raise TraceError(f"seed must be 0 or more, not {seed}")
    made_up = replace(trace.manifest, hidden=False, experts=None, mix=0.0, files={})
    return Trace(made_up, _Flips(trace, seed))


class _Flips:
    """The columns, as a `Source`; each is made when it is asked for."""

    def __init__(self, trace: Trace, seed: int) -> None:
        self._trace = trace
        self._seed = seed
        self._scores: dict[str, pa.Table | None] = {}
        self._dealt: tuple[np.ndarray, np.ndarray] | None = None
        self._main, self._reached = trace.manifest.drafter.outcomes(trace)
        self._on_path = self._main == "positions"

    def columns(self, table: str) -> frozenset[str]:
        """Those of the trace, but for tables that a placebo has not."""
        if table not in ("positions", "branches", "lattice"):
            return frozenset()
        return self._trace._source.columns(table)

    def rows(self, table: str) -> int:
        """See `Source`."""
        return len(self._pool) if table == "branches" else self._trace.rows(table)

    def read(self, table: str, column: str) -> np.ndarray:
        """See `Source`."""
        if column not in self.columns(table):
            raise TraceError(f"{table}: column {column} is not in this trace")
        out = np.ascontiguousarray(self._made(table, column))
        if out.flags.owndata:
            out.flags.writeable = False
        return out

    def sequences(self) -> pa.Table:
        """Those of the trace."""
        return self._trace.sequences

    def extra(self, name: str) -> pa.Table | None:
        """Timing samples as they are, scores shuffled."""
        folder, _, file = name.rpartition("/")
        if folder == "scores" and name not in self._scores:
            known = self._trace.extra(name) is not None
            self._scores[name] = self._shuffled(file.removesuffix(".parquet")) if known else None
        if folder == "scores":
            return self._scores[name]
        return self._trace.extra(name) if name == "latency.parquet" else None

    def hash(self) -> str:
        """A sha256 over what the placebo is a function of."""
        return hashlib.sha256(f"placebo {self._seed} of {self._trace.hash}".encode()).hexdigest()

    def _rng(self, what: str) -> np.random.Generator:
        return np.random.default_rng([self._seed, self._own, zlib.crc32(what.encode())])

    @cached_property
    def _own(self) -> int:
        """Of this trace alone: placebos of two recordings of the same prompts are independent."""
        return int(self._trace.hash[:8], 16)

    def _made(self, table: str, column: str) -> np.ndarray:
        if column == "accepted":
            return self._accepted if table == self._main else self._flips(table, self.rows(table))
        if table == "branches":
            return self._branch(column)
        if column == "draft_token" and self._on_path:
            return self._draft_token
        base = self._trace.column(table, column)
        if column not in _SHUFFLED:
            return base
        if self._trace.sampler.greedy and column in _GREEDY:
            return self._accepted.astype(np.float32)
        if column in schema.DRAFT_STATISTICS:
            return base[self._order("draft")]
        if column == "target_prob" and "draft_prob" in self.columns(table):
            known = self._trace.column(table, "draft_prob")
            ratio = np.divide(base, known, out=np.ones_like(base), where=known > 0)
            return np.minimum(1, known[self._order("draft")] * ratio[self._order("pair")])
        if column == "cross_entropy" and "draft_entropy" in self.columns(table):
            known = self._trace.column(table, "draft_entropy")
            divergence = (base - known)[self._order("pair")]
            return (known[self._order("draft")] + divergence).astype(np.float32)
        return base[self._order("pair")]

    def _order(self, which: str) -> np.ndarray:
        """A permutation of the main table's rows."""
        return self._rng(which).permutation(self._trace.rows(self._main))

    @cached_property
    def _share(self) -> float:
        """The share of draft tokens that are accepted, of those whose fate counts."""
        accepted = self._trace.column(self._main, "accepted")[self._reached]
        return float(accepted.mean()) if len(accepted) else 0.0

    def _flips(self, what: str, n: int) -> np.ndarray:
        return self._rng(f"accepted, {what}").random(n) < self._share

    @cached_property
    def _accepted(self) -> np.ndarray:
        return self._flips(self._main, self._trace.rows(self._main))

    @cached_property
    def _draft_token(self) -> np.ndarray:
        """The output's token where it is accepted; else a rejected one of the trace."""
        output, draft = (self._trace.positions(name) for name in ("target_token", "draft_token"))
        lost = draft[~self._trace.positions("accepted")]
        if not len(lost):
            return output
        drawn = self._rng("rejected tokens").permutation(np.resize(lost, len(output)))
        eos = self._trace.eos_token_ids
        other = [k for k in range(len(eos) + 2) if k not in eos][:2]
        drawn = np.where(drawn == output, np.where(output == other[0], *other[::-1]), drawn)
        return np.where(self._accepted, output, drawn).astype(np.int32)

    @property
    def _branched(self) -> np.ndarray:
        """On-path rows that have a branch, though it may be empty."""
        eos = np.isin(self._draft_token, np.array(self._trace.eos_token_ids, np.int32))
        return np.flatnonzero(~self._accepted & ~eos)

    @cached_property
    def _branches(self) -> tuple[np.ndarray, np.ndarray]:
        """Rows of the trace's branches in the placebo's order, and the length of each branch."""
        if not self._on_path or not self._trace.n_branch_rows:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        position = self._trace.positions("position")[self._branched]
        deepest = self._trace.max_draft - 1
        room = np.clip(self._trace.max_new_tokens - 1 - position, 0, deepest).astype(np.int64)
        base = self._trace.branches("draft_token")
        drawn = self._rng("branches").permutation(np.resize(np.arange(len(base)), room.sum()))
        ended = np.isin(base[drawn], np.array(self._trace.eos_token_ids, np.int32))
        before = np.concatenate([[0], np.cumsum(ended)])
        starts = np.repeat(before[np.cumsum(room) - room], room)
        kept = before[:-1] == starts  # no EOS earlier in this branch
        which = np.repeat(np.arange(len(room)), room)[kept]
        return drawn[kept], np.bincount(which, minlength=len(room))

    @property
    def _pool(self) -> np.ndarray:
        return self._branches[0]

    def _branch(self, column: str) -> np.ndarray:
        pool, lengths = self._branches
        if column == "depth":
            return count_up(lengths)
        if column in ("sequence", "position"):
            return np.repeat(self._trace.positions(column)[self._branched], lengths)
        if column in (*schema.DRAFT_STATISTICS, "draft_token"):
            return self._trace.branches(column)[pool]
        pair = pool[self._rng("pair, branches").permutation(len(pool))]
        return self._trace.branches(column)[pair]

    def _shuffled(self, head: str) -> pa.Table:
        found, made = scores.load(self._trace, head), Trace(self._trace.manifest, self)
        if isinstance(found, scores.RowScores):
            path, off = found.path[self._order("draft")], found.branches[self._pool]
            path, off = _all_scored(path), _all_scored(off)
            shuffled = scores.RowScores(path, off, found.lag)
        else:
            shuffled = scores.StartScores(self._by_start(found.values))
        return scores.to_table(made, shuffled, {"placebo of": head})

    def _by_start(self, values: np.ndarray) -> np.ndarray:
        """(R, D), each depth's scores dealt out over starts; of a lattice those that have one."""
        scored = ~np.isnan(values)
        if self._dealt is None or not np.array_equal(self._dealt[0], scored):
            self._dealt = scored, self._deal(scored)
        return np.take_along_axis(values, self._dealt[1], 0)

    def _deal(self, scored: np.ndarray) -> np.ndarray:
        """From which start each start has its score, by depth, (R, D) int32."""
        n, depths = scored.shape
        source = np.repeat(np.arange(n, dtype=np.int32)[:, None], depths, 1)
        for depth in range(depths):
            pool = np.flatnonzero(scored[:, depth]).astype(np.int32)
            to = slice(None) if self._on_path else pool
            if len(pool):
                dealt = np.resize(pool, len(source[to, depth]))
                source[to, depth] = self._rng(f"starts, {depth}").permutation(dealt)
        return source


def _all_scored(values: np.ndarray) -> np.ndarray:
    """Scores with others of them where there are none: other rows end a draft here."""
    there = ~np.isnan(values)
    if there.all() or not there.any():
        return values
    return np.where(there, values, np.resize(values[there], len(values)))
