"""A target's own generation settings: its EOS tokens, and what a recording leaves aside."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from transformers import PreTrainedModel

from traces.errors import RecordError, warn
from traces.record.chat import end_of_turn
from traces.record.plan import Plan
from traces.sampler import Sampler

# Settings that do not change which tokens come out, or that the recording replaces (its length).
_NO_MATTER = frozenset(
    "max_length max_new_tokens bos_token_id eos_token_id pad_token_id decoder_start_token_id"
    " use_cache max_cache_len return_dict_in_generate is_assistant max_matching_ngram_size"
    " target_lookbehind speculation_type use_mtp compile_config disable_compile low_memory"
    " prefill_chunk_size transformers_version".split()
)
_NO_MATTER_PREFIXES = ("_", "output_", "cache_", "assistant_", "num_assistant_", "prompt_lookup_")
_NO_MATTER_PREFIXES += ("continuous_batching_",)
_OFF_AT_ONE = frozenset(
    "repetition_penalty encoder_repetition_penalty num_beams num_beam_groups num_return_sequences"
    " length_penalty typical_p guidance_scale".split()
)
_SAMPLER = ("temperature", "top_k", "top_p")
_LONGEST = 60  # characters of a value


class Ends(NamedTuple):
    """The tokens that end an output, ascending, and who names them, `traces.manifest.EosFrom`."""

    ids: tuple[int, ...]
    source: str


def ends(target: PreTrainedModel, tokenizer: Any) -> Ends:
    """The EOS tokens of the target's generation settings, else the tokenizer's."""
    ids = getattr(getattr(target, "generation_config", None), "eos_token_id", None)
    source = "model" if ids is not None else "tokenizer"
    ids = tokenizer.eos_token_id if ids is None else ids
    if ids is None:
        return Ends((), "model")
    return Ends(
        tuple(sorted({int(i) for i in (ids if isinstance(ids, list | tuple) else [ids])})), source
    )


def changed_ends(known: Ends, given: list[str] | None, vocab_size: int) -> Ends:
    """The tokens that end an output where some are given: "+7" adds one, "7" replaces all.

    Raises:
        RecordError: one is no id of the vocabulary, or some add while others replace.
    """
    if not given:
        return known
    adds = {one.startswith("+") for one in given}
    if len(adds) > 1:
        raise RecordError("--eos: +ID adds to the model's own, ID replaces them: use one of both")
    for one in given:
        if not one.removeprefix("+").isdecimal() or not 0 <= int(one) < vocab_size:
            raise RecordError(f"--eos {one}: not a token id of the vocabulary of {vocab_size}")
    ids = {int(one) for one in given} | (set(known.ids) if adds == {True} else set())
    return Ends(tuple(sorted(ids)), "user")


def other_ends(tokenizer: Any, ids: tuple[int, ...], is_chat: bool) -> tuple[int, ...]:
    """Tokens that end a text by the tokenizer, or a chat's turn by its template, but no output."""
    found = {getattr(tokenizer, "eos_token_id", None), end_of_turn(tokenizer) if is_chat else None}
    return tuple(sorted(found - {None, *ids}))  # pyright: ignore[reportArgumentType]


def set_aside(target: PreTrainedModel, sampler: Sampler) -> tuple[str, ...]:
    """Generation settings of the target that a recording with this sampler does not follow.

    Any setting that may change the tokens counts, by whatever name. Sampling settings do if they
    differ from the recording's, but for a model that says `do_sample=False`, which ignores them.

    Returns:
        "NAME=VALUE" each, by name.
    """
    config: Any = getattr(target, "generation_config", None)
    given = {} if config is None else config.to_diff_dict()
    mine = {name: getattr(sampler, name) for name in _SAMPLER}
    found = []
    for name, value in sorted(given.items()):
        if name in _NO_MATTER or name.startswith(_NO_MATTER_PREFIXES):
            continue
        if name == "do_sample":
            is_other = bool(value) and sampler.greedy
        elif name in mine:
            is_other = given.get("do_sample") is not False and value not in (None, mine[name])
        else:
            is_other = bool(value) and not (name in _OFF_AT_ONE and value == 1)
        if is_other:
            found.append(f"{name}={_short(value)}")
    return tuple(found)


def tell(
    target: PreTrainedModel,
    tokenizer: Any,
    plan: Plan,
    ignore_eos: bool,
    others: tuple[int, ...] = (),
) -> None:
    """Warn of what a recording leaves aside, and where its outputs end.

    Args:
        target: the model.
        tokenizer: its own.
        plan: the recording's settings.
        ignore_eos: whether outputs go on behind their ends.
        others: see `other_ends`.
    """
    if aside := set_aside(target, plan.sampler):
        warn(f"not applied: the target's generation_config asks for {', '.join(aside)}")
    found = ends(target, tokenizer)
    if not found.ids:
        warn(
            "neither the target's generation settings nor its tokenizer name an EOS token:"
            " outputs end by length only"
        )
    elif plan.eos_token_ids and (said := _named(tokenizer, others)):
        more = " ".join(f"--eos +{i}" for i in others)
        warn(f"outputs do not end at {said}: {more} would end them there")
    elif found.source == "tokenizer" and plan.eos_token_ids == found.ids and not ignore_eos:
        ids = ", ".join(map(str, found.ids))
        warn(
            "the target's generation settings name no EOS token: outputs end at the tokenizer's,"
            f" {ids}"
        )


def _named(tokenizer: Any, ids: tuple[int, ...]) -> str:
    """Tokens by id and text."""
    return ", ".join(f"{i} ({tokenizer.convert_ids_to_tokens(i)})" for i in ids)


def _short(value: Any) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
