"""Drafting with and without the acceptance head."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes

from analysis.figures.base import Drawn, caption, cells, figure, frame, ink, look, missing, points
from analysis.figures.legends import below
from analysis.figures.tasks import tasks_on
from analysis.labelled_replays import choices, chosen, cost_name, replays, tuned, without
from analysis.papers import acceptance_head as paper
from analysis.replays import FAMILIES, groups
from analysis.speeds import speed
from analysis.stats import clusters
from analysis.study import Study
from simkit.simulator.arguments import AnyCost

PLAIN, PAPERS = "best fixed length", f"w/o head, {paper.WITHOUT}"
ARMS = {"with head, h = 0.95": paper.policy()}
TUNED = {PLAIN: FAMILIES["fixed"], "with head, h tuned": paper.policy(h="0.05:0.95:0.05")}


@figure("acceptance head Fig. 2 and Table 1", draft_model=True)
def acceptance_head(study: Study, ax: Axes, cost: AnyCost | None = None) -> Drawn:
    """Speed with the acceptance head against the best fixed length, by task.

    Beside it stands what the paper compares with: the same drafts without the head, K_max = 6.

    Args:
        study: of a trace with the head's scores.
        ax: to draw on; None makes one.
        cost: see `simkit.replay`.
    """
    trace = study.trace
    runs, _ = replays(study, ARMS, cost)
    plain_runs, why = replays(study, {PAPERS: paper.WITHOUT}, cost)
    families, gone = tuned(study, TUNED, cost)
    plain = families.pop(PLAIN)
    arms = {**runs, **families, **plain_runs}
    masks = groups(trace)
    rows, said = [], []
    for k, (label, one) in enumerate(arms.items()):
        found = [speed(one, plain, some) for some in masks.values()]
        at = np.arange(len(masks)) + (k - (len(arms) - 1) / 2) * 0.2
        points(ax, at, found, label=label, **{**look(k), "linestyle": ""})
        said += missing(found, masks)
        for (task, some), e in zip(masks.items(), found, strict=True):
            both = {"": one.counts, "_without": plain.counts}
            row = {"arm": label, "task": task} | cells(e, "speed")
            for end, counts in both.items():
                steps = counts["steps"][some]
                tau = clusters.ratio(counts["accepted"][some] + steps, steps)
                row |= cells(tau, f"tokens_per_step{end}")
            rows.append(row)
    ax.axhline(1, color=ink(), linewidth=0.8)
    printed = paper.PRINTED_MEAN.speed("with head", "EAGLE-2")
    rows.append({"arm": "paper", "speed": printed})
    tasks_on(ax, masks)
    ax.set(ylabel="speed ÷ speed of the best fixed length")
    below(ax)
    caption(
        ax,
        "What the acceptance head is worth",
        f"Best fixed length: {choices(plain)}. The paper compares with the same drafts without the"
        f" head, {paper.WITHOUT}: {printed:.3f} with it (Table 1, Vicuna 7B, mean).",
        f"n: prompts; tuned: {chosen(trace, by_task=True)}; {cost_name(study, cost)};"
        " bars: 95% over prompts, paired. τ: in the frame.",
    )
    return Drawn("acceptance_head", frame(rows), ax, tuple(said + without(why) + gone))
