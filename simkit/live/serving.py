"""A server of a model pair: greedy speculative decoding of requests that come and go.

It judges the simulator of `simkit.serving`, whose schedule it keeps and none of whose loop it uses.
In an iteration (1) those that are done have left, and as many new ones have come as keep the
concurrency; (2) the requests whose prompt was read decode together: the controller says how far
they draft, draft rounds go on until all have stopped, and one pass verifies as many tokens of each
as the longest draft has; (3) the prompts of the new ones are read, in a pass of their own. A draft
round holds all requests that decode. The draft model reads a prompt before the first round that
holds its request.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from simkit.errors import LiveError
from simkit.live.clock import Clock, clock_of
from simkit.live.interleave import finished
from simkit.live.live_controllers import Came, Decider
from simkit.live.served import Iteration, Parts, ServedStep
from simkit.live.settings import DecoderSettings
from simkit.serving import View
from traces.record.pair import Pair
from traces.record.reader import Reader
from traces.record.statistics import draft_rows
from traces.record.statistics_triton import draft_statistics


class Request(NamedTuple):
    """A prompt; `sequence` is its number in its file or trace."""

    sequence: int
    tokens: list[int]


class LiveServed(NamedTuple):
    """What came of some requests: iterations, and the output of each."""

    iterations: list[Iteration]
    outputs: list[list[int]]


@dataclass
class _RequestText:
    """A request in flight; `row` is its place in the readers."""

    number: int
    sequence: int
    tokens: list[int]
    n_prompt: int
    row: int
    steps: int = 0
    last: tuple[int, int, int] = (-1, -1, -1)
    draft: list[int] = field(default_factory=list)

    @property
    def emitted(self) -> int:
        """Tokens of its output."""
        return len(self.tokens) - self.n_prompt


class LiveServer:
    """See the module.

    Args:
        pair: the models.
        decider: says how far to draft; its controller is its own. None: the target alone.
        settings: how to decode; greedily.
        concurrency: requests in flight.
        clock: of the log; None: the models' device's.

    Raises:
        LiveError: the settings sample, or the concurrency is below 1.
    """

    def __init__(
        self,
        pair: Pair,
        decider: Decider | None,
        settings: DecoderSettings,
        concurrency: int,
        clock: Clock | None = None,
    ) -> None:
        if not settings.sampler.greedy:
            raise LiveError("a server decodes greedily: temperature 0")
        if concurrency < 1:
            raise LiveError(f"concurrency must be at least 1, not {concurrency}")
        self.pair, self.decider, self.settings = pair, decider, settings
        self.concurrency = concurrency
        self.clock = clock or clock_of(pair.target.device)

    def serve(self, requests: Sequence[Request]) -> LiveServed:
        """Serve requests, first come, first served."""
        return finished(self.stepwise(requests))

    def stepwise(self, requests: Sequence[Request]) -> Generator[int, None, LiveServed]:
        """Serve requests; see `simkit.live.interleave`."""
        self._open(requests)
        while self.done < len(requests):
            yield sum(map(len, self.outputs))
            self._iterate()
        self.clock.settle()
        return LiveServed([_closed(*row) for row in self.rows], self.outputs)

    def _open(self, requests: Sequence[Request]) -> None:
        self.waiting = list(enumerate(requests))[::-1]
        self.outputs: list[list[int]] = [[] for _ in requests]
        self.running: list[_RequestText] = []  # whose prompt was read, in the order of their rows
        self.rows: list[tuple[dict, Parts]] = []
        self.done, self.number, self.before, self.now_s = 0, 0, 0, 0.0
        most = self.decider.max_draft if self.decider else 0
        longest = max(len(request.tokens) for request in requests)
        slots = longest + self.settings.max_new_tokens + most + 1
        batch = min(self.concurrency, len(requests))
        size = self.pair.vocab_size
        self.target, self.draft = (
            Reader(model, size, rows=batch, room=slots)
            for model in (self.pair.target, self.pair.draft)
        )
        if self.decider:
            self.decider.begin(batch)

    def _iterate(self) -> None:
        """One iteration, see the module."""
        begun, parts = time.perf_counter(), Parts(self.clock)
        coming = min(self.concurrency - len(self.running), len(self.waiting))
        facts: dict = {"number": self.number, "decoding": len(self.running), "steps": []}
        if self.running:
            batch = sorted(self.running, key=lambda text: text.number)
            context = float(np.mean([len(text.tokens) for text in batch]))
            facts |= {"context": context, **self._decode(batch, coming, parts)}
        facts |= self._admit(coming, parts)
        self._leave()
        parts.end()
        self.rows.append((facts, parts))
        self.number += 1
        self.before = facts["decoding"] + facts.get("prefilling", 0)
        self.now_s += time.perf_counter() - begun

    def _decode(self, batch: list[_RequestText], coming: int, parts: Parts) -> dict:
        """Draft, verify, append what comes out, and tell the controller."""
        opened = self._draft(batch, coming, parts) if self.decider else {}
        parts.since()
        drafted, proposed = self._proposed(batch)
        parts.add("policy_s")
        parts.since()
        widest = int(proposed.max())
        blocks = [
            text.tokens[self.target.lengths[text.row] :] + text.draft[:widest] for text in batch
        ]
        tokens_in = max(map(len, blocks))
        read = partial(self.target.read, keep=widest + 1)
        own = self._in_rows(read, batch, blocks).argmax(-1).tolist()
        parts.add("verify_s")
        came = [
            self._accept(text, text.draft[:k], best)
            for text, k, best in zip(batch, proposed.tolist(), own, strict=True)
        ]
        accepted = np.array([a for a, _ in came], np.int64)
        ended = [a == len(tokens) for a, tokens in came]
        steps = []
        columns = zip(batch, drafted.tolist(), proposed.tolist(), came, strict=True)
        for text, made, sent, (a, tokens) in columns:
            place = text.number, text.sequence, text.emitted + 1
            steps.append(ServedStep(*place, made, sent, a, len(tokens)))
            text.tokens += tokens
        done = [self._is_done(text) for text in batch]
        parts.since()
        if self.decider:
            self.decider.observe(self.view, Came(drafted, proposed, accepted, done, ended))
        parts.add("policy_s")
        for text, step in zip(batch, steps, strict=True):
            text.steps += 1
            text.last = step.drafted, step.proposed, step.accepted
        return {"tokens_in": tokens_in, "steps": steps, **opened}

    def _draft(self, batch: list[_RequestText], coming: int, parts: Parts) -> dict:
        """Draft until all have stopped; of the draft model's prompts, how many and how long."""
        assert self.decider is not None
        parts.since()
        self.view = self._view(batch, coming)
        self.decider.open(self.view, [text.sequence for text in batch])
        for text in batch:
            text.draft = []
        parts.add("policy_s")
        opened = self._open_drafts(batch, parts) if any(self.decider.going) else {}
        while any(self.decider.going):
            parts.since()
            logits, tokens = self._round(batch)
            newest = tokens.tolist()
            parts.add("round_s")
            parts.since()
            for text, token in zip(batch, newest, strict=True):
                text.draft.append(token)
            eos = [token in self.settings.eos_token_ids for token in newest]
            self.decider.told(eos, self._statistics(logits, tokens))
            parts.add("policy_s")
        return opened

    def _proposed(self, batch: list[_RequestText]) -> tuple[np.ndarray, np.ndarray]:
        """How many tokens each has drafted, and how many of them are verified."""
        if self.decider is None:
            return np.zeros(len(batch), np.int64), np.zeros(len(batch), np.int64)
        drafted = self.decider.drafted()
        there = self.decider.confidence()
        self.view = self.view._replace(waiting=0, prefilling=self.view.waiting, confidence=there)
        return drafted, self.decider.chosen(self.view, drafted)

    def _view(self, batch: list[_RequestText], coming: int) -> View:
        """What a controller sees; what has come is admitted behind its decision."""

        def column(values: list[int]) -> np.ndarray:
            return np.array(values, np.int64)

        assert self.decider is not None
        left = [self.settings.max_new_tokens - text.emitted - 1 for text in batch]
        width = self.decider.max_draft if self.decider.columns else 0
        return View(
            number=self.number,
            now_s=self.now_s,
            prefilling=0,
            waiting=coming,
            before=self.before,
            request=column([text.number for text in batch]),
            room=column([max(0, min(room, self.decider.max_draft)) for room in left]),
            context=column([len(text.tokens) for text in batch]),
            tokens=column([text.emitted for text in batch]),
            steps=column([text.steps for text in batch]),
            drafted=column([text.last[0] for text in batch]),
            proposed=column([text.last[1] for text in batch]),
            accepted=column([text.last[2] for text in batch]),
            ahead=column([-1] * len(batch)),
            confidence=np.full((len(batch), width), np.nan),
        )

    def _open_drafts(self, batch: list[_RequestText], parts: Parts) -> dict:
        """Let the draft model read the texts that it has not seen."""
        lengths = self.draft.lengths
        new = [t for t in batch if not lengths[t.row] and len(t.tokens) > 1]
        for some in _neighbours(new):
            parts.since()
            blocks = [text.tokens[:-1] for text in some]
            self.draft.read(blocks, first=some[0].row).argmax(-1).tolist()
            parts.add("open_s")
        return {
            "drafts_opened": len(new),
            "drafts_tokens": sum(len(text.tokens) - 1 for text in new),
        }

    def _round(self, batch: list[_RequestText]) -> tuple[Tensor, Tensor]:
        """One pass of the draft: logits (B, V), and the tokens (B,) that drafts grow by."""
        lengths = self.draft.lengths
        blocks = [(text.tokens + text.draft)[lengths[text.row] :] for text in batch]
        logits = self._in_rows(self.draft.behind, batch, blocks)
        return logits, logits.argmax(-1)

    def _in_rows(
        self,
        read: Callable[[list[list[int]]], Tensor],
        batch: list[_RequestText],
        blocks: list[list[int]],
    ) -> Tensor:
        """A pass over a block of each text of a batch, whose rows are the first ones."""
        order = sorted(range(len(batch)), key=lambda k: batch[k].row)
        logits = read([blocks[k] for k in order])
        if order == list(range(len(batch))):
            return logits
        return logits[torch.tensor([text.row for text in batch], device=logits.device)]

    def _statistics(self, logits: Tensor, tokens: Tensor) -> list[tuple[float, ...]]:
        """Of each text's newest token, the columns that the controller reads."""
        assert self.decider is not None
        if not self.decider.columns:
            return [()] * len(tokens)
        q = draft_rows(logits, self.settings.sampler, self.settings.kernel)
        found = draft_statistics(q, tokens, self.decider.columns)
        rows = torch.stack([found[name] for name in self.decider.columns], 1).tolist()
        return [tuple(row) for row in rows]

    def _accept(
        self, text: _RequestText, draft: list[int], own: list[int]
    ) -> tuple[int, list[int]]:
        """Tokens accepted of a draft, and those that come out: the target's too, behind no EOS."""
        room = min(len(draft), self.settings.max_new_tokens - text.emitted - 1)
        for a in range(room):
            if draft[a] != own[a]:
                return a, draft[:a] + [own[a]]
            if draft[a] in self.settings.eos_token_ids:
                return a + 1, draft[: a + 1]
        return room, draft[:room] + [own[room]]

    def _is_done(self, text: _RequestText) -> bool:
        if not text.emitted:
            return False
        eos = text.tokens[-1] in self.settings.eos_token_ids
        return eos or text.emitted >= self.settings.max_new_tokens

    def _admit(self, coming: int, parts: Parts) -> dict:
        """Read the prompts of those that have come, in one pass."""
        if not coming:
            return {}
        parts.since()
        new = []
        for _ in range(coming):
            number, request = self.waiting.pop()
            row = len(self.running) + len(new)
            new.append(
                _RequestText(
                    number, request.sequence, list(request.tokens), len(request.tokens), row
                )
            )
            self.target.slots.open()
            self.draft.slots.open()
        opening = self.settings.first_token == "prefill"
        blocks = [text.tokens if opening else text.tokens[:-1] for text in new]
        longest = max(map(len, blocks))
        if longest and opening:
            best = self.target.behind(blocks, new[0].row).argmax(-1).tolist()
            for text, token in zip(new, best, strict=True):
                text.tokens.append(token)
        elif longest:
            self.target.read(blocks, first=new[0].row).argmax(-1).tolist()
        parts.add("prefill_s")
        self.running += new
        return {
            "prefilling": coming,
            "prefill_tokens": sum(map(len, blocks)),
            "longest_prompt": longest,
        }

    def _leave(self) -> None:
        """Forget what was read of tokens that did not come out, and let go who is done."""
        for reader in (self.target, self.draft):
            reader.slots.cut([len(text.tokens) - 1 for text in self.running])
        for text in self.running:
            self.outputs[text.number] = text.tokens[text.n_prompt :]
        for text in [text for text in self.running[::-1] if self._is_done(text)]:
            self.target.slots.close(text.row)
            self.draft.slots.close(text.row)
            last = self.running.pop()
            if last is not text:
                last.row = text.row
                self.running[text.row] = last
            self.done += 1


def _neighbours(texts: list[_RequestText]) -> list[list[_RequestText]]:
    """Texts in groups whose rows follow on each other."""
    found: list[list[_RequestText]] = []
    for text in sorted(texts, key=lambda text: text.row):
        if found and found[-1][-1].row + 1 == text.row:
            found[-1].append(text)
        else:
            found.append([text])
    return found


def _closed(facts: dict, parts: Parts) -> Iteration:
    """An iteration, now that its times can be read."""
    none = dict.fromkeys(Iteration._fields, 0) | {"context": 0.0}
    seconds = parts.seconds()
    rounds = seconds.pop("round_s", [])
    names = ("prefill_s", "open_s", "verify_s", "policy_s", "seconds")
    sums = {name: float(sum(seconds.get(name, [0.0]))) for name in names}
    return Iteration(**{**none, **facts, **sums, "round_s": rounds})
