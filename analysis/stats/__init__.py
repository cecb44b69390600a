"""Statistics of traces and replays: arrays in, values out.

One topic a module: `entropy` (bounds), `correlation`, `binned` (curves), `drafts` and `depth`
(acceptance by depth), `iid`, `optimal` (draft lengths), `acceptance_length`, `reliability`,
`ranking`, `compare` (policies), `waste` (overhead, regret), `accepted_runs` (PEARL's MAT),
`timeline` (when each model works), `two_samples` (of prompts, against each other), and `clusters`,
the bootstrap over prompts that all of them use.
Nothing here plots, and nothing returns NaN: what is not defined is None, with a note why.
"""

from typing import TYPE_CHECKING

from analysis.stats import (
    acceptance_length,
    accepted_runs,
    binned,
    clusters,
    compare,
    correlation,
    depth,
    drafts,
    entropy,
    iid,
    optimal,
    ranking,
    reliability,
    timeline,
    two_samples,
    waste,
)
from analysis.stats.checks import StatsError
from analysis.stats.clusters import Estimate
from traces.did_you_mean import misspelt

__all__ = [
    "Estimate",
    "StatsError",
    "acceptance_length",
    "accepted_runs",
    "binned",
    "clusters",
    "compare",
    "correlation",
    "depth",
    "drafts",
    "entropy",
    "iid",
    "optimal",
    "ranking",
    "reliability",
    "timeline",
    "two_samples",
    "waste",
]

if not TYPE_CHECKING:  # a checker knows all names
    __getattr__ = misspelt("analysis.stats", __all__)
