"""PEARL's tables, and its step-by-step profile of one prompt."""

from __future__ import annotations

from functools import partial
from itertools import product

import numpy as np

from analysis import outside_loops
from analysis.figures.measures import apart, cell, speedup, tokens_per_s
from analysis.figures.pearl.pearl_strategies import ARMS
from analysis.figures.tables.form import Cells, FilledTable, Form, Rows
from analysis.labelled_replays import replayed
from analysis.papers import pearl
from analysis.papers.printed import ends
from analysis.replays import ALONE, ASSIST, FAMILIES, Replays, groups
from analysis.stats import accepted_runs, clusters
from analysis.study import MissingError
from simkit.drafters.layout import Layout
from simkit.steps.steps import Steps
from traces.messages import how_many

PROFILED = 8  # steps of Table 9, 0 to 7
SPECS = {
    "Auto Regressive": ALONE,
    "Speculative Decoding": FAMILIES["fixed"],
    "Assisted Generation": ASSIST,
}


def _printed() -> str:
    """The least and the greatest speedups of Table 1."""
    found = {
        name: ends(table.rows[name].speedup or 0.0 for table in pearl.TABLE_1.values())
        for name in ("Speculative", "Assisted", "PEARL")
    }
    return ", ".join(f"{name} {low:.2f}–{high:.2f}" for name, (low, high) in found.items())


def _speeds(at: Replays) -> Rows:
    found = {name: replayed(at, spec) for name, spec in SPECS.items()}
    return found | {"PEARL (ours)": at.replay(f"pearl({at.window})")}


def _windows(at: Replays) -> Rows:
    return {str(k): at.replay(f"pearl({k})") for k in range(1, at.longest_window + 1)}


def _arms(at: Replays) -> tuple[str, str]:
    return f"pearl({at.window})", f"fixed({at.window})"


def mean_accepted(at: Replays) -> FilledTable:
    """Table 7: runs of accepted tokens, with loops of the output and without."""
    mine, plain = _arms(at)
    masks, rows = groups(at.trace), []
    counted = {"": at.accepted_runs}
    if apart(at) is not None:
        counted[", outside of loops"] = partial(outside_loops.accepted_runs, at)
    for (name, spec), end in product((("Speculative decoding", plain), ("Ours", mine)), counted):
        sums = counted[end](spec)
        found = [accepted_runs.mean_accepted(sums[some]) for some in masks.values()]
        rows.append([f"{name}{end}", *map(cell, found)])
    note = f"Accepted tokens between rejections, counted alike for {mine} and {plain}."
    return FilledTable("pearl_accepted", "PEARL Table 7", ["method", *masks], rows, note)


def runs(at: Replays) -> FilledTable:
    """Table 11: runs of both models."""
    specs = _arms(at)
    one, other = (at.replay(spec).counts for spec in specs)
    rows = []
    for task, some in groups(at.trace).items():
        cells = [f"{int(other[part][some].sum()):,}" for part in ("draft_passes", "steps")]
        for part in ("draft_passes", "steps"):
            ratio = clusters.ratio(one[part][some], other[part][some])
            cells.append(f"{int(one[part][some].sum()):,} ({cell(ratio)}×)")
        rows.append([task, *cells])
    heads = ["task", "draft (SD)", "target (SD)", "draft (PEARL)", "target (PEARL)"]
    note = f"Passes of {specs[0]} and of {specs[1]}."
    return FilledTable("pearl_runs", "PEARL Table 11", heads, rows, note)


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
        f"The first {how_many(len(rows), 'step')} of the first prompt, pearl({at.window}); the"
        f" prompt is left"
        " out, as in the paper, and tokens are ids. The target's output is what is emitted:"
        " accepted tokens, and its own where one is rejected. The paper's is Llama 2 7B/70B, with"
        " up to 5 tokens drafted a step."
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


SPEEDS = Form(
    "policies_by_task",
    "PEARL Tables 1, 2, 3, 12 and 13",
    _speeds,
    {"": speedup},
    "Our tasks stand for HumanEval (Table 1), GSM8K and MGSM (2, 12) and MT-bench (3, 13), our pair"
    " for theirs. Speculative: the best fixed length, {fixed}; Assisted: the heuristic's defaults;"
    f" {{window}}. Table 1 prints {_printed()}.",
)
STRATEGIES = Form(
    "pearl_strategies",
    "PEARL Table 4",
    {arm.label: arm.spec for arm in ARMS},
    {"": speedup},
    "Speedup over the target alone; {window}. Paper, DeepSeek 1.3B/33B:"
    f" {', '.join(f'{arm.printed.speed:.2f}' for arm in ARMS)}.",
)
WINDOWS = Form(
    "pearl_window",
    "PEARL Tables 5 and 6",
    _windows,
    {"": tokens_per_s},
    "Output tokens a second; {c}.",
    head="γ",
)
TABLES = (STRATEGIES, WINDOWS, mean_accepted, runs, SPEEDS, profile)
