"""A controller on a trace under a cost: all that its runs share."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from simkit.drafters.layout import Layout
from simkit.errors import PolicyError, ServingError
from simkit.policies import Policy, Setting
from simkit.policies.base import chain_of
from simkit.serving.controllers.base import ByLength, ByRule, Controller, Slots, View
from simkit.serving.engine import UNBOUNDED, Engine
from simkit.serving.loads import Load
from simkit.serving.prices import Prices, Pricing, prices_of
from simkit.serving.state import STEP_S, Rules, ServedOutcomes, outcomes
from simkit.simulator.binding import fitted
from simkit.steps.family import family_of
from simkit.steps.steps import Steps
from simkit.steps.work import Work


def _planned(params: Any, state: Any, view: View, prices: Prices, drafted: np.ndarray) -> None:
    drafted[:] = 0


@dataclass(frozen=True)
class Planned(ByLength):
    """Steps that do not hang on the batch, so that they are known beforehand.

    Attributes:
        max_draft: see `Controller`.
    """

    max_draft: int

    name = "planned"
    slots = Slots(_planned)


@dataclass(frozen=True, eq=False)
class ControllerPlan:
    """See the module.

    Attributes:
        controller: as it was given.
        bound: what runs: a controller by length, a plain one, or one that asks a rule.
        rules: of admission.
        prices: of iterations.
        outcomes: of drafts.
        layout: of the trace.
        load: of requests.
    """

    controller: Controller
    bound: Controller
    rules: Rules
    prices: Prices
    outcomes: ServedOutcomes
    layout: Layout
    load: Load


def plan(
    controller: Controller,
    setting: Setting,
    engine: Engine,
    load: Load,
    rates: np.ndarray | None = None,
) -> ControllerPlan:
    """Lay out all that runs of a controller share.

    Args:
        controller: as it was given.
        setting: trace, cost and first token.
        engine: that serves.
        load: see `simkit.serving.loads`.
        rates: see `ServedOutcomes`.

    Raises:
        UserError: the controller does not fit the trace or the cost; there are no times; a batch
            is beyond those that were timed; or the caches are too small for a sequence.
    """
    layout, charge = setting.layout, setting.charge
    if charge is None:
        raise ServingError("there are no times: give a cost (--cost list shows all)")
    _check(controller, engine, load, rates)
    max_batch = min(engine.max_batch, load.concurrency or engine.max_batch)
    known = _known(controller, setting, max_batch)
    most = max(deepest := _deepest(known, layout), 1)
    pricing = Pricing(max_batch, most, engine, known.extra, known.call_s)
    prices = prices_of(charge.times.of_batch(1), layout, pricing)
    bound = known.bound.bind(prices) if isinstance(known.bound, ByLength) else known.bound
    rules = _rules(engine, load, bound, max_batch, deepest)
    _check_room(layout, rules)
    return ControllerPlan(
        controller=controller,
        bound=bound,
        rules=rules,
        prices=prices,
        outcomes=outcomes(
            layout,
            first=setting.first,
            max_draft=most,
            column=known.column,
            steps=known.steps,
            step_s=known.step_s,
            rates=rates,
            widths=known.widths,
        ),
        layout=layout,
        load=load,
    )


def _check(controller: Controller, engine: Engine, load: Load, rates: np.ndarray | None) -> None:
    reads = isinstance(controller, ByRule) or controller.needs_future
    if rates is not None and (reads or getattr(controller, "column", "")):
        raise ServingError(
            f"{controller} reads the drafts, which random outcomes (rates) do not have"
        )
    if load.copies > engine.max_batch:
        raise ServingError(f"{load.copies} copies do not fit in a batch of {engine.max_batch}")


class _Decided(NamedTuple):
    """What decides, and what is known of its decisions beforehand.

    Attributes:
        bound: see `ControllerPlan`, before it knows prices.
        column: that it reads as confidence; "" for none.
        steps: see `outcomes`.
        step_s: see `ServedOutcomes`.
        call_s: seconds of a decision.
        extra: see `Prices`.
        widths: see `ServedOutcomes`.
    """

    bound: Controller
    column: str = ""
    steps: tuple[Steps, np.ndarray] | None = None
    step_s: np.ndarray | None = None
    call_s: float = 0.0
    extra: bool = False
    widths: np.ndarray | None = None


def _known(controller: Controller, setting: Setting, max_batch: int) -> _Decided:
    """See `_Decided`; the steps of a rule that asks each request for itself are planned."""
    column = _column(setting.layout, getattr(controller, "column", ""))
    if not isinstance(controller, ByRule):
        return _Decided(controller, column)
    policy = fitted(controller.policy, setting)
    if controller.together != "each":
        _check_batched(controller, policy)
        assert setting.charge is not None
        bound = replace(controller, policy=policy)  # type: ignore[type-var]
        return _Decided(bound, call_s=setting.charge.call_s(policy))
    steps, work, step_s, call_s = _steps(policy, setting, max_batch)
    widths = None
    widest = int(steps.proposed.max(initial=0))
    if work.widths is None:
        widest = max(widest, int(steps.asked.max(initial=0)))
    else:
        begun = work.asked[:, None] > 0
        widths = np.hstack([begun[:, : int(begun.any())], work.widths]).astype(np.int32)
    return _Decided(
        bound=Planned(widest),
        column=column,
        steps=(steps, work.decisions),
        step_s=step_s,
        call_s=call_s,
        extra=bool(np.any(work.again)),
        widths=widths,
    )


def _deepest(known: _Decided, layout: Layout) -> int:
    """K, as far as outputs and drafts of the trace go."""
    deepest = known.bound.max_draft
    if known.widths is None:
        deepest = min(deepest, layout.trace.max_new_tokens - 1)
    if layout.deepest and not isinstance(known.bound, Planned):
        deepest = min(deepest, layout.deepest)
    return deepest


def _rules(engine: Engine, load: Load, bound: Controller, max_batch: int, deepest: int) -> Rules:
    return Rules(
        max_batch=max_batch,
        kv_tokens=engine.kv_tokens or UNBOUNDED,
        chunk=engine.prefill_tokens or UNBOUNDED,
        concurrency=load.concurrency,
        copies=load.copies > 1,
        max_draft=deepest,
        speculative=getattr(bound, "speculative", True),
        clip=not isinstance(bound, ByRule),
        future=bound.needs_future,
    )


def _steps(
    policy: Policy, setting: Setting, max_batch: int
) -> tuple[Steps, Work, np.ndarray | None, float]:
    """Steps of a policy, their work, their seconds if given, those of a decision."""
    charge, family = setting.charge, family_of(policy)
    assert charge is not None
    steps = family.walk(policy, setting.layout, setting.first)
    work = family.work(policy, steps, setting.layout)
    if not work.beside:
        return steps, work, None, charge.call_s(policy)
    if max_batch > 1:
        raise PolicyError(
            f"{policy} drafts while the target runs: it is simulated with one request in a"
            f" batch only, not with {max_batch} (--max-batch)"
        )
    parts = charge.of_work(policy, steps, work)
    rest_s = sum(v for k, v in parts.items() if k.endswith("_s") and k not in _APART)
    step_s = np.stack(STEP_S._replace(draft=rest_s, verify=parts["verify_s"]))
    return steps, work, step_s, 0.0


_APART = ("prefill_s", "verify_s", "baseline_s")


def _column(layout: Layout, name: str) -> str:
    """The column of a confidence; what a greedy draft drew is its likeliest token."""
    table = "lattice" if layout.by_start else "positions"
    trace = layout.trace
    if name == "draft_top1_prob" and trace.sampler.greedy and not trace.has(table, name):
        return "draft_prob_raw"
    return name


def _check_batched(controller: ByRule, policy: Policy) -> None:
    chain_of(policy, f"{controller} takes policies of chains only")
    if policy.needs_future:
        raise PolicyError(
            f"{controller}: {policy} needs the future, so it cannot decide for a whole batch"
        )
    if policy.extra_passes:
        raise PolicyError(
            f"{controller}: {policy} needs extra passes after verification, which batches lack"
        )


def _check_room(layout: Layout, rules: Rules) -> None:
    """Refuse caches in which a sequence does not fit even alone."""
    needs = layout.n_prompt + layout.n_output + rules.max_draft + 1
    longest = int(np.argmax(needs))
    if needs[longest] > rules.kv_tokens:
        number = layout.trace.sequences["sequence"][longest].as_py()
        raise ServingError(
            f"kv_tokens {rules.kv_tokens} is too small: sequence {number} alone needs"
            f" {needs[longest]} (prompt {layout.n_prompt[longest]}, output"
            f" {layout.n_output[longest]}, a draft and a token)"
        )
