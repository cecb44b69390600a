"""PACER's tables."""

from __future__ import annotations

from typing import cast

import numpy as np

from analysis import speeds, token_drafters
from analysis.figures.measures import (
    accepted,
    cell,
    passes,
    speedup,
    tokens_per_s,
)
from analysis.figures.pacer.settings import VARIED, Varied
from analysis.figures.tables.form import Cells, FilledTable, Form, LoopFree, fill
from analysis.labelled_replays import choices, chosen, replayed
from analysis.papers import pacer
from analysis.replays import ALONE, ASSIST, FAMILIES, Replayed, Replays, groups, of
from simkit.policies import Pacer

VANILLA, FIXED = {"Vanilla": ALONE}, {"Speculative": FAMILIES["fixed"]}
DYNAMIC = {name: FAMILIES[name] for name in ("SpecDec++", "AdaEDL", "PACER")}
ASSISTED = {"Assist": ASSIST, "heuristic, tuned": FAMILIES["heuristic"]}
"""The heuristic as PACER runs it, and tuned as the other policies are."""
SPEEDS = {"tokens/s": tokens_per_s, "speedup": speedup}
OUTSIDE = {"": LoopFree()}
PRINTED = "the paper has b of 2 to 4, t of 0.60 to 0.70 and ρ of 1.02 or 1.05, by task and pair"


CHOSEN = "Speculative: the best fixed length, {fixed}; {by_task}."


def policies(at: Replays) -> FilledTable:
    """Table 1, and Fig. 3: lookups stand in for Lookahead and REST where any is attached."""
    names, note = token_drafters.names(at), f"Assist: the heuristic with its defaults. {CHOSEN}"
    found = {n: replayed(at, spec) for n, spec in {**VANILLA, **FIXED, **ASSISTED}.items()}
    found |= {name: token_drafters.alone(at, name) for name in names}
    found["PACER"] = replayed(at, FAMILIES["PACER"])
    if names:
        note += f" In the place of Lookahead and REST: {', '.join(names)}, with all proposals."
    note += " Fig. 3 shows the same for HumanEval, in whose place code stands here."
    source = "PACER Table 1 and Fig. 3"
    return fill(Form("policies_by_task", source, lambda _: found, SPEEDS, note, "rows"), at)


def _varied(name: str, one: Varied) -> Form:
    """A table of arms on all prompts, beside the paper's own numbers."""
    printed = {arm.label: arm.printed for arm in one.arms}
    columns = {
        "tokens/s": tokens_per_s,
        "paper's": {label: f"{row.speed:.2f}" for label, row in printed.items()},
    }
    if not one.axis:
        taus = {label: f"{row.tau:.2f}" for label, row in printed.items()}
        columns |= {"τ": accepted, "paper's τ": taus, **OUTSIDE}
    arms, note = {arm.label: arm.spec for arm in one.arms}, "Settings: the paper's; all prompts."
    return Form(name, one.table, {}, columns, note, "none", one.head, arms)


def hybrids(at: Replays) -> FilledTable:
    """Table 4; a lookup stands in for Ouroboros: it has n-grams and a draft model work together.

    Raises:
        MissingError: no lookup is attached.
    """
    first = token_drafters.first_of(at)
    models = {"Speculative": at.tuned_fixed().spec, "PACER": at.tuned(FAMILIES["PACER"]).spec}
    both = {name: token_drafters.before(at, first, spec) for name, spec in models.items()}
    found = {"Vanilla": at.replay(ALONE), first: token_drafters.alone(at, first)}
    found |= {f"{first}, then {name}": one.replayed for name, one in both.items()}
    said = [
        f"{name}: {spec}, least={' or '.join(map(str, both[name].least))}"
        for name, spec in models.items()
    ]
    low, high = pacer.on_ngrams()
    gain = cell(speeds.speed(both["PACER"].replayed, both["Speculative"].replayed))
    note = (
        f"In the place of Ouroboros: `route({first}, own, least=…)`. {'; '.join(said)}: the setting"
        f" that most folds chose for the model alone, `least` on other prompts. Behind the"
        f" lookup PACER is {gain} times as fast as Speculative; behind Ouroboros, in the paper,"
        f" {low:.2f}–{high:.2f}."
    )
    columns = {**SPEEDS, "τ": accepted, **OUTSIDE}
    source = "PACER Table 4"
    return fill(Form("policies_by_task", source, lambda _: found, columns, note, "rows"), at)


def settings(at: Replays) -> FilledTable:
    """Table 10: the setting that the most deals of the folds chose for a task's prompts."""
    found = at.tuned(FAMILIES["PACER"])
    rows: list[Cells] = []
    for task, some in groups(at.trace).items():
        shares = [float(share[some].mean()) for share in found.shares]
        best = int(np.argmax(shares)) if shares else 0
        one = cast(Pacer, found.choices[best] if found.choices else found.policy)
        share = f"{shares[best]:.0%}" if shares else "–"
        rows.append([task, str(one.block), f"{one.threshold:g}", f"{one.growth:g}", share])
    heads = ["task", "block size b", "threshold t", "growth factor ρ", "how often chosen"]
    note = f"{chosen(at.trace).capitalize()}, the same for all tasks of a fold; {PRINTED}."
    return FilledTable("policies_by_task", "PACER Table 10", heads, rows, note)


PARTS = {
    "Pre-verification layer": ("policy_s",),
    "Draft model": ("draft_s",),
    "Target model": ("verify_s",),
    "Prefill, other": ("prefill_s", "overhead_s"),
}


def runtime(at: Replays) -> FilledTable:
    """Table 15, under the times of the paper's pairs, as its head was timed there."""
    policies = {
        pacer.DEEPSEEK: pacer.policy(),
        pacer.LLAMA: pacer.policy(pacer.HUMANEVAL_LLAMA),
    }
    pairs = [of(at.study, cost) for cost in policies]
    mine = [one.replay(spec) for one, spec in zip(pairs, policies.values(), strict=True)]
    plain = [one.tuned_fixed() for one in pairs]
    rows: list[Cells] = []
    for name, which in PARTS.items():
        seconds = [(sum(float(o.seconds[part].sum()) for part in which), o) for o in mine]
        cells = [(f"{s:.1f}", f"{s / one.total_s.sum():.1%}") for s, one in seconds]
        rows.append([name, *cells[0], *cells[1]])
    rows += [_totals("PACER", mine), _totals("Speculative", plain)]
    heads = ["component", "DeepSeek 1.3B/33B: s", "portion", "Llama 2 7B/70B: s", "portion"]
    whose = ("DeepSeek's", "Llama 2's")
    lengths = ", ".join(f"{choices(o)} for {w} times" for o, w in zip(plain, whose, strict=True))
    note = (
        "The trace's steps under the times of the paper's pairs; PACER: the paper's settings;"
        f" Speculative: the best fixed length, {lengths}; {chosen(at.trace)}."
    )
    return FilledTable("runtime_breakdown", "PACER Table 15", heads, rows, note)


def _totals(name: str, runs: list[Replayed]) -> Cells:
    one, other = (f"{run.total_s.sum():.1f}" for run in runs)
    return [f"Total ({name})", one, "", other, ""]


def by_gamma(at: Replays) -> FilledTable:
    """Table 16: every fixed length."""
    rows = {str(k): f"fixed({k})" for k in range(1, min(10, at.trace.max_draft) + 1)}
    note = "Output tokens a second of every fixed draft length."
    source = "PACER Table 16, PEARL Table 14"
    return fill(Form("optimal_gamma", source, rows, {"": tokens_per_s}, note, head="γ"), at)


BENCHMARKS = Form(
    "policies_by_task",
    "PACER Table 2",
    {**VANILLA, **ASSISTED, **{name: DYNAMIC[name] for name in ("AdaEDL", "SpecDec++", "PACER")}},
    {"": tokens_per_s},
    "Output tokens a second; Assist: the heuristic's defaults; others: {by_task}.",
)
_TABLE_3 = {n: pacer.TABLE_3[n] for n in (*FIXED, *DYNAMIC)}
LENGTHS = Form(
    "dynamic_policies",
    "PACER Table 3",
    {**FIXED, **DYNAMIC},
    {
        "tokens/s": tokens_per_s,
        "τ": accepted,
        **OUTSIDE,
        "paper's: tokens/s, τ": {
            name: f"{row.tokens_per_s:.2f}, {row.tau:.2f}" for name, row in _TABLE_3.items()
        },
    },
    CHOSEN,
    "none",
)
COMPONENTS = Form(
    "pacer_components",
    "PACER Table 5",
    {**VANILLA, **FIXED},
    {**SPEEDS, "τ": accepted, **OUTSIDE},
    f"{CHOSEN} PACER: the paper's settings.",
    "rows",
    arms={arm.label: arm.spec for arm in VARIED["pacer_components"].arms[:3]},
)
PASSES = Form(
    "forward_passes",
    "PACER Table 6",
    {**FIXED, "PACER": FAMILIES["PACER"]},
    {
        "#draft forward": passes("draft_passes"),
        "#target forward": passes("steps"),
        "τ": accepted,
        **OUTSIDE,
    },
    CHOSEN,
    "rows",
)
_ARMS = {name: _varied(name, one) for name, one in VARIED.items() if name != "pacer_components"}
TABLES = (
    policies,
    BENCHMARKS,
    LENGTHS,
    COMPONENTS,
    PASSES,
    _ARMS["pacer_criteria"],
    _ARMS["pacer_attention"],
    settings,
    _ARMS["pacer_block"],
    _ARMS["pacer_growth"],
    _ARMS["pacer_threshold"],
    runtime,
    by_gamma,
)
