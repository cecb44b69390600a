"""Whose passes a cost's times are of, compared with the models whose acceptance a trace holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from simkit.errors import CostError
from traces.conditions import TimedModel, conditions
from traces.manifest import MANIFEST, Manifest, read_manifest


class TimedModels(NamedTuple):
    """The models whose passes were timed.

    Attributes:
        target: whose passes verify; None if it is not known.
        draft: whose passes draft; None likewise, or where no model drafts.
        where: what names them, or should: a preset, the atlas, a file.
    """

    target: TimedModel | None
    draft: TimedModel | None
    where: str

    def written(self) -> dict[str, dict[str, object]]:
        """What a cost's file has of them; `read` reads it."""
        return {name: m._asdict() for name in ("target", "draft") if (m := getattr(self, name))}


def read(given: object, file: str) -> TimedModels:
    """The models that a cost's file names.

    Raises:
        CostError: it has something else in their place.
    """
    models: Any = given if isinstance(given, dict) else {"": given}
    for name, facts in models.items():
        fits = isinstance(facts, dict) and facts.keys() == {*TimedModel._fields}
        if name not in ("target", "draft") or not fits or not _typed(TimedModel(**facts)):
            wanted = ", ".join(TimedModel._fields)
            raise CostError(f"models: needs a target or a draft, each with {wanted}")
    named = {name: TimedModel(**facts) for name, facts in models.items()}
    return TimedModels(named.get("target"), named.get("draft"), file)


def _typed(model: TimedModel) -> bool:
    return all(map(isinstance, model, (str, str, str, int)))


def of_samples(samples: pa.Table, file: str | None) -> TimedModels | None:
    """The models of timing samples: those in the samples, or of the trace that the file lies in.

    Args:
        samples: `traces.schema.LATENCY`.
        file: that they were read from; None: the trace that they are used for, whose own samples
            are of its models unless they name others.
    """
    known = conditions(samples)
    target, draft = known.target, known.draft
    if target is None and draft is None:
        if file is None:
            return None
        if (Path(file).parent / MANIFEST).is_file():
            manifest = read_manifest(Path(file).parent)
            target, draft = (
                info and TimedModel.of(info) for info in (manifest.target, manifest.draft)
            )
    return TimedModels(target, draft, file or "its timing samples")


def another_pair(timed: TimedModels | None, manifest: Manifest) -> str:
    """What to say where acceptance and times are, or may be, of different models; else nothing.

    Args:
        timed: None where times were given as numbers, or are the trace's own.
        manifest: of the trace.
    """
    if timed is None:
        return ""
    if timed.target is None and timed.draft is None:
        return f"times may be another pair's: {timed.where} does not name its models"
    theirs = f"times of {_named(timed.target, timed.draft)} ({timed.where})"
    target, draft = (info and TimedModel.of(info) for info in (manifest.target, manifest.draft))
    if target is None:
        return f"times may be another pair's: the trace does not name its target, {theirs}"
    pairs = ((timed.target, target), (timed.draft, draft))
    if all(one is None or other is None or one.same(other) for one, other in pairs):
        return ""
    mine = target.id
    if timed.target is None or timed.target.same(target):
        mine = _named(target, draft or (TimedModel(manifest.spec) if manifest.spec else None))
    return f"acceptance and times are of different pairs: acceptance of {mine}, {theirs}"


def _named(target: TimedModel | None, draft: TimedModel | None) -> str:
    return " with ".join(dict.fromkeys(model.id for model in (target, draft) if model))
