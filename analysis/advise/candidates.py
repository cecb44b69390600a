"""What could be advised: every rule that each drafter of a recording can follow, on its prompts."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from analysis.drafters import side_by_side
from analysis.labelled_replays import reason_of
from analysis.replays import ALONE, FAMILIES, Replayed, Replays, folds, of
from analysis.study import MissingError, Study
from simkit.policies import Policy
from simkit.simulator.arguments import AnyCost
from simkit.statistics.interval import resampled
from simkit.sweeps.engine import Progress
from simkit.sweeps.folds import chosen, mean_of, outside
from traces.errors import UserError
from traces.trace import OWN

NONE = "no drafts"
LEFT_OUT = ("heuristic", "Draft & Verify")  # a fixed length or a threshold is as fast or faster
DEEPEST = 40  # of every rule, so that no longest draft decides between them
RIVALS = 64  # fastest settings, with which the best one is compared on resamples of prompts
Runs = Callable[[str, Policy], str]


class Setting(NamedTuple):
    """A policy with its arguments on a drafter.

    Attributes:
        drafter: its name; "own" is the one that the trace was recorded with.
        family: of `analysis.replays.FAMILIES`, or `NONE`.
        policy: its spec; that of the target alone where `family` is `NONE`.
    """

    drafter: str
    family: str
    policy: str

    @property
    def words(self) -> str:
        """For people."""
        if self.family == NONE:
            return NONE
        return self.policy if self.drafter == OWN else f"{self.policy} on {self.drafter}"


class Family(NamedTuple):
    """A family of settings on one drafter.

    Attributes:
        setting: the fastest on all prompts.
        held: each prompt with the setting that is fastest on other prompts.
    """

    setting: Setting
    held: Replayed


@dataclass(eq=False)
class Field:
    """All settings of all drafters.

    Attributes:
        replays: by drafter.
        families: those that could be replayed, the fastest on other prompts first.
        settings: (K,) all of them; `NONE` comes first.
        total_s: (K,) seconds of all prompts.
        draft_s: (K,) of these, those of drafting.
        gone: a line for each that is left out, with the reason.
        held_s: (S,) seconds of each prompt with the setting, of all of them, that is fastest on
            other prompts: what following the advice is worth.
    """

    replays: Mapping[str, Replays]
    families: list[Family]
    settings: list[Setting]
    total_s: np.ndarray
    draft_s: np.ndarray
    gone: list[str]
    held_s: np.ndarray = field(default_factory=lambda: np.empty(0))

    @property
    def best(self) -> Setting:
        """The setting that is fastest on all prompts; `NONE` is among them."""
        return self.settings[int(self.total_s.argmin())]

    @property
    def baseline_s(self) -> np.ndarray:
        """Seconds of each prompt, decoded by the target alone, (S,)."""
        return next(iter(self.replays.values())).charge.baseline_s

    def replay(self, setting: Setting) -> Replayed:
        """One setting on all prompts."""
        spec = ALONE if setting.family == NONE else setting.policy
        return self.replays[setting.drafter].replay(spec)

    def regret(self) -> float:
        """How much slower than one of the `RIVALS` fastest the best may be, see `regret`."""
        order = np.argsort(self.total_s, kind="stable")[:RIVALS]
        return regret(np.stack([self.replay(self.settings[k]).total_s for k in order]))


def regret(total_s: np.ndarray) -> float:
    """By what share of its time the first setting may be slower than the fastest on other prompts.

    The share is the upper end of a 95% interval: 97.5% of resamples do not exceed it. They are of
    half as many prompts, and so vary by twice the variance: that of these prompts and that of as
    many others.

    Args:
        total_s: (K, S) seconds of the settings on each prompt.

    Returns:
        The share; NaN for one prompt.
    """
    n = total_s.shape[1]
    if n < 2:
        return float("nan")
    lost = [some[:, 0] / some.min(1) - 1 for some in resampled(total_s.T, seed=0, size=n // 2)]
    return float(np.quantile(np.concatenate(lost), 0.975))


def families(deepest: int) -> dict[str, str]:
    """Specs of the families that are tried, by name, all with the same longest draft."""
    alike = {
        "fixed": f"fixed(0:{DEEPEST})",
        "confidence": f"confidence(threshold=0.05:0.95:0.05, max_draft={deepest})",
        "confidence, adaptive": f"confidence_adaptive(max_draft={deepest})",
        "llama.cpp": f"llamacpp(p_min=0.1:0.9:0.1, n_max={deepest})",
        "acceptance head": f"acceptance_head(h=0.1:0.9:0.1, max_draft={deepest})",
    }
    return {n: alike.get(n, spec) for n, spec in FAMILIES.items() if n not in LEFT_OUT}


def tried(
    study: Study,
    cost: AnyCost | None,
    refused: Runs | None = None,
    progress: Progress | None = None,
    drafters: Collection[str] = (),
) -> Field:
    """Replay every setting of every drafter.

    Args:
        study: of a recording, or of one drafter, which is then the only one.
        cost: see `simkit.replay`.
        refused: why a policy on a drafter is not to be advised; empty if it may be.
        progress: called with how many families are done, and of how many.
        drafters: names of those that are tried; none means all.

    Raises:
        MissingError: there are no times, or nothing can be replayed.
    """
    for name in drafters:
        study.trace.with_drafter(name)  # refuses a name that is not there
    replays, gone = _drafters(study, cost, drafters)
    found = _Tried(replays, refused or (lambda drafter, policy: ""), progress)
    for drafter in replays:
        found(drafter)
    gone += [f"not tried: {line}" for line in _by_reason(found.why)]
    gone.append(f"not tried: {' and '.join(LEFT_OUT)}, which other rules contain")
    if len(found.settings) == 1:
        raise MissingError("; ".join(gone) or "there is nothing to advise")
    return found.field(gone)


class _Tried:
    """Families as they are replayed; `NONE`, on the first drafter, is there from the start."""

    def __init__(
        self, replays: Mapping[str, Replays], refused: Runs, progress: Progress | None
    ) -> None:
        self.replays, self.refused, self.progress = replays, refused, progress
        self.done = 0
        first, at = next(iter(replays.items()))
        baseline_s = at.charge.baseline_s
        self.deals, self.n = folds(at.trace), len(baseline_s)
        self.settings = [Setting(first, NONE, ALONE)]
        alone_s = outside(baseline_s, self.deals)[None]
        self.scored = [(alone_s, baseline_s.sum(keepdims=True), np.zeros(1))]
        self.families: list[tuple[Setting, str]] = []
        self.why: dict[tuple[str, str], str] = {}  # by family and drafter

    def __call__(self, drafter: str) -> None:
        """Replay a drafter's."""
        at = self.replays[drafter]
        wanted = families(min(DEEPEST, at.trace.max_draft))
        for family, spec in wanted.items():
            try:
                reason = self.refused(drafter, at.within(spec)[-1])
                if reason:
                    raise MissingError(reason)
                one = at.scored(spec)
            except UserError as error:
                self.why[family, drafter] = reason_of(str(error))
            else:
                mine = [Setting(drafter, family, str(policy)) for policy in one.policies]
                self.settings += mine
                self.scored.append((one.others_s, one.total_s, one.draft_s))
                self.families.append((mine[int(one.total_s.argmin())], spec))
            self.done += 1
            if self.progress is not None:
                self.progress(self.done, len(self.replays) * len(wanted))

    def field(self, gone: list[str]) -> Field:
        """What all of them are worth."""
        others_s, total_s, draft_s = (
            np.concatenate(some) for some in zip(*self.scored, strict=True)
        )
        _, share = chosen(others_s, self.deals, self.n)
        made = Field(self.replays, [], self.settings, total_s, draft_s, gone)
        picked = [made.replay(self.settings[k]).total_s for k in share]
        made.held_s = mean_of(picked, [*share.values()])
        found = [Family(one, self.replays[one.drafter].tuned(spec)) for one, spec in self.families]
        made.families = sorted(found, key=lambda one: one.held.total_s.sum())
        return made


def _by_reason(why: Mapping[tuple[str, str], str]) -> list[str]:
    """A line for each reason, with the families on each drafter that it holds for."""
    drafters: dict[str, dict[str, list[str]]] = {}
    for (family, drafter), reason in why.items():
        drafters.setdefault(reason, {}).setdefault(drafter, []).append(family)
    lines = []
    for reason, each in drafters.items():
        same: dict[str, list[str]] = {}
        for drafter, families in each.items():
            same.setdefault("; ".join(families), []).append(drafter)
        where = " and ".join(f"[{some}] on {', '.join(names)}" for some, names in same.items())
        lines.append(f"{where}: {reason}")
    return lines


def _drafters(
    study: Study, cost: AnyCost | None, only: Collection[str]
) -> tuple[dict[str, Replays], list[str]]:
    """Replays of each chain drafter by name, and why others are missing.

    Raises:
        MissingError: there are none with times.
    """
    trace = study.trace
    if trace.recording is None and trace.path is not None and trace.drafters:
        found, gone = side_by_side(study, cost, timed=True, only=only)
    else:
        name = trace.path.name if trace.recording is not None and trace.path is not None else OWN
        found, gone = {name: of(study, cost)}, []
    trees = [name for name, at in found.items() if at.trace.manifest.kind == "tree"]
    gone = [*gone, *([f"{', '.join(trees)}: trees are not tried."] if trees else [])]
    kept = {name: at for name, at in found.items() if name not in trees}
    if not kept:
        raise MissingError(f"nothing to choose from: {'; '.join(gone)}")
    _ = next(iter(kept.values())).charge
    return kept, gone
