"""Replays that figures and claims share: kept, tuned on other prompts, task by task."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from analysis import priced
from analysis.papers import ALONE
from analysis.stats.accepted_runs import runs_of_prompts
from analysis.study import FirstToken, MissingError, Study, study_of
from simkit.drafters.path import PathLayout
from simkit.errors import CostError
from simkit.policies import Policy, Setting, shortened
from simkit.policies.pearl import too_wide, widest
from simkit.simulator.arguments import AnyCost
from simkit.simulator.beyond import Beyond
from simkit.simulator.run import Run, Spread, run
from simkit.simulator.step_costs import PARTS, Charge
from simkit.sweeps.engine import replays as replay_all
from simkit.sweeps.folds import Deals, chosen, dealt, mean_of, outside
from simkit.sweeps.grid import settings
from traces import scores
from traces.messages import how_many
from traces.same_prompts import to_deal
from traces.trace import Trace

ALL = "all"
FOLDS, SEED = 5, 0
LONGEST = 20  # of the fixed lengths that are tried
# Families that are tuned: every policy that a drafter can follow, on the grids of the sweeps.
FAMILIES = {
    "fixed": f"fixed(0:{LONGEST})",
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
ASSIST = "heuristic"  # untuned: PACER 4.1 has "official implementations and default parameters"
_KEPT = 2**22  # numbers in the replays that are kept, about a dozen for each prompt


@dataclass(frozen=True, eq=False)
class Replayed:
    """One policy, or one family of settings, on each prompt.

    Attributes:
        policy: that was replayed; of a family, the first of `choices`.
        counts: steps, drafted, proposed, accepted, emitted and tokens; (S,) each, of a family the
            means over the deals of the folds.
        seconds: by part, and the baseline, (S,) each; empty without a cost.
        choices: of a family, what folds chose: by most of them first, of equals the setting that
            is faster on all prompts.
        shares: of a family, in which share of the deals each prompt has each choice, (S,) each.
        timing: gives by what the seconds change under other samples of the times, None where that
            is not known; of a family, those of the first of `choices`.
        runs: where the drafts are not those of the trace's own drafter, what was replayed, as
            `shares` has it; else it can be replayed anew.
        beyond: what lies beyond what was timed, of all choices.
    """

    policy: Policy
    counts: Mapping[str, np.ndarray]
    seconds: Mapping[str, np.ndarray]
    choices: tuple[Policy, ...] = ()
    shares: tuple[np.ndarray, ...] = ()
    timing: Callable[[], Spread | None] = lambda: None
    runs: tuple[Run, ...] = ()
    beyond: tuple[Beyond, ...] = ()

    @property
    def spec(self) -> str:
        """The policy in words."""
        return str(self.policy)

    @property
    def total_s(self) -> np.ndarray:
        """Seconds of each prompt.

        Raises:
            MissingError: there are none.
        """
        if not self.seconds:
            raise MissingError("needs times: the trace holds none, so give a cost")
        return np.sum([self.seconds[part] for part in PARTS], axis=0)


class Scored(NamedTuple):
    """What the K settings of a family take.

    Attributes:
        policies: the settings.
        others_s: (K, F) seconds of the prompts by which a setting is chosen, see
            `simkit.sweeps.folds.outside`.
        total_s: (K,) seconds of all prompts.
        draft_s: (K,) of these, those of drafting.
    """

    policies: list[Policy]
    others_s: np.ndarray
    total_s: np.ndarray
    draft_s: np.ndarray


class Replays:
    """A trace under a cost, and replays of it.

    Args:
        trace: of any kind; or a study, whose layout is shared and whose first token counts.
        cost: see `simkit.replay`.
        first_token: see `simkit.replay`.
    """

    def __init__(
        self,
        trace: Trace | Study,
        cost: AnyCost | None = None,
        first_token: FirstToken = "draft",
    ) -> None:
        self.study = study_of(trace, first_token)
        self.trace = self.study.trace
        self.cost = cost
        self._kept: OrderedDict[str | tuple[str, ...], Replayed] = OrderedDict()
        self._scores: dict[str, Scored] = {}
        self._spreads: dict[str, Spread | None] = {}

    @property
    def where(self) -> Setting:
        """Layout and times; raises as `simkit.replay` does."""
        self._note()
        return self.study.where(self._charge)

    @property
    def charge(self) -> Charge:
        """Times.

        Raises:
            MissingError: there are none.
        """
        if self._charge is None:
            raise MissingError("needs times: the trace holds none, so give a cost")
        self._note()
        return self._charge

    @property
    def timed(self) -> bool:
        """Whether there are times."""
        return self._charge is not None

    @property
    def layout(self) -> PathLayout:
        """The rows of the output; MissingError for a lattice."""
        return self.study.path

    @cached_property
    def _charge(self) -> Charge | None:
        return self.study.charge(self.cost)

    def run(self, spec: str | Policy) -> Run:
        """Replay one policy, no deeper than Γ, from which steps can be had.

        Raises:
            MissingError: Γ is less than its length, or there are no scores of its head.
            UserError: see `simkit.replay`.
        """
        (policy,) = self.within(spec)
        found = run(policy, *self.where)
        self._note(found.beyond)
        return found

    def replay(self, spec: str) -> Replayed:
        """The sums of one policy, or of the target alone (`ALONE`), kept; raises as `run` does."""
        if spec not in self._kept:
            self._keep(spec, self._alone() if spec == ALONE else self._sums(self.run(spec)))
        return self._given(spec)

    def accepted_runs(self, spec: str) -> np.ndarray:
        """Accepted tokens of each prompt and the runs they make, (S, 2); raises as `run` does."""
        return np.concatenate([runs_of_prompts(steps) for steps, _ in self.run(spec).pieces()])

    def tuned(self, spec: str | tuple[str, ...]) -> Replayed:
        """Settings, each prompt with the one that is fastest on other prompts.

        Folds of prompts are dealt out by task, many times over; each prompt has the mean over the
        deals (`simkit.sweeps.folds`). With fewer prompts than folds the fastest on all
        prompts is taken. Settings are first replayed for their sums over folds, then those that
        were chosen for each prompt's.

        Args:
            spec: with ranges; or several of them, of which the best is chosen.

        Raises:
            MissingError: there are no times, or as `run` does.
        """
        specs = (spec,) if isinstance(spec, str) else spec
        if specs not in self._kept:
            self._keep(specs, self._tune(specs))
        return self._given(specs)

    @property
    def best_length(self) -> int:
        """The fixed length, 0 to 20 or Γ, that is fastest on all prompts, as papers choose it.

        Raises:
            MissingError: there are no times.
        """
        lengths = range(min(LONGEST, self.trace.max_draft) + 1)
        best = lengths[int(self.scored(FAMILIES["fixed"]).total_s.argmin())]
        _ = self.replay(f"fixed({best})")  # its times are noted
        return best

    @property
    def best_fixed(self) -> Replayed:
        """The replay of that length; raises as it does."""
        return self.replay(f"fixed({self.best_length})")

    def tuned_fixed(self) -> Replayed:
        """`tuned` over the fixed lengths."""
        return self.tuned(FAMILIES["fixed"])

    def cost_ratio(self) -> float:
        """C = T_target(1) / T_draft(1) at the mean context of the trace's output tokens.

        Raises:
            MissingError: there are no times, or drafting takes none.
        """
        try:
            return self.charge.cost_ratio()
        except CostError as error:
            raise MissingError(str(error)) from None

    @property
    def window(self) -> int:
        """PEARL's γ: round(c), at least 1 and at most the widest that the trace can replay.

        Raises:
            MissingError: see `cost_ratio`.
        """
        return int(np.clip(round(self.cost_ratio()), 1, self.widest))

    @property
    def widest(self) -> int:
        """The widest window of PEARL that the trace can replay."""
        return widest(self.where)

    @property
    def longest_window(self) -> int:
        """Of PEARL's windows that are tried: 10, or two beyond round(c), and at most `widest`.

        Raises:
            MissingError: see `cost_ratio`.
        """
        return min(max(10, round(self.cost_ratio()) + 2), self.widest)

    @property
    def too_wide(self) -> str:
        """Why round(c) is too wide a window for the trace; empty if it is not."""
        c = self.cost_ratio()
        return too_wide(c, self.where) if round(c) > self.widest else ""

    def _alone(self) -> Replayed:
        """Autoregressive decoding, which pays nothing of what a step of speculation does."""
        steps = self.replay("autoregressive")
        if not steps.seconds:
            return steps
        baseline_s = steps.seconds["baseline_s"]
        nothing = dict.fromkeys(PARTS, np.zeros_like(baseline_s))
        alone = nothing | {"verify_s": baseline_s, "baseline_s": baseline_s}
        return replace(steps, seconds=alone, timing=lambda: _of_baseline(steps.timing()))

    def _sums(self, found: Run) -> Replayed:
        policy, name = found.policy, str(found.policy)

        def timing() -> Spread | None:
            if self._charge is None or not self._charge.drawn_anew:
                return None
            if name not in self._spreads:  # replayed anew: a run would hold the trace's columns
                self._spreads[name] = run(policy, *self.where).spread
            return self._spreads[name]

        seconds, beyond = found.seconds or {}, tuple(found.beyond)
        return Replayed(policy, found.counts, seconds, timing=timing, beyond=beyond)

    def _tune(self, specs: tuple[str, ...]) -> Replayed:
        found = [self.scored(spec) for spec in specs]
        policies = [policy for one in found for policy in one.policies]
        others_s = np.concatenate([one.others_s for one in found])
        best, share = chosen(others_s, folds(self.trace), self.trace.n_sequences)
        chosen_by = np.bincount(best, minlength=len(policies))
        order = np.lexsort((others_s.sum(1), -chosen_by))[: np.count_nonzero(chosen_by)]
        runs = [self.replay(str(policies[k])) for k in order]
        shares = [share[int(k)] for k in order]
        return Replayed(
            runs[0].policy,
            means([one.counts for one in runs], shares),
            means([one.seconds for one in runs], shares),
            tuple(one.policy for one in runs),
            tuple(shares),
            runs[0].timing,
            beyond=tuple(beyond for one in runs for beyond in one.beyond),
        )

    def scored(self, spec: str) -> Scored:
        """The settings of a family, each on all prompts, kept.

        Raises:
            MissingError: there are no times, or as `within` does.
        """
        _ = self.charge
        if spec not in self._scores:
            self.study.make_room()
            policies = self.within(spec)
            deals = folds(self.trace)
            others_s, sums = [], []
            for one in replay_all(policies, self.where):
                others_s.append(outside(one.total_s, deals))
                sums.append((one.total_s.sum(), (one.seconds or {})["draft_s"].sum()))
            total_s, draft_s = np.array(sums).T
            self._scores[spec] = Scored(policies, np.array(others_s), total_s, draft_s)
        return self._scores[spec]

    def within(self, spec: str | Policy) -> list[Policy]:
        """The settings, none of them drafting deeper than Γ, or than its head has scored.

        Raises:
            MissingError: see `run`.
            PolicyError: the spec cannot be read.
        """
        deepest, found = self.trace.max_draft, settings(spec)
        for name in sorted({n for policy in found for n in policy.columns(self.trace.sampler)}):
            head = name.removeprefix("score:")
            if head == name:
                continue
            if (known := scores.facts(self.trace, head)) is None:
                raise MissingError(scores.lack(self.trace, head))
            deepest = min(deepest, known.get("head", {}).get("max_draft", deepest))
        shorter = [shortened(policy, deepest) for policy in found]
        kept = [policy for policy in shorter if policy is not None]
        if not kept:
            raise MissingError(f"the trace holds drafts of up to {how_many(deepest, 'token')} only")
        return kept

    def _note(self, beyond: Iterable[Beyond] = ()) -> None:
        if self._charge is not None:
            priced.note(self.trace, self.cost, self._charge, beyond)

    def _given(self, key: str | tuple[str, ...]) -> Replayed:
        """What is kept: its times are noted each time that it is given out."""
        self._note(self._kept[key].beyond)
        return self._kept[key]

    def _keep(self, key: str | tuple[str, ...], found: Replayed) -> None:
        self._kept[key] = found
        while len(self._kept) > max(8, _KEPT // (12 * max(1, self.trace.n_sequences))):
            self._kept.popitem(last=False)


def of(study: Study, cost: AnyCost | None) -> Replays:
    """The replays of a study under a cost; they are kept in it, until the cost's file changes."""
    return study.kept(cost, lambda: Replays(study, cost))


def folds(trace: Trace) -> Deals | None:
    """The prompts' folds, as `simkit.tune` deals them; None for fewer prompts than folds."""
    return folds_of(tasks(trace), trace.prompt_numbers)


def folds_of(strata: np.ndarray, prompt: np.ndarray) -> Deals | None:
    """The folds of some prompts, see `folds`; the arguments are those of `dealt`, (S,) each."""
    enough = len(np.unique(to_deal(prompt))) >= FOLDS
    return dealt(strata, FOLDS, SEED, prompt=prompt) if enough else None


def means(
    sums: Sequence[Mapping[str, np.ndarray]], shares: Sequence[np.ndarray]
) -> dict[str, np.ndarray]:
    """By name, the `mean_of` of the settings that were chosen."""
    return {name: mean_of([one[name] for one in sums], shares) for name in sums[0]}


def tasks(trace: Trace) -> np.ndarray:
    """The task of each sequence, (S,) str."""
    return np.array([task or "no task" for task in trace.sequences["task"].to_pylist()], str)


def each_task(trace: Trace) -> dict[str, np.ndarray]:
    """Each task's prompts as a mask, (S,) bool, in the trace's order."""
    task = tasks(trace)
    return {str(name): task == name for name in dict.fromkeys(task.tolist())}


def groups(trace: Trace) -> dict[str, np.ndarray]:
    """The masks of `each_task`; then one of all prompts, where there are several tasks.

    The last is named "all", or by more words where a task has that name.
    """
    found, overall = each_task(trace), ALL
    while overall in found:
        overall = f"{overall} tasks" if overall == ALL else f"{overall} together"
    return found | {overall: np.ones(trace.n_sequences, bool)} if len(found) > 1 else found


def _of_baseline(spread: Spread | None) -> Spread | None:
    return None if spread is None else Spread(spread.baseline, spread.baseline)
