"""Drafting with and without the acceptance head."""

from __future__ import annotations

from analysis.figures.base import Plot, figure
from analysis.figures.drawing.marks import look
from analysis.figures.drawing.tasks import beside, few_along, tasks_on
from analysis.figures.rows import cells
from analysis.labelled_replays import BEST_FIXED, choices, chosen
from analysis.papers import acceptance_head as paper
from analysis.replays import FAMILIES, groups
from analysis.speeds import speed
from analysis.stats import clusters
from simkit.simulator.arguments import AnyCost

PAPERS = f"w/o head, {paper.WITHOUT}"
ARMS = {"with head, h = 0.95": paper.policy()}
TUNED = {BEST_FIXED: FAMILIES["fixed"], "with head, h tuned": paper.policy(h="0.05:0.95:0.05")}


@figure("acceptance head Fig. 2 and Table 1", draft_model=True)
def acceptance_head(plot: Plot, cost: AnyCost | None = None) -> None:
    """Speed with the acceptance head relative to the best fixed length, by task.

    Beside it stands what the paper compares with: the same drafts without the head, K_max = 6.
    Needs the head's scores.
    """
    runs, without = plot.replays(ARMS, cost), plot.replays({PAPERS: paper.WITHOUT}, cost)
    families = plot.tuned(TUNED, cost)
    plain = families.pop(BEST_FIXED)
    arms, masks = {**runs, **families, **without}, groups(plot.trace)
    found = {
        label: {task: speed(one, plain, some) for task, some in masks.items()}
        for label, one in arms.items()
    }
    first = next(iter(found.values()))
    shown, which = few_along(plot.ax, {task: e.value for task, e in first.items()})
    for k, (label, one) in enumerate(arms.items()):
        here, at = [found[label][task] for task in shown], beside(len(shown), k, len(arms), 0.2)
        plot.points(at, here, shown, label=label, **{**look(k), "linestyle": ""})
        for task, some in masks.items():
            row = {"arm": label, "task": task} | cells(found[label][task], "speed")
            for end, counts in {"": one.counts, "_without": plain.counts}.items():
                steps = counts["steps"][some]
                tau = clusters.ratio(counts["accepted"][some] + steps, steps)
                row |= cells(tau, f"tokens_per_step{end}")
            plot.rows.append(row)
    plot.line_at_1()
    printed = paper.PRINTED_MEAN.speed("with head", "EAGLE-2")
    plot.rows.append({"arm": "paper", "speed": printed})
    tasks_on(plot.ax, {task: masks[task] for task in shown})
    plot.ax.set(ylabel="speed ÷ speed of the best fixed length")
    plot.below()
    plot.caption(
        "What the acceptance head is worth",
        which,
        f"Best fixed length: {choices(plain)}. The paper compares with the same drafts without the"
        f" head, {paper.WITHOUT}, and prints {printed:.3f} (Table 1, Vicuna 7B, mean).",
        f"n: prompts; tuned: {chosen(plot.trace, by_task=True)}; {plot.cost_name(cost)};"
        " bars: 95% CI over prompts, paired. τ is in the frame.",
    )
