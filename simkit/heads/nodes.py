"""Heads of drafters that draft trees: what the drafter reads is read again, and judged.

The drafter and the target are loaded from the folders that the trace names, or from those that are
given, and run over the recording's outputs as `simkit attach` has run them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from simkit.errors import HeadError
from simkit.heads.files import Head, check_width
from simkit.heads.scoring import score_rows
from simkit.heads.training_data import ReadDrafts
from traces.attach import registry
from traces.attach.drafter import Means
from traces.record.drafters.consumed import Consumed
from traces.record.drafters.running import Planting
from traces.scores import NodeScores
from traces.trace import Trace

SHARE = 0.5  # of a mixed text's tokens, as in the paper; its public code has 0.15
_ONE = "eagle2(top_k=1, depth=0)"
_KEYS = ("sequence", "start", "node", "parent", "token")


@dataclass(frozen=True)
class Models:
    """With what a drafter is run again.

    Attributes:
        target: that was recorded, its folder or hub id.
        draft: the drafter's folder; None takes the one that the trace names.
        device: to run on.
        revision: of the target on the hub.
    """

    target: str
    draft: str | None = None
    device: str = "auto"
    revision: str | None = None


def read_drafts(trace: Trace, models: Models, share: float = SHARE, seed: int = 0) -> ReadDrafts:
    """What an attached drafter has read of its own tokens, for a head to learn from.

    Args:
        trace: of an attached drafter, `feature(...)` or `model(...)`.
        models: see there.
        share: of a mixed text's tokens that are the draft's; 0: it learns from drafts themselves.
        seed: of which ones.

    Raises:
        HeadError: the drafter reads none of its tokens, or is another than the trace's.
        UserError: it cannot be run.
    """
    if not 0 <= share <= 1:
        raise HeadError(f"mix must be from 0 to 1, not {share}")
    opened, n_shards = _open(trace, models, (_ONE,))
    generator = torch.Generator().manual_seed(seed)
    parts: tuple[list[Consumed], list[Consumed]] = ([], [])
    for index in range(n_shards):
        for all_, part in zip(parts, opened.consumed(index, share, generator), strict=True):
            all_.append(part)
    on_text, mixed = (Consumed(*map(np.concatenate, zip(*part, strict=True))) for part in parts)
    return ReadDrafts(on_text, mixed, trace.n_sequences)


def score_nodes(
    trace: Trace, head: Head, models: Models, on_shard: Callable[[], None] = lambda: None
) -> NodeScores:
    """A head's score of every node that the draft has read.

    Args:
        trace: of an attached drafter of trees.
        head: that was trained for it.
        models: see there.
        on_shard: told when one is scored.

    Raises:
        HeadError: the head does not fit, or the drafter drafts other trees here than recorded.
        UserError: the drafter cannot be run.
    """
    if head.by_start or not head.lag:
        raise HeadError(
            f"this {head.kind} head cannot judge nodes of trees: train one with simkit train"
            " acceptance --drafter …"
        )
    opened, n_shards = _open(trace, models, trace.manifest.shapes)
    where = str(trace.path or "the trace")

    def judge(states: Tensor) -> np.ndarray:
        check_width(head, states.shape[-1], where)
        return score_rows(head, states.float().cpu().numpy().astype(np.float16))

    parts = []
    for index in range(n_shards):
        parts.append(opened.judged(index, {head.kind: judge}))
        on_shard()
    keys = [name for name in _KEYS if trace.has("tree", name)]
    for name in keys:
        if not np.array_equal(np.concatenate([p[name] for p in parts]), trace.column("tree", name)):
            raise HeadError(
                f"{where}: its trees come out differently here ({name}), so scores would be"
                " of other nodes; attach the drafter again, or score where it was attached"
            )
    return NodeScores(np.concatenate([part[f"score:{head.kind}"] for part in parts]))


def _open(trace: Trace, models: Models, shapes: tuple[str, ...]) -> tuple[Planting, int]:
    """The trace's drafter, loaded, and how many shards it is asked in.

    Raises:
        HeadError: it is none that can be run, or another than the trace's.
    """
    recording, spec = trace.recording, trace.manifest.spec
    if recording is None or spec is None:
        raise HeadError(
            f"{trace.path or 'the trace'}: no attached drafter: name one with --drafter, or record"
            " with --hidden and leave out --target"
        )
    drafter: Any = registry.parse(spec)
    if models.draft is not None:
        if "path" not in {field.name for field in fields(drafter)}:
            raise HeadError(f"{drafter} has no folder: leave out --draft")
        drafter = replace(drafter, path=models.draft)
    means = Means(models.target, models.device, None, models.revision, tree=shapes)
    opened = drafter.open(recording, means)
    if not isinstance(opened, Planting):
        raise HeadError(f"{drafter} runs no model whose states a head could judge")
    here, known = opened.header.draft, trace.manifest.draft
    if here is None or known is None or here.weights_sha256 != known.weights_sha256:
        raise HeadError(f"{drafter}: its weights are not those of {trace.path}: give --draft")
    size = recording.manifest.batch_size
    return opened, -(-recording.n_sequences // size)
