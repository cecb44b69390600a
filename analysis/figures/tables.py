"""The papers' tables in their own form: their rows that a trace can fill, and their columns.

A trace's tasks stand where a paper has benchmarks, its pair where a paper has several. Rows of
methods that need what no trace here holds are left out; docs/gallery.md lists them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import product

import numpy as np

from analysis import outside_loops, speeds, token_drafters
from analysis.figures import pard2_tables, pearl_tables
from analysis.figures.base import FIGURES, FigureError
from analysis.figures.filled_table import Cells, FilledTable, warned_of
from analysis.figures.measures import (
    APART,
    Measure,
    accepted,
    apart,
    cell,
    passes,
    speedup,
    tokens,
    tokens_per_s,
    with_apart,
)
from analysis.figures.pacer_attention import ARMS as CONTEXTS
from analysis.figures.pacer_block import ARMS as BLOCKS
from analysis.figures.pacer_components import ARMS as COMPONENTS
from analysis.figures.pacer_criteria import ARMS as CRITERIA
from analysis.figures.pacer_growth import ARMS as GROWTHS
from analysis.figures.pacer_settings_table import settings
from analysis.figures.pacer_threshold import ARMS as THRESHOLDS
from analysis.figures.pearl_strategies import ARMS as STRATEGIES
from analysis.figures.svip_lengths import by_length
from analysis.figures.tree_tables import tree_tables
from analysis.labelled_replays import choices, chosen, replays, window_words, without
from analysis.papers import TableRow, acceptance_head, pacer, svip
from analysis.replays import (
    ALONE,
    ASSIST,
    FAMILIES,
    Replayed,
    Replays,
    groups,
    of,
)
from analysis.stats import accepted_runs, clusters
from analysis.study import Study, study_of
from simkit.simulator.arguments import AnyCost, AnyTrace
from traces.errors import UserError

BEST_FIXED = "best fixed length"  # beside a paper's baseline of one length


def tables(
    trace: AnyTrace | Study, cost: AnyCost | None = None
) -> tuple[list[FilledTable], list[str]]:
    """All tables that a trace can give.

    Args:
        trace: a recorded pair; or its folder, a bundled trace's name, or a study.
        cost: see `simkit.replay`.

    Returns:
        The tables, and a line for each that is missing, with the reason.

    Raises:
        FigureError: the trace is empty.
        UserError: there are no times, or the trace or the cost cannot be read.
    """
    study = study_of(trace)
    if study.trace.n_positions == 0:
        raise FigureError("the trace is empty")
    of_trees = tree_tables(study, cost)
    at, found, gone = of(study, cost), [], []
    _ = at.charge  # without times there are no tables
    for make in (*_TABLES, *((_hybrids,) if token_drafters.names(at) else ())):
        try:
            one = make(at)
            if FIGURES[one.name].draft_model:
                study.need_draft_model()
            found.append(one)
        except UserError as error:
            gone.append(f"{make.__name__.strip('_')}: {error}")
    return warned_of(found, study, cost) + of_trees[0], gone + of_trees[1]


def _long(
    at: Replays, methods: Mapping[str, Replayed], measures: Mapping[str, Measure]
) -> tuple[Cells, Sequence[Cells]]:
    """One row for each task and method, a column for each measure."""
    rows = [
        [task, name, *(measure(one, some) for measure in measures.values())]
        for task, some in groups(at.trace).items()
        for name, one in methods.items()
    ]
    return ["task", "method", *measures], rows


def _wide(
    at: Replays, methods: Mapping[str, Replayed], measure: Measure, head: str = "method"
) -> tuple[Cells, Sequence[Cells]]:
    """One row for each method, a column for each task."""
    masks = groups(at.trace)
    rows = [
        [name, *(measure(one, some) for some in masks.values())] for name, one in methods.items()
    ]
    return [head, *masks], rows


def _vanilla(at: Replays) -> dict[str, Replayed]:
    return {"Vanilla": at.replay(ALONE)}


def _speculative(at: Replays) -> dict[str, Replayed]:
    return {"Speculative": at.tuned_fixed()}


def _assist(at: Replays) -> dict[str, Replayed]:
    """The heuristic as PACER runs it, and tuned as the other policies are."""
    return {"Assist": at.replay(ASSIST), **_tuned(at, [("heuristic, tuned", "heuristic")])}


def _tuned(at: Replays, names: Iterable[tuple[str, str]]) -> dict[str, Replayed]:
    return {label: at.tuned(FAMILIES[family]) for label, family in names}


def _chosen(at: Replays) -> str:
    length = choices(at.tuned_fixed())
    return f"Speculative: the best fixed length, {length}; {chosen(at.trace, by_task=True)}."


def _policies(at: Replays) -> FilledTable:
    found = {**_vanilla(at), **_speculative(at), **_assist(at)}
    looked = {name: token_drafters.alone(at, name) for name in token_drafters.names(at)}
    found |= {**looked, **_tuned(at, [("PACER", "PACER")])}
    body = _long(at, found, {"tokens/s": tokens_per_s, "speedup": speedup})
    note = f"Assist: the heuristic with its defaults. {_chosen(at)}"
    if looked:
        note += f" In the place of Lookahead and REST: {', '.join(looked)}, all that they propose."
    note += " Fig. 3 has the same bars of HumanEval, whose place code has here."
    return FilledTable("policies_by_task", "PACER Table 1 and Fig. 3", *body, note)


def _hybrids(at: Replays) -> FilledTable:
    """A lookup stands in for Ouroboros: it has n-grams and a draft model work together."""
    first = token_drafters.first_of(at)
    models = {"Speculative": at.tuned_fixed().spec, "PACER": at.tuned(FAMILIES["PACER"]).spec}
    found = {**_vanilla(at), first: token_drafters.alone(at, first)}
    said, hybrids = [], {}
    for name, spec in models.items():
        one = token_drafters.before(at, first, spec)
        found[f"{first}, then {name}"] = hybrids[name] = one.replayed
        said.append(f"{name}: {spec}, least={' or '.join(map(str, one.least))}")
    measures = {"tokens/s": tokens_per_s, "speedup": speedup, "τ": accepted}
    low, high = pacer.on_ngrams()
    gain = cell(speeds.speed(hybrids["PACER"], hybrids["Speculative"]))
    note = (
        f"In the place of Ouroboros: `route({first}, own, least=…)`. {'; '.join(said)}: the setting"
        f" that most folds chose for the model alone, `least` on other prompts. PACER is {gain}"
        f" times as fast as Speculative behind it; on Ouroboros, {low:.2f}–{high:.2f}."
    )
    body = _long(at, found, with_apart(at, measures))
    return FilledTable("policies_by_task", "PACER Table 4", *body, note)


def _benchmarks(at: Replays) -> FilledTable:
    names = [("AdaEDL", "AdaEDL"), ("SpecDec++", "SpecDec++"), ("PACER", "PACER")]
    found = {**_vanilla(at), **_assist(at), **_tuned(at, names)}
    others = chosen(at.trace, by_task=True)
    note = f"Output tokens a second; Assist: the heuristic's defaults; others: {others}."
    return FilledTable("policies_by_task", "PACER Table 2", *_wide(at, found, tokens_per_s), note)


def _dynamic(at: Replays) -> FilledTable:
    names = [("SpecDec++", "SpecDec++"), ("AdaEDL", "AdaEDL"), ("PACER", "PACER")]
    found = {**_speculative(at), **_tuned(at, names)}
    printed = [f"{pacer.TABLE_3[n].tokens_per_s:.2f}, {pacer.TABLE_3[n].tau:.2f}" for n in found]
    every = np.ones(at.trace.n_sequences, bool)
    measures = with_apart(at, {"tokens/s": tokens_per_s, "τ": accepted})
    rows = [
        [name, *(measure(one, every) for measure in measures.values()), paper]
        for (name, one), paper in zip(found.items(), printed, strict=True)
    ]
    heads = ["method", *measures, "paper's: tokens/s, τ"]
    return FilledTable("dynamic_policies", "PACER Table 3", heads, rows, _chosen(at))


def _components(at: Replays) -> FilledTable:
    arms = {arm.label: arm.spec for arm in COMPONENTS}
    names = ("PACER", "w/o pos-emb", "w/o growth")
    mine, gone = replays(at.study, {name: arms[name] for name in names}, at.cost)
    found = {**_vanilla(at), **_speculative(at), **mine}
    measures = {"tokens/s": tokens_per_s, "speedup": speedup, "τ": accepted}
    body = _long(at, found, with_apart(at, measures))
    note = " ".join([_chosen(at), "PACER: the paper's settings.", *without(gone)])
    return FilledTable("pacer_components", "PACER Table 5", *body, note)


def _forward_passes(at: Replays) -> FilledTable:
    found = {**_speculative(at), **_tuned(at, [("PACER", "PACER")])}
    measures = {"#draft forward": passes("draft_passes"), "#target forward": passes("steps")}
    body = _long(at, found, with_apart(at, {**measures, "τ": accepted}))
    return FilledTable("forward_passes", "PACER Table 6", *body, _chosen(at))


def _arms(name: str, source: str, head: str, arms: Sequence[TableRow], tau: bool) -> Callable:
    """A table of one paper's arms on all prompts, beside its own numbers."""

    def made(at: Replays) -> FilledTable:
        every, rows = np.ones(at.trace.n_sequences, bool), []
        free = apart(at) if tau else None
        found, gone = replays(at.study, {arm.label: arm.spec for arm in arms}, at.cost)
        for arm in arms:
            if arm.label not in found:
                continue
            one = found[arm.label]
            cells = [arm.label, tokens_per_s(one, every), f"{arm.printed.speed:.2f}"]
            taus = [accepted(one, every), f"{arm.printed.tau:.2f}"] if tau else []
            rows.append([*cells, *taus, *([free(one, every)] if free else [])])
        heads = [head, "tokens/s", "paper's", *(["τ", "paper's τ"] if tau else [])]
        heads += [APART] if free else []
        note = " ".join(["Settings: the paper's; all prompts.", *without(gone)])
        return FilledTable(name, source, heads, rows, note)

    made.__name__ = name
    return made


def _runtime(at: Replays) -> FilledTable:
    """Under the papers' times, as its head was timed there."""
    settings = {
        pacer.DEEPSEEK: pacer.policy(),
        pacer.LLAMA: pacer.policy(pacer.HUMANEVAL_LLAMA),
    }
    found = [of(at.study, cost) for cost in settings]
    mine = [one.replay(spec) for one, spec in zip(found, settings.values(), strict=True)]
    parts = {
        "Pre-verification layer": ("policy_s",),
        "Draft model": ("draft_s",),
        "Target model": ("verify_s",),
        "Prefill, other": ("prefill_s", "overhead_s"),
    }
    rows: list[Cells] = []
    for name, which in parts.items():
        seconds = [sum(float(one.seconds[part].sum()) for part in which) for one in mine]
        cells = [
            (f"{s:.1f}", f"{s / o.total_s.sum():.1%}") for s, o in zip(seconds, mine, strict=True)
        ]
        rows.append([name, *cells[0], *cells[1]])
    plain = [one.tuned_fixed() for one in found]
    for name, runs in (("PACER", mine), ("Speculative", plain)):
        totals = [f"{one.total_s.sum():.1f}" for one in runs]
        rows.append([f"Total ({name})", totals[0], "", totals[1], ""])
    heads = ["component", "DeepSeek 1.3B/33B: s", "portion", "Llama 2 7B/70B: s", "portion"]
    whose = ("DeepSeek's", "Llama 2's")
    lengths = ", ".join(f"{choices(o)} for {w} times" for o, w in zip(plain, whose, strict=True))
    note = (
        "The trace's steps under the times of the paper's pairs; PACER: the paper's settings;"
        f" Speculative: the best fixed length, {lengths}; {chosen(at.trace)}."
    )
    return FilledTable("runtime_breakdown", "PACER Table 15", heads, rows, note)


def _fixed(at: Replays) -> FilledTable:
    longest = min(10, at.trace.max_draft)
    found = {str(k): at.replay(f"fixed({k})") for k in range(1, longest + 1)}
    note = "Output tokens a second of every fixed draft length."
    body = _wide(at, found, tokens_per_s, "γ")
    return FilledTable("optimal_gamma", "PACER Table 16, PEARL Table 14", *body, note)


def _head(at: Replays) -> FilledTable:
    found = {
        f"without head, {acceptance_head.WITHOUT}": at.replay(acceptance_head.WITHOUT),
        "ours": at.replay(acceptance_head.policy()),
        BEST_FIXED: at.tuned_fixed(),
    }
    measures = {"speedup": speedup, "τ, tokens a step": tokens}
    body = _long(at, found, with_apart(at, measures, bonus=1))
    note = (
        "Drafts are chains of up to 6 tokens, the paper's are EAGLE-2 trees."
        f" {BEST_FIXED.capitalize()}: {choices(at.tuned_fixed())}."
    )
    return FilledTable("acceptance_head", "Acceptance head Table 1", *body, note)


def _svip(at: Replays) -> FilledTable:
    found = {"Const.": at.replay(svip.CONSTANT), "Heuristics": at.replay(svip.HEURISTIC)}
    found |= {BEST_FIXED: at.tuned_fixed(), "SVIP": at.tuned(FAMILIES["SVIP"])}
    name = "SVIP Table 1" if at.trace.sampler.greedy else "SVIP Table 5"
    note = (
        f"Speedup over the target alone; Const.: {svip.CONSTANT}; Heuristics: {svip.HEURISTIC};"
        f" {BEST_FIXED}, {choices(at.tuned_fixed())}, and SVIP: {chosen(at.trace, by_task=True)}."
    )
    return FilledTable("policies_by_task", name, *_wide(at, found, speedup), note)


def _strategies(at: Replays) -> FilledTable:
    found = {arm.label: at.replay(arm.spec) for arm in STRATEGIES}
    printed = ", ".join(f"{arm.printed.speed:.2f}" for arm in STRATEGIES)
    note = (
        f"Speedup over the target alone; {window_words(at)}. Paper, DeepSeek 1.3B/33B: {printed}."
    )
    return FilledTable("pearl_strategies", "PEARL Table 4", *_wide(at, found, speedup), note)


def _window(at: Replays) -> FilledTable:
    found = {str(k): at.replay(f"pearl({k})") for k in range(1, at.longest_window + 1)}
    note = f"Output tokens a second; {at.too_wide or f'c = {at.cost_ratio():.2f}'}."
    body = _wide(at, found, tokens_per_s, "γ")
    return FilledTable("pearl_window", "PEARL Tables 5 and 6", *body, note)


def _window_arms(at: Replays) -> tuple[str, str]:
    return f"pearl({at.window})", f"fixed({at.window})"


def _mean_accepted(at: Replays) -> FilledTable:
    mine, plain = _window_arms(at)
    masks, rows = groups(at.trace), []
    counted = {"": at.accepted_runs}
    if apart(at) is not None:
        counted[", outside of loops"] = partial(outside_loops.accepted_runs, at)
    for (name, spec), end in product((("Speculative decoding", plain), ("Ours", mine)), counted):
        sums = counted[end](spec)
        found = [accepted_runs.mean_accepted(sums[some]) for some in masks.values()]
        rows.append([f"{name}{end}", *map(cell, found)])
    note = f"Run of accepted tokens between rejections, both counted alike; {mine}, {plain}."
    return FilledTable("pearl_accepted", "PEARL Table 7", ["method", *masks], rows, note)


def _runs(at: Replays) -> FilledTable:
    specs = _window_arms(at)
    one, other = (at.replay(spec) for spec in specs)
    rows = []
    for task, some in groups(at.trace).items():
        cells = [f"{int(other.counts[part][some].sum()):,}" for part in ("draft_passes", "steps")]
        for part in ("draft_passes", "steps"):
            ratio = clusters.ratio(one.counts[part][some], other.counts[part][some])
            cells.append(f"{int(one.counts[part][some].sum()):,} ({cell(ratio)}×)")
        rows.append([task, *cells])
    heads = ["task", "draft (SD)", "target (SD)", "draft (PEARL)", "target (PEARL)"]
    return FilledTable("pearl_runs", "PEARL Table 11", heads, rows, f"{specs[0]} and {specs[1]}.")


_TABLES: tuple[Callable[[Replays], FilledTable], ...] = (
    _svip,
    by_length,
    _policies,
    _benchmarks,
    _dynamic,
    _components,
    _forward_passes,
    _arms("pacer_criteria", "PACER Table 7", "halting criterion", CRITERIA, True),
    _arms("pacer_attention", "PACER Table 8", "context scope", CONTEXTS, True),
    settings,
    _arms("pacer_block", "PACER Table 11", "b", BLOCKS, False),
    _arms("pacer_growth", "PACER Table 12", "ρ", GROWTHS, False),
    _arms("pacer_threshold", "PACER Table 13", "t", THRESHOLDS, False),
    _runtime,
    _fixed,
    _head,
    _strategies,
    _window,
    _mean_accepted,
    _runs,
    *pearl_tables.TABLES,
    *pard2_tables.TABLES,
)
