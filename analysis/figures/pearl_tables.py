"""PEARL's tables of speedups by benchmark, and its step-by-step profile of one prompt."""

from __future__ import annotations

import numpy as np

from analysis.figures.filled_table import Cells, FilledTable
from analysis.figures.measures import speedup
from analysis.labelled_replays import choices, window_words
from analysis.papers import pearl
from analysis.papers.printed import ends
from analysis.replays import ALONE, ASSIST, Replays, groups
from analysis.study import MissingError
from simkit.drafters.layout import Layout
from simkit.steps.steps import Steps

PROFILED = 8  # steps of Table 9, 0 to 7


def speeds(at: Replays) -> FilledTable:
    """Tables 1, 2, 3, 12 and 13: speedup over the target alone, a column for each task."""
    plain = at.tuned_fixed()
    found = {
        "Auto Regressive": at.replay(ALONE),
        "Speculative Decoding": plain,
        "Assisted Generation": at.replay(ASSIST),
        "PEARL (ours)": at.replay(f"pearl({at.window})"),
    }
    masks = groups(at.trace)
    rows = [[name, *(speedup(one, some) for some in masks.values())] for name, one in found.items()]
    printed = {
        name: ends(table.rows[name].speedup or 0.0 for table in pearl.TABLE_1.values())
        for name in ("Speculative", "Assisted", "PEARL")
    }
    said = ", ".join(f"{name} {low:.2f}–{high:.2f}" for name, (low, high) in printed.items())
    note = (
        "Our tasks stand for HumanEval (Table 1), GSM8K and MGSM (2, 12) and MT-bench (3, 13), our"
        f" pair for theirs. Speculative: the best fixed length, {choices(plain)}; Assisted: the"
        f" heuristic's defaults; {window_words(at)}. Table 1 prints {said}."
    )
    heads = ["method", *masks]
    return FilledTable("policies_by_task", "PEARL Tables 1, 2, 3, 12 and 13", heads, rows, note)


def profile(at: Replays) -> FilledTable:
    """Table 9: the first steps of the first prompt.

    Raises:
        MissingError: the drafts have no path, or the trace lacks their tokens.
    """
    layout, trace = at.layout, at.trace
    if layout.by_start or trace.manifest.tokens == "ends":
        raise MissingError("the trace does not have the draft tokens of a path")
    steps, _ = next(iter(at.run(f"pearl({at.window})").pieces()))
    output = trace.sequences["output_tokens"][0].as_py()
    rows = _profiled(layout, steps, output)
    note = (
        f"The first {len(rows)} steps of the first prompt, pearl({at.window}); the prompt is left"
        " out, as in the paper, and tokens are ids. The target's output is what is emitted:"
        " accepted tokens, and its own where one is rejected. Theirs is Llama 2 7B/70B, with up to"
        " 5 tokens drafted a step."
    )
    heads = ["step", "input prefix", "mode", "draft model output", "target model output"]
    heads += ["judging reason", "output prefix"]
    return FilledTable("pearl_runs", "PEARL Table 9", heads, rows, note)


def _profiled(layout: Layout, steps: Steps, output: list[int]) -> list[Cells]:
    rows: list[Cells] = []
    is_pre, start = True, steps.start
    for k in range(min(PROFILED, int(steps.offsets[1]))):
        i, proposed, accepted = int(start[k]), int(steps.proposed[k]), int(steps.accepted[k])
        drafted, emitted = int(steps.drafted[k]), int(steps.emitted[k])
        waiting = 0 if is_pre else max(0, proposed - (drafted > 0))
        draft = draft_tokens(layout, i - 1, waiting + drafted)
        end = i - 1 + emitted
        whole = accepted == proposed
        if whole:
            why = "all are accepted, " + ("turn to" if is_pre else "keep") + " post-verify"
        else:
            why = f"{accepted} accepted, " if accepted else ""
            why += f"{draft[accepted]} is rejected, {'keep' if is_pre else 'turn to'} pre-verify"
        rows.append(
            [
                str(k),
                _ids([*output[: i - 1], *draft[:waiting]]),
                "pre-verify" if is_pre else "post-verify",
                _ids(draft[waiting:]),
                _ids(output[i - 1 : end]),
                why,
                _ids(output[:end]),
            ]
        )
        is_pre = not whole
    return rows


def draft_tokens(layout: Layout, row: int, length: int) -> list[int]:
    """The first tokens that a draft from an on-path row has: on the path, then in a branch."""
    trace = layout.trace
    ends = int(layout.offsets[np.searchsorted(layout.offsets, row, side="right")])
    rejected = row + int(layout.ahead[row])  # the first that is
    path = trace.positions("draft_token")[row : min(row + length, rejected + 1, ends)]
    rest = length - len(path)
    if rest <= 0 or rejected >= ends:  # no branch behind an output that is accepted to its end
        return path.astype(int).tolist()
    begin, end = (int(at) for at in layout.branch[rejected : rejected + 2])
    off = trace.branches("draft_token")[begin : min(begin + rest, end)]
    return np.concatenate([path, off]).astype(int).tolist()


def _ids(tokens: list[int]) -> str:
    return " ".join(map(str, tokens)) or "–"


TABLES = (speeds, profile)
