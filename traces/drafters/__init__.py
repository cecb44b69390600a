"""Kinds of drafters: what a proposal depends on, and so what a trace holds of it.

A kind is one file here, its line in the list below, and the layout that it names: what a step of a
replay sees of such rows. An installed package adds one by an entry point of the group
`simkit.drafters`, under the kind's name.
"""

from __future__ import annotations

from traces.drafters.kind import KINDS, DrafterKind, get, register
from traces.drafters.lattice import Lattice
from traces.drafters.log import Log
from traces.drafters.path import OnPath
from traces.drafters.rounds import Rounds
from traces.drafters.target import TargetAlone
from traces.drafters.tree import Tree

BUILT_IN = (OnPath, Lattice, Tree, Rounds, TargetAlone, Log)

__all__ = ["BUILT_IN", "KINDS", "DrafterKind", "get", "register", "stored_as"]


def stored_as(word: str) -> str:
    """The name of the kind for which manifests have that word; those of other packages have one."""
    return next((cls.name for cls in BUILT_IN if cls.stored == word), word)
