"""What a recording costs on a GPU, against plain batched generation of the same outputs.

    python -m benchmarks.gpu.recorder_cost --out DIR        (after `reference_large`, same machine)

The arms are those of `benchmarks.recorder_cost`, on the larger reference pair in float32. Rounds go
over all cases (sampler and batch size), in a case over all arms, in an order that moves on by one
from round to round; the first round warms up and does not count. `recorder-cost.parquet` has every
sample with the output tokens that came; a run that comes to the end of its time keeps whole rounds.
At T = 1 generation draws its own outputs, so compare seconds a token there. In greedy cases "same"
is the share of outputs that both made alike: in a batch, padding changes last bits.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from benchmarks.gpu import device_rates
from benchmarks.gpu.delivery import Budget, write_json
from benchmarks.gpu.reference_large import PAIR, WORK, chosen_prompts
from benchmarks.recorder_cost import arms_of
from traces.files import encode
from traces.outputs import write_atomic
from traces.record.pair import Pair, load_pair, quiet
from traces.record.plan import Plan
from traces.record.prompts import Prompt
from traces.record.shard import ShardColumns
from traces.sampler import Sampler

SCHEMA = pa.schema(
    {
        "temperature": pa.float64(),
        "batch_size": pa.int32(),
        "arm": pa.string(),  # generate, record, target (--branch-target), hidden, kernel
        "round": pa.int32(),
        "seconds": pa.float64(),
        "tokens": pa.int64(),  # of outputs, EOS included
        "same": pa.float64(),  # share of outputs that are the first arm's of the round; 1 for it
    }
)
Case = tuple[list[Prompt], Plan]


def cases(pair: Pair, batches: Sequence[int], per_task: int, plan: Plan) -> list[Case]:
    """Both samplers with each batch size; prompts are spread over the tasks."""
    prompts = chosen_prompts(pair, per_task)
    chosen = [[prompts[k * len(prompts) // n] for k in range(n)] for n in batches]
    plan = replace(plan, eos_token_ids=pair.eos_token_ids)
    return [(some, replace(plan, sampler=Sampler(t))) for t in (0.0, 1.0) for some in chosen]


def outputs(result: Any, width: int, plan: Plan) -> list[list[int]]:
    """Output tokens of what an arm gave, up to and with EOS; `width` is the longest prompt's."""
    if isinstance(result, ShardColumns):
        return result.sequences["output_tokens"]
    rows = result[:, width:].tolist()
    ends = [next((k for k, t in enumerate(r) if t in plan.eos_token_ids), len(r)) for r in rows]
    return [row[: end + 1] for row, end in zip(rows, ends, strict=True)]


def one_round(pair: Pair, case: Case, number: int) -> list[dict]:
    """A sample of every arm."""
    prompts, plan = case
    arms = arms_of(pair, prompts, plan)
    names, rows, first = list(arms), [], None
    width = max(len(prompt.tokens) for prompt in prompts)
    for name in np.roll(names, number).tolist():
        began = time.perf_counter()
        result = arms[name]()
        if pair.target.device.type == "cuda":
            torch.cuda.synchronize()
        seconds = time.perf_counter() - began
        found = outputs(result, width, plan)
        first = first or found
        row = {"temperature": plan.sampler.temperature, "batch_size": len(prompts), "arm": name}
        row |= {"round": number, "seconds": seconds, "tokens": sum(map(len, found))}
        same = [a == b for a, b in zip(found, first, strict=True)]
        rows.append(row | {"same": float(np.mean(same))})
    return rows


def measure(pair: Pair, todo: list[Case], rounds: int, budget: Budget, out: Path) -> list[dict]:
    """All rounds that fit; what is whole is written after each one."""
    kept: list[dict] = []
    took_s = 0.0
    for number in range(rounds + 1):
        if took_s > budget.left_s:
            print(f"{number - 1} of {rounds} rounds: the time is over")
            break
        began = time.perf_counter()
        rows = [row for case in todo for row in one_round(pair, case, number)]
        took_s = time.perf_counter() - began
        kept += rows if number else []
        file = out / "recorder-cost.parquet"
        write_atomic(file, encode(pa.Table.from_pylist(kept, schema=SCHEMA))[0])
        print(f"{budget.spent_s:6.1f} s  round {number}", flush=True)
    return kept


def table(rows: list[dict]) -> str:
    """Medians over rounds as Markdown: seconds of generation, and ratios a token."""
    lines = [
        "| T | batch | generate, s | tokens/s | record | tokens/s | with --branch-target |"
        " with --hidden | with --kernel | same |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for t, batch in dict.fromkeys((r["temperature"], r["batch_size"]) for r in rows):
        mine = [r for r in rows if (r["temperature"], r["batch_size"]) == (t, batch)]
        per_token = {
            arm: median(r["seconds"] / r["tokens"] for r in mine if r["arm"] == arm)
            for arm in dict.fromkeys(r["arm"] for r in mine)
        }
        base = per_token["generate"]
        whole = median(r["seconds"] for r in mine if r["arm"] == "generate")
        ratio = {arm: f"{value / base:.2f}×" for arm, value in per_token.items()}
        same = "–" if t else f"{min(r['same'] for r in mine):.0%}"
        cells = [f"{t:g}", str(batch), f"{whole:.2f}", f"{1 / base:,.0f}", ratio["record"]]
        cells += [f"{1 / per_token['record']:,.0f}", ratio["target"], ratio["hidden"]]
        cells += [ratio.get("kernel", "–"), same]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--pair", type=Path, default=WORK / PAIR, help="of target and draft")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--batch", type=int, nargs="+", default=[8, 64])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tiny", action="store_true", help="sizes for a test")
    parser.add_argument("--budget-s", type=float, default=500.0, help="no round goes beyond it")
    arguments = parser.parse_args(argv)
    quiet()
    budget, plan = Budget(arguments.budget_s), Plan()
    if arguments.tiny:
        plan, arguments.batch = Plan(max_new_tokens=6, max_draft=3), [2]
    folder = arguments.pair
    names = str(folder / "target"), str(folder / "draft")
    pair = load_pair(*names, arguments.device, arguments.dtype)
    arguments.out.mkdir(parents=True, exist_ok=True)
    todo = cases(pair, arguments.batch, 2 if arguments.tiny else 64, plan)
    rows = measure(pair, todo, arguments.rounds, budget, arguments.out)
    facts = device_rates.describe(torch.device(arguments.device)) | {
        "dtype": arguments.dtype,
        "rounds": len({row["round"] for row in rows}),
        "max_new_tokens": plan.max_new_tokens,
        "max_draft": plan.max_draft,
        "parameters": {n: getattr(pair, n).num_parameters() for n in ("target", "draft")},
        "seconds": budget.spent_s,
    }
    write_json(arguments.out / "manifest.json", facts)
    print(json.dumps(facts))
    print(table(rows))


if __name__ == "__main__":
    main()
