"""Two traces, or two drafters of one, held against each other.

`sides` says what they are and whether their prompts can be paired, `measures` has the statistics of
acceptance, `seconds`, `ranks` and `best` the policies: how fast, in which order, with which
settings. `result` is what comes out. Every number has an interval over prompts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import count

from analysis.compare.best import Best, best
from analysis.compare.measures import Measured, measured
from analysis.compare.ranks import Ranked, Ranking, ranking
from analysis.compare.result import Compared, Pair
from analysis.compare.seconds import DEFAULTS, Replayer, on_both
from analysis.compare.sides import Prompts, prompts_of, sides
from analysis.labelled_replays import without
from analysis.replays import FAMILIES
from analysis.study import FirstToken, MissingError
from simkit.simulator.arguments import AnyCost, AnyTrace, check_confidence
from simkit.simulator.beyond import together
from simkit.statistics.enough import few
from simkit.sweeps.engine import Progress
from simkit.sweeps.grid import settings

NO_POLICY = "no policy can be replayed on both"

__all__ = ["Best", "Compared", "Measured", "Pair", "Ranked", "Ranking", "compare"]


def compare(
    *traces: AnyTrace,
    drafters: Iterable[str] = (),
    policies: Iterable[str] = (),
    cost: AnyCost | None = None,
    tune: bool = False,
    first_token: FirstToken = "draft",
    confidence: float = 0.95,
    progress: Progress | None = None,
) -> Compared:
    """Hold traces, or the drafters of one, against each other: the first against each other one.

    Args:
        traces: of any kind; or their folders, or bundled traces' names.
        drafters: names of drafters that are compared on each trace; "own" is the one that it was
            recorded with, and the default.
        policies: specs. None means every policy that a drafter can follow, with its default
            arguments; a spec with ranges is tuned.
        cost: the same for all, see `simkit.replay`. None means each trace's own times; where one
            of two has none, passes of the target are counted on both.
        tune: also tune each policy, on the grids of `analysis.replays.FAMILIES`.
        first_token: see `simkit.replay`.
        confidence: of the intervals.
        progress: called with how many policies are done, and of how many.

    Raises:
        ReplayError: there is one trace and one drafter only.
        UserError: a trace, a drafter, the cost or a spec cannot be read, or no policy can be
            replayed on both of two traces.

    >>> from analysis.compare import compare
    >>> cost = "linear(draft_s=1, target_s=10)"
    >>> found = compare("reference", "reference-sampled", cost=cost, policies=["fixed(3)"])
    >>> [name for name, _ in found.sides]
    ['reference', 'reference-sampled']
    """
    check_confidence(confidence)
    specs = _specs(list(policies), tune)
    found = sides(traces, list(drafters), cost, first_token)
    timed = [Replayer(side) for side in found]
    counting = [Replayer(side.counting()) for side in found]
    tick = _ticking(progress, (len(found) - 1) * (1 + sum(map(len, specs))))
    pairs = []
    for k in range(1, len(found)):
        both_timed = found[0].at.timed and found[k].at.timed
        some = timed if both_timed else counting
        pairs.append(_pair((some[0], some[k]), both_timed, specs, confidence, tick))
    if not any(pair.rankings for pair in pairs):
        raise MissingError(f"{NO_POLICY}: {'; '.join(pairs[0].skipped)}")
    return Compared(tuple((side.name, tuple(side.facts())) for side in found), tuple(pairs))


def _ticking(progress: Progress | None, total: int) -> Callable[[], None]:
    """What tells that one more policy is done."""
    done = count(1)

    def tick() -> None:
        n = next(done)
        if progress is not None:
            progress(min(n, total), total)

    return tick


def _specs(policies: list[str], tune: bool) -> tuple[list[str], list[str]]:
    """Single policies, and families to be tuned.

    Raises:
        PolicyError: one cannot be read.
    """
    grids = {spec.split("(")[0]: spec for spec in FAMILIES.values()}
    read = [(spec, settings(spec)) for spec in policies or DEFAULTS]
    single = [str(one[0]) for _, one in read if len(one) == 1]
    families = [spec for spec, some in read if len(some) > 1]
    if tune:
        families += [
            grids[one[0].name] for _, one in read if len(one) == 1 and one[0].name in grids
        ]
    return list(dict.fromkeys(single)), list(dict.fromkeys(families))


def _pair(
    replayers: tuple[Replayer, Replayer],
    timed: bool,
    specs: tuple[list[str], list[str]],
    confidence: float,
    tick: Callable[[], None],
) -> Pair:
    first, second = (replayer.side for replayer in replayers)
    prompts = prompts_of(first, second)
    measures, missing = measured(first, second, prompts, confidence)
    tick()
    single, families = specs
    families = families if timed else []  # without times there is nothing to tune for
    why: dict[str, dict[str, str]] = {}
    rankings = []
    for some, what in ((single, Replayer.single), (families, Replayer.tuned)):
        both = {}
        for spec in some:
            seconds = on_both(replayers, prompts, spec, what, why)
            both |= {spec: seconds} if seconds is not None else {}
            tick()
        if both:
            rankings.append(ranking(both, prompts, what is Replayer.tuned, confidence))
    bests = []
    for spec in dict.fromkeys([FAMILIES["fixed"], *families]) if timed else ():
        if len(settings(spec)) > 1:
            grids = on_both(replayers, prompts, spec, Replayer.grid, why)
            bests += [best(grids, prompts, spec, confidence)] if grids is not None else []
    lacking = [
        f"{name}: {line[0].lower()}{line[1:]}"
        for name, some in why.items()
        for line in without(some)
    ]
    notes = _notes(replayers, timed, prompts, missing)
    of = tuple(measures), tuple(rankings), tuple(bests)
    return Pair((first.name, second.name), prompts.said, *of, notes, tuple(lacking), confidence)


def _notes(
    replayers: tuple[Replayer, Replayer],
    timed: bool,
    prompts: Prompts,
    missing: dict[tuple[str, str], list[str]],
) -> tuple[str, ...]:
    """What a reader of the numbers should know, one line each."""
    first, second = (replayer.side for replayer in replayers)
    said = [f"{where}: no {'; '.join(names)}: {why}" for (where, why), names in missing.items()]
    if not timed:
        untimed = [side.name for side in (first, second) if side.trace.latency() is None]
        said.append(
            f"no times with {' and '.join(untimed)}: passes of the target are"
            " counted instead and drafting is free, so long drafts win, and nothing is"
            " tuned; --cost gives times"
        )
    if first.trace.max_draft != second.trace.max_draft:
        depths = " and ".join(f"{s.trace.max_draft} on {s.name}" for s in (first, second))
        said.append(f"no draft is longer than the smaller Γ: {depths}")
    remarks: dict[str, list[str]] = {}
    for one in replayers:
        for line in [*one.side.at.charge.remarks, *together(one.beyond)] if timed else []:
            remarks.setdefault(line, []).append(one.side.name)
    said += [line if len(names) == 2 else f"{names[0]}: {line}" for line, names in remarks.items()]
    fewest = min(map(len, prompts.each))
    return tuple(dict.fromkeys([*said, *([few(fewest)] if few(fewest) else [])]))
