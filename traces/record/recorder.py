"""Record a pair on a list of prompts, shard by shard, into a trace folder."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from traces.differences import difference
from traces.errors import RecordError, SimkitWarning
from traces.manifest import MANIFEST, Manifest, read_manifest
from traces.messages import how_many
from traces.record.agreement import Agreement, DisagreementError, Kept, check, keep, kept, remark
from traces.record.estimate import SizeEstimate, estimate
from traces.record.pair import Alone, Pair
from traces.record.plan import Plan
from traces.record.prompts import Prompt
from traces.record.proof_own import Way, Ways
from traces.record.rolled import MOST_CLONES
from traces.record.shard import ShardColumns, check_ways, record_shard, slots_of
from traces.writer import TraceWriter

Batch = tuple[int, list[Prompt]]
"""The number of a shard's first sequence, and its prompts."""
Spread = Callable[[list[Batch]], Iterator[ShardColumns]]
"""Gives the columns of shards in their order, wherever these are recorded."""


def record(
    pair: Pair | Alone,
    prompts: list[Prompt],
    out: str | Path,
    plan: Plan,
    header: Manifest,
    resume: bool = False,
    on_token: Callable[[int], None] = lambda n: None,
    on_shard: Callable[[int], None] = lambda n: None,
    on_open: Callable[[], None] = lambda: None,
    on_size: Callable[[SizeEstimate], None] | None = None,
    spread: Spread | None = None,
) -> int:
    """Record every prompt and write the trace at `out`.

    Args:
        pair: the models; a target alone makes a recording to which drafters are attached.
        prompts: numbered from 0 in this order.
        out: a folder that is empty or not there; with `resume` it may hold this recording.
        plan: the recording's settings.
        header: the manifest without files, see `traces.record.header`.
        resume: go on where a recording was stopped; whole shards are kept.
        on_token: told at every position how many outputs grew by a token.
        on_shard: told after every shard how many prompts are recorded.
        on_open: called when the folder is there, and is this recording's.
        on_size: told what the shards that are left take, if that is long; None makes no trial.
        spread: records shards elsewhere; None records them here, with `pair`.

    Returns:
        output tokens that were recorded by this call.

    Raises:
        RecordError: a prompt is too long, a model cannot be recorded, or outputs that are given are
            not the target's.
        TraceError: the folder cannot be written.
    """
    check_lengths(pair, prompts, plan)
    before = _before(Path(out), prompts, header) if resume else Kept()
    batches = _batches(prompts, plan.batch_size)
    with TraceWriter(out, header, resume=resume) as writer:
        try:
            on_open()
            left = [one for shard, one in enumerate(batches) if shard not in writer.done]
            _tell(pair, left, plan, header, on_size)
            here = (record_shard(pair, batch, start, plan, on_token) for start, batch in left)
            found = spread(left) if spread else here
            return _write(writer, batches, found, plan, on_shard, before.of(writer.done))
        except BaseException as error:
            _give_up(writer, error)
            raise


def _batches(prompts: list[Prompt], size: int) -> list[Batch]:
    return [(start, prompts[start : start + size]) for start in range(0, len(prompts), size)]


def _give_up(writer: TraceWriter, error: BaseException) -> None:
    """Leave no empty folder, and no shard of outputs that are not the target's."""
    if isinstance(error, DisagreementError):
        writer.discard()
    else:
        writer.discard_if_empty()


def _tell(
    pair: Pair | Alone,
    left: list[Batch],
    plan: Plan,
    header: Manifest,
    on_size: Callable[[SizeEstimate], None] | None,
) -> None:
    """Say what the shards that are left take, of a long recording."""
    if on_size is not None and (size := estimate(pair, [batch for _, batch in left], plan, header)):
        on_size(size)


def _write(
    writer: TraceWriter,
    batches: list[Batch],
    found: Iterator[ShardColumns],
    plan: Plan,
    on_shard: Callable[[int], None],
    before: Kept,
) -> int:
    """Write the shards that are not there, and finish the trace; returns their output tokens."""
    tokens, agreement, seen = 0, before.found, set(before.shards)
    for shard, (start, batch) in enumerate(batches):
        if shard not in writer.done:
            rows = next(found)
            agreement += rows.agreement or Agreement()
            check(agreement, plan.sampler, whole=False)
            writer.write_shard(
                shard,
                rows.sequences,
                hidden=rows.hidden,
                mixed=rows.mixed,
                experts=rows.experts,
                near_ties=rows.near_ties,
                **rows.tables,
            )
            tokens += sum(rows.sequences["n_output"])
            seen.add(shard)
            if plan.by_engine:
                keep(writer.path, agreement, seen)
        on_shard(start + len(batch))
    check(agreement, plan.sampler)
    prompts = sum(len(batch) for _, batch in batches)
    read = sum(len(batches[shard][1]) for shard in seen)
    writer.finish(_remark(agreement, plan, prompts, read))
    return tokens


def _remark(found: Agreement, plan: Plan, n_prompts: int, n_read: int) -> str:
    """What is to be known of outputs of which this run has read some."""
    if not n_read:
        return "read before this run, which has seen none of them"
    some = f"of the last {n_read:,} of {how_many(n_prompts, 'output')}: "
    return some * (n_read < n_prompts) + remark(found, plan.sampler)


def check_lengths(pair: Pair | Alone, prompts: list[Prompt], plan: Plan) -> None:
    """Refuse a prompt that leaves no room for T_max tokens, or is too long for what can be proved.

    Raises:
        RecordError: as said; see `traces.record.proof.prove`.
    """
    for prompt in prompts:
        more = len(prompt.output) if prompt.output else plan.max_new_tokens
        if len(prompt.tokens) + more > pair.context_len:
            raise RecordError(
                f"prompt {prompt.id!r} has {how_many(len(prompt.tokens), 'token')}: with {more} "
                f"new ones it does not fit the models' context of {pair.context_len}"
            )
    longest = max((len(prompt.tokens) for prompt in prompts), default=0) + plan.max_new_tokens
    ways = pair.prove(longest, slots_of(pair, longest, plan, plan.batch_size))
    if isinstance(ways, Ways) and not isinstance(pair, Alone):
        check_ways(pair, ways, plan)
    for line in _slower(pair, ways, plan):
        warnings.warn(line, SimkitWarning, stacklevel=3)


def _slower(pair: Pair | Alone, ways: Ways | bool, plan: Plan) -> Iterator[str]:
    """What is said of models that packed passes do not read."""
    target = ways.target is Way.packed if isinstance(ways, Ways) else ways
    if not target:
        generates = isinstance(pair, Alone) and not plan.by_engine
        how = "by its own generate" if generates else "in its own passes"
        yield f"the target takes no masks: it reads one text at a time, {how}, which is slower"
    if isinstance(ways, Ways) and ways.draft is not Way.packed:
        some = f"{MOST_CLONES} at a time" if ways.draft is Way.joined else "one at a time"
        yield (
            "the draft takes no masks: its branches are read token by token behind clones of its"
            f" state, {some}, which is slower"
        )


def _before(out: Path, prompts: list[Prompt], header: Manifest) -> Kept:
    """What was seen of an engine's outputs that a stopped recording has read.

    Raises:
        RecordError: the prompts are others, because the date is another.
    """
    dated = sum(prompt.is_dated for prompt in prompts)
    if dated and (out / MANIFEST).exists():
        there = read_manifest(out)
        # what else is another the writer names
        is_other = difference(replace(there, prompts_sha256=header.prompts_sha256), header)
        if not is_other and there.prompts_sha256 != header.prompts_sha256:
            raise RecordError(
                f"{out}: the prompts' token ids differ from those that the recording was begun"
                f" with: the chat template writes today's date into {dated} of"
                f" {how_many(len(prompts), 'prompt')}. Give the date of that day in"
                " chat_template_kwargs, if the template reads one, or name another folder"
            )
    return kept(out)
