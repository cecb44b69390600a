"""One step's tree, on the text."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from analysis.figures.base import Plot, figure
from analysis.figures.drawing.marks import COLORS
from analysis.figures.drawing.styles import GREY, paper, small
from analysis.spelling import spelling
from analysis.tree_step import StepTree, step_tree
from analysis.trees import name_of
from traces.messages import how_many

MOST, LONGEST, BEFORE = 24, 14, 12
Spell = Callable[[int], str]


@figure("new", trees=True)
def tree_step(
    plot: Plot, policy: str | None = None, sequence: int | None = None, start: int | None = None
) -> None:
    """The tree of one step: its verified nodes as tokens, and the accepted path.

    Args:
        policy: its spec; None: EAGLE-2 with 16 nodes, as wide and deep as it was recorded.
        sequence: index of an output; None chooses, see `analysis.tree_step.step_tree`.
        start: 1-based position in it; None chooses likewise.
    """
    ax, found = plot.ax, step_tree(plot.study, policy, sequence, start, MOST)
    spell = spelling(plot.trace)
    heights = _heights(found.parent)
    words = [_shown(spell(int(token))) for token in found.token]
    for k, word in enumerate(words):
        _node(plot, found, k, heights, word)
    deepest = int(found.depth.max())
    ax.set(xlim=(-0.6, deepest + 0.6), ylim=(-heights.max() * 0.04 - 0.6, heights.max() + 0.7))
    ax.set(xticks=range(deepest + 1), xlabel="level; 0: the last known token", yticks=[])
    ax.invert_yaxis()
    ax.grid(visible=False)
    ax.spines["left"].set_visible(False)
    plot.caption("The tree of one step", *_words(plot, found, spell))


def _node(plot: Plot, found: StepTree, k: int, heights: np.ndarray, word: str) -> None:
    """One node as a box with its token, and the line from its parent; its row."""
    here, above, own = found.depth[k], int(found.parent[k]), bool(found.accepted[k])
    color = COLORS[2] if own else GREY
    if above >= 0:
        ends = [found.depth[above], here], [heights[above], heights[k]]
        plot.ax.plot(*ends, linewidth=2.2 if own else 0.7, color=color, zorder=1)
    label = word if above < 0 else f"{word} {_chance(found.chance[k])}"
    box = {"facecolor": "#D9F0E5" if own else paper(), "edgecolor": color}
    box |= {"boxstyle": "round,pad=0.2", "linewidth": 1.2 if own else 0.5}
    how = {"fontsize": small(), "ha": "center", "va": "center", "bbox": box}
    plot.ax.text(here, heights[k], label, weight="bold" if own else "normal", **how)
    row = {"node": k, "parent": above, "level": int(here), "token": int(found.token[k])}
    row |= {"text": word, "probability": float(found.chance[k]), "accepted": own}
    plot.rows.append(row | {"sequence": found.sequence, "start": found.start})


def _words(plot: Plot, found: StepTree, spell: Spell) -> list[str]:
    row = plot.trace.sequences.slice(found.sequence, 1).to_pylist()[0]
    output = row["output_tokens"]
    known = [*(row.get("prompt_tokens") or []), *output[: found.start - 1]][-BEFORE:]
    taken, drawn = int(found.accepted.sum()) - 1, len(found.token) - 1
    emitted = output[found.start - 1 : found.start + taken]
    some = "all" if drawn == found.verified else f"{drawn}"
    return [
        f"{name_of(plot.study)}, {found.spec}, output {found.sequence}, position {found.start}:"
        f" {how_many(found.drafted, 'node')} drafted, {found.verified} verified, {some} of"
        f" these drawn, {taken}"
        " accepted (green). Numbers: the draft's probability of the path.",
        f"Text: …{_joined(known, spell)} ▸ {_joined(emitted, spell)}",
    ]


def _joined(tokens: list[int], spell: Spell) -> str:
    return "".join(spell(int(token)) for token in tokens).replace("\n", "↵")


def _heights(parent: np.ndarray) -> np.ndarray:
    """Where nodes stand: leaves below each other in order, others amid their children."""
    children: list[list[int]] = [[] for _ in parent]
    for k, above in enumerate(parent.tolist()):
        if above >= 0:
            children[above].append(k)
    heights, leaves = np.zeros(len(parent)), 0
    stack, order = [0], []
    while stack:
        node = stack.pop()
        order.append(node)
        stack += reversed(children[node])
    for node in order:
        if not children[node]:
            heights[node] = leaves
            leaves += 1
    for node in reversed(order):
        if children[node]:
            heights[node] = heights[children[node]].mean()
    return heights


def _chance(value: float) -> str:
    return f"{value:.2f}"[1:] if value < 0.995 else "1"


def _shown(piece: str) -> str:
    """A token in a box: spaces and line ends are seen, long ones cut."""
    seen = piece.replace("\n", "↵").replace("\t", "⇥").replace(" ", "␣")
    return seen if len(seen) <= LONGEST else f"{seen[: LONGEST - 1]}…"
