"""Speculative decoding as an engine would do it, with the time of everything that it does.

`benchmarks.plain_decoder` is its judge: both give the same steps and tokens. This one computes only
what the policy reads, asks a head once a block, draws keyed numbers only where something is
sampled, and marks the time where one part ends and the next begins, so that the parts of a step
leave out nothing but the loop around them.

The prompt is read by itself, before the first step (by the draft: before its first pass), as costs
assume: all of it if its pass emits the first token, else all but its last token. What keyed draws
take beyond an engine's is in `simkit.live.keyed_draws`, and its time is left out.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import NamedTuple

import torch
from torch import Tensor
from transformers import PreTrainedModel

from simkit.live.block_scorer import BlockScorer, check_depth, check_lag
from simkit.live.clock import clock_of
from simkit.live.interleave import finished
from simkit.live.keyed_draws import Ahead, Keyed
from simkit.live.log import LiveRow, Spans
from simkit.live.settings import UNKNOWN, DecoderSettings, Step
from simkit.policies import Outcome, PolicyError, Sequential
from simkit.policies.verdicts import asked, longest, sent
from traces.record import draws
from traces.record.forward import LastStates
from traces.record.reader import Reader
from traces.record.statistics import LogitRows, draft_rows, target_rows
from traces.record.statistics_triton import draft_statistics
from traces.schema import DRAFT_STATISTICS


class TimedOutput(NamedTuple):
    """One sequence.

    Attributes:
        steps: none of autoregressive decoding.
        output: its tokens.
        rows: what took how long.
    """

    steps: list[Step]
    output: list[int]
    rows: list[LiveRow]

    @property
    def seconds(self) -> float:
        """Of the whole sequence."""
        return self.rows[-1].seconds


class TimedDecoder:
    """A pair of models and a policy; `decode` takes sequences in ascending order.

    Args:
        target: a Hugging Face causal LM in eval mode.
        draft: likewise, over the same vocabulary.
        policy: asked after every drafted token; None decodes with the target alone.
        settings: how to decode.
        vocab_size: ids that both models have.
        heads: learned heads by name, those that the policy reads.

    Raises:
        PolicyError: see `check`.
        HeadError: likewise.
    """

    def __init__(
        self,
        target: PreTrainedModel,
        draft: PreTrainedModel,
        policy: Sequential | None,
        settings: DecoderSettings,
        vocab_size: int,
        heads: Mapping[str, BlockScorer] | None = None,
    ) -> None:
        self.policy, self.settings = policy, settings
        self.columns = check(policy, settings, heads or {}) if policy else ()
        self.statistics = [name for name in self.columns if not name.startswith("score:")]
        scores = {name: name.removeprefix("score:") for name in self.columns}
        self.heads = {c: (heads or {})[h] for c, h in scores.items() if c != h}
        self.lag = max((head.lag for head in self.heads.values()), default=0)
        self.waits = bool(self.lag) or any(head.by_start for head in self.heads.values())
        self.looks = policy is not None and policy.looks
        self.target = Reader(target, vocab_size)
        states = LastStates(draft) if self.heads else None
        self.draft = Reader(draft, vocab_size, states=states)
        self.keyed: Keyed | None = None
        if not settings.sampler.greedy:
            self.keyed = Keyed(Reader(draft, vocab_size), settings, self.target.device)
        self.clock = clock_of(self.target.device)
        self.state = policy.begin(0) if policy else ()

    def decode(self, prompt: list[int], sequence: int) -> TimedOutput:
        """Decode one prompt.

        Args:
            prompt: its tokens.
            sequence: the number that keys its draws.
        """
        return finished(self.stepwise(prompt, sequence))

    def stepwise(self, prompt: list[int], sequence: int) -> Generator[int, None, TimedOutput]:
        """Decode one prompt; see `simkit.live.interleave`."""
        if self.policy and self.policy.carried == "sequence":
            self.state = self.policy.begin(sequence)
        self.spans = Spans(self.clock)
        begun = self.clock.mark()
        self._open(prompt, sequence)
        emitted = [self._prefill()] if self.settings.first_token == "prefill" else []
        if not emitted and len(prompt) > 1:
            self._read_prompt(self.target, "target", prompt[:-1])
        self._append(emitted)
        self.spans.close(0, begun, 1, 0, 0, len(emitted))
        steps: list[Step] = []
        while not self.ended:
            yield self.position - 1
            self._step(steps) if self.policy else self._plain_step()
        return TimedOutput(steps, self.tokens[self.n_prompt :], self.spans.rows())

    @property
    def position(self) -> int:
        """1-based position of the next token in the output."""
        return len(self.tokens) - self.n_prompt + 1

    def _open(self, prompt: list[int], sequence: int) -> None:
        self.target.slots.begin(1)
        self.draft.slots.begin(1)
        self.states = torch.empty(0)  # the draft's, behind each token that it has read
        for head in self.heads.values():
            head.cut(0)
        self.tokens, self.n_prompt = list(prompt), len(prompt)
        self.ended, self.number = False, 0
        if self.keyed:
            with self.spans.left_out():
                self.keyed.begin(sequence)

    def _read_prompt(self, reader: Reader, component: str, tokens: list[int]) -> Tensor:
        begun = self.clock.mark()
        logits = self._read(reader, tokens, 1)
        self.spans.add("prefill", component, begun, self.clock.mark(), len(tokens))
        return logits

    def _read(self, reader: Reader, tokens: list[int], keep: int) -> Tensor:
        before = reader.lengths[0]
        logits = reader.read([tokens], keep)[0]
        if reader is self.draft and self.heads:
            new = reader.states
            self.states = torch.cat([self.states[:before], new]) if before else new
        return logits

    def _prefill(self) -> int:
        """The prompt's pass of the target, which emits a token."""
        ahead = self._ahead([], []) if self.keyed else None
        logits = self._read_prompt(self.target, "target", self.tokens)
        p = target_rows(logits, self.settings.sampler)
        return ahead.verify(p)[1] if ahead else int(p.best)

    def _plain_step(self) -> None:
        """One token of autoregressive decoding."""
        self.number += 1
        start, context = self.position, self.target.lengths[0]
        begun = since = self.clock.mark()
        ahead = None
        if self.keyed:
            ahead, since = self._ahead([], []), self.clock.mark()
        p = target_rows(self._read(self.target, self.tokens[context:], 1), self.settings.sampler)
        token = ahead.verify(p)[1] if ahead else int(p.best)
        self.spans.add("verify", "target", since, self.clock.mark(), 1, context)
        self._append([token])
        self.spans.close(self.number, begun, start, 0, 0, 1)

    def _step(self, steps: list[Step]) -> None:
        """Draft, verify, append what comes out, and tell the policy."""
        assert self.policy is not None
        self.number += 1
        begun, start = self.clock.mark(), self.position
        tokens, q = self._draft(begun)
        drafted = len(tokens)
        gamma = sent(self.policy, self.state, drafted)
        accepted, own = self._verify(tokens[:gamma], q[:gamma])
        if self.policy.extra_passes:
            self._read_again(tokens[:gamma])
        ended = bool(accepted) and tokens[accepted - 1] in self.settings.eos_token_ids
        emitted = tokens[:accepted] if ended else [*tokens[:accepted], own]
        self._append(emitted)
        self._cut()
        told = self.clock.mark()
        self.state = self.policy.update(self.state, Outcome(drafted, gamma, accepted, ended))
        self.spans.add("policy", f"policy:{self.policy.timed_as}", told, self.clock.mark())
        self.spans.close(self.number, begun, start, drafted, accepted, len(emitted))
        steps.append(Step(start, gamma, drafted, accepted))

    def _draft(self, begun: object) -> tuple[list[int], list[LogitRows]]:
        """Draft as far as the policy, the budget or an EOS allows; tokens, and the q of each."""
        assert self.policy is not None
        room = self.settings.max_new_tokens - self.position
        room = min(room, self.policy.max_draft, longest(self.policy, self.state))
        asked = self.clock.mark()
        self.spans.add("policy", f"policy:{self.policy.timed_as}", begun, asked)
        if room > 0 and not self.draft.lengths[0] and len(self.tokens) > 1:
            self._read_prompt(self.draft, "draft", self.tokens[:-1])
        self.told = self.state
        tokens: list[int] = []
        rows: list[LogitRows] = []
        waiting: list[tuple[int, LogitRows, Tensor]] = []
        while len(tokens) < room:
            noise = self._noise(tokens) if self.keyed else None
            before = self.clock.mark()
            text, context = self.tokens + tokens, self.draft.lengths[0]
            q = self._q(text)
            drawn = q.best if noise is None else draws.winner(q.processed, noise)
            tokens.append(int(drawn))
            rows.append(q)
            after = self.clock.mark()
            depth, width = len(tokens), len(text) - context
            self.spans.add("draft", "draft", before, after, width, context, depth)
            waiting.append((depth, q, drawn))
            stop = self._asks(waiting, after)
            if stop or tokens[-1] in self.settings.eos_token_ids:
                break
        return tokens, rows

    def _noise(self, draft: list[int]) -> Tensor | None:
        """The numbers of the next token's race; see `Keyed`."""
        assert self.keyed is not None
        with self.spans.left_out():
            return self.keyed.noise(draft)

    def _ahead(self, draft: list[int], q: list[LogitRows]) -> Ahead:
        """What keyed draws need before a verification; see `Keyed`."""
        assert self.keyed is not None
        with self.spans.left_out():
            return self.keyed.ahead(self.tokens, draft, q)

    def _q(self, tokens: list[int]) -> LogitRows:
        logits = self._read(self.draft, tokens[self.draft.lengths[0] :], 1)
        settings = self.settings
        return draft_rows(logits.to(self.target.device), settings.sampler, settings.kernel)

    def _asks(self, waiting: list[tuple[int, LogitRows, Tensor]], begun: object) -> bool:
        """Ask the policy about the tokens that wait for it; True if it stops.

        A head that scores blocks is asked, and with it the policy, when the policy's next decision
        is due; until then its rule only adds up. A head with a lag now knows of all but the newest
        token: that one waits on, and what the rule makes of it without a score, which it does not
        heed, is forgotten when the score is there.
        """
        assert self.policy is not None
        depth = waiting[-1][0]
        if not self.looks:
            return False
        if self.waits and self.policy.calls(depth) == self.policy.calls(depth - 1):
            return False
        n_text, count, scores = len(self.tokens) - 1, len(waiting) - self.lag, {}
        for column, head in self.heads.items():
            scores[column] = head.score(self.states[: n_text + depth], n_text, count)
            begun, since = self.clock.mark(), begun
            name = column.replace("score", "head", 1)
            self.spans.add("head", name, since, begun, count, n_text, depth)
        stop = False
        for k, (depth, q, drawn) in enumerate(waiting):
            values = draft_statistics(q, drawn, self.statistics) if self.statistics else {}
            if k == count:
                scores = {name: [*known, UNKNOWN] for name, known in scores.items()}
            row = tuple(
                scores[name][k] if name in scores else float(values[name]) for name in self.columns
            )
            stop, self.state = asked(self.policy, self.told, depth, row)
            if k < count:
                self.told = self.state
        self.spans.add(
            "policy", f"policy:{self.policy.timed_as}", begun, self.clock.mark(), depth=depth
        )
        del waiting[:count]
        return stop

    def _verify(self, tokens: list[int], q: list[LogitRows]) -> tuple[int, int]:
        """Run the target over a draft; how many tokens it accepts, and its own behind those."""
        ahead = self._ahead(tokens, q) if self.keyed else None
        begun, context = self.clock.mark(), self.target.lengths[0]
        read = self.tokens[context:] + tokens
        p = target_rows(self._read(self.target, read, len(tokens) + 1), self.settings.sampler)
        if ahead:
            accepted, own = ahead.verify(p)
        else:
            best, accepted = p.best.tolist(), 0
            while accepted < len(tokens) and tokens[accepted] == best[accepted]:
                accepted += 1
            own = best[accepted]
        self.spans.add("verify", "target", begun, self.clock.mark(), len(read), context)
        return accepted, own

    def _read_again(self, tokens: list[int]) -> None:
        """The draft's own pass over a verified batch, from which nothing is drafted; at depth 0."""
        if not self.draft.lengths[0] and len(self.tokens) > 1:
            self._read_prompt(self.draft, "draft", self.tokens[:-1])
        begun = self.clock.mark()
        self.draft.slots.cut([len(self.tokens) - 1])
        context = self.draft.lengths[0]
        read = self.tokens[context:] + tokens
        self._read(self.draft, read, 1)
        self.spans.add("draft", "draft", begun, self.clock.mark(), len(read), context)

    def _append(self, tokens: list[int]) -> None:
        self.tokens += tokens
        if self.keyed and tokens:
            with self.spans.left_out():
                self.keyed.advance(self.tokens, tokens)
        eos = bool(tokens) and tokens[-1] in self.settings.eos_token_ids
        self.ended = eos or self.position > self.settings.max_new_tokens

    def _cut(self) -> None:
        """Take back what was read of rejected tokens; the last token was read by neither model."""
        for reader in (self.target, self.draft):
            reader.slots.cut([len(self.tokens) - 1])
        for head in self.heads.values():
            head.cut(len(self.tokens) - 1)


def check(
    policy: Sequential, settings: DecoderSettings, heads: Mapping[str, object]
) -> tuple[str, ...]:
    """The columns that a policy reads, if it can run live.

    Args:
        policy: to run.
        settings: how to decode.
        heads: by name, `Head` or `BlockScorer`.

    Raises:
        PolicyError: it needs the future, does not hold under the sampler, reads a head that is not
            given, or what is not known while drafting.
        HeadError: it drafts deeper than its head scores, or asks for scores before they are there.
    """
    if policy.needs_future:
        raise PolicyError(f"{policy} needs the future: it cannot run live")
    columns = policy.columns(settings.sampler)
    for column in columns:
        head = column.removeprefix("score:")
        if head != column and head not in heads:
            raise PolicyError(f"{policy} reads the head {head}, which is not given (--head)")
        if head == column and column not in DRAFT_STATISTICS:
            raise PolicyError(f"{policy} reads {column}, which is not known while drafting")
        if head != column:
            check_lag(heads[head], policy)
            check_depth(heads[head], policy, min(policy.max_draft, settings.max_new_tokens - 1))
    return columns
