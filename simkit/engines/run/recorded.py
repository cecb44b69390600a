"""A trace's side of a run: whose prompts are sent, and what a replay says their steps are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from simkit.engines.base import EngineError
from simkit.engines.run.answers import Conventions
from simkit.policies import Policy
from simkit.simulator import FirstToken, replay
from traces.attach import registry
from traces.attach.tokens.rule import TokenRule
from traces.memory import from_drafts
from traces.messages import how_many
from traces.subset import select
from traces.trace import Trace


class RecordedRequest(NamedTuple):
    """A prompt of the trace.

    Attributes:
        sequence: its number there.
        name: its id, or its number as a text.
        prompt: token ids.
        output: the trace's, as far as the budget.
    """

    sequence: int
    name: str
    prompt: list[int]
    output: list[int]


class ReplayedStep(NamedTuple):
    """A step of a replay.

    Attributes:
        start: position of its first token, 1-based.
        tried: tokens that were drafted, those among them that were thrown away.
        drafted: tokens that were sent to the target.
        accepted: of them.
        emitted: output tokens that came out of it.
    """

    start: int
    tried: int
    drafted: int
    accepted: int
    emitted: int


@dataclass(frozen=True)
class RecordedPart:
    """Some prompts of a trace, with outputs of up to `max_new_tokens`.

    Attributes:
        trace: in memory, of these prompts alone.
        requests: in its order.
        max_new_tokens: T_max.
    """

    trace: Trace
    requests: list[RecordedRequest]
    max_new_tokens: int

    @property
    def looks_up(self) -> bool:
        """Whether drafts come from tokens alone."""
        return self.trace.manifest.draft_passes == "none"

    def steps(
        self, policy: Policy, first_token: FirstToken = "prefill"
    ) -> dict[int, list[ReplayedStep]]:
        """Each sequence's steps, by its number.

        Raises:
            UserError: see `simkit.replay`.
        """
        run = replay(self.trace, [policy], first_token=first_token).runs[0]
        steps, _ = run.steps()
        columns = (steps.start, steps.drafted, steps.proposed, steps.accepted, steps.emitted)
        rows = [ReplayedStep(*row) for row in zip(*(c.tolist() for c in columns), strict=True)]
        return {
            request.sequence: rows[steps.offsets[k] : steps.offsets[k + 1]]
            for k, request in enumerate(self.requests)
        }


def recorded_part(
    trace: Trace, n_prompts: int | None = None, max_new_tokens: int | None = None
) -> RecordedPart:
    """Some of a trace's prompts, spread over it.

    Args:
        trace: greedy; of a draft model, or with an attached drafter that looks at tokens alone.
        n_prompts: so many; None: all.
        max_new_tokens: T_max, no more than the trace's; None: the trace's.

    Raises:
        EngineError: no engine can be asked the same, or a number is out of range.
    """
    n = trace.n_sequences
    wanted = n if n_prompts is None else n_prompts
    return recorded_at(trace, spread(n, wanted), max_new_tokens)


def spread(n: int, wanted: int) -> list[int]:
    """So many of n prompts, evenly over them.

    Raises:
        EngineError: there are fewer, or none is wanted.
    """
    if not 1 <= wanted <= n:
        raise EngineError(f"prompts must be from 1 to {n}, the trace's, not {wanted}")
    return [k * n // wanted for k in range(wanted)]


def recorded_at(
    trace: Trace,
    indices: Sequence[int],
    max_new_tokens: int | None = None,
    latency: pa.Table | None = None,
) -> RecordedPart:
    """These prompts of a trace; see `recorded_part`.

    Args:
        trace: see there.
        indices: of sequences, ascending.
        max_new_tokens: see there.
        latency: timing samples, by which replays are priced.

    Raises:
        EngineError: see there.
    """
    trace.manifest.drafter.refuse("replay", EngineError)
    if not trace.sampler.greedy:
        raise EngineError("an engine cannot repeat sampled outputs: give a greedy trace")
    budget = trace.max_new_tokens if max_new_tokens is None else max_new_tokens
    if not 2 <= budget <= trace.max_new_tokens:
        raise EngineError(
            f"--max-new-tokens must be from 2 to the trace's {trace.max_new_tokens}, not {budget}"
        )
    if _rule(trace):
        part = _lookups(trace, indices, budget, latency)
    else:
        part = select(trace, indices, (), budget, latency)
    return RecordedPart(part, [_request(row) for row in part.sequences.to_pylist()], budget)


def check_fits(part: RecordedPart, vocab_size: int, where: str) -> None:
    """Refuse prompts with ids that a model has no rows for.

    Raises:
        EngineError: as said.
    """
    for request in part.requests:
        largest = max(request.prompt, default=0)
        if largest >= vocab_size:
            raise EngineError(
                f"prompt {request.name} has the token id {largest}, but {where} has"
                f" {how_many(vocab_size, 'id')}: it is another model than the trace's"
            )


def as_counted(
    steps: Sequence[ReplayedStep], conventions: Conventions, length: int | None, budget: int
) -> list[tuple[int, int, int]]:
    """Start, drafted and accepted tokens of each step, as an engine counts them.

    Args:
        steps: of a replay.
        conventions: of the engine.
        length: that all drafts have; None: a rule stops them, and what it would have drafted behind
            an EOS is not known.
        budget: T_max.
    """
    found = []
    for step in steps:
        drafted, accepted = step.drafted, step.accepted
        if conventions.drafts_past_eos and length is not None:
            drafted = min(length, budget - step.start)
            by_eos = step.emitted == step.accepted  # no token of the target's own
            accepted -= by_eos and drafted > step.drafted
        found.append((step.start, drafted, accepted))
    return found


def _request(row: dict[str, Any]) -> RecordedRequest:
    if not row["prompt_tokens"]:
        raise EngineError(f"sequence {row['sequence']}: its prompt's tokens are not in the trace")
    name = row["id"] if row["id"] is not None else str(row["sequence"])
    return RecordedRequest(row["sequence"], name, row["prompt_tokens"], row["output_tokens"])


def _rule(trace: Trace) -> TokenRule | None:
    """The rule of an attached drafter that looks at tokens alone; None for a draft model.

    Raises:
        EngineError: it is another kind of drafter, which no engine here has.
    """
    spec = trace.manifest.spec
    if not spec:
        if trace.manifest.draft is None:
            raise EngineError("the trace has no draft model: name a drafter with --drafter")
        return None
    rule = registry.parse(spec)
    if not isinstance(rule, TokenRule):
        raise EngineError(
            f"no engine that simkit runs drafts like {rule}; they run draft models and lookups"
        )
    if rule.memory() is not None:
        raise EngineError(f"{rule} remembers other requests; no engine that simkit runs does so")
    return rule


def _lookups(trace: Trace, indices: Sequence[int], budget: int, latency: pa.Table | None) -> Trace:
    """The drafts of a token rule from all starts of some outputs, under a budget of their own."""
    rule = _rule(trace)
    assert rule is not None
    rows = (trace.recording or trace).sequences.take(list(indices)).to_pylist()
    eos = np.array(trace.eos_token_ids, np.int32)
    parts = []
    for row in rows:
        row["output_tokens"] = row["output_tokens"][:budget]
        if len(row["output_tokens"]) < row["n_output"]:
            row["n_output"], row["finish_reason"] = budget, "length"
        text = np.array(row["prompt_tokens"] + row["output_tokens"], np.int32)
        found = rule.propose(text, row["n_prompt"], eos, budget)
        parts.append(found.rows(row["sequence"]))
    names = list(rows[0])
    return from_drafts(
        {name: [row[name] for row in rows] for name in names},
        {name: np.concatenate([part[name] for part in parts]) for name in parts[0]},
        max_draft=max(1, min(rule.longest, budget)),
        max_new_tokens=budget,
        eos_token_ids=trace.eos_token_ids,
        latency=latency,
        draft_passes="none",
        draft_ends=True,
    )
