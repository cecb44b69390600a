"""Marginal acceptance rates, and what is lost where an engine draws each step from them alone.

With `rejection_sample_method: "synthetic"` vLLM accepts the first j tokens of a draft with
probability `rates[j - 1]`, in each step anew, whatever the request. The mean of a + 1 over steps is
then the trace's. What is not is how requests differ, since easy and hard texts are mixed: here both
are run on the trace's own output lengths.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from simkit.policies import Fixed, Setting
from simkit.simulator import FirstToken
from simkit.simulator.arguments import AnyCost, setting
from simkit.simulator.run import run
from simkit.simulator.step_costs import PARTS
from simkit.steps.steps import Steps, sequential
from traces.trace import Trace

_DIGITS = 6  # of a rate
_ENDS = (0.025, 0.975)


class DrawnOutcome(NamedTuple):
    """One number of a run, in truth and with drawn outcomes.

    Attributes:
        name: with its unit.
        true: on the trace.
        mean: over draws.
        low: of 95% of the draws.
        high: see `low`.
    """

    name: str
    true: float
    mean: float
    low: float
    high: float


def rates_of(trace: Trace, length: int, first_token: FirstToken) -> tuple[float, ...]:
    """P(a >= j), j = 1, …, length, over the steps of a fixed length; none above the one before."""
    steps = fixed_steps(trace, length, first_token)
    counts = np.bincount(steps.accepted, minlength=length + 1)
    marginal = np.cumsum(counts[::-1])[::-1][1:] / max(1, len(steps))
    return tuple(np.round(marginal, _DIGITS).tolist())


def fixed_steps(trace: Trace, length: int, first_token: FirstToken) -> Steps:
    """The steps of a fixed length on a trace."""
    where = setting(trace, None, first_token)
    return run(Fixed(length), where.layout, None, where.first).steps()[0]


def errors(
    trace: Trace,
    rates: tuple[float, ...],
    cost: AnyCost | None,
    first_token: FirstToken,
    draws: int = 200,
    seed: int = 0,
) -> list[DrawnOutcome]:
    """What a run with drawn outcomes shows, against the trace's own.

    Args:
        trace: whose output lengths, prompts and budget are taken.
        rates: of `rates_of`.
        cost: as in `simkit.replay`; without times there are no measures of them.
        first_token: as there.
        draws: of all outcomes.
        seed: of the draws.
    """
    where = setting(trace, cost, first_token)
    policy = Fixed(len(rates))
    layout, charge, first = where
    found = run(policy, layout, charge, first)
    emitted = layout.n_output - first + 1
    some = emitted > 0
    per_step = emitted[some] / found.counts["steps"][some]
    seconds = found.total_s if found.seconds else None
    baseline = found.seconds["baseline_s"].sum() if found.seconds else 0.0
    total = emitted.sum() / found.counts["steps"].sum()
    true = dict(_measures(total, per_step, seconds, baseline))
    drawn: dict[str, list[float]] = {name: [] for name in true}
    rng = np.random.default_rng(seed)
    for _ in range(draws):
        steps = _steps(rng, np.array(rates), where)
        times = None
        if charge:
            parts = charge.of_steps(policy, steps)
            each = np.sum([parts[part] for part in PARTS], axis=0)
            times = np.bincount(steps.sequence, each, len(emitted))
        mean = emitted.sum() / len(steps)
        each_mean = emitted[some] / steps.counts[some]
        for name, value in _measures(mean, each_mean, times, baseline):
            drawn[name].append(value)
    return [
        DrawnOutcome(
            name, value, float(np.mean(drawn[name])), *np.quantile(drawn[name], _ENDS).tolist()
        )
        for name, value in true.items()
    ]


def _measures(
    total: float, per_step: np.ndarray, seconds: np.ndarray | None, baseline_s: float
) -> Iterator[tuple[str, float]]:
    # Below a replay's tokens_per_step, a + 1, where an output's end cuts its last step.
    yield "emitted tokens a step, all steps", float(total)
    yield "emitted tokens a step, standard deviation over requests", float(per_step.std())
    yield "emitted tokens a step, tenth of the requests below", float(np.quantile(per_step, 0.1))
    if seconds is not None:
        yield "speedup", float(baseline_s / seconds.sum())
        yield "seconds of a request, median", float(np.median(seconds))
        yield "seconds of a request, 90th percentile", float(np.quantile(seconds, 0.9))
        yield "seconds of the slowest request", float(seconds.max())


def _steps(rng: np.random.Generator, rates: np.ndarray, where: Setting) -> Steps:
    """Steps with drawn outcomes, over the trace's outputs and within its budget."""
    layout, _, first = where
    accepted, offsets = _drawn(rng, rates, layout.n_output - first + 1)
    room = layout.trace.max_new_tokens - first + 1 - _before(accepted, offsets)
    drafted = np.minimum(len(rates), room - 1)
    counts = np.stack([drafted, drafted, accepted, drafted]).astype(np.int32)
    return sequential(offsets, counts, layout, first)


def _drawn(
    rng: np.random.Generator, rates: np.ndarray, emitted: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Accepted tokens of each step, and where sequences begin in them, (S + 1,).

    Each sequence takes steps until its output is out; the last one is cut where that ends.
    """
    owner = np.repeat(np.arange(len(emitted)), emitted)  # no sequence takes more steps than tokens
    accepted = (rng.random(len(owner))[:, None] < rates).sum(1)
    begins = np.cumsum(emitted) - emitted
    run_on = np.cumsum(accepted + 1) - (accepted + 1)
    before = run_on - np.append(run_on, 0)[begins][owner] if len(owner) else run_on
    left = emitted[owner] - before
    kept = left > 0
    accepted = np.minimum(accepted, left - 1)[kept]
    offsets = np.concatenate([[0], np.cumsum(np.bincount(owner[kept], minlength=len(emitted)))])
    return accepted, offsets


def _before(accepted: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Tokens that each sequence has emitted before each step."""
    run_on = np.cumsum(accepted + 1) - (accepted + 1)
    return run_on - np.repeat(np.append(run_on, 0)[offsets[:-1]], np.diff(offsets))
