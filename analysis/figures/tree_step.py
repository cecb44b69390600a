"""One step's tree, on the text."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes

from analysis.figures.base import COLORS, GREY, Drawn, caption, figure, frame, paper, small
from analysis.spelling import spelling
from analysis.study import Study
from analysis.tree_step import StepTree, step_tree
from analysis.trees import name_of

MOST, LONGEST, BEFORE = 24, 14, 12


@figure("new", trees=True)
def tree_step(
    study: Study,
    ax: Axes,
    policy: str | None = None,
    sequence: int | None = None,
    start: int | None = None,
) -> Drawn:
    """The tree of one step: its verified nodes as tokens, and the path that was accepted.

    Args:
        study: of a trace of trees, or of a recording that has some attached.
        ax: to draw on; None makes one.
        policy: its spec; None: EAGLE-2 with 16 nodes, as wide and deep as it was recorded.
        sequence: index of an output; None chooses, see `analysis.tree_step.step_tree`.
        start: 1-based position in it; None chooses likewise.
    """
    found = step_tree(study, policy, sequence, start, MOST)
    spell = spelling(study.trace)
    heights = _heights(found.parent)
    words = [_shown(spell(int(token))) for token in found.token]
    for k in range(len(words)):
        here, above = found.depth[k], int(found.parent[k])
        own = bool(found.accepted[k])
        if above >= 0:
            line: dict[str, Any] = {"color": COLORS[2] if own else GREY, "zorder": 1}
            ends = [found.depth[above], here], [heights[above], heights[k]]
            ax.plot(*ends, linewidth=2.2 if own else 0.7, **line)
        label = words[k] if above < 0 else f"{words[k]} {_chance(found.chance[k])}"
        box = {"facecolor": "#D9F0E5" if own else paper(), "edgecolor": COLORS[2] if own else GREY}
        box |= {"boxstyle": "round,pad=0.2", "linewidth": 1.2 if own else 0.5}
        weight = "bold" if own else "normal"
        how: dict[str, Any] = {"fontsize": small(), "ha": "center", "va": "center", "bbox": box}
        ax.text(here, heights[k], label, weight=weight, **how)
    deepest = int(found.depth.max())
    ax.set(xlim=(-0.6, deepest + 0.6), ylim=(-heights.max() * 0.04 - 0.6, heights.max() + 0.7))
    ax.set(xticks=range(deepest + 1), xlabel="level; 0: the last known token", yticks=[])
    ax.invert_yaxis()
    ax.grid(visible=False)
    ax.spines["left"].set_visible(False)
    caption(ax, "The tree of one step", *_words(study, found, spell))
    return Drawn("tree_step", _frame(found, words), ax)


def _frame(found: StepTree, words: list[str]) -> Any:
    return frame(
        {
            "node": k,
            "parent": int(found.parent[k]),
            "level": int(found.depth[k]),
            "token": int(found.token[k]),
            "text": words[k],
            "probability": float(found.chance[k]),
            "accepted": bool(found.accepted[k]),
            "sequence": found.sequence,
            "start": found.start,
        }
        for k in range(len(words))
    )


def _words(study: Study, found: StepTree, spell: Any) -> list[str]:
    row = study.trace.sequences.slice(found.sequence, 1).to_pylist()[0]
    output = row["output_tokens"]
    known = [*(row.get("prompt_tokens") or []), *output[: found.start - 1]][-BEFORE:]
    taken, drawn = int(found.accepted.sum()) - 1, len(found.token) - 1
    emitted = output[found.start - 1 : found.start + taken]
    some = "all" if drawn == found.verified else f"{drawn}"
    return [
        f"{name_of(study)}, {found.spec}, output {found.sequence}, position {found.start}:"
        f" {found.drafted} nodes drafted, {found.verified} verified, {some} of these drawn, {taken}"
        " accepted (green). Numbers: probability behind the root.",
        f"Text: …{_joined(known, spell)} ▸ {_joined(emitted, spell)}",
    ]


def _joined(tokens: list[int], spell: Any) -> str:
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
