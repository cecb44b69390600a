"""What a shell may complete a word with: names that are known without reading much.

Where no name fits, the shell goes on with files.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import typer


def items(incomplete: str, known: Mapping[str, str]) -> list[Any]:
    """Words that begin so, each with what is said of it, as typer's own classes."""
    from typer._click.shell_completion import CompletionItem

    return [
        CompletionItem(name, help=says)
        for name, says in known.items()
        if name.startswith(incomplete)
    ]


def traces(incomplete: str) -> list[str]:
    """Bundled traces."""
    from traces.finding import bundled

    return _begin(incomplete, bundled())


def policies(incomplete: str) -> list[str]:
    """Policies, of other packages too; none is imported."""
    from simkit.policies.registry import POLICIES

    return _begin(incomplete, sorted(POLICIES.known()))


def costs(incomplete: str) -> list[str]:
    """Kinds of costs, presets, and the word for the list of them."""
    from simkit.costs.presets import PRESETS
    from simkit.costs.registry import COSTS

    return _begin(incomplete, [*sorted(COSTS.known()), *sorted(PRESETS), "list"])


def drafters(incomplete: str) -> list[str]:
    """Drafters that can be attached; none is imported."""
    from traces.attach import registry

    return _begin(incomplete, registry.names())


def figures(incomplete: str) -> list[str]:
    """Figures, of other packages too; to import them takes seconds, so their index is run alone."""
    from importlib.metadata import entry_points
    from runpy import run_path

    index = Path(__file__).parents[2] / "analysis" / "figures" / "index.py"
    names = set(run_path(str(index))["places"]())
    names |= {point.name for point in entry_points(group="simkit.figures")}
    return _begin(incomplete, sorted(names))


def kinds(incomplete: str) -> list[str]:
    """Kinds of things that `simkit list` lists."""
    from simkit.cli.kinds import KINDS

    return _begin(incomplete, KINDS)


def listed(ctx: typer.Context, incomplete: str) -> list[str]:
    """Names of the kind that is being listed."""
    from simkit.cli.kinds import KINDS

    quick = {"policies": policies, "costs": costs, "drafters": drafters, "figures": figures}
    kind = ctx.params.get("kind")
    if kind in quick:
        return quick[kind](incomplete)
    return _begin(incomplete, KINDS[kind].names()) if kind in KINDS else []


def _begin(incomplete: str, names: Iterable[str]) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]
