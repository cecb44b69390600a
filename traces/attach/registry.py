"""Drafters by name, and by spec."""

from __future__ import annotations

from importlib import import_module

from traces import specs
from traces.attach.drafter import Attachable
from traces.errors import DrafterError
from traces.registry import Registry, of_class, suggest

BUILT_IN = {
    "prompt_lookup": "traces.attach.tokens.prompt_lookup:PromptLookup",
    "ngram": "traces.attach.tokens.ngram:NGram",
    "ngram_simple": "traces.attach.tokens.ngram_simple:NGramSimple",
    "suffix": "traces.attach.tokens.suffix:Suffix",
    "model": "traces.record.drafters.model:ModelDrafter",
    "parallel": "traces.record.drafters.networks:ParallelDrafter",
    "block": "traces.record.drafters.networks:BlockNetwork",
    "feature": "traces.record.drafters.networks:FeatureDrafter",
    "rounds": "traces.record.drafters.rounds:RoundsDrafter",
    "mtp": "traces.record.drafters.networks:MtpLayers",
}
"""Where the project's own are; none is imported before it is asked for, some need torch."""


DRAFTERS: Registry[type[Attachable]] = Registry(
    "drafter", DrafterError, "simkit.attach", of_class(Attachable)
)
"""The classes by name, as far as they were asked for; see `get`."""


def names() -> list[str]:
    """All names, those of installed packages too, sorted."""
    return sorted({*BUILT_IN, *DRAFTERS.known()})


def get(name: str) -> type[Attachable]:
    """The drafter class of that name; the project's own are imported now.

    Raises:
        DrafterError: there is none, and the message suggests the nearest; or what it needs is not
            installed.
    """
    if name in BUILT_IN and name not in DRAFTERS:
        module, _, cls = BUILT_IN[name].partition(":")
        DRAFTERS.add(name, getattr(import_module(module), cls))
    if name not in DRAFTERS:
        raise DrafterError(f"unknown drafter {name!r} ({suggest(name, names())})")
    return DRAFTERS[name]


def parse(text: str) -> Attachable:
    """The drafter of a spec such as `prompt_lookup(length=10)` or `model("models/draft")`.

    Raises:
        DrafterError: the spec cannot be read, names no drafter or argument, or gives a range.
    """
    spec = specs.parse(text, DrafterError)
    if spec.ranges():
        raise DrafterError(f"{text.strip()}: {spec.ranges()[0]} is a range; give one value here")
    return specs.build(spec, get(spec.name), DrafterError)
