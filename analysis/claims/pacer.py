"""PACER's claims: the best draft length varies, and a head can follow it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from analysis.claims.claim import Kind, Part, claim, fastest_of, passes
from analysis.claims.evidence import Evidence, Untestable
from analysis.claims.verdict import ABOVE_1, BELOW_0, BELOW_1, Range
from analysis.papers import PaperTable
from analysis.papers import pacer as paper
from analysis.replays import ALONE, ASSIST, FAMILIES, per, speed
from analysis.stats import clusters, depth, drafts, iid

HEAD = paper.policy()
TUNED, ADAEDL, SPECDECPP = (FAMILIES[name] for name in ("PACER", "AdaEDL", "SpecDec++"))
DEEP = (6, 10)  # depths that are held against the first


@claim(
    "PACER",
    "section 3.1.1, Fig. 2a",
    "Acceptance lengths vary significantly from step to step.",
    "plotted only",
)
def lengths_vary(at: Evidence) -> list[Part]:
    """Variance of γ* over steps ÷ that of a geometric law of the same mean, outside of loops.

    γ* is the run of accepted tokens up to a rejection; runs that a loop or the text's end cuts off
    are left out. Independent tokens of one acceptance rate give 1. Told besides: with loops.
    """
    accepted, left = at.trace.positions("accepted"), at.outside
    runs = left.by_prompt(drafts.runs(accepted[left.rows], left.offsets))
    whole = drafts.runs(accepted, at.layout.offsets)
    return [
        Part("outside of loops", iid.dispersion(runs), ABOVE_1),
        Part("with loops", iid.dispersion(whole), None),
    ]


def _depths(at: Evidence) -> dict[str, np.ndarray]:
    """Drafts at risk, then rejected, at each depth, (S, 2 D), outside of loops and with them.

    Over the steps of fixed(Γ). Outside, each stretch between loops is a text of its own.
    """
    layout, most, left = at.layout, at.trace.max_draft, at.outside
    if most < DEEP[1]:
        raise Untestable(f"Γ = {most}: needs drafts of {DEEP[1]} tokens")
    n = int(np.count_nonzero(left.rows))
    ends = left.offsets[np.searchsorted(left.offsets, np.arange(n), side="right")]
    ahead = np.minimum(layout.ahead[left.rows], ends - np.arange(n))
    found = {
        "outside of loops": left.by_prompt(
            drafts.fixed_steps(ahead, left.offsets, at.trace.max_new_tokens, most)
        ),
        "with loops": drafts.fixed_steps(
            layout.ahead, layout.offsets, at.trace.max_new_tokens, most
        ),
    }
    tables = {name: depth.table(some, DEEP[1]) for name, some in found.items()}
    return {name: np.concatenate(one, 1).astype(float) for name, one in tables.items()}


def _outside_first(
    at: Evidence, statistic: Callable[[np.ndarray], np.ndarray], expected: Range
) -> list[Part]:
    """A statistic of `_depths`: the prediction is about that outside of loops."""
    found = {name: clusters.bootstrap(sums, statistic)[0] for name, sums in _depths(at).items()}
    predicted = (expected, None)
    return [
        Part(name, one, which) for (name, one), which in zip(found.items(), predicted, strict=True)
    ]


@claim(
    "PACER",
    "section 3.1.3, Fig. 6",
    "Acceptance falls sharply with the position in the draft, read as a marginal probability.",
    "plotted only",
)
def marginal_falls(at: Evidence) -> list[Part]:
    """Marginal: P(a >= 10) ÷ P(a >= 1), Kaplan-Meier, over the steps of fixed(Γ), outside of loops.

    It cannot rise, whatever the pair; "sharply" is taken as below one half. Told besides: with
    loops.
    """

    def statistic(s: np.ndarray) -> np.ndarray:
        kept = 1 - s[..., DEEP[1] :] / s[..., : DEEP[1]]
        return np.prod(kept[..., 1:], -1, keepdims=True)

    return _outside_first(at, statistic, Range(hi=0.5))


@claim(
    "PACER",
    "section 3.1.3, Fig. 6",
    "Later draft tokens are less likely to be accepted, read as a conditional probability: given"
    " that all before them were.",
    "plotted only",
)
def conditional_falls(at: Evidence) -> list[Part]:
    """Conditional acceptance at depths 6–10 together, less that at depth 1, outside of loops.

    Accepted ÷ reached (all earlier tokens of the draft accepted), over the steps of fixed(Γ). Told
    besides: with loops.
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
    "1.4; its counts at Table 14's latencies give 1.46",
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
    "draft 0.824, target 0.377",
)
def optimal_saves_both(at: Evidence) -> list[Part]:
    """Draft passes, and target passes, of `oracle` ÷ those of the best fixed length."""
    drafts, targets = paper.OPTIMAL_PASSES
    mine = at.replay("oracle")
    return passes(mine, at.best_fixed, BELOW_1, (drafts, drafts), (targets, targets))


@claim(
    "PACER",
    "section 4.2, Tables 1 and 5",
    "Speculation with the best fixed length is faster than the target alone.",
    "1.34–2.07; 2.33 (section 4.2, Llama 2, HumanEval)",
)
def speculation_pays(at: Evidence) -> list[Part]:
    """Seconds of the target alone ÷ seconds of fixed, its length chosen on other prompts."""
    found = speed(at.tuned_fixed(), at.replay(ALONE))
    return [Part("", found, ABOVE_1, (1.34, 2.33))]


@claim(
    "PACER",
    "section 4.2, Tables 1, 3 and 5",
    "PACER is faster than the best fixed length.",
    "1.007–1.131; 1.142 (Table 3, Llama 2, HumanEval)",
    draft_model=True,
)
def pacer_is_faster(at: Evidence) -> list[Part]:
    """Seconds of fixed ÷ seconds of pacer (b 1–4, t 0.1–0.9), both tuned on other prompts."""
    return [Part("", speed(at.tuned(TUNED), at.tuned_fixed()), ABOVE_1, (1.007, 1.142))]


@claim(
    "PACER",
    "section 5.1, Table 6",
    "PACER takes fewer draft passes and fewer target passes than the best fixed length at once.",
    "draft 0.909–0.962, target 0.777–0.989",
    draft_model=True,
)
def pacer_saves_both(at: Evidence) -> list[Part]:
    """Draft passes, and target passes, of pacer ÷ those of fixed, both tuned on other prompts."""
    one, other = at.tuned(TUNED), at.tuned_fixed()
    return passes(one, other, BELOW_1, (0.909, 0.962), (0.777, 0.989))


@claim(
    "PACER",
    "section 5.1, Table 6",
    "Its average acceptance length is greater than that of the best fixed length.",
    "1.06–1.31 times",
    draft_model=True,
)
def pacer_accepts_more(at: Evidence) -> list[Part]:
    """Accepted tokens a step of pacer ÷ those of fixed, both tuned on other prompts."""
    found = per(at.tuned(TUNED), at.tuned_fixed(), "accepted", "steps")
    return [Part("", found, ABOVE_1, (1.062, 1.310))]


@claim(
    "PACER",
    "section 4.3, Table 3",
    "PACER is faster than SpecDec++ and than AdaEDL.",
    "1.143, 1.074",
    draft_model=True,
)
def pacer_beats_dynamic(at: Evidence) -> list[Part]:
    """Seconds of the other ÷ seconds of pacer, each tuned on other prompts."""
    mine = at.tuned(TUNED)
    return [
        Part("SpecDec++", speed(mine, at.tuned(SPECDECPP)), ABOVE_1, (1.143, 1.143)),
        Part("AdaEDL", speed(mine, at.tuned(ADAEDL)), ABOVE_1, (1.074, 1.074)),
    ]


@claim(
    "PACER",
    "section 4.3, Table 3",
    "A shorter τ can be faster: AdaEDL accepts fewer tokens a step than plain speculation, and"
    " gains on it.",
    "τ 0.848, speed 1.063",
    kind=Kind.EXAMPLE,
    draft_model=True,
)
def shorter_is_faster(at: Evidence) -> list[Part]:
    """Accepted tokens a step, and speed, of adaedl ÷ those of fixed, tuned on other prompts."""
    one, other = at.tuned(ADAEDL), at.tuned_fixed()
    return [
        Part("τ", per(one, other, "accepted", "steps"), BELOW_1, (0.848, 0.848)),
        Part("speed", speed(one, other), ABOVE_1, (1.063, 1.063)),
    ]


@claim(
    "PACER",
    "section 4.2, Table 1; PEARL, Table 1",
    "Assisted generation's heuristic is slower than the best fixed length.",
    "0.787–0.994; PEARL 0.778–1.046",
)
def assist_is_slower(at: Evidence) -> list[Part]:
    """Seconds of fixed, tuned on other prompts, ÷ seconds of heuristic with its defaults."""
    found = speed(at.replay(ASSIST), at.tuned_fixed())
    return [Part("", found, BELOW_1, (0.778, 1.046))]


@claim(
    "PACER",
    "section 4.5, Table 5",
    "Embedding the draft position makes PACER faster.",
    "1.045, 1.059",
    draft_model=True,
)
def position_helps(at: Evidence) -> list[Part]:
    """Seconds with the head without the embedding ÷ seconds of pacer(4, 0.7, 1.05)."""
    other = at.replay(paper.policy(head="pacer-no-position"))
    return [Part("", speed(at.replay(HEAD), other), ABOVE_1, (1.045, 1.059))]


@claim(
    "PACER",
    "section 4.5, Table 5",
    "A threshold that grows by 1.05 a block makes PACER faster.",
    "1.036, 1.049",
    draft_model=True,
)
def growth_helps(at: Evidence) -> list[Part]:
    """Seconds of pacer with growth 1 ÷ with 1.05, at b = 4, t = 0.7."""
    found = speed(at.replay(HEAD), at.replay(paper.policy(growth=1)))
    return [Part("", found, ABOVE_1, (1.036, 1.049))]


@claim(
    "PACER",
    "section 4.5, Table 5",
    "The growing threshold gains although fewer tokens are accepted a step.",
    "τ 0.996, 0.969",
    draft_model=True,
)
def growth_shortens(at: Evidence) -> list[Part]:
    """Accepted tokens a step of pacer with growth 1.05 ÷ with 1, at b = 4, t = 0.7."""
    other = at.replay(paper.policy(growth=1))
    return [Part("", per(at.replay(HEAD), other, "accepted", "steps"), BELOW_1, (0.969, 0.996))]


@claim(
    "PACER",
    "section 5.2, Table 7",
    "Stopping by the block's mean is faster than by any token, or by the last, below the"
    " threshold.",
    "1.073, 1.042",
    draft_model=True,
)
def mean_is_best(at: Evidence) -> list[Part]:
    """Seconds with the other criterion ÷ with the mean, at b = 4, t = 0.7, growth 1.05."""
    parts = []
    for other, printed in (("any", 1.073), ("last", 1.042)):
        found = speed(at.replay(HEAD), at.replay(paper.policy(criterion=other)))
        parts.append(Part(other, found, ABOVE_1, (printed, printed)))
    return parts


@claim(
    "PACER",
    "section 5.3, Table 8",
    "A head that sees the whole context is faster than one that sees the draft or the block only.",
    "1.086 (block), 1.072 (draft)",
    draft_model=True,
)
def context_helps(at: Evidence) -> list[Part]:
    """Seconds with the local head ÷ with the full one, at b = 4, t = 0.65, growth 1.02."""
    parts = []
    for other, printed in (("local-block", 1.086), ("local-draft", 1.072)):
        full, local = (
            at.replay(paper.policy(paper.HUMANEVAL_LLAMA, **head))
            for head in ({}, {"head": f"pacer-{other}"})
        )
        found = speed(full, local)
        parts.append(Part(other, found, ABOVE_1, (printed, printed)))
    return parts


@claim(
    "PACER",
    "appendix E, Table 11",
    "Blocks of 4 are the fastest of 1 to 7.",
    "others 0.718–0.940 times as fast",
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
    "others 0.942–0.995 times as fast",
    draft_model=True,
)
def growth_of_five(at: Evidence) -> list[Part]:
    """Speed of pacer with each growth ÷ with 1.05, at b = 4, t = 0.7; max-t intervals."""
    return _fastest(at, "growth", "ρ", paper.TABLE_12, "1.05")


@claim(
    "PACER",
    "appendix E, Table 13",
    "A threshold of 0.7 is the fastest of 0.50 to 0.80.",
    "others 0.900–0.967 times as fast",
    draft_model=True,
)
def threshold_of_seven_tenths(at: Evidence) -> list[Part]:
    """Speed of pacer with each t ÷ with t = 0.7, at b = 4, growth 1.05; max-t intervals."""
    return _fastest(at, "threshold", "t", paper.TABLE_13, "0.7")


@claim(
    "PACER",
    "appendix F.2, Table 15",
    "The pre-verification layer takes a moderate share of the time.",
    "2.10%, 1.30%",
    draft_model=True,
)
def head_is_cheap(at: Evidence) -> list[Part]:
    """Seconds of head calls and decisions ÷ all seconds of pacer(4, 0.7, 1.05); below 0.05."""
    at.head_s("pacer")
    mine = at.replay(HEAD)
    found = clusters.ratio(mine.seconds["policy_s"], mine.total_s)
    return [Part("", found, Range(hi=0.05), paper.HEAD_SHARES)]


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
