"""Options that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1 …")]
Dtype = Annotated[str, typer.Option(help="float32, float64, bfloat16 or float16.")]
TracesDtype = Annotated[str | None, typer.Option(help="Default: the trace's.")]
Revision = Annotated[str | None, typer.Option(help="Hub revision of the target, or TARGET,DRAFT.")]
Threads = Annotated[int | None, typer.Option(help="Of torch on a CPU. Default: its own.")]
Heads = Annotated[
    list[str] | None, typer.Option(help="FILE.safetensors or NAME=FILE.safetensors; repeat it.")
]
