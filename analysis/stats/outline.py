"""What a trace of any size is like: statistics from sums of its prompts, gathered part by part."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from analysis.stats.checks import StatsError
from analysis.stats.clusters import CONFIDENCE, Estimate, bootstrap, by_prompt
from analysis.stats.depth import table
from analysis.stats.drafts import runs
from traces.trace import Trace

SHARES = ("accepted", "draft_entropy", "draft_entropy, accepted", "draft_entropy, rejected")


def outline(
    parts: Iterable[Trace], max_depth: int = 8, confidence: float = CONFIDENCE, seed: int = 0
) -> dict[str, Estimate]:
    """Acceptance, the draft's entropy by verdict, and acceptance by depth, of recorded paths.

    Depths are those of the unbroken runs of accepted tokens (`drafts.runs`): "conditional 3" is the
    share of third tokens that were accepted, "marginal 3" that of runs of at least three.

    Args:
        parts: the trace, or some of its prompts at a time: `Streamed.windows()`. Each is let go of
            before the next is asked for; what stays is 8 (2 max_depth + 4) bytes a prompt.
        max_depth: the deepest depth, >= 1.
        confidence: of the intervals over prompts.
        seed: of the bootstrap.

    Raises:
        StatsError: max_depth < 1, or there is no part.
        TraceError: a part has no recorded path, or no draft entropies.
    """
    if max_depth < 1:
        raise StatsError(f"max_depth must be >= 1: {max_depth}")
    sums = [prompt_sums(part, max_depth) for part in parts]
    if not sums:
        raise StatsError("there is no part of a trace")
    deep = max_depth

    def statistic(s: np.ndarray) -> np.ndarray:
        rows, accepted, entropy, of_accepted = np.moveaxis(s[..., :4], -1, 0)
        shares = [accepted / rows, entropy / rows, of_accepted / accepted]
        shares.append((entropy - of_accepted) / (rows - accepted))
        conditional = 1 - s[..., 4 + deep :] / s[..., 4 : 4 + deep]
        marginal = np.cumprod(conditional, -1)
        return np.concatenate([np.stack(shares, -1), conditional, marginal], -1)

    names = [*SHARES]
    for kind in ("conditional", "marginal"):
        names += [f"{kind} {depth}" for depth in range(1, deep + 1)]
    found = bootstrap(np.concatenate(sums), statistic, confidence, seed)
    return dict(zip(names, found, strict=True))


def prompt_sums(part: Trace, max_depth: int) -> np.ndarray:
    """Of each prompt: positions, accepted ones, entropies; runs at risk and ended by depth.

    Shape (S, 4 + 2 max_depth), float64. Raises TraceError: see `outline`.
    """
    part.manifest.drafter.refuse("path")
    offsets, accepted = part.position_offsets, part.positions("accepted")
    entropy = part.positions("draft_entropy")

    def columns(rows: slice) -> list[np.ndarray]:
        here, nats = accepted[rows], entropy[rows]
        return [np.ones(len(here)), here, nats, np.where(here, nats, 0.0)]

    at_risk, rejected = table(runs(accepted, offsets), max_depth)
    return np.concatenate([by_prompt(offsets, columns), at_risk, rejected], 1)
