"""What is timed of a trace's own pair while it decodes, and how."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from simkit import policies
from simkit.costs import fit
from simkit.costs.measured import DRAWS
from simkit.errors import HeadError, LiveError
from simkit.fidelity import run
from simkit.heads.files import Head, check_fits
from simkit.live.block_scorer import BlockScorer
from simkit.live.chosen import check_read, choose, load_heads, make_ready
from simkit.live.interleave import Turns
from simkit.live.log import LiveLog
from simkit.live.rotation import Bench, use_threads
from simkit.live.settings import DecoderSettings
from simkit.policies import Sequential, Setting
from simkit.simulator import arguments
from traces.errors import UserError
from traces.record.pair import Pair
from traces.trace import Trace

FITTED_UNDER = "linear(draft_s=0.001, target_s=0.01)"
"""The cost that rules fitted to a trace take here: it says how far they draft, nothing else."""


class Planned(NamedTuple):
    """Who decodes what, how, and with which heads by name."""

    plan: run.LivePlan
    settings: DecoderSettings
    heads: dict[str, Head]


def timed(
    trace: Trace,
    pair: Pair,
    ready: Planned,
    turns: Turns,
    threads: int | None,
    file: Path | None,
    progress: Callable[[int, int], None] | None,
) -> pa.Table:
    """The samples of a pair's passes, rules and heads, `traces.schema.LATENCY`."""
    use_threads(threads)
    run.check_pair(trace, pair)
    plan = ready.plan
    scorers = {name: BlockScorer(one, pair.target.device) for name, one in ready.heads.items()}
    settings = replace(ready.settings, eos_token_ids=trace.eos_token_ids)
    bench = Bench(pair, settings, scorers, "all", turns)
    total = run.runs_of(trace, plan)
    done = iter(range(1, total + 1))
    tick = (lambda: progress(next(done), total)) if progress else lambda: None
    with LiveLog(file, bench.facts) as log:
        passes = run.logged(trace, bench, plan, log, tick)
    return fit.samples(passes, plan.passes, plan.rules, DRAWS)


def planned(
    trace: Trace,
    policy: Sequence[str] | None,
    head: Sequence[str] | None,
    n_prompts: int,
    rounds: int,
    max_new_tokens: int | None,
) -> Planned:
    """What is decoded to time the passes of a trace's pair; see `simkit.calibrate`."""
    chosen = prompts_of(trace, n_prompts, rounds)
    heads = load_heads(head)
    for given_head in heads.values():
        check_fits(given_head, trace.manifest, str(trace.path))
    settings = DecoderSettings.of(trace, max_new_tokens=_budget(trace, max_new_tokens))
    setting = arguments.setting(trace, FITTED_UNDER, settings.first_token)
    common = heads, settings, setting
    rules = choose(policy, *common) if policy else _rules(*common)
    return Planned(run.LivePlan(tuple(rules), (), chosen, rounds), settings, heads)


def _budget(trace: Trace, wanted: int | None) -> int:
    most = trace.max_new_tokens
    if wanted is not None and not 1 <= wanted <= most:
        raise LiveError(f"--max-new-tokens must be from 1 to the trace's {most}, not {wanted}")
    return wanted or most


def _rules(heads: dict[str, Head], settings: DecoderSettings, setting: Setting) -> list[Sequential]:
    """The policies that look at drafted tokens, as they are by default, and can run live.

    Raises:
        HeadError: a head that was given does not go with its policy.
    """
    found = []
    for name in policies.chains():
        try:
            policy = make_ready(policies.get(name)(), heads, settings, setting)
        except HeadError:
            raise
        except UserError:  # no head for it, say, or none of the columns that it is fitted to
            continue
        if policy.columns(settings.sampler):
            found.append(policy)
    check_read(heads, found)
    return found


def prompts_of(trace: Trace, n_prompts: int, rounds: int) -> tuple[int, ...]:
    """Indices of the prompts to decode: from the shortest to the longest, at even ranks.

    So passes are timed behind contexts as long as the trace's. Sizes, and the numbers of the
    trace's prompts, are checked.

    Raises:
        LiveError: a size is out of range; or the trace's prompts are not numbered by their index,
            by which rules that are fitted to a trace find a prompt.
    """
    n = trace.n_sequences
    if rounds < 1:
        raise LiveError(f"--rounds must be at least 1, not {rounds}")
    if n_prompts < 1:
        raise LiveError(f"--n-prompts must be at least 1, not {n_prompts}")
    if n_prompts > n:
        raise LiveError(f"--n-prompts {n_prompts}: the trace has only {n}")
    if trace.sequences["sequence"].to_pylist() != list(range(n)):
        raise LiveError(f"the trace's sequences are not numbered from 0 to {n - 1} in order")
    by_length = np.argsort(trace.sequences["n_prompt"].to_numpy(), kind="stable")
    return tuple(
        sorted(int(k) for k in by_length[np.linspace(0, n - 1, n_prompts).round().astype(int)])
    )
