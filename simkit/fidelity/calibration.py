"""The cost of a trace, taken from its own pair while it decodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from simkit import policies
from simkit.costs import Measured, fit
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
from traces.conditions import Watch
from traces.errors import UserError
from traces.files import encode
from traces.outputs import check_room, write_atomic
from traces.parquet import sealed
from traces.record.pair import Pair, load_pair, quiet
from traces.trace import Trace, load
from traces.writer import add_file, folder_to_write

FITTED_UNDER = "linear(draft_s=0.001, target_s=0.01)"
"""The cost that rules fitted to a trace take here: it says how far they draft, nothing else."""


class Planned(NamedTuple):
    """Who decodes what, how, and with which heads by name."""

    plan: run.LivePlan
    settings: DecoderSettings
    heads: dict[str, Head]


def calibrate(
    trace: str | Path,
    target: str,
    draft: str,
    *,
    drafter: str | None = None,
    policy: Sequence[str] | None = None,
    head: Sequence[str] | None = None,
    n_prompts: int = 12,
    rounds: int = 3,
    max_new_tokens: int | None = None,
    device: str = "auto",
    dtype: str | None = None,
    revision: str | None = None,
    threads: int | None = None,
    turns: Turns = "sequence",
    log: str | Path | None = None,
    out: str | Path | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Measured:
    """Time passes, rules and heads of a trace's own pair in running decoders; gives the cost.

    `trace` is a folder. The times are written into it, where its replays find them, or to the
    .parquet file `out`; `log` is one for every pass. Replays note where times are not to be
    trusted. Other args are those of `simkit calibrate --help`. `progress` is told how many outputs
    are decoded, and of how many.

    Raises:
        UserError: a number is out of range, the models are not the trace's, or a file is wrong.

    >>> pair = [f"{MODELS}/target", f"{MODELS}/draft"]
    >>> mine = simkit.record(pair[0], ["def add(a, b):"], "mine", pair[1], max_new_tokens=8)
    >>> cost = simkit.calibrate("mine", *pair, n_prompts=1, rounds=1, policy=["svip(h=0.5)"])
    >>> simkit.replay("mine", "fixed(2)", cost).records()[0]["speedup"] > 0
    True
    """
    there = load(trace, drafter)
    run.check_recorded(there)
    folder = "" if out else folder_to_write(there, trace, "give out=FILE.parquet")
    passes, times = _parquet("log", log), _parquet("out", out)
    ready = planned(there, policy, head, n_prompts, rounds, max_new_tokens)
    use_threads(threads)
    quiet()
    pair = load_pair(target, draft, device, dtype or there.manifest.dtype or "float32", revision)
    samples = _timed(there, pair, ready, turns, passes, progress)
    if times is None:
        add_file(folder, "latency.parquet", samples)
    else:
        write_atomic(times, encode(sealed(samples))[0])
    return Measured(file=times and str(times))


def _parquet(name: str, file: str | Path | None) -> Path | None:
    """A file that is to be written, if any.

    Raises:
        LiveError: it has another ending.
        TraceError: it cannot be written.
    """
    if file is None:
        return None
    if Path(file).suffix != ".parquet":
        raise LiveError(f"{name}={file}: must be a .parquet file")
    check_room(Path(file))
    return Path(file)


def _timed(
    trace: Trace,
    pair: Pair,
    ready: Planned,
    turns: Turns,
    file: Path | None,
    progress: Callable[[int, int], None] | None,
) -> pa.Table:
    """The samples of a pair's passes, rules and heads, `traces.schema.LATENCY`."""
    run.check_pair(trace, pair)
    plan = ready.plan
    scorers = {name: BlockScorer(one, pair.target.device) for name, one in ready.heads.items()}
    settings = replace(ready.settings, eos_token_ids=trace.eos_token_ids)
    bench = Bench(pair, settings, scorers, "all", turns)
    total = plan.rounds * sum(len(job.arms) for job in run.jobs_of(trace, plan))
    done = iter(range(1, total + 1))
    with LiveLog(file, bench.facts) as log:
        watch = Watch()
        tick = (lambda: progress(next(done), total)) if progress else lambda: None
        run.measure(trace, bench, plan, log, tick)
        known = watch.conditions().of_models(trace.manifest.target, trace.manifest.draft)
        return fit.samples(known.kept_in(log.table()), plan.passes, plan.rules, DRAWS)


def planned(
    trace: Trace,
    policy: Sequence[str] | None,
    head: Sequence[str] | None,
    n_prompts: int,
    rounds: int,
    max_new_tokens: int | None,
) -> Planned:
    """What is decoded to time the passes of a trace's pair; see `calibrate`."""
    chosen = prompts_of(trace, n_prompts, rounds)
    heads = load_heads(head)
    for given_head in heads.values():
        check_fits(given_head, trace.manifest, str(trace.path))
    settings = DecoderSettings.of(trace, max_new_tokens=_budget(trace, max_new_tokens))
    setting = arguments.setting(trace, FITTED_UNDER, settings.first_token)
    common = heads, settings, setting
    timed = choose(policy, *common) if policy else _rules(*common)
    return Planned(run.LivePlan(tuple(timed), (), chosen, rounds), settings, heads)


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
