"""A trace in a few lines, of which no column is read: how a notebook shows it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from traces.trace import Trace


def card(trace: Trace) -> Iterator[tuple[str, str]]:
    """Names and what is said of them, in order."""
    manifest, sampler = trace.manifest, trace.sampler
    yield "trace", trace.place
    for role, model in (("target", manifest.target), ("draft", manifest.draft)):
        if model is not None:
            yield role, f"{model.id}, {model.n_parameters:,} parameters"
    if manifest.spec:
        yield "drafter", manifest.spec
    if manifest.source is not None:
        yield "imported from", manifest.source.file
        for note in manifest.source.notes:
            yield "note", note
    else:
        yield "sampler", sampler.words
    if manifest.outputs is not None:
        yield "outputs", f"{manifest.outputs.file}: {manifest.outputs.remark}"
    yield "prompts", f"{trace.n_sequences:,}"
    yield "output tokens", f"{trace.n_positions:,}, of a prompt at most {trace.max_new_tokens:,}"
    if manifest.kind != "target":
        yield "deepest draft", f"{trace.max_draft} tokens"
    if trace.drafters:
        yield "attached drafters", ", ".join(trace.drafters)
