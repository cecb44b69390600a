"""Costs fitted to measured passes: samples from a log of live runs, and the linear form."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from simkit.costs.base import Model
from simkit.costs.linear import Linear
from simkit.costs.passes import Passes
from simkit.costs.timed_models import of_samples
from simkit.errors import CostError


def samples(
    log: pa.Table,
    passes: Sequence[int] | None = None,
    rules: Sequence[int] | None = None,
    draws: int = 0,
) -> pa.Table:
    """Timing samples for a `measured` cost, one for each cell of passes alike, from live runs.

    Contexts are cut into cells of equally many passes, which stand at their mean context. A cell's
    seconds are the mean of the central 90%: predictions are sums, and a median leaves out what is
    skew. Policies' and heads' seconds are sums over runs, divided by decisions and calls: what
    `limit` and `update` take, and a head's first reading of the prompt, is in them. There a span
    of more than ten times the median of its kind is a stall, and counts as that long.

    To policies that look at no token no decision is charged: a step's mean of their `limit` and
    `update` counts as overhead. As every policy's steps pay that, it is taken off the seconds of
    those that look at tokens, which so pay for what theirs take longer, or less.

    The first draft pass of a step is slower than the others: it meets caches that the target has
    filled, and behind a draft that was accepted whole it reads one token more. Draft samples are
    those of the second to the eighth pass; by how much the first is slower is a part of the step's
    overhead, like all that no part of the step explains. A step without a draft pays it too.

    Args:
        log: `traces.schema.LIVE`, of single sequences.
        passes: runs whose passes and overheads count; None: all.
        rules: runs whose policies' and heads' time counts; None: all.
        draws: so many times the prompts are drawn anew, and samples of those added
            (`simkit.costs.passes.Passes.drawn`), from which intervals take the spread of times.

    Returns:
        `traces.schema.LATENCY`.

    Raises:
        CostError: there are no passes, or they are those of batches.
    """
    found = Passes.of(log, passes, rules)
    return found.drawn(draws) if draws else found.samples()


@dataclass(frozen=True)
class Residual:
    """How far the linear form is from the passes of one kind.

    Attributes:
        what: "draft", "verify", "decode", "draft prefill" or "target prefill".
        cells: (tokens, context) pairs that were measured.
        median: of the absolute relative errors.
        p95: their 95th percentile.
        worst: the largest of them.
    """

    what: str
    cells: int
    median: float
    p95: float
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
    cost = Linear(**given, timed=of_samples(table, None))
    return cost, _residuals(cost, cells)


def arguments(cost: Linear) -> dict[str, float]:
    """What must be given to make a cost anew: the numbers that are not the defaults."""
    values = {field.name: (getattr(cost, field.name), field.default) for field in fields(cost)}
    del values["timed"]  # which are no number
    return {name: value for name, (value, default) in values.items() if value != default}


def _medians(table: pa.Table, model: str) -> np.ndarray:
    """Tokens, context, median seconds of each pass that was timed, (n, 3)."""
    rows = table.filter(pc.field("component") == model)
    tokens, context, seconds = (rows[c].to_numpy() for c in ("tokens_in", "context_len", "seconds"))
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
                ends = np.quantile(error, (0.5, 0.95, 1)).tolist()
                out.append(Residual(what, int(some.sum()), *ends))
    return out
