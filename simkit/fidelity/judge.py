"""From a log to a verdict: fit the cost, replay the held-out prompts, compare."""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from simkit.costs import fit
from simkit.costs.passes import Passes
from simkit.errors import LiveError
from simkit.fidelity import logs
from simkit.fidelity.comparison import compare
from simkit.fidelity.errors import REFITS, refits
from simkit.fidelity.results import FidelityResult
from simkit.fidelity.run import LivePlan
from simkit.simulator import replay
from traces.messages import how_many
from traces.subset import select, select_trees
from traces.trace import Trace

EXACT = ("float32", "float64")  # in which live steps must be the replayed ones


class Judgement(NamedTuple):
    """What a log came to.

    Attributes:
        comparison: of predictions and clock.
        samples: of the cost that was fitted, `traces.schema.LATENCY`.
        residuals: of the linear form on them.
        facts: about the run, in words.
    """

    comparison: FidelityResult
    samples: pa.Table
    residuals: list[fit.Residual]
    facts: dict[str, str]


def judge(trace: Trace, log: pa.Table, n_refits: int = REFITS) -> Judgement:
    """Hold the predictions of a trace against the log of a `simkit fidelity` run on its pair.

    Nothing runs: the log says which policies decoded which prompts, and in which steps.

    Args:
        trace: of rows, with the scores that the policies read; or of trees.
        log: `traces.schema.LIVE`.
        n_refits: of the cost, for the intervals of errors.

    Raises:
        LiveError: it is the log of something else, or too short.
        CostError: the calibration prompts' passes do not make a cost.
    """
    plan = logs.plan_of(log, trace)
    passes = _calibration(log, trace, plan)
    samples = passes.samples()
    chosen = _held_out(trace, log, plan, samples)
    replayed = replay(chosen, list(plan.policies), first_token=logs.first_token(log))
    dtype = logs.fact(log, "dtype", "unknown dtype")
    turns, device = logs.fact(log, "turns", "sequence"), logs.fact(log, "device", "unknown device")
    exact = {dtype, trace.manifest.dtype} <= {*EXACT}
    name = trace.path.name if trace.path else "in memory"
    n_held_out, n_fitted = len(plan.held_out), len(plan.calibration)
    facts = {
        "trace": f"{name}, {how_many(n_held_out, 'prompt')} held out, {n_fitted} for calibration",
        "live": f"{plan.rounds} round{'s'[: plan.rounds > 1]} by {turns}s, {dtype}, {device}",
    }
    if logs.fact(log, "clock", "wall") == "processor":
        facts["times"] = "the processor's, which stands still while others have it"
    if len(_prefilled(samples)) == 1:
        facts["prefill"] = "timed on prompts of one length: those of any length count as long"
    found = compare(log, plan, replayed, refits(passes, n_refits), exact)
    return Judgement(found, samples, fit.linear(samples)[1], facts)


def _held_out(trace: Trace, log: pa.Table, plan: LivePlan, samples: pa.Table) -> Trace:
    """The held-out prompts alone, with the times of the others' passes.

    Raises:
        LiveError: the run was on shorter outputs of a trace of trees, which are not cut.
    """
    budget = int(logs.fact(log, "max_new_tokens", str(trace.max_new_tokens)))
    heads = list(dict.fromkeys(policy.head for policy in plan.policies if policy.head))
    if trace.manifest.kind == "tree":
        if budget != trace.max_new_tokens:
            raise LiveError(
                f"trees of {how_many(trace.max_new_tokens, 'token')} cannot be cut to {budget}"
            )
        return select_trees(trace, plan.held_out, samples, heads)
    return select(trace, plan.held_out, heads, budget, samples)


def _prefilled(samples: pa.Table) -> set[int]:
    """The lengths of prompts that the target's prefill was timed on."""
    of_target = (pc.field("component") == "target") & (pc.field("context_len") == 0)
    return set(samples.filter(of_target)["tokens_in"].to_pylist())


def _calibration(log: pa.Table, trace: Trace, plan: LivePlan) -> Passes:
    """The passes of the calibration prompts."""
    numbers = [trace.sequences["sequence"][index].as_py() for index in plan.calibration]
    mine = log.filter(pc.field("sequence").isin(pa.array(numbers, pa.int32())))
    return Passes.of(mine, plan.passes, plan.rules)
