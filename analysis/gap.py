"""Where the time between the best fixed draft length and the prophet lies."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from analysis.stats.compare import saved
from simkit.errors import ReplayError
from simkit.policies import Policy, Prophet, shortened
from simkit.simulator.arguments import AnyCost, AnyPolicy, AnyTrace, listed, setting
from simkit.simulator.beyond import together
from simkit.simulator.display import grid, noted
from simkit.simulator.run import run
from simkit.statistics.enough import few_below
from simkit.statistics.interval import ratio_interval
from simkit.surface import Framed
from simkit.sweeps.folds import DEALS
from simkit.sweeps.grid import settings
from simkit.sweeps.tuning import BEST, tune

if TYPE_CHECKING:
    import polars as pl

LONGEST = 20  # of the fixed lengths, as in `tune`
NO_GAP = "the best fixed length takes as long as the prophet: no gap to have shares of"


@dataclass(frozen=True, eq=False)
class Gap(Framed):
    """The time between the tuned `fixed` and `prophet`, in parts.

    Attributes:
        frame: one row for each of fixed, prophet, gap, reachable, overhead, unreachable, see
            `parts`: part, its seconds, and these as shares of_fixed and of_gap, each with the ends
            _lo and _hi of its bootstrap interval over prompts. Null where it is not defined: an
            interval of a single prompt, or of_gap where few prompts leave one; of_gap of all parts
            where none does.
        fixed: in how many folds each fixed length was chosen, by the other folds.
        best: the same of all settings.
        notes: what a reader of the numbers should know, one line each.

    >>> from analysis import gap
    >>> cost = "linear(draft_s=1, target_s=10)"
    >>> found = gap("reference", "svip(h=0.4:1.2:0.4)", cost=cost)
    >>> sorted(found.fixed)
    ['fixed(4)', 'fixed(5)']
    """

    frame: pl.DataFrame
    fixed: dict[str, int]
    best: dict[str, int]
    notes: tuple[str, ...] = ()

    def _repr_html_(self) -> str:
        heads = ("part", "seconds", "of the fixed length's time", "of the gap")
        rows = [
            (row["part"], f"{row['seconds']:,.3g}", _share(row, "of_fixed"), _share(row, "of_gap"))
            for row in self.frame.to_dicts()
        ]
        return grid(heads, rows) + noted(self.notes)


def gap(
    trace: AnyTrace,
    candidates: AnyPolicy | Iterable[AnyPolicy],
    cost: AnyCost | None = None,
    folds: int = 5,
    seed: int = 0,
    first_token: Literal["draft", "prefill"] = "draft",
    confidence: float = 0.95,
    deals: int = DEALS,
) -> Gap:
    """Split the gap between the tuned `fixed` and `prophet`.

    Settings are tuned by cross-validation over prompts, see `simkit.sweeps.tune`: `fixed` over all
    lengths up to 20 that were recorded, the best policy over these and the candidates. No draft is
    longer than Γ: behind accepted tokens a trace answers for more, but the fixed lengths end there.

    Args:
        trace: a recorded pair; or its folder, or a bundled trace's name.
        candidates: policies that a drafter can follow; specs may hold ranges. One whose
            `max_draft` is above Γ gets Γ; one that asks for longer drafts is refused.
        cost: see `simkit.replay`.
        folds: of prompts, at least 2.
        seed: of the folds and of the bootstrap.
        first_token: see `simkit.replay`.
        confidence: of the intervals.
        deals: see `simkit.sweeps.tune`.

    Raises:
        ReplayError: a candidate runs both models at once; or as `simkit.sweeps.tune` does.
        PolicyError: a candidate needs the future; or as `simkit.sweeps.tune` does.
        UserError: as `simkit.replay` does; the message names the setting.

    >>> analysis.gap("reference", "svip(h=0.4:1.2:0.4)").frame["part"].to_list()
    ['fixed', 'prophet', 'gap', 'reachable', 'overhead', 'unreachable']
    """
    where = setting(trace, cost, first_token)
    trace = where.layout.trace
    fixed = f"fixed(0:{min(LONGEST, trace.max_draft)})"
    specs, deepest = _within(fixed, listed(candidates), trace.max_draft)
    how = {"folds": folds, "seed": seed, "reference": fixed, "first_token": first_token}
    tuned = tune(trace, specs, cost, confidence=confidence, deals=deals, **how)
    best = BEST if BEST in tuned.held_out else fixed
    decisions_s = tuned.held_out_parts[best]["policy_s"]
    prophet = run(Prophet(max_draft=deepest), *where)
    seconds = parts(tuned.held_out[fixed], tuned.held_out[best], decisions_s, prophet.total_s)
    choices = {choice.spec: choice.folds for choice in tuned.choices}
    notes = [*(where.charge.remarks if where.charge else [])]
    notes += [*together([*tuned.beyond, *prophet.beyond])]
    notes += [*([] if seconds["gap"].any() else [NO_GAP]), *few_below({None: trace.n_sequences})]
    return Gap(_frame(seconds, confidence, seed), choices[fixed], choices[best], tuple(notes))


def _within(
    fixed: str, candidates: Sequence[AnyPolicy], deepest: int
) -> tuple[list[AnyPolicy], int]:
    """The fixed lengths and the candidates, none drafting deeper than Γ; the deepest of them.

    Raises:
        ReplayError: a candidate runs both models at once, or asks for longer drafts.
    """
    specs: list[AnyPolicy] = [fixed, *candidates]
    pool = settings(specs)
    for policy in pool:
        if not policy.takes_turns:
            raise ReplayError(f"{policy} runs both models at once: the prophet does not bound it")
    within: list[Policy] = []
    for policy in pool:
        if (found := shortened(policy, deepest)) is None:
            raise ReplayError(f"{policy} asks for longer drafts than max_draft (Γ) = {deepest}")
        within.append(found)
    if within != pool:
        specs = [fixed, *within[len(settings(fixed)) :]]
    return specs, max(policy.max_draft for policy in within)


def parts(
    fixed_s: np.ndarray, best_s: np.ndarray, best_policy_s: np.ndarray, prophet_s: np.ndarray
) -> dict[str, np.ndarray]:
    """The parts of the gap; reachable + overhead + unreachable = gap = fixed - prophet.

    Differences of rounding alone are 0, so that this holds but for those, see
    `analysis.stats.compare.saved`.

    Args:
        fixed_s: seconds of the tuned `fixed`, for each prompt.
        best_s: seconds of the best policy.
        best_policy_s: of these, those of its decisions and its head.
        prophet_s: seconds of `prophet`.

    Returns:
        For each prompt, in seconds: fixed and prophet; gap; reachable, what the best policy saves
        over `fixed`; overhead, what it would save besides if deciding took no time; unreachable,
        the rest.
    """
    return {
        "fixed": fixed_s,
        "prophet": prophet_s,
        "gap": saved(prophet_s, fixed_s),
        "reachable": saved(best_s, fixed_s),
        "overhead": best_policy_s,
        "unreachable": saved(prophet_s + best_policy_s, best_s),
    }


def _frame(seconds: dict[str, np.ndarray], confidence: float, seed: int) -> pl.DataFrame:
    import polars as pl

    rows = []
    for name, values in seconds.items():
        row: dict[str, str | float] = {"part": name, "seconds": float(values.sum())}
        for whole in ("fixed", "gap"):
            of, share = seconds[whole], f"of_{whole}"
            row[share] = float(values.sum() / of.sum()) if of.sum() > 0 else np.nan
            ends = ratio_interval(values, of, confidence, seed)
            row[f"{share}_lo"], row[f"{share}_hi"] = ends
        rows.append(row)
    return pl.DataFrame(rows).with_columns(pl.selectors.float().fill_nan(None))


def _share(row: dict[str, Any], name: str) -> str:
    value, low, high = (row[key] for key in (name, f"{name}_lo", f"{name}_hi"))
    if value is None:
        return "–"
    return f"{value:.1%}" if low is None else f"{value:.1%} [{low:.1%}, {high:.1%}]"
