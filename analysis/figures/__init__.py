"""Figures: `figures.NAME(trace, ax=None)` draws, and gives the frame of what it drew.

A trace, its folder, a bundled one's name, or a `Study`, with which several figures share replays.

They compute nothing: numbers come from `analysis.stats` and `simkit`. Those called `fidelity_…`
take a frame of `analysis.fidelity` instead of a trace, and are not in the registry.
"""

from typing import TYPE_CHECKING

from analysis.figures.acceptance_head import acceptance_head
from analysis.figures.base import FIGURES, Drawn, FigureEntry, FigureError, style
from analysis.figures.batch_speedup import batch_speedup
from analysis.figures.best_policy_map import best_policy_map
from analysis.figures.confidence_acceptance import confidence_acceptance
from analysis.figures.draft_lengths import draft_lengths
from analysis.figures.drafters_by_depth import drafters_by_depth
from analysis.figures.drafters_by_task import drafters_by_task
from analysis.figures.drafters_confidence import drafters_confidence
from analysis.figures.drafters_entropy import drafters_entropy
from analysis.figures.dynamic_policies import dynamic_policies
from analysis.figures.entropy_acceptance import entropy_acceptance
from analysis.figures.entropy_bound import entropy_bound
from analysis.figures.entropy_length import entropy_length
from analysis.figures.entropy_ratio import entropy_ratio
from analysis.figures.expected_length import expected_length
from analysis.figures.fidelity import fidelity_prompts, fidelity_speedups
from analysis.figures.forward_passes import forward_passes
from analysis.figures.frontier import frontier
from analysis.figures.gap_decomposition import gap_decomposition
from analysis.figures.load_crossover import load_crossover
from analysis.figures.load_frontier import load_frontier
from analysis.figures.load_goodput import load_goodput
from analysis.figures.load_latency import load_latency
from analysis.figures.load_timeline import load_timeline
from analysis.figures.mutual_waiting import mutual_waiting
from analysis.figures.optimal_gain import optimal_gain
from analysis.figures.optimal_gamma import optimal_gamma
from analysis.figures.optimal_lengths import optimal_lengths
from analysis.figures.pacer_attention import pacer_attention
from analysis.figures.pacer_block import pacer_block
from analysis.figures.pacer_components import pacer_components
from analysis.figures.pacer_criteria import pacer_criteria
from analysis.figures.pacer_growth import pacer_growth
from analysis.figures.pacer_threshold import pacer_threshold
from analysis.figures.parallel_stop import parallel_stop
from analysis.figures.parallel_training import parallel_training
from analysis.figures.pearl_accepted import pearl_accepted
from analysis.figures.pearl_runs import pearl_runs
from analysis.figures.pearl_strategies import pearl_strategies
from analysis.figures.pearl_window import pearl_window
from analysis.figures.policies_by_task import policies_by_task
from analysis.figures.position_decay import position_decay
from analysis.figures.regret_by_position import regret_by_position
from analysis.figures.regret_by_task import regret_by_task
from analysis.figures.reliability import reliability
from analysis.figures.runtime_breakdown import runtime_breakdown
from analysis.figures.step_lengths import step_lengths
from analysis.figures.text_position import text_position
from analysis.figures.timeline import timeline
from analysis.figures.tree_budget import tree_budget
from analysis.figures.tree_exits import tree_exits, tree_head
from analysis.figures.tree_gap import tree_gap
from analysis.figures.tree_map import tree_map
from analysis.figures.tree_step import tree_step
from traces.did_you_mean import misspelt

__all__ = [
    "Drawn",
    "FigureEntry",
    "FIGURES",
    "FigureError",
    "acceptance_head",
    "batch_speedup",
    "best_policy_map",
    "reliability",
    "confidence_acceptance",
    "draft_lengths",
    "drafters_by_depth",
    "drafters_by_task",
    "drafters_confidence",
    "drafters_entropy",
    "dynamic_policies",
    "entropy_acceptance",
    "entropy_bound",
    "entropy_length",
    "entropy_ratio",
    "expected_length",
    "fidelity_prompts",
    "fidelity_speedups",
    "forward_passes",
    "frontier",
    "gap_decomposition",
    "load_crossover",
    "load_frontier",
    "load_goodput",
    "load_latency",
    "load_timeline",
    "mutual_waiting",
    "optimal_gain",
    "optimal_gamma",
    "optimal_lengths",
    "pacer_attention",
    "pacer_block",
    "pacer_components",
    "pacer_criteria",
    "pacer_growth",
    "pacer_threshold",
    "parallel_stop",
    "parallel_training",
    "pearl_accepted",
    "pearl_runs",
    "pearl_strategies",
    "pearl_window",
    "policies_by_task",
    "position_decay",
    "regret_by_position",
    "regret_by_task",
    "runtime_breakdown",
    "step_lengths",
    "style",
    "text_position",
    "timeline",
    "tree_budget",
    "tree_exits",
    "tree_head",
    "tree_gap",
    "tree_map",
    "tree_step",
]

if not TYPE_CHECKING:  # a checker knows all names
    __getattr__ = misspelt("analysis.figures", __all__)
