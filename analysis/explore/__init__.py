"""The explorer: a trace's policies under sliders, in JupyterLab or a browser.

`model`, `arguments` and `tokens` know no widget; `page` needs Panel, which `[explore]` installs.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

from analysis.study import Study
from simkit.simulator.arguments import AnyCost, AnyTrace
from traces.errors import UserError
from traces.trace import opened

__all__ = ["explore"]

_NEEDED = ("panel", "bokeh")


def explore(
    trace: AnyTrace | Study, drafter: str | None = None, cost: AnyCost | None = None
) -> Any:
    """The explorer of a trace, as a Panel object: the last line of a cell shows it.

    Args:
        trace: a trace, its folder, or a bundled trace's name; or a study.
        drafter: one that was attached to the trace; None means its own.
        cost: see `simkit.replay`.

    Raises:
        UserError: Panel is not installed, or as `simkit.replay` does.
    """
    need_extra()
    import panel as pn

    from analysis.explore.model import ExploreModel
    from analysis.explore.page import Page

    if not isinstance(trace, Study):
        trace = Study(trace if drafter is None else opened(trace).with_drafter(drafter))
    _for_notebooks(pn)
    return Page(ExploreModel(trace, cost)).view


def need_extra() -> None:
    """Refuse where a library of the page is not installed.

    Raises:
        UserError: as said, with what to install.
    """
    for module in _NEEDED:
        if find_spec(module) is None:
            raise UserError(f"the explorer needs {module}: pip install 'draft-simkit[explore]'")


def _for_notebooks(pn: Any) -> None:
    """Load what a cell needs, once."""
    if find_spec("IPython") is None:
        return
    from IPython import get_ipython  # pyright: ignore[reportMissingImports]

    if getattr(get_ipython(), "kernel", None) is not None:
        pn.extension()
