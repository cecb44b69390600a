"""Figures: `figures.NAME(trace, ax=None)` draws, and gives the frame of what it drew.

A trace, its folder, a bundled one's name, or a `Study`, with which several figures share replays.

They compute nothing: numbers come from `analysis.stats` and `simkit`. A figure is in the folder of
its paper or topic, which `analysis.figures.index` lists, and is loaded when it is asked for. Those
called `fidelity_…` take a frame of `analysis.fidelity` instead of a trace, and are not in the
registry.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from analysis.figures.base import FIGURES, FigureEntry
from analysis.figures.drawing.styles import FigureError, style
from analysis.figures.drawn import Drawn
from analysis.figures.fidelity import fidelity_prompts, fidelity_speedups
from analysis.figures.index import places
from traces.did_you_mean import misspelt

__all__ = [
    "Drawn",
    "FIGURES",
    "FigureEntry",
    "FigureError",
    "fidelity_prompts",
    "fidelity_speedups",
    "style",
]
if not TYPE_CHECKING:  # a checker takes what `__getattr__` gives
    __all__ += places()

answer = misspelt("analysis.figures", __all__)


def __getattr__(name: str) -> Callable[..., Drawn]:
    if name in places():
        return FIGURES[name].draw
    return answer(name)


def __dir__() -> list[str]:
    return sorted(__all__)
