"""The law of accepted tokens: replays against an ordinary speculative sampler.

    python -m benchmarks.law [--coupling target]

The sampler below draws from torch's own random numbers, emits bonus tokens from p directly and
knows neither keyed draws nor traces. Each prompt is recorded many times under different draws, and
sampled as often. Given the prompt, all those runs are exchangeable if the laws agree, while the
steps inside a run are not independent; so the test permutes whole runs within prompts. Its
statistic is chi-square over the counts of (draft length, accepted). The control is a recording
whose draft is too sharp, which the test must tell apart. Exit status 1 if it does not, or if a law
differs (p < 0.001).
"""

from __future__ import annotations

import argparse
import functools
import sys
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from benchmarks.plain_reader import Reader
from benchmarks.recorded import REFERENCE, record, replayed
from simkit import policies
from simkit.policies import Outcome, Policy, Sequential
from traces import Sampler
from traces.record.pair import Pair, load_pair
from traces.record.plan import Plan
from traces.record.prompts import Prompt, read_prompts
from traces.record.statistics import draft_rows, draft_statistics, target_rows

LEAST = 1e-3  # p below which laws are said to differ
ASKED = Sampler(1.0)
CONTROL = Sampler(1.0, draft_temperature=0.6)  # of a recording that must be told apart
POLICIES = ("fixed(5, max_draft=5)", "svip(h=0.5, max_draft=12)")

Counts = Counter  # of (draft length, accepted) in one run


class Test(NamedTuple):
    """A permutation test of two samples of runs."""

    statistic: float
    p_value: float
    n_steps: tuple[int, int]
    accepted_per_step: tuple[float, float]


def ordinary(
    pair: Pair, prompt: list[int], policy: Sequential, plan: Plan, rng: torch.Generator
) -> Counts:
    """One run of textbook speculative sampling (Leviathan et al. 2023, Algorithm 1)."""
    target, draft = (Reader(m, pair.vocab_size) for m in (pair.target, pair.draft))
    text, state, counts = list(prompt), policy.begin(0), Counter()
    while len(text) - len(prompt) < plan.max_new_tokens:
        left = plan.max_new_tokens - (len(text) - len(prompt))
        room = min(policy.limit(state, -1), left - 1)
        drafted, q, state = _draft(draft, text, policy, state, room, plan, rng)
        logits = target.read(text[target.length :] + drafted, len(drafted) + 1)
        p = target_rows(logits, plan.sampler).processed
        accepted, emitted = _verify(p, q, drafted, plan, rng)
        ended = accepted == len(emitted)
        counts[len(drafted), accepted] += 1
        state = policy.update(state, Outcome(len(drafted), len(drafted), accepted, ended))
        text += emitted
        if emitted[-1] in plan.eos_token_ids:
            break
        target.cut(len(text) - 1)
        draft.cut(len(text) - 1)
    return counts


def _draft(draft, text, policy, state, room, plan, rng):  # noqa: ANN001 types as in `ordinary`
    drafted: list[int] = []
    q: list[Tensor] = []
    while len(drafted) < room:
        seen = text + drafted
        rows = draft_rows(draft.read(seen[draft.length :], 1), plan.sampler)
        token = _sample(rows.processed[0], rng)
        drafted.append(token)
        q.append(rows.processed[0])
        names = policy.columns(plan.sampler)
        drawn = torch.tensor([token], device=rows.logits.device)
        values = draft_statistics(rows, drawn) if names else {}
        row = tuple(float(values[name]) for name in names)
        stop, state = policy.trips(state, len(drafted), row)
        if stop or token in plan.eos_token_ids:
            break
    return drafted, q, state


def _verify(
    p: Tensor, q: list[Tensor], drafted: list[int], plan: Plan, rng: torch.Generator
) -> tuple[int, list[int]]:
    """How many are accepted, and what the step emits."""
    for j, token in enumerate(drafted):
        if torch.rand((), generator=rng).item() >= float(p[j, token] / q[j][token]):
            return j, [*drafted[:j], _sample((p[j] - q[j]).clamp_min(0), rng)]
    if drafted and drafted[-1] in plan.eos_token_ids:
        return len(drafted), drafted
    return len(drafted), [*drafted, _sample(p[-1], rng)]


def _sample(weights: Tensor, rng: torch.Generator) -> int:
    return int(torch.multinomial(weights.cpu().double(), 1, generator=rng))


def replay_counts(
    pair: Pair, prompts: list[Prompt], repeats: int, plan: Plan, *some: Policy
) -> list[list[list[Counts]]]:
    """By replay, for each policy, runs of each prompt.

    Every repeat of a prompt is a sequence of its own, with its own draws.
    """
    many = [prompt for prompt in prompts for _ in range(repeats)]
    trace = record(pair, many, plan)
    result = []
    for policy in some:
        steps = replayed(trace, policy)
        runs = [Counter((length, accepted) for _, length, _, accepted in run) for run in steps]
        result.append([runs[k : k + repeats] for k in range(0, len(runs), repeats)])
    return result


def compare(a: list[list[Counts]], b: list[list[Counts]], n: int = 9999, seed: int = 0) -> Test:
    """Test whether two samples of runs, prompt by prompt, have one law.

    Args:
        a: for each prompt, the counts of each of its runs.
        b: likewise, of the same prompts; equally many runs.
        n: random permutations.
        seed: of the permutations.
    """
    cells = sorted({cell for side in (a, b) for runs in side for run in runs for cell in run})
    table = np.array(
        [[[run[cell] for cell in cells] for run in x + y] for x, y in zip(a, b, strict=True)]
    )  # prompts, runs of both sides, cells
    total = table.sum((0, 1))
    rng = np.random.default_rng(seed)
    half = table.shape[1] // 2

    def statistic(order: np.ndarray) -> float:
        first = np.take_along_axis(table, order[:, :half, None], 1).sum((0, 1))
        share = first.sum() / total.sum()
        spread = total * share * (1 - share)
        return float(((first - total * share) ** 2 / spread).sum())

    identity = np.broadcast_to(np.arange(2 * half), table.shape[:2])
    observed = statistic(identity)
    more = sum(statistic(rng.permuted(identity, axis=1)) >= observed for _ in range(n))
    sides = table[:, :half].sum((0, 1)), table[:, half:].sum((0, 1))
    accepted = np.array([cell[1] for cell in cells])
    return Test(
        observed,
        (more + 1) / (n + 1),
        (int(sides[0].sum()), int(sides[1].sum())),
        (float(accepted @ sides[0] / sides[0].sum()), float(accepted @ sides[1] / sides[1].sum())),
    )


def main() -> int:
    """Print the table; 1 if a law differs or the control does not."""
    options = _options()
    options.policy = options.policy or list(POLICIES)
    wrong = 0
    start = time.perf_counter()
    print(f"{options.n_prompts} prompts, {options.repeats} runs each and side, T = 1, ", end="")
    print(f"T_max {options.max_new_tokens}, first_token draft, coupling {options.coupling}")
    print("| policy | replay at | steps replayed | sampled | accepted per step | p |")
    print("|---|---|---|---|---|---|")
    with ProcessPoolExecutor(options.jobs, get_context("spawn")) as pool:
        sampled = _spread(pool, functools.partial(_sampled, options), options.n_prompts)
        for sampler in (ASKED, CONTROL):
            work = functools.partial(_replayed, options, sampler)
            ours = _spread(pool, work, options.n_prompts)
            for spec, a, b in zip(options.policy, ours, sampled, strict=True):
                test = compare(a, b)
                wrong += (test.p_value < LEAST) != (sampler == CONTROL)
                print(_row(spec, sampler, test), flush=True)
    print(f"\n{time.perf_counter() - start:.0f} s with {options.jobs} processes of one thread")
    return int(wrong > 0)


def _row(spec: str, sampler: Sampler, test: Test) -> str:
    ours, theirs = test.accepted_per_step
    what = "draft at T = 0.6 (control)" if sampler == CONTROL else "T = 1"
    return (
        f"| `{spec}` | {what} | {test.n_steps[0]} | {test.n_steps[1]} | "
        f"{ours:.3f} replayed, {theirs:.3f} sampled | {test.p_value:.4f} |"
    )


def _spread(pool: ProcessPoolExecutor, work: Callable, n_prompts: int) -> list:
    """Do the work for each prompt in some process; gives policies, prompts, runs."""
    return [list(runs) for runs in zip(*pool.map(work, range(n_prompts)), strict=True)]


@functools.cache
def _load(target: str, draft: str, prompts: str, n_prompts: int, device: str):
    torch.set_num_threads(1)
    pair = load_pair(target, draft, device)
    rows = read_prompts(prompts, pair.tokenizer, pair.vocab_size)
    return pair, rows[:: max(1, len(rows) // n_prompts)][:n_prompts]


def _setup(options: argparse.Namespace) -> tuple[Pair, list[Prompt], list[Sequential]]:
    where = (options.target, options.draft, options.prompts, options.n_prompts, options.device)
    return *_load(*where), [_chain(spec) for spec in options.policy]


def _chain(spec: str) -> Sequential:
    policy = policies.parse(spec)
    assert isinstance(policy, Sequential), spec
    return policy


def _sampled(options: argparse.Namespace, k: int) -> list[list[Counts]]:
    pair, prompts, some = _setup(options)
    plan = Plan(ASKED, 0, options.max_new_tokens, eos_token_ids=pair.eos_token_ids)
    rng = torch.Generator().manual_seed(10_000 + k)
    return [
        [ordinary(pair, prompts[k].tokens, policy, plan, rng) for _ in range(options.repeats)]
        for policy in some
    ]


def _replayed(options: argparse.Namespace, sampler: Sampler, k: int) -> list[list[Counts]]:
    pair, prompts, some = _setup(options)
    deepest = max(policy.max_draft for policy in some)
    how = {"batch_size": 32, "coupling": options.coupling}
    plan = Plan(sampler, k, options.max_new_tokens, deepest, pair.eos_token_ids, **how)
    return [runs[0] for runs in replay_counts(pair, [prompts[k]], options.repeats, plan, *some)]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--target", default=f"{REFERENCE}/models/target")
    parser.add_argument("--draft", default=f"{REFERENCE}/models/draft")
    parser.add_argument("--prompts", default=f"{REFERENCE}/prompts.jsonl")
    parser.add_argument("--n-prompts", type=int, default=40)
    parser.add_argument("--repeats", type=int, default=24)
    parser.add_argument("--max-new-tokens", type=int, default=64)
    parser.add_argument("--policy", action="append", default=[])
    parser.add_argument("--coupling", choices=("draft", "target"), default="draft")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--jobs", type=int, default=2)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
