"""PACER's tables of one setting varied: its parts, criteria, context, block, growth, threshold."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from analysis.figures.arms import ComparedArms, both, compare, ranked, sweep, swept
from analysis.figures.base import Plot, figure
from analysis.figures.drawn import Drawn
from analysis.labelled_replays import choices, chosen
from analysis.papers import TableRow, pacer
from analysis.replays import ALONE, FAMILIES
from analysis.stats import Estimate
from simkit.simulator.arguments import AnyCost
from traces.messages import how_many


class Varied(NamedTuple):
    """One of PACER's tables, and the figure of it.

    Attributes:
        table: its number.
        what: the figure's docstring.
        title: of the figure.
        head: what is varied, over the table's first column.
        against: the arm that others are compared with.
        arms: its rows.
        axis: the varied value along x; empty where arms are no numbers, and stand in a list.
        pair: the paper's pair, whose times are drawn beside the trace's own.
    """

    table: str
    what: str
    title: str
    head: str
    against: str
    arms: tuple[TableRow, ...]
    axis: str = ""
    pair: str = pacer.DEEPSEEK


_COMPONENTS = (
    TableRow("PACER", pacer.policy(), pacer.TABLE_5["PACER"]),
    TableRow("w/o pos-emb", pacer.policy(head="pacer-no-position"), pacer.TABLE_5["w/o pos-emb"]),
    TableRow("w/o growth", pacer.policy(growth=1.0), pacer.TABLE_5["w/o growth-factor"]),
    TableRow("best fixed", FAMILIES["fixed"], pacer.TABLE_5["Speculative"]),
    TableRow(ALONE, ALONE, pacer.TABLE_5["Vanilla"]),
)
_HEADS = {
    "full context": {},
    "local draft": {"head": "pacer-local-draft"},
    "local block": {"head": "pacer-local-block"},
}
VARIED = {
    "pacer_components": Varied(
        "PACER Table 5",
        "PACER, PACER without one of its parts, and plain speculation with its best fixed length.",
        "What PACER's parts are worth, at the paper's settings",
        "method",
        "PACER",
        _COMPONENTS,
    ),
    "pacer_criteria": Varied(
        "PACER Table 7",
        "Speed of PACER when it stops by the mean, by any, or by the last score of a block.",
        "When PACER stops, at the paper's settings",
        "halting criterion",
        "mean",
        sweep(pacer.TABLE_7, lambda criterion: pacer.policy(criterion=criterion)),
    ),
    "pacer_attention": Varied(
        "PACER Table 8",
        "Speed of PACER whose head sees the whole context, only the draft, or only the block.",
        "What PACER's head attends to, at the paper's settings",
        "context scope",
        "full context",
        tuple(
            TableRow(label, pacer.policy(pacer.HUMANEVAL_LLAMA, **head), pacer.TABLE_8[label])
            for label, head in _HEADS.items()
        ),
        pair=pacer.LLAMA,
    ),
    "pacer_block": Varied(
        "PACER Table 11",
        "Speed of PACER by its block size.",
        "PACER by block size",
        "b",
        "4",
        sweep(pacer.TABLE_11, lambda block: pacer.policy(block=block)),
        "block size b",
    ),
    "pacer_growth": Varied(
        "PACER Table 12",
        "Speed of PACER by its growth factor.",
        "PACER by growth factor",
        "ρ",
        "1.05",
        sweep(pacer.TABLE_12, lambda growth: pacer.policy(growth=growth)),
        "growth factor ρ",
    ),
    "pacer_threshold": Varied(
        "PACER Table 13",
        "Speed of PACER by its threshold.",
        "PACER by threshold",
        "t",
        "0.7",
        sweep(pacer.TABLE_13, lambda threshold: pacer.policy(threshold=threshold)),
        "threshold t",
    ),
}


def _figure(name: str) -> Callable[..., Drawn]:
    one = VARIED[name]

    def draw(plot: Plot, cost: AnyCost | None = None) -> None:
        costs = both(cost, one.pair)
        found = compare(plot.study, one.arms, one.against, costs)
        plot.rows, plot.notes = found.rows, found.notes
        paper = f"{one.table}, HumanEval"
        if one.axis:
            against = f"{one.head} = {one.against}"
            swept(plot.ax, one.arms, found, against, one.axis, paper)
            how = "Other settings are the paper's."
        else:
            ranked(plot.ax, one.arms, found, one.against, paper)
            how = "τ: accepted tokens a step."
        used = {times: costs[times] for times in found.speeds}
        plot.nothing = _nothing(plot, one, found, used)
        plot.caption(
            one.title,
            f"{plot.prompts}; bars: 95% CI over prompts, paired. {how}",
            _best_fixed(plot, used) if one.arms is _COMPONENTS else "",
        )

    draw.__name__ = draw.__qualname__ = name
    draw.__doc__ = f"""{one.what}

    Needs the scores of PACER's heads.

    Args:
        cost: see `simkit.replay`; None draws the trace's own times and those of the paper's pair.
    """
    return figure(one.table, draft_model=True)(draw)


def _nothing(
    plot: Plot, one: Varied, found: ComparedArms, costs: Mapping[str, AnyCost | None]
) -> str:
    """Why the figure says nothing; see `Plot`."""
    mine = [
        e
        for speeds in found.speeds.values()
        for arm, e in zip(one.arms, speeds, strict=True)
        if e is not None and arm.label != one.against and arm.spec.startswith("pacer")
    ]
    if not mine:
        return f"only {one.against} can be replayed, and there is nothing to compare it with"
    best = max(plot.under(cost).best_length for cost in costs.values())
    if best > 1 or any(_differs(e) for e in mine):
        return ""
    return (
        f"the best fixed length is {how_many(best, 'token')}, and no other setting of PACER is"
        " measurably faster or slower"
    )


def _differs(e: Estimate) -> bool:
    """Whether a ratio is not 1: its interval leaves it out, or there is none."""
    lo, hi = (e.value if end is None else end for end in (e.lo, e.hi))
    return lo is not None and hi is not None and not lo <= 1 <= hi


def _best_fixed(plot: Plot, costs: Mapping[str, AnyCost | None]) -> str:
    """The best fixed length under each cost, in words."""
    fixed = {times: plot.under(cost).tuned_fixed() for times, cost in costs.items()}
    lengths = "; ".join(f"{choices(one)}, {times}" for times, one in fixed.items())
    return f"Best fixed: {lengths}; {chosen(plot.trace)}."


pacer_components = _figure("pacer_components")
pacer_criteria = _figure("pacer_criteria")
pacer_attention = _figure("pacer_attention")
pacer_block = _figure("pacer_block")
pacer_growth = _figure("pacer_growth")
pacer_threshold = _figure("pacer_threshold")
