"""What the explorer shows, without a widget: replays under a cost that can be moved."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from analysis.explore.arguments import Argument, arguments
from analysis.explore.tokens import TokenDrafts, TokenText, text_of
from analysis.spelling import spelling
from analysis.study import Study
from simkit.costs.linear import Linear
from simkit.errors import CostError, ReplayError
from simkit.policies import Branching, Fixed, Policy, get, names
from simkit.simulator.arguments import AnyCost
from simkit.simulator.beyond import Beyond
from simkit.simulator.run import Run, run
from traces.errors import UserError

FIXED = 20  # longest of the fixed lengths of the line
RATIO, OVERHEAD = 10.0, 0.1  # where the sliders of a trace without times begin


@dataclass(frozen=True)
class Point:
    """A policy on all prompts.

    Attributes:
        policy: its spec.
        draft_length: mean tokens drafted in a step.
        tokens_per_step: tau, mean of a + 1.
        speedup: over the target alone; None if nothing takes time.
        steps: of all prompts.
        drafted: tokens.
        accepted: tokens.
        beyond: what of its steps lies beyond what was timed.
    """

    policy: str
    draft_length: float
    tokens_per_step: float
    speedup: float | None
    steps: int
    drafted: int
    accepted: int
    beyond: tuple[Beyond, ...]


class ExploreModel:
    """A trace, a cost, and replays under it.

    Args:
        study: of the trace.
        cost: see `simkit.replay`; what counts until `price` is called.

    Raises:
        UserError: as `simkit.replay` does, or no policy can be replayed.
    """

    def __init__(self, study: Study, cost: AnyCost | None = None) -> None:
        self.study = study
        trace = study.trace
        if not trace.manifest.drafter.can("replay"):
            raise ReplayError(f"{trace!r} holds a log of steps: there is nothing to replay")
        if not trace.n_sequences:
            raise ReplayError("the trace is empty")
        self.own = study.charge(cost)
        self.ratio, self.charge = RATIO, self.own
        if self.own is None:
            self.price(RATIO, OVERHEAD)
        else:
            try:
                self.ratio = self.own.cost_ratio()
            except CostError:  # drafts take no time
                self.ratio = math.inf
        self.drafts = TokenDrafts(study.layout)
        self.spell = spelling(trace)
        self.policies = self._usable()
        self._outputs = (trace.recording or trace).sequences

    @property
    def deepest(self) -> int:
        """Γ."""
        return self.study.trace.max_draft

    def price(self, ratio: float, overhead: float) -> None:
        """Take a cost of two numbers: every pass over the target takes one unit of time.

        Args:
            ratio: c, target pass ÷ draft pass.
            overhead: of a step, outside the passes, in target passes.
        """
        self.charge = self.study.charge(
            Linear(draft_s=1 / ratio, target_s=1.0, overhead_s=overhead)
        )

    def price_own(self) -> None:
        """Take the trace's own times, or those of the cost that was given."""
        assert self.own is not None
        self.charge = self.own

    @property
    def remarks(self) -> list[str]:
        """What a reader of speeds under the present cost must know, one line each."""
        return self.charge.remarks if self.charge else []

    def arguments(self, name: str) -> list[Argument]:
        """What can be set of a policy."""
        return arguments(get(name), self.deepest)

    def policy(self, name: str, values: dict[str, Any]) -> Policy:
        """A policy with arguments; raises PolicyError if they do not go together."""
        return get(name)(**values)

    def replay(self, policy: Policy) -> Run:
        """One policy on all prompts, under the cost; raises as `simkit.replay` does."""
        return run(policy, *self.study.where(self.charge))

    def line(self) -> list[Point]:
        """The fixed lengths, from none up to 20 or Γ, as far as they can be replayed."""
        found = []
        for length in range(min(FIXED, self.deepest) + 1):
            try:
                found.append(point(self.replay(Fixed(length))))
            except UserError:  # drafts that an import cut short
                break
        return found

    def text(self, run: Run, index: int) -> TokenText:
        """The output of a prompt, by its place in the trace, as the policy's steps made it."""
        try:
            steps, _ = run.steps((index, index + 1))
        except ReplayError:  # its state lasts the run
            steps, _ = run.steps()
        return text_of(run.bound, self.drafts, steps, index, self.output(index))

    def output(self, index: int) -> list[int]:
        """Ids of a prompt's output tokens; empty if they are not known."""
        recording = self.study.trace.recording or self.study.trace
        if not recording.manifest.drafter.known_outputs:
            return []
        return self._outputs["output_tokens"][index].as_py() or []

    def prompts(self) -> dict[str, list[tuple[int, str]]]:
        """Place in the trace and id of each prompt, by task."""
        columns = self._outputs.column_names
        table = self._outputs.to_pydict() if "id" in columns else {}
        found: dict[str, list[tuple[int, str]]] = {}
        for index, number in enumerate(self._outputs["sequence"].to_pylist()):
            name = table.get("id", [None] * (index + 1))[index]
            task = self._outputs["task"][index].as_py() if "task" in columns else None
            found.setdefault(task or "all", []).append((index, name or str(number)))
        return found

    def prompt(self, index: int) -> str:
        """A prompt's text; empty if the trace has none."""
        if "prompt_text" not in self._outputs.column_names:
            return ""
        return self._outputs["prompt_text"][index].as_py() or ""

    def _usable(self) -> list[str]:
        """Policies that this trace's drafts can follow."""
        found = [name for name in names() if self._fits(name)]
        if not found:
            raise ReplayError("no policy can be replayed on this trace")
        return found

    def _fits(self, name: str) -> bool:
        """Whether a policy is replayed on one prompt without a complaint, columns and all."""
        layout, sampler = self.study.layout, self.study.trace.sampler
        try:
            policy = get(name)()
            if isinstance(policy, Branching):
                return layout.has_trees
            layout.columns(policy.columns(sampler))
            policy.bind(self.study.where(self.charge))
        except (UserError, KeyError):
            return False
        return True


def point(found: Run) -> Point:
    """The sums of a replay."""
    counts = {name: int(values.sum()) for name, values in found.counts.items()}
    steps = max(1, counts["steps"])
    baseline_s = 0.0 if found.seconds is None else float(found.seconds["baseline_s"].sum())
    total_s = 0.0 if found.seconds is None else float(np.sum(found.total_s))
    return Point(
        str(found.policy),
        counts["drafted"] / steps,
        counts["tokens"] / steps,
        baseline_s / total_s if total_s > 0 else None,
        counts["steps"],
        counts["drafted"],
        counts["accepted"],
        tuple(found.beyond),
    )
