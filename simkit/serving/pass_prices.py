"""Seconds of an iteration's parts, compiled: what `simkit.serving.prices` has tables of."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from traces.kernels import compiled_part

if TYPE_CHECKING:
    from simkit.serving.prices import PassTable, Prices


@compiled_part
def table_s(table: PassTable, n: float, tokens: float, context: float) -> float:
    """A pass over n requests with so many tokens each, behind so many others, on average."""
    sizes, cells = table.sizes, table.seconds
    row = 0
    while row + 2 < len(sizes) and sizes[row + 1] <= n:
        row += 1
    at = context / table.stride
    c = min(int(at), cells.shape[2] - 2)
    t = min(int(tokens) - 1, max(cells.shape[1] - 2, 0))
    low = _cell_s(cells, row, t, tokens - 1 - t, c, at - c)
    if len(sizes) == 1 or n == sizes[row]:
        return low
    high = _cell_s(cells, row + 1, t, tokens - 1 - t, c, at - c)
    share = (n - sizes[row]) / (sizes[row + 1] - sizes[row])
    return low * (1 - share) + high * share


@compiled_part
def _cell_s(cells: np.ndarray, row: int, t: int, along: float, c: int, across: float) -> float:
    """Between the cells of one size: tokens and contexts go on in a line beyond the last ones."""
    near, far = cells[row, t, c], cells[row, t, c + 1]
    if along > 0 and cells.shape[1] > 1:
        near = near * (1 - along) + cells[row, t + 1, c] * along
        far = far * (1 - along) + cells[row, t + 1, c + 1] * along
    return near if across == 0 else near * (1 - across) + far * across


@compiled_part
def padded_to(prices: Prices, n: int, tokens: int) -> tuple[float, float]:
    """Requests and tokens of a pass, padded up to the next captured size if there is one."""
    if len(prices.captured) == 0:
        return float(n), float(tokens)
    wanted = tokens if prices.by_tokens else n
    for size in prices.captured:
        if size >= wanted:
            if prices.by_tokens:
                return float(n), float(size)
            return float(size), tokens * size / n
    return float(n), float(tokens)


@compiled_part
def overhead_s(prices: Prices, speculative: bool, n: int) -> float:
    """What an iteration of n requests takes outside its passes, linear between sizes of batches."""
    sizes = prices.verify.sizes
    values = prices.overhead_s if speculative else prices.baseline_overhead_s
    row = 0
    while row + 2 < len(sizes) and sizes[row + 1] <= n:
        row += 1
    if len(sizes) == 1 or values[row] == values[row + 1]:
        return values[row]
    share = (n - sizes[row]) / (sizes[row + 1] - sizes[row])
    return max(values[row] * (1 - share) + values[row + 1] * share, 0.0)


@compiled_part
def verify_s(prices: Prices, n: int, tokens: int, context: float) -> float:
    """The target's pass over so many tokens of n requests, behind so many each on average."""
    requests, rows = padded_to(prices, n, tokens)
    return table_s(prices.verify, requests, rows / requests, context)


@compiled_part
def single_s(prices: Prices, table: PassTable, n: int, context: float) -> float:
    """A pass over one token of each of n requests, by its own table."""
    requests, rows = padded_to(prices, n, n)
    return table_s(table, rows if prices.by_tokens else requests, 1.0, context)


@compiled_part
def draft_s(
    prices: Prices,
    drafted: np.ndarray,
    asked: np.ndarray,
    context: np.ndarray,
    unread: float,
    missed: int,
) -> float:
    """All drafting of an iteration.

    Args:
        prices: see `simkit.serving.prices.Prices`.
        drafted: (n,) tokens of each request.
        asked: (n,) tokens that its draft was asked for.
        context: (n,) known tokens.
        unread: of those, the ones that its draft model has not read, the mean over the requests
            that draft.
        missed: tokens of requests that draft, from steps in which they did not: a model that drafts
            token by token reads them in its first pass.
    """
    n = len(drafted)
    if not prices.from_model:
        return n * prices.proposal_s
    deepest, making, wanted, known = 0, 0, 0, 0
    for r in range(n):
        deepest = max(deepest, drafted[r])
        if drafted[r] > 0:
            making += 1
            wanted += asked[r]
            known += context[r]
    seconds = table_s(prices.once, float(n), 1.0, context.sum() / n)
    if making == 0:
        return seconds
    first = 1
    if prices.has_opening:
        seconds += _opening_s(prices, making, wanted / making, known / making, unread)
    elif missed > 0 and prices.catch_up:
        held = context.sum() if prices.padded else known
        seconds += _late_s(prices, n if prices.padded else making, missed, held)
    else:
        first = 0
    if prices.each:
        for depth in range(first, deepest):
            alive, behind = 0, 0
            for r in range(n):
                if prices.padded or drafted[r] > depth:
                    alive += 1
                    behind += context[r] + min(depth, drafted[r])
            seconds += single_s(prices, prices.token, alive, behind / alive)
    return seconds


@compiled_part
def _opening_s(prices: Prices, n: int, asked: float, context: float, unread: float) -> float:
    """The first pass of drafts that begin with what was kept; means over n requests."""
    form = prices.opening
    tokens = form.draft * asked + form.unread * unread + form.more
    requests, _ = padded_to(prices, n, n)
    behind = max(context - form.back * (unread - 1), 0.0)
    return table_s(prices.block, requests, max(tokens, 1.0), behind)


@compiled_part
def _late_s(prices: Prices, n: int, missed: int, known: int) -> float:
    """The first pass of a model that drafts token by token, over a token each and those missed.

    Args:
        prices: see `draft_s`.
        n: requests.
        missed: tokens of all.
        known: tokens of all before the last one, those that were missed among them.
    """
    requests, rows = padded_to(prices, n, n + missed)
    return table_s(prices.block, requests, rows / requests, max(known - missed, 0) / n)


@compiled_part
def tree_s(
    prices: Prices,
    widths: np.ndarray,
    steps: np.ndarray,
    asked: np.ndarray,
    context: np.ndarray,
    unread: float,
    missed: int,
) -> float:
    """All drafting of an iteration in which trees are drafted, a pass a level.

    Args:
        prices: see `draft_s`.
        widths: (N, P) nodes in each pass of all steps.
        steps: (n,) of each request.
        asked: (n,) levels that its draft was asked for.
        context: (n,) known tokens.
        unread: see `draft_s`.
        missed: see `draft_s`.
    """
    n = len(steps)
    begun = np.zeros(n, np.int64)
    for r in range(n):
        begun[r] = widths[steps[r], 0] > 0
    seconds = draft_s(prices, begun, asked, context, unread, missed)
    if not prices.each:
        return seconds
    for level in range(1, widths.shape[1]):
        alive, nodes, behind = 0, 0, 0
        for r in range(n):
            width = widths[steps[r], level]
            if width > 0:
                alive += 1
                nodes += width
                behind += context[r] + level
        if alive == 0:
            break
        requests, rows = padded_to(prices, alive, nodes)
        seconds += table_s(prices.block, requests, rows / requests, behind / alive)
    return seconds


@compiled_part
def prefill_s(table: np.ndarray, before: np.ndarray, after: np.ndarray, joins: bool) -> float:
    """Prompts that are read further, each from `before` to `after` tokens, in one pass.

    Args:
        table: (P,) seconds of whole prompts, see `Prices.prefill`.
        before: (m,) tokens of each that were read.
        after: (m,) tokens of each that are.
        joins: whether the pass is made anyway, so that only the tokens add to it.
    """
    seconds = 0.0
    for k in range(len(after)):
        seconds += float(table[after[k]] - max(table[before[k]], table[0]))
    return seconds if joins or len(after) == 0 else seconds + float(table[0])
