"""Costs fitted to measured passes: samples from a log of live runs, and the linear form."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from simkit.costs.base import Model
from simkit.costs.linear import Linear
from simkit.errors import CostError
from traces import schema

TRIM = 0.05  # of a cell's samples, on each side: stalls of the machine
CELLS = 6  # into which contexts are cut, at most
_PASSES = 400  # of a cell, before there is another one
_FEWEST = 3  # samples of a cell that counts, where others have more
_DEEPEST = 8  # draft passes of one step that are sampled: later ones are faster still, and rare
_STALL = 10  # times the median: a longer decision is counted as that long


def samples(
    log: pa.Table, passes: Sequence[int] | None = None, rules: Sequence[int] | None = None
) -> pa.Table:
    """Timing samples for a `measured` cost, one for each cell of passes alike, from live runs.

    Contexts are cut into cells of equally many passes, which stand at their mean context. A cell's
    seconds are the mean of the central 90%: predictions are sums, and a median leaves out what is
    skew. Policies' and heads' seconds are sums over runs, divided by decisions and calls: what
    `limit` and `update` take, and a head's first reading of the prompt, is in them.

    The first draft pass of a step is slower than the others: it meets caches that the target has
    filled, and behind a draft that was accepted whole it reads one token more. Draft samples are
    those of the second to the eighth pass; by how much the first is slower is a part of the step's
    overhead, like all that no part of the step explains, and like `limit` and `update` of policies
    that look at no token, to which no decision is charged. A step without a draft pays it too.

    Args:
        log: `traces.schema.LIVE`, batch size 1.
        passes: runs whose passes and overheads count; None: all.
        rules: runs whose policies' and heads' time counts; None: all.

    Returns:
        `traces.schema.LATENCY`.

    Raises:
        CostError: there are no passes.
    """
    facts = {k.decode(): v.decode() for k, v in (log.schema.metadata or {}).items()}
    table = log.filter(pc.field("batch_size") == 1)
    mine = table if passes is None else table.filter(pc.field("run").isin(list(passes)))
    theirs = table if rules is None else table.filter(pc.field("run").isin(list(rules)))
    drafts, surplus = _drafts(mine)
    rows = drafts + _passes(mine) + _overheads(mine, surplus) + _decisions(theirs)
    if not rows:
        raise CostError("no passes of batch size 1 in the log of live runs")
    fixed = {
        "batch_size": 1,
        "dtype": facts.get("dtype", "unknown"),
        "device": facts.get("device", "unknown"),
        "engine": facts.get("engine", "eager"),
        "repeat": 0,
    }
    names = ("component", "tokens_in", "context_len", "seconds")
    named = [dict(zip(names, row, strict=True)) for row in rows]
    return pa.Table.from_pylist([row | fixed for row in named], schema=schema.LATENCY)


def trimmed_mean(values: np.ndarray) -> float:
    """The mean of the values between the outer 5% on each side."""
    cut = int(len(values) * TRIM)
    return float(np.sort(values)[cut : len(values) - cut].mean())


Sample = tuple[str, int, int, float]


def _passes(table: pa.Table) -> list[Sample]:
    out: list[Sample] = []
    for kind, component in (("verify", "target"), ("prefill", "draft"), ("prefill", "target")):
        rows = table.filter((pc.field("kind") == kind) & (pc.field("component") == component))
        if rows.num_rows:
            tokens, context, seconds = _arrays(rows)
            cell = _cells(context) if kind == "verify" else np.zeros(len(context), int)
            out += _means(component, tokens, context, seconds, cell)
    return out


def _drafts(table: pa.Table) -> tuple[list[Sample], float]:
    """Draft passes behind the first of a step, and by how many seconds the first is slower."""
    rows = table.filter(pc.field("kind") == "draft")
    if not rows.num_rows:
        return [], 0.0
    _, context, seconds = _arrays(rows)
    one, cell = np.ones(len(context), int), _cells(context)
    depth = rows["depth"].to_numpy()
    opening, later = depth == 1, (depth > 1) & (depth <= _DEEPEST)
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


def _means(
    component: str, tokens: np.ndarray, context: np.ndarray, seconds: np.ndarray, cell: np.ndarray
) -> list[Sample]:
    """One sample for each (tokens, cell) that has enough passes."""
    keys, which, counts = np.unique(
        np.stack([cell, tokens]), axis=1, return_inverse=True, return_counts=True
    )
    which = which.reshape(-1)
    fewest = min(_FEWEST, counts.max())
    at = {c: max(round(float(context[cell == c].mean())), 0) for c in np.unique(cell)}
    return [
        (component, int(n), at[c], trimmed_mean(seconds[which == k]))
        for k, (c, n) in enumerate(keys.T)
        if counts[k] >= fewest
    ]


def _cells(context: np.ndarray) -> np.ndarray:
    """A cell for each context, numbered from 0, with about as many passes each."""
    n = min(max(len(context) // _PASSES, 1), CELLS)
    edges = np.unique(np.quantile(context, np.linspace(0, 1, n + 1)[1:-1]))
    return np.unique(np.searchsorted(edges, context, side="right"), return_inverse=True)[1]


def _overheads(table: pa.Table, surplus: float) -> list[Sample]:
    """Mean seconds of a step that no part explains: of the target alone, and of the others."""
    out = []
    policy = np.array(table["policy"].to_pylist(), object)
    kind = np.array(table["kind"].to_pylist(), object)
    component = np.array(table["component"].to_pylist(), object)
    decided = set(component[(kind == "policy") & (table["depth"].to_numpy() > 0)])
    free = (kind == "policy") & ~np.isin(component, list(decided))
    inside = (table["step"].to_numpy() > 0) & ~free
    signed = table["seconds"].to_numpy() * np.where(kind == "step", 1, -1)
    keys = np.stack([table[c].to_numpy() for c in ("run", "round", "sequence", "step")])
    for name, chosen, more in (
        ("overhead", policy != "baseline", surplus),
        ("overhead:baseline", policy == "baseline", 0.0),
    ):
        some = chosen & inside & (kind != "sequence")
        if some.any():
            _, which = np.unique(keys[:, some], axis=1, return_inverse=True)
            rest = np.bincount(which.reshape(-1), signed[some])
            out.append((name, 0, 0, max(trimmed_mean(rest) + more, 1e-9)))
    return out


def _decisions(table: pa.Table) -> list[Sample]:
    """Seconds a decision of each policy, and a call of each head."""
    out = []
    component = np.array(table["component"].to_pylist(), object)
    depth, seconds = table["depth"].to_numpy(), table["seconds"].to_numpy()
    for name in sorted(set(component)):
        if not name.startswith(("policy:", "head:")):
            continue
        mine = component == name
        calls = mine & (depth > 0)
        if not calls.any():
            continue
        once = seconds[mine & (depth == 0)]
        most = _STALL * np.median(seconds[calls])
        total = np.minimum(seconds[calls], most).sum() + np.minimum(once, most).sum()
        out.append((name, 1, 0, float(total / np.count_nonzero(calls))))
    return out


def _arrays(rows: pa.Table) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    tokens, context, seconds = (rows[c].to_numpy() for c in ("tokens_in", "context_len", "seconds"))
    return tokens, context, seconds


@dataclass(frozen=True)
class Residual:
    """How far the linear form is from the passes of one kind.

    Attributes:
        what: "draft", "verify", "decode", "draft prefill" or "target prefill".
        cells: (tokens, context) pairs that were measured.
        median: of the absolute relative errors.
        worst: the largest of them.
    """

    what: str
    cells: int
    median: float
    worst: float


def linear(table: pa.Table) -> tuple[Linear, list[Residual]]:
    """The `linear` cost nearest to timing samples, and how near that is.

    Least squares with coefficients >= 0 (`scipy.optimize.nnls`) on relative errors of the median of
    each (tokens, context). Target passes over one token behind a context are fitted apart, as
    `decode_s`.

    Args:
        table: `traces.schema.LATENCY`.

    Raises:
        CostError: a model has no samples.
    """
    cells = {model: _medians(table, model) for model in ("draft", "target")}
    given: dict[str, Any] = {}
    for model, rows in cells.items():
        if not len(rows):
            raise CostError(f"no samples of {model} passes")
        alone = (rows[:, 0] == 1) & (rows[:, 1] > 0)
        apart = model == "target" and 0 < np.count_nonzero(alone) < len(rows)
        fixed, token, kv = _nnls(rows[~alone] if apart else rows)
        given |= {f"{model}_s": fixed, f"{model}_per_token_s": token}
        given[f"{model}_per_kv_token_s"] = kv
        if apart:
            decode = rows[alone]
            given["decode_s"] = max(float(np.mean(decode[:, 2] - kv * decode[:, 1])), 0.0)
    names = {"overhead": "overhead_s", "overhead:baseline": "baseline_overhead_s"}
    given |= {key: _mean(table, [name]) for name, key in names.items()}
    for prefix, key in (("policy:", "policy_s"), ("head:", "head_s")):
        found = {c for c in table["component"].to_pylist() if c.startswith(prefix)}
        given[key] = _mean(table, sorted(found))
    cost = Linear(**given)
    return cost, _residuals(cost, cells)


def _medians(table: pa.Table, model: str) -> np.ndarray:
    """Tokens, context, median seconds of each pass that was timed, (n, 3)."""
    rows = table.filter(pc.field("component") == model)
    tokens, context, seconds = _arrays(rows)
    keys, which = np.unique(np.stack([tokens, context]), axis=1, return_inverse=True)
    which = which.reshape(-1)
    medians = [np.median(seconds[which == k]) for k in range(keys.shape[1])]
    return np.column_stack([keys.T, medians]).astype(float)


def _nnls(rows: np.ndarray) -> list[float]:
    from scipy.optimize import nnls

    form = np.column_stack([np.ones(len(rows)), rows[:, :2]]) / rows[:, 2:]
    scale = form.max(0, initial=1e-300)
    return (nnls(form / scale, np.ones(len(rows)))[0] / scale).tolist()


def _mean(table: pa.Table, components: Sequence[str]) -> float:
    rows = table.filter(pc.field("component").isin(pa.array(components, pa.string())))
    return float(np.mean(rows["seconds"].to_numpy())) if rows.num_rows else 0.0


def _residuals(cost: Linear, cells: dict[str, np.ndarray]) -> list[Residual]:
    out = []
    models: tuple[Model, Model] = ("draft", "target")
    for model in models:
        rows = cells[model]
        tokens, context, seconds = rows.T
        begins, single = context == 0, tokens == 1
        kinds = [(f"{model} prefill", begins, cost.prefill(model, tokens))]
        if model == "draft":
            kinds.append(("draft", ~begins & single, cost.draft(context)))
        else:
            kinds.append(("verify", ~begins & ~single, cost.verify(tokens, context)))
            kinds.append(("decode", ~begins & single, cost.decode(context)))
        for what, some, predicted in kinds:
            if some.any():
                error = np.abs(predicted[some] / seconds[some] - 1)
                size, middle = int(some.sum()), float(np.median(error))
                out.append(Residual(what, size, middle, float(error.max())))
    return out
