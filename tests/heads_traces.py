"""Traces with hidden states for the tests of heads, on disk."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
import trace_files
from models import EOS, tiny_pair, tiny_prompts

from traces.manifest import Manifest
from traces.record.plan import Plan
from traces.record.shard import record_shard
from traces.trace import Trace, load
from traces.writer import TraceWriter

WIDTH = 16


def revealing(folder: Path, n: int = 30, hidden: bool = True, width: int = WIDTH, **more) -> Trace:
    """A made-up trace whose states tell by the sign of one number what will be accepted."""
    source = trace_files.trace(n=n, **more)
    models = {"draft": trace_files.MODEL, "target": trace_files.MODEL}
    header = replace(source.manifest, batch_size=5, hidden=hidden, **models)
    rng = np.random.default_rng(0)
    with TraceWriter(folder, header) as writer:
        for shard in range(writer.n_shards):
            columns = trace_files.columns(source, writer.shard_sequences(shard))
            columns[0]["prompt_tokens"] = [[1 + k] for k in writer.shard_sequences(shard)]
            states = _states(columns[1], columns[2], width, rng) if hidden else None
            writer.write_shard(shard, *columns, states)
        writer.finish()
    return load(folder)


def _states(positions: dict, branches: dict, width: int, rng: np.random.Generator) -> dict:
    depth = np.concatenate([np.zeros(len(positions["position"]), np.int32), branches["depth"]])
    keys = {
        name: np.concatenate([positions[name], branches[name]]) for name in ("sequence", "position")
    }
    sign = np.where(positions["accepted"], 2.0, -2.0)
    state = rng.normal(0, 0.5, (len(depth), width))
    state[:, 0] += np.concatenate([sign, np.full(len(branches["depth"]), -2.0)])
    keys |= {"depth": depth, "state": state.astype(np.float16)}
    order = np.lexsort([keys[k] for k in ("depth", "position", "sequence")])
    return {name: values[order] for name, values in keys.items()}


def recorded(folder: Path, n: int = 6, dtype: torch.dtype = torch.float32, **more) -> Trace:
    """A real recording of a tiny pair, its states included (width 32)."""
    settings = {"max_new_tokens": 24, "max_draft": 8, "hidden": True, "batch_size": 3} | more
    plan = Plan(eos_token_ids=(EOS,), **settings)
    pair, prompts = tiny_pair(dtype=dtype), tiny_prompts(n)
    header = Manifest(
        max_draft=plan.max_draft,
        max_new_tokens=plan.max_new_tokens,
        draft=trace_files.MODEL,
        target=trace_files.MODEL,
        vocab_size=pair.vocab_size,
        sampler=plan.sampler,
        batch_size=plan.batch_size,
        n_prompts=n,
        eos_token_ids=plan.eos_token_ids,
        hidden=plan.hidden,
        mix=plan.mix,
        branch_target=plan.branch_target,
    )
    with TraceWriter(folder, header) as writer:
        for index in range(writer.n_shards):
            numbers = writer.shard_sequences(index)
            shard = record_shard(pair, prompts[numbers.start : numbers.stop], numbers.start, plan)
            writer.write_shard(
                index, shard.sequences, shard.positions, shard.branches, shard.hidden, shard.mixed
            )
        writer.finish()
    return load(folder)
