"""What an engine is handed, and what it makes of it: the contract of this package."""

from __future__ import annotations

import json
import shlex
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from simkit.policies import Policy
from traces.errors import UserError
from traces.registry import Registry, of_class

LOOKUPS = ("prompt_lookup", "ngram", "ngram_simple", "suffix")
"""Kinds of drafters that read tokens alone: there is no model to load."""
OFTEN_SHORTER = "are often shorter: such steps would be drawn at rates that count them already"
"""Why drafts of some kinds cannot be accepted at given rates, behind what they are called."""


class EngineError(UserError):
    """A setting cannot be written for an engine."""


class EngineDrafter(NamedTuple):
    """What drafts, in the words of `simkit attach`.

    Attributes:
        kind: "model", "parallel", "feature", "prompt_lookup", "ngram", "suffix", …; "" where the
            trace does not say.
        model: what the engine is to load; None where there is nothing to load, or no name.
        arguments: of the drafter, by name.
    """

    kind: str
    model: str | None
    arguments: Mapping[str, Any]


class EngineSetting(NamedTuple):
    """A setting in words that engines share.

    Attributes:
        length: the longest draft, in tokens; 0 is no speculation.
        drafter: what drafts.
        sampled: whether the drafter draws its tokens.
        policy: a rule by which drafts stop earlier; None: all are that long.
        by_batch: (requests in the batch from which on, length), ascending, the first from 1 on;
            empty: one length whatever the batch.
        gate: (tokens a step, a + 1, below which speculation ends for good, over so many requests).
        ema: SGLang's adaptive rule, by the names of the controller `ema`; None: there is none.
        rates: P(a >= j) for j = 1, …, length, to be drawn in the place of verdicts; empty: none.
        by_confidence: whether what is verified is chosen over the batch, by confidence.

    >>> from simkit.engines.base import EngineDrafter
    >>> engines.EngineSetting(length=3, drafter=EngineDrafter("suffix", None, {})).sampled
    False
    """

    length: int
    drafter: EngineDrafter
    sampled: bool = False
    policy: Policy | None = None
    by_batch: tuple[tuple[int, int], ...] = ()
    gate: tuple[float, int] | None = None
    ema: Any = None
    rates: tuple[float, ...] = ()
    by_confidence: bool = False


class Written(NamedTuple):
    """A configuration.

    Attributes:
        text: of the file.
        beside: texts of files that it names, by what is added to its own name.
        notes: what the engine cannot express, or how the file is used; one line each.

    >>> from simkit.engines.base import EngineDrafter
    >>> setting = engines.EngineSetting(3, EngineDrafter("model", "models/draft", {}))
    >>> engines.ENGINES["openvino"]().write(setting).text.split()
    ['{', '"num_assistant_tokens":', '3', '}']
    """

    text: str
    beside: dict[str, str]
    notes: list[str]


class EngineWriter(ABC):
    """An engine; `ENGINES` holds the classes by name.

    Attributes:
        name: its word.
        version: whose fields and flags these are.
        source: where they were looked up.
        policies: classes of policies that it runs as they are, besides fixed lengths.
        takes: what else of a plan it can express: "by_batch", "gate", "ema", "rates",
            "by_confidence".
        adapts: kinds of drafters with which it takes "by_batch" and "ema"; None: all.
        replaced: kinds of drafters in whose place it drafts in a way of its own.
        default: the policy that it follows with a draft model if nothing else is said; empty: a
            length has to be given.

    >>> "by_batch" in engines.ENGINES["vllm"].takes
    True
    """

    name: ClassVar[str]
    version: ClassVar[str]
    source: ClassVar[str]
    policies: ClassVar[tuple[type[Policy], ...]] = ()
    takes: ClassVar[frozenset[str]] = frozenset()
    adapts: ClassVar[frozenset[str] | None] = None
    replaced: ClassVar[frozenset[str]] = frozenset()
    default: ClassVar[str] = ""

    @abstractmethod
    def write(self, plan: EngineSetting) -> Written:
        """Its configuration.

        Args:
            plan: holds nothing that the engine does not take, see `policies` and `takes`.

        Raises:
            EngineError: it has no such drafter, or no such length.
        """

    def can(self, what: str, drafter: EngineDrafter) -> bool:
        """Whether it can express that of a plan with such a drafter."""
        if what in ("by_batch", "ema") and self.adapts is not None:
            return what in self.takes and drafter.kind in self.adapts
        return what in self.takes

    def runs(self, policy: Policy) -> bool:
        """Whether it runs a policy as it is, which is no fixed length."""
        return isinstance(policy, self.policies)


@dataclass(frozen=True)
class Schema:
    """Fields of a configuration that were looked up; those that are None are left out."""

    def given(self) -> dict[str, Any]:
        """The fields that have a value, in order."""
        every = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in every.items() if value is not None}

    def flags(self, renamed: Mapping[str, str] | None = None) -> str:
        """The command line of the fields; one that is true has no value.

        Args:
            renamed: names in their place; those of fields that are left out are not in it.
        """
        words = []
        for name, value in self.given().items():
            flag = name if renamed is None else renamed.get(name)
            if flag is not None:
                words.append(f"--{flag.replace('_', '-')}")
                words += [] if value is True else [shlex.quote(str(value))]
        return " ".join(words) + "\n"

    def json(self) -> str:
        """The text of a file with these fields."""
        return json.dumps(self.given(), indent=1) + "\n"


def whole(name: str, value: Any, least: int) -> None:
    """Refuse what is no whole number from `least` on; None is none.

    Raises:
        EngineError: as said.
    """
    if value is not None and (type(value) is not int or value < least):
        raise EngineError(f"{name} must be a whole number >= {least}, not {value!r}")


ENGINES: Registry[type[EngineWriter]] = Registry(
    "engine", EngineError, "simkit.engines", of_class(EngineWriter)
)
"""The classes by name."""


def register(cls: type[EngineWriter]) -> type[EngineWriter]:
    """Make an engine known by its `name` (decorator).

    Raises:
        EngineError: another engine has that name.

    >>> @engines.register
    ... class Mine(engines.ENGINES["vllm"]):
    ...     name = "mine"
    >>> "mine" in engines.ENGINES
    True
    """
    return ENGINES.add(cls.name, cls)


def refuse_unknown(engine: str, drafter: EngineDrafter, known: Collection[str]) -> None:
    """Refuse a kind of drafter that has no words there, so that no other kind is written for it.

    Raises:
        EngineError: as said.
    """
    if drafter.kind not in ("", *known):
        raise EngineError(f"{engine}: no setting is known for a drafter like {drafter.kind}")


def unnamed(plan: EngineSetting, placeholder: str) -> list[str]:
    """What to say where nothing names the draft model; `placeholder` stands in its place."""
    if plan.drafter.model is not None:
        return []
    why, folder = "the trace does not name the draft model", plan.drafter.arguments.get("path")
    if folder:
        why = f"drafts were recorded with a folder {Path(folder).name}"
    return [f"{why}: put the draft model in the place of {placeholder}"]
