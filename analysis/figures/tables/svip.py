"""SVIP's tables: speedup by task, and by how long the output is let grow."""

from __future__ import annotations

import numpy as np

from analysis import by_position
from analysis.figures.measures import cell, speedup
from analysis.figures.tables.form import FilledTable, Form, fill
from analysis.labelled_replays import BEST_FIXED, chosen
from analysis.papers import svip
from analysis.replays import ALONE, FAMILIES, Replays, folds
from analysis.stats import clusters
from analysis.study import MissingError

FEWEST_LENGTHS = 2  # a table of one column says nothing of lengths
ARMS = {"Const.": svip.CONSTANT, "Heuristics": svip.HEURISTIC}
_ARMS = f"Const.: {svip.CONSTANT}; Heuristics: {svip.HEURISTIC}"


def by_task(at: Replays) -> FilledTable:
    """Tables 1, greedy, and 5, sampled."""
    rows = {**ARMS, BEST_FIXED: FAMILIES["fixed"], "SVIP": FAMILIES["SVIP"]}
    source = "SVIP Table 1" if at.trace.sampler.greedy else "SVIP Table 5"
    note = (
        f"Speedup over the target alone; {_ARMS}; {BEST_FIXED}, {{fixed}}, and SVIP: {{by_task}}."
    )
    return fill(Form("policies_by_task", source, rows, {"": speedup}, note), at)


def by_length(at: Replays) -> FilledTable:
    """Tables 2 and 6: speedup for the first tokens of each output, up to a length.

    Prompts whose output does not reach the length are left out of its column; of a step that goes
    beyond it, the tokens up to it are charged their share.

    Raises:
        MissingError: no two of the paper's lengths are reached.
    """
    n_output, greedy = at.trace.sequences["n_output"].to_numpy(), at.trace.sampler.greedy
    lengths = [length for length in svip.LENGTHS if (n_output >= length).any()]
    if len(lengths) < FEWEST_LENGTHS:
        raise MissingError(f"no output has {svip.LENGTHS[FEWEST_LENGTHS - 1]} tokens")
    edges = np.array([1, *(length + 1 for length in lengths)])
    arms = {name: at.replay(spec) for name, spec in ARMS.items()}
    arms["SVIP"] = at.tuned(FAMILIES["SVIP"])
    each = at.replay(ALONE).policy  # its steps, for which the target alone pays less than they do
    alone = by_position.seconds(each, at, edges, ("baseline_s",)).cumsum(1)
    some, rows = [n_output >= length for length in lengths], []
    for name, one in arms.items():
        mine = by_position.seconds(one.policy, at, edges).cumsum(1)
        found = [clusters.speed(alone[kept, k], mine[kept, k]) for k, kept in enumerate(some)]
        rows.append([name, *map(cell, found)])
    rows.append(["prompts", *(f"{int(kept.sum()):,}" for kept in some)])
    how = chosen(at.trace) if folds(at.trace) is None else "the setting that most folds chose"
    note = (
        f"Speedup over the target alone, by output length in tokens; {_ARMS}; SVIP:"
        f" {arms['SVIP'].spec}, {how}. The paper's SVIP over the same lengths:"
        f" {_printed(greedy, lengths[-1])}."
    )
    heads = ["method", *(f"{length:,}" for length in lengths)]
    return FilledTable("text_position", f"SVIP Table {6 if greedy else 2}", heads, rows, note)


def _printed(greedy: bool, longest: int) -> str:
    """The paper's speedups of SVIP at the shortest length and at the longest one reached."""
    tables = svip.LONG_GREEDY if greedy else svip.LONG_SAMPLED
    speeds = {pair: table["SVIP"] for pair, table in tables.items()}
    last = svip.LENGTHS.index(longest)
    return "; ".join(f"{pair} {mine[0]:.2f} to {mine[last]:.2f}" for pair, mine in speeds.items())


TABLES = (by_task, by_length)
