"""What to draft with, when to stop, and at which load: one answer from a recording and a cost.

`candidates` tries every rule on every drafter by cross-validation over prompts. `price` finds the
prices of a draft pass at which the answer changes. `load` serves many requests at once. `result`
puts the answer into words. Replays, tuning, serving and export are those of the other rooms.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from analysis import priced
from analysis.advise.candidates import NONE, Family, Field, Setting, tried
from analysis.advise.load import under_load
from analysis.advise.price import alike, break_even, by_task, cost_ratio, pieces, without_loops
from analysis.advise.result import Advice, Row
from analysis.labelled_replays import cost_name
from analysis.replays import Replayed, each_task
from analysis.speeds import speed, speedup
from analysis.stats import Estimate, clusters
from analysis.study import FirstToken, MissingError, Study
from simkit import costs
from simkit.engines import EngineError, export
from simkit.engines.base import ENGINES, EngineSetting, EngineWriter
from simkit.engines.export import drafter_of
from simkit.policies import Fixed, Policy
from simkit.serving.engine import check_count
from simkit.simulator.arguments import AnyCost, AnyTrace
from simkit.simulator.step_costs import free_heads
from simkit.statistics.enough import few
from simkit.sweeps.engine import Progress
from traces.bundle import more_of
from traces.errors import UserError
from traces.loops import remarks_of
from traces.trace import OWN

__all__ = ["Advice", "Row", "advise"]


def advise(
    trace: AnyTrace,
    cost: AnyCost | None = None,
    concurrency: int | Iterable[int] = (),
    engine: str | None = None,
    first_token: FirstToken = "draft",
    progress: Progress | None = None,
    drafters: Iterable[str] = (),
) -> Advice:
    """Recommend a drafter and a stopping rule.

    Args:
        trace: a recording with its drafters, or one of its drafters. Trees are not tried.
        cost: see `simkit.replay`; it must have times.
        concurrency: requests in flight, one number or several; none tries 1, 4, 16 and 64.
        engine: one of `simkit.engines.ENGINES`. Only what it can run is recommended, and compared
            with its default.
        first_token: see `simkit.replay`.
        progress: called with the number of families that are done, and of all families.
        drafters: names of those that are tried, "own" among them; none means all.

    Raises:
        MissingError: there are no times, or nothing can be replayed.
        UserError: the trace, the cost or the engine cannot be read.
    """
    made = ENGINES[engine]() if engine else None
    if isinstance(cost, str):
        costs.parse(cost)  # a cost that cannot be read is refused once, not for each drafter
    sizes = _sizes(concurrency)
    study = Study(trace, first_token)
    study.trace.manifest.drafter.refuse("replay", MissingError)
    watched = priced.Priced()
    with watched.watching():
        found = tried(study, cost, _refused(study, made), progress, tuple(drafters))
        setting = found.best
        at_load = under_load(found, setting, cost, sizes)
        default = _default(found, made, setting)
    config, notes = _config(found, made, setting, cost, first_token)
    facts = _facts(found, setting)
    return Advice(
        trace=_name(study),
        own=_own(study),
        times=cost_name(found.replays[setting.drafter].study, cost).split(";")[0],
        default=default,
        load=at_load,
        engine=engine or "",
        config=config,
        notes=tuple(dict.fromkeys([*notes, *_free_heads(found), *_notes(found, study, watched)])),
        **facts,
    )


def _sizes(concurrency: int | Iterable[int]) -> list[int]:
    """One number or several, each of which is one of requests."""
    sizes = list(concurrency) if isinstance(concurrency, Iterable) else [concurrency]
    for size in sizes:
        check_count("concurrency", size)
    return sizes


def _facts(found: Field, setting: Setting) -> dict[str, Any]:
    """What the replays alone say of the recommended setting."""
    some = pieces(found)
    return {
        "setting": setting,
        "speedup": _worth(found, setting),
        "regret": found.regret(),
        "rows": tuple(_rows(found, setting)),
        "pieces": tuple(some),
        "cost_ratio": cost_ratio(found, setting.drafter),
        "alike": alike(found, setting, some),
        "even": break_even(found, setting),
        "apart": without_loops(found, setting),
        "tasks": by_task(found, setting, each_task(found.replays[setting.drafter].trace)),
        "gone": tuple(found.gone),
    }


def _name(study: Study) -> str:
    """Of the trace, and of the one drafter that is asked about."""
    trace = study.trace
    recording = trace.recording
    if recording is not None and recording.path is not None and trace.path is not None:
        return f"{recording.path.name}, {trace.path.name}"
    return trace.path.name if trace.path else "the trace"


def _own(study: Study) -> str:
    """The recording's own drafter in words."""
    source = (study.trace.recording or study.trace).manifest.source
    if source is not None and source.drafter:
        return f"{source.drafter} (the imported drafter)"
    return "the recorded draft model"


def _free_heads(found: Field) -> list[str]:
    """Which heads' calls cost nothing, because there is no time for them, a line each."""
    asked = ((found.replays[one.setting.drafter].charge, one.held.policy) for one in found.families)
    return free_heads(asked)


def _notes(found: Field, study: Study, watched: priced.Priced) -> list[str]:
    """What a reader of the numbers should know, one line each."""
    said = [f"{line[0].lower()}{line[1:].rstrip('.')}" for line in watched.sentences()]
    about = few(study.trace.n_sequences)
    more = more_of((study.trace.recording or study.trace).path)
    return [*said, *([about] if about else []), *remarks_of(study.trace, found.replays), *more]


def _worth(found: Field, setting: Setting) -> Estimate:
    """The speedup of following the advice; the spread of the times is the advised setting's."""
    if setting.family == NONE:
        return Estimate(1.0, None, None, len(found.held_s))
    spread = found.replay(setting).timing()
    shared = None if spread is None else spread.baseline / spread.total
    return clusters.speed(found.baseline_s, found.held_s, factors=shared)


def _rows(found: Field, setting: Setting) -> list[Row]:
    """Every family, the advised one first."""
    held = (one.held for one in found.families if one.setting[:2] == setting[:2])
    mine = next(held, None) or found.replay(setting)  # of no drafts
    order = sorted(found.families, key=lambda one: one.setting[:2] != setting[:2])
    return [Row(one.setting, speedup(one.held), _against(found, mine, one)) for one in order]


def _against(found: Field, mine: Replayed, other: Family) -> Estimate:
    """By how many times the advised way is faster than another family."""
    if mine is other.held:
        return Estimate(1.0, None, None, len(found.held_s))
    return speed(mine, other.held)


def _refused(study: Study, made: EngineWriter | None) -> Callable[[str, Policy], str]:
    """Why an engine cannot run a policy on a drafter; empty if it can."""

    def refused(drafter: str, policy: Policy) -> str:
        if made is None:
            return ""
        if not isinstance(policy, Fixed) and not made.runs(policy):
            return f"{made.name} has no such rule"
        recording = study.trace.recording or study.trace
        known = recording.with_drafter(drafter) if recording.drafters else study.trace
        drafts = drafter_of(known, None)
        if drafts.kind in made.replaced:
            return f"{made.name} has no such drafter, but one of its own"
        try:
            made.write(EngineSetting(known.max_draft, drafts))
        except EngineError as error:
            return str(error)
        return ""

    return refused


def _default(
    found: Field, made: EngineWriter | None, setting: Setting
) -> tuple[str, Estimate] | str:
    """What the advice gains over the engine's default with the recording's own drafter.

    A sentence says why there is nothing to compare with; it is empty without an engine.
    """
    if made is None:
        return ""
    if not made.default:
        return f"{made.name} has no default draft length to compare with."
    at = found.replays.get(OWN) or found.replays[setting.drafter]
    if drafter_of(at.trace, None).kind not in ("model", ""):
        return f"{made.name}'s default, {made.default}, is for draft models: it is not compared."
    try:
        other = at.replay(made.default)
    except UserError as error:
        return f"{made.name}'s default, {made.default}, is not compared: {error}."
    first, second = found.replay(setting).timing(), other.timing()
    shared = second.total / first.total if first and second else None
    return other.spec, clusters.speed(other.total_s, found.held_s, factors=shared)


def _config(
    found: Field,
    made: EngineWriter | None,
    setting: Setting,
    cost: AnyCost | None,
    first_token: FirstToken,
) -> tuple[str, list[str]]:
    """The setting as the engine's configuration, and what that cannot say."""
    if made is None or setting.family == NONE:
        return "", []
    there = found.replays[setting.drafter].trace
    try:
        out = export(there, made.name, setting.policy, cost=cost, first_token=first_token)
    except EngineError as error:
        return "", [f"not written for {made.name}: {error}"]
    return out.text, out.notes
