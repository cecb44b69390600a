"""`simkit convert`: a model's folder in the format of an engine."""

from __future__ import annotations

from typing import Annotated

import typer

from simkit.cli.tables import tell


def convert(
    model: Annotated[str, typer.Argument(help="Folder of a Hugging Face model.")],
    to: Annotated[str, typer.Option(help="Format: gguf (llama.cpp) or openvino.")],
    dtype: Annotated[
        str, typer.Option(help="Number format of the matrices: float32 or float16.")
    ] = "float32",
    tokenizer: Annotated[
        str | None,
        typer.Option(
            help="Folder of the tokenizer, if the model's folder has none.", show_default=False
        ),
    ] = None,
) -> None:
    """Write a model in an engine's format into the user's cache, and print where it is."""
    from simkit.engines.run.kept import convert as converted
    from simkit.engines.run.safetensors_file import ModelFolder

    found = converted(ModelFolder.open(model, tokenizer), to, dtype)
    typer.echo(found.path)
    tell(found.notes)
