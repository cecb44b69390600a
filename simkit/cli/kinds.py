"""The kinds of things that have names, each with how its names and entries are found."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from simkit.cli.listing import Kind, ListEntry, first_line, of_class, of_source, written
from traces.registry import suggest

if TYPE_CHECKING:
    from simkit.costs.registry import Entry

_NETWORKS = "traces.record."  # of modules that import torch
_TERMS = """\
Tripping token: the token that makes the rule stop; kept means that it is sent to the target.
Score: what the rule reads of a token; with a lag, it reads the token before. State: what the
rule remembers, and how long. Feedback: what it learns from a verified draft."""
"""What the words in every policy's description mean."""


def _policies() -> list[str]:
    from simkit.policies import names

    return names()


def _policy(name: str) -> ListEntry:
    from simkit.policies import get

    entry = of_class(name, get(name))
    return entry._replace(about=f"{entry.about}\n\n{_TERMS}")


def _drafters() -> list[str]:
    from traces.attach import registry

    return registry.names()


def _drafter(name: str) -> ListEntry:
    from traces.attach import registry

    place = registry.BUILT_IN.get(name, "")
    if place.startswith(_NETWORKS):
        return of_source(name, place)
    return of_class(name, registry.get(name))


def _costs() -> list[str]:
    from simkit.costs import catalogue

    return [entry.name for entry in catalogue()]


def _cost(name: str) -> ListEntry:
    from simkit.costs import catalogue
    from simkit.costs.registry import COSTS
    from simkit.errors import CostError

    found = {entry.name: entry for entry in catalogue()}
    if name not in found:
        raise CostError(f"unknown cost {name!r} ({suggest(name, list(found))})")
    entry = found[name]
    whole = of_class(name, COSTS[entry.kind], entry.what, entry.source)
    return whole if name in COSTS else _given(entry, whole)


def _given(entry: Entry, whole: ListEntry) -> ListEntry:
    """A device or a preset: a kind of cost with numbers of its own."""
    from simkit.costs.presets import PRESETS

    preset = PRESETS.get(entry.name)
    given = preset.arguments if preset else {}
    about = "\n\n".join([f"{entry.what}. Source: {entry.source}.", whole.about])
    arguments = {name: written(given[name]) for name in given}
    return whole._replace(arguments=arguments, about=about)


def _controllers() -> list[str]:
    from simkit.serving.controllers import CONTROLLERS

    return list(CONTROLLERS)


def _controller(name: str) -> ListEntry:
    from simkit.serving.controllers import CONTROLLERS

    return of_class(name, CONTROLLERS[name])


def _figures() -> list[str]:
    from analysis.figures import FIGURES

    return list(FIGURES)


def _figure(name: str) -> ListEntry:
    from analysis.figures import FIGURES

    entry = FIGURES[name]
    place = f"{entry.draw.__module__}:{name}"
    return ListEntry(name, None, entry.what, entry.source, f"{entry.what}.", place)


def _claims() -> list[str]:
    from analysis.claims import claims

    return [one.name for one in claims()]


def _claim(name: str) -> ListEntry:
    from analysis.claims.claim import CLAIMS

    one = CLAIMS[name]
    place = f"{one.test.__module__}:{name}"
    source = f"{one.paper}, {one.place}"
    parts = [one.says, f"Statistic: {one.statistic}", f"The paper's value: {one.printed}"]
    return ListEntry(
        name, None, one.says, source, "\n\n".join([*parts, f"Source: {source}."]), place
    )


def _engines() -> list[str]:
    from simkit.engines import ENGINES

    return list(ENGINES)


def _engine(name: str) -> ListEntry:
    from simkit.engines import ENGINES

    cls = ENGINES[name]
    about = (import_module(cls.__module__).__doc__ or cls.__doc__ or "").strip()
    place = f"{cls.__module__}:{cls.__qualname__}"
    return ListEntry(name, None, first_line(about), f"{cls.version}: {cls.source}", about, place)


def _traces() -> list[str]:
    from traces.finding import bundled

    return bundled()


def _trace(name: str) -> ListEntry:
    from traces.card import card
    from traces.finding import find
    from traces.trace import load

    folder, manifest = find(name)
    models = [model.id for model in (manifest.target, manifest.draft) if model is not None]
    what = f"{' with '.join(models)}: {manifest.n_prompts} prompts, {manifest.sampler.words}"
    about = "\n".join(f"{fact}: {said}" for fact, said in card(load(name)))
    return ListEntry(name, None, what, manifest.device or "", about, str(folder))


KINDS = {
    "policies": Kind("policy", "rules that decide when a draft ends", _policies, _policy),
    "drafters": Kind(
        "drafter", "drafters that simkit attach can add to a trace", _drafters, _drafter
    ),
    "costs": Kind("cost", "time models for replays: kinds, devices and presets", _costs, _cost),
    "controllers": Kind(
        "controller",
        "rules for the draft lengths of a batch, for simkit serving",
        _controllers,
        _controller,
    ),
    "figures": Kind("figure", "figures that simkit figures draws", _figures, _figure),
    "claims": Kind("claim", "claims of papers that simkit claims tests", _claims, _claim),
    "engines": Kind("engine", "engines that simkit export writes for", _engines, _engine),
    "traces": Kind("trace", "traces that come with the package", _traces, _trace),
}
"""Kinds by the word that `simkit list` takes."""
