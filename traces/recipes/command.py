"""What the commands here share: their parser, what they say, and files of arrays."""

from __future__ import annotations

import argparse
import io
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from traces.outputs import write_atomic


def parser_of(doc: str | None) -> argparse.ArgumentParser:
    """A parser that shows a module's docstring as it stands."""
    return argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )


def say(line: str) -> None:
    """Tell of the progress at once."""
    print(line, flush=True)


def write_arrays(file: Path, arrays: Mapping[str, np.ndarray], compressed: bool = False) -> None:
    """A NumPy file of several arrays, whole or not at all."""
    data = io.BytesIO()
    (np.savez_compressed if compressed else np.savez)(data, **arrays)  # type: ignore[arg-type]
    write_atomic(file, data.getvalue())
