"""Things by name: the project's own, and those that installed packages add by entry points.

Policies, costs, heads, kinds of drafters, figures and claims all have a registry of this one kind.
"""

from __future__ import annotations

import difflib
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Generic, TypeVar, cast

from traces.did_you_mean import missing
from traces.errors import UserError

T = TypeVar("T")


def of_class(base: type) -> Callable[[str, object], bool]:
    """What a registry of classes takes under a name: a class below `base` that has this `name`."""

    def fits(name: str, thing: Any) -> bool:
        return isinstance(thing, type) and issubclass(thing, base) and thing.name == name

    return fits


class Registry(Generic[T]):
    """What there is of one sort. It reads like a mapping whose complaints are for users.

    A package adds a thing by an entry point of the thing's name, which names what `register` takes:
    loading its module registers it. Nothing of another package is loaded before it is asked for,
    nor is what the project itself lists as `own`.

    Args:
        noun: what one is, for messages.
        error: raised where something is wrong.
        group: of entry points.
        fits: whether what a package offers under a name is of this sort, and of that name, so that
            it can be added as it is. Nothing need be where loading a module registers it.
        own: the project's things that are loaded when they are asked for: the name of each, and
            where it is, as an entry point says it.
    """

    def __init__(
        self,
        noun: str,
        error: type[UserError],
        group: str,
        fits: Callable[[str, object], bool],
        own: Mapping[str, str] | None = None,
    ) -> None:
        self.noun = noun
        self.error = error
        self.group = group
        self._fits = fits
        self._things: dict[str, T] = {}
        self._origins: dict[str, str] = dict(own or {})
        self._offers: dict[str, list[EntryPoint]] | None = None

    def add(self, name: str, thing: T, origin: Any = None) -> T:
        """Make a thing known. The same one again, of a module that is run anew, takes its place.

        Args:
            name: of the thing.
            thing: to be had by it.
            origin: the class or function it comes from; the thing itself unless given.

        Raises:
            UserError: another one has that name.
        """
        where = _origin(thing if origin is None else origin)
        if self._origins.get(name, where) != where:
            raise self.error(f"a {self.noun} named {name} exists: {_short(self._origins[name])}")
        self._things[name] = thing
        self._origins[name] = where
        return thing

    def __getitem__(self, name: str) -> T:
        """The thing of that name.

        Raises:
            UserError: there is none, and the message suggests the nearest; or two packages offer
                one; or the package that does cannot be loaded.
        """
        self._check_unique(name)
        if name not in self._things and name in self._origins:
            self._load(EntryPoint(name, self._origins[name], self.group))
        elif name not in self._things and name in self.offers:
            self._load(self.offers[name][0])
        if name not in self._things:
            raise self.error(f"unknown {self.noun} {name!r} ({suggest(name, self.known())})")
        return self._things[name]

    def __contains__(self, name: object) -> bool:
        return name in self._origins or name in self.offers

    def __iter__(self) -> Iterator[str]:
        """Names, other packages' last; warns of what cannot be had."""
        for name in self.known():
            try:
                self[name]
            except UserError as error:
                warnings.warn(str(error), stacklevel=2)
        return iter([name for name in self.known() if name in self._things])

    def __len__(self) -> int:
        return len(list(iter(self)))

    def values(self) -> list[T]:
        """All things; see `__iter__`."""
        return [self._things[name] for name in self]

    def items(self) -> list[tuple[str, T]]:
        """Names and things; see `__iter__`."""
        return [(name, self._things[name]) for name in self]

    def known(self) -> list[str]:
        """All names, also of what was not loaded yet."""
        return list(dict.fromkeys([*self._origins, *self.offers]))

    @property
    def offers(self) -> dict[str, list[EntryPoint]]:
        """Entry points of installed packages, by name; looked up once."""
        if self._offers is None:
            found: dict[str, list[EntryPoint]] = {}
            for point in _installed(tuple(sys.path)).select(group=self.group):
                others = found.setdefault(point.name, [])
                if point.value not in [other.value for other in others]:
                    others.append(point)
            self._offers = found
        return self._offers

    def _check_unique(self, name: str) -> None:
        """Refuse a name that stands for two things.

        Raises:
            UserError: it does, or what a package offers under it cannot be loaded.
        """
        points, own = self.offers.get(name, []), self._origins.get(name)
        there = [point.value for point in points]
        if own is not None and not all(self._is_own(name, point) for point in points):
            there.insert(0, own)
        elif own is not None:
            return
        if len(there) > 1:
            raise self.error(f"two {_plural(self.noun)} are named {name}: {' and '.join(there)}")

    def _is_own(self, name: str, point: EntryPoint) -> bool:
        """Whether an entry point names what is registered, maybe by way of another module."""
        if point.value == self._origins[name]:
            return True
        return self._is(name, self._loaded(point))

    def _is(self, name: str, thing: object) -> bool:
        """Whether a thing is what is registered under a name, or what that was made from."""
        return self._things.get(name) is thing or self._origins.get(name) == _origin(thing)

    def _load(self, point: EntryPoint) -> None:
        """Register what an entry point names, if loading it has not done so."""
        thing = self._loaded(point)
        if point.name in self._things and self._is(point.name, thing):
            return
        if not self._fits(point.name, thing):
            raise self.error(
                f"{self.noun} {point.name}: {point.value} is no {self.noun} of that name"
            )
        self.add(point.name, cast(T, thing))

    def _loaded(self, point: EntryPoint) -> object:
        try:
            return point.load()
        except Exception as error:
            why = " ".join(f"{type(error).__name__}: {error}".split())
            raise self.error(
                f"{self.noun} {point.name}: {point.value} cannot be loaded: {why}"
            ) from None


@cache
def _installed(path: tuple[str, ...]) -> Any:
    """What the packages on a search path offer; all registries share one look at them."""
    return entry_points()


def attribute(package: str, name: str, places: Iterable[str]) -> Any:
    """What a package has under a name, imported only now: for its `__getattr__`.

    Args:
        package: for the message.
        name: that was asked for.
        places: of all that it has so, written as an entry point's value is.

    Raises:
        AttributeError: it is none of these.
    """
    for place in places:
        module, _, inside = place.partition(":")
        if inside == name:
            return getattr(import_module(module), name)
    if name.startswith("__"):  # asked by Python, of every module
        raise AttributeError(f"module {package!r} has no attribute {name!r}")
    raise AttributeError(missing(f"module {package!r}", name, dir(sys.modules[package])))


def suggest(word: str, known: Iterable[str]) -> str:
    """What to add to a complaint about an unknown word: the nearest known one, or all of them."""
    known = sorted(known)
    close = difflib.get_close_matches(word, known, n=1)
    return f"did you mean {close[0]}?" if close else f"known: {', '.join(known) or 'none'}"


def _origin(thing: Any) -> str:
    """Where it is defined, written as an entry point's value is: module:name."""
    module = getattr(thing, "__module__", "")
    if module == "__main__":  # `python -m package.module` is that module
        spec = getattr(sys.modules["__main__"], "__spec__", None)
        module = spec.name if spec is not None else module
    return f"{module}:{getattr(thing, '__qualname__', '')}"


def _short(origin: str) -> str:
    return origin.partition(":")[2]


def _plural(noun: str) -> str:
    return f"{noun[:-1]}ies" if noun.endswith("cy") else f"{noun}s"
