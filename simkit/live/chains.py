"""Chains behind the texts of a batch, each as long as a decider says, verified in one pass.

`benchmarks.plain_decoder` is its judge: both give the same steps and tokens. This computes only
what the decider reads, and draws keyed numbers only where something is sampled. The draft reads a
text by itself, before its first pass behind it, as costs assume. What keyed draws take beyond an
engine's is in `simkit.live.keyed_draws`, and its time is left out.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from simkit.live.deciders import Drafted, Headed, rows_of
from simkit.live.decoder import Drafting, Facts, Taken, Text
from simkit.live.keyed_draws import Ahead, Keyed
from simkit.live.log import Spans
from simkit.live.settings import DecoderSettings, Step
from simkit.serving import View
from simkit.serving.rules import Came, Decider, Seen
from traces.record import draws
from traces.record.reader import Reader
from traces.record.statistics import LogitRows, draft_rows, target_rows

Blocks = list[list[int]]


class Chains(Drafting):
    """See the module.

    Args:
        target: reads the texts.
        draft: likewise.
        decider: says how far to draft; None: not at all.
        settings: how to decode.
        keyed: draws of the only text, where it is sampled.
    """

    def __init__(
        self,
        target: Reader,
        draft: Reader,
        decider: Decider | None,
        settings: DecoderSettings,
        keyed: Keyed | None = None,
    ) -> None:
        super().__init__(target, settings)
        self.draft, self.decider, self.keyed = draft, decider, keyed
        self.heads = [*decider.heads.values()] if isinstance(decider, Headed) else []
        self.max_draft = decider.max_draft if decider else 0

    def begin(self, spans: Spans, rows: int, room: int) -> None:
        """See `Drafting`."""
        super().begin(spans, rows, room)
        self.draft.slots.begin(rows, room)
        self.states = torch.empty(0)  # the draft's behind each token of the only text, for heads
        if self.decider:
            self.decider.begin(rows)
        for head in self.heads:
            head.cut(0)

    def open(self, text: Text) -> None:
        """See `Drafting`."""
        super().open(text)
        self.draft.slots.open()
        self._q = []
        if self.keyed:
            with self.spans.left_out():
                self.keyed.begin(text.sequence)

    def close(self, text: Text) -> None:
        """See `Drafting`."""
        super().close(text)
        self.draft.slots.close(text.row)

    def first(self, logits: Tensor, texts: list[Text]) -> None:
        """See `Drafting`."""
        if self.keyed:
            ahead = self._ahead(texts[0], [])
            self._append(texts[0], [ahead.verify(target_rows(logits, self.settings.sampler))[1]])
            return
        for text, token in zip(texts, logits.argmax(-1).tolist(), strict=True):
            self._append(text, [token])

    def step(self, batch: list[Text], now: Facts) -> list[Taken]:
        """See `Drafting`."""
        drafted = proposed = [0] * len(batch)
        starts = [text.position for text in batch]
        if self.decider:
            self._draft(batch, now, self.decider)
            begun = self.spans.mark()
            drafted = self.decider.drafted()
            proposed = self.decider.chosen(self._seen, drafted)
            if self.decider.whole_view:  # a rule's is no decision
                self.spans.add("policy", self.decider.name, begun, self.spans.mark())
        took = []
        verified = self._verify(batch, proposed, now)
        columns = batch, starts, drafted, proposed, verified
        for text, start, n, k, (a, tokens) in zip(*columns, strict=True):
            self._append(text, tokens)
            took.append(Taken(n, k, a, tokens, Step(start, k, n, a) if self.decider else None))
        self._cut(batch)
        if self.decider:
            came = Came(
                drafted=drafted,
                proposed=proposed,
                accepted=[one.accepted for one in took],
                done=[self.done(text) for text in batch],
                ended=[one.accepted == len(one.tokens) for one in took],
            )
            begun = self.spans.mark()
            self.decider.observe(self._seen, came)
            self.spans.add("policy", self.decider.name, begun, self.spans.mark())
        return took

    def _draft(self, batch: list[Text], now: Facts, decider: Decider) -> None:
        """Draft until all have stopped."""
        begun = self.spans.mark()
        budget, numbers = self.settings.max_new_tokens, [text.number for text in batch]
        room = [max(0, min(budget - text.position, decider.max_draft)) for text in batch]
        self._seen: Seen = _InFlight(numbers, room)
        if decider.whole_view:
            self._seen = _view(batch, now, decider, room)
        decider.open(self._seen, [text.sequence for text in batch])
        for text in batch:
            text.draft = []
        self._q: list[LogitRows] = []
        self.spans.add("policy", decider.name, begun, self.spans.mark())
        if any(decider.going):
            self._read_texts(batch, now)
        while any(decider.going):
            drawn = self._round(batch)
            rows = rows_of(decider, drawn)
            decider.told([text.draft[-1] in self.eos for text in batch], rows)
            if rows is not None:
                depth = len(batch[0].draft)
                self.spans.add("policy", decider.name, drawn.since, self.spans.mark(), depth=depth)

    def _read_texts(self, batch: list[Text], now: Facts) -> None:
        """Let the draft read the texts that it has not seen, all but their last tokens."""
        lengths = self.draft.lengths
        new = [text for text in batch if not lengths[text.row] and len(text.tokens) > 1]
        now.opened += [len(text.tokens) - 1 for text in new]
        for some in _neighbours(new):
            begun = self.spans.mark()
            blocks = [text.tokens[:-1] for text in some]
            self._draft_pass(partial(self.draft.behind, first=some[0].row), blocks)
            width = max(map(len, blocks))
            self.spans.add("prefill", "draft", begun, self.spans.mark(), width)

    def _round(self, batch: list[Text]) -> Drafted:
        """One pass of the draft, by which drafts grow.

        What the draft has not read differs between texts: one token, or two behind a draft that was
        accepted whole. All read as many where they have them, the last ones a second time.
        """
        noise = None
        if self.keyed:
            with self.spans.left_out():
                noise = self.keyed.noise(batch[0].draft)
        begun, lengths = self.spans.mark(), self.draft.lengths
        texts = [text.tokens + text.draft for text in batch]
        most = max(len(x) - lengths[text.row] for x, text in zip(texts, batch, strict=True))
        if len(batch) > 1:
            self._cut_draft(batch, [max(0, len(x) - most) for x in texts])
        context = max(lengths)
        blocks = [x[lengths[text.row] :] for x, text in zip(texts, batch, strict=True)]
        logits = self._draft_pass(partial(self._in_rows, self.draft.behind, batch), blocks)
        settings = self.settings
        q = draft_rows(logits.to(self.target.device), settings.sampler, settings.kernel)
        tokens = q.best if noise is None else draws.winner(q.processed, noise)
        for text, token in zip(batch, tokens.tolist(), strict=True):
            text.draft.append(token)
        if self.keyed:
            self._q.append(q)
        ended, depth = self.spans.mark(), len(batch[0].draft)
        self.spans.add("draft", "draft", begun, ended, most, context, depth)
        return Drafted(q, tokens, self.states, len(batch[0].tokens) - 1, self.spans, ended)

    def _draft_pass(self, read: Callable[[Blocks], Tensor], blocks: Blocks) -> Tensor:
        """A pass of the draft, whose states are kept where heads read them."""
        before = self.draft.lengths[0]
        logits = read(blocks)
        if self.heads:
            new = self.draft.states
            self.states = torch.cat([self.states[:before], new]) if before else new
        return logits

    def _in_rows(
        self, read: Callable[[Blocks], Tensor], batch: list[Text], blocks: Blocks
    ) -> Tensor:
        """A pass over a block of each text of a batch, whose rows are the first ones."""
        if len(batch) == 1:
            return read(blocks)
        order = sorted(range(len(batch)), key=lambda k: batch[k].row)
        logits = read([blocks[k] for k in order])
        if order == list(range(len(batch))):
            return logits
        return logits[torch.tensor([text.row for text in batch], device=logits.device)]

    def _verify(
        self, batch: list[Text], proposed: list[int], now: Facts
    ) -> list[tuple[int, list[int]]]:
        """Run the target over the drafts: of each, how many are accepted, and what comes out."""
        widest = max(proposed)
        ahead = self._ahead(batch[0], batch[0].draft[:widest]) if self.keyed else None
        begun, lengths = self.spans.mark(), self.target.lengths
        context = max(lengths[text.row] for text in batch)
        blocks = [text.tokens[lengths[text.row] :] + text.draft[:widest] for text in batch]
        now.tokens_in = max(map(len, blocks))
        logits = self._in_rows(partial(self.target.read, keep=widest + 1), batch, blocks)
        p = target_rows(logits.flatten(0, 1), self.settings.sampler)
        if ahead:
            accepted, own = ahead.verify(p)
            kept = batch[0].draft[:accepted]
            came = [(accepted, kept if kept and kept[-1] in self.eos else [*kept, own])]
        else:
            best = p.best.reshape(len(batch), -1).tolist()
            came = [
                self.accept(text, text.draft[:k], own)
                for text, k, own in zip(batch, proposed, best, strict=True)
            ]
        self.spans.add("verify", "target", begun, self.spans.mark(), now.tokens_in, context)
        if self.decider and self.decider.extra_passes:
            self._read_again(batch, widest, now)
        return came

    def _read_again(self, batch: list[Text], proposed: int, now: Facts) -> None:
        """The draft's own pass over a verified batch, from which nothing is drafted; at depth 0."""
        self._read_texts(batch, now)
        begun = self.spans.mark()
        self._cut_draft(batch, [len(text.tokens) - 1 for text in batch])
        (text,), context = batch, self.draft.lengths[0]
        read = text.tokens[context:] + text.draft[:proposed]
        self._draft_pass(self.draft.behind, [read])
        self.spans.add("draft", "draft", begun, self.spans.mark(), len(read), context)

    def _ahead(self, text: Text, draft: list[int]) -> Ahead:
        """What keyed draws need before a verification; see `Keyed`."""
        assert self.keyed is not None
        with self.spans.left_out():
            return self.keyed.ahead(text.tokens, draft, self._q[: len(draft)])

    def _append(self, text: Text, tokens: list[int]) -> None:
        text.tokens += tokens
        if self.keyed and tokens:
            with self.spans.left_out():
                self.keyed.advance(text.tokens, tokens)

    def _cut(self, batch: list[Text]) -> None:
        """Take back what was read of rejected tokens; the last token was read by neither model."""
        by_row = batch if len(batch) == 1 else sorted(batch, key=lambda text: text.row)
        lengths = [len(text.tokens) - 1 for text in by_row]
        self.target.slots.cut(lengths)
        self.draft.slots.cut(lengths)
        for head in self.heads:
            head.cut(lengths[0])

    def _cut_draft(self, batch: list[Text], lengths: list[int]) -> None:
        """Forget what the draft has read beyond the first tokens of each text."""
        by_row = sorted(zip((text.row for text in batch), lengths, strict=True))
        self.draft.slots.cut([length for _, length in by_row])


def _neighbours(texts: list[Text]) -> list[list[Text]]:
    """Texts in groups whose rows follow on each other."""
    found: list[list[Text]] = []
    for text in sorted(texts, key=lambda text: text.row):
        if found and found[-1][-1].row + 1 == text.row:
            found[-1].append(text)
        else:
            found.append([text])
    return found


class _InFlight(NamedTuple):
    """See `Seen`."""

    request: list[int]
    room: list[int]


def _view(batch: list[Text], now: Facts, decider: Decider, room: list[int]) -> View:
    """What a controller sees; what has come is admitted behind its decision."""

    def column(values: list[int]) -> np.ndarray:
        return np.array(values, np.int64)

    width = decider.max_draft if decider.columns else 0
    none = Taken(-1, -1, -1, [], None)
    last = [text.last or none for text in batch]
    return View(
        number=now.number,
        now_s=now.now_s,
        prefilling=0,
        waiting=now.coming,
        before=now.before,
        request=column([text.number for text in batch]),
        room=column(room),
        context=column([len(text.tokens) for text in batch]),
        tokens=column([text.emitted for text in batch]),
        steps=column([text.steps for text in batch]),
        drafted=column([one.drafted for one in last]),
        proposed=column([one.proposed for one in last]),
        accepted=column([one.accepted for one in last]),
        ahead=column([-1] * len(batch)),
        confidence=np.full((len(batch), width), np.nan),
    )
