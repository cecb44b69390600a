"""Policies by name, and by spec."""

from __future__ import annotations

from dataclasses import fields
from inspect import cleandoc
from typing import Any, TypeVar

from simkit.errors import PolicyError
from simkit.policies.base import Branching, Policy
from traces import specs
from traces.messages import how_many
from traces.registry import Registry, of_class

P = TypeVar("P", bound=type[Policy])


_CLASSES = {
    "acceptance_head": "AcceptanceHead",
    "adaedl": "AdaEDL",
    "autoregressive": "Autoregressive",
    "confidence": "Confidence",
    "confidence_adaptive": "ConfidenceAdaptive",
    "cumulative_confidence": "CumulativeConfidence",
    "draft_verify": "DraftVerify",
    "fixed": "Fixed",
    "heuristic": "Heuristic",
    "llamacpp": "LlamaCpp",
    "oracle": "Oracle",
    "pacer": "Pacer",
    "pearl": "PEARL",
    "prophet": "Prophet",
    "rate_optimal": "RateOptimal",
    "specdecpp": "SpecDecPP",
    "svip": "SVIP",
}
_TREES = {
    "best_first": "best_first:BestFirstTree",
    "best_rate": "exits:BestRate",
    "eagle2": "eagle2:Eagle2",
    "sequoia": "sequoia:Sequoia",
    "static": "static:StaticTree",
    "tree_acceptance_head": "acceptance_head:TreeAcceptanceHead",
    "tree_prophet": "prophet:TreeProphet",
    "tree_svip": "exits:TreeSVIP",
}
BUILT_IN = {
    **{name: f"simkit.policies.{name}:{cls}" for name, cls in _CLASSES.items()},
    **{name: f"simkit.trees.{place}" for name, place in _TREES.items()},
}
"""Where this package's policies are; a replay imports the few that it names."""

POLICIES: Registry[type[Policy]] = Registry(
    "policy", PolicyError, "simkit.policies", of_class(Policy), BUILT_IN
)
"""Policy classes by the name of their specs."""


def register(cls: P) -> P:
    """Make a policy known by its `name` (decorator).

    Raises:
        PolicyError: another policy has that name.

    >>> @simkit.policies.register
    ... class Mine(simkit.policies.Fixed):
    ...     name = "mine"
    >>> simkit.policies.parse("mine(2)")
    Mine(length=2, max_draft=40)
    """
    POLICIES.add(cls.name, cls)
    if cls.name in BUILT_IN:
        cls.__doc__ = f"{cleandoc(cls.__doc__ or '')}\n\n{_example(cls)}\n"
    return cls


def _example(cls: Any) -> str:
    """A policy by its spec and by its class, with the first argument that has a value."""
    given: list[tuple[str, Any]] = [(f.name, f.default) for f in fields(cls)]
    given = [(name, value) for name, value in given if value is not None][:1]
    spec = specs.render(cls.name, (), dict(given))
    called = ", ".join(f"{name}={value!r}" for name, value in given)
    return f'>>> simkit.policies.parse("{spec}") == simkit.policies.{cls.__name__}({called})\nTrue'


def names() -> list[str]:
    """All registered names, those of installed packages too, sorted.

    >>> simkit.policies.names()[:3]
    ['acceptance_head', 'adaedl', 'autoregressive']
    """
    return sorted(POLICIES)


def chains() -> list[str]:
    """The names of those that draft one token behind another, sorted; the others draft trees.

    >>> "svip" in simkit.policies.chains(), "eagle2" in simkit.policies.chains()
    (True, False)
    """
    return [name for name in names() if not issubclass(POLICIES[name], Branching)]


def get(name: str) -> type[Policy]:
    """The policy class of that name; raises as `Registry` does.

    >>> simkit.policies.get("svip") is simkit.policies.SVIP
    True
    """
    return POLICIES[name]


def parse(text: str) -> Policy:
    """The policy of a spec such as `fixed(5)`, `svip(h=0.4)` or `oracle()`.

    Raises:
        PolicyError: the spec cannot be read, names no policy or argument, or gives a range.

    >>> simkit.policies.parse("svip(h=0.4)")
    SVIP(h=0.4, scale=1.0, max_draft=40)
    """
    spec = specs.parse(text, PolicyError)
    if spec.ranges():
        raise PolicyError(f"{text.strip()}: {spec.ranges()[0]} is a range; give one value here")
    return _build(spec)


def expand(text: str, limit: int = 100_000) -> list[Policy]:
    """The policies of a spec with ranges, such as `svip(h=0.1:1.0:0.05)`; the last varies fastest.

    Raises:
        PolicyError: as in `parse`, or there would be more than `limit` policies.

    >>> [str(policy) for policy in simkit.policies.expand("svip(h=0.2:0.6:0.2)")]
    ['svip(h=0.2)', 'svip(h=0.4)', 'svip(h=0.6)']
    """
    spec = specs.parse(text, PolicyError)
    count = 1
    for values in spec.ranges():
        count *= values.count
    if count > limit:
        raise PolicyError(
            f"{text.strip()} means {how_many(count, 'policy', 'policies')}, more than {limit}"
        )
    return [_build(one) for one in spec.expand()]


def _build(spec: specs.Spec) -> Policy:
    return specs.build(spec, get(spec.name), PolicyError)
