"""SVIP Tables 2 and 6 in their form: speedup by how long the output is let grow."""

from __future__ import annotations

import numpy as np

from analysis import by_position
from analysis.figures.filled_table import FilledTable
from analysis.figures.measures import cell
from analysis.labelled_replays import chosen
from analysis.papers import svip
from analysis.replays import ALONE, FAMILIES, Replays, folds
from analysis.stats import clusters
from analysis.study import MissingError

FEWEST_LENGTHS = 2  # a table of one column says nothing of lengths


def by_length(at: Replays) -> FilledTable:
    """Speedup over the target alone for the first tokens of each output, up to a length.

    Prompts whose output does not reach the length are left out of its column; of a step that goes
    beyond it, the tokens up to it are charged their share.

    Raises:
        MissingError: no two of the paper's lengths are reached.
    """
    n_output = at.trace.sequences["n_output"].to_numpy()
    lengths = [length for length in svip.LENGTHS if (n_output >= length).any()]
    if len(lengths) < FEWEST_LENGTHS:
        raise MissingError(f"no output has {svip.LENGTHS[FEWEST_LENGTHS - 1]} tokens")
    edges = np.array([1, *(length + 1 for length in lengths)])
    arms = {
        "Const.": at.replay(svip.CONSTANT),
        "Heuristics": at.replay(svip.HEURISTIC),
        "SVIP": at.tuned(FAMILIES["SVIP"]),
    }
    alone = by_position.seconds(at.replay(ALONE).policy, at, edges).cumsum(1)
    rows = []
    for name, one in arms.items():
        mine = by_position.seconds(one.policy, at, edges).cumsum(1)
        some = [n_output >= length for length in lengths]
        found = [clusters.ratio(alone[kept, k], mine[kept, k]) for k, kept in enumerate(some)]
        rows.append([name, *map(cell, found)])
    reached = [f"{int((n_output >= length).sum()):,}" for length in lengths]
    rows.append(["prompts", *reached])
    greedy = at.trace.sampler.greedy
    printed = svip.LONG_GREEDY if greedy else svip.LONG_SAMPLED
    ends = "; ".join(
        f"{pair} {speeds[0]:.2f} to {speeds[svip.LENGTHS.index(lengths[-1])]:.2f}"
        for pair, table in printed.items()
        for speeds in [table["SVIP"]]
    )
    how = chosen(at.trace) if folds(at.trace) is None else "the setting that most folds chose"
    note = (
        f"Speedup over the target alone, by output length in tokens; Const.: {svip.CONSTANT};"
        f" Heuristics: {svip.HEURISTIC}; SVIP: {arms['SVIP'].spec}, {how}. The paper's SVIP over"
        f" the same lengths: {ends}."
    )
    source = "SVIP Table 6" if greedy else "SVIP Table 2"
    heads = ["method", *(f"{length:,}" for length in lengths)]
    return FilledTable("text_position", source, heads, rows, note)
