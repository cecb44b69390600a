"""Logs of chats: prompts and outputs as token ids, one JSON object a line.

A record holds `prompt_token_ids` and `output_token_ids`, and may hold `task` and `id`; the forms of
engines are read too, see `traces.engine_outputs`. What the target made of them is not known but the
tokens it said, so the trace has no draft of its own: drafters that propose from tokens alone are
attached to it.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from simkit.errors import ImporterError
from simkit.importers import jsonl
from traces import engine_outputs, reading
from traces.manifest import SourceInfo
from traces.memory import from_outputs
from traces.trace import Trace


def read(file: str | Path, eos_token_ids: Collection[int] = ()) -> Trace:
    """The outputs of a file, in its order, as a recording of the target alone.

    Args:
        file: JSON lines.
        eos_token_ids: tokens that end an output. Drafts end there too; the file does not say which
            they are.

    Raises:
        ImporterError: the file cannot be read, a record has wrong fields, or an EOS token is not
            the last of its output.
    """
    eos = _checked(eos_token_ids)
    found = engine_outputs.read(file, ImporterError, eos)
    columns = {
        "id": [one.id for one in found],
        "task": [one.task for one in found],
        "prompt_tokens": [one.prompt for one in found],
        "output_tokens": [one.output for one in found],
        "finish_reason": ["eos" if one.output[-1] in eos else "unknown" for one in found],
    }
    return from_outputs(
        columns,
        max_new_tokens=max(map(len, columns["output_tokens"])) + jsonl.ROOM,
        eos_token_ids=sorted(eos),
        source=SourceInfo(Path(file).name, reading.file_hash(file, ImporterError)),
    )


def _checked(eos_token_ids: Collection[int]) -> set[int]:
    for token in eos_token_ids:
        if not 0 <= token < 2**31:
            raise ImporterError(f"an EOS token must be from 0 to {2**31 - 1}, not {token}")
    return set(eos_token_ids)
