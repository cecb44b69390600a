"""Which figures there are, room by room; each is drawn by the file of its name in its room."""

from __future__ import annotations

ROOMS = {
    "svip": "entropy_acceptance entropy_length entropy_ratio entropy_bound draft_lengths"
    " text_position",
    "pacer": "optimal_lengths optimal_gain optimal_gamma step_lengths dynamic_policies"
    " forward_passes position_decay runtime_breakdown",
    "pacer.settings": "pacer_components pacer_criteria pacer_attention pacer_block pacer_growth"
    " pacer_threshold",
    "heads": "acceptance_head reliability",
    "pearl": "timeline mutual_waiting pearl_strategies pearl_window pearl_accepted pearl_runs",
    "pard2": "confidence_acceptance expected_length parallel_training parallel_stop",
    "drafters": "drafters_by_depth drafters_by_task drafters_confidence drafters_entropy",
    "policies": "policies_by_task frontier gap_decomposition regret_by_task regret_by_position"
    " best_policy_map batch_speedup",
    "load": "load_crossover load_frontier load_goodput load_latency load_timeline",
    "trees": "tree_budget tree_exits tree_gap tree_map tree_step",
    "trees.tree_exits": "tree_head",
}
"""Figures by the folder that they are in, or by the file where one draws several."""


def places() -> dict[str, str]:
    """Where each figure is, as an entry point says it."""
    return {
        name: f"{_module(room, name)}:{name}"
        for room, names in ROOMS.items()
        for name in names.split()
    }


def _module(room: str, name: str) -> str:
    return f"analysis.figures.{room}" if "." in room else f"analysis.figures.{room}.{name}"
