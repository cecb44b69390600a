"""What a log of live runs says: speeds, speedups with their intervals, drift. Arrays in and out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from simkit.errors import LiveError
from simkit.live.log import BASELINE
from simkit.statistics.enough import FOR_AGREEMENT
from simkit.statistics.interval import ratio_interval
from traces.messages import how_many

DRIFT = 0.01  # between equal arms; more is a drift, once their interval says so
HIDDEN = 0.03  # what the interval of equal arms must exclude
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Sequences:
    """What each arm took for each prompt.

    Attributes:
        runs: (A,) numbers of the arms.
        names: (A,) what they ran.
        sequences: (P,) numbers of the prompts.
        seconds: (A, P), the median over rounds of a whole sequence's wall time; where outputs
            differ in length (a token may hang on the last bits), scaled to the baseline's length.
        tokens: (A, P), mean tokens that came out.
        steps: (A, P), mean steps.
    """

    runs: np.ndarray
    names: list[str]
    sequences: np.ndarray
    seconds: np.ndarray
    tokens: np.ndarray
    steps: np.ndarray

    def row(self, run: int) -> int:
        """The row of an arm."""
        return int(np.searchsorted(self.runs, run))

    @property
    def baseline(self) -> np.ndarray:
        """Seconds (P,) of the target alone."""
        return self.seconds[self.names.index(BASELINE)]

    def speedup(self, row: int) -> float:
        """Of an arm over the target alone, a ratio of summed times."""
        return float(self.baseline.sum() / self.seconds[row].sum())

    def interval(
        self, top: int, bottom: int, confidence: float = CONFIDENCE
    ) -> tuple[float, float]:
        """The bootstrap interval over prompts of how much faster `bottom` is than `top`."""
        return ratio_interval(self.seconds[top], self.seconds[bottom], confidence, seed=0)


@dataclass(frozen=True)
class Drift:
    """Two arms that ran the same thing: by how much may the machine have favoured one of them?

    A comparison may conclude where the answer is known to be small (a test of equivalence, not of
    difference: a wide interval is no agreement). Two bars follow from those of
    `simkit.fidelity`, errors of predicted speedups of 3% in the median and 8% at worst:

    - the whole 95% interval of the ratio lies within `HIDDEN`, 3%, of 1. A speedup is a ratio of
      two arms too, and the target's is in all of them, so that their median scatters hardly less:
      in a wider interval the machine alone could make, or hide, an error of the smaller bar;
    - the interval does not say that there is a drift of more than `DRIFT`, 1%, a third of the
      smaller bar. A drift is no scatter: no number of prompts or policies takes it out.

    And there are `FOR_AGREEMENT` prompts: with fewer, their own spread is hardly known.

    Attributes:
        name: what they ran.
        ratio: of their times.
        lo: lower end of its 95% interval, a bootstrap over prompts.
        hi: upper end.
        prompts: that both have decoded (with batches: batches).
    """

    name: str
    ratio: float
    lo: float
    hi: float
    prompts: int

    @property
    def differs(self) -> bool:
        """Whether the interval says that they differ by more than `DRIFT`."""
        return self.lo > 1 + DRIFT or self.hi < 1 - DRIFT

    @property
    def agrees(self) -> bool:
        """Whether they are known to differ by less than `HIDDEN`, and no drift shows."""
        known = self.lo >= 1 - HIDDEN and self.hi <= 1 + HIDDEN  # False for NaN
        return bool(known) and not self.differs and self.prompts >= FOR_AGREEMENT

    @property
    def complaint(self) -> str:
        """What to say where they do not agree."""
        if self.differs:
            return (
                f"not conclusive: equal arms differ by more than {DRIFT:.0%}; run it again, and"
                " nothing else beside it"
            )
        if self.prompts < FOR_AGREEMENT:
            return (
                f"not conclusive: equal arms ran {how_many(self.prompts, 'prompt')}, fewer than"
                f" {FOR_AGREEMENT} say too little"
            )
        return (
            f"not conclusive: equal arms may differ by more than {HIDDEN:.0%}; more prompts or"
            " rounds, a quieter machine, or turns by steps (--turns) where they were by sequences"
            " make that known"
        )

    def __str__(self) -> str:
        return f"{self.name} twice: ratio of times {self.ratio:.4f} [{self.lo:.4f}, {self.hi:.4f}]"


def sequences(
    log: pa.Table, runs: Sequence[int] | None = None, prompts: np.ndarray | None = None
) -> Sequences:
    """Times of the whole sequences that every arm has decoded in some round.

    Args:
        log: `traces.schema.LIVE`.
        runs: arms to look at; None: all.
        prompts: numbers of the sequences to look at; None: all.

    Raises:
        LiveError: there is none, or the target alone is not among the arms.
    """
    table = log.filter(pc.field("kind") == "sequence")
    if runs is not None:
        table = table.filter(pc.field("run").isin(list(runs)))
    run, sequence = table["run"].to_numpy(), table["sequence"].to_numpy()
    arms = np.unique(run)
    prompts = np.unique(sequence) if prompts is None else np.unique(prompts)
    for arm in arms:
        prompts = np.intersect1d(prompts, sequence[run == arm])
    policy = np.array(table["policy"].to_pylist(), object)
    names = [str(policy[run == arm][0]) for arm in arms]
    if not len(prompts) or BASELINE not in names:
        raise LiveError("nothing to compare: no prompt was decoded by all arms and the target")
    columns = {name: table[name].to_numpy() for name in ("seconds", "tokens_in", "step")}
    found = {name: np.empty((len(arms), len(prompts))) for name in columns}
    for name, values in columns.items():
        middle = np.median if name == "seconds" else np.mean
        for a, arm in enumerate(arms):
            for p, prompt in enumerate(prompts):
                found[name][a, p] = middle(values[(run == arm) & (sequence == prompt)])
    tokens = found["tokens_in"]
    scale = tokens[names.index(BASELINE)] / tokens
    return Sequences(arms, names, prompts, found["seconds"] * scale, tokens, found["step"])


def drifts(found: Sequences) -> list[Drift]:
    """Each arm that was run again, against the first of its kind."""
    return drifts_of(found.names, found.seconds)


def drifts_of(names: list[str], seconds: np.ndarray) -> list[Drift]:
    """The same, of what arms ran and the seconds (A, P) that each took for each prompt."""
    found = []
    for row, name in enumerate(names):
        first = names.index(name)
        if row > first:
            ratio = float(seconds[row].sum() / seconds[first].sum())
            ends = ratio_interval(seconds[row], seconds[first], CONFIDENCE, seed=0)
            found.append(Drift(name, ratio, *ends, seconds.shape[1]))
    return found


def free_speedup(log: pa.Table, found: Sequences, row: int) -> float:
    """Speedup of an arm over the target alone, had its policy and head taken no time."""
    parts = per_step(log, int(found.runs[row]), found.sequences)
    rule_s = (parts["policy"] + parts["head"]) * found.steps[row].sum()
    return float(found.baseline.sum() / (found.seconds[row].sum() - rule_s))


def losses(log: pa.Table, found: Sequences) -> list[str]:
    """Policies that are slower than the target alone, and would not be without their own time."""
    return [
        name
        for row, name in enumerate(found.names)
        if found.names.index(name) == row
        and found.speedup(row) < 1 <= free_speedup(log, found, row)
    ]


def per_step(log: pa.Table, run: int, prompts: np.ndarray | None = None) -> dict[str, float]:
    """Mean seconds a step of an arm, by kind, of policy, head, and all that no part explains."""
    mine = log.filter(pc.field("run") == run)
    if prompts is not None:
        mine = mine.filter(pc.field("sequence").isin(pa.array(prompts, pa.int32())))
    kind, seconds = np.array(mine["kind"].to_pylist(), object), mine["seconds"].to_numpy()
    steps = np.count_nonzero((kind == "step") & (mine["step"].to_numpy() > 0))
    sums = {k: float(seconds[kind == k].sum()) for k in np.unique(kind)}
    parts = sum(value for k, value in sums.items() if k not in ("step", "sequence"))
    sums = {k: sums.get(k, 0.0) for k in ("draft", "verify", "policy", "head")}
    sums["overhead"] = float(seconds[kind == "step"].sum()) - parts
    return {k: value / max(steps, 1) for k, value in sums.items()}
