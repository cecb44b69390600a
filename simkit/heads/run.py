"""What `simkit train` and `simkit score` do."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import asdict
from importlib.metadata import version
from typing import Any

from simkit.drafters.path import PathLayout
from simkit.errors import HeadError
from simkit.heads import files, nodes, registry, scoring, states, training
from simkit.heads.evaluate import evaluate
from simkit.heads.files import Head
from simkit.heads.nodes import Models
from simkit.heads.training import TrainingSettings
from simkit.heads.training_data import Material, RecordedRows
from traces import scores
from traces.manifest import Manifest
from traces.trace import Trace

_MIXES = {"code": 0.15}  # of the variants, where it is not the paper's
_LIBRARIES = ("torch", "numpy", "safetensors", "scikit-learn")


def train(
    kind: str,
    trace: Trace,
    options: Mapping[str, Any],
    settings: TrainingSettings,
    on_epoch: Callable[[int, float, float], None] = lambda epoch, train, validation: None,
    models: Models | None = None,
    mix: float | None = None,
) -> Head:
    """Train a head on a trace and judge it on prompts that were held out.

    Args:
        kind: one of `registry.names()`.
        trace: recorded with hidden states; or of an attached drafter, with `models`.
        options: those of its kind that differ from the default, or from its variant's. A max_depth
            that is not given is at most the recorded Γ.
        settings: how to train.
        on_epoch: told its number from 1, the mean training loss and the validation loss, nats.
        models: with which the attached drafter is run again; None: the states are in the trace.
        mix: of mixed texts' tokens, the share that is the drafter's; None takes the paper's, or
            that of the public code for the variant "code"; 0: of drafts behind the target's own
            text, as they are read when drafting. Of a recording it is the recording's.

    Raises:
        HeadError: an unknown kind or option, no hidden states, or training failed.
    """
    settled = _settled(kind, options, trace.max_draft)
    more: dict[str, Any] = {}
    if models is None:
        _check_recorded(trace, mix)
        material: Material = RecordedRows(PathLayout(trace), states.read(trace))
    else:
        more["mix"] = _MIXES.get(str(settled.get("variant")), nodes.SHARE) if mix is None else mix
        material = nodes.read_drafts(trace, models, more["mix"], settings.seed)
    parts = training.split(trace, settings)
    head, how = training.train(kind, settled, material, parts, settings, on_epoch)
    counts = {f"{name}_prompts": int(part.sum()) for name, part in parts._asdict().items()}
    facts = {
        "trained_on": _models(trace.manifest) | {"trace": trace.hash},
        "training": asdict(settings) | how | counts | more,
        "metrics": evaluate(head, material, parts),
        "libraries": {name: version(name) for name in _LIBRARIES},
    }
    return Head(head.kind, head.width, head.options, head.module, facts)


def _check_recorded(trace: Trace, mix: float | None) -> None:
    """Refuse what has no states of its own, and a mix beside the recording's."""
    if trace.recording is not None:
        raise HeadError(f"{trace.path} is an attached drafter, which must run again: give --target")
    if mix is not None:
        raise HeadError(
            "--mix is only for attached drafters; a recording has its own (record --mix)"
        )


def _settled(kind: str, options: Mapping[str, Any], max_draft: int) -> dict[str, Any]:
    """All options of a head; a max_depth that is not given is at most `max_draft`."""
    settled = dict(registry.get(kind).settle(options))
    if "max_depth" in settled and "max_depth" not in options:
        settled["max_depth"] = min(settled["max_depth"], max_draft)
    return settled


def score(
    trace: Trace,
    head: Head,
    name: str | None = None,
    recording: Trace | None = None,
    max_draft: int = 40,
    on_sequence: Callable[[], None] = lambda: None,
    models: Models | None = None,
) -> str | None:
    """Write a head's score table into a trace's folder, unless it is there.

    Scores are rounded as the trace's statistics are.

    Args:
        trace: in a folder.
        head: of the same pair of models.
        name: of the scores; None takes the name of the head's policy.
        recording: where the hidden states are, if not in the trace.
        max_draft: deepest token that a head by (start, depth) scores.
        on_sequence: told when a sequence is scored.
        models: with which a drafter of trees is run again; of other traces None.

    Returns:
        the name, or None if this head's scores of that name were there already.

    Raises:
        HeadError: the head does not fit the trace, or there are no hidden states.
        TraceError: the trace cannot be written.
    """
    name = name or registry.get(head.kind).policy
    if not re.fullmatch(r"[\w.@+-]+", name):
        raise HeadError(f"{name!r} cannot be the name of scores: letters, digits and . @ + - only")
    assert trace.path is not None
    files.check_fits(head, trace.manifest, str(trace.path))
    about = _about(trace, head, max_draft)
    if scores.facts(trace, name) == {"trace": trace.hash, "head": about}:
        return None
    values: scores.Scores
    if trace.manifest.kind == "tree":
        if models is None:
            raise HeadError(
                f"{trace.path}: its drafter must run again over the trees: give --target"
            )
        values = nodes.score_nodes(trace, head, models, on_sequence)
    else:
        _refuse_models(trace, models)
        found = states.read(trace, recording)
        values = scoring.score(head, PathLayout(trace), found, max_draft, on_sequence=on_sequence)
    scores.save(trace.path, trace, name, values, about, trace.manifest.bits)
    return name


def _refuse_models(trace: Trace, models: Models | None) -> None:
    if models is not None:
        raise HeadError(
            f"{trace.path} holds no trees: name a drafter of trees with --drafter; or leave out"
            " --target, and score the states of a recording made with --hidden"
        )


def _about(trace: Trace, head: Head, max_draft: int) -> dict[str, str | int]:
    """What scores are kept with: the head, and what else they hang on."""
    about: dict[str, str | int] = {"kind": head.kind, "hash": head.hash}
    if head.lag:
        about["lag"] = head.lag
    if head.by_start:
        about["max_draft"] = max_draft
    if trace.manifest.bits:
        about["bits"] = trace.manifest.bits
    return about


def _models(manifest: Manifest) -> dict[str, Any]:
    models = {f"{name}_sha256": getattr(manifest, name) for name in ("target", "draft")}
    weights = {k: None if info is None else info.weights_sha256 for k, info in models.items()}
    return weights | {"sampler": asdict(manifest.sampler)}
