"""Statistics, tables and figures over traces and replays. No torch here.

`claims`, `compare`, `figures` and `stats` are read when they are first asked for; only `figures`
needs matplotlib.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

from analysis.gap import Gap, gap
from analysis.study import Study
from traces.did_you_mean import misspelt

if TYPE_CHECKING:
    from analysis import claims, compare, figures, stats

_MODULES = ("claims", "compare", "figures", "stats")

__all__ = ["Gap", "Study", "claims", "compare", "figures", "gap", "stats"]


answer = misspelt("analysis", __all__)


def __getattr__(name: str) -> ModuleType:
    if name in _MODULES:
        return import_module(f"analysis.{name}")
    return answer(name)


def __dir__() -> list[str]:
    return sorted(__all__)
