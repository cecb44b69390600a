"""Controllers of the plain server, each written from its description."""

from __future__ import annotations

import math

import numpy as np
from scipy.optimize import minimize


class Rule:
    """A controller of the plain server; decides one length for all unless it says otherwise."""

    speculative = True

    def length(self, batch, prefilling):
        raise NotImplementedError

    def lengths(self, batch, prefilling, server):
        return [self.length(batch, prefilling)] * len(batch)

    def choose(self, batch, drafted, server):
        return drafted

    def observe(self, batch, drafted, proposed, accepted, ended):
        pass


class NoDrafts(Rule):
    speculative = False

    def length(self, batch, prefilling):
        return 0


class Static(Rule):
    def __init__(self, k):
        self.k = k

    def length(self, batch, prefilling):
        return self.k


class OffAbove(Rule):
    def __init__(self, k, size):
        self.k, self.size = k, size

    def length(self, batch, prefilling):
        return 0 if len(batch) > self.size else self.k


class ByBatch(Rule):
    """The table of the step before, gaps inherit."""

    def __init__(self, table):
        self.of = {}
        last = 0
        for low, high, k in table:
            for size in range(max(self.of, default=0) + 1, low):
                self.of[size] = last
            self.of |= dict.fromkeys(range(low, high + 1), k)
            last = k
        self.last = last

    def lengths(self, batch, prefilling, server):
        return [self.of.get(server.before, self.last)] * len(batch)


class Schedule(Rule):
    def __init__(self, lengths, gate=0.0, window=16):
        self.table, self.gate, self.window = dict(lengths), gate, window
        self.off, self.means = False, []

    def length(self, batch, prefilling):
        fits = [size for size in sorted(self.table) if size >= len(batch)]
        return self.table[fits[0]] if fits and not self.off else 0

    def observe(self, batch, drafted, proposed, accepted, ended):
        for request in batch:
            if not request.log:
                self.first = request.out  # one that the prefill gave, or none
        for request, a, end in zip(batch, accepted, ended, strict=True):
            if end and self.gate:
                self.means.append((request.out - self.first + a + 1) / (len(request.log) + 1))
                last = self.means[-self.window :]
                if len(last) == self.window and sum(last) / self.window < self.gate:
                    self.off = True


class Ema(Rule):
    """SGLang's adaptive steps, a slot for each key of the table.

    Of sgl-project/sglang at 015c872: `adaptive_spec_params.py` (a slot without `down_hysteresis`
    has -0.25), and `adaptive_step_router.py` (the batch is padded up to a captured size, if there
    is one, before the largest key that is no larger is looked up; the smallest key below all).
    `SIZES` is what `_generate_decode_cuda_graph_batch_sizes` gives for speculation.
    """

    SIZES = [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30, 32]
    SIZES += [40, 44, 48, 52, 56, 60, 64, *range(72, 257, 8)]

    def __init__(self, candidates, steps, down, alpha=0.2, warmup=10, interval=5, sizes=None):
        self.slots, self.sizes = {}, self.SIZES if sizes is None else sizes
        for size, lengths in candidates:
            at = steps if steps in lengths else sorted(lengths)[len(lengths) // 2]
            self.slots[size] = {"now": at, "ema": at - 1, "n": 0, "of": sorted(lengths)}
            self.slots[size]["down"] = dict(down).get(size, -0.25)
        self.alpha, self.warmup, self.interval = alpha, warmup, interval

    def slot(self, n):
        n = next((size for size in self.sizes if size >= n), n)
        keys = [key for key in self.slots if key <= n]
        return self.slots[max(keys) if keys else min(self.slots)]

    def length(self, batch, prefilling):
        return self.slot(len(batch))["now"]

    def observe(self, batch, drafted, proposed, accepted, ended):
        slot = self.slot(len(batch))
        if slot["now"] > 0:
            slot["ema"] = (1 - self.alpha) * slot["ema"] + self.alpha * np.mean(accepted)
        slot["n"] += 1
        if slot["n"] <= self.warmup or (slot["n"] - self.warmup) % self.interval:
            return
        of, k = slot["of"], slot["of"].index(slot["now"])
        if slot["now"] == 0:
            slot["now"] = of[min(k + 1, len(of) - 1)]
            if slot["now"] > 0 and slot["ema"] < 0:
                slot["ema"] = slot["now"] - 1
            return
        start = k
        while k and slot["ema"] <= (0.5 if of[k - 1] == 0 else of[k - 1] - 0.5) + slot["down"]:
            k -= 1
        while k >= start and k + 1 < len(of) and slot["ema"] > of[k] - 0.5:
            k, start = k + 1, start + 1
        slot["now"] = of[k]


class Goodput(Rule):
    """The length with the best expected rate; `cost` is draft(n), verify(tokens, kv)."""

    def __init__(self, most, cost, alpha=0.7, memory=0.95, probe=32):
        self.most, self.cost, self.memory, self.probe = most, cost, memory, probe
        self.num, self.den, self.idle = alpha, 1.0, 0

    def length(self, batch, prefilling):
        a, n = self.num / self.den, len(batch)
        kv = sum(r.context for r in batch)
        draft, verify = self.cost

        def rate(k):
            expected = sum(a**j for j in range(k + 1))
            return n * expected / (k * draft(n) + verify(n * (k + 1), kv))

        best = max(range(self.most + 1), key=rate)  # the first of equals
        self.idle = self.idle + 1 if best == 0 else 0
        if self.idle > self.probe:
            best, self.idle = 1, 0
        return best

    def observe(self, batch, drafted, proposed, accepted, ended):
        judged = sum(min(a + 1, k) for a, k in zip(accepted, proposed, strict=True))
        if judged:
            self.num = self.memory * self.num + sum(accepted) / judged
            self.den = self.memory * self.den + 1


class Budget(Rule):
    """The B likeliest tokens over all requests, B by confidences `stale` steps old."""

    def __init__(self, most, confidence, stale=2, refit=100, least=50, ridge=1e-3, first=True):
        self.most, self.confidence, self.stale = most, confidence, stale
        self.refit, self.least, self.ridge, self.first = refit, least, ridge, first
        self.past, self.steps = [], 0
        self.seen = [[] for _ in range(most)]
        self.fits = [None] * most

    def length(self, batch, prefilling):
        return self.most

    def survivals(self, request, k, server):
        alive, found = 1.0, []
        row = server.layout.offsets[request.sequence] + request.out
        for d in range(k):
            c = float(self.confidence[row, d])
            if self.fits[d] is not None:
                b, w = self.fits[d]
                c = 1 / (1 + math.exp(-(b + w * math.log(c))))
            alive *= c
            found.append(alive)
        return found

    def choose(self, batch, drafted, server):
        own = [self.survivals(r, k, server) for r, k in zip(batch, drafted, strict=True)]
        flat = sorted((s for each in own for s in each), reverse=True)
        self.past.append((len(batch), flat))
        if len(self.past) <= self.stale:
            return drafted
        n, old = self.past[-1 - self.stale]
        times, now = server.times, len(batch)
        context = sum(r.context for r in batch) / now
        fixed = times.overhead(now) + times.once(now, context)
        for depth in range(max(drafted)):
            alive = [r.context + depth for r, k in zip(batch, drafted, strict=True) if k > depth]
            fixed += times.draft(len(alive), sum(alive) / len(alive))
        rates, expected = [], float(n)
        for b in range(len(old) + 1):
            expected += old[b - 1] if b else 0.0
            rates.append(expected / (fixed + times.verify(n, n + b, context)))
        if self.first:
            b = 0
            while b + 1 < len(rates) and rates[b + 1] >= rates[b]:
                b += 1
            b = int(np.argmax(rates[: b + 1]))
        else:
            b = int(np.argmax(rates))
        ranked = sorted(
            ((-s, d, r) for r, each in enumerate(own) for d, s in enumerate(each)),
            key=lambda item: item,
        )
        taken = [0] * now
        for _, _, r in ranked[:b]:
            taken[r] += 1
        self.rows = [server.layout.offsets[r.sequence] + r.out for r in batch]
        return taken

    def observe(self, batch, drafted, proposed, accepted, ended):
        rows = [self.layout_rows(r) for r in batch]
        for row, k, a, end in zip(rows, proposed, accepted, ended, strict=True):
            for d in range(a if end else min(a + 1, k)):
                self.seen[d].append((math.log(float(self.confidence[row, d])), d < a))
        self.steps += 1
        if self.steps % self.refit == 0:
            for d, seen in enumerate(self.seen):
                if len(seen) >= self.least:
                    self.fits[d] = self.fit(seen[-1024:])

    def layout_rows(self, request):
        return self.offsets[request.sequence] + request.out

    def fit(self, seen):
        x, y = np.array([s for s, _ in seen]), np.array([float(v) for _, v in seen])

        def loss(theta):
            z = theta[0] + theta[1] * x
            return np.sum(np.logaddexp(0, z) - y * z) + self.ridge / 2 * np.sum(theta**2)

        def slope(theta):
            p = 1 / (1 + np.exp(-(theta[0] + theta[1] * x)))
            return np.array([(p - y).sum(), ((p - y) * x).sum()]) + self.ridge * theta

        found = minimize(loss, np.zeros(2), jac=slope, method="BFGS", options={"gtol": 1e-9})
        return tuple(found.x)


class Prophet(Rule):
    def __init__(self, most):
        self.most = most

    def lengths(self, batch, prefilling, server):
        rows = [server.layout.offsets[r.sequence] + r.out for r in batch]
        return [min(int(server.layout.ahead[row]), self.most) for row in rows]
