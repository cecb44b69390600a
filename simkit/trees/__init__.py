"""Policies that draft trees; `simkit.steps.tree` replays them.

A step drafts level by level, verifies some of the nodes in one pass of the target, and emits the
longest path of them that is the output's, and one token of the target's own. Which nodes those are
depends on the start alone, so a policy says what it would do at each (`TreePolicy.outcomes`), and
the replay goes from start to start.

To add one: a frozen dataclass on `TreePolicy`, in a file of its own, with `@register`; name it in
the registry's list of what is built in. The shared tests find it there, and want a straightforward
version of it in `tests/plain_trees.py`.
"""

from __future__ import annotations

from simkit.trees.base import Outcomes, TreePolicy, TreeWork

__all__ = ["Outcomes", "TreePolicy", "TreeWork"]
