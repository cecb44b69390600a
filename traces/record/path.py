"""The on-path pass: generate y with both models side by side and reduce every position once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from traces.record import draws
from traces.record.agreement import Agreement, held_to, randomness_of
from traces.record.forward import Forward, causal_mask, left_padded, right_padded
from traces.record.own_texts import Known, Stepped
from traces.record.plan import Plan
from traces.record.proof_own import PACKED, Way, Ways
from traces.record.statistics import (
    LogitRows,
    Verified,
    at,
    draft_rows,
    draft_token,
    near_ties,
    outcome,
    outcome_given,
    target_rows,
    target_token,
)
from traces.record.statistics_triton import pair_statistics

_FEWER = 7 / 8  # of a batch's sequences: those that have ended are dropped when no more go on


@dataclass(frozen=True)
class Path:
    """The outputs of B prompts, padded to the longest; position i is column i − 1.

    Attributes:
        columns: every column of `traces.schema.POSITIONS` but the key, each (B, T).
        keys: int64 keys of the draws (B, T).
        pads: pads in front of each prompt (B,).
        n_prompt: tokens of each prompt (B,).
        n_output: tokens of each output, T (B,).
        start: the slot of position 1.
        hidden: the draft's states (B, T, H), and those of the prompts (B, start − 1, H); or None.
        strange: output tokens that were given, and which the target would not have drawn.
        near_ties: greedy output tokens beside which another is as likely but for rounding.
        agreement: of the target with outputs that another program drew.
    """

    columns: dict[str, Tensor]
    keys: Tensor
    pads: Tensor
    n_prompt: Tensor
    n_output: Tensor
    start: int
    hidden: Tensor | None = None
    prompt_hidden: Tensor | None = None
    strange: int = 0
    near_ties: int = 0
    agreement: Agreement | None = None


def record_path(
    target: Forward,
    draft: Forward | None,
    prompts: list[list[int]],
    sequences: range,
    plan: Plan,
    on_token: Callable[[int], None] = lambda n: None,
    outputs: list[list[int]] | None = None,
    ways: Ways = PACKED,
) -> Path:
    """Run a batch of prompts to the end of their outputs.

    Args:
        target: with an empty cache of at least longest prompt + T_max slots.
        draft: likewise; None where the target is recorded alone.
        prompts: token ids.
        sequences: their numbers, which key the draws.
        plan: the recording's settings.
        on_token: told after every position how many outputs grew.
        outputs: what was generated before, which is then followed token by token; None generates.
        ways: how each model is read.
    """
    tokens, pads = (x.to(target.device) for x in left_padded(prompts))
    key = draws.first_key(plan.seed, torch.tensor(list(sequences), device=target.device))
    given = _Given(outputs, plan, sequences.start, target.device)
    batch = prompts, outputs, tokens, pads
    asked = _reading(target, ways.target, *batch, _whole(plan))
    drafting = draft and _reading(draft, ways.draft, *batch, True)
    prompt_hidden = draft.hidden[:, :-1].half() if draft and plan.hidden else None
    rows, keys, hidden = [], [], []
    n_output = torch.zeros_like(pads)
    for row, key_of, alive in _positions(asked, drafting, given, key, plan, on_token):
        rows.append(row)
        keys.append(key_of)
        if plan.hidden and isinstance(drafting, _Reader):
            hidden.append(drafting.hidden.half())
        n_output += alive
    return Path(
        columns={name: torch.stack([row[name] for row in rows], 1) for name in rows[0]},
        keys=torch.stack(keys, 1),
        pads=pads,
        n_prompt=tokens.shape[1] - pads,
        n_output=n_output,
        start=tokens.shape[1],
        hidden=torch.stack(hidden, 1) if hidden else None,
        prompt_hidden=prompt_hidden,
        strange=given.strange,
        near_ties=int(given.near_ties),
        agreement=given.agreement,
    )


def _whole(plan: Plan) -> bool:
    """Whether the target's cache is read behind the outputs."""
    return plan.branch_target or plan.mix > 0


def _reading(
    model: Forward,
    way: Way,
    prompts: list[list[int]],
    outputs: list[list[int]] | None,
    tokens: Tensor,
    pads: Tensor,
    whole: bool,
) -> _Reader | Known | Stepped:
    """What reads a batch in a model's way; see `record_path` and `_Reader`."""
    if way is Way.packed:
        return _Reader(model, tokens, pads, whole)
    return Stepped(model, prompts) if outputs is None else Known(model, prompts, outputs)


def _positions(
    asked: _Reader | Known | Stepped,
    drafting: _Reader | Known | Stepped | None,
    given: _Given,
    key: Tensor,
    plan: Plan,
    on_token: Callable[[int], None],
) -> Iterator[tuple[dict[str, Tensor], Tensor, Tensor]]:
    """Read the outputs to their ends, beginning with these keys (B,).

    Yields:
        of every position its stored columns, the keys (B,) of its draws, and which outputs (B,)
        reach it.
    """
    alive = torch.ones_like(key, dtype=torch.bool)
    for i in range(1, plan.max_new_tokens + 1):
        p = target_rows(asked.logits, plan.sampler, plan.kernel)
        q = draft_rows(drafting.logits, plan.sampler, plan.kernel) if drafting else None
        row, y = _position(p, q, key, plan, given.token(i, p, key, alive))
        if plan.sampler.greedy:
            given.near_ties += (near_ties(p) & alive).sum()
        yield row, key, alive
        on_token(int(alive.sum()))
        alive = given.alive(i, y, alive)
        if i == plan.max_new_tokens or not bool(alive.any()):
            return
        key = draws.next_key(key, y)
        for reader in (asked, *([drafting] if drafting else [])):
            reader.go_on(given.behind(i, plan.at_once, y), alive)


class _Given:
    """The outputs that a pass follows, if there are any, and where they end.

    Args:
        outputs: token ids, or None.
        plan: the recording's settings.
        first: number of the first sequence.
        device: of the target's logits.
    """

    def __init__(
        self, outputs: list[list[int]] | None, plan: Plan, first: int, device: torch.device
    ) -> None:
        self.strange = 0
        self.near_ties = torch.zeros((), dtype=torch.long, device=device)
        self.agreement = Agreement() if plan.by_engine else None
        self._randomness = randomness_of(plan, first)
        self._eos = torch.tensor(plan.eos_token_ids, device=device, dtype=torch.long)
        self._own_draws = plan.sampler.greedy or plan.coupling == "target"
        self._tokens: Tensor | None = None
        if outputs is not None:
            self._tokens = right_padded(outputs).to(device)
            self._lengths = torch.tensor([len(tokens) for tokens in outputs], device=device)

    def token(self, i: int, p: LogitRows, key: Tensor, alive: Tensor) -> Tensor | None:
        """The tokens of position i (B,), or None; counted where the target draws others."""
        if self._tokens is None:
            return None
        token = self._tokens[:, i - 1]
        if self.agreement is not None:
            self.agreement.see(p.of(alive), token[alive], self._randomness)
        elif self._own_draws:
            self.strange += int((alive & (target_token(p, key) != token)).sum())
        held_to(p, token)
        return token

    def behind(self, i: int, n: int, token: Tensor) -> Tensor:
        """The tokens of position i and of up to n - 1 more (B, 1 to n); none of the longest's last.

        No model is fed an output's last token, behind which nothing is read. Where the outputs are
        not known it is `token` (B,) alone.
        """
        if self._tokens is None:
            return token[:, None]
        last = self._tokens.shape[1] - 1
        return self._tokens[:, i - 1 : max(i, min(i - 1 + n, last))]

    def alive(self, i: int, token: Tensor, alive: Tensor) -> Tensor:
        """Which sequences go on behind these tokens of position i."""
        if self._tokens is None:
            return alive & ~torch.isin(token, self._eos)
        return self._lengths > i


def draw(
    p: LogitRows, q: LogitRows, key: Tensor, plan: Plan, output: Tensor | None = None
) -> Verified:
    """What the keyed draws make of rows, under the recording's coupling.

    Args:
        p: the target's.
        q: the draft's.
        key: (N,).
        plan: the recording's settings.
        output: the output's tokens (N,) where they are known.
    """
    if output is None and plan.coupling == "draft":
        return outcome(p, q, draft_token(q, key), key)
    return outcome_given(p, q, target_token(p, key) if output is None else output, key)


def _position(
    p: LogitRows, q: LogitRows | None, key: Tensor, plan: Plan, output: Tensor | None
) -> tuple[dict[str, Tensor], Tensor]:
    """The stored columns of one position of every sequence, and its output tokens (B,)."""
    if q is None:
        token = target_token(p, key) if output is None else output
        return target_columns(p, token), token
    drawn = draw(p, q, key, plan, output)
    columns = drawn._asdict()
    columns |= pair_statistics(p, q, drawn.draft_token)
    # Greedy output tokens are the likeliest: no distribution is worked out for them alone.
    likeliest = p.temperature == 0
    columns["target_token_prob_raw"] = (
        columns["target_top1_prob"] if likeliest else at(p.prob, drawn.target_token).float()
    )
    return columns, drawn.target_token


def target_columns(p: LogitRows, token: Tensor) -> dict[str, Tensor]:
    """The columns of `traces.schema.target` of rows and their output tokens (N,)."""
    return {
        "target_token": token,
        "target_entropy": p.entropy.float().clamp_min(0),
        "target_top1_prob": p.top_prob.float(),
        "target_token_prob_raw": at(p.prob, token).float(),
    }


class _Reader:
    """What a model says at the positions of a batch's outputs, one after the other.

    Args:
        model: with an empty cache.
        tokens: of the prompts, padded in front (B, P).
        pads: in front of each (B,).
        whole: the cache is read afterwards; else sequences that have ended leave it.
    """

    def __init__(self, model: Forward, tokens: Tensor, pads: Tensor, whole: bool) -> None:
        self._model, self._pads, self._whole, self._place = model, pads, whole, 0
        self._rows = torch.arange(len(tokens), device=pads.device)  # those that are in the cache
        n = tokens.shape[1]
        positions = (torch.arange(n, device=pads.device) - pads[:, None]).clamp_min(0)
        self._logits = model.pass_(tokens, positions, causal_mask(pads, 0, n), keep=1)

    @property
    def logits(self) -> Tensor:
        """At the position that is read (B, V); zeros of a sequence that has left."""
        return self._logits[:, self._place]

    @property
    def hidden(self) -> Tensor:
        """The states (B, H) from which they come, where the model keeps them."""
        return self._model.hidden[:, self._place - self._logits.shape[1]]

    def go_on(self, tokens: Tensor, alive: Tensor) -> None:
        """Read the next position.

        Args:
            tokens: from this position on (B, n >= 1); fed, all of them, where nothing is known.
            alive: which sequences go on (B,).
        """
        self._place += 1
        if self._place < self._logits.shape[1]:
            return
        if not self._whole and int(alive.sum()) <= _FEWER * len(self._rows):
            there = alive[self._rows]
            self._rows = self._rows[there]
            self._model.cache.keep(there.nonzero()[:, 0])
        start, n = self._model.cache.length, tokens.shape[1]
        pads = self._pads[self._rows]
        slots = torch.arange(start, start + n, device=pads.device)
        mask = causal_mask(pads, start, start + n)
        logits = self._model.pass_(tokens[self._rows], slots - pads[:, None], mask)
        if len(self._rows) < len(tokens):
            every = logits.new_zeros(len(tokens), *logits.shape[1:])
            every[self._rows.to(every.device)] = logits
            logits = every
        self._logits, self._place = logits, 0
