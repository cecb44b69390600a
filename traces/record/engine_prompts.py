"""Outputs that an engine produced, as prompts of a recording which follows them."""

from __future__ import annotations

from typing import Any

from traces.engine_outputs import EngineOutput, check_ends
from traces.errors import RecordError
from traces.messages import how_many
from traces.record.prompts import Prompt

_MOST_OTHER = 0.1  # share of texts that a tokenizer may read otherwise


def prompts_of(
    found: list[EngineOutput], tokenizer: Any, vocab_size: int, eos_token_ids: tuple[int, ...]
) -> list[Prompt]:
    """What the target is to read.

    Args:
        found: outputs and their prompts.
        tokenizer: the target's.
        vocab_size: ids that it has.
        eos_token_ids: that end an output.

    Raises:
        RecordError: an id is beyond the vocabulary, an output goes on behind its end, a prompt is
            empty, or the texts that the file has are not what the tokenizer reads.
    """
    for one in found:
        if not one.prompt:
            raise RecordError(f"{one.where}: the prompt has no tokens")
        if (most := max(*one.prompt, *one.output)) >= vocab_size:
            raise RecordError(
                f"{one.where}: token id {most} is outside the vocabulary of {vocab_size}: the"
                " outputs are of another tokenizer"
            )
    check_ends(found, eos_token_ids, RecordError)
    _check_texts(found, tokenizer)
    return [
        Prompt(one.id or str(n), one.task or "default", None, one.prompt, output=one.output)
        for n, one in enumerate(found, 1)
    ]


def _check_texts(found: list[EngineOutput], tokenizer: Any) -> None:
    """Refuse ids that the tokenizer reads as other texts than the engine did.

    An engine may cut a text short: at a stop string, or at half of a letter.
    """
    given = [(one, one.text) for one in found if one.text]
    other = []
    for one, text in given:
        said = text.strip().rstrip("\ufffd")
        reads = [tokenizer.decode(one.output, skip_special_tokens=skip) for skip in (True, False)]
        if not any(whole.strip().startswith(said) for whole in reads):
            other.append(one)
    if len(other) > _MOST_OTHER * len(given):
        raise RecordError(
            f"{other[0].where}: the target's tokenizer reads the output otherwise than its text"
            f" says, in {len(other)} of {how_many(len(given), 'output')}: the outputs are of"
            " another tokenizer"
        )
