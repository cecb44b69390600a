"""The two sides of every comparison: a recording with its replay, and live decoding."""

from __future__ import annotations

from typing import Literal

import simkit
from simkit.live import Decoded, Decoder, Settings, Step
from simkit.policies import Policy
from simkit.simulator import plain
from simkit.simulator.layout import PathLayout
from traces.memory import from_arrays
from traces.record.pair import Pair
from traces.record.plan import Plan
from traces.record.prompts import Prompt
from traces.record.shard import record_shard
from traces.trace import Trace

REFERENCE = "traces/reference"
FirstToken = Literal["draft", "prefill"]
Steps = list[tuple[int, ...]]
"""The numbers of `simkit.live.Step` for each step of a sequence."""


def record(pair: Pair, prompts: list[Prompt], plan: Plan) -> Trace:
    """Record prompts as a trace in memory, in shards of the plan's batch size."""
    return trace_of(*record_shards(pair, prompts, plan))


def record_shards(
    pair: Pair, prompts: list[Prompt], plan: Plan
) -> tuple[dict[str, list], dict[str, list], dict[str, list], Plan]:
    """Columns of sequences, positions and branches, shards joined; and the plan."""
    size = plan.batch_size
    shards = [
        record_shard(pair, prompts[first : first + size], first, plan)
        for first in range(0, len(prompts), size)
    ]
    sequences, positions, branches = (
        {name: [x for part in parts for x in part[name]] for name in parts[0]}
        for parts in zip(*((s.sequences, s.positions, s.branches) for s in shards), strict=True)
    )
    return sequences, positions, branches, plan


def trace_of(
    sequences: dict[str, list], positions: dict[str, list], branches: dict[str, list], plan: Plan
) -> Trace:
    """A trace in memory of what `record_shards` returned."""
    return from_arrays(
        sequences,
        positions,
        branches,
        max_draft=plan.max_draft,
        max_new_tokens=plan.max_new_tokens,
        eos_token_ids=plan.eos_token_ids,
        sampler=plan.sampler,
    )


def replayed(trace: Trace, policy: Policy, first_token: FirstToken = "draft") -> list[Steps]:
    """The replay's steps, sequence by sequence, from `simkit.replay`."""
    frame = simkit.replay(trace, policy, by="step", first_token=first_token).frame
    steps: dict[int, Steps] = {n: [] for n in trace.sequences["sequence"].to_pylist()}
    for sequence, *step in frame.select("sequence", *Step._fields).iter_rows():
        steps[sequence].append(tuple(step))
    return list(steps.values())


def walked(trace: Trace, policy: Policy, first_token: FirstToken = "draft") -> list[Steps]:
    """The same from the loop in plain Python."""
    steps = plain.walk(policy, PathLayout(trace), 2 if first_token == "prefill" else 1)
    columns = (steps.start, steps.proposed, steps.drafted, steps.accepted)
    rows = list(zip(*(column.tolist() for column in columns), strict=True))
    return [rows[a:b] for a, b in zip(steps.offsets[:-1], steps.offsets[1:], strict=True)]


def decoded(
    pair: Pair,
    prompts: list[Prompt],
    plan: Plan,
    policy: Policy,
    first_token: FirstToken = "draft",
) -> list[Decoded]:
    """Real speculative decoding of the same prompts with the same keyed draws."""
    settings = Settings(
        plan.sampler,
        plan.seed,
        plan.max_new_tokens,
        plan.eos_token_ids,
        first_token,
        look_ahead=True,
    )
    decoder = Decoder(pair.target, pair.draft, policy, settings, pair.vocab_size)
    return [decoder.decode(prompt.tokens, number) for number, prompt in enumerate(prompts)]
