"""Options of commands that run a real engine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from simkit.cli.options import MORE

if TYPE_CHECKING:
    from simkit.engines.run.host import EngineHost
    from simkit.engines.run.recorded import RecordedPart

ENGINE = "Real engines"
"""Title of this group of options in a command's help."""


@dataclass(frozen=True)
class EngineChoice:
    """The engine that is run, and how."""

    engine: Annotated[
        str | None,
        typer.Option(
            rich_help_panel=ENGINE,
            help="Run this engine on the trace's prompts: llama.cpp, openvino or"
            " transformers. It is configured as by simkit export.",
            show_default=False,
        ),
    ] = None
    url: Annotated[
        str | None,
        typer.Option(
            rich_help_panel=ENGINE,
            help="Address of a running llama-server, vLLM or SGLang, http://HOST:PORT.",
            show_default=False,
        ),
    ] = None
    weights: Annotated[
        str,
        typer.Option(
            rich_help_panel=MORE, help="Number format of converted weights: float32 or float16."
        ),
    ] = "float32"
    port: Annotated[
        int | None,
        typer.Option(rich_help_panel=MORE, help="Port of llama-server. Default: a free one."),
    ] = None
    load_limit: Annotated[
        float,
        typer.Option(rich_help_panel=MORE, help="Seconds within which the engine must be ready."),
    ] = 300.0
    time_limit: Annotated[
        float,
        typer.Option(
            rich_help_panel=MORE, help="Seconds within which the engine must answer a prompt."
        ),
    ] = 600.0

    @property
    def given(self) -> bool:
        """Whether an engine is to be run or asked."""
        return self.engine is not None or self.url is not None


def host_of(
    choice: EngineChoice,
    part: RecordedPart,
    target: str | None,
    draft: str | None,
    threads: int | None,
) -> EngineHost:
    """The engine with its models; what takes a while is said on stderr.

    Raises:
        EngineError: see `simkit.engines.run.host.prepared`.
    """
    import sys

    from simkit.cli.tables import tell
    from simkit.engines import EngineError
    from simkit.engines.run.host import EngineOptions, prepared

    if not target:
        raise EngineError("give the folder of the trace's target with --target")
    if choice.port is not None and choice.engine != "llama.cpp":
        raise EngineError("--port can be used only with --engine llama.cpp")
    lookups = part.trace.manifest.draft is None
    if lookups and draft is not None:
        raise EngineError("the trace's drafter runs no model: leave out --draft")
    if not lookups and draft is None:
        raise EngineError("the trace's drafter is a model: give its folder with --draft")
    options = EngineOptions(
        engine=choice.engine or "",
        target=target,
        draft=draft,
        dtype=choice.weights,
        threads=threads,
        port=choice.port,
        limits_s=(choice.load_limit, choice.time_limit),
    )
    found = prepared(options, part, lambda text: print(f"simkit: {text}", file=sys.stderr))
    tell(found.notes)
    return found
