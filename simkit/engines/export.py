"""A setting that was found on a trace, as an engine's own configuration."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from simkit.engines.approximate import (
    Basis,
    Replacement,
    fastest,
    instead_of,
    served_instead,
    tuned,
)
from simkit.engines.base import (
    ENGINES,
    LOOKUPS,
    OFTEN_SHORTER,
    EngineDrafter,
    EngineError,
    EngineSetting,
    EngineWriter,
)
from simkit.engines.synthetic import DrawnOutcome, errors, rates_of
from simkit.errors import PolicyError
from simkit.policies import Autoregressive, Fixed, Policy, parse
from simkit.serving.controllers import Controller
from simkit.simulator import FirstToken
from simkit.simulator.arguments import AnyCost, setting
from simkit.simulator.run import run
from traces import specs
from traces.attach.registry import parse as attachable
from traces.errors import UserError
from traces.own_sources import is_own
from traces.trace import Trace

_BY_BATCH = ("static", "off_above", "by_batch", "schedule")


class Exported(NamedTuple):
    """What is written.

    Attributes:
        text: of the file.
        beside: texts of files that it names, by what is added to its own name; the file names
            itself as {OUT}.
        notes: what the engine cannot express and what it was replaced by, one line each.
        errors: what drawing outcomes from synthetic rates changes; empty where none are drawn.

    >>> found = engines.export(traces.load("reference"), "vllm", "fixed(3)")
    >>> '"num_speculative_tokens": 3' in found.text, found.beside, found.errors
    (True, {}, [])
    """

    text: str
    beside: dict[str, str]
    notes: list[str]
    errors: list[DrawnOutcome]


def export(
    trace: Trace,
    engine: str,
    policy: Policy | str | None = None,
    controller: Controller | None = None,
    cost: AnyCost | None = None,
    first_token: FirstToken = "draft",
    draft: str | None = None,
    synthetic: bool = False,
    concurrency: int | None = None,
) -> Exported:
    """Write a setting as an engine's configuration.

    Args:
        trace: that it was found on; a drafter that was attached to one has its own.
        engine: one of `ENGINES`.
        policy: with ranges, `llamacpp(p_min=0:0.8:0.1, n_max=8)`, the setting that `simkit.tune`
            chooses; without one and without a controller, the fastest fixed length on the trace.
        controller: of `simkit.serving`, in the place of a policy.
        cost: as in `simkit.replay`; of what is chosen and compared.
        first_token: as there.
        draft: what the engine is to load as the draft; None: what the trace names.
        synthetic: with measured acceptance rates in the place of verdicts.
        concurrency: requests in flight where a length replaces a controller; None: one request.

    Raises:
        EngineError: there is no such engine, or it has no setting that could replace this one.

    >>> engines.export(traces.load("reference"), "openvino", "fixed(3)").text.split()
    ['{', '"num_assistant_tokens":', '3', '}']
    """
    made = ENGINES[engine]()
    trace.manifest.drafter.refuse("replay", EngineError)
    _check(made, policy, controller, synthetic, concurrency)
    plan = EngineSetting(0, drafter_of(trace, draft), sampled=trace.sampler.q_temperature > 0)
    by = Basis(trace, cost, first_token, concurrency)
    if controller is not None:
        plan, notes = _controlled(plan, made, controller, by)
    else:
        plan, notes = _stopped(plan, made, policy, by)
    if synthetic and plan.length:
        _check_rates(plan)
        plan = plan._replace(rates=rates_of(trace, plan.length, first_token))
        if plan.by_batch:
            notes.append(f"the synthetic rates are those of fixed({plan.length})")
    measured = errors(trace, plan.rates, cost, first_token) if plan.rates else []
    notes += _warnings(plan, by) if notes or measured else []
    text, beside, said = made.write(plan)
    head = f"for {made.name} {made.version}, as in {made.source}"
    return Exported(text, beside, [head, *notes, *said], measured)


def _check(
    engine: EngineWriter,
    policy: Policy | str | None,
    controller: Controller | None,
    synthetic: bool,
    concurrency: int | None,
) -> None:
    if policy is not None and controller is not None:
        raise EngineError("give a policy or a controller, not both")
    if concurrency is not None and controller is None:
        raise EngineError("--concurrency needs --controller")
    if synthetic and "rates" not in engine.takes:
        raise EngineError(
            f"{engine.name} takes no synthetic acceptance rates: vllm and llama.cpp do"
        )


def _check_rates(plan: EngineSetting) -> None:
    """Refuse rates, which count every step's draft as that long, where drafts are often shorter.

    Raises:
        EngineError: as said.
    """
    shorter = "" if plan.drafter.kind not in LOOKUPS else plan.drafter.kind
    if plan.policy is not None and getattr(plan.policy, "p_min", 1.0) > 0:
        shorter = str(plan.policy)
    if shorter:
        raise EngineError(
            f"--synthetic needs drafts of one length, and those of {shorter} {OFTEN_SHORTER}"
        )


def _warnings(of: EngineSetting, by: Basis) -> list[str]:
    """Why what was chosen by the cost's times may be wrong."""
    where = setting(by.trace, by.cost, by.first_token)
    if where.charge is None:
        return []
    found = [*where.charge.warnings, *map(str, where.charge.beyond)]
    with suppress(UserError):  # drafts that the trace cannot answer, which nothing was chosen by
        chosen = run(of.policy or Fixed(of.length, max_draft=max(of.length, 1)), *where)
        found += map(str, chosen.beyond)
    return found


def _stopped(
    plan: EngineSetting, engine: EngineWriter, policy: Policy | str | None, by: Basis
) -> tuple[EngineSetting, list[str]]:
    """The plan of a policy."""
    if policy is None:
        choice = fastest(by)
        return plan._replace(length=choice.length), [choice.note]
    notes = []
    if isinstance(policy, str) and specs.parse(policy, PolicyError).ranges():
        policy, note = tuned(policy, by)
        notes.append(note)
    policy = parse(policy) if isinstance(policy, str) else policy
    if isinstance(policy, Fixed | Autoregressive):
        return plan._replace(length=getattr(policy, "length", 0)), notes
    if engine.runs(policy):
        return plan._replace(length=_longest(policy), policy=policy), notes
    choice = instead_of(policy, f"{engine.name} stops no draft by that rule", by)
    return plan._replace(length=choice.length), [*notes, choice.note]


def _controlled(
    plan: EngineSetting, engine: EngineWriter, controller: Any, by: Basis
) -> tuple[EngineSetting, list[str]]:
    """The plan of a controller; a user's own is replaced, whatever its name is."""
    name = controller.name if is_own(type(controller)) else ""
    if name == "none":
        return plan, []
    if name in ("each", "all_stopped", "batch_mean"):
        return _stopped(plan, engine, controller.policy, by)
    if name in _BY_BATCH:
        plan, notes = _of_batches(plan, engine, controller, by)
        if gate := getattr(controller, "gate", 0.0):
            if engine.can("gate", plan.drafter):
                plan = plan._replace(gate=(gate, controller.window))
            else:
                notes.append(f"{engine.name} has no gate: gate={gate:g} is left out")
        return plan, notes
    if name == "ema" and engine.can("ema", plan.drafter):
        deepest = max(step for _, steps in controller.candidates for step in steps)
        return plan._replace(length=controller.steps, ema=controller), [
            f"steps begin with {controller.steps} and go up to {deepest}: memory is sized for those"
        ]
    if name == "budget" and engine.can("by_confidence", plan.drafter):
        return plan._replace(length=controller.max_draft, by_confidence=True), []
    choice = _best(controller, engine, by)
    return plan._replace(length=choice.length), [choice.note]


def _of_batches(
    plan: EngineSetting, engine: EngineWriter, controller: Any, by: Basis
) -> tuple[EngineSetting, list[str]]:
    """The plan of lengths by batch, or of one length in their place."""
    lengths = by_batch(controller)
    if len(lengths) == 1:
        return plan._replace(length=lengths[0][1]), []
    if engine.can("by_batch", plan.drafter):
        return plan._replace(length=max(k for _, k in lengths), by_batch=lengths), []
    if by.in_flight is not None:
        choice = _best(controller, engine, by)
        return plan._replace(length=choice.length), [choice.note]
    first = lengths[0][1]
    return plan._replace(length=first), [
        f"{engine.name} has one length whatever the batch with such a drafter: {controller} is"
        f" replaced by fixed({first}), its length for a single request: --concurrency N finds the"
        " best for so many"
    ]


def by_batch(controller: Any) -> tuple[tuple[int, int], ...]:
    """Lengths by the batch from which on they count, of a controller that looks at nothing else."""
    if controller.name == "static":
        return ((1, controller.length),)
    if controller.name == "off_above" and controller.batch == 0:
        return ((1, 0),)
    if controller.name == "off_above":
        return (1, controller.length), (controller.batch + 1, 0)
    if controller.name == "by_batch":
        first, *others = sorted(controller.table)
        return (1, first[2]), *((low, k) for low, _, k in others)
    ends = sorted(controller.lengths)
    lows = [1, *(batch + 1 for batch, _ in ends)]
    return tuple(zip(lows, [*(k for _, k in ends), 0], strict=True))


def _best(controller: Any, engine: EngineWriter, by: Basis) -> Replacement:
    """What replaces a controller: what serves best, or for a request alone, the fastest length."""
    why = f"{engine.name} has no controller like {controller}"
    if by.in_flight is not None:
        length, note = served_instead(controller, by, by.in_flight)
        return Replacement(length, f"{why}: replaced by fixed({length}); {note}")
    try:
        length, note = fastest(by)
    except EngineError as error:
        raise EngineError(f"{why}, and {error}") from None
    alone = "; that is the speed of a request alone: --concurrency N compares them in batches"
    return Replacement(length, f"{why}: replaced by fixed({length}); {note}{alone}")


def _longest(policy: Policy) -> int:
    """The longest draft of a policy."""
    return int(getattr(getattr(policy, "params", None), "max_draft", policy.max_draft))


def drafter_of(trace: Trace, draft: str | None) -> EngineDrafter:
    """What drafts on a trace, as far as it says.

    Raises:
        EngineError: a draft model for a lookup.
    """
    manifest = trace.manifest
    if not manifest.spec:
        known = manifest.draft.id if manifest.draft else None
        return EngineDrafter("model" if manifest.draft else "", draft or known, {})
    try:
        spec = specs.parse(manifest.spec, EngineError)
    except UserError:
        return EngineDrafter("", draft, {})
    given: Mapping[str, Any] = dict(spec.kwargs)
    if spec.name in LOOKUPS:
        if draft is not None:
            raise EngineError(f"{spec.name} loads no draft model: leave out --draft")
        return EngineDrafter(spec.name, None, vars(attachable(manifest.spec)))
    named = (given.get("path"), *spec.args)
    model = next((value for value in named if isinstance(value, str)), None)
    return EngineDrafter(spec.name, draft or _reachable(model), given)


def _reachable(model: str | None) -> str | None:
    """A model's name; None for a folder of the machine that recorded it, which is not here.

    That is a relative path that leads nowhere from here, or through a hidden folder. A name of the
    hub has at most one slash.
    """
    path = Path(model or "")
    is_hidden = any(part.startswith(".") for part in path.parts)
    is_folder = is_hidden or len(path.parts) > 2
    if path.is_absolute() or not is_folder:
        return model
    return model if path.is_dir() and not is_hidden else None
