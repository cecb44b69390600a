"""The passes of live runs by what they time, and timing samples as means over them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from simkit.errors import CostError
from traces import schema
from traces.conditions import DRAW, Conditions, conditions
from traces.messages import how_many

TRIM = 0.05  # of a cell's samples, on each side: stalls of the machine
CELLS = 6  # into which contexts are cut, at most
_PASSES = 400  # of a cell, before there is another one
_FEWEST_PASSES = 3  # samples of a cell that counts, where others have more
_DEEPEST = 8  # draft passes of one step that are sampled: later ones are faster still, and rare
_STALL = 10  # times the median of its kind: a longer span of a rule counts as that long

Sample = tuple[str, int, int, float]
_SAMPLE = ("component", "tokens_in", "context_len", "seconds")


class Timings(NamedTuple):
    """Spans of one kind, arrays (n,): prompt, tokens in, context, depth in a draft, seconds."""

    sequence: np.ndarray
    tokens: np.ndarray
    context: np.ndarray
    depth: np.ndarray
    seconds: np.ndarray

    def of(self, sequences: np.ndarray) -> Timings:
        """Those of some prompts, as often as a prompt is named."""
        order = np.argsort(self.sequence, kind="stable")
        there = self.sequence[order]
        lows, highs = (np.searchsorted(there, sequences, side) for side in ("left", "right"))
        parts = [order[a:b] for a, b in zip(lows, highs, strict=True)]
        which = np.concatenate([np.empty(0, np.int64), *parts])
        return Timings(*(column[which] for column in self))


@dataclass(frozen=True)
class Passes:
    """What a log of live runs has for a cost.

    Attributes:
        passes: by kind: "draft", "verify", "draft prefill", "target prefill"; "overhead" and
            "overhead:baseline", the seconds of a step that no part of it explains; "asked", those
            of its `limit` and `update` where the policy looks at no token.
        rules: by component, policies and heads; depth 0 is no decision but `limit` or `update`.
        facts: the columns that are alike in all samples.
        conditions: under which they were timed; their control is `rounds_apart`.
    """

    passes: dict[str, Timings]
    rules: dict[str, Timings]
    facts: dict[str, str | int]
    conditions: Conditions = Conditions()

    @classmethod
    def of(
        cls, log: pa.Table, passes: Sequence[int] | None = None, rules: Sequence[int] | None = None
    ) -> Passes:
        """Sort a log; the arguments are those of `simkit.costs.fit.samples`.

        Raises:
            CostError: there are no passes, or they are those of batches.
        """
        if (largest := log["batch_size"].to_numpy().max(initial=1)) > 1:
            # its passes over one sequence are the ends of batches, padded to what has left
            raise CostError(
                f"the log has batches of up to {largest}, but a cost needs passes of batch size 1"
            )
        given = {k.decode(): v.decode() for k, v in (log.schema.metadata or {}).items()}
        defaults = {"dtype": "unknown", "device": "unknown", "engine": "eager"}
        facts = {name: given.get(name, value) for name, value in defaults.items()}
        mine, theirs = (
            log if runs is None else log.filter(pc.field("run").isin(list(runs)))
            for runs in (passes, rules)
        )
        found = _passes(mine)
        if not found:
            raise CostError("no passes in the log of live runs")
        facts = {**facts, "batch_size": 1, "repeat": 0}
        return cls(found, _rules(theirs), facts, rounds_apart(mine, conditions(log)))

    def again(self, rng: np.random.Generator) -> Passes:
        """Prompts drawn anew with replacement; those that timed rules among themselves.

        One fewer than there are: means of n - 1 draws from n scatter as means of n prompts do,
        those of n draws less, by sqrt(1 - 1 / n) (Rao and Wu 1988).
        """
        return replace(self, passes=_again(self.passes, rng), rules=_again(self.rules, rng))

    def samples(self) -> pa.Table:
        """One sample for each cell of passes alike, `traces.schema.LATENCY`.

        See `simkit.costs.fit.samples`. The conditions are in the table's metadata.
        """
        return self.conditions.kept_in(self._table())

    def drawn(self, n: int, seed: int = 0) -> pa.Table:
        """`samples`, and behind them those of n draws of prompts (`again`).

        Their components begin with `traces.conditions.DRAW`, `repeat` is the number of the draw,
        from 1. Costs take their spread from them.
        """
        rng = np.random.default_rng(seed)
        again = [self.again(rng)._table(DRAW, number) for number in range(1, n + 1)]
        return self.conditions.kept_in(pa.concat_tables([self._table(), *again]))

    def _table(self, prefix: str = "", repeat: int = 0) -> pa.Table:
        """The cells' rows, of components with this prefix."""
        facts = self.facts | {"repeat": repeat}
        rows = [(f"{prefix}{component}", *rest) for component, *rest in self._cells()]
        named = [dict(zip(_SAMPLE, row, strict=True)) | facts for row in rows]
        return pa.Table.from_pylist(named, schema=schema.LATENCY)

    def _cells(self) -> list[Sample]:
        drafts, surplus_s = _drafts(self.passes.get("draft"))
        rows = drafts + _targets(self.passes)
        asked_s = trimmed_mean(asked.seconds) if (asked := self.passes.get("asked")) else 0.0
        rows += _overheads(self.passes, surplus_s + asked_s)
        rows += [row for rule in self.rules.items() for row in _decision(*rule, asked_s)]
        return rows


def rounds_apart(log: pa.Table, known: Conditions) -> Conditions:
    """The control of live runs: by how much their rounds, which did the same, took other times.

    The seconds of whole sequences are added up, round by round, of the arms and prompts that were
    decoded in all rounds; the slowest round is held against the fastest.

    Where arms took turns by steps, a machine's drift is in all of them alike and leaves costs in
    the same relation. There the control is the relation: the seconds of the target alone over
    those of the other arms, the largest of a round against the least. The rounds' own seconds are
    in the words. How many prompts and rounds there were is known in any case.

    Args:
        log: `traces.schema.LIVE`.
        known: what is known of the load.
    """
    whole = log.filter(pc.field("kind") == "sequence")
    keys = np.stack([whole[name].to_numpy() for name in ("run", "sequence")])
    number, seconds = whole["round"].to_numpy(), whole["seconds"].to_numpy()
    rounds = np.unique(number)
    known = replace(known, prompts=len(np.unique(keys[1])), rounds=len(rounds))
    _, which, counts = np.unique(keys, axis=1, return_inverse=True, return_counts=True)
    complete = counts[which.reshape(-1)] == len(rounds)
    if len(rounds) < 2 or not complete.any():
        return known
    alone = np.array(whole["policy"].to_pylist()) == "baseline"
    in_round = [complete & (number == k) for k in rounds]
    totals = [seconds[mine].sum() for mine in in_round]
    words, apart = f"{how_many(len(rounds), 'round')} over the same prompts", _apart(totals)
    by_steps = (log.schema.metadata or {}).get(b"turns") == b"step"
    if by_steps and alone.any() and apart is not None:
        parts = [seconds[mine & alone].sum() for mine in in_round]
        others = [whole_s - part_s for whole_s, part_s in zip(totals, parts, strict=True)]
        words = (
            f"the target alone against other arms in turns by steps, {words}"
            f" (their seconds {apart:.1%} apart)"
        )
        apart = _apart([a / b for a, b in zip(parts, others, strict=True)])
    return replace(known, control=words, apart=apart)


def _apart(values: list[float]) -> float | None:
    """By how much the largest exceeds the least; None if that is not to be told."""
    return float(max(values) / min(values) - 1) if min(values) > 0 else None


def trimmed_mean(values: np.ndarray) -> float:
    """The mean of the values between the outer 5% on each side."""
    cut = int(len(values) * TRIM)
    return float(np.sort(values)[cut : len(values) - cut].mean())


def _again(kinds: dict[str, Timings], rng: np.random.Generator) -> dict[str, Timings]:
    if not kinds:
        return {}
    prompts = np.unique(np.concatenate([spans.sequence for spans in kinds.values()]))
    drawn = rng.choice(prompts, max(1, len(prompts) - 1))
    found = {name: spans.of(drawn) for name, spans in kinds.items()}
    return {name: spans for name, spans in found.items() if len(spans.seconds)}


_COLUMNS = ("sequence", "tokens_in", "context_len", "depth", "seconds")


def _spans(table: pa.Table, which: np.ndarray) -> Timings:
    return Timings(*(table[name].to_numpy()[which] for name in _COLUMNS))


def _words(table: pa.Table, name: str) -> np.ndarray:
    return np.array(table[name].to_pylist(), object)


def _passes(table: pa.Table) -> dict[str, Timings]:
    kind, component = _words(table, "kind"), _words(table, "component")
    drafts = (kind == "draft") & (table["depth"].to_numpy() > 0)  # at depth 0 nothing is drafted
    chosen = {"draft": drafts, "verify": (kind == "verify") & (component == "target")}
    for model in ("draft", "target"):
        chosen[f"{model} prefill"] = (kind == "prefill") & (component == model)
    found = {name: _spans(table, which) for name, which in chosen.items()} | _rests(table)
    return {name: spans for name, spans in found.items() if len(spans.seconds)}


def _rests(table: pa.Table) -> dict[str, Timings]:
    """Seconds of each step that no part explains: of the target alone, and of the others.

    And those of `limit` and `update` of policies that look at no token, a step.
    """
    policy, kind = _words(table, "policy"), _words(table, "kind")
    component = _words(table, "component")
    decided = list(set(component[(kind == "policy") & (table["depth"].to_numpy() > 0)]))
    inside = (table["step"].to_numpy() > 0) & (kind != "sequence")
    seconds = table["seconds"].to_numpy()
    rest_s = seconds * np.where(kind == "step", 1, -1)
    keys = np.stack([table[c].to_numpy() for c in ("run", "round", "sequence", "step")])
    found = {}
    for name, chosen, values in (
        ("overhead", inside & (policy != "baseline"), rest_s),
        ("overhead:baseline", inside & (policy == "baseline"), rest_s),
        ("asked", inside & (kind == "policy") & ~np.isin(component, decided), seconds),
    ):
        steps, which = np.unique(keys[:, chosen], axis=1, return_inverse=True)
        sums = np.bincount(which.reshape(-1), values[chosen], steps.shape[1])
        none = np.zeros(len(sums), steps.dtype)
        found[name] = Timings(steps[2], none, none, none, sums)
    return found


def _rules(table: pa.Table) -> dict[str, Timings]:
    """Timings of each policy and head, stalls cut.

    A span is held against the median of its kind: decisions; what is around them; and, apart, the
    first decision on each prompt, in which a head reads all of it.
    """
    component, depth = _words(table, "component"), table["depth"].to_numpy()
    keys = np.stack([table[c].to_numpy() for c in ("run", "round", "sequence")])
    found = {}
    for name in sorted(set(component)):
        mine = component == name
        if not name.startswith(("policy:", "head:")) or not (depth[mine] > 0).any():
            continue
        kind = np.where(depth[mine] > 0, 1, 0)
        calls = np.flatnonzero(kind)
        kind[calls[np.unique(keys[:, mine][:, calls], axis=1, return_index=True)[1]]] = 2
        spans = _spans(table, mine)
        most = [_STALL * np.median(spans.seconds[kind == k]) for k in np.unique(kind)]
        limit = np.array(most)[np.searchsorted(np.unique(kind), kind)]
        found[name] = spans._replace(seconds=np.minimum(spans.seconds, limit))
    return found


def _targets(passes: dict[str, Timings]) -> list[Sample]:
    out: list[Sample] = []
    for name, component in (
        ("verify", "target"),
        ("draft prefill", "draft"),
        ("target prefill", "target"),
    ):
        if spans := passes.get(name):
            context = spans.context
            cell = _cells(context) if name == "verify" else np.zeros(len(context), int)
            out += _means(component, spans.tokens, context, spans.seconds, cell)
    return out


def _drafts(spans: Timings | None) -> tuple[list[Sample], float]:
    """Draft passes behind the first of a step, and by how many seconds the first is slower."""
    if spans is None:
        return [], 0.0
    context, depth, seconds = spans.context, spans.depth, spans.seconds
    one, cell = np.ones(len(context), int), _cells(context)
    opening, later = depth == 1, (depth > 1) & (depth <= _DEEPEST)
    if (spans.tokens[depth > 1] > 1).any():
        return _tree_drafts(spans)
    if not later.any():
        return _means("draft", one, context, seconds, cell), 0.0
    surplus = [
        (trimmed_mean(seconds[first]) - trimmed_mean(seconds[others]), np.count_nonzero(first))
        for c in range(cell.max() + 1)
        if (first := (cell == c) & opening).any() and (others := (cell == c) & later).any()
    ]
    values, counts = np.array(surplus).reshape(-1, 2).T
    mean = float(np.average(values, weights=counts)) if counts.sum() else 0.0
    return _means("draft", *(x[later] for x in (one, context, seconds, cell))), mean


def _tree_drafts(spans: Timings) -> tuple[list[Sample], float]:
    """The same of trees, whose passes are over several nodes each, by their number.

    The first pass of a step is over the tokens that were not read yet: it is held against a later
    one over as many nodes.
    """
    opening, cell = spans.depth == 1, _cells(spans.context)
    tokens, context, seconds = (x[~opening] for x in (spans.tokens, spans.context, spans.seconds))
    later = _means("draft", tokens, context, seconds, cell[~opening])
    tokens, seconds = (np.array([sample[k] for sample in later]) for k in (1, 3))
    known = np.unique(tokens)
    mean_s = [seconds[tokens == n].mean() for n in known]
    alike_s = np.interp(spans.tokens[opening], known, mean_s)
    if not opening.any():
        return later, 0.0
    return later, trimmed_mean(spans.seconds[opening] - alike_s)


def _means(
    component: str, tokens: np.ndarray, context: np.ndarray, seconds: np.ndarray, cell: np.ndarray
) -> list[Sample]:
    """One sample for each (tokens, cell) that has enough passes."""
    width = int(tokens.max()) + 1
    keys, which, counts = np.unique(cell * width + tokens, return_inverse=True, return_counts=True)
    fewest = min(_FEWEST_PASSES, counts.max())
    at = {c: max(round(float(context[cell == c].mean())), 0) for c in np.unique(cell)}
    return [
        (component, int(key % width), at[key // width], trimmed_mean(seconds[which == k]))
        for k, key in enumerate(keys)
        if counts[k] >= fewest
    ]


def _cells(context: np.ndarray) -> np.ndarray:
    """A cell for each context, numbered from 0, with about as many passes each."""
    n = min(max(len(context) // _PASSES, 1), CELLS)
    edges = np.unique(np.quantile(context, np.linspace(0, 1, n + 1)[1:-1]))
    return np.unique(np.searchsorted(edges, context, side="right"), return_inverse=True)[1]


def _overheads(passes: dict[str, Timings], more_s: float) -> list[Sample]:
    """Mean seconds of a step that no part explains; `more_s` where it speculates."""
    return [
        (name, 0, 0, max(trimmed_mean(passes[name].seconds) + extra_s, 1e-9))
        for name, extra_s in (("overhead", more_s), ("overhead:baseline", 0.0))
        if name in passes
    ]


def _decision(name: str, spans: Timings, asked_s: float) -> list[Sample]:
    """Seconds a decision of a policy, or a call of a head: all spans over the number of these.

    But for what is in the overhead of each of the policy's steps, which have two spans of depth 0.
    """
    calls = np.count_nonzero(spans.depth > 0)
    paid_s = asked_s * np.count_nonzero(spans.depth == 0) / 2
    return [(name, 1, 0, max(float(spans.seconds.sum() - paid_s) / calls, 1e-9))] if calls else []
