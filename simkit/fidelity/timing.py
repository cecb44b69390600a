"""Times of rules and passes in a running decoder, from Python: for functions of a notebook too."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import pyarrow as pa

from simkit.costs import fit
from simkit.costs.measured import DRAWS
from simkit.errors import LiveError
from simkit.fidelity.run import LivePlan, check_pair, measure
from simkit.live.block_scorer import BlockScorer
from simkit.live.deciders import check
from simkit.live.log import LiveLog
from simkit.live.rotation import Bench
from simkit.live.settings import DecoderSettings
from simkit.policies import Sequential, parse
from simkit.policies.base import chain_of
from simkit.simulator.arguments import AnyPolicy, listed, policy_of
from traces.conditions import Watch
from traces.trace import Trace

if TYPE_CHECKING:
    from traces.record.pair import Pair


def calibrate(
    trace: Trace,
    pair: Pair,
    policies: AnyPolicy | Iterable[AnyPolicy],
    prompts: int = 12,
    rounds: int = 3,
    heads: Mapping[str, BlockScorer] | None = None,
    draws: int = DRAWS,
) -> pa.Table:
    """Let the trace's own pair decode some of its prompts, and time what that takes.

    What `simkit calibrate` does, for policies that have no spec: a function is timed under its
    label. Write the samples to a Parquet file to have a cost, or put them into the trace.

    Args:
        trace: of rows.
        pair: that recorded it, loaded (`traces.record.pair.load_pair`).
        policies: whose rules are timed; objects, specs or functions, none fitted to a trace.
        prompts: so many of the trace's, spread over it.
        rounds: how often every prompt is decoded.
        heads: those that the policies read, by name.
        draws: see `simkit.costs.fit.samples`.

    Returns:
        `traces.schema.LATENCY`, its conditions in the metadata.

    Raises:
        LiveError: the pair is not the trace's, or a number is out of range.
        PolicyError: a policy cannot run live.
    """
    check_pair(trace, pair)
    n = trace.n_sequences
    if not 1 <= prompts <= n:
        raise LiveError(f"prompts must be from 1 to {n}, the trace's, not {prompts}")
    settings = DecoderSettings.of(trace)
    rules: list[Sequential] = []
    for given in listed(policies):
        policy = chain_of(policy_of(given, parse), "it cannot be timed")
        check(policy, settings, heads or {})
        rules.append(policy)
    chosen = tuple(k * n // prompts for k in range(prompts))
    plan, log, watch = LivePlan(tuple(rules), (), chosen, rounds), LiveLog(), Watch()
    measure(trace, Bench(pair, settings, heads or {}), plan, log, lambda: None)
    known = watch.conditions().of_models(trace.manifest.target, trace.manifest.draft)
    table = known.kept_in(log.table())
    return fit.samples(table, plan.passes, plan.rules, draws)
