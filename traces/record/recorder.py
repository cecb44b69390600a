"""Record a pair on a list of prompts, shard by shard, into a trace folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from traces.errors import RecordError
from traces.record.pair import Pair
from traces.record.plan import Plan
from traces.record.prompts import Prompt
from traces.record.shard import record_shard
from traces.writer import TraceWriter


def record(
    pair: Pair,
    prompts: list[Prompt],
    out: str | Path,
    plan: Plan,
    header: Any,
    resume: bool = False,
    on_token: Callable[[int], None] = lambda n: None,
) -> None:
    """Record every prompt and write the trace at `out`.

    Args:
        pair: the models.
        prompts: numbered from 0 in this order.
        out: a folder that is not there, or with `resume` an unfinished trace.
        plan: the recording's settings.
        header: the manifest without files, see `describe`.
        resume: go on where a recording was stopped; whole shards are kept.
        on_token: told of progress, in output tokens.

    Raises:
        RecordError: a prompt is too long, or the models cannot be recorded.
        TraceError: the folder cannot be written.
    """
    check_lengths(pair, prompts, plan)
    with TraceWriter(out, header, resume=resume) as writer:
        for shard, start in enumerate(range(0, len(prompts), plan.batch_size)):
            batch = prompts[start : start + plan.batch_size]
            if shard in writer.done:
                on_token(plan.max_new_tokens * len(batch))
                continue
            rows = record_shard(pair, batch, start, plan, on_token)
            writer.write_shard(shard, rows.sequences, rows.positions, rows.branches, rows.hidden)
        writer.finish()


def check_lengths(pair: Pair, prompts: list[Prompt], plan: Plan) -> None:
    """Refuse a prompt that leaves no room for T_max tokens."""
    for prompt in prompts:
        if len(prompt.tokens) + plan.max_new_tokens > pair.context_len:
            raise RecordError(
                f"prompt {prompt.id!r} has {len(prompt.tokens)} tokens: with {plan.max_new_tokens} "
                f"new ones it does not fit the models' context of {pair.context_len}"
            )
