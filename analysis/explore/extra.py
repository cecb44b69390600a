"""What the explorer's page needs beyond what simkit needs."""

from __future__ import annotations

from importlib.util import find_spec

from traces.errors import UserError

_NEEDED = ("panel", "bokeh")


def need_extra() -> None:
    """Refuse where a library of the page is not installed.

    Raises:
        UserError: as said, with what to install.
    """
    for module in _NEEDED:
        if find_spec(module) is None:
            raise UserError(f"the explorer needs {module}: pip install 'draft-simkit[explore]'")
