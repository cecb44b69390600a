"""A cost from an engine's own steps, as it streams them: `traces.schema.LATENCY`.

Three kinds of settings decode the same prompts in turns:

- the target alone: passes over one token;
- lookups of the last token, which draft k tokens without a model: passes over k + 1 tokens; not
  needed where the engine says how long the target's passes of the next setting take;
- the draft model with some lengths: what their steps take beyond the target's pass is a line,
  overhead + drafted * (pass + context * more), fitted by least squares.

So a verification is priced as the engine makes it, with the logits of all its tokens. Whatever the
draft does besides its passes (llama.cpp's reads each verified batch once more) is in the line.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from simkit.costs.passes import TRIM, trimmed_mean
from simkit.engines.base import EngineError
from simkit.engines.run.answers import EngineAnswer
from simkit.engines.run.recorded import RecordedRequest
from traces.schema import LATENCY

FITTED = (2, 4, 7)
"""Lengths of the draft model to which its passes are fitted."""
_CELLS = 3  # of contexts
_FEWEST = 4  # passes of a cell that counts


class TimedSteps(NamedTuple):
    """Steps of one kind, arrays (n,).

    Attributes:
        tokens: of the target's pass, drafted ones and one more.
        context: known tokens before the pass.
        seconds: of the step.
        opening: whether the step is its request's first.
        target_s: seconds of the target's pass; NaN where the engine does not say.
        whole: whether the step drafted as much as its request's longest. A draft that the output's
            end cuts has a pass of a size that the engine has hardly seen, and is slow to begin.
    """

    tokens: np.ndarray
    context: np.ndarray
    seconds: np.ndarray
    opening: np.ndarray
    target_s: np.ndarray
    whole: np.ndarray

    def of(self, which: np.ndarray) -> TimedSteps:
        """Some of the steps, (n,) bool."""
        return TimedSteps(*(column[which] for column in self))


class Asked(NamedTuple):
    """A request and what came back."""

    request: RecordedRequest
    answer: EngineAnswer


def by_processor(answer: EngineAnswer) -> EngineAnswer:
    """The same with CPU seconds: each span is multiplied by the share of the processor it had."""
    share = answer.processor_s / answer.seconds
    steps = [
        step._replace(seconds=step.seconds * share, target_s=step.target_s * share)
        for step in answer.steps
    ]
    spans = {"prefill_s": answer.prefill_s * share, "seconds": answer.processor_s}
    return answer._replace(steps=steps, **spans)


def timed(asked: Sequence[Asked]) -> TimedSteps:
    """All steps of some answers."""
    rows = []
    for request, answer in asked:
        known = len(request.prompt) + 1
        most = max((step.drafted for step in answer.steps), default=0)
        for k, step in enumerate(answer.steps):
            is_whole = step.drafted == most
            found = step.drafted + 1, known - 1, step.seconds, k == 0, step.target_s, is_whole
            rows.append(found)
            known += step.emitted
    tokens, context, seconds, opening, target_s, whole = np.array(rows, float).reshape(-1, 6).T
    sizes = tokens.astype(int), context.astype(int)
    return TimedSteps(*sizes, seconds, opening > 0, target_s, whole > 0)


def samples(
    alone: Sequence[Asked],
    lookups: Sequence[Asked],
    drafted: Sequence[Asked],
    facts: dict[str, str | int],
) -> pa.Table:
    """Timing samples, `traces.schema.LATENCY`.

    Args:
        alone: answers of the target alone.
        lookups: answers where drafts took no model; none where the engine times the target's own
            passes.
        drafted: answers with the draft model.
        facts: the columns that are alike in all samples.

    Raises:
        EngineError: the engine says nothing of its steps' seconds, or there are too few.
    """
    lookups, drafted = _known(lookups), _known(drafted)
    single, drafting = timed(alone), timed(drafted)
    several = timed(lookups) if lookups else drafting._replace(seconds=drafting.target_s)
    several = several.of(several.whole)
    if not len(single.seconds) or any(np.isnan(one.seconds).any() for one in (single, several)):
        raise EngineError("the engine does not report how long its steps take, so there is no cost")
    cells = _cells([single, several.of(several.tokens > 1)])
    rows = [("target", *cell) for cell in cells]
    rows += [("target", *prefill) for prefill in _prefills(alone)]
    rows += _draft(drafting, cells, drafted)
    names = ("component", "tokens_in", "context_len", "seconds")
    named = [dict(zip(names, row, strict=True)) | facts | {"repeat": 0} for row in rows]
    return pa.Table.from_pylist(named, schema=LATENCY)


def _known(asked: Sequence[Asked]) -> list[Asked]:
    """Those of whose steps the drafted tokens are known, if that is most of them.

    Raises:
        EngineError: it is not.
    """
    known = [one for one in asked if all(step.drafted >= 0 for step in one.answer.steps)]
    if 2 * len(known) < len(asked):
        raise EngineError(
            "the engine does not report how many tokens each step drafted, so there is no cost;"
            " --calibration 0 compares counts alone"
        )
    return known


def _cells(kinds: Sequence[TimedSteps]) -> list[tuple[int, int, float]]:
    """Tokens, context and seconds of passes alike, at the same few contexts for all."""
    tokens, context, seconds = (
        np.concatenate([steps[k][~steps.opening] for steps in kinds]) for k in range(3)
    )
    edges = np.quantile(context, np.linspace(0, 1, _CELLS + 1)[1:-1]) if len(context) else []
    cell = np.searchsorted(np.unique(edges), context, side="right")
    at = {c: round(float(context[cell == c].mean())) for c in np.unique(cell)}
    found = []
    for n in np.unique(tokens):
        for c, place in at.items():
            mine = (tokens == n) & (cell == c)
            if mine.sum() >= _FEWEST:
                found.append((int(n), place, trimmed_mean(seconds[mine])))
    return found


def _prefills(alone: Sequence[Asked]) -> list[tuple[int, int, float]]:
    """Seconds of the prompts' passes, by their lengths."""
    found: dict[int, list[float]] = {}
    for request, answer in alone:
        found.setdefault(len(request.prompt), []).append(answer.prefill_s)
    return [(n, 0, trimmed_mean(np.array(seconds))) for n, seconds in sorted(found.items())]


def _draft(
    steps: TimedSteps, cells: list[tuple[int, int, float]], asked: Sequence[Asked]
) -> list[tuple[str, int, int, float]]:
    """Draft passes, the overhead of a step, and the draft's reading of prompts."""
    verify = _interpolated(cells)
    later = (steps.tokens > 1) & ~steps.opening & steps.whole
    if not later.any():
        raise EngineError("no step drafted anything, so there is no cost")
    n = steps.tokens - 1
    rest_s = steps.seconds - verify(steps.tokens, steps.context)
    overhead_s, pass_s, more_s = _line(n[later], steps.context[later], rest_s[later])
    contexts = np.unique(np.quantile(steps.context[later], (0.0, 0.5, 1.0)).astype(int))
    found = [("draft", 1, int(c), max(pass_s + more_s * c, 1e-9)) for c in contexts]
    found.append(("overhead", 0, 0, max(overhead_s, 1e-9)))
    first = np.flatnonzero(steps.opening)
    lengths: dict[int, list[float]] = {}
    for k, one in zip(first, (one for one in asked if one.answer.steps), strict=True):
        paid_s = overhead_s + n[k] * (pass_s + more_s * steps.context[k])
        lengths.setdefault(len(one.request.prompt), []).append(rest_s[k] - paid_s)
    found += [
        ("draft", n_prompt, 0, max(float(np.mean(values)), 1e-9))
        for n_prompt, values in sorted(lengths.items())
    ]
    return found


def _line(n: np.ndarray, context: np.ndarray, seconds: np.ndarray) -> tuple[float, float, float]:
    """Overhead, seconds of a pass, and more of it a token of context; outliers are cut once."""
    from scipy.optimize import nnls

    form = np.column_stack([np.ones(len(n)), n, n * context / 1e3]).astype(float)
    kept = np.ones(len(n), bool)
    for _ in range(2):
        given = nnls(form[kept], seconds[kept])[0]
        error = np.abs(form @ given - seconds)
        kept = error <= np.quantile(error, 1 - 2 * TRIM)
    return float(given[0]), float(given[1]), float(given[2]) / 1e3


def _interpolated(
    cells: list[tuple[int, int, float]],
) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    """The target's seconds at tokens and context, as a measured cost that may dip has them."""
    from simkit.costs.grid import Grid

    rows = np.array(cells, float).T
    return Grid.fit(np.vstack([rows, np.zeros(rows.shape[1])]), dips=True)
