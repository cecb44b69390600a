"""The papers' tables of draft trees, in form."""

from __future__ import annotations

from collections.abc import Mapping

from analysis.figures.filled_table import FilledTable, warned_of
from analysis.figures.measures import speedup, tokens
from analysis.labelled_replays import chosen, replays
from analysis.replays import Replayed, groups
from analysis.study import MissingError, Study
from analysis.trees import ON_TREES, exits, has_head, own_beam, tree_study
from simkit.simulator.arguments import AnyCost
from traces.errors import UserError

EAGLE_1 = (
    "[[0], [1], [2], [3], [0, 0], [0, 1], [0, 2], [1, 0], [1, 1], [2, 0], [2, 1], [3, 0],"
    " [0, 0, 0], [0, 0, 1], [0, 0, 2], [0, 1, 0], [0, 1, 1], [0, 2, 0], [0, 2, 1], [1, 0, 0],"
    " [0, 0, 0, 0], [0, 0, 0, 1], [0, 0, 0, 2], [0, 0, 0, 0, 0], [0, 0, 0, 0, 1]]"
)
"""The tree of EAGLE-1's public code (choices.py, mc_sim_7b_63), 25 nodes."""
MEDUSA_NODES = 63  # of the trees of Medusa's public code, which are fitted to its heads' accuracies
THRESHOLD = 0.95


def tree_tables(study: Study, cost: AnyCost | None = None) -> tuple[list[FilledTable], list[str]]:
    """All that a trace of trees, or a recording that has some attached, can give.

    Returns:
        The tables, and a line for each that is missing, with the reason; nothing without trees.
    """
    try:
        trees = tree_study(study)
    except MissingError:
        return [], []
    found, gone = [], []
    for make in (svip_exits, head_methods):
        try:
            found.append(make(trees, cost))
        except UserError as error:
            gone.append(f"{make.__name__}: {error}")
    return warned_of(found, trees, cost), gone


def svip_exits(study: Study, cost: AnyCost | None = None) -> FilledTable:
    """SVIP, Table 4: EAGLE-2 with and without its exit, by task."""
    found = exits(study, cost)
    rows = {
        f"{label} ({shape})": one
        for shape in found.plain
        for label, one in (
            ("EAGLE-2", found.plain[shape]),
            ("EAGLE-2 + SVIP", found.stopped[shape]),
        )
    }
    masks = groups(study.trace)
    body = [[name, *(speedup(one, some) for some in masks.values())] for name, one in rows.items()]
    note = f"Speedup over the target alone, {_temperature(study)}; {chosen(study.trace)}."
    return FilledTable("tree_exits", "SVIP Table 4", ["method", *masks], body, note)


def head_methods(study: Study, cost: AnyCost | None = None) -> FilledTable:
    """Acceptance head, Table 1: methods by task, each with its speedup and τ."""
    if not has_head(study):
        raise MissingError("needs a head's scores of the nodes: simkit score")
    top_k, depth, total = own_beam(study)
    shape = f"top_k={top_k}, depth={depth}, total={total}"
    methods = {
        "EAGLE": f"static({EAGLE_1})",
        "EAGLE-2": f"eagle2({shape})",
        "ours": f"{ON_TREES}(h={THRESHOLD}, {shape})",
        "ours, as in the code": f"{ON_TREES}(h={THRESHOLD}, variant=code, {shape})",
    }
    runs, gone = replays(study, methods, cost)
    like = _medusa(study, cost)
    masks = groups(study.trace)
    heads = [f"{task}: {what}" for task in masks for what in ("speedup", "τ")]
    body = [
        [
            name,
            *(cell for some in masks.values() for cell in (speedup(one, some), tokens(one, some))),
        ]
        for name, one in {**like, **runs}.items()
    ]
    note = (
        f"Speedup over the target alone and tokens a step, {_temperature(study)}; h = {THRESHOLD}."
        " EAGLE: the fixed tree of EAGLE-1's public code."
    )
    if like:
        note += (
            f" Medusa-like: {MEDUSA_NODES} nodes of a parallel drafter's marginals, a fixed tree"
            " fitted to the same prompts."
        )
    note += "".join(f" {why}" for why in gone.values())
    return FilledTable("tree_head", "Acceptance head Table 1", ["method", *heads], body, note)


def _medusa(study: Study, cost: AnyCost | None) -> Mapping[str, Replayed]:
    """A fixed tree of the marginals of a parallel drafter that is attached beside, if there is."""
    recording = study.trace.recording
    if recording is None or recording.path is None:
        return {}
    for name in recording.drafters:
        try:
            one = recording.with_drafter(name)
        except UserError:  # half attached
            continue
        if one.manifest.kind == "tree" and (one.manifest.spec or "").startswith("parallel"):
            other = Study(one, study.first_token)
            spec = f"sequoia({MEDUSA_NODES}, by=ranks)"
            return replays(other, {"Medusa-like": spec}, cost)[0]
    return {}


def _temperature(study: Study) -> str:
    return f"temperature {study.trace.sampler.temperature:g}"
