"""Speculative decoding with real models, an iteration at a time: one text, a batch, a server.

In an iteration (1) the texts whose prompt was read take a step together: what is drafted behind
them and what the target makes of it is a matter of the kind of drafting (`Chains`, `Trees`);
(2) the prompts of those that have come are read, in a pass of their own; (3) those that are done
leave. A slot that is free is filled at once, first come, first served. One text is one slot, a
batch comes all at once, and a server has fewer slots than requests.

The time is marked where one part ends and the next begins, so that the parts of a step leave out
nothing but the loop around them.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from torch import Tensor

from simkit.live.clock import Clock, clock_of
from simkit.live.interleave import finished
from simkit.live.log import LiveRow, Spans
from simkit.live.settings import DecoderSettings
from traces.record.reader import Reader


class Request(NamedTuple):
    """A prompt; `sequence` is its number in its file or trace, which keys its draws."""

    sequence: int
    tokens: list[int]


class Taken(NamedTuple):
    """A step of one text; `step` is what its kind of drafting has to say of it."""

    drafted: int
    proposed: int
    accepted: int
    tokens: list[int]
    step: Any


@dataclass
class Text:
    """A request in flight; `row` is its place in the readers."""

    number: int
    sequence: int
    tokens: list[int]
    n_prompt: int
    row: int
    steps: int = 0
    last: Taken | None = None
    draft: list[int] = field(default_factory=list)

    @property
    def emitted(self) -> int:
        """Tokens of its output."""
        return len(self.tokens) - self.n_prompt

    @property
    def position(self) -> int:
        """1-based position of the next token in the output."""
        return self.emitted + 1


@dataclass
class Facts:
    """What an iteration did, but for its times.

    Attributes:
        number: from 0.
        now_s: seconds since the first one began.
        coming: texts whose prompt it will read.
        before: texts that the iteration before has had.
        taken: each text that takes a step, with where it starts and what it took.
        read: tokens of the prompts that were read.
        opened: tokens of the texts that the draft was given to read.
        tokens_in: of each text in the verification, pads included; 0 without one.
        context: known tokens of the texts that take a step, the mean.
    """

    number: int
    now_s: float
    coming: int
    before: int
    taken: list[tuple[Text, int, Taken]] = field(default_factory=list)
    read: list[int] = field(default_factory=list)
    opened: list[int] = field(default_factory=list)
    tokens_in: int = 0
    context: float = 0.0


class Decoded(NamedTuple):
    """What became of some requests: the steps of each and its tokens; what took how long."""

    steps: list[list[Any]]
    outputs: list[list[int]]
    rows: list[LiveRow]
    iterations: list[Facts]


class One(NamedTuple):
    """One sequence: its steps (none of the target alone), its tokens, and what took how long."""

    steps: list[Any]
    output: list[int]
    rows: list[LiveRow]

    @property
    def seconds(self) -> float:
        """Of the whole sequence."""
        return self.rows[-1].seconds


class Drafting(ABC):
    """A kind of drafting.

    Args:
        target: reads the texts.
        settings: how to decode.

    Attributes:
        max_draft: tokens behind a text that are read at most.
        spans: what takes how long.
    """

    max_draft = 0
    spans: Spans

    def __init__(self, target: Reader, settings: DecoderSettings) -> None:
        self.target, self.settings = target, settings
        self.eos = frozenset(settings.eos_token_ids)

    def begin(self, spans: Spans, rows: int, room: int) -> None:
        """Forget all texts; up to `rows` will be there at once, of `room` tokens at most."""
        self.spans = spans
        self.target.slots.begin(rows, room)

    def open(self, text: Text) -> None:
        """A text comes."""
        self.target.slots.open()

    @abstractmethod
    def first(self, logits: Tensor, texts: list[Text]) -> None:
        """Prompts were read; emit the token behind each.

        Args:
            logits: (B, V), behind the prompts.
            texts: B of them.
        """

    @abstractmethod
    def step(self, batch: list[Text], now: Facts) -> list[Taken]:
        """Draft, verify, append what comes out to the texts, and forget what does not."""

    def read(self, texts: list[Text]) -> None:  # noqa: B027 (most keep nothing of them)
        """Prompts, or all of them but the last token, were read."""

    def close(self, text: Text) -> None:
        """A text is done; that of the last row takes its place."""
        self.target.slots.close(text.row)

    def done(self, text: Text) -> bool:
        """Whether its output is whole."""
        if not text.emitted:
            return False
        return text.tokens[-1] in self.eos or text.emitted >= self.settings.max_new_tokens

    def accept(self, text: Text, draft: list[int], own: list[int]) -> tuple[int, list[int]]:
        """Tokens accepted of a draft, and those that come out: the target's too, behind no EOS."""
        room = min(len(draft), self.settings.max_new_tokens - text.position)
        for a in range(room):
            if draft[a] != own[a]:
                return a, draft[:a] + [own[a]]
            if draft[a] in self.eos:
                return a + 1, draft[: a + 1]
        return room, draft[:room] + [own[room]]


class Decoder:
    """See the module.

    Args:
        drafting: the models, and how they draft; it has a state of its own.
        settings: how to decode.
        slots: texts at once; None: all that come.
        clock: of the log; None: the target's device's.
    """

    def __init__(
        self,
        drafting: Drafting,
        settings: DecoderSettings,
        slots: int | None = 1,
        clock: Clock | None = None,
    ) -> None:
        self.drafting, self.settings, self.slots = drafting, settings, slots
        self.clock = clock or clock_of(drafting.target.device)

    def run(self, requests: Sequence[Request]) -> Decoded:
        """Decode some requests."""
        return finished(self.stepwise(requests))

    def stepwise(self, requests: Sequence[Request]) -> Generator[int, None, Decoded]:
        """Decode some requests; see `simkit.live.interleave`."""
        self._open(requests)
        while self.n_done < len(requests):
            if self.iterations:
                yield sum(map(len, self.outputs))
            self._iterate()
        return Decoded(self.steps, self.outputs, self.spans.rows(), self.iterations)

    def _open(self, requests: Sequence[Request]) -> None:
        n = len(requests)
        self.waiting = list(enumerate(requests))[::-1]
        self.outputs: list[list[int]] = [[] for _ in requests]
        self.steps: list[list[Any]] = [[] for _ in requests]
        self.running: list[Text] = []  # whose prompt was read, in the order of their rows
        self.iterations: list[Facts] = []
        self.n_done, self.begun_s = 0, time.perf_counter()
        self.at_once = min(self.slots or n, n)
        self.spans = Spans(self.clock, n)
        longest = max(len(request.tokens) for request in requests)
        room = longest + self.settings.max_new_tokens + self.drafting.max_draft + 1
        self.drafting.begin(self.spans, self.at_once, room)

    def _iterate(self) -> None:
        """One iteration, see the module."""
        begun = self.clock.mark()
        coming = min(self.at_once - len(self.running), len(self.waiting))
        batch = sorted(self.running, key=lambda text: text.number)
        now = self._now(coming)
        self.iterations.append(now)
        self.spans.batch_size = len(batch) or coming
        start = min((text.position for text in batch), default=1)
        drafted = accepted = emitted = 0
        if batch:
            now.context = sum(len(text.tokens) for text in batch) / len(batch)
            starts = [text.position for text in batch]
            took = self.drafting.step(batch, now)
            for text, at, one in zip(batch, starts, took, strict=True):
                now.taken.append((text, at, one))
                text.steps, text.last = text.steps + 1, one
                if one.step is not None:
                    self.steps[text.number].append(one.step)
                drafted = max(drafted, one.drafted)
                accepted, emitted = accepted + one.accepted, emitted + len(one.tokens)
        emitted += self._admit(coming, now)
        self._leave()
        self.spans.close(now.number, begun, start, drafted, accepted, emitted)

    def _now(self, coming: int) -> Facts:
        number, before = len(self.iterations), 0
        if number:
            before = len(self.iterations[-1].taken) + len(self.iterations[-1].read)
        return Facts(number, time.perf_counter() - self.begun_s, coming, before)

    def _admit(self, coming: int, now: Facts) -> int:
        """Read the prompts of those that have come, in one pass; how many tokens came out."""
        new = []
        for _ in range(coming):
            number, request = self.waiting.pop()
            row = len(self.running) + len(new)
            tokens = list(request.tokens)
            text = Text(number, request.sequence, tokens, len(tokens), row)
            self.drafting.open(text)
            new.append(text)
        self.running += new
        opening = self.settings.first_token == "prefill"
        blocks = [text.tokens if opening else text.tokens[:-1] for text in new]
        now.read = list(map(len, blocks))
        if not any(blocks):
            return 0
        begun = self.clock.mark()
        logits = self.drafting.target.behind(blocks, new[0].row)
        self.spans.add("prefill", "target", begun, self.clock.mark(), max(now.read))
        self.drafting.read(new)
        if not opening:
            return 0
        self.drafting.first(logits, new)
        return len(new)

    def _leave(self) -> None:
        """Let go who is done."""
        for text in self.running:
            self.outputs[text.number] = text.tokens[text.n_prompt :]
        for text in [text for text in self.running[::-1] if self.drafting.done(text)]:
            self.drafting.close(text)
            last = self.running.pop()
            if last is not text:
                last.row = text.row
                self.running[text.row] = last
            self.n_done += 1


class OneByOne(Decoder):
    """Decodes a prompt at a time."""

    def decode(self, prompt: list[int], sequence: int) -> One:
        """Decode one prompt.

        Args:
            prompt: its tokens.
            sequence: the number that keys its draws; for a policy that was fitted to a trace, its
                index there.
        """
        found = self.run([Request(sequence, prompt)])
        return One(found.steps[0], found.outputs[0], found.rows)
