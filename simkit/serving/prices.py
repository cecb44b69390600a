"""What an iteration takes: a cost's times, in tables for the loop.

T(requests, tokens, known tokens) is read off at so many requests with the mean tokens and the mean
context of them, linear between whole numbers and between sizes of batches. That is exact for costs
that are linear in each, and for batches whose requests are alike.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from simkit.costs.base import Times
from simkit.costs.drafting import Drafting, checked
from simkit.drafters.layout import Layout
from simkit.errors import ServingError
from simkit.serving.engine import Engine
from traces.drafters.passes import Opening
from traces.messages import how_many

_CELLS = 2**24  # of a table
_UNREAD = 256  # tokens; beyond, seconds go on in a line


class PassTable(NamedTuple):
    """Seconds of passes over a batch whose requests have so many tokens and so much context.

    Attributes:
        sizes: (B,) int64, of batches, ascending.
        stride: of the contexts.
        seconds: (B, N, C): n requests with 1, 2, … tokens each, behind 0, stride, … others.
    """

    sizes: np.ndarray
    stride: int
    seconds: np.ndarray


class Prices(NamedTuple):
    """What an iteration's parts take.

    Attributes:
        verify: the target's pass over drafts.
        decode: its pass over one token, where nothing is speculative; N is 1.
        prefill: (P,) the target's pass over a prompt of 0, 1, … tokens; of 0 what any pass takes.
        draft_prefill: (P,) likewise of the draft model.
        token: the draft's pass over one token; N is 1.
        once: what each step pays the draft once; N is 1.
        block: the draft's pass over several tokens.
        each: whether each drafted token has a pass of its own.
        opening: what a draft's first pass holds; `has_opening` if there is one.
        has_opening: see there.
        from_model: whether a model drafts at all.
        proposal_s: of one request's proposal, where none does.
        extra: whether the draft reads each verified batch anew.
        call_s: a decision of a rule over the batch.
        overhead_s: (B,) of an iteration, outside its passes, at each of the sizes of `verify`.
        baseline_overhead_s: (B,) of one in which nothing is speculative.
        captured: (G,) int64, sizes to which a pass is padded up; none if empty.
        by_tokens: whether those are sizes in tokens; else in requests.
        padded: whether a draft round holds all requests until the last has stopped.
        ragged: whether a verification holds of each request the tokens that it drafted; else of all
            as many as the longest draft has.
        mixed: whether prompts are read in the pass of a verification; else in one of their own.
        catch_up: whether a draft's first pass reads what came out in steps that drafted nothing;
            else, as where no longer passes were timed, it is over one token.
    """

    verify: PassTable
    decode: PassTable
    prefill: np.ndarray
    draft_prefill: np.ndarray
    token: PassTable
    once: PassTable
    block: PassTable
    each: bool
    opening: Opening
    has_opening: bool
    from_model: bool
    proposal_s: float
    extra: bool
    call_s: float
    overhead_s: np.ndarray
    baseline_overhead_s: np.ndarray
    captured: np.ndarray
    by_tokens: bool
    padded: bool
    ragged: bool
    mixed: bool
    catch_up: bool


@dataclass(frozen=True)
class Pricing:
    """How batches are priced.

    Attributes:
        max_batch: the largest.
        max_draft: the longest draft.
        engine: how it fills passes; its own largest batch does not count here.
        extra: see `Prices`.
        call_s: see `Prices`.
    """

    max_batch: int
    max_draft: int
    engine: Engine = Engine()
    extra: bool = False
    call_s: float = 0.0


def prices_of(times: Times, layout: Layout, how: Pricing) -> Prices:
    """The tables of a cost for one trace.

    Raises:
        CostError: a time is negative or not finite.
        ServingError: a batch is beyond what was timed; or the drafter's passes are its own.
    """
    if callable(layout.paid) and not isinstance(layout.paid, Opening):
        raise ServingError(
            "the drafter counts passes by a function of its own, without prices in batches"
        )
    longest = int(layout.n_prompt.max(initial=0)) + layout.trace.max_new_tokens
    sizes = _sizes(times, how)
    alike = [times.of_batch(int(size)) for size in sizes]
    maker = _Tables(sizes, alike, longest)
    draftings = [
        Drafting(each, layout.paid, np.arange(longest + 1), layout.trace.max_draft)
        for each in alike
    ]
    opening = draftings[0].opening
    catches_up = how.engine.catch_up and layout.paid == "token" and times.knows_blocks
    widest = _widest(layout, how.max_draft, opening, catches_up)
    prompts = np.arange(longest + 1)
    from_model = layout.paid != "none"
    none = maker.flat(lambda one, c: np.zeros(np.shape(c)))
    return Prices(
        verify=maker.table(lambda one, n, c: one.verify(n, c), how.max_draft + 1, "verification"),
        decode=maker.flat(lambda one, c: one.decode(c)),
        prefill=_prefill(times, "target", prompts),
        draft_prefill=_prefill(times, "draft", prompts) if from_model else np.zeros(len(prompts)),
        token=maker.flat(lambda one, c: one.draft(c)) if from_model else none,
        once=maker.flat(lambda one, c: one.draft_step(c)) if from_model else none,
        block=maker.blocks(widest) if from_model else none,
        each=from_model and (layout.paid == "token" or bool(opening and opening.each)),
        opening=opening or Opening(0, 0, 0),
        has_opening=opening is not None,
        from_model=from_model,
        proposal_s=0.0 if from_model else float(times.proposal()),
        extra=how.extra,
        call_s=how.call_s,
        overhead_s=np.array([float(one.overhead()) for one in alike]),
        baseline_overhead_s=np.array([float(one.baseline_overhead()) for one in alike]),
        captured=np.array(how.engine.captured, np.int64),
        by_tokens=how.engine.captured_in == "tokens",
        padded=how.engine.padded,
        ragged=how.engine.ragged,
        mixed=how.engine.mixed,
        catch_up=catches_up,
    )


def fitted(prices: Prices) -> tuple[float, ...]:
    """The linear times nearest to the tables, see `controllers.goodput.LinearTimes`.

    Least squares over all sizes of batches, lengths and contexts of the tables, of relative errors;
    no term is below 0. An iteration's overhead, the mean over sizes, goes with its verification.
    """
    from scipy.optimize import nnls

    def cells(table: PassTable) -> tuple[np.ndarray, ...]:
        context = np.unique(np.linspace(0, table.seconds.shape[2] - 1, 9).astype(int))
        n, k, c = np.meshgrid(
            np.arange(len(table.sizes)), np.arange(table.seconds.shape[1]), context, indexing="ij"
        )
        seconds = table.seconds[n, k, c].ravel()
        return table.sizes[n].ravel(), k.ravel() + 1, c.ravel() * table.stride, seconds

    def solve(columns: list[np.ndarray], seconds: np.ndarray) -> np.ndarray:
        if not seconds.any():
            return np.zeros(len(columns))
        weight = 1 / np.maximum(seconds, seconds[seconds > 0].min())
        return nnls(np.stack(columns, 1) * weight[:, None], seconds * weight)[0]

    n, k, c, seconds = cells(prices.verify)
    verify = solve([np.ones(len(n)), n * k, n * c], seconds)
    n, _, _, seconds = cells(prices.token)
    if prices.each:
        draft = [0.0, 0.0, *solve([np.ones(len(n)), n.astype(float)], seconds)]
    elif prices.from_model:  # one pass yields a whole draft
        n, k, _, seconds = cells(prices.block)
        once_s, request_s, token_s = solve([np.ones(len(n)), n.astype(float), n * k], seconds)
        draft = [once_s, request_s, 0.0, token_s]
    else:
        draft = [0.0, 0.0, 0.0, 0.0]  # a proposal is made whatever the length
    verify[0] += prices.overhead_s.mean()
    return (*map(float, draft), *map(float, verify))


def _widest(layout: Layout, max_draft: int, opening: Opening | None, catches_up: bool) -> int:
    """The most tokens of a request in a pass of the draft; more go on in a line."""
    unread = min(_UNREAD, layout.trace.max_new_tokens)
    if opening:
        asked = max(max_draft, layout.deepest or 0)
        return max(max_draft + 1, int(opening.tokens(asked, unread)))
    return max(max_draft + 1, unread) if catches_up else max_draft + 1


def _prefill(times: Times, model: str, tokens: np.ndarray) -> np.ndarray:
    """A model's pass over prompts; of no tokens what is left of it, from the first two."""
    asked = np.maximum(tokens, 1)
    seconds = checked(f"{model} prefill", times.prefill(model, asked), asked).copy()  # type: ignore[arg-type]
    if len(seconds) > 2:
        seconds[0] = min(max(2 * seconds[1] - seconds[2], 0.0), seconds[1])
    return seconds


def _sizes(times: Times, how: Pricing) -> np.ndarray:
    """Sizes of batches at which times are asked for: those that were timed, or powers of two."""
    padded = [size for size in how.engine.captured if size >= how.max_batch]
    most, known = min(padded, default=how.max_batch), times.batches
    if known is None:
        powers = 2 ** np.arange(int(np.ceil(np.log2(most))) + 1)
        return np.unique(np.append(powers[powers < most], most)).astype(np.int64)
    known = np.array(sorted(known), np.int64)
    if known[0] > 1:
        raise ServingError(f"the cost has only times of passes over {known[0]} or more sequences")
    if len(known) == 1 and most > 1:
        raise ServingError(
            f"a batch may hold {how_many(most, 'request')}, but passes over one sequence alone were"
            " timed: give a cost with times of batches (--cost"
            " 'atlas(target=qwen3-8b, draft=qwen3-0.6b)'), or time them (simkit latency --grid)"
        )
    if known[-1] < most and not how.engine.extrapolate:
        sizes = ", ".join(map(str, known))
        raise ServingError(
            f"a batch may hold {how_many(most, 'request')}, but passes over"
            f" {how_many(known[-1], 'sequence')} at most were"
            f" timed ({sizes}): lower the largest batch, time larger ones (simkit latency --grid),"
            " or extrapolate linearly (--extrapolate)"
        )
    return known[: np.searchsorted(known, most) + 1]


class _Tables:
    """Makes tables of passes at some sizes of batches and all contexts."""

    def __init__(self, sizes: np.ndarray, alike: list[Times], longest: int) -> None:
        self.sizes, self.alike, self.longest = sizes, alike, longest

    def table(
        self, seconds: Callable[[Times, np.ndarray, np.ndarray], np.ndarray], widest: int, what: str
    ) -> PassTable:
        """Of passes over 1 to `widest` tokens a request, two at least."""
        tokens = np.arange(max(widest, 2)) + 1
        stride = max(1, -(-len(self.sizes) * len(tokens) * (self.longest + 1) // _CELLS))
        context = np.arange(0, self.longest + stride + 1, stride)
        n = tokens[:, None]
        rows = [checked(what, seconds(one, n, context), n, context) for one in self.alike]
        return PassTable(self.sizes, stride, np.ascontiguousarray(np.stack(rows)))

    def blocks(self, widest: int) -> PassTable:
        """Of the draft's passes over several tokens."""
        return self.table(lambda one, n, c: one.draft_block(n, c), widest, "draft")

    def flat(self, seconds: Callable[[Times, np.ndarray], np.ndarray]) -> PassTable:
        """Of passes over one token a request."""
        context = np.arange(self.longest + 2)
        rows = [checked("draft", seconds(one, context), context) for one in self.alike]
        return PassTable(self.sizes, 1, np.ascontiguousarray(np.stack(rows)[:, None, :]))
