"""Speculative decoding of a model pair under a draft-length policy, batch size 1.

It knows nothing of traces: it drafts one token at a time, asks the policy after each, and verifies
the draft in one pass of the target. Its randomness is the keyed draws of `traces.record.draws`, so
that it decodes what a recording with the same seed holds, whatever the policy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from benchmarks.plain_reader import Reader
from simkit.live.settings import UNKNOWN, DecoderSettings, Step
from simkit.policies import Outcome, PolicyError, Sequential
from simkit.policies.verdicts import asked, longest, sent
from traces.record import draws
from traces.record.statistics import (
    LogitRows,
    draft_rows,
    draft_token,
    outcome,
    target_rows,
)
from traces.record.statistics_triton import draft_statistics
from traces.sampler import Sampler


class Decoded(NamedTuple):
    """One sequence: its steps, and its output tokens."""

    steps: list[Step]
    output: list[int]


@dataclass
class _Text:
    """A prompt and its output so far; `key` is that of the next position's draws."""

    tokens: list[int]
    n_prompt: int
    key: Tensor
    ended: bool = False

    @property
    def position(self) -> int:
        """1-based position of the next token in the output."""
        return len(self.tokens) - self.n_prompt + 1


@dataclass
class _Draft:
    """Tokens drafted in one step, with the draft's logits (1, V) and the key of each."""

    tokens: list[int] = field(default_factory=list)
    logits: list[Tensor] = field(default_factory=list)
    keys: list[Tensor] = field(default_factory=list)

    def rows(self, sampler: Sampler) -> LogitRows:
        """All q of the draft."""
        return draft_rows(torch.cat(self.logits), sampler)

    def first(self, count: int) -> _Draft:
        """The draft's first tokens; those behind them are dropped."""
        return _Draft(self.tokens[:count], self.logits[:count], self.keys[:count])


class Scorer(Protocol):
    """A learned head in a live run."""

    @property
    def lag(self) -> int:
        """How many tokens behind the last one it judges, 0 or 1."""
        ...

    def score(self, states: Tensor, n_prefix: int) -> float:
        """The predicted acceptance of the last token, as a trace's scores would hold it.

        With a lag: of the token before it.

        Args:
            states: (n, width); row k is the draft's state from which token k + 1 of prompt, output
                and draft was drawn.
            n_prefix: how many of them belong to prompt and output.
        """
        ...


def _head(heads: Mapping[str, Scorer], column: str) -> Scorer:
    name = column.removeprefix("score:")
    if name not in heads:
        raise PolicyError(f"the policy reads the head {name}, which is not given")
    return heads[name]


class Decoder:
    """A pair of models and a policy; `decode` takes sequences in ascending order.

    Args:
        target: a Hugging Face causal LM in eval mode.
        draft: likewise, over the same vocabulary.
        policy: asked after every drafted token.
        settings: how to decode.
        vocab_size: ids that both models have; None takes the smaller of the two embeddings.
        heads: learned heads by name, those that the policy reads.

    Raises:
        PolicyError: the policy does not hold under this sampler, needs the future, or reads a head
            that is not given or knows of a token later than the policy asks.
    """

    def __init__(
        self,
        target: nn.Module,
        draft: nn.Module,
        policy: Sequential,
        settings: DecoderSettings,
        vocab_size: int | None = None,
        heads: Mapping[str, Scorer] | None = None,
    ) -> None:
        if policy.needs_future and not settings.look_ahead:
            raise PolicyError(f"{policy} needs the future: it cannot run live")
        size = vocab_size or min(
            m.get_input_embeddings().num_embeddings  # pyright: ignore
            for m in (target, draft)
        )
        self.policy, self.settings = policy, settings
        self.columns = policy.columns(settings.sampler)
        self.heads = {
            name: _head(heads or {}, name) for name in self.columns if name.startswith("score:")
        }
        if any(head.lag > policy.lag for head in self.heads.values()):
            raise PolicyError(f"{policy} reads a head with a lag: give lag=1")
        self.target = Reader(target, size)
        self.draft = Reader(draft, size, keep_states=bool(self.heads))
        self.state = policy.begin(0)
        # Of the newest token, for heads with a lag: the state that saw it, and its row's values.
        self.waiting: tuple[Any, dict[str, Any]] = (), {}

    def decode(self, prompt: list[int], sequence: int) -> Decoded:
        """Decode one prompt.

        Args:
            prompt: its tokens.
            sequence: the number that keys its draws; for a policy that was fitted to a trace, its
                index there.
        """
        if self.policy.carried == "sequence":
            self.state = self.policy.begin(sequence)
        self.target.forget()
        self.draft.forget()
        text = self._begin(prompt, sequence)
        steps = []
        while not text.ended:
            steps.append(self._step(text))
        return Decoded(steps, text.tokens[text.n_prompt :])

    def _begin(self, prompt: list[int], sequence: int) -> _Text:
        number = torch.tensor([sequence], device=self.target.device)
        key = draws.first_key(self.settings.seed, number)
        text = _Text(list(prompt), len(prompt), key)
        if self.settings.first_token == "prefill":
            p = target_rows(self.target.read(text.tokens, 1), self.settings.sampler)
            self._append(text, [self._target_token(p, text.tokens, key)])
        return text

    def _step(self, text: _Text) -> Step:
        """Draft, verify, append what comes out, and tell the policy."""
        start = text.position
        ahead = self._ahead(text) if self.policy.needs_future else -1
        draft = self._draft(text, longest(self.policy, self.state, ahead))
        drafted = len(draft.tokens)
        draft = draft.first(sent(self.policy, self.state, drafted))
        p, accepted, drawn = self._verify(text, draft)
        emitted = draft.tokens[:accepted]
        ended = bool(emitted) and emitted[-1] in self.settings.eos_token_ids
        if accepted < len(draft.tokens):
            emitted.append(int(drawn[accepted]))
        elif not ended:
            emitted.append(self._bonus(p, text, draft))
        self._append(text, emitted)
        self._cut(text)
        gamma = len(draft.tokens)
        self.state = self.policy.update(self.state, Outcome(drafted, gamma, accepted, ended))
        return Step(start, gamma, drafted, accepted)

    def _draft(self, text: _Text, limit: int, ask: bool = True) -> _Draft:
        """Draft up to `limit` tokens, as far as the budget, an EOS or the policy allows."""
        room = min(limit, self.policy.max_draft, self.settings.max_new_tokens - text.position)
        draft, key, tokens = _Draft(), text.key, text.tokens
        while len(draft.tokens) < room:
            q = self._q(tokens + draft.tokens)
            drawn = draft_token(q, key)
            draft.tokens.append(int(drawn))
            draft.logits.append(q.logits)
            draft.keys.append(key)
            if ask and self._trips(len(draft.tokens), q, drawn, len(tokens)):
                break
            if draft.tokens[-1] in self.settings.eos_token_ids:
                break
            key = draws.next_key(key, drawn)
        return draft

    def _q(self, tokens: list[int]) -> LogitRows:
        """The draft's distribution after a text whose front it has read; its end is read anew."""
        self.draft.cut(len(tokens) - 1)
        logits = self.draft.read(tokens[self.draft.length :], 1)
        settings = self.settings
        return draft_rows(logits.to(self.target.device), settings.sampler, settings.kernel)

    def _trips(self, depth: int, q: LogitRows, token: Tensor, n_text: int) -> bool:
        """Ask the policy about one drafted token; its row holds float32 values.

        All states but those of this draft belong to the text, whose first token has none. A head
        with a lag now knows of the token before. The rule takes that in, then looks at this token
        with a score that it does not heed: what comes of that is forgotten with the next token.
        """
        values: dict[str, Any] = {}
        if len(self.columns) > len(self.heads):
            values.update(draft_statistics(q, token))
        late: dict[str, float] = {}
        for name, head in self.heads.items():
            if head.lag and depth == 1:
                values[name] = UNKNOWN
                continue
            score = head.score(self.draft.states[: n_text + depth - 1], n_text - 1)
            if head.lag:
                values[name], late[name] = UNKNOWN, score
            else:
                values[name] = score
        if late:
            state, before = self.waiting
            _, self.state = asked(self.policy, state, depth - 1, self._row(before | late))
        self.waiting = self.state, values
        stop, self.state = asked(self.policy, self.state, depth, self._row(values))
        return stop

    def _row(self, values: Mapping[str, Any]) -> tuple[float, ...]:
        return tuple(float(values[name]) for name in self.columns)

    def _verify(self, text: _Text, draft: _Draft) -> tuple[LogitRows, int, Tensor]:
        """Run the target over a draft.

        Returns:
            p at the draft's γ positions and the next, the number accepted, and the target's own
            token (γ,) at each position of the draft.
        """
        tokens = text.tokens[self.target.length :] + draft.tokens
        gamma = len(draft.tokens)
        logits = self.target.read(tokens, gamma + 1)
        sampler = self.settings.sampler
        p = target_rows(logits, sampler)
        if not gamma:
            return p, 0, torch.empty(0)
        proposed = torch.tensor(draft.tokens, device=logits.device)
        drawn = outcome(
            target_rows(logits[:-1], sampler), draft.rows(sampler), proposed, torch.cat(draft.keys)
        )
        return p, int(drawn.accepted.long().cumprod(0).sum()), drawn.target_token

    def _bonus(self, p: LogitRows, text: _Text, draft: _Draft) -> int:
        """The token after a draft that was accepted whole."""
        key = text.key
        for token in draft.tokens:
            key = draws.next_key(key, torch.tensor([token], device=key.device))
        last = target_rows(p.logits[-1:], self.settings.sampler)
        return self._target_token(last, text.tokens + draft.tokens, key)

    def _target_token(self, p: LogitRows, tokens: list[int], key: Tensor) -> int:
        """The output's token after `tokens`, which was not drafted; p holds one row.

        It is what drafting one more token there and verifying it would give: under greedy decoding
        the target's likeliest, else a pass of the draft, which is not counted, shows q.
        """
        if p.temperature == 0:
            return int(p.best)
        q = self._q(tokens)
        return int(outcome(p, q, draft_token(q, key), key).target_token)

    def _append(self, text: _Text, tokens: list[int]) -> None:
        for token in tokens:
            text.key = draws.next_key(text.key, torch.tensor([token], device=text.key.device))
        text.tokens += tokens
        eos = tokens[-1] in self.settings.eos_token_ids
        text.ended = eos or text.position > self.settings.max_new_tokens

    def _cut(self, text: _Text) -> None:
        """Take back what was read of rejected tokens; the last token was read by neither model."""
        for reader in (self.target, self.draft):
            reader.cut(len(text.tokens) - 1)

    def _ahead(self, text: _Text) -> int:
        """How many tokens would be accepted, of max_draft; the models are left as they were."""
        before = self.target.length
        limit, accepted, whole = 0, 0, True
        while whole and limit < self.policy.max_draft:
            limit = min(2 * limit + 4, self.policy.max_draft)
            draft = self._draft(text, limit, ask=False)
            accepted = self._verify(text, draft)[1]
            whole = accepted == limit
            self.target.cut(before)
            self._cut(text)
        return accepted
