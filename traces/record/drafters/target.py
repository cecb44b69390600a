"""The target of a recording, loaded again, and the outputs that it follows."""

from __future__ import annotations

from transformers import PreTrainedModel

from traces.attach.drafter import Means
from traces.errors import DrafterError
from traces.record.pair import DTYPES, weights_hash
from traces.record.prompts import Prompt
from traces.trace import Trace


def own_dtype(recording: Trace, means: Means) -> str:
    """The dtype to run in: the one that is asked for, or that of the recording."""
    known = means.dtype or recording.manifest.dtype or "float32"
    return known if known in DTYPES else "float32"


def check_target(recording: Trace, target: PreTrainedModel) -> None:
    """Refuse a model that is not the one which was recorded.

    In another dtype its weights are other bytes, and cannot be held against those.

    Raises:
        DrafterError: as said.
    """
    known = recording.manifest.target
    if known is None:
        raise DrafterError(
            f"{recording.path}: no target was recorded: only drafters from tokens can be attached"
        )
    if str(target.dtype).removeprefix("torch.") == known.dtype:
        if weights_hash(target) != known.weights_sha256:
            raise DrafterError(
                f"{target.config._name_or_path}: its weights are not those of {known.id}, whose"
                " outputs were recorded"
            )


def given_outputs(
    recording: Trace, first: int = 0, count: int | None = None
) -> tuple[list[Prompt], list[list[int]]]:
    """Prompts and outputs of some sequences, all unless `count` is given."""
    rows = recording.sequences.slice(first, count).to_pylist()
    prompts = [
        Prompt(row["id"] or str(row["sequence"]), row["task"], row["prompt_text"], tokens)
        for row in rows
        for tokens in [row["prompt_tokens"]]
    ]
    return prompts, [row["output_tokens"] for row in rows]
