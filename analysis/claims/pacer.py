"""PACER's claims: the best draft length varies, and a head can follow it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from analysis import lookups
from analysis.claims.claim import ClaimKind, Part, claim, depth_parts, fastest_of, passes
from analysis.claims.evidence import Evidence, Untestable
from analysis.claims.verdict import ABOVE_1, BELOW_0, BELOW_1, Allowed
from analysis.papers import PaperTable, pearl, words
from analysis.papers import pacer as paper
from analysis.papers.printed import ends
from analysis.replays import ALONE, ASSIST, FAMILIES
from analysis.speeds import per, speed
from analysis.stats import clusters, drafts, iid

HEAD = paper.policy()
TUNED, ADAEDL, SPECDECPP = (FAMILIES[name] for name in ("PACER", "AdaEDL", "SpecDec++"))
DEEP = (6, 10)  # depths that are held against the first
LLAMA = ", Llama 2, HumanEval"
# What the paper prints, the least and the greatest.
SPECULATION = paper.speedups("Speculative")
TABLES = words(paper.speedups("Speculative", llama=False), ".2f")  # section 4.2 left out
PACER = paper.faster_than_plain("PACER", paper.TABLE_3, paper.TABLE_5)
ASSISTED = paper.faster_than_plain("Assist")
POSITION, GROWTH = map(paper.components, ("w/o pos-emb", "w/o growth-factor"))
GROWTH_TAU = paper.components_tau("w/o growth-factor")
DYNAMIC = {name: paper.TABLE_3.speed("PACER", name) for name in paper.TABLE_3.rows}
SHORTER = [one("AdaEDL", "Speculative") for one in (paper.TABLE_3.tau, paper.TABLE_3.speed)]


def _context(scope: str) -> float:
    return paper.TABLE_8.speed("full context", f"local {scope}")


def _others(table: PaperTable, best: str) -> str:
    """How fast a table's other rows are, in words."""
    found = (speed for row, speed in table.speeds(best).items() if row != best)
    return f"others {words(ends(found))} times as fast"


@claim(
    "PACER",
    "section 3.1.1, Fig. 2a",
    "Acceptance lengths vary significantly from step to step.",
    "plotted only",
)
def lengths_vary(at: Evidence) -> list[Part]:
    """Variance of γ* over steps ÷ that of a geometric law of the same mean, outside of loops.

    γ* is the run of accepted tokens up to a rejection; runs that a loop or the text's end cuts off
    are left out. Independent tokens of one acceptance rate give 1. Also given: with loops.
    """
    accepted, left = at.trace.positions("accepted"), at.outside
    runs = left.by_prompt(drafts.runs(accepted[left.rows], left.offsets))
    whole = drafts.runs(accepted, at.layout.offsets)
    return [
        Part("outside of loops", iid.dispersion(runs), ABOVE_1),
        Part("with loops", iid.dispersion(whole), None),
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
    "PACER",
    "section 3.1.3, Fig. 6",
    "Acceptance falls sharply with the position in the draft, read as a marginal probability.",
    "plotted only",
)
def marginal_falls(at: Evidence) -> list[Part]:
    """Marginal: P(a >= 10) ÷ P(a >= 1), Kaplan-Meier, over the steps of fixed(Γ), outside of loops.

    It cannot rise, whatever the pair; "sharply" is taken as below one half. Also given: with
    loops.
    """

    def statistic(s: np.ndarray) -> np.ndarray:
        kept = 1 - s[..., DEEP[1] :] / s[..., : DEEP[1]]
        return np.prod(kept[..., 1:], -1, keepdims=True)

    return _outside_first(at, statistic, Allowed(hi=0.5))


@claim(
    "PACER",
    "section 3.1.3, Fig. 6",
    "Later draft tokens are less likely to be accepted, read as a conditional probability: given"
    " that all before them were.",
    "plotted only",
)
def conditional_falls(at: Evidence) -> list[Part]:
    """Conditional acceptance at depths 6–10 together, less that at depth 1, outside of loops.

    Accepted ÷ reached (all earlier tokens of the draft accepted), over the steps of fixed(Γ). Also
    given: with loops.
    """
    low, high = DEEP[0] - 1, DEEP[1]

    def statistic(s: np.ndarray) -> np.ndarray:
        risk, lost = s[..., :high], s[..., high:]
        deep = lost[..., low:].sum(-1, keepdims=True) / risk[..., low:].sum(-1, keepdims=True)
        return lost[..., :1] / risk[..., :1] - deep

    return _outside_first(at, statistic, BELOW_0)


@claim(
    "PACER",
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
    "PACER",
    "section 3.1.2, Fig. 2b",
    "Drafting γ* takes fewer passes of the draft and fewer of the target than the best fixed"
    " length.",
    "draft {:.3f}, target {:.3f}".format(*paper.optimal_passes()),
)
def optimal_saves_both(at: Evidence) -> list[Part]:
    """Draft passes, and target passes, of `oracle` ÷ those of the best fixed length."""
    drafts, targets = paper.optimal_passes()
    mine = at.replay("oracle")
    return passes(mine, at.best_fixed, BELOW_1, (drafts, drafts), (targets, targets))


@claim(
    "PACER",
    "section 4.2, Tables 1 and 5",
    "Speculation with the best fixed length is faster than the target alone.",
    f"{TABLES}; {SPECULATION[1]:.2f} (section 4.2{LLAMA})",
)
def speculation_pays(at: Evidence) -> list[Part]:
    """Seconds of the target alone ÷ seconds of fixed, its length chosen on other prompts."""
    found = speed(at.tuned_fixed(), at.replay(ALONE))
    return [Part("", found, ABOVE_1, SPECULATION)]


@claim(
    "PACER",
    "section 4.2, Tables 1, 3 and 5",
    "PACER is faster than the best fixed length.",
    f"{words(paper.faster_than_plain('PACER', paper.TABLE_5))}; {PACER[1]:.3f} (Table 3{LLAMA})",
    draft_model=True,
)
def pacer_is_faster(at: Evidence) -> list[Part]:
    """Seconds of fixed ÷ seconds of pacer (b 1–4, t 0.1–0.9), both tuned on other prompts."""
    return [Part("", speed(at.tuned(TUNED), at.tuned_fixed()), ABOVE_1, PACER)]


@claim(
    "PACER",
    "section 5.1, Table 6",
    "PACER takes fewer draft passes and fewer target passes than the best fixed length at once.",
    f"draft {words(paper.saved('draft'))}, target {words(paper.saved('target'))}",
    draft_model=True,
)
def pacer_saves_both(at: Evidence) -> list[Part]:
    """Draft passes, and target passes, of pacer ÷ those of fixed, both tuned on other prompts."""
    one, other = at.tuned(TUNED), at.tuned_fixed()
    return passes(one, other, BELOW_1, paper.saved("draft"), paper.saved("target"))


@claim(
    "PACER",
    "section 5.1, Table 6",
    "Its average acceptance length is greater than that of the best fixed length.",
    f"{words(paper.saved('tau'))} times",
    draft_model=True,
)
def pacer_accepts_more(at: Evidence) -> list[Part]:
    """Accepted tokens a step of pacer ÷ those of fixed, both tuned on other prompts."""
    found = per(at.tuned(TUNED), at.tuned_fixed(), "accepted", "steps")
    return [Part("", found, ABOVE_1, paper.saved("tau"))]


@claim(
    "PACER",
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
    "PACER",
    "section 4.3, Table 3",
    "A shorter τ can be faster: AdaEDL accepts fewer tokens a step than plain speculation, and"
    " gains on it.",
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
    "PACER",
    "section 4.2, Table 1; PEARL, Table 1",
    "Assisted generation's heuristic is slower than the best fixed length.",
    f"{words(ASSISTED)}; PEARL {words(pearl.assisted_over_plain())}",
)
def assist_is_slower(at: Evidence) -> list[Part]:
    """Seconds of fixed, tuned on other prompts, ÷ seconds of heuristic with its defaults."""
    found = speed(at.replay(ASSIST), at.tuned_fixed())
    return [Part("", found, BELOW_1, ends((*ASSISTED, *pearl.assisted_over_plain())))]


@claim(
    "PACER",
    "section 4.5, Table 5",
    "Embedding the draft position makes PACER faster.",
    words(POSITION),
    draft_model=True,
)
def position_helps(at: Evidence) -> list[Part]:
    """Seconds with the head without the embedding ÷ seconds of pacer(4, 0.7, 1.05)."""
    other = at.replay(paper.policy(head="pacer-no-position"))
    return [Part("", speed(at.replay(HEAD), other), ABOVE_1, POSITION)]


@claim(
    "PACER",
    "section 4.5, Table 5",
    "A threshold that grows by 1.05 a block makes PACER faster.",
    words(GROWTH),
    draft_model=True,
)
def growth_helps(at: Evidence) -> list[Part]:
    """Seconds of pacer with growth 1 ÷ with 1.05, at b = 4, t = 0.7."""
    found = speed(at.replay(HEAD), at.replay(paper.policy(growth=1)))
    return [Part("", found, ABOVE_1, GROWTH)]


@claim(
    "PACER",
    "section 4.5, Table 5",
    "The growing threshold gains although fewer tokens are accepted a step.",
    f"τ {words(GROWTH_TAU)}",
    draft_model=True,
)
def growth_shortens(at: Evidence) -> list[Part]:
    """Accepted tokens a step of pacer with growth 1.05 ÷ with 1, at b = 4, t = 0.7."""
    other = at.replay(paper.policy(growth=1))
    return [Part("", per(at.replay(HEAD), other, "accepted", "steps"), BELOW_1, GROWTH_TAU)]


@claim(
    "PACER",
    "section 5.2, Table 7",
    "Stopping by the block's mean is faster than by any token, or by the last, below the"
    " threshold.",
    ", ".join(f"{paper.TABLE_7.speed('mean', other):.3f}" for other in ("any", "last")),
    draft_model=True,
)
def mean_is_best(at: Evidence) -> list[Part]:
    """Seconds with the other criterion ÷ with the mean, at b = 4, t = 0.7, growth 1.05."""
    parts = []
    for other in ("any", "last"):
        printed = paper.TABLE_7.speed("mean", other)
        found = speed(at.replay(HEAD), at.replay(paper.policy(criterion=other)))
        parts.append(Part(other, found, ABOVE_1, (printed, printed)))
    return parts


@claim(
    "PACER",
    "section 5.3, Table 8",
    "A head that sees the whole context is faster than one that sees the draft or the block only.",
    ", ".join(f"{_context(scope):.3f} ({scope})" for scope in ("block", "draft")),
    draft_model=True,
)
def context_helps(at: Evidence) -> list[Part]:
    """Seconds with the local head ÷ with the full one, at b = 4, t = 0.65, growth 1.02."""
    parts = []
    for scope in ("block", "draft"):
        full, local = (
            at.replay(paper.policy(paper.HUMANEVAL_LLAMA, **head))
            for head in ({}, {"head": f"pacer-local-{scope}"})
        )
        found = speed(full, local)
        parts.append(Part(f"local-{scope}", found, ABOVE_1, ends([_context(scope)])))
    return parts


@claim(
    "PACER",
    "appendix E, Table 11",
    "Blocks of 4 are the fastest of 1 to 7.",
    _others(paper.TABLE_11, "4"),
    draft_model=True,
)
def block_of_four(at: Evidence) -> list[Part]:
    """Speed of pacer with each b of 1–7 ÷ with b = 4, t = 0.7, growth 1.05; max-t intervals."""
    return _fastest(at, "block", "b", paper.TABLE_11, "4")


def _fastest(
    at: Evidence, argument: str, symbol: str, printed: PaperTable, best: str
) -> list[Part]:
    """The speed of each value of a printed table over that of the best one."""
    runs = {
        f"{symbol} = {value}": at.replay(paper.policy(**{argument: value}))
        for value in printed.rows
    }
    ratios = {f"{symbol} = {value}": ratio for value, ratio in printed.speeds(best).items()}
    return fastest_of(runs, f"{symbol} = {best}", ratios)


@claim(
    "PACER",
    "appendix E, Table 12",
    "Growth 1.05 is the fastest of 1.00 to 1.09.",
    _others(paper.TABLE_12, "1.05"),
    draft_model=True,
)
def growth_of_five(at: Evidence) -> list[Part]:
    """Speed of pacer with each growth ÷ with 1.05, at b = 4, t = 0.7; max-t intervals."""
    return _fastest(at, "growth", "ρ", paper.TABLE_12, "1.05")


@claim(
    "PACER",
    "appendix E, Table 13",
    "A threshold of 0.7 is the fastest of 0.50 to 0.80.",
    _others(paper.TABLE_13, "0.7"),
    draft_model=True,
)
def threshold_of_seven_tenths(at: Evidence) -> list[Part]:
    """Speed of pacer with each t ÷ with t = 0.7, at b = 4, growth 1.05; max-t intervals."""
    return _fastest(at, "threshold", "t", paper.TABLE_13, "0.7")


@claim(
    "PACER",
    "appendix F.2, Table 15",
    "The pre-verification layer takes a moderate share of the time.",
    ", ".join(f"{share:.2%}" for share in reversed(paper.HEAD_SHARES)),
    draft_model=True,
)
def head_is_cheap(at: Evidence) -> list[Part]:
    """Seconds of head calls and decisions ÷ all seconds of pacer(4, 0.7, 1.05); below 0.05."""
    at.head_s("pacer")
    mine = at.replay(HEAD)
    found = clusters.ratio(mine.seconds["policy_s"], mine.total_s)
    return [Part("", found, Allowed(hi=0.05), paper.HEAD_SHARES)]


@claim(
    "PACER",
    "section 4.4, Table 4",
    "Drafts from n-grams and a model gain from dynamic lengths too.",
    words(paper.on_ngrams(), ".2f"),
    draft_model=True,
)
def gains_on_ngrams(at: Evidence) -> list[Part]:
    """Speed of a lookup before the model under tuned pacer ÷ before the best fixed length.

    The lookup stands in the place of Ouroboros' n-grams. Each policy's setting is the one that most
    folds chose for the model alone; how long a proposal must be is chosen on other prompts.
    """
    first = lookups.first_of(at)
    plain, mine = (
        lookups.before(at, first, one.spec).replayed for one in (at.tuned_fixed(), at.tuned(TUNED))
    )
    return [Part(f"after {first}", speed(mine, plain), ABOVE_1, paper.on_ngrams())]


@claim(
    "PACER",
    "section 1",
    "PEARL loses where draft and target share a device: it is slower than plain speculation.",
    theorem="assumed, not found: on one device the timeline adds the times of draft and target up,"
    " so that a step of PEARL costs what one of plain speculation costs and emits no more",
    draft_model=True,
)
def pearl_needs_devices(at: Evidence) -> list[Part]:
    """Speed of pearl(colocated=true), whose draft and target times add, ÷ the best fixed length's.

    Both on one device; the best of 0–20 is chosen on the same prompts. Where verifying many tokens
    takes no longer than verifying one, no trace can give more than 1.
    """
    found = speed(at.replay("pearl(colocated=true)"), at.best_fixed)
    return [Part(f"÷ {at.best_fixed.spec}", found, None)]
