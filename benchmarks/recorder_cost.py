"""What a recording costs, against plain batched generation of the same outputs.

    python -m benchmarks.recorder_cost

Same machine, same run, rounds of the arms interleaved; the figures are ratios of the medians. The
baseline is `generate` of Hugging Face with the target alone, a batch of left-padded prompts, the
same sampler. The first table grows the branches of one sequence by themselves, one rollout each
over a cropped cache, against the packed passes: the same tokens, or the run stops. So does growth
from clones of the draft's state, as of a model that takes no masks.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import replace
from statistics import median
from typing import Any

import numpy as np
import torch
from transformers import DynamicCache

from traces import Sampler
from traces.record.branches import record_branches
from traces.record.pair import Pair, load_pair, quiet
from traces.record.path import Path, record_path
from traces.record.plan import Plan
from traces.record.prompts import Prompt, read_prompts
from traces.record.proof_own import Way
from traces.record.rolled import Rolled
from traces.record.shard import forwards, record_shard
from traces.record.statistics import draft_rows, draft_statistics
from traces.record.statistics_triton import can_run_for

REFERENCE = "traces/reference"


def main() -> None:
    """Print both tables."""
    options = _options()
    torch.set_num_threads(options.threads)
    quiet()
    pair = load_pair(options.target, options.draft, options.device, options.dtype)
    prompts = read_prompts(options.prompts, pair.tokenizer, pair.vocab_size)
    prompts = prompts[:: max(1, len(prompts) // max(options.batch))]  # some of every task
    print(f"{options.threads} threads, {options.dtype}, {pair.target.device}, T_max 256, Γ 40")
    greedy = Plan(eos_token_ids=pair.eos_token_ids)
    heads = "| task | branches | tokens | packed s | alone, same rows | alone, tokens only"
    print(f"\n{heads} | clones, joined | clones, single |")
    print("|---|---|---|---|---|---|---|---|")
    tasks = {prompt.task: prompt for prompt in reversed(prompts)}
    for prompt in tasks.values():
        print(_branches(pair, prompt, greedy, options.rounds), flush=True)
    options_named = ["--branch-target", "--hidden", *(["--kernel"] if can_run_for(pair) else [])]
    heads = ["sampler", "batch", "generate s", "record", *(f"with {o}" for o in options_named)]
    print(f"\n| {' | '.join(heads)} |")
    print("|---" * len(heads) + "|")
    for plan in (greedy, replace(greedy, sampler=Sampler(1.0))):
        for batch in options.batch:
            print(_whole(pair, prompts[:batch], plan, options.rounds), flush=True)


def _whole(pair: Pair, prompts: list[Prompt], plan: Plan, rounds: int) -> str:
    seconds = _interleaved(arms_of(pair, prompts, plan), rounds)
    base = seconds.pop("generate")
    ratios = " | ".join(f"{value / base:.2f}×" for value in seconds.values())
    kind = "greedy" if plan.sampler.greedy else f"T = {plan.sampler.temperature:g}"
    return f"| {kind} | {len(prompts)} | {base:.2f} | {ratios} |"


def arms_of(pair: Pair, prompts: list[Prompt], plan: Plan) -> dict[str, Callable[[], object]]:
    """Plain generation, which gives ids with the prompts; and recordings, which give shards.

    Where the Triton kernel can run, "kernel" is a recording that it reduces.
    """
    kernel = {"kernel": lambda: record_shard(pair, prompts, 0, replace(plan, kernel=True))}
    return {
        "generate": lambda: _generate(pair, prompts, plan),
        "record": lambda: record_shard(pair, prompts, 0, plan),
        "target": lambda: record_shard(pair, prompts, 0, replace(plan, branch_target=True)),
        "hidden": lambda: record_shard(pair, prompts, 0, replace(plan, hidden=True)),
        **(kernel if can_run_for(pair) else {}),
    }


def _generate(pair: Pair, prompts: list[Prompt], plan: Plan) -> torch.Tensor:
    width = max(len(p.tokens) for p in prompts)
    pads = [width - len(p.tokens) for p in prompts]
    rows = [[0] * n + p.tokens for n, p in zip(pads, prompts, strict=True)]
    mask = [[0] * n + [1] * (width - n) for n in pads]
    sampling = {"do_sample": False} if plan.sampler.greedy else {"do_sample": True, "top_k": 0}
    generate: Any = pair.target.generate
    return generate(
        torch.tensor(rows, device=pair.target.device),
        attention_mask=torch.tensor(mask, device=pair.target.device),
        max_new_tokens=plan.max_new_tokens,
        pad_token_id=0,
        **sampling,
    )


def _branches(pair: Pair, prompt: Prompt, plan: Plan, rounds: int) -> str:
    """Packed growth of one prompt's branches, against one rollout a branch."""
    target, draft = forwards(pair, 512, plan, 1)
    path = record_path(target, draft, [prompt.tokens], range(1), plan)
    rows = list(record_branches(target, draft, path, plan))

    def grown(way: Way) -> None:
        rolled = Rolled(draft, [prompt.tokens], path, way)
        again = list(record_branches(target, draft, path, plan, rolled))
        both = (sorted(zip(*_columns(some), strict=True)) for some in (rows, again))
        if len({tuple(one) for one in both}) > 1:
            raise AssertionError("clones draft other tokens")

    arms = {
        "packed": lambda: list(record_branches(target, draft, path, plan)),
        "rows": lambda: _rollouts(pair, prompt.tokens, path, rows, plan, statistics=True),
        "tokens": lambda: _rollouts(pair, prompt.tokens, path, rows, plan, statistics=False),
        **{way.value: lambda way=way: grown(way) for way in (Way.joined, Way.single)},
    }
    seconds = _interleaved(arms, rounds)
    n = int(sum((r["depth"] == 1).sum() for r in rows))
    cells = [f"{prompt.task}", n, sum(len(r["depth"]) for r in rows), f"{seconds['packed']:.3f}"]
    cells += [f"{seconds[arm] / seconds['packed']:.1f}×" for arm in list(arms)[1:]]
    return f"| {' | '.join(map(str, cells))} |"


def _columns(rows: list[dict[str, torch.Tensor]]) -> list[list[int]]:
    """Positions, depths and tokens of branches."""
    names = ("position", "depth", "draft_token")
    return [torch.cat([row[name] for row in rows]).tolist() for name in names]


def _rollouts(
    pair: Pair, prompt: list[int], path: Path, rows: list[dict], plan: Plan, statistics: bool
) -> None:
    """Greedy growth of each branch alone; raises if a token differs from the packed one.

    With `statistics` it makes the rows that a trace holds, without them only the tokens.
    """
    packed: dict[int, list[int]] = {}
    for row in rows:
        for m, token in zip(row["position"].tolist(), row["draft_token"].tolist(), strict=True):
            packed.setdefault(m, []).append(token)
    output = path.columns["target_token"][0].tolist()
    device = pair.draft.device
    cache = DynamicCache()
    with torch.inference_mode():
        text = torch.tensor([prompt + output], device=device)
        pair.draft(text, past_key_values=cache, use_cache=True)
        for m in sorted(packed, reverse=True):  # longest prefix first: the cache is only cut
            cache.crop(-(cache.get_seq_length() - len(prompt) - m + 1))
            token = path.columns["draft_token"][0, m - 1].view(1, 1)
            for expected in packed[m]:
                logits = pair.draft(token, past_key_values=cache, use_cache=True).logits[:, -1]
                q = draft_rows(logits[:, : pair.vocab_size], plan.sampler)
                if statistics:
                    draft_statistics(q, q.best)
                token = q.best[:, None]
                if int(token) != expected:
                    raise AssertionError(f"branch {m}: {int(token)} alone, {expected} packed")


def _interleaved(arms: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Median seconds of each arm; one warm-up, then rounds in rotated order."""
    names = list(arms)
    samples: dict[str, list[float]] = {name: [] for name in names}
    for round_ in range(rounds + 1):
        for name in np.roll(names, round_):
            start = time.perf_counter()
            arms[str(name)]()
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            if round_:
                samples[str(name)].append(time.perf_counter() - start)
    return {name: median(values) for name, values in samples.items()}


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", default=f"{REFERENCE}/models/target")
    parser.add_argument("--draft", default=f"{REFERENCE}/models/draft")
    parser.add_argument("--prompts", default=f"{REFERENCE}/prompts.jsonl")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--batch", type=int, nargs="+", default=[8, 32])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    return parser.parse_args()


if __name__ == "__main__":
    main()
