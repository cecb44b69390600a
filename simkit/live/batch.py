"""Greedy speculative decoding of a batch whose sequences share each stop decision.

Each sequence has its own state of the policy and its own verdict; a draft goes on until the rules
of all of its sequences have stopped (or of any of them), and then all have drafts of that length. A
sequence whose rule has stopped is not asked again in that step. Accepted lengths differ; a sequence
that has ended leaves the batch.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from transformers import DynamicCache

from simkit.errors import LiveError
from simkit.live.clock import clock_of
from simkit.live.interleave import finished
from simkit.live.log import LiveRow, Spans
from simkit.live.settings import DecoderSettings, Step
from simkit.live.timed import check
from simkit.policies import Outcome, PolicyError, Sequential
from simkit.policies.verdicts import asked, longest, sent
from traces.record.statistics import draft_rows
from traces.record.statistics_triton import draft_statistics

STOP = {"all": all, "any": any}


class BatchOutputs(NamedTuple):
    """What came of some sequences: the steps of each, and its tokens."""

    steps: list[list[Step]]
    outputs: list[list[int]]


class BatchReader:
    """Reads several texts at once; their keys and values all end in the last slot of the cache.

    Args:
        model: a Hugging Face causal LM in eval mode, proved (`traces.record.proof`).
        vocab_size: ids beyond it are cut from the logits.

    Attributes:
        lengths: tokens read of each text.
    """

    def __init__(self, model: nn.Module, vocab_size: int) -> None:
        self.model, self.vocab_size = model, vocab_size
        self.device = model.get_input_embeddings().weight.device  # pyright: ignore
        self.forget(0)

    def forget(self, batch_size: int) -> None:
        """Start new texts."""
        self._cache = DynamicCache()
        self.lengths = [0] * batch_size

    def read(self, blocks: list[list[int]], keep: int) -> Tensor:
        """Append tokens to each text, maybe not equally many: shorter blocks are padded in front.

        Padding may only come where nothing was read before.

        Returns:
            logits after each of the last `keep` tokens, (B, keep, vocab_size).
        """
        before, n = torch.tensor(self.lengths), max(map(len, blocks))
        pads = torch.tensor([n - len(block) for block in blocks])
        ids = torch.tensor([[0] * (n - len(block)) + block for block in blocks])
        self.lengths = [had + len(b) for had, b in zip(self.lengths, blocks, strict=True)]
        width = self._cache.get_seq_length() + n
        mask = torch.arange(width) >= width - (before + n - pads)[:, None]
        positions = (before - pads)[:, None] + torch.arange(n)
        with torch.inference_mode():
            logits = self.model(
                input_ids=ids.to(self.device),
                position_ids=positions.clamp_min(0).to(self.device),
                attention_mask=mask.long().to(self.device),
                past_key_values=self._cache,
                use_cache=True,
                logits_to_keep=keep,
            ).logits
        return logits[..., : self.vocab_size]

    def keep(self, lengths: list[int], rows: list[int] | None = None) -> None:
        """Forget what was read of each text beyond its first tokens, and all but some texts.

        Args:
            lengths: of each text, at most what was read of it.
            rows: texts that stay; None: all.
        """
        if rows is None and lengths == self.lengths:
            return
        rows = list(range(len(lengths))) if rows is None else rows
        if not rows:
            self.forget(0)
            return
        old = torch.tensor([self.lengths[row] for row in rows])
        self.lengths = [lengths[row] for row in rows]
        new = torch.tensor(self.lengths)
        width, before = max(self.lengths), self._cache.get_seq_length()
        slot = torch.arange(width) - (width - new)[:, None] + (before - old)[:, None]
        slot = slot.clamp(0, max(before - 1, 0)).to(self.device)
        which = torch.tensor(rows, device=self.device)[:, None]
        layers: list[Any] = self._cache.layers
        for layer in layers:
            if layer.keys is not None:
                # (texts, slots, heads, width of a head) after indexing with two tensors
                layer.keys = layer.keys[which, :, slot].transpose(1, 2)
                layer.values = layer.values[which, :, slot].transpose(1, 2)


class BatchDecoder:
    """A pair of models and a policy, for several sequences at once.

    Args:
        target: a Hugging Face causal LM in eval mode.
        draft: likewise, over the same vocabulary.
        policy: asked for every sequence; None decodes with the target alone.
        settings: how to decode; greedily.
        vocab_size: ids that both models have.
        stop: "all" or "any", see above.

    Raises:
        PolicyError: see `simkit.live.timed.check`; it reads a head, or verified batches
            anew, which a batch does not.
        LiveError: the settings sample, or `stop` is neither.
    """

    def __init__(
        self,
        target: nn.Module,
        draft: nn.Module,
        policy: Sequential | None,
        settings: DecoderSettings,
        vocab_size: int,
        stop: str = "all",
    ) -> None:
        if not settings.sampler.greedy:
            raise LiveError("a batch is decoded greedily: temperature 0")
        if stop not in STOP:
            raise LiveError(f"stop must be all or any, not {stop!r}")
        if policy and policy.head:
            raise PolicyError(f"{policy} reads a head, which a batch has not")
        if policy and policy.extra_passes:
            raise PolicyError(f"{policy} reads verified batches anew, which a batch does not do")
        self.columns = check(policy, settings, {}) if policy else ()
        self.policy, self.settings, self.stop = policy, settings, STOP[stop]
        self.target = BatchReader(target, vocab_size)
        self.draft = BatchReader(draft, vocab_size)
        self.clock = clock_of(self.target.device)
        self.states: list[tuple] = []

    def decode(self, prompts: list[list[int]], sequence: int) -> tuple[BatchOutputs, list[LiveRow]]:
        """Decode some prompts.

        Args:
            prompts: tokens of each.
            sequence: number of the first one.
        """
        return finished(self.stepwise(prompts, sequence))

    def stepwise(
        self, prompts: list[list[int]], sequence: int
    ) -> Generator[int, None, tuple[BatchOutputs, list[LiveRow]]]:
        """Decode some prompts; see `simkit.live.interleave`."""
        self.spans = Spans(self.clock, len(prompts))
        begun = self.clock.mark()
        self._open(prompts, sequence)
        opening = self.settings.first_token == "prefill"
        blocks = prompts if opening else [prompt[:-1] for prompt in prompts]
        first: list[list[int]] = [[] for _ in prompts]
        if any(blocks):
            best = self._prefill(self.target, "target", blocks)
            first = best if opening else first
        self._append(first, [0] * len(prompts), 0, begun, 0)
        number = 0
        while self.live:
            yield sum(map(len, self.outputs))
            number += 1
            self._step(number)
        return BatchOutputs(self.steps, self.outputs), self.spans.rows()

    def _open(self, prompts: list[list[int]], sequence: int) -> None:
        n = len(prompts)
        for reader in (self.target, self.draft):
            reader.forget(n)
        self.live = list(range(n))
        self.texts = [list(prompt) for prompt in prompts]
        self.outputs: list[list[int]] = [[] for _ in prompts]
        self.steps: list[list[Step]] = [[] for _ in prompts]
        if self.policy and (self.policy.carried == "sequence" or len(self.states) < n):
            self.states = [self.policy.begin(sequence + k) for k in range(n)]

    def _prefill(
        self, reader: BatchReader, component: str, blocks: list[list[int]]
    ) -> list[list[int]]:
        begun = self.clock.mark()
        best = reader.read(blocks, 1).argmax(-1).tolist()
        self.spans.add("prefill", component, begun, self.clock.mark(), max(map(len, blocks)))
        return best

    def _step(self, number: int) -> None:
        """Draft, verify, append what comes out, and tell the policy."""
        begun = self.clock.mark()
        drafts, gamma = self._draft() if self.policy else ([[] for _ in self.live], 0)
        drafted = max(map(len, drafts))
        context, since = max(self.target.lengths), self.clock.mark()
        blocks = [
            self.texts[k][read:] + draft[:gamma]
            for k, read, draft in zip(self.live, self.target.lengths, drafts, strict=True)
        ]
        best = self.target.read(blocks, gamma + 1).argmax(-1).tolist()
        self.spans.add("verify", "target", since, self.clock.mark(), gamma + 1, context)
        emitted, accepted = [], []
        for k, draft, own in zip(self.live, drafts, best, strict=True):
            a, tokens = self._accept(k, draft[:gamma], own)
            ended = a == len(tokens)
            if self.policy:
                self.steps[k].append(Step(len(self.outputs[k]) + 1, gamma, drafted, a))
                outcome = Outcome(drafted, gamma, a, ended)
                self.states[k] = self.policy.update(self.states[k], outcome)
            emitted.append(tokens)
            accepted.append(a)
        self._append(emitted, accepted, number, begun, drafted)

    def _accept(self, k: int, draft: list[int], own: list[int]) -> tuple[int, list[int]]:
        """Tokens accepted of a draft, and those that come out: the target's too, behind no EOS."""
        room = min(len(draft), self.settings.max_new_tokens - len(self.outputs[k]) - 1)
        for a in range(room):
            if draft[a] != own[a]:
                return a, draft[:a] + [own[a]]
            if draft[a] in self.settings.eos_token_ids:
                return a + 1, draft[: a + 1]
        return room, draft[:room] + [own[room]]

    def _append(
        self,
        emitted: list[list[int]],
        accepted: list[int],
        number: int,
        begun: object,
        drafted: int,
    ) -> None:
        """Add tokens to the texts; those that end leave. Closes the step."""
        start = min(len(self.outputs[k]) for k in self.live) + 1
        stay = []
        for row, (k, tokens) in enumerate(zip(self.live, emitted, strict=True)):
            self.texts[k] += tokens
            self.outputs[k] += tokens
            eos = bool(tokens) and tokens[-1] in self.settings.eos_token_ids
            if not eos and len(self.outputs[k]) < self.settings.max_new_tokens:
                stay.append(row)
        for reader in (self.target, self.draft):
            known = zip(self.live, reader.lengths, strict=True)
            reader.keep([min(read, len(self.texts[k]) - 1) for k, read in known], stay)
        self.live = [self.live[row] for row in stay]
        self.spans.close(number, begun, start, drafted, sum(accepted), sum(map(len, emitted)))
        self.spans.batch_size = len(self.live)

    def _draft(self) -> tuple[list[list[int]], int]:
        """Draft until the sequences stop: each one's tokens, and how many are to be verified."""
        assert self.policy is not None
        name, begun = f"policy:{self.policy.timed_as}", self.clock.mark()
        rooms = [
            min(
                self.settings.max_new_tokens - len(self.outputs[k]) - 1,
                self.policy.max_draft,
                longest(self.policy, self.states[k]),
            )
            for k in self.live
        ]
        drafts: list[list[int]] = [[] for _ in self.live]
        stopped = [room <= 0 for room in rooms]
        self.spans.add("policy", name, begun, self.clock.mark())
        if not self.stop(stopped) and not any(self.draft.lengths):
            blocks = [self.texts[k][:-1] for k in self.live]
            if any(blocks):
                self._prefill(self.draft, "draft", blocks)
        while not self.stop(stopped):
            since = self.clock.mark()
            q, tokens, width = self._next(drafts)
            depth, after = len(drafts[0]), self.clock.mark()
            context = max(self.draft.lengths) - width
            self.spans.add("draft", "draft", since, after, width, context, depth)
            self._ask(q, tokens, depth, stopped)
            for row, draft in enumerate(drafts):
                eos = draft[-1] in self.settings.eos_token_ids
                stopped[row] = stopped[row] or eos or depth >= rooms[row]
            self.spans.add("policy", name, after, self.clock.mark(), depth=depth)
        drafted = len(drafts[0])
        return drafts, max(sent(self.policy, self.states[k], drafted) for k in self.live)

    def _next(self, drafts: list[list[int]]) -> tuple[Tensor, Tensor, int]:
        """One pass of the draft: logits (B, V), the tokens (B,) that drafts grow by, those read.

        What the draft has not read differs between texts: one token, or two behind a draft that was
        accepted whole. All read as many, the last one a second time where need be.
        """
        texts = [self.texts[k] + draft for k, draft in zip(self.live, drafts, strict=True)]
        lengths = zip(texts, self.draft.lengths, strict=True)
        lacking = max(len(text) - read for text, read in lengths)
        self.draft.keep([len(text) - lacking for text in texts])
        logits = self.draft.read([text[-lacking:] for text in texts], 1)[:, -1]
        tokens = logits.argmax(-1)
        for draft, token in zip(drafts, tokens.tolist(), strict=True):
            draft.append(token)
        return logits, tokens, lacking

    def _ask(self, logits: Tensor, tokens: Tensor, depth: int, stopped: list[bool]) -> None:
        """Ask the rules that have not stopped yet about the newest tokens."""
        assert self.policy is not None
        values = [[] for _ in stopped]
        if self.columns:
            q = draft_rows(logits, self.settings.sampler, self.settings.kernel)
            found = draft_statistics(q, tokens, self.columns)
            values = torch.stack([found[name] for name in self.columns], 1).tolist()
        for row, k in enumerate(self.live):
            if not stopped[row]:
                state, read = self.states[k], tuple(values[row])
                stopped[row], self.states[k] = asked(self.policy, state, depth, read)
