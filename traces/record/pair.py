"""Load a target, alone or with a draft, and make sure that they speak of the same tokens."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import constants, try_to_load_from_cache
from huggingface_hub.utils import get_session
from huggingface_hub.utils import logging as hub_logging
from torch import nn
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel
from transformers.utils import logging

from traces import reading
from traces.errors import RecordError, first_line
from traces.record.folder import check_folder, named_tokenizer
from traces.record.forward import embedding
from traces.record.generation import ends
from traces.record.proof import context_len
from traces.record.proof_own import Way, Ways, way_of

DTYPES = {"float32": torch.float32, "float64": torch.float64, "bfloat16": torch.bfloat16}
DTYPES["float16"] = torch.float16

_PATIENCE_S = 5  # with a hub that does not answer
_PROBE = "def f(x):\n\treturn x ** 2  # 3.14, naïve Straße, 東京 🙂\n\n  Question: 17 + 25 = 42."


@dataclass(frozen=True)
class Pair:
    """Two causal LMs over one tokenizer.

    Attributes:
        target: in eval mode.
        draft: in eval mode.
        tokenizer: the target's.
        vocab_size: ids that both models have.
        eos_token_ids: ids that end a text.
        known: the target reads outputs that are known, so that it may be one which packed passes
            read wrongly, see `Alone`; and so may the draft, as with `own`.
        own: both may be such models, which are then read token by token.
    """

    target: PreTrainedModel
    draft: PreTrainedModel
    tokenizer: Any
    vocab_size: int
    eos_token_ids: tuple[int, ...]
    known: bool = False
    own: bool = False

    @property
    def context_len(self) -> int:
        """Tokens of prompt and output that both models can hold."""
        return min(context_len(m.config) for m in (self.target, self.draft))

    def prove(self, longest: int, slots: int = 0) -> Ways:
        """How the models are read in texts of so many tokens; see `way_of`."""
        rolls = "rolls" if self.known or self.own else ""
        draft = way_of(self.draft, longest, slots, rolls)
        return Ways(way_of(self.target, longest, slots, "texts" if self.known else rolls), draft)


@dataclass(frozen=True)
class Alone:
    """A target without a draft model.

    Attributes:
        target: in eval mode.
        tokenizer: its own.
        vocab_size: ids that it has.
        eos_token_ids: ids that end a text.
        alone: no drafter reads it, so that it may be one which packed passes read wrongly, as one
            with a recurrent state: then it reads one text at a time in its own passes.
    """

    target: PreTrainedModel
    tokenizer: Any
    vocab_size: int
    eos_token_ids: tuple[int, ...]
    alone: bool = False

    @property
    def context_len(self) -> int:
        """Tokens of prompt and output that the model can hold."""
        return context_len(self.target.config)

    def prove(self, longest: int, slots: int = 0) -> bool:
        """Whether packed passes read it rightly in texts of so many tokens; see `way_of`."""
        return way_of(self.target, longest, slots, "texts" if self.alone else "") is Way.packed


def load_target(
    target: str,
    device: str = "auto",
    dtype: str = "float32",
    revision: str | None = None,
    alone: bool = False,
) -> Alone:
    """Load a target alone; the arguments are those of `load_pair`, and see `Alone`.

    Raises:
        RecordError: it cannot be loaded, or not be recorded.
    """
    check_dtype(dtype)
    tokenizer = load_tokenizer(target, revision or "")
    return make_alone(load_model(target, revision or "", device, dtype), tokenizer, alone)


def make_alone(target: PreTrainedModel, tokenizer: Any, alone: bool = False) -> Alone:
    """A target that is in memory, without a draft; see `Alone`.

    Raises:
        RecordError: it cannot be recorded.
    """
    vocab_size = embedding(target).num_embeddings
    made = Alone(target.eval(), tokenizer, vocab_size, ends(target, tokenizer).ids, alone)
    made.prove(0)
    return made


def load_pair(
    target: str,
    draft: str,
    device: str = "auto",
    dtype: str = "float32",
    revision: str | None = None,
    known: bool = False,
    own: bool = False,
) -> Pair:
    """Load a pair from local folders or hub ids.

    Where the hub cannot be reached, what its cache holds is loaded, without a wait.

    Args:
        target: folder or hub id.
        draft: folder or hub id.
        device: "cpu", "cuda", "cuda:1" …; "auto" spreads a model over the GPUs there are.
        dtype: one of `DTYPES`.
        revision: of the target on the hub, or "TARGET,DRAFT" for both.
        known: see `Pair`, as `own`.
        own: likewise.

    Raises:
        RecordError: a model cannot be loaded, or the two do not fit.
    """
    check_dtype(dtype)
    first, _, second = (revision or "").partition(",")
    tokenizer = load_tokenizer(target, first)
    tokenizers = tokenizer, _tokenizer_of(draft, second, tokenizer)
    check_tokenizers(*tokenizers)  # before the weights, which take longer
    models = load_model(target, first, device, dtype), load_model(draft, second, device, dtype)
    return make_pair(*models, *tokenizers, known, own)


def with_draft(
    target: Alone, draft: str, dtype: str = "float32", revision: str | None = None
) -> Pair:
    """Load a draft model for a target that is in memory, onto its device; see `load_pair`."""
    _, _, second = (revision or "").partition(",")
    tokenizer = _tokenizer_of(draft, second, target.tokenizer)
    check_tokenizers(target.tokenizer, tokenizer)
    model = load_model(draft, second, str(target.target.device), dtype)
    return make_pair(target.target, model, target.tokenizer, tokenizer)


def quiet() -> None:
    """Keep warnings and progress bars of the libraries off the terminal (of a command)."""
    logging.set_verbosity_error()
    hub_logging.set_verbosity_error()
    logging.disable_progress_bar()


def check_dtype(dtype: str) -> None:
    """Refuse what is none of `DTYPES`, by a RecordError."""
    if dtype not in DTYPES:
        raise RecordError(f"unknown dtype {dtype!r}: use one of {', '.join(DTYPES)}")


def load_tokenizer(name: str, revision: str = "") -> Any:
    """A tokenizer of a folder or hub id.

    Raises:
        RecordError: it cannot be loaded.
    """
    return _load(AutoTokenizer, name, revision)


def _tokenizer_of(draft: str, revision: str, target: Any) -> Any:
    """The draft's tokenizer: its own, or the target's where its folder names it by its hash.

    Raises:
        RecordError: it cannot be loaded, or the one that is named is another one.
    """
    known = named_tokenizer(Path(draft))
    if known is None:
        return load_tokenizer(draft, revision)
    if known != tokenizer_hash(target):
        raise RecordError(
            f"{draft}: the tokenizers differ: its config names one with the hash {known[:16]}, the"
            f" target's has {tokenizer_hash(target)[:16]}"
        )
    return target


def load_model(
    name: str, revision: str, device: str, dtype: str, kind: Any = AutoModelForCausalLM
) -> PreTrainedModel:
    """A model of a folder or hub id, its weights all from safetensors; see `load_pair`.

    Raises:
        RecordError: it cannot be loaded, or its files do not fill it.
    """
    if device == "auto" and torch.cuda.device_count() > 1:
        return _load(kind, name, revision, dtype=DTYPES[dtype], device_map="auto")
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    place = device_named(device)
    if place.type == "cpu":
        # Else transformers copies keys and values for every query head in each pass over several
        # tokens under a mask; torch's kernel for CPUs reads them as they are, to the same bits.
        os.environ.setdefault("TRANSFORMERS_SDPA_FORCE_GQA", "1")
    return _load(kind, name, revision, dtype=DTYPES[dtype]).to(place)


def device_named(name: str) -> torch.device:
    """A device that computes.

    Raises:
        RecordError: there is none of this name here.
    """
    try:
        place = torch.device(name)
        torch.zeros(1, device=place).item()  # the device "meta" computes nothing
    except (RuntimeError, AssertionError, NotImplementedError) as e:
        raise RecordError(f"device {name!r}: {first_line(e)}") from e
    return place


def place_of(pair: Pair | Alone) -> tuple[str, int]:
    """The kind of device that a pair is on, and how many threads sums on a CPU are split over.

    A recording's bytes hang on both, so other processes are told of them.
    """
    return pair.target.device.type, torch.get_num_threads()


def take_threads(n: int) -> None:
    """Split sums on a CPU over so many threads, in this process."""
    torch.set_num_threads(n)


def make_pair(
    target: PreTrainedModel,
    draft: PreTrainedModel,
    tokenizer: Any,
    draft_tokenizer: Any,
    known: bool = False,
    own: bool = False,
) -> Pair:
    """Join two models that are in memory; see `Pair`.

    Raises:
        RecordError: the tokenizers differ, or a model cannot be recorded.
    """
    check_tokenizers(tokenizer, draft_tokenizer)
    vocab_size = min(embedding(m).num_embeddings for m in (target, draft))
    if vocab_size < len(tokenizer) and vocab_size < len(draft_tokenizer):
        raise RecordError(
            f"the tokenizer has {len(tokenizer)} ids, but the models share only {vocab_size} rows"
        )
    found = ends(target, tokenizer).ids
    pair = Pair(target.eval(), draft.eval(), tokenizer, vocab_size, found, known, own)
    pair.prove(0)
    return pair


def check_tokenizers(target: Any, draft: Any) -> None:
    """Refuse two tokenizers that give one id to two tokens, or cut a text in two ways.

    One may know more ids than the other (padding, added tokens); those are beyond the common
    vocabulary.
    """
    tokens = [{i: t for t, i in tokenizer.get_vocab().items()} for tokenizer in (target, draft)]
    for i in sorted(tokens[0].keys() & tokens[1].keys()):
        if tokens[0][i] != tokens[1][i]:
            raise RecordError(
                f"the tokenizers differ: id {i} is {tokens[0][i]!r} for the target "
                f"and {tokens[1][i]!r} for the draft"
            )
    cuts = [t.encode(_PROBE, add_special_tokens=False) for t in (target, draft)]
    shared = min(len(t) for t in tokens) * 0.99
    if cuts[0] != cuts[1] or len(tokens[0].keys() & tokens[1].keys()) < shared:
        raise RecordError(
            "the tokenizers differ: they cut a probe text into "
            f"{len(cuts[0])} and {len(cuts[1])} tokens, or share too few ids"
        )


def weights_hash(model: nn.Module) -> str:
    """sha256 over a model's parameters: names, shapes, dtypes and bytes, in the order of names."""
    digest = hashlib.sha256()
    for name, value in sorted(model.state_dict().items()):
        value = value.detach().contiguous().cpu()
        digest.update(f"{name} {tuple(value.shape)} {value.dtype}\n".encode())
        digest.update(value.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def tokenizer_hash(tokenizer: Any) -> str:
    """sha256 over a tokenizer's vocabulary and its cut of a probe text."""
    text = repr(sorted(tokenizer.get_vocab().items())) + repr(tokenizer.encode(_PROBE))
    return hashlib.sha256(text.encode()).hexdigest()


def _load(kind: Any, name: str, revision: str, **options: Any) -> Any:
    is_path = Path(name).exists() or name.startswith((".", "/", "~"))
    if is_path:
        check_folder(Path(name))
    else:
        reading.refuse_url(name, RecordError)
    revision = revision or "main"
    options["local_files_only"] = offline = not is_path and not _answers(constants.ENDPOINT)
    try:
        if offline and not isinstance(
            try_to_load_from_cache(name, "config.json", revision=revision), str
        ):
            raise RecordError(
                f"{name}: there is no such folder here, it is not in the hub's cache, "
                f"and the hub ({constants.ENDPOINT}) cannot be reached"
            )
        options |= {"revision": revision, "trust_remote_code": False}
        if kind is AutoTokenizer:
            return kind.from_pretrained(name, **options)
        loaded: Any = kind.from_pretrained(
            name, use_safetensors=True, output_loading_info=True, **options
        )
    except RecordError:
        raise
    except MemoryError:
        raise RecordError(f"{name}: cannot be loaded: out of memory") from None
    except Exception as e:  # a config decides what code of a library runs: it raises what it likes
        raise RecordError(f"{name}: cannot be loaded: {first_line(e)}") from e
    except BaseException as e:
        if type(e).__name__ != "PanicException":  # of a library in Rust; it has no class to import
            raise
        raise RecordError(f"{name}: cannot be loaded: {first_line(e)}") from None
    model, found = loaded
    _check_weights(name, found)
    if model.dtype == torch.float64 and hasattr(model, "set_experts_implementation"):
        model.set_experts_implementation("eager")  # the other one has no float64
    return model


def _check_weights(name: str, found: dict[str, Any]) -> None:
    """Refuse a model that its files do not fill: what they lack would be drawn at random."""
    for what, words in (
        ("missing_keys", "are missing"),
        ("mismatched_keys", "have another shape than its config says"),
        ("unexpected_keys", "have no place in it"),
    ):
        keys = sorted(key if isinstance(key, str) else str(key[0]) for key in found.get(what, ()))
        if keys:
            shown = ", ".join(keys[:3]) + (f" and {len(keys) - 3} more" if len(keys) > 3 else "")
            raise RecordError(f"{name}: the weights do not fit the model: {shown} {words}")


@cache
def _answers(hub: str) -> bool:
    """Whether the hub can be reached: asked once, where its own client tries for a minute."""
    try:
        get_session().head(hub, timeout=_PATIENCE_S)
    except Exception:  # its client's errors have other types in each of its versions
        return False
    return True
