"""The sound inputs that cases break: small ones of every kind, made once."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.fuzz import borders, recordings
from simkit.heads import files as heads
from simkit.heads import registry
from simkit.importers import specdecode_bench
from simkit.live.log import BASELINE, LiveLog, LiveRow
from traces import files, parquet, scores
from traces.errors import UserError
from traces.sampler import Sampler
from traces.schema import LATENCY
from traces.subset import select
from traces.synthetic import iid
from traces.trace import load
from traces.writer import add_file, save

DATA = Path(__file__).resolve().parents[2] / "traces" / "data"
TRACES = ("greedy", "sampled", "lattice")
COST = {"kind": "linear", "draft_s": 0.001, "target_s": 0.008, "target_per_token_s": 0.0002}


def make(folder: Path) -> None:
    """Fill a folder: three traces, costs, a log, prompts, heads, another program's files."""
    whole = load("reference")
    samples = whole.latency()
    save(select(whole, [0, 32, 64], latency=samples), folder / "greedy")
    sampled = iid(6, 24, 0.7, max_draft=8, seed=1, sampler=Sampler(1.0), tasks=("a", "b"))
    save(sampled, folder / "sampled")
    add_file(folder / "sampled", "latency.parquet", samples)
    for name in ("greedy", "sampled"):
        made, rng = load(folder / name), np.random.default_rng(0)
        found = scores.RowScores(rng.random(made.n_positions), rng.random(made.n_branch_rows))
        scores.save(folder / name, made, "specdecpp", found, {})
    _write_bench(folder)
    recordings.make(folder)
    borders.keep_code(folder / "kernels")
    (folder / "cost.json").write_text(json.dumps(COST))
    (folder / "cost.toml").write_text("\n".join(f"{k} = {json.dumps(v)}" for k, v in COST.items()))
    timed = parquet.read_samples(DATA / "fidelity" / "cost.parquet", LATENCY, UserError)
    for name, table in (("cost", timed), ("live", _log())):
        (folder / f"{name}.parquet").write_bytes(files.encode(parquet.sealed(table))[0])
    kind = registry.get("specdecpp")
    options = kind.settle({})
    head = heads.Head("specdecpp", 8, options, heads.build("specdecpp", 8, options), {})
    heads.save(head, folder / "head.safetensors")


def _log() -> pa.Table:
    """A log of live runs of a made-up machine, with all passes: drafts of three, one accepted."""
    made = LiveLog(None, {"dtype": "float32", "device": "made up"})
    for sequence in range(6):
        for run, (policy, drafted) in enumerate(((BASELINE, 0), ("fixed(3)", 3))):
            rows, spent = [_row(0, "prefill", "target", 0, 20, 0), _row(0, "step", "", 0, 0, 0)], 0
            if drafted:
                rows.append(_row(1, "prefill", "draft", 0, 20, 0))
            for step in range(1, 13):
                at = 18 + 2 * step
                rows += [_row(step, "draft", "draft", d + 1, 1, at + d) for d in range(drafted)]
                rows.append(_row(step, "verify", "target", 0, drafted + 1, at))
                rows.append(_row(step, "step", "", drafted, 2 if drafted else 1, 0))
                spent += rows[-1].tokens_in
            rows.append(_row(12, "sequence", "", 0, spent, 0))
            made.add(run, 0, policy, sequence, rows)
    return made.table()


def _row(step: int, kind: str, component: str, depth: int, tokens: int, context: int) -> LiveRow:
    seconds = {"draft": 0.001, "step": 0.015, "sequence": 0.2}.get(kind, 0.008)
    accepted, start = int(kind == "draft"), max(1, 2 * step - 1)
    return LiveRow(step, start, accepted, kind, component, depth, tokens, context, 1, seconds)


def _write_bench(folder: Path) -> None:
    """Prompts, and what other programs write; of one of them the trace too."""
    lines, answers = [], []
    for k in range(5):
        taken = [1 + (k + i) % 5 for i in range(12)]
        tokens = {"prompt_token_ids": [1, 2, 3], "generated_token_ids": [5] * 13}
        lines.append(json.dumps({"id": str(k), **tokens, "acc_eagle": {"acc_len": taken}}))
        turn = {"decoding_steps": [12], "new_tokens": [sum(taken)], "wall_time": [0.5]}
        choice = {**turn, "accept_lengths": taken}
        answers.append(json.dumps({"question_id": k, "category": "qa", "choices": [choice]}))
    (folder / "bench.jsonl").write_text("\n".join(lines) + "\n")
    (folder / "spec.jsonl").write_text("\n".join(answers) + "\n")
    prompts = [
        {"id": "a", "task": "x", "prompt": "def f(x):"},
        {"id": 7, "prompt_tokens": [1, 2, 3]},
        {"messages": [{"role": "user", "content": "hello"}]},
    ]
    (folder / "prompts.jsonl").write_text("\n".join(map(json.dumps, prompts)) + "\n")
    save(specdecode_bench.load(folder / "bench.jsonl").trace, folder / "lattice")
