"""`simkit live` of tree policies: the target alone, each policy, and the first one again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from traces.messages import how_many

if TYPE_CHECKING:
    from collections.abc import Sequence

    from simkit.heads.files import Head
    from simkit.live.interleave import Turns
    from simkit.live.log import LiveLog
    from simkit.live.rotation import Arm, LiveJob
    from simkit.live.tree_arms import TreeBench
    from simkit.trees.growing import Growing


class WantedTrees(NamedTuple):
    """What the command was asked for; see `simkit.cli.live.live`."""

    target: str
    drafter: str
    device: str
    dtype: str
    revision: str | None
    prompts: Path
    policies: list[str]
    n_prompts: int | None
    rounds: int
    settings: Any
    turns: Turns
    threads: int | None
    by_processor: bool
    out: Path | None
    heads: list[str] | None = None


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
        raise LiveError(f"{tree} drafts trees and {chain} does not: run them apart")
    return any(found)


def live_trees(wanted: WantedTrees) -> tuple[LiveLog, dict, list[Arm], list[LiveJob]]:
    """Run the policies; the log, what came out, and who decoded what.

    Raises:
        LiveError: numbers are out of range, or the prompts are too long or too few.
        PolicyError: a policy cannot run live.
    """
    from simkit.cli.overwrite_guard import check_apart
    from simkit.cli.progress import decoding_bar
    from simkit.cli.running import files_of, opened
    from simkit.live.rotation import Arm, run, use_threads

    chosen = _checked(wanted)
    heads = heads_of(chosen, wanted.heads)
    files = [wanted.target, wanted.prompts, *files_of(wanted.heads)]
    check_apart([("--out", wanted.out)], files)
    use_threads(wanted.threads)
    bench = _bench(wanted, heads)
    arms = [Arm(), *map(Arm, chosen), Arm(chosen[0])]
    jobs = _jobs(bench, wanted, len(arms), max(policy.max_draft for policy in chosen))
    with opened(wanted.out, bench) as log:
        with decoding_bar(wanted.rounds * len(jobs) * len(arms)) as tick:
            found = run(bench, arms, jobs, wanted.rounds, log, tick)
    return log, found, arms, jobs


def _checked(wanted: WantedTrees) -> list[Growing]:
    from simkit import policies
    from simkit.errors import LiveError
    from simkit.live.trees import check

    budget = wanted.settings.max_new_tokens
    if min(wanted.rounds, budget, 1 if wanted.n_prompts is None else wanted.n_prompts) < 1:
        raise LiveError("rounds, prompts and max_new_tokens must be at least 1")
    sampler = wanted.settings.sampler
    if sampler.draft_temperature is not None and sampler.q_temperature > 0:
        raise LiveError("--draft-temperature: nodes of trees are the draft's likeliest tokens")
    found = {str(policy): policy for policy in map(policies.parse, wanted.policies)}
    return [check(cast(Any, policy)) for policy in found.values()]


def heads_of(chosen: Sequence[Growing], given: list[str] | None) -> dict[str, Head]:
    """The heads that were given, each of which some policy reads.

    Raises:
        PolicyError: one is missing, or judges no nodes.
        LiveError: nobody reads one.
    """
    from simkit.cli.running import load_heads
    from simkit.errors import LiveError
    from simkit.live.node_scorer import node_scorer

    heads = load_heads(given)
    for policy in chosen:
        node_scorer(policy, heads)
    for name in heads:
        if name not in {policy.head for policy in chosen}:
            raise LiveError(f"--head: no policy reads a head {name}")
    return heads


def _bench(wanted: WantedTrees, heads: dict[str, Head]) -> TreeBench:
    from simkit.cli.running import load_alone, must_fit
    from simkit.live.tree_arms import TreeBench, load_network

    target = load_alone(wanted.target, wanted.device, wanted.dtype, wanted.revision)
    with must_fit():
        network, vocab_size = load_network(wanted.drafter, target, wanted.dtype)
    settings = replace(wanted.settings, eos_token_ids=target.eos_token_ids)
    how = settings, wanted.turns, wanted.by_processor
    return TreeBench(target, network, vocab_size, *how, heads)


def _jobs(bench: TreeBench, wanted: WantedTrees, n_arms: int, levels: int) -> list[LiveJob]:
    from simkit.errors import LiveError
    from simkit.live.rotation import LiveJob
    from traces.record.prompts import read_prompts

    rows = read_prompts(wanted.prompts, bench.target.tokenizer, bench.vocab_size)
    n = len(rows) if wanted.n_prompts is None else min(wanted.n_prompts, len(rows))
    if n < 2:
        raise LiveError(f"{n} prompts: at least 2, so that there is something to compare")
    numbers = [k * len(rows) // n for k in range(n)]
    longest = max(len(rows[k].tokens) for k in numbers) + bench.settings.max_new_tokens
    if longest > bench.target.context_len:
        raise LiveError(
            f"{wanted.prompts}: needs {how_many(longest, 'position')}, the target has"
            f" {bench.target.context_len}"
        )
    bench.prove(longest)
    every = tuple(range(n_arms))
    return [LiveJob((rows[k].tokens,), k, every) for k in numbers]
