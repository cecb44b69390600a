"""Kinds of learned heads by name.

A kind is one module of this package, and its line in `BUILT_IN`: a network, and the `Kind` that
says what it is, registered at the module's end. `simkit train`, `simkit score`, live decoding, the
shared tests and the benchmarks take it from here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any

from simkit.errors import HeadError
from traces.registry import Registry

if TYPE_CHECKING:
    from torch import nn

BUILT_IN = ("simkit.heads.acceptance", "simkit.heads.pacer", "simkit.heads.specdecpp")
"""The modules that register this package's kinds; they need torch."""


@dataclass(frozen=True)
class Kind:
    """A kind of head.

    Attributes:
        name: the word that `simkit train` takes.
        policy: the policy it was made for, whose name its scores bear unless told otherwise.
        options: its options, each with its default, which says its type too: a flag, a whole
            number, a positive number or a word. A head that scores rows has "lag": 0 if a token is
            judged from the state that proposed it, 1 if from the one that has consumed it.
        build: the network of a width H and all options, which were checked: of a head that scores
            rows, states (n, H) to logits (n,); of one by start, a `StartHead`.
        by_start: whether it scores each (start, depth), not each row.
        label: of a head that scores rows, the column that it learns.
        mixed_only: of a head that scores rows, whether it trains on the draft's tokens of mixed
            texts alone, where the trace has them.
        limits: of the options that are whole numbers, the least and the most.
        words: of the options that are words, those that there are.
        variants: presets of options by the value of the option "variant".
        learning_rate: what `simkit train` takes unless told otherwise: by the validation loss on
            the bundled pair.
    """

    name: str
    policy: str
    options: Mapping[str, Any]
    build: Callable[[int, Mapping[str, Any]], nn.Module]
    by_start: bool = False
    label: str = "accepted"
    mixed_only: bool = False
    limits: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    words: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    variants: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    learning_rate: float = 1e-3

    def settle(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """All options, given those that differ from the default or from the variant's.

        Raises:
            HeadError: it has no such option, or a value is out of range.
        """
        for name in given:
            if name not in self.options:
                known = ", ".join(self.options)
                raise HeadError(f"the {self.name} head has no option {name} (it has {known})")
        variant = given.get("variant", self.options.get("variant"))
        preset = self.variants.get(variant, {}) if isinstance(variant, str) else {}
        options = {**self.options, **preset, **given}
        self.check(options)
        return options

    def check(self, options: Mapping[str, Any]) -> None:
        """Refuse options that no network should be built of.

        Raises:
            HeadError: one is missing, unknown, of another type or out of range.
        """
        if set(options) != set(self.options):
            raise HeadError(f"its options are not those of {self.name}")
        for name, default in self.options.items():
            if problem := self._problem(name, default, options[name]):
                raise HeadError(f"{name} must be {problem}, not {options[name]!r}")

    def _problem(self, name: str, default: Any, value: Any) -> str | None:
        """What an option's value should be, if it is not that."""
        if isinstance(default, bool):
            return None if isinstance(value, bool) else "true or false"
        if isinstance(default, str):
            fits = isinstance(value, str) and value in self.words[name]
            return None if fits else f"one of {', '.join(self.words[name])}"
        if isinstance(default, int):
            least, most = self.limits[name]
            whole = isinstance(value, int) and not isinstance(value, bool)
            return None if whole and least <= value <= most else f"from {least} to {most}"
        real = isinstance(value, int | float) and not isinstance(value, bool)
        return None if real and 0 < value < float("inf") else "> 0"


def _fits(name: str, thing: object) -> bool:
    return isinstance(thing, Kind) and thing.name == name


KINDS: Registry[Kind] = Registry("kind of head", HeadError, "simkit.heads", _fits)
"""Kinds of heads by name."""


def register(kind: Kind) -> Kind:
    """Make a kind known by its name.

    Raises:
        HeadError: another kind has that name.
    """
    return KINDS.add(kind.name, kind, kind.build)


def names() -> list[str]:
    """All names, those of installed packages too, sorted."""
    _import()
    return sorted(KINDS)


def get(name: str) -> Kind:
    """The kind of that name; raises as `Registry` does."""
    _import()
    return KINDS[name]


def _import() -> None:
    for module in BUILT_IN:
        import_module(module)
