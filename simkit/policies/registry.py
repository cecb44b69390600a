"""Policies by name, and by spec."""

from __future__ import annotations

import inspect
import warnings
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import TypeVar

from simkit import specs
from simkit.errors import PolicyError
from simkit.policies.base import Policy

PLUGINS = "simkit.policies"
"""The group of entry points by which an installed package adds policies, by name."""

_POLICIES: dict[str, type[Policy]] = {}

P = TypeVar("P", bound=type[Policy])


def register(cls: P) -> P:
    """Make a policy known by its `name` (decorator).

    Raises:
        PolicyError: another policy has that name.
    """
    if cls.name in _POLICIES:
        raise PolicyError(f"a policy named {cls.name} exists: {_POLICIES[cls.name].__qualname__}")
    _POLICIES[cls.name] = cls
    return cls


def names() -> list[str]:
    """All registered names, those of installed packages too, sorted."""
    for name in _plugins():
        if name not in _POLICIES:
            try:
                get(name)
            except PolicyError as error:
                warnings.warn(str(error), stacklevel=2)
    return sorted(_POLICIES)


def get(name: str) -> type[Policy]:
    """The policy class of that name.

    Raises:
        PolicyError: there is none, and the message suggests the nearest; or the package that has
            it cannot be loaded.
    """
    plugins = _plugins()
    if name not in _POLICIES and name in plugins:
        _load(plugins[name])
    if name not in _POLICIES:
        known = _POLICIES | plugins
        raise PolicyError(f"unknown policy {name!r} ({specs.suggest(name, known)})")
    return _POLICIES[name]


@cache
def _plugins() -> dict[str, EntryPoint]:
    """Entry points by name.

    Raises:
        PolicyError: two packages offer a policy of one name, or one offers a name of this one's.
    """
    points: dict[str, EntryPoint] = {}
    for point in entry_points(group=PLUGINS):
        other = points.get(point.name)
        if point.name in _POLICIES or (other is not None and other.value != point.value):
            known = f"{other.value}" if other else f"{_POLICIES[point.name].__qualname__} of simkit"
            raise PolicyError(f"two policies are named {point.name}: {known} and {point.value}")
        points[point.name] = point
    return points


def _load(point: EntryPoint) -> None:
    """Register what an entry point names, a policy class of the same name."""
    try:
        cls = point.load()
    except Exception as error:
        why = " ".join(f"{type(error).__name__}: {error}".split())
        raise PolicyError(f"policy {point.name}: {point.value} cannot be loaded: {why}") from None
    if not (isinstance(cls, type) and issubclass(cls, Policy) and cls.name == point.name):
        raise PolicyError(f"policy {point.name}: {point.value} is no policy of that name")
    if _POLICIES.get(point.name) is not cls:
        register(cls)


def parse(text: str) -> Policy:
    """The policy of a spec such as `fixed(5)`, `svip(h=0.4)` or `oracle()`.

    Raises:
        PolicyError: the spec cannot be read, names no policy or argument, or gives a range.
    """
    spec = specs.parse(text, PolicyError)
    if spec.ranges():
        raise PolicyError(f"{text.strip()}: {spec.ranges()[0]} is a range; give one value here")
    return _build(spec)


def expand(text: str, limit: int = 100_000) -> list[Policy]:
    """The policies of a spec with ranges, such as `svip(h=0.1:1.0:0.05)`; the last varies fastest.

    Raises:
        PolicyError: as in `parse`, or there would be more than `limit` policies.
    """
    spec = specs.parse(text, PolicyError)
    count = 1
    for values in spec.ranges():
        count *= values.count
    if count > limit:
        raise PolicyError(f"{text.strip()} means {count} policies, more than {limit}")
    return [_build(one) for one in spec.expand()]


def _build(spec: specs.Spec) -> Policy:
    cls = get(spec.name)
    arguments = list(inspect.signature(cls).parameters)
    if len(spec.args) > len(arguments):
        raise PolicyError(f"{spec.name} takes {len(arguments)} arguments, not {len(spec.args)}")
    for name in spec.kwargs:
        if name not in arguments:
            hint = specs.suggest(name, arguments)
            raise PolicyError(f"{spec.name} has no argument {name!r} ({hint})")
    given = dict(zip(arguments, spec.args, strict=False))
    twice = given.keys() & spec.kwargs.keys()
    if twice:
        raise PolicyError(f"{spec.name}: {min(twice)} is given twice")
    return cls(**given, **spec.kwargs)
