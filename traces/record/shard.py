"""Record one shard: a batch of prompts, from token ids to the columns of the trace's files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from traces import schema
from traces.arrays import count_up, dtype_of
from traces.errors import RecordError
from traces.record.agreement import Agreement
from traces.record.branches import record_branches, slots_for_branches
from traces.record.experts import record_experts
from traces.record.followed import follow
from traces.record.forward import Forward, check_excess
from traces.record.generated import generate
from traces.record.mixed import record_mixed
from traces.record.pair import Alone, Pair
from traces.record.path import Path, record_path
from traces.record.plan import Plan
from traces.record.prompts import Prompt
from traces.record.proof import name_of
from traces.record.proof_own import Way, Ways
from traces.record.rolled import Rolled
from traces.record.routers import Routing

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class ShardColumns:
    """Columns of a shard's rows; in `hidden` and `mixed`, `state` is (rows, H), float16.

    In `experts`, the column of that name is (rows, bytes), uint8.

    Attributes:
        sequences: see `schema.SEQUENCES`.
        tables: of the kind of drafter, by name.
        strange: see `traces.record.path.Path`, as `near_ties` and `agreement`.
    """

    sequences: dict[str, list]
    tables: dict[str, Arrays]
    hidden: Arrays | None = None
    mixed: Arrays | None = None
    experts: Arrays | None = None
    strange: int = 0
    near_ties: int = 0
    agreement: Agreement | None = None

    @property
    def positions(self) -> Arrays:
        """The on-path rows."""
        return self.tables["positions"]

    @property
    def branches(self) -> Arrays:
        """The off-path rows."""
        return self.tables["branches"]


def record_shard(
    pair: Pair | Alone,
    prompts: list[Prompt],
    first_sequence: int,
    plan: Plan,
    on_token: Callable[[int], None] = lambda n: None,
    outputs: list[list[int]] | None = None,
) -> ShardColumns:
    """Run a batch of prompts and reduce what both models, or the target alone, said.

    Args:
        pair: the models.
        prompts: of this shard.
        first_sequence: number of the first of them.
        plan: the recording's settings.
        on_token: told after every position how many outputs grew.
        outputs: of the prompts, if they were generated before.

    Raises:
        RecordError: a model is read wrongly in texts of these lengths, logits are not finite, or p
            has mass beyond the common vocabulary.
    """
    tokens = [p.tokens for p in prompts]
    base = max(map(len, tokens)) + plan.max_new_tokens
    numbers = range(first_sequence, first_sequence + len(prompts))
    if isinstance(pair, Alone):
        is_packed = pair.prove(base, base)
        return _alone(pair, prompts, first_sequence, plan, on_token, outputs, is_packed)
    ways = pair.prove(base, slots_of(pair, base, plan, len(prompts)))
    if outputs is None and plan.by_engine:
        outputs = [prompt.output or [] for prompt in prompts]
    check_ways(pair, ways, plan, generates=outputs is None)
    target, draft = forwards(pair, base, plan, len(prompts))
    path = record_path(target, draft, tokens, numbers, plan, on_token, outputs, ways)
    positions = _on_path(path.columns, path, first_sequence)
    rolled = None if ways.draft is Way.packed else Rolled(draft, tokens, path, ways.draft)
    rows = list(record_branches(target, draft, path, plan, rolled))
    branches, branch_states = _branches(rows, first_sequence, plan)
    mixed = None
    if plan.mix:  # last: it writes over the outputs in the caches
        mixed = _on_path(record_mixed(target, draft, tokens, path, plan), path, first_sequence)
    check_excess(target, "target")
    check_excess(draft, "draft")
    hidden = _hidden(path, first_sequence, branches, branch_states) if plan.hidden else None
    seen = path.strange, path.near_ties, path.agreement
    sequences = _sequences(prompts, positions, first_sequence, plan)
    tables = {"positions": positions, "branches": branches}
    del target, draft, rolled  # and their caches
    experts = _experts(pair, tokens, first_sequence, tables, plan) if plan.experts else None
    return ShardColumns(sequences, tables, hidden, mixed, experts, *seen)


def _experts(
    pair: Pair, tokens: list[list[int]], first: int, tables: dict[str, Arrays], plan: Plan
) -> Arrays:
    """The rows of experts, read with a cache of its own."""
    slots = max(map(len, tokens)) + plan.max_new_tokens + slots_for_branches(plan, len(tokens))
    model = Forward(pair.target, pair.vocab_size, slots)
    return record_experts(model, Routing(pair.target), tokens, first, tables, plan)


def check_ways(pair: Pair, ways: Ways, plan: Plan, generates: bool = False) -> None:
    """Refuse what is recorded in packed passes alone, of a model that takes none.

    Args:
        pair: the models.
        ways: how they are read.
        plan: the recording's settings.
        generates: outputs are not known.

    Raises:
        RecordError: as said.
    """
    if generates and ways.target is Way.texts:
        raise RecordError("a target that takes no masks reads known outputs alone")
    target, draft = (way is not Way.packed for way in ways)
    asked = (
        ("hidden states", plan.hidden, pair.draft if draft else None),
        ("the target's view of branches", plan.branch_target, pair.target if target else None),
        ("experts", plan.experts, pair.target if target else None),
        ("mixed contexts", plan.mix, pair.draft if draft else pair.target if target else None),
    )
    for what, is_asked, model in asked:
        if is_asked and model is not None:
            raise RecordError(f"{what} are read in packed passes, which {name_of(model)} takes not")


def _alone(
    target: Alone,
    prompts: list[Prompt],
    first_sequence: int,
    plan: Plan,
    on_token: Callable[[int], None],
    outputs: list[list[int]] | None,
    is_packed: bool,
) -> ShardColumns:
    """A shard of a target alone; see `record_shard`."""
    if plan.by_engine or not is_packed:
        return _text_by_text(target, prompts, first_sequence, plan, on_token, is_packed)
    tokens = [p.tokens for p in prompts]
    numbers = range(first_sequence, first_sequence + len(prompts))
    base = max(map(len, tokens)) + plan.max_new_tokens
    model = Forward(target.target, target.vocab_size, base)
    path = record_path(model, None, tokens, numbers, plan, on_token, outputs)
    rows = _on_path(path.columns, path, first_sequence)
    sequences = _sequences(prompts, rows, first_sequence, plan)
    return ShardColumns(sequences, {"target": rows}, near_ties=path.near_ties)


def _text_by_text(
    target: Alone,
    prompts: list[Prompt],
    first_sequence: int,
    plan: Plan,
    on_token: Callable[[int], None],
    is_packed: bool,
) -> ShardColumns:
    """A shard of a target alone that reads what an engine answered, or in its own passes."""
    agreement, near, texts = None, 0, [p.tokens for p in prompts]
    if plan.by_engine:
        outputs = [prompt.output or [] for prompt in prompts]
        given = target, texts, outputs, plan, first_sequence, is_packed
        found, agreement = follow(*given, on_token=on_token)
    else:
        found, near = generate(target, texts, plan, first_sequence, on_token)
    lengths = np.array([len(one["target_token"]) for one in found])
    numbers = np.arange(len(prompts), dtype=np.int32) + np.int32(first_sequence)
    rows: Arrays = {"sequence": np.repeat(numbers, lengths), "position": count_up(lengths)}
    rows |= {name: np.concatenate([_numpy(one[name]) for one in found]) for name in found[0]}
    _check_finite(rows)
    sequences = _sequences(prompts, rows, first_sequence, plan)
    near = agreement.near if agreement else near
    return ShardColumns(sequences, {"target": rows}, near_ties=near, agreement=agreement)


def slots_of(pair: Pair | Alone, base: int, plan: Plan, batch: int) -> int:
    """Slots of the largest cache, where prompt and output take `base` of them."""
    return base if isinstance(pair, Alone) else base + slots_for_branches(plan, batch)


def forwards(pair: Pair, base: int, plan: Plan, batch: int) -> tuple[Forward, Forward]:
    """Target and draft with empty caches of `base` slots and what the branches need."""
    extra = slots_for_branches(plan, batch)
    return (
        Forward(pair.target, pair.vocab_size, base + (extra if plan.branch_target else 0)),
        Forward(pair.draft, pair.vocab_size, base + extra, plan.hidden or plan.mix > 0),
    )


def _on_path(columns: dict[str, Tensor], path: Path, first_sequence: int) -> Arrays:
    """Columns (B, T, …) as rows by (sequence, position), one for each output token."""
    n_output = path.n_output.cpu().numpy()
    width = path.keys.shape[1]
    mine = np.arange(width) < n_output[:, None]  # (B, T): the rest is padding
    row, column = np.nonzero(mine)
    keys = {
        "sequence": (row + first_sequence).astype(np.int32),
        "position": (column + 1).astype(np.int32),
    }
    rows = keys | {name: _numpy(value)[mine] for name, value in columns.items()}
    _check_finite(rows)
    return rows


def _branches(
    rows: list[dict[str, Tensor]], first_sequence: int, plan: Plan
) -> tuple[Arrays, np.ndarray | None]:
    """The branch rows in the order of their keys, and their hidden states if they are kept."""
    wanted = schema.BRANCHES_WITH_TARGET if plan.branch_target else schema.BRANCHES
    if not rows:
        return {f.name: np.zeros(0, dtype_of(f.type)) for f in wanted}, None
    arrays = {name: np.concatenate([_numpy(r[name]) for r in rows]) for name in rows[0]}
    states = arrays.pop("hidden", None)
    order = np.lexsort([arrays[k] for k in ("depth", "position", "sequence")])
    arrays["sequence"] = arrays["sequence"] + np.int32(first_sequence)
    arrays = {name: arrays[name][order] for name in wanted.names}
    _check_finite(arrays)
    return arrays, None if states is None else states[order]


def _hidden(
    path: Path, first_sequence: int, branches: Arrays, branch_states: np.ndarray | None
) -> Arrays:
    """States by (sequence, position, depth): depth 0 is on path; prompts have positions <= 0.

    The state at a position is the one that q there comes from: its input is the token before.
    """
    assert path.hidden is not None and path.prompt_hidden is not None
    states = np.concatenate([_numpy(path.prompt_hidden), _numpy(path.hidden)], 1)
    position = np.arange(states.shape[1]) - path.prompt_hidden.shape[1] + 1
    first = 2 - path.n_prompt.cpu().numpy()[:, None]  # the state after the prompt's first token
    mine = (position >= first) & (position <= path.n_output.cpu().numpy()[:, None])
    row, column = np.nonzero(mine)
    keys = {
        "sequence": (row + first_sequence).astype(np.int32),
        "position": position[column].astype(np.int32),
        "depth": np.zeros(len(row), np.int32),
    }
    state = states[mine]
    if branch_states is not None:
        keys = {name: np.concatenate([keys[name], branches[name]]) for name in keys}
        state = np.concatenate([state, branch_states])
    order = np.lexsort([keys[k] for k in ("depth", "position", "sequence")])
    return {name: value[order] for name, value in keys.items()} | {"state": state[order]}


def _sequences(
    prompts: list[Prompt], positions: Arrays, first_sequence: int, plan: Plan
) -> dict[str, list]:
    numbers = list(range(first_sequence, first_sequence + len(prompts)))
    outputs = [positions["target_token"][positions["sequence"] == n].tolist() for n in numbers]
    return {
        "sequence": numbers,
        "id": [p.id for p in prompts],
        "task": [p.task for p in prompts],
        "prompt_text": [p.text for p in prompts],
        "prompt_tokens": [p.tokens for p in prompts],
        "output_tokens": outputs,
        "n_prompt": [len(p.tokens) for p in prompts],
        "n_output": [len(y) for y in outputs],
        "finish_reason": [_reason(y, plan) for y in outputs],
    }


def _reason(output: list[int], plan: Plan) -> str:
    """Why an output ended; an engine may have stopped it for reasons of its own."""
    if output[-1] in plan.eos_token_ids:
        return "eos"
    return "length" if len(output) == plan.max_new_tokens else "unknown"


def _check_finite(rows: Arrays) -> None:
    known = ("draft_entropy", "draft"), ("cross_entropy", "target"), ("target_entropy", "target")
    for name, model in known:
        bad = np.flatnonzero(~np.isfinite(rows[name])) if name in rows else []
        if len(bad):
            where = f"sequence {rows['sequence'][bad[0]]}, position {rows['position'][bad[0]]}"
            raise RecordError(f"the {model}'s logits are NaN or infinite at {where}")


def _numpy(value: Tensor) -> np.ndarray:
    """On the host, ids and keys as int32."""
    return (value.to(torch.int32) if value.dtype == torch.int64 else value).cpu().numpy()
