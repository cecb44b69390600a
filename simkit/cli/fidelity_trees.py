"""`simkit fidelity` on a trace of trees: what runs, and running it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    import pyarrow as pa

    from simkit.cli.running import PairNames
    from simkit.fidelity import LivePlan
    from simkit.live.interleave import Turns
    from simkit.live.settings import DecoderSettings
    from simkit.policies import Policy
    from traces.trace import Trace

POLICIES = (
    "eagle2(top_k=1, depth=5, total=7)",
    "eagle2(top_k=4, depth=3, total=12)",
    "eagle2(top_k=8, depth=5, total=32)",
    "eagle2",
    "static([[0], [0, 0], [0, 0, 0], [0, 1], [1], [1, 0], [2], [3]])",
)
"""Tested by default, where the trees hold them."""


def tree_plan(
    trace: Trace,
    specs: list[str] | None,
    heads: list[str] | None,
    settings: DecoderSettings,
    sizes: Any,
) -> LivePlan:
    """What to run, checked before the models are loaded.

    Args:
        trace: of trees.
        specs: of the policies to test; none: `POLICIES`.
        heads: that were given, as --head names them.
        settings: how to decode.
        sizes: prompts, calibration and rounds.

    Raises:
        LiveError: T_max is not the trace's, nobody reads a head, or there are too few prompts.
        PolicyError: a policy drafts no trees, cannot run live, lacks its head, or its passes fit
            the cost.
        ReplayError: nodes that it drafts were not recorded.
    """
    from simkit import policies
    from simkit.cli.live_trees import heads_of
    from simkit.errors import LiveError, PolicyError
    from simkit.fidelity import run
    from simkit.live.trees import check
    from simkit.policies.base import Branching
    from simkit.simulator import replay
    from traces.subset import select_trees

    if settings.max_new_tokens != trace.max_new_tokens:
        raise LiveError(f"--max-new-tokens must be the trace's {trace.max_new_tokens} for trees")
    if not trace.sampler.greedy and trace.manifest.coupling != "target":
        raise LiveError("sampled trees run live only if they were recorded with --coupling target")
    if min(sizes) < 1:
        raise LiveError("prompts, calibration and rounds must be at least 1")
    chosen: list[Policy] = []
    for policy in dict.fromkeys(map(policies.parse, specs or POLICIES)):
        if not isinstance(policy, Branching):
            raise PolicyError(f"{policy} drafts no trees, but the trace is of trees")
        if policy in run.FITTED_TREES:
            raise PolicyError(f"{policy} fits the cost, so it cannot be tested: give another one")
        chosen.append(check(cast(Any, policy)))
    run.check_heads(chosen, heads_of(cast(Any, chosen), heads), trace)
    read = list(dict.fromkeys(policy.head for policy in chosen if policy.head))
    held_out, fitted = run.split(trace.prompt_numbers, sizes.n_prompts, sizes.calibration)
    replay(select_trees(trace, held_out, heads=read), chosen, first_token=settings.first_token)
    return run.LivePlan(tuple(chosen), held_out, fitted, sizes.rounds, run.FITTED_TREES)


def decoded_trees(
    trace: Trace,
    plan: LivePlan,
    settings: DecoderSettings,
    names: PairNames,
    threads: int | None,
    turns: Turns,
    by_processor: bool,
    heads: list[str] | None,
    file: Path | None,
) -> pa.Table:
    """Run a plan; the log, which is kept in a file too.

    Args:
        trace: of trees.
        plan: what to run.
        settings: how to decode.
        names: target, drafter's folder, device, dtype, revision.
        threads: see `use_threads`.
        turns: see `simkit.live.interleave`.
        by_processor: take the processor's time.
        heads: as --head names them.
        file: of the log.
    """
    from simkit.cli.running import load_alone, measured, must_fit
    from simkit.fidelity import run
    from simkit.live.chosen import load_heads
    from simkit.live.rotation import use_threads
    from simkit.live.tree_arms import TreeBench, load_network
    from traces.record.drafters.target import check_target

    use_threads(threads)
    target_name, folder, device, dtype, revision = names
    target = load_alone(target_name, device, dtype, revision)
    check_target(trace, target.target)
    kind = (trace.manifest.spec or "").partition("(")[0]
    with must_fit():
        network, vocab_size = load_network(f'{kind}("{folder}")', target, dtype)
    run.check_drafter(trace, network)
    known = load_heads(heads)
    bench = TreeBench(target, network, vocab_size, settings, turns, by_processor, known)
    return measured(trace, plan, bench, file, tell=False)
