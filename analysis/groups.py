"""What figures and claims show side by side: tasks, or spans of the outputs.

One owner of what a group is. A task is some of the prompts. A span is some of each prompt's steps:
a step belongs to the span in which it starts, as in `simkit.replay(by="span")`. So that both are
masks over arrays, a replay by span has one entry for each prompt of each span, then one for each
prompt as a whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np

from analysis.labelled_replays import chosen
from analysis.papers import ALONE
from analysis.replays import ALL, Replayed, Replays, groups
from simkit.simulator.by_span import sums_by_span
from simkit.sweeps.folds import mean_of
from traces import spans
from traces.errors import UserError
from traces.trace import Trace

By = Literal["task", "span"]
WHAT: dict[str, str] = {"task": "tasks", "span": "spans"}


class Groups:
    """The groups of a trace.

    Args:
        trace: of any kind.
        by: "task", or "span", which `simkit spans` has written.

    Attributes:
        masks: entries of each group, by its name; the last is of all, where there are several.

    Raises:
        UserError: no spans were written, or `by` is neither.
    """

    def __init__(self, trace: Trace, by: By = "task") -> None:
        if by not in WHAT:
            raise UserError(f"by must be one of {', '.join(WHAT)}, not {by!r}")
        self.by: By = by
        self._trace = trace
        if by == "task":
            self.masks = groups(trace)
            return
        found = spans.load(trace)
        there, label = np.unique(found.label, return_inverse=True)
        names = [found.names[k] for k in there]
        self._size = n = trace.n_sequences
        self._label = label
        prompt = np.repeat(np.arange(n), np.diff(trace.position_offsets))
        has = np.bincount(label * n + prompt, minlength=n * len(names)) > 0
        blocks = np.arange(n * (len(names) + 1)) // n
        flags = np.concatenate([has, np.ones(n, bool)])
        whole = ALL if ALL not in names else f"{ALL} spans"
        self.masks = {name: (blocks == k) & flags for k, name in enumerate([*names, whole])}

    def of(self, at: Replays, one: Replayed) -> Replayed:
        """A replay with an entry wherever `masks` have one.

        Args:
            at: that gave it.
            one: a policy, or a family with its choices.
        """
        if self.by == "task":
            return one
        shares = one.shares or (np.ones(self._size),)
        runs = one.runs or tuple(at.run(policy) for policy in one.choices or (one.policy,))
        parts = [sums_by_span(run) for run in runs]
        counts = {name: [part.counts[name] for part in parts] for name in parts[0].counts}
        seconds = {name: [part.seconds[name] for part in parts] for name in parts[0].seconds}
        return replace(
            one,
            counts={k: _stacked(v, shares, one.counts[k]) for k, v in counts.items()},
            seconds={k: _stacked(v, shares, one.seconds[k]) for k, v in seconds.items()},
            runs=(),
        )

    def part(self, found: Replayed, name: str) -> Replayed:
        """One span of what `of` gave, (S,) each."""
        begin = list(self.masks).index(name) * self._size
        some = slice(begin, begin + self._size)
        return replace(
            found,
            counts={k: v[some] for k, v in found.counts.items()},
            seconds={k: v[some] for k, v in found.seconds.items()},
        )

    def inside(self, name: str) -> np.ndarray:
        """Which positions are in a span, (R,) bool."""
        return self._label == list(self.masks).index(name)

    def alone(self, at: Replays) -> Replayed:
        """The target alone, as `of` gives a replay."""
        steps = self.of(at, at.replay("autoregressive"))
        nothing = {name: np.zeros_like(values) for name, values in steps.seconds.items()}
        baseline = {name: steps.seconds["baseline_s"] for name in ("verify_s", "baseline_s")}
        seconds = nothing | baseline if steps.seconds else {}
        return replace(steps, seconds=seconds, timing=at.replay(ALONE).timing)

    @property
    def chosen(self) -> str:
        """See `labelled_replays.chosen`."""
        said = chosen(self._trace, by_task=True)
        if self.by == "task":
            return said
        return said.replace("one setting for all tasks,", "arguments")


def _stacked(
    values: Sequence[np.ndarray], shares: Sequence[np.ndarray], whole: np.ndarray
) -> np.ndarray:
    """(S, K) of several choices as one array, span by span, and the whole behind them."""
    spans_of = [mean_of([v[:, k] for v in values], shares) for k in range(values[0].shape[1])]
    return np.concatenate([*spans_of, whole])
