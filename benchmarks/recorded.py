"""The two sides of every comparison: a recording with its replay, and live decoding."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal, NamedTuple

import numpy as np
import torch

import simkit
from benchmarks.pearl_decoder import PearlDecoder
from benchmarks.plain_decoder import Decoded, Decoder
from simkit import costs
from simkit.drafters.path import PathLayout
from simkit.heads import registry
from simkit.heads import states as head_states
from simkit.heads.files import Head, build
from simkit.heads.plain_scorer import PlainScorer
from simkit.heads.scoring import score
from simkit.live.settings import DecoderSettings, Step
from simkit.policies import PEARL, Policy, Sequential, Setting
from simkit.simulator.step_costs import Charge
from simkit.steps import interpreted
from traces import scores
from traces.memory import from_arrays
from traces.record.pair import Pair
from traces.record.plan import Plan
from traces.record.prompts import Prompt
from traces.record.shard import record_shard
from traces.trace import Trace

REFERENCE = "traces/reference"
COST = costs.Linear(draft_s=1.0, target_s=6.0, target_per_token_s=0.1)  # of what is fitted to one
FIRST = {"draft": 1, "prefill": 2}
FirstToken = Literal["draft", "prefill"]
Steps = list[tuple[int, ...]]
"""The numbers of `simkit.live.settings.Step` for each step of a sequence."""


class Recorded(NamedTuple):
    """Columns of all shards, joined; `hidden` is None where the plan keeps no states."""

    sequences: dict[str, list]
    positions: dict[str, np.ndarray]
    branches: dict[str, np.ndarray]
    hidden: dict[str, np.ndarray] | None
    plan: Plan


def record(pair: Pair, prompts: list[Prompt], plan: Plan) -> Trace:
    """Record prompts as a trace in memory, in shards of the plan's batch size."""
    return trace_of(record_shards(pair, prompts, plan))


def record_shards(pair: Pair, prompts: list[Prompt], plan: Plan) -> Recorded:
    """The columns of a recording."""
    size = plan.batch_size
    shards = [
        record_shard(pair, prompts[first : first + size], first, plan)
        for first in range(0, len(prompts), size)
    ]
    sequences = [shard.sequences for shard in shards]
    return Recorded(
        {name: [x for part in sequences for x in part[name]] for name in sequences[0]},
        _joined([shard.positions for shard in shards]),
        _joined([shard.branches for shard in shards]),
        _joined([shard.hidden or {} for shard in shards]) if plan.hidden else None,
        plan,
    )


def _joined(parts: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def trace_of(recorded: Recorded) -> Trace:
    """A trace in memory of what was recorded."""
    plan = recorded.plan
    return from_arrays(
        recorded.sequences,
        recorded.positions,
        recorded.branches,
        max_draft=plan.max_draft,
        max_new_tokens=plan.max_new_tokens,
        eos_token_ids=plan.eos_token_ids,
        sampler=plan.sampler,
    )


def fresh_heads(width: int, max_depth: int = 40, seed: int = 0) -> dict[str, Head]:
    """Untrained heads by the names of their scores, which spread over (0, 1)."""
    torch.manual_seed(seed)
    heads = {}
    for kind in registry.names():
        options = registry.get(kind).settle({})
        options = options | ({"max_depth": max_depth} if "max_depth" in options else {})
        module = build(kind, width, options).eval()
        with torch.no_grad():
            module.out.weight.mul_(2)  # pyright: ignore
            module.out.bias.fill_(1)  # pyright: ignore
        heads[registry.get(kind).policy] = Head(kind, width, options, module)
    lagging = heads["acceptance_head"]
    proposed = lagging.options | {"variant": "proposed", "lag": 0}
    heads["proposed"] = replace(lagging, options=proposed)
    return heads


def with_scores(trace: Trace, recorded: Recorded, heads: Mapping[str, Head]) -> Trace:
    """The trace with the scores that heads give to its recorded states."""
    states = _states(trace, recorded)
    for name, head in heads.items():
        most = min(head.options.get("max_depth", 40), trace.max_new_tokens)
        trace = scores.attach(trace, name, score(head, PathLayout(trace), states, most))
    return trace


def _states(trace: Trace, recorded: Recorded) -> head_states.States:
    assert recorded.hidden is not None
    state, depth, position = (recorded.hidden[name] for name in ("state", "depth", "position"))
    n_prompt = trace.sequences["n_prompt"].to_numpy().astype(np.int64) - 1
    return head_states.States(
        prompt=state[position <= 0],
        path=state[(position > 0) & (depth == 0)],
        branches=state[depth > 0],
        prompt_offsets=np.concatenate([[0], np.cumsum(n_prompt)]),
        path_offsets=trace.position_offsets,
    )


def fitted(policy: Policy, trace: Trace, first_token: FirstToken = "draft") -> Policy:
    """The policy as a replay under `COST` would fit it to the trace."""
    layout, first = PathLayout(trace), FIRST[first_token]
    return policy.bind(Setting(layout, Charge(COST.times(trace), layout, first), first))


def replayed(trace: Trace, policy: Policy, first_token: FirstToken = "draft") -> list[Steps]:
    """The replay's steps, sequence by sequence, from `simkit.replay`."""
    frame = simkit.replay(trace, policy, COST, by="step", first_token=first_token).frame
    steps: dict[int, Steps] = {n: [] for n in trace.sequences["sequence"].to_pylist()}
    for sequence, *step in frame.select("sequence", *Step._fields).iter_rows():
        steps[sequence].append(tuple(step))
    return list(steps.values())


def walked(trace: Trace, policy: Policy, first_token: FirstToken = "draft") -> list[Steps]:
    """The same from the loop in plain Python."""
    rule = fitted(policy, trace, first_token)
    assert isinstance(rule, Sequential)
    steps = interpreted.walk(rule, PathLayout(trace), FIRST[first_token])
    columns = (steps.start, steps.proposed, steps.drafted, steps.accepted)
    rows = list(zip(*(column.tolist() for column in columns), strict=True))
    return [rows[a:b] for a, b in zip(steps.offsets[:-1], steps.offsets[1:], strict=True)]


def decoded(
    pair: Pair,
    prompts: list[Prompt],
    plan: Plan,
    policy: Policy,
    first_token: FirstToken = "draft",
    heads: Mapping[str, Head] | None = None,
) -> list[Decoded]:
    """Real speculative decoding of the same prompts with the same keyed draws.

    Args:
        pair: the models.
        prompts: the recorded ones.
        plan: of the recording.
        policy: as `fitted` to the recording, if it wants that.
        first_token: which pass emits the first token.
        heads: that the policy may read, by the names of their scores.
    """
    settings = DecoderSettings(
        plan.sampler,
        plan.seed,
        plan.max_new_tokens,
        plan.eos_token_ids,
        first_token,
        look_ahead=True,
        kernel=plan.kernel,
    )
    models = pair.target, pair.draft
    if isinstance(policy, PEARL):
        decoder = PearlDecoder(*models, policy, settings, pair.vocab_size)
    else:
        assert isinstance(policy, Sequential)
        scorers = {name: PlainScorer(head) for name, head in (heads or {}).items()}
        decoder = Decoder(*models, policy, settings, pair.vocab_size, scorers)
    return [decoder.decode(prompt.tokens, number) for number, prompt in enumerate(prompts)]
