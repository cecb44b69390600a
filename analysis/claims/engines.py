"""What engines and benchmarks publish of draft lengths under load, in form.

Their machines, models and prompts are others: only the sign of each comparison is tested, on this
trace's outcomes, under the times of `analysis.serving.COST` unless a cost is given;
SpecDecode-Bench's under its own. Tokens a second are without the start and the end of a run
(`simkit.serving.measures.steady_tokens_s`). Intervals are over prompts: the run of each seed serves
prompts that are drawn anew (`simkit.serving.pools`).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from analysis.claims.claim import ClaimKind, Part, claim
from analysis.claims.evidence import Evidence, Untestable
from analysis.claims.verdict import ABOVE_1, Allowed
from analysis.serving import LoadCurve, closed, curves, estimate, noted
from analysis.stats import Estimate
from simkit.serving import Engine
from simkit.serving.result import served as served_prompts
from simkit.simulator.arguments import AnyCost
from traces.trace import Trace

SEEDS, LEAST, EACH = 8, 100, 8
WHOLE_DRAFT = ("pard2", "pard")  # the first of attached drafters of which one pass yields a draft
LENGTHS = (1, 2, 3, 5, 7)


def served(
    at: Evidence,
    controllers: tuple[str, ...],
    sizes: tuple[int, ...],
    trace: Trace | None = None,
) -> Mapping[str, LoadCurve]:
    """Controllers with so many requests in flight.

    Raises:
        Untestable: the trace cannot give one of them.
    """
    if trace is None:
        check_priced(at)
    found = curves(at.study, controllers, closed(sizes, LEAST, EACH), at.cost, SEEDS, trace=trace)
    if len(found.of) < len(controllers):
        raise Untestable("; ".join(found.gone))
    return found.of


def check_priced(at: Evidence) -> None:
    """Refuse drafts that take no pass, for which these costs have no time.

    Raises:
        Untestable: they are such.
    """
    if at.layout.paid == "none":
        raise Untestable("the cost has no time for proposals that take no pass")


def ratio(found: Mapping[str, LoadCurve], one: str, other: str, size: int) -> Estimate:
    """Throughput under one controller over that under another, with so many in flight."""
    k = int(np.flatnonzero(found[one].at == size)[0])
    return found[one].over(found[other], k)


def whole_draft(at: Evidence) -> Trace:
    """The trace with an attached drafter of which one pass yields a whole draft.

    Raises:
        Untestable: there is none.
    """
    trace = at.trace.recording or at.trace
    for name in sorted(trace.drafters, key=lambda name: (*WHOLE_DRAFT, name).index(name)):
        one = trace.with_drafter(name)
        if one.manifest.draft_passes in ("draft", "block"):
            return one
    raise Untestable("no drafter is attached that yields a whole draft in a pass")


@claim(
    "PARD-2",
    "section 4.2, Fig. 1",
    "PARD-2 has more throughput than PARD at every batch size from 1 to 64.",
    "plotted only",
)
def ahead_in_every_batch(at: Evidence) -> list[Part]:
    """Tokens a second of the drafter pard2 ÷ of pard, each with the fixed length that is best then.

    With 1, 8 and 64 requests in flight, each by itself; lengths 1, 2, 3, 5 and 7.
    """
    trace = at.trace.recording or at.trace
    if trace.path is None or not {"pard", "pard2"} <= set(trace.drafters):
        raise Untestable("the drafters pard and pard2 are not both attached")
    sizes, specs = (1, 8, 64), tuple(f"static({k})" for k in LENGTHS)
    best = []
    for name in ("pard2", "pard"):
        found = served(at, specs, sizes, trace.with_drafter(name))
        speeds = np.stack([found[spec].seeds["steady_tokens_s"] for spec in specs])
        best.append(speeds[speeds.mean(-1).argmax(0), np.arange(len(sizes))])
    any_of = found[specs[0]]
    of = [any_of.estimate(k, one / other) for k, (one, other) in enumerate(zip(*best, strict=True))]
    return [Part(f"{size} in flight", e, ABOVE_1) for size, e in zip(sizes, of, strict=True)]


@claim(
    "vLLM",
    "pull request 52362",
    "With 32 requests in flight, verifying seven tokens of every request is best; with 256 it"
    " has less throughput than no drafts, and verifying only the likeliest tokens has more.",
    "4,756 against 4,501 tokens/s at 32; 7,852, 13,325 and, without drafts, 8,879 at 256",
)
def adapts_where_fixed_loses(at: Evidence) -> list[Part]:
    """Tokens a second under one of static(7), budget(7) and none ÷ under another, by load.

    With a drafter that yields a whole draft in a pass; batches up to 256, their times in a line
    beyond those that were timed.
    """
    trace = whole_draft(at)
    found = served(at, ("none", "static(7)", "budget(7)"), (32, 256), trace)
    return [
        Part("static over budget at 32", ratio(found, "static(7)", "budget(7)", 32), ABOVE_1),
        Part("none over static at 256", ratio(found, "none", "static(7)", 256), ABOVE_1),
        Part("budget over static at 256", ratio(found, "budget(7)", "static(7)", 256), ABOVE_1),
        Part("budget over none at 256", ratio(found, "budget(7)", "none", 256), ABOVE_1),
    ]


@claim(
    "vLLM",
    "pull request 52228",
    "With 64 requests in flight, verifying only the likeliest tokens, by a fit of the draft's"
    " own confidence, has more throughput than verifying all.",
    "+15.3% and +21.8%",
)
def confidence_pays_at_64(at: Evidence) -> list[Part]:
    """Tokens a second under budget(7) ÷ under static(7), 64 requests in flight.

    With a drafter that yields a whole draft in a pass.
    """
    found = served(at, ("static(7)", "budget(7)"), (64,), whole_draft(at))
    return [Part("", ratio(found, "budget(7)", "static(7)", 64), ABOVE_1, (1.153, 1.218))]


@claim(
    "SGLang",
    "pull request 23336",
    "With two requests in flight, an adaptive draft length has more throughput than fixed"
    " lengths 1, 3 and 7; and 3 has more than 7.",
    "595, 768 and 732 tokens/s; adapted 791",
)
def adapted_beats_fixed(at: Evidence) -> list[Part]:
    """Tokens a second under ema(3), candidates 1, 3 and 7, ÷ under the best of static(1), (3), (7).

    Two requests in flight. Also static(3) ÷ static(7). The trace's outputs do not change phase, as
    those of the published run do.
    """
    adapted = "ema(3, candidates={1: [1, 3, 7]})"
    fixed = ("static(1)", "static(3)", "static(7)")
    found = served(at, (*fixed, adapted), (2,))
    best = max(fixed, key=lambda name: found[name].seeds["steady_tokens_s"].mean())
    return [
        Part("adapted over the best", ratio(found, adapted, best, 2), ABOVE_1),
        Part("3 over 7", ratio(found, "static(3)", "static(7)", 2), ABOVE_1, (1.049, 1.049)),
    ]


@claim(
    "SGLang",
    "defaults of adaptive_spec_params, pull request 24055",
    "In batches of 64 or more requests it is best not to draft.",
    "candidates {1: [1, 3, 5, 7], 8: [0, 1, 3], 32: [0, 1], 64: [0]}",
    kind=ClaimKind.SETTING,
)
def none_at_64(at: Evidence) -> list[Part]:
    """Tokens a second without drafts ÷ under static(1), 64 requests in flight.

    Also: 8 in flight, the best of static(1) and static(3) ÷ without drafts.
    """
    found = served(at, ("none", "static(1)", "static(3)"), (8, 64))
    speeds = {name: one.seeds["steady_tokens_s"][0].mean() for name, one in found.items()}
    best = max(("static(1)", "static(3)"), key=speeds.__getitem__)
    return [
        Part("none over one token at 64", ratio(found, "none", "static(1)", 64), ABOVE_1),
        Part("the best over none at 8", ratio(found, best, "none", 8), ABOVE_1),
    ]


@claim(
    "TensorRT-LLM",
    "draft_len_schedule, pull request 10860",
    "The larger the batch, the shorter the best draft.",
    "a schedule such as {4: 4, 8: 2, 32: 1}",
    kind=ClaimKind.SETTING,
)
def shorter_in_larger_batches(at: Evidence) -> list[Part]:
    """The best fixed length with 1 request in flight less that with 32, tokens.

    Of lengths 0 to 3, 5 and 7; seed by seed.
    """
    specs = ("static(0)", *(f"static({k})" for k in LENGTHS))
    found = served(at, specs, (1, 32))
    speeds = np.stack([found[spec].seeds["steady_tokens_s"] for spec in specs])
    best = np.array([0, *LENGTHS])[speeds.argmax(0)]
    return [Part("", found[specs[0]].estimate(1, best[0] - best[1]), Allowed(lo=0))]


@claim(
    "SpecDecode-Bench",
    "arXiv:2601.11580, its simulator on GSM8K",
    "Five drafted tokens beat three at batch size 1; three beat five at batch size 64.",
    "2.0103 and 1.8099 at 1; 1.2947 and 1.3568 at 64",
)
def three_beat_five_at_64(at: Evidence) -> list[Part]:
    """Tokens a second under one of static(3) and static(5) ÷ under the other, copies of requests.

    Under its cost of Llama-3.1-8B and EAGLE on an H100, unless a cost is given.
    """
    check_priced(at)
    cost: AnyCost = at.cost if at.cost is not None else "specdecode-bench:eagle"
    engine = Engine(64, extrapolate=True)
    found = noted(
        at.trace, ["static(3)", "static(5)"], cost, copies=[1, 64], engine=engine,
        requests=64 * 16, seeds=SEEDS, first_token=at.study.first_token,
    )  # fmt: skip
    speed = {
        (str(run.controller), run.load.value, run.seed): row
        for run, row in zip(found.runs, found.seeds["steady_tokens_s"], strict=True)
    }

    def over(one: str, other: str, size: float) -> Estimate:
        pairs = [speed[one, size, s] / speed[other, size, s] for s in range(SEEDS)]
        mine = [run for run in found.runs if run.load.value == size]
        return estimate(np.array(pairs), mine[0].sample, served_prompts(mine))

    return [
        Part("5 over 3 at 1", over("static(5)", "static(3)", 1.0), ABOVE_1, (1.111, 1.111)),
        Part("3 over 5 at 64", over("static(3)", "static(5)", 64.0), ABOVE_1, (1.048, 1.048)),
    ]
