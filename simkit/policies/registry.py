"""Policies by name, and by spec."""

from __future__ import annotations

import inspect
from typing import TypeVar

from simkit.errors import PolicyError, UserError
from simkit.policies.base import Policy
from traces import specs
from traces.registry import Registry, suggest

P = TypeVar("P", bound=type[Policy])


def _fits(name: str, thing: object) -> bool:
    return isinstance(thing, type) and issubclass(thing, Policy) and thing.name == name


POLICIES: Registry[type[Policy]] = Registry("policy", PolicyError, "simkit.policies", _fits)
"""Policy classes by the name of their specs."""


def register(cls: P) -> P:
    """Make a policy known by its `name` (decorator).

    Raises:
        PolicyError: another policy has that name.
    """
    POLICIES.add(cls.name, cls)
    return cls


def names() -> list[str]:
    """All registered names, those of installed packages too, sorted."""
    return sorted(POLICIES)


def get(name: str) -> type[Policy]:
    """The policy class of that name; raises as `Registry` does."""
    return POLICIES[name]


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
            hint = suggest(name, arguments)
            raise PolicyError(f"{spec.name} has no argument {name!r} ({hint})")
    given = dict(zip(arguments, spec.args, strict=False))
    twice = given.keys() & spec.kwargs.keys()
    if twice:
        raise PolicyError(f"{spec.name}: {min(twice)} is given twice")
    missing = [name for name in _needed(cls) if name not in given and name not in spec.kwargs]
    if missing:
        raise PolicyError(f"{spec.name}: {missing[0]} is not given")
    try:
        return cls(**given, **spec.kwargs)
    except UserError:
        raise
    except Exception as error:  # the check of arguments of another package's policy
        why = " ".join(f"{type(error).__name__}: {error}".split())
        raise PolicyError(f"{spec.name}: its arguments are refused: {why}") from None


def _needed(cls: type) -> list[str]:
    """Arguments without a default."""
    found = inspect.signature(cls).parameters.values()
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [a.name for a in found if a.default is a.empty and a.kind not in variable]
