"""PACER's claims: the best draft length varies, and a head can follow it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from analysis.claims.claim import ClaimKind, Part, claims_of, depth_parts, passes
from analysis.claims.evidence import Evidence, Untestable
from analysis.claims.verdict import ABOVE_1, BELOW_0, BELOW_1, Allowed
from analysis.papers import pacer as paper
from analysis.papers import pearl, words
from analysis.papers.printed import ends
from analysis.replays import ALONE, ASSIST, FAMILIES
from analysis.speeds import per, speed
from analysis.stats import iid

claim = claims_of("PACER")

TUNED, ADAEDL, SPECDECPP = (FAMILIES[name] for name in ("PACER", "AdaEDL", "SpecDec++"))
DEEP = (6, 10)  # depths that are held against the first
LLAMA = ", Llama 2, HumanEval"
# What the paper prints, the least and the greatest.
SPECULATION = paper.speedups("Speculative")
TABLES = words(paper.speedups("Speculative", llama=False), ".2f")  # section 4.2 left out
PACER = paper.faster_than_plain("PACER", paper.TABLE_3, paper.TABLE_5)
ASSISTED = paper.faster_than_plain("Assist")
DYNAMIC = {name: paper.TABLE_3.speed("PACER", name) for name in paper.TABLE_3.rows}
SHORTER = [one("AdaEDL", "Speculative") for one in (paper.TABLE_3.tau, paper.TABLE_3.speed)]


@claim(
    "section 3.1.1, Fig. 2a",
    "Acceptance lengths vary significantly from step to step.",
    "plotted only",
)
def lengths_vary(at: Evidence) -> list[Part]:
    """Variance of γ* over steps ÷ that of a geometric law of the same mean, outside of loops.

    γ* is the run of accepted tokens up to a rejection; runs that a loop or the text's end cuts off
    are left out. Independent tokens of one acceptance rate give 1. Also given: with loops.
    """
    return [
        Part("outside of loops", iid.dispersion(at.study.runs(at.outside)), ABOVE_1),
        Part("with loops", iid.dispersion(at.study.runs()), None),
    ]


def _outside_first(
    at: Evidence, statistic: Callable[[np.ndarray], np.ndarray], expected: Allowed
) -> list[Part]:
    """A statistic of `Evidence.by_depth` over the steps of fixed(Γ), outside of loops and with."""
    most = at.trace.max_draft
    if most < DEEP[1]:
        raise Untestable(f"Γ = {most}: needs drafts of {DEEP[1]} tokens")
    return depth_parts(at.by_depth(most, DEEP[1]), statistic, expected)


@claim(
    "section 3.1.3, Fig. 6",
    "Acceptance falls sharply with the position in the draft, read as a marginal probability.",
    "plotted only",
)
def marginal_falls(at: Evidence) -> list[Part]:
    """Marginal: P(a >= 10) ÷ P(a >= 1), Kaplan-Meier, over the steps of fixed(Γ), outside of loops.

    It cannot rise, whatever the pair; "sharply" is taken as below one half. Outside, drafts begin
    anew at each stretch between loops. Also given: with loops.
    """

    def statistic(s: np.ndarray) -> np.ndarray:
        kept = 1 - s[..., DEEP[1] :] / s[..., : DEEP[1]]
        return np.prod(kept[..., 1:], -1, keepdims=True)

    return _outside_first(at, statistic, Allowed(hi=0.5))


@claim(
    "section 3.1.3, Fig. 6",
    "Later draft tokens are less likely to be accepted, read as a conditional probability:"
    " given that all earlier ones were accepted.",
    "plotted only",
)
def conditional_falls(at: Evidence) -> list[Part]:
    """Conditional acceptance at depths 6–10 together, less that at depth 1, outside of loops.

    Accepted ÷ reached (all earlier tokens of the draft accepted), over the steps of fixed(Γ).
    Outside, drafts begin anew at each stretch between loops. Also given: with loops.
    """
    low, high = DEEP[0] - 1, DEEP[1]

    def statistic(s: np.ndarray) -> np.ndarray:
        risk, lost = s[..., :high], s[..., high:]
        deep = lost[..., low:].sum(-1, keepdims=True) / risk[..., low:].sum(-1, keepdims=True)
        return lost[..., :1] / risk[..., :1] - deep

    return _outside_first(at, statistic, BELOW_0)


@claim(
    "section 3.1.2, Fig. 2b",
    "Drafting γ*, the length that will be accepted, is far faster than the best fixed length.",
    "{:g}; its counts at Table 14's latencies give {:g}".format(*paper.OPTIMAL_SPEED),
)
def optimal_is_faster(at: Evidence) -> list[Part]:
    """Seconds of the best fixed length ÷ seconds of `oracle`, which drafts γ*.

    The best of 0–20 is chosen on the same prompts, as in the paper.
    """
    found = speed(at.replay("oracle"), at.best_fixed)
    return [Part(f"oracle ÷ {at.best_fixed.spec}", found, ABOVE_1, paper.OPTIMAL_SPEED)]


@claim(
    "section 3.1.2, Fig. 2b",
    "Drafting γ* takes fewer draft passes and fewer target passes than the best fixed length.",
    "draft {:.3f}, target {:.3f}".format(*paper.optimal_passes()),
)
def optimal_saves_both(at: Evidence) -> list[Part]:
    """Draft passes, and target passes, of `oracle` ÷ those of the best fixed length."""
    drafts, targets = paper.optimal_passes()
    mine = at.replay("oracle")
    return passes(mine, at.best_fixed, BELOW_1, (drafts, drafts), (targets, targets))


@claim(
    "section 4.2, Tables 1 and 5",
    "Speculation with the best fixed length is faster than the target alone.",
    f"{TABLES}; {SPECULATION[1]:.2f} (section 4.2{LLAMA})",
)
def speculation_pays(at: Evidence) -> list[Part]:
    """Seconds of the target alone ÷ seconds of fixed, its length chosen on other prompts."""
    found = speed(at.tuned_fixed(), at.replay(ALONE))
    return [Part("", found, ABOVE_1, SPECULATION)]


@claim(
    "section 4.2, Tables 1, 3 and 5",
    "PACER is faster than the best fixed length.",
    f"{words(paper.faster_than_plain('PACER', paper.TABLE_5))}; {PACER[1]:.3f} (Table 3{LLAMA})",
    draft_model=True,
)
def pacer_is_faster(at: Evidence) -> list[Part]:
    """Seconds of fixed ÷ seconds of pacer (b 1–4, t 0.1–0.9), both tuned on other prompts."""
    return [Part("", speed(at.tuned(TUNED), at.tuned_fixed()), ABOVE_1, PACER)]


@claim(
    "section 5.1, Table 6",
    "PACER takes both fewer draft passes and fewer target passes than the best fixed length.",
    f"draft {words(paper.saved('draft'))}, target {words(paper.saved('target'))}",
    draft_model=True,
)
def pacer_saves_both(at: Evidence) -> list[Part]:
    """Draft passes, and target passes, of pacer ÷ those of fixed, both tuned on other prompts."""
    one, other = at.tuned(TUNED), at.tuned_fixed()
    return passes(one, other, BELOW_1, paper.saved("draft"), paper.saved("target"))


@claim(
    "section 5.1, Table 6",
    "PACER's average acceptance length is greater than that of the best fixed length.",
    f"{words(paper.saved('tau'))} times",
    draft_model=True,
)
def pacer_accepts_more(at: Evidence) -> list[Part]:
    """Accepted tokens a step of pacer ÷ those of fixed, both tuned on other prompts."""
    found = per(at.tuned(TUNED), at.tuned_fixed(), "accepted", "steps")
    return [Part("", found, ABOVE_1, paper.saved("tau"))]


@claim(
    "section 4.3, Table 3",
    "PACER is faster than SpecDec++ and than AdaEDL.",
    ", ".join(f"{DYNAMIC[name]:.3f}" for name in ("SpecDec++", "AdaEDL")),
    draft_model=True,
)
def pacer_beats_dynamic(at: Evidence) -> list[Part]:
    """Seconds of the other ÷ seconds of pacer, each tuned on other prompts."""
    mine = at.tuned(TUNED)
    return [
        Part("SpecDec++", speed(mine, at.tuned(SPECDECPP)), ABOVE_1, ends([DYNAMIC["SpecDec++"]])),
        Part("AdaEDL", speed(mine, at.tuned(ADAEDL)), ABOVE_1, ends([DYNAMIC["AdaEDL"]])),
    ]


@claim(
    "section 4.3, Table 3",
    "A shorter τ can be faster: AdaEDL accepts fewer tokens a step than plain speculation,"
    " yet is faster.",
    "τ {:.3f}, speed {:.3f}".format(*SHORTER),
    kind=ClaimKind.EXAMPLE,
    draft_model=True,
)
def shorter_is_faster(at: Evidence) -> list[Part]:
    """Accepted tokens a step, and speed, of adaedl ÷ those of fixed, tuned on other prompts."""
    one, other = at.tuned(ADAEDL), at.tuned_fixed()
    return [
        Part("τ", per(one, other, "accepted", "steps"), BELOW_1, (SHORTER[0], SHORTER[0])),
        Part("speed", speed(one, other), ABOVE_1, (SHORTER[1], SHORTER[1])),
    ]


@claim(
    "section 4.2, Table 1; PEARL, Table 1",
    "Assisted generation's heuristic is slower than the best fixed length.",
    f"{words(ASSISTED)}; PEARL {words(pearl.assisted_over_plain())}",
)
def assist_is_slower(at: Evidence) -> list[Part]:
    """Seconds of fixed, tuned on other prompts, ÷ seconds of heuristic with its defaults."""
    found = speed(at.replay(ASSIST), at.tuned_fixed())
    return [Part("", found, BELOW_1, ends((*ASSISTED, *pearl.assisted_over_plain())))]
