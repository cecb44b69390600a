"""What a fidelity test came to: a row for each policy, pairs of them, and the verdict in words."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

import numpy as np

from simkit.live.summary import Drift
from simkit.simulator.display import grid
from simkit.statistics.enough import few_below
from traces.messages import how_many

MEDIAN_BAR, WORST_BAR = 0.03, 0.08
HEADS = (
    "policy",
    "predicted",
    "measured",
    "error",
    "tokens/step",
    "policy + head, ms/step (predicted)",
    "speedup without them (predicted)",
    "",
)


@dataclass(frozen=True)
class PolicyRow:
    """One policy on the held-out prompts. Speedups are over the target alone.

    Attributes:
        policy: its spec.
        predicted: speedup of the replay.
        predicted_lo: lower end of its bootstrap interval over prompts.
        predicted_hi: upper end.
        measured: speedup on the clock.
        measured_lo: lower end.
        measured_hi: upper end.
        error: predicted / measured - 1.
        error_lo: lower end of its interval (`simkit.fidelity.errors`).
        error_hi: upper end.
        tokens_per_step: replayed, a + 1.
        policy_s: measured seconds of policy and head, a step.
        predicted_policy_s: what the replay charged for them, a step.
        free: predicted speedup if policy and head took no time.
        measured_free: speedup on the clock without the seconds of policy and head.
        sequences: live sequences.
        differing: of these, how many took other steps than the replay.
    """

    policy: str
    predicted: float
    predicted_lo: float
    predicted_hi: float
    measured: float
    measured_lo: float
    measured_hi: float
    error: float
    error_lo: float
    error_hi: float
    tokens_per_step: float
    policy_s: float
    predicted_policy_s: float
    free: float
    measured_free: float
    sequences: int
    differing: int

    @property
    def loss(self) -> str:
        """By which numbers it is slower than the target alone only for its own time, in words."""
        both = {
            "predicted": self.predicted < 1 <= self.free,
            "measured": self.measured < 1 <= self.measured_free,
        }
        return " and ".join(name for name, loses in both.items() if loses)


@dataclass(frozen=True)
class RankedPair:
    """Two policies, paired over the held-out prompts.

    Attributes:
        faster: on the clock.
        slower: on the clock.
        measured: ratio of their times, above 1.
        measured_lo: lower end of its interval, at a level at which all pairs together hold 95%.
        measured_hi: upper end.
        predicted: the same of the replay; below 1, they are ranked the wrong way round.
        distinct: whether the measured difference is outside the noise.
    """

    faster: str
    slower: str
    measured: float
    measured_lo: float
    measured_hi: float
    predicted: float
    distinct: bool


@dataclass(frozen=True)
class FidelityResult:
    """All policies.

    Attributes:
        rows: one a policy.
        median_lo: lower end of the interval of the median absolute error.
        median_hi: upper end.
        pairs: all m pairs of policies. They are distinct where the paired interval of their ratio
            (a bootstrap over prompts, each with all its rounds) leaves out 1 by more than the ratio
            of the two equal arms is from 1. Its level is 1 - 0.05 / m (Bonferroni): of equal
            policies, one comparison in twenty has some distinct pair, however many there are.
        tau: Kendall's, of predicted and measured speedups; NaN for fewer than two policies.
        drifts: of equal arms.
        exact: whether live steps must be the replayed ones: recorded and run in float32 or better.
        notes: how much of the predictions rests on times beyond those that were fitted.
    """

    rows: list[PolicyRow]
    median_lo: float
    median_hi: float
    pairs: list[RankedPair]
    tau: float
    drifts: list[Drift]
    exact: bool
    notes: tuple[str, ...] = ()

    @property
    def median_error(self) -> float:
        """Of absolute relative errors."""
        return float(np.median([abs(row.error) for row in self.rows]))

    @property
    def worst_error(self) -> float:
        """The largest absolute relative error."""
        return max(abs(row.error) for row in self.rows)

    @property
    def distinct(self) -> list[RankedPair]:
        """Pairs that differ by more than the noise."""
        return [pair for pair in self.pairs if pair.distinct]

    @property
    def misranked(self) -> list[RankedPair]:
        """Of these, the pairs that the replay ranks the wrong way round."""
        return [pair for pair in self.distinct if pair.predicted < 1]

    @property
    def differing(self) -> int:
        """Live sequences that took other steps than the replay."""
        return sum(row.differing for row in self.rows)

    @property
    def prompts(self) -> int:
        """Held out; every policy decodes all of them."""
        return max(row.sequences for row in self.rows)

    @property
    def conclusive(self) -> bool:
        """Whether there are equal arms, and they agree."""
        return bool(self.drifts) and all(drift.agrees for drift in self.drifts)

    @property
    def missed(self) -> list[str]:
        """The bars that are missed, in words; where nothing can be concluded, that is one."""
        pairs = how_many(len(self.misranked), "pair is", "pairs are")
        bars = {
            f"the median error is above {MEDIAN_BAR:.0%}": self.median_error > MEDIAN_BAR,
            f"the worst error is above {WORST_BAR:.0%}": self.worst_error > WORST_BAR,
            f"{pairs} ranked the wrong way round": bool(self.misranked),
            "no pair of policies differs by more than the noise": not self.distinct,
            f"{how_many(self.differing, 'live sequence')} took other steps": self.exact
            and self.differing > 0,
            "there are no equal arms": not self.drifts,
        }
        disagreeing = [drift.complaint for drift in self.drifts if not drift.agrees]
        return [what for what, missed in bars.items() if missed] + disagreeing

    @property
    def passes(self) -> bool:
        """Whether no bar is missed."""
        return not self.missed

    def _repr_html_(self) -> str:
        rows = [[cell.strip("`") for cell in cells(row)] for row in self.rows]
        said = "".join(f"<li>{escape(line)}</li>" for line in verdict(self))
        return f"{grid(HEADS, rows)}<ul>{said}</ul>"


def cells(row: PolicyRow) -> tuple[str, ...]:
    """A row of the table."""
    return (
        f"`{row.policy}`",
        f"{row.predicted:.3f} [{row.predicted_lo:.3f}, {row.predicted_hi:.3f}]",
        f"{row.measured:.3f} [{row.measured_lo:.3f}, {row.measured_hi:.3f}]",
        f"{row.error:+.1%} [{row.error_lo:+.1%}, {row.error_hi:+.1%}]",
        f"{row.tokens_per_step:.3f}",
        f"{row.policy_s * 1e3:.3f} ({row.predicted_policy_s * 1e3:.3f})",
        f"{row.measured_free:.3f} ({row.free:.3f})",
        f"slower than no speculation by its decisions ({row.loss})" if row.loss else "",
    )


def verdict(result: FidelityResult) -> list[str]:
    """What the numbers say, a sentence a line."""
    sequences = sum(row.sequences for row in result.rows)
    median = f"{result.median_error:.1%} [{result.median_lo:.1%}, {result.median_hi:.1%}]"
    return [
        f"error of the predicted speedup: median {median}, worst {result.worst_error:.1%}"
        f" (bars: {MEDIAN_BAR:.0%} and {WORST_BAR:.0%})",
        f"Kendall's tau {result.tau:.2f}; {len(result.distinct)} of"
        f" {how_many(len(result.pairs), 'pair')} differ by more than the noise (95% for all of them"
        f" together), {len(result.misranked)} of them are ranked the wrong way round",
        *(
            f"wrong way round: {pair.faster} is {pair.measured:.3f}"
            f" [{pair.measured_lo:.3f}, {pair.measured_hi:.3f}] times as fast as {pair.slower},"
            f" predicted {pair.predicted:.3f}"
            for pair in result.misranked
        ),
        "live steps are the replayed ones in"
        f" {sequences - result.differing} of {how_many(sequences, 'sequence')}",
        *few_below({"held out": result.prompts}),
        *result.notes,
        *(f"control: {drift}" for drift in result.drifts),
        *(f"missed: {bar}" for bar in result.missed),
    ]
