"""A second server, written plainly from its description: the judge of the compiled one.

One request is an object, an iteration is a few lists. Prices are asked of the cost itself
(`Times.of_batch`), a pass at a time. Its controllers are in `serving_plain_rules`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from simkit.drafters import layout_of


@dataclass
class Request:
    number: int
    sequence: int
    n_prompt: int
    n_output: int
    arrival: float
    out: int = 0
    to_read: int = -1  # tokens that prefill has still to read; -1: not admitted
    had: int = 0  # of those, read
    draft_reads: int = -1  # tokens of the prompt that the draft model still has to read
    behind: int = 0  # output tokens that came out while the draft model was left out
    log: list = field(default_factory=list)  # (iteration, start, drafted, proposed, accepted, out)
    first: float = math.nan
    done: float = math.nan
    tokens_before: int = 0
    preempted: int = 0

    @property
    def context(self):
        return self.n_prompt + self.out

    @property
    def decodes(self):
        return self.to_read == 0


class Times:
    """A pass over a batch, between the sizes that the tables have."""

    def __init__(self, times, sizes):
        self.sizes = sizes
        self.of = {size: times.of_batch(size) for size in sizes}
        self.one = self.of[1]

    def _between(self, n, seconds):
        low = max(size for size in self.sizes if size <= n)
        high = min(size for size in self.sizes if size >= n)
        if low == high:
            return seconds(self.of[low])
        share = (n - low) / (high - low)
        return seconds(self.of[low]) * (1 - share) + seconds(self.of[high]) * share

    @staticmethod
    def _mixed(f, tokens, context):
        """Linear between whole tokens and contexts."""
        total = 0.0
        for t, wt in ((math.floor(tokens), 1 - tokens % 1), (math.floor(tokens) + 1, tokens % 1)):
            for c, wc in (
                (math.floor(context), 1 - context % 1),
                (math.floor(context) + 1, context % 1),
            ):
                if wt * wc > 0:
                    total += wt * wc * float(np.ravel(f(np.array([t]), np.array([c])))[0])
        return total

    def verify(self, n, tokens, context):
        return self._between(n, lambda one: self._mixed(one.verify, tokens / n, context))

    def decode(self, n, context):
        return self._between(n, lambda one: self._mixed(lambda _, c: one.decode(c), 1, context))

    def draft(self, n, context):
        return self._between(n, lambda one: self._mixed(lambda _, c: one.draft(c), 1, context))

    def draft_several(self, n, tokens, context):
        return self._between(n, lambda one: self._mixed(one.draft_block, tokens / n, context))

    def once(self, n, context):
        return self._between(n, lambda one: self._mixed(lambda _, c: one.draft_step(c), 1, context))

    def overhead(self, n):
        return self._between(n, lambda one: one.overhead())

    def prompts(self, model, spans, joins):
        """Prompts read from a to b tokens, in one pass."""
        if not spans:
            return 0.0

        def whole(n):
            return float(self.one.prefill(model, np.array([n]))[0])

        least = min(max(2 * whole(1) - whole(2), 0.0), whole(1))
        added = sum(whole(b) - (max(whole(a), least) if a else least) for a, b in spans)
        return added if joins else added + least


class PlainServer:
    """See the module.

    Args:
        trace: whose sequences are served.
        times: of the cost, at batch 1.
        sizes: of batches, at which tables are made.
        controller: has `lengths(batch)`, `choose(batch, drafted)` and `observe(…)`.
    """

    def __init__(self, trace, times, sizes, controller, engine, first=1):
        self.layout = layout_of(trace)
        self.trace, self.times, self.controller = trace, Times(times, sizes), controller
        self.engine, self.first = engine, first
        self.clock, self.iteration = 0.0, 0
        self.before = 0  # requests of the last iteration, those whose prompts it read among them
        self.rows: list[dict] = []

    def run(self, sequences, arrivals=None, concurrency=0):
        """Serve requests; the requests, in order."""
        layout = self.layout
        requests = [
            Request(k, s, int(layout.n_prompt[s]), int(layout.n_output[s]), math.inf)
            for k, s in enumerate(sequences)
        ]
        if arrivals is not None:
            for request, when in zip(requests, arrivals, strict=True):
                request.arrival = when
        coming, waiting, running = list(requests), [], []
        while coming or waiting or running:
            if concurrency:
                while coming and len(waiting) + len(running) < concurrency:
                    coming[0].arrival = self.clock
                    waiting.append(coming.pop(0))
            else:
                if not waiting and not running:
                    self.clock = max(self.clock, coming[0].arrival)
                while coming and coming[0].arrival <= self.clock:
                    waiting.append(coming.pop(0))
            self.step(waiting, running)
        return requests

    def room(self, request):
        """The longest draft: what the budget leaves, and what the draft has."""
        row = self.layout.offsets[request.sequence] + request.out
        end = self.layout.offsets[request.sequence + 1]
        m = row + self.layout.ahead[row]
        there = self.layout.branch[m + 1] - self.layout.branch[m] if m < end else 0
        depth = m - row + 1 + there if m < end else end - row
        return int(min(self.trace.max_new_tokens - request.out - 1, depth))

    def step(self, waiting, running):
        batch = [r for r in running if r.decodes]
        drafted, speculative = [], self.controller.speculative
        prefilling = len(running) - len(batch)
        if batch:
            wanted = self.controller.lengths(batch, prefilling, self)
            drafted = [max(0, min(k, self.room(r))) for k, r in zip(wanted, batch, strict=True)]
        kept = dict(zip([r.number for r in batch], drafted, strict=True))
        held, preempted = self.hold(running, kept), False
        while held > self.engine.kv_tokens and len(running) > 1:
            victim = running.pop()
            victim.to_read, victim.had, victim.draft_reads, victim.behind = -1, 0, -1, 0
            victim.preempted += 1
            waiting.insert(0, victim)
            preempted, held = True, self.hold(running, kept)
        batch = [r for r in batch if r in running]
        drafted = [kept[r.number] for r in batch]
        while not preempted and waiting and len(running) < self.engine.max_batch:
            known = waiting[0].context
            if held + known + 1 > self.engine.kv_tokens and running:
                break
            held += known + 1
            request = waiting.pop(0)
            request.to_read, request.had, request.draft_reads = known, 0, known
            running.append(request)
        spans, left = [], self.engine.chunk
        for request in running:
            if request.to_read > 0 and left > 0:
                tokens = min(request.to_read, left)
                spans.append((request, request.had, request.had + tokens))
                left -= tokens
        proposed = self.controller.choose(batch, drafted, self) if batch else []
        accepted = [self.accepted(r, k) for r, k in zip(batch, proposed, strict=True)]
        ended = [r.out + a + 1 >= r.n_output for r, a in zip(batch, accepted, strict=True)]
        if batch:
            self.controller.observe(batch, drafted, proposed, accepted, ended)
        seconds = self.seconds(batch, drafted, proposed, spans, speculative)
        self.rows.append({"begin": self.clock, "decoding": len(batch), "drafted": sum(drafted)})
        self.clock += seconds
        for request, k, sent, a in zip(batch, drafted, proposed, accepted, strict=True):
            out = min(a + 1, request.n_output - request.out)
            request.log.append((self.iteration, request.out + 1, k, sent, a, out))
            if request.out == 0:
                request.first = self.clock
            request.out += out
            request.behind = 0 if k > 0 else request.behind + out
        for request, _, upto in spans:
            request.to_read -= upto - request.had
            request.had = upto
            if request.to_read == 0 and request.out == 0 and self.first == 2:
                request.out, request.first = 1, self.clock
        for request in [r for r in running if r.decodes and r.out >= r.n_output]:
            request.done = self.clock
            running.remove(request)
        self.iteration += 1
        self.before = len(batch) + len(spans)

    def hold(self, running, kept):
        """Tokens that the caches hold, or have room for."""
        return sum(
            r.context + kept[r.number] + 1 if r.number in kept else r.context + 1 for r in running
        )

    def accepted(self, request, k):
        row = self.layout.offsets[request.sequence] + request.out
        left = self.trace.max_new_tokens - request.out - 1
        return int(max(0, min(k, self.layout.ahead[row], left)))

    def seconds(self, batch, drafted, proposed, spans, speculative):
        times, n = self.times, len(batch)
        total = times.prompts("target", [(a, b) for _, a, b in spans], n > 0)
        if not n:
            return total
        context = sum(r.context for r in batch) / n
        if not speculative:
            total += times.decode(n, context)
            return total + times._between(n, lambda one: one.baseline_overhead())
        new = [r for r, k in zip(batch, drafted, strict=True) if k > 0 and r.draft_reads >= 0]
        total += times.prompts("draft", [(0, r.draft_reads) for r in new], False)
        for request in new:
            request.draft_reads = -1
        total += times.once(n, context)
        for depth in range(max(drafted)):
            going = [r for r, k in zip(batch, drafted, strict=True) if k > depth]
            late = sum(r.behind for r in going) if depth == 0 and self.engine.catch_up else 0
            known = sum(r.context + depth for r in going) - late
            if late:  # the pass holds what each has not read, and its last token
                total += times.draft_several(len(going), len(going) + late, known / len(going))
            else:
                total += times.draft(len(going), known / len(going))
        total += times.verify(n, n + sum(proposed), context)
        return total + times.overhead(n)


@dataclass
class Limits:
    max_batch: int = 64
    kv_tokens: float = math.inf
    chunk: float = math.inf
    catch_up: bool = True
