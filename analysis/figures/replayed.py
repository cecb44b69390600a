"""Replays that figures share, and who is compared with whom."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass, replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from analysis.figures.base import FigureError
from analysis.stats import Estimate, clusters, compare
from simkit.policies import Policy, Setting
from simkit.simulator.given import AnyCost, setting
from simkit.simulator.layout import PathLayout
from simkit.simulator.run import Run, run
from simkit.sweeps.folds import stratified
from simkit.sweeps.grid import settings
from traces.errors import UserError
from traces.trace import Trace

FOLDS, SEED = 5, 0
ALL = "all"

# Families that are tuned: every policy that a drafter can follow, on the grids of the sweeps.
FAMILIES = {
    "fixed": "fixed(0:20)",
    "heuristic": "heuristic(initial=1:19:3)",
    "confidence": "confidence(threshold=0.05:0.95:0.05)",
    "confidence, adaptive": "confidence_adaptive",
    "cumulative confidence": "cumulative_confidence(threshold=0.05:0.95:0.05)",
    "Draft & Verify": "draft_verify(threshold=0.1:0.9:0.1)",
    "llama.cpp": "llamacpp(p_min=0.1:0.9:0.1)",
    "SVIP": "svip(h=0.2:2.0:0.1)",
    "AdaEDL": "adaedl(scale=0.1:0.6:0.1, threshold=0.1:0.5:0.1)",
    "SpecDec++": "specdecpp(threshold=0.15:0.95:0.1)",
    "acceptance head": "acceptance_head(h=0.1:0.9:0.1, max_draft=20)",
    "PACER": "pacer(block=1:4, threshold=0.1:0.9:0.1)",
    "best rate": "rate_optimal",
}
HINDSIGHT = {"oracle": "oracle", "prophet": "prophet"}

_KEPT = 64  # families tuned; a few traces' settings


def path_layout(trace: Trace) -> PathLayout:
    """The trace's rows as a layout.

    Raises:
        FigureError: the trace is a lattice.
    """
    layout = where(trace, None, timed=False).layout
    if not isinstance(layout, PathLayout):
        raise FigureError("the trace is a lattice: it has no rows on a path")
    return layout


def where(trace: Trace, cost: AnyCost | None, timed: bool = True) -> Setting:
    """Layout and charge of a trace under a cost; the last few are kept.

    Raises:
        FigureError: times are needed and there is no cost.
        UserError: see `simkit.replay`.
    """
    found = _setting(trace, cost)
    if timed and found.charge is None:
        raise FigureError("needs times: the trace holds none, so give a cost")
    return found


@lru_cache(maxsize=4)
def _setting(trace: Trace, cost: AnyCost | None) -> Setting:
    return setting(trace, cost, "draft")


def replays(
    trace: Trace, specs: Mapping[str, str], cost: AnyCost | None = None, timed: bool = True
) -> tuple[dict[str, Run], list[str]]:
    """Replay policies by label; those that this trace cannot give are left out.

    Returns:
        The runs, and a line for each that is missing.

    Raises:
        FigureError: none is left.
    """
    at, found, gone = where(trace, cost, timed), {}, []
    for label, spec in specs.items():
        try:
            (policy,) = within(settings(spec), trace)
            found[label] = run(policy, *at)
        except UserError as error:
            gone.append(f"Without {label}: {error}")
    if not found:
        raise FigureError(gone[0] if gone else "there is no policy to replay")
    return found, gone


def within(policies: Iterable[Policy], trace: Trace) -> list[Policy]:
    """The policies, none of them drafting deeper than Γ, which the trace could not answer."""
    deepest, kept = trace.max_draft, []
    for policy in policies:
        names = {f.name for f in fields(policy) if f.init} if is_dataclass(policy) else set()
        if "max_draft" in names and policy.max_draft > deepest:
            if getattr(policy, "length", 0) > deepest:
                continue
            policy = replace(policy, max_draft=deepest)  # type: ignore[type-var]
        kept.append(policy)
    if not kept:
        raise FigureError(f"the trace holds drafts of up to {deepest} tokens only")
    return kept


class Tuned(NamedTuple):
    """A family of settings, each prompt replayed with the one that is fastest on other prompts.

    Attributes:
        setting: chosen most often.
        counts: sums of each prompt, (S,) each: steps, drafted, proposed, accepted, emitted.
        seconds: the parts and the baseline, (S,) each.
        total_s: (S,).
    """

    setting: Policy
    counts: dict[str, np.ndarray]
    seconds: dict[str, np.ndarray]
    total_s: np.ndarray


def tuned(
    trace: Trace, families: Mapping[str, str | tuple[str, ...]], cost: AnyCost | None = None
) -> tuple[dict[str, Tuned], list[str]]:
    """Tune families by cross-validation over prompts, see `simkit.sweeps.tune`.

    With fewer prompts than folds, settings are chosen on the prompts that they are judged by; the
    lines say so.

    Args:
        trace: of any kind.
        families: specs with ranges, or several of them, by label.
        cost: see `simkit.replay`.

    Returns:
        The families, and a line for each that is missing.

    Raises:
        FigureError: none is left, or there are no times.
    """
    where(trace, cost)
    found, gone = {}, []
    for label, spec in families.items():
        try:
            found[label] = _tune(trace, spec, cost)
        except UserError as error:
            gone.append(f"Without {label}: {error}")
    if not found:
        raise FigureError(gone[0])
    if folds(trace) is None:
        gone.append(f"Fewer than {FOLDS} prompts: settings chosen on the prompts shown.")
    return found, gone


def folds(trace: Trace) -> np.ndarray | None:
    """The fold of each prompt, dealt out by task; None for fewer prompts than folds."""
    task = np.unique(tasks(trace), return_inverse=True)[1]
    return stratified(task, FOLDS, SEED) if len(task) >= FOLDS else None


@lru_cache(maxsize=_KEPT)
def _tune(trace: Trace, spec: str | tuple[str, ...], cost: AnyCost | None) -> Tuned:
    at, fold = where(trace, cost), folds(trace)
    runs = [run(policy, *at) for policy in within(settings(spec), trace)]
    total_s = np.array([one.total_s for one in runs])
    pick = np.full(total_s.shape[1], total_s.sum(1).argmin())
    for k in range(FOLDS) if fold is not None else ():
        pick[fold == k] = total_s[:, fold != k].sum(1).argmin()

    def picked(values: list[np.ndarray]) -> np.ndarray:
        return np.array(values)[pick, np.arange(len(pick))]

    counts = {name: picked([one.counts[name] for one in runs]) for name in runs[0].counts}
    seconds = {
        name: picked([(one.seconds or {})[name] for one in runs]) for name in runs[0].seconds or {}
    }
    most = int(np.bincount(pick).argmax())
    return Tuned(runs[most].policy, counts, seconds, picked([one.total_s for one in runs]))


def tasks(trace: Trace) -> np.ndarray:
    """The task of each sequence, (S,) str."""
    return np.array(trace.sequences["task"].to_pylist(), str)


def groups(trace: Trace) -> dict[str, np.ndarray]:
    """Each task's prompts as a mask, in the trace's order; then all, where there are several."""
    task = tasks(trace)
    found = {str(name): task == name for name in dict.fromkeys(task.tolist())}
    return found | {ALL: np.ones(len(task), bool)} if len(found) > 1 else found


def speed(other_s: np.ndarray, mine_s: np.ndarray, some: np.ndarray | None = None) -> Estimate:
    """How many times faster: a ratio of sums, with its interval over prompts, paired."""
    chosen = np.ones(len(mine_s), bool) if some is None else some
    return clusters.ratio(other_s[chosen], mine_s[chosen])


def against_fixed(seconds: Mapping[str, np.ndarray]) -> dict[str, Estimate]:
    """Speeds against the policy called "fixed", with intervals that hold for all at once.

    With fewer prompts than `clusters.FEWEST` there is too little for that: each then has its own.
    """
    if len(seconds["fixed"]) >= clusters.FEWEST:
        return compare.simultaneous(seconds, "fixed")
    return {n: speed(seconds["fixed"], mine) for n, mine in seconds.items() if n != "fixed"}


def cost_name(trace: Trace, cost: AnyCost | None) -> str:
    """The cost in words, for a caption."""
    if cost is not None:
        return f"times: {cost}"
    table = trace.latency()
    timed = [] if table is None else table["component"].unique().to_pylist()
    heads = any(name.startswith(("head:", "policy:")) for name in timed)
    return "times: the trace's own" + ("" if heads else ", decisions and heads free")


def cost_ratio(at: Setting) -> float:
    """C = T_target(1) / T_draft(1), in the mean over the trace's output tokens.

    Raises:
        FigureError: there are no times, or a draft pass takes none.
    """
    if at.charge is None:
        raise FigureError("needs times: the trace holds none, so give a cost")
    n = at.layout.n_output
    known = n * (at.layout.n_prompt + (n - 1) / 2)
    context = np.array([round(known.sum() / max(1, n.sum()))])
    draft_s, target_s = at.charge.times.draft(context)[0], at.charge.times.decode(context)[0]
    if draft_s <= 0:
        raise FigureError("a draft pass takes no time under this cost, so there is no ratio c")
    return float(target_s / draft_s)


def best_fixed(trace: Trace, cost: AnyCost | None) -> tuple[int, Run]:
    """The fastest fixed draft length, 0 to 20 or Γ, on the whole trace, and its replay."""
    longest = min(20, trace.max_draft)
    runs, _ = replays(trace, {str(k): f"fixed({k})" for k in range(longest + 1)}, cost)
    length = min(runs, key=lambda k: float(runs[k].total_s.sum()))
    return int(length), runs[length]
