"""Replays against real speculative decoding, step by step, on the reference pair.

    python -m benchmarks.exactness

Both sides use the same keyed draws. In the first arms (greedy in float32; sampled in float64)
every step must agree, or the exit status is 1. The other arms show how often sampling in float32,
and anything in bfloat16, leaves the recorded path: passes of different shapes (cached or not,
batched or not) differ in the last bits, and now and then a token hangs on them. After a first
difference the text is another one, so "steps per break" counts the steps up to the first one.
"""

from __future__ import annotations

import argparse
import functools
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

import torch

from benchmarks.plain_decoder import Decoded
from benchmarks.recorded import (
    REFERENCE,
    FirstToken,
    Recorded,
    Steps,
    decoded,
    fitted,
    record_shards,
    replayed,
    trace_of,
    with_scores,
)
from simkit import policies
from simkit.heads import registry
from simkit.heads.files import Head
from simkit.heads.files import load as load_head
from simkit.policies import Policy
from traces import Sampler
from traces.record.pair import Pair, load_pair
from traces.record.plan import Plan
from traces.record.prompts import Prompt, read_prompts
from traces.trace import Trace


@dataclass(frozen=True)
class Arm:
    """One way to run the pair.

    Attributes:
        name: of the sampler.
        sampler: how tokens are drawn.
        dtype: of both models.
        exact: whether the two sides must agree.
        every: takes each such prompt only (bfloat16 is slow without a GPU).
    """

    name: str
    sampler: Sampler
    dtype: str
    exact: bool = False
    every: int = 1


CUT = Sampler(0.7, top_p=0.9)
ARMS = (
    Arm("greedy", Sampler(), "float32", exact=True),
    Arm("T = 1", Sampler(1.0), "float64", exact=True),
    Arm("T = 0.7, top-p 0.9", CUT, "float64", exact=True),
    Arm("T = 1", Sampler(1.0), "float32"),
    Arm("T = 0.7, top-p 0.9", CUT, "float32"),
    Arm("greedy", Sampler(), "bfloat16", every=2),
    Arm("T = 1", Sampler(1.0), "bfloat16", every=2),
    Arm("T = 0.7, top-p 0.9", CUT, "bfloat16", every=2),
)
LOOSE_POLICIES = ("fixed(5)", "svip(h=0.4)", "heuristic()")  # in the arms that may differ


class Where(NamedTuple):
    """What is run: the models' folders, the prompts' file, how many of them, the device."""

    target: str
    draft: str
    prompts: str
    n_prompts: int
    device: str


class Agreement(NamedTuple):
    """One arm and policy: how the replay and the real run compare."""

    steps: int
    steps_differ: int
    sequences: int
    sequences_differ: int
    steps_until_break: int


def main() -> int:
    """Print the table; 1 if an exact arm differs."""
    options = _options()
    where = Where(options.target, options.draft, options.prompts, options.n_prompts, options.device)
    plan = Plan(
        seed=options.seed, max_new_tokens=options.max_new_tokens, max_draft=options.max_draft
    )
    arms = [arm for arm in ARMS if arm.exact or not options.exact_only]
    start = time.perf_counter()
    wrong = 0
    print(
        f"{options.n_prompts} prompts, T_max {options.max_new_tokens}, Γ {options.max_draft}, "
        f"first_token {options.first_token}, {torch.__version__}"
    )
    print("| arm | dtype | policy | steps | differ | sequences differ | steps per break | CPU s |")
    print("|---|---|---|---|---|---|---|---|")
    with ProcessPoolExecutor(options.jobs, get_context("spawn")) as pool:
        runs = [(arm, *_start(pool, where, arm, plan, options)) for arm in arms]
        for arm, trace, futures in runs:
            for spec, future in futures.items():
                got, seconds = future.result()
                result = agreement(trace, spec, got, options.first_token)
                wrong += arm.exact and result.sequences_differ > 0
                print(_row(arm, spec, result, seconds), flush=True)
    print(f"\n{time.perf_counter() - start:.0f} s with {options.jobs} processes of one thread")
    return int(wrong > 0)


def _start(
    pool: ProcessPoolExecutor, where: Where, arm: Arm, plan: Plan, options: argparse.Namespace
) -> tuple[Trace, dict[str, Future]]:
    """Record, then let every policy decode at the same time."""
    plan = replace(plan, sampler=arm.sampler)
    recorded = pool.submit(_record, where, arm, plan).result()
    trace = with_scores(trace_of(recorded), recorded, heads())
    futures = {
        spec: pool.submit(_decode, where, arm, plan, policy, options.first_token)
        for spec, policy in _specs(options.policy, arm, trace, options.first_token)
    }
    return trace, futures


def _specs(
    asked: list[str], arm: Arm, trace: Trace, first_token: FirstToken
) -> Iterator[tuple[str, Policy]]:
    """Specs, each with its policy as it is fitted to the recording."""
    everything = [f"{name}()" for name in policies.chains()] if arm.exact else LOOSE_POLICIES
    for spec in asked or everything:
        policy = policies.parse(spec)
        try:
            policy.columns(arm.sampler)
        except policies.PolicyError:
            continue  # does not hold under this sampler
        yield spec, fitted(policy, trace, first_token)


@functools.cache
def heads() -> dict[str, Head]:
    """The reference pair's heads, by the names of their scores; the greedy ones do for all arms."""
    folder = Path(REFERENCE, "heads")
    return {
        registry.get(kind).policy: load_head(folder / f"{kind}.safetensors")
        for kind in registry.names()
    }


@functools.cache
def _load(where: Where, dtype: str) -> tuple[Pair, list[Prompt]]:
    torch.set_num_threads(1)
    pair = load_pair(where.target, where.draft, where.device, dtype)
    prompts = read_prompts(where.prompts, pair.tokenizer, pair.vocab_size)
    return pair, prompts[:: max(1, len(prompts) // where.n_prompts)][: where.n_prompts]


def _record(where: Where, arm: Arm, plan: Plan) -> Recorded:
    pair, prompts = _load(where, arm.dtype)
    plan = replace(plan, eos_token_ids=pair.eos_token_ids, hidden=True)
    return record_shards(pair, prompts[:: arm.every], plan)


def _decode(
    where: Where, arm: Arm, plan: Plan, policy: Policy, first_token: FirstToken
) -> tuple[list[Decoded], float]:
    pair, prompts = _load(where, arm.dtype)
    plan = replace(plan, eos_token_ids=pair.eos_token_ids)
    start = time.process_time()
    got = decoded(pair, prompts[:: arm.every], plan, policy, first_token, heads())
    return got, time.process_time() - start


def agreement(trace: Trace, spec: str, got: list[Decoded], first_token: FirstToken) -> Agreement:
    """Compare a replay with a real run of the same prompts."""
    outputs = trace.sequences["output_tokens"].to_pylist()
    steps = steps_differ = sequences_differ = until = 0
    predicted = replayed(trace, policies.parse(spec), first_token)
    for mine, output, real in zip(predicted, outputs, got, strict=True):
        lived: Steps = [tuple(step) for step in real.steps]
        steps += len(lived)
        steps_differ += len(set(lived) - set(mine))
        differs = lived != mine or list(real.output) != output
        sequences_differ += differs
        same = [a == b for a, b in zip(lived, mine, strict=False)]
        until += same.index(False) + 1 if False in same else len(lived)
    return Agreement(steps, steps_differ, len(got), sequences_differ, until)


def _row(arm: Arm, spec: str, result: Agreement, seconds: float) -> str:
    share = f"{result.steps_differ} ({result.steps_differ / max(1, result.steps):.2%})"
    breaks = result.sequences_differ
    between = f"{result.steps_until_break / breaks:.0f}" if breaks else "–"
    return (
        f"| {arm.name} | {arm.dtype} | `{spec}` | {result.steps} | {share} | "
        f"{breaks} of {result.sequences} | {between} | {seconds:.0f} |"
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--target", default=f"{REFERENCE}/models/target")
    parser.add_argument("--draft", default=f"{REFERENCE}/models/draft")
    parser.add_argument("--prompts", default=f"{REFERENCE}/prompts.jsonl")
    parser.add_argument("--n-prompts", type=int, default=32)
    parser.add_argument("--max-new-tokens", type=int, default=128)
    parser.add_argument("--max-draft", type=int, default=40)
    parser.add_argument("--policy", action="append", default=[], help="default: every one there is")
    parser.add_argument("--exact-only", action="store_true", help="leave out the arms that differ")
    parser.add_argument("--first-token", choices=("draft", "prefill"), default="draft")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--jobs", type=int, default=2)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
