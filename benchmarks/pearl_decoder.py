"""PEARL with real models, batch size 1: what a replay of `pearl` predicts.

Draft and target run in turn, since the judge of a replay needs their tokens, not their times. Like
`benchmarks.plain_decoder` it knows nothing of traces and uses the keyed draws.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from benchmarks.plain_decoder import Decoded
from benchmarks.plain_reader import Reader
from simkit.live.settings import DecoderSettings, Step
from simkit.policies import PEARL, PolicyError
from traces.record import draws
from traces.record.statistics import LogitRows, draft_rows, draft_token, outcome, target_rows


class Drafted(NamedTuple):
    """A drafted token, the draft's logits (1, V) that it was drawn from, and its key (1,)."""

    token: int
    logits: Tensor
    key: Tensor


class PearlDecoder:
    """A pair of models that draft and check in PEARL's order.

    Args:
        target: a Hugging Face causal LM in eval mode.
        draft: likewise, over the same vocabulary.
        policy: with a window.
        settings: how to decode.
        vocab_size: ids that both models have.

    Raises:
        PolicyError: the policy has no window.
    """

    def __init__(
        self,
        target: nn.Module,
        draft: nn.Module,
        policy: PEARL,
        settings: DecoderSettings,
        vocab_size: int,
    ) -> None:
        if policy.window is None:
            raise PolicyError(f"{policy} runs live only with a window")
        self.target, self.draft = Reader(target, vocab_size), Reader(draft, vocab_size)
        self.policy, self.settings, self.window = policy, settings, policy.window

    def decode(self, prompt: list[int], sequence: int) -> Decoded:
        """Decode one prompt; `sequence` is the number that keys its draws."""
        self.target.forget()
        self.draft.forget()
        self.tokens, self.n_prompt = list(prompt), len(prompt)
        number = torch.tensor([sequence], device=self.target.device)
        self.key = draws.first_key(self.settings.seed, number)
        if self.settings.first_token == "prefill":
            self._emit([self._own_token(self._read_target([], 1), [])])
        steps = []
        pending = None
        while not self._ended():
            step, pending = self._step(pending)
            steps.append(step)
        return Decoded(steps, self.tokens[self.n_prompt :])

    def _step(self, pending: list[Drafted] | None) -> tuple[Step, list[Drafted] | None]:
        """One pass of the target.

        Args:
            pending: x₂… of a draft whose x₁ was emitted; None after a rejection or a bonus token.

        Returns:
            The step, and what is pending now.
        """
        start = self._position
        alone: list[Drafted] = []
        if pending is None and not self.policy.pre_verify:
            alone = self._draft([], self.window)
        waiting = alone if pending is None else pending
        goes_on = self.policy.post_verify or (self.policy.pre_verify and pending is None)
        new = self._draft(waiting, self.window) if goes_on else []

        checked = waiting + new[:1]
        p = self._read_target(waiting, len(waiting) + 1)
        accepted, correction = self._check(p, checked)
        emitted = [x.token for x in checked[:accepted]]
        whole = accepted == len(checked)
        if not whole:
            emitted.append(correction)
        elif not new and not (emitted and emitted[-1] in self.settings.eos_token_ids):
            emitted.append(self._own_token(p[-1:], emitted))
        self._emit(emitted)
        step = Step(start, len(checked), len(alone) + len(new), accepted)
        if whole and new:
            return step, new[1:]
        for reader in (self.target, self.draft):
            reader.cut(len(self.tokens) - 1)
        return step, None

    def _draft(self, before: list[Drafted], count: int) -> list[Drafted]:
        """Draft on behind the output and `before`, as far as the budget or an EOS allows."""
        tokens, key = self._behind([x.token for x in before])
        out: list[Drafted] = []
        eos = self.settings.eos_token_ids
        ended = bool(before) and before[-1].token in eos
        room = self.settings.max_new_tokens - self._position - len(before)
        while len(out) < min(count, room) and not ended:
            q = self._q(tokens)
            drawn = draft_token(q, key)
            out.append(Drafted(int(drawn), q.logits, key))
            tokens.append(int(drawn))
            key = draws.next_key(key, drawn)
            ended = tokens[-1] in eos
        return out

    def _check(self, p: Tensor, checked: list[Drafted]) -> tuple[int, int]:
        """How many tokens are accepted, and the target's own token behind those (if any is left).

        Args:
            p: the target's logits at the position of each token, maybe at one more, (>= N, V).
            checked: N tokens.
        """
        for accepted, (x, logits) in enumerate(zip(checked, p, strict=False)):
            drawn = outcome(
                target_rows(logits[None], self.settings.sampler),
                draft_rows(x.logits, self.settings.sampler),
                torch.tensor([x.token], device=p.device),
                x.key,
            )
            if not drawn.accepted:
                return accepted, int(drawn.target_token)
        return len(checked), -1

    def _own_token(self, logits: Tensor, emitted: list[int]) -> int:
        """The output's token behind `emitted`, which was not drafted; logits are the target's.

        It is what drafting there and checking would give; see `benchmarks.plain_decoder`.
        """
        p = target_rows(logits, self.settings.sampler)
        if p.temperature == 0:
            return int(p.best)
        tokens, key = self._behind(emitted)
        q = self._q(tokens)
        return int(outcome(p, q, draft_token(q, key), key).target_token)

    def _read_target(self, waiting: list[Drafted], keep: int) -> Tensor:
        text = self.tokens + [x.token for x in waiting]
        return self.target.read(text[self.target.length :], keep)

    def _q(self, tokens: list[int]) -> LogitRows:
        """The draft's distribution behind a text whose front it has read."""
        logits = self.draft.read(tokens[self.draft.length :], 1)
        return draft_rows(logits.to(self.target.device), self.settings.sampler)

    def _behind(self, tokens: list[int]) -> tuple[list[int], Tensor]:
        """The text with `tokens` behind it, and the key of the position after those."""
        key = self.key
        for token in tokens:
            key = draws.next_key(key, torch.tensor([token], device=key.device))
        return self.tokens + tokens, key

    def _emit(self, tokens: list[int]) -> None:
        self.tokens, self.key = self._behind(tokens)

    @property
    def _position(self) -> int:
        """1-based position of the next token in the output."""
        return len(self.tokens) - self.n_prompt + 1

    def _ended(self) -> bool:
        eos = self._position > 1 and self.tokens[-1] in self.settings.eos_token_ids
        return eos or self._position > self.settings.max_new_tokens
