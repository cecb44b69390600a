"""The papers' tables of draft trees, in form."""

from __future__ import annotations

from analysis.figures.measures import speedup, tokens
from analysis.figures.tables.form import FilledTable, Form, Rows, fill
from analysis.labelled_replays import replays
from analysis.replays import Replays
from analysis.study import MissingError, Study, attached
from analysis.trees import ON_TREES, exits, has_head, own_beam
from simkit.simulator.arguments import AnyCost

EAGLE_1 = (
    "[[0], [1], [2], [3], [0, 0], [0, 1], [0, 2], [1, 0], [1, 1], [2, 0], [2, 1], [3, 0],"
    " [0, 0, 0], [0, 0, 1], [0, 0, 2], [0, 1, 0], [0, 1, 1], [0, 2, 0], [0, 2, 1], [1, 0, 0],"
    " [0, 0, 0, 0], [0, 0, 0, 1], [0, 0, 0, 2], [0, 0, 0, 0, 0], [0, 0, 0, 0, 1]]"
)
"""The tree of EAGLE-1's public code (choices.py, mc_sim_7b_63), 25 nodes."""
MEDUSA_NODES = 63  # of the trees of Medusa's public code, which are fitted to its heads' accuracies
THRESHOLD = 0.95


def _exits(at: Replays) -> Rows:
    found = exits(at.study, at.cost)
    each = {"EAGLE-2": found.plain, "EAGLE-2 + SVIP": found.stopped}
    return {
        f"{label} ({shape})": some[shape] for shape in found.plain for label, some in each.items()
    }


def head_methods(at: Replays) -> FilledTable:
    """Acceptance head, Table 1: methods by task, each with its speedup and τ.

    Raises:
        MissingError: the trees have no scores of a head.
    """
    if not has_head(at.study):
        raise MissingError("needs a head's scores of the nodes: simkit score")
    shape = "top_k={}, depth={}, total={}".format(*own_beam(at.study))
    methods = {
        "EAGLE": f"static({EAGLE_1})",
        "EAGLE-2": f"eagle2({shape})",
        "ours": f"{ON_TREES}(h={THRESHOLD}, {shape})",
        "ours, as in the code": f"{ON_TREES}(h={THRESHOLD}, variant=code, {shape})",
    }
    like = _medusa(at.study, at.cost)
    note = (
        f"Speedup over the target alone and tokens a step, {{temperature}}; h = {THRESHOLD}."
        " EAGLE: the fixed tree of EAGLE-1's public code."
    )
    if like:
        note += (
            f" Medusa-like: {MEDUSA_NODES} nodes of a parallel drafter's marginals, a fixed tree"
            " fitted to the same prompts."
        )
    columns = {"speedup": speedup, "τ": tokens}
    source = "Acceptance head Table 1"
    return fill(Form("tree_head", source, lambda _: like, columns, note, arms=methods), at)


def _medusa(study: Study, cost: AnyCost | None) -> Rows:
    """A fixed tree of the marginals of a parallel drafter that is attached beside, if there is."""
    for _, one in attached(study.trace.recording) if study.trace.recording else ():
        if one.manifest.kind == "tree" and (one.manifest.spec or "").startswith("parallel"):
            other = Study(one, study.first_token)
            spec = f"sequoia({MEDUSA_NODES}, by=ranks)"
            return replays(other, {"Medusa-like": spec}, cost)[0]
    return {}


_NOTE = "Speedup over the target alone, {temperature}; {chosen}."
EXITS = Form("tree_exits", "SVIP Table 4", _exits, {"": speedup}, _NOTE)
TABLES = (EXITS, head_methods)
