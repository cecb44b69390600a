"""What figures, tables and the report replay, by label, and what they say of it in words.

Nothing here draws, so that the report needs no matplotlib where it shows no figure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping

from analysis.replays import ALONE, FOLDS, Replayed, Replays, folds, groups, of
from analysis.speeds import factors, speed
from analysis.stats import Estimate, compare
from analysis.study import MissingError, Study
from simkit.costs.base import IN_DECODERS
from simkit.errors import PolicyError
from simkit.simulator.arguments import AnyCost
from simkit.simulator.binding import known_rule
from simkit.simulator.rule_time import said
from simkit.simulator.step_costs import Charge
from simkit.statistics.enough import FOR_INTERVAL
from simkit.sweeps.grid import settings
from traces.errors import UserError
from traces.trace import Trace

BEST_FIXED = "best fixed length"
HINDSIGHT = {"oracle": "oracle", "prophet": "prophet"}
_SPEC = re.compile(r"^\w+\([^()]*\): ")  # before a reason: the one setting that was tried first
_COLUMN = re.compile(r"^.* reads the column (\w+), which drafts of .*$")  # a spec, and advice


def replays(
    study: Study, specs: Mapping[str, str], cost: AnyCost | None = None, timed: bool = True
) -> tuple[dict[str, Replayed], dict[str, str]]:
    """Replay policies by label; those that this trace cannot give are left out.

    A spec with ranges is a family, tuned as `Replays.tuned` does.

    Returns:
        The replays, and why others are missing, by label; `without` makes lines of that.

    Raises:
        MissingError: there are no times, and they are needed; or no policy is left.
    """
    at = of(study, cost)
    if timed:
        _ = at.charge
    return _labelled({label: lambda spec=spec: replayed(at, spec) for label, spec in specs.items()})


def replayed(at: Replays, spec: str) -> Replayed:
    """One policy, or a family tuned on other prompts; raises as `Replays.tuned` does."""
    family = spec != ALONE and len(settings(spec)) > 1
    return at.tuned(spec) if family else at.replay(spec)


def tuned(
    study: Study, families: Mapping[str, str | tuple[str, ...]], cost: AnyCost | None = None
) -> tuple[dict[str, Replayed], list[str]]:
    """Tune families by cross-validation over prompts, see `Replays.tuned`.

    Args:
        study: of a trace of any kind.
        families: specs with ranges, or several of them, by label.
        cost: see `simkit.replay`.

    Returns:
        The families, and a line for each that is missing; what they were chosen on says `chosen`.

    Raises:
        MissingError: there are no times, or no family is left.
    """
    at = of(study, cost)
    _ = at.charge
    found, why = _labelled(
        {label: lambda spec=spec: at.tuned(spec) for label, spec in families.items()}
    )
    return found, without(why) + _timed(at, found)


def labelled(specs: Iterable[str] | None) -> dict[str, str]:
    """Specs by their labels: what one setting is called, or a family's spec; each once.

    Raises:
        PolicyError: one cannot be read, or is no spec.
    """
    given = [specs] if isinstance(specs, str) else list(specs or ())
    found = {}
    for spec in given:
        if not isinstance(spec, str):
            raise PolicyError(f"figures show specs, such as svip(h=0.3), not {spec!r:.40}")
        some = settings(spec)
        found[str(some[0]) if len(some) == 1 else spec.strip()] = spec.strip()
    return found


def without(why: Mapping[str, str]) -> list[str]:
    """A line for each reason why something is missing, with the labels that it holds for."""
    labels: dict[str, list[str]] = {}
    for label, reason in why.items():
        labels.setdefault(reason_of(reason), []).append(label)
    return [f"Without {'; '.join(names)}: {reason}" for reason, names in labels.items()]


def reason_of(error: str) -> str:
    """Why something is missing, without the setting that was tried first and without advice."""
    return _COLUMN.sub(r"the drafts have no column \1", _SPEC.sub("", error))


def chosen(trace: Trace, by_task: bool = False) -> str:
    """What the arguments of tuned families were chosen on, for a caption.

    Args:
        trace: that they were tuned on.
        by_task: whether tasks are shown one by one, so that each might have had its own.
    """
    several = by_task and len(groups(trace)) > 1
    what = "one setting for all tasks," if several else "arguments"
    if folds(trace) is None:
        return f"{what} chosen on the prompts shown, fewer than {FOLDS}"
    return f"{what} chosen on other prompts"


def choices(one: Replayed) -> str:
    """The setting that most folds chose, and the next that others did, for a caption."""
    others = ", ".join(str(policy) for policy in one.choices[1:4])
    others += ", …" if len(one.choices) > 4 else ""
    return one.spec + (f" (in other folds {others})" if others else "")


def _timed(at: Replays, found: Mapping[str, Replayed]) -> list[str]:
    """How rules were timed that were not timed in running decoders."""
    timed = ((one.policy, known_rule(one.policy, at.where)) for one in found.values())
    others = [(p, taken) for p, taken in timed if taken and taken.how != IN_DECODERS]
    return [f"{line[0].upper()}{line[1:]}." for line in said(others)]


def _labelled(
    wanted: Mapping[str, Callable[[], Replayed]],
) -> tuple[dict[str, Replayed], dict[str, str]]:
    found, why = {}, {}
    for label, replay in wanted.items():
        try:
            found[label] = replay()
        except UserError as error:
            why[label] = str(error)
    if not found:
        raise MissingError("; ".join(dict.fromkeys(why.values())) or "there is no policy to replay")
    return found, why


def against_fixed(found: Mapping[str, Replayed]) -> dict[str, Estimate]:
    """Speeds against the policy called "fixed", with intervals that hold for all at once.

    With fewer prompts than `FOR_INTERVAL` there is too little for that: each then has its own.

    Raises:
        MissingError: it is not among them.
    """
    if "fixed" not in found:
        raise MissingError("no fixed length can be replayed, so there is nothing to compare with")
    seconds = {name: one.total_s for name, one in found.items()}
    if len(seconds["fixed"]) >= FOR_INTERVAL:
        return compare.simultaneous(seconds, "fixed", factors=factors(found))
    return {n: speed(mine, found["fixed"]) for n, mine in found.items() if n != "fixed"}


def held_for(found: Mapping[str, Estimate]) -> str:
    """What the intervals of `against_fixed` hold for, for a caption."""
    if any(one.n_prompts < FOR_INTERVAL for one in found.values()):
        return "each for its policy alone"
    return f"those of speeds hold for all {len(found)} at once"


def window_words(at: Replays) -> str:
    """PEARL's window, and where it is from, for a caption."""
    why = at.too_wide
    return f"γ = {at.window}: {why}" if why else f"γ = round(c) = {at.window}"


def cost_name(study: Study, cost: AnyCost | None) -> str:
    """The cost in words, what emits the first token if it is not a step, and what bars hold."""
    first = "" if study.first_token == "draft" else "; first token from the prefill"
    held = holds(of(study, cost).charge)
    return _times(study.trace, cost) + first + (f"; {held}" if held else "")


def holds(charge: Charge) -> str:
    """Whether intervals hold the spread of measured times, in words.

    Empty where times are given numbers, which have no spread.
    """
    if charge.drawn_anew:
        return "intervals of speeds hold the spread of the timing samples too"
    if any("spread of the times" in line for line in charge.remarks):
        return "intervals do not hold the spread of the times, which is not known"
    return ""


def _times(trace: Trace, cost: AnyCost | None) -> str:
    if cost is not None:
        return f"times: {cost}"
    table = trace.latency()
    timed = [] if table is None else table["component"].unique().to_pylist()
    heads = any(name.startswith("head:") for name in timed)
    return f"times: the trace's own{'' if heads else ', heads free'}"
