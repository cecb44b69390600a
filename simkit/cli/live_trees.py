"""`simkit live` of tree policies: the target alone, each policy, and the first one again."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Sequence

    from simkit.cli.live_options import LiveOptions
    from simkit.cli.running import Ran
    from simkit.heads.files import Head
    from simkit.live.rotation import LiveJob
    from simkit.live.settings import DecoderSettings
    from simkit.live.tree_arms import TreeBench
    from simkit.trees.growing import Growing


def is_tree(specs: list[str]) -> bool:
    """Whether policies draft trees: all of them, or none.

    Raises:
        LiveError: some do.
    """
    from simkit import policies
    from simkit.errors import LiveError
    from simkit.policies.base import Branching

    found = [isinstance(policies.parse(spec), Branching) for spec in specs]
    if any(found) and not all(found):
        chain, tree = specs[found.index(False)], specs[found.index(True)]
        raise LiveError(f"{tree} drafts trees and {chain} does not: run them separately")
    return any(found)


def live_trees(asked: LiveOptions, settings: DecoderSettings) -> Ran:
    """Run the policies.

    Raises:
        LiveError: options are not of trees, numbers are out of range, or the prompts are too long
            or too few.
        PolicyError: a policy cannot run live.
    """
    from simkit.cli.running import ran, warn_of_heads
    from simkit.live.rotation import Arm, use_threads
    from simkit.overwrite_guard import check_apart, files_of
    from traces.record.header import model_info

    drafter = _drafter(asked)
    chosen = _checked(asked, settings)
    heads = heads_of(chosen, asked.head)
    files = [asked.target, asked.prompts, *files_of(asked.head)]
    check_apart([("--out", asked.out)], files)
    use_threads(asked.threads)
    bench = _bench(asked, drafter, settings, heads)
    warn_of_heads(heads, target=model_info(bench.target.target), draft=bench.draft_info)
    arms = [Arm(), *map(Arm, chosen), Arm(chosen[0])]
    jobs = _jobs(bench, asked, len(arms))
    return ran(bench, arms, jobs, asked.rounds, asked.out)


def _drafter(asked: LiveOptions) -> str:
    """The spec of what drafts the trees."""
    from simkit.errors import LiveError

    others = ("controller", "concurrency", "trace", "cost", "batch_size", "stop")
    asked.refuse(others, "{} cannot be used with tree policies")
    if (asked.draft is None) == (asked.drafter is None):
        raise LiveError("what drafts the trees? Give --drafter 'feature(\"DIR\")', or --draft DIR")
    return asked.drafter or f'model("{asked.draft}")'


def _checked(asked: LiveOptions, settings: DecoderSettings) -> list[Growing]:
    from simkit import policies
    from simkit.errors import LiveError
    from simkit.live.trees import check

    n_prompts = 1 if asked.n_prompts is None else asked.n_prompts
    if min(asked.rounds, settings.max_new_tokens, n_prompts) < 1:
        raise LiveError("rounds, prompts and max_new_tokens must be at least 1")
    sampler = settings.sampler
    if sampler.draft_temperature is not None and sampler.q_temperature > 0:
        raise LiveError(
            "--draft-temperature must be 0 or absent: trees hold the draft's likeliest tokens"
        )
    found = {str(policy): policy for policy in map(policies.parse, asked.policy or [])}
    return [check(cast(Any, policy)) for policy in found.values()]


def heads_of(chosen: Sequence[Growing], given: list[str] | None) -> dict[str, Head]:
    """The heads that were given, each of which some policy reads.

    Raises:
        PolicyError: one is missing, or judges no nodes.
        LiveError: nobody reads one.
    """
    from simkit.live.chosen import check_read, load_heads
    from simkit.live.node_scorer import node_scorer

    heads = load_heads(given)
    for policy in chosen:
        node_scorer(policy, heads)
    check_read(heads, chosen)
    return heads


def _bench(
    asked: LiveOptions, drafter: str, settings: DecoderSettings, heads: dict[str, Head]
) -> TreeBench:
    from simkit.cli.running import load_alone, must_fit
    from simkit.live.tree_arms import TreeBench, load_network

    target = load_alone(asked.target, asked.device, asked.dtype, asked.revision)
    with must_fit():
        network, vocab_size = load_network(drafter, target, asked.dtype)
    settings = replace(settings, eos_token_ids=target.eos_token_ids)
    how = settings, asked.turns or "sequence", asked.clock == "processor"
    return TreeBench(target, network, vocab_size, *how, heads)


def _jobs(bench: TreeBench, asked: LiveOptions, n_arms: int) -> list[LiveJob]:
    from simkit.live.rotation import LiveJob

    prompts = asked.spread_prompts(bench.target.tokenizer, bench.vocab_size)
    longest = max(map(len, prompts.values())) + bench.settings.max_new_tokens
    asked.check_longest(longest, "target", bench.target.context_len)
    bench.prove(longest)
    every = tuple(range(n_arms))
    return [LiveJob((tokens,), k, every) for k, tokens in prompts.items()]
