"""SVIP's claims: entropies bound acceptance, and stop drafts well."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from analysis.claims.claim import ClaimKind, Part, claims_of
from analysis.claims.evidence import BEST_FIXED, Evidence, Untestable
from analysis.claims.evidence import less as difference
from analysis.claims.verdict import ABOVE_0, ABOVE_1, BELOW_0, BELOW_1, MOST, STRONG, Allowed
from analysis.papers import svip as paper
from analysis.papers import words
from analysis.replays import ALONE, Replayed
from analysis.speeds import per, speed
from analysis.stats import Estimate, clusters, correlation, drafts, entropy

claim = claims_of("SVIP", draft_model=True)

TIGHTER = min(paper.TIGHTER.values()), max(paper.TIGHTER.values())
PRINTED = ", ".join(f"{share:.0%}" for share in paper.TIGHTER.values())
CONSTANT_SAMPLED = ", ".join(f"{t['Const.'].speedup:.2f}" for t in paper.TABLE_5.values())


def _averages(method: str) -> str:
    """SVIP's speed over another's, pair by pair, in words."""
    found = (table.speed("SVIP", method) for table in paper.TABLE_1.values())
    return f"{', '.join(f'{one:.3f}' for one in found)} (averages)"


def _tightness(at: Evidence) -> entropy.Tightness:
    names = ("draft_entropy", "cross_entropy", "overlap")
    h, cross, overlap = (at.trace.positions(name) for name in names)
    return entropy.tightness(h, cross, overlap, at.layout.offsets, c=paper.SCALE)


@claim(
    "section 2.3, Fig. 3",
    "The cross entropy is a nearly constant multiple of the draft's entropy: H(q,p) / H(q) lies"
    " mostly between 1.0 and 1.3.",
    f"concentrated in {words(paper.RATIO, '.1f')}",
    positions=True,
)
def entropy_ratio(at: Evidence) -> list[Part]:
    """Share of output positions with 1.0 <= H(q,p) / H(q) <= 1.3 (H(q) > 1e-6 nats)."""
    h, cross = (at.trace.positions(name) for name in ("draft_entropy", "cross_entropy"))
    bits = at.trace.manifest.bits
    found = entropy.entropy_ratio(h, cross, at.layout.offsets, paper.RATIO, bits)
    return [Part("", found.in_band, MOST)]


@claim(
    "appendix B",
    "Pinsker's bound on acceptance is tighter in practice than that of Bretagnolle and Huber.",
    f"{PRINTED} tighter",
    positions=True,
)
def pinsker_tighter(at: Evidence) -> list[Part]:
    """Mean(1 - sqrt(KL/2)) / mean(1 - sqrt(1 - exp(-KL))) - 1 over output positions.

    Pinsker's bound as it is, below 0 where KL > 2; also told with max(0, ·), which bounds as much.
    """
    found = _tightness(at)
    clipped = Part("with max(0, ·)", found.gain_clipped, None, TIGHTER)
    return [Part("", found.gain, ABOVE_0, TIGHTER), clipped]


@claim(
    "appendix B",
    f"Pinsker's bound is {TIGHTER[0]:.0%} to {TIGHTER[1]:.0%} tighter than that of Bretagnolle and"
    " Huber.",
    PRINTED,
    positions=True,
)
def pinsker_by_how_much(at: Evidence) -> list[Part]:
    """As pinsker_tighter, and that it lies between 0.11 and 0.43."""
    found = _tightness(at).gain
    return [Part("", found, Allowed(*TIGHTER), TIGHTER)]


@claim(
    "Eq. 6, Fig. 4",
    "1 - sqrt(c H(q)), which the draft alone gives, is a lower bound on acceptance for most"
    " tokens.",
    positions=True,
)
def estimate_is_below(at: Evidence) -> list[Part]:
    """Share of output positions with 1 - sqrt(0.15 H(q)) <= overlap.

    c = 0.15 is half of 1.3 - 1, the upper end of the ratio's range, and what SVIP's code has.
    """
    return [Part("", _tightness(at).below, MOST)]


@claim(
    "section 2.2, Fig. 2 top",
    "The draft's entropy and the acceptance probability of its token correlate strongly and"
    " negatively.",
    "plotted only",
    positions=True,
)
def entropy_against_acceptance(at: Evidence) -> list[Part]:
    """Spearman's ρ of H(q) and overlap (the acceptance probability's mean over the draft's token).

    Over output positions of a sampled trace, as in the paper's figure; raw distributions at
    temperature 1. "Strongly": ρ < -0.5. Also given: on the greedy trace.
    """

    def found(where: Evidence) -> Estimate:
        h, overlap = (where.trace.positions(name) for name in ("draft_entropy", "overlap"))
        return correlation.correlation(h, overlap, where.layout.offsets)

    return _sampled_first(at, found, Allowed(hi=-STRONG))


def _sampled(at: Evidence) -> Evidence:
    """The trace, or that of the same pair which is sampled.

    Raises:
        Untestable: there is none.
    """
    if not at.trace.sampler.greedy:
        return at
    if at.sampled is None:
        raise Untestable("no sampled trace of the pair: give one with --sampled")
    return at.sampled


def _sampled_first(
    at: Evidence, found: Callable[[Evidence], Estimate], expected: Allowed
) -> list[Part]:
    """A statistic of the sampled trace, which the prediction is about; of a greedy one told."""
    parts = [Part("sampled", found(_sampled(at)), expected)]
    return [*parts, Part("greedy", found(at), None)] if at.trace.sampler.greedy else parts


def _length_correlation(at: Evidence, loops: bool = False) -> Estimate:
    """Of entropy and accepted length; outside of loops, or with them."""
    trace, layout = at.trace, at.layout
    h, limits = trace.positions("draft_entropy"), (trace.max_new_tokens, trace.max_draft)
    if loops:
        found = drafts.every_start(layout.ahead, layout.offsets, *limits)
        return correlation.correlation(h, found.accepted, layout.offsets)
    left = at.outside
    found = drafts.every_start(left.cut(layout.ahead), left.offsets, *limits)
    return correlation.correlation(h[left.rows], found.accepted, left.prompts)


@claim(
    "section 2.2, Fig. 2 bottom",
    "Drafts that start where the draft's entropy is low have more accepted tokens.",
    "plotted only",
)
def entropy_against_length(at: Evidence) -> list[Part]:
    """Spearman's ρ of H(q) at a position and the accepted length of a draft of Γ from there.

    Over drafts from every output position outside of loops (they overlap) of a sampled trace, as in
    the paper's figure. Also given: on the greedy trace, and there with loops.
    """
    parts = _sampled_first(at, _length_correlation, BELOW_0)
    if at.trace.sampler.greedy:
        parts.append(Part("greedy, with loops", _length_correlation(at, loops=True), None))
    return parts


@claim(
    "appendix D, Fig. 8",
    "Entropy correlates with accepted length more strongly under greedy decoding than under"
    " sampling.",
    "plotted only",
)
def stronger_when_greedy(at: Evidence) -> list[Part]:
    """As entropy_against_length: ρ of the greedy trace less ρ of the sampled one.

    Outside of loops; also given: with them. The paper says "much more strongly"; here any
    difference counts. The two are taken for independent, though their prompts are the same: a
    wider interval.
    """
    if not at.trace.sampler.greedy:
        raise Untestable("the trace is sampled: give the greedy one, and this one with --sampled")
    other = _sampled(at)
    greedy, sampled = _length_correlation(at), _length_correlation(other)
    told = [Part("ρ, greedy", greedy, None), Part("ρ, sampled", sampled, None)]
    looped = [_length_correlation(one, loops=True) for one in (at, other)]
    return [
        Part("difference", difference(greedy, sampled), BELOW_0),
        Part("difference, with loops", difference(*looped), None),
        *told,
    ]


@claim(
    "section 3.1.2, Table 1",
    "Stopping by entropy is faster than a constant draft of 5.",
    _averages("Const."),
)
def faster_than_constant(at: Evidence) -> list[Part]:
    """Seconds of fixed(5) ÷ seconds of svip, h of 0.2–0.5 chosen on other prompts.

    Also given: seconds of the best fixed length, chosen alike, ÷ the same.
    """
    mine = at.tuned(paper.CHOSEN)
    found = speed(mine, at.replay(paper.CONSTANT))
    return [
        Part("", found, ABOVE_1, paper.faster_than("Const.")),
        Part(BEST_FIXED, speed(mine, at.tuned_fixed()), None),
    ]


@claim(
    "section 3.1.2, Table 1",
    "Stopping by entropy is faster than the Hugging Face heuristic.",
    _averages("Heuristics"),
)
def faster_than_heuristic(at: Evidence) -> list[Part]:
    """Seconds of heuristic(initial=5, feedback="nominal") ÷ those of svip, h as above."""
    found = speed(at.tuned(paper.CHOSEN), at.replay(paper.HEURISTIC))
    return [Part("", found, ABOVE_1, paper.faster_than("Heuristics"))]


@claim(
    "section 3.1.2, Figs. 5–7",
    "With stopping by entropy, a much higher share of drafted tokens is accepted than with"
    " the constant length or the heuristic; restated: than with constant lengths that draft"
    " as much.",
    "shares “close to or more than 80%” (Qwen), “more than 90%” (LLaMA)",
)
def shorter_drafts(at: Evidence) -> list[Part]:
    """Accepted ÷ drafted tokens of svip over that of constant lengths at the same mean length.

    h of 0.2–0.5 chosen on other prompts. Drafts of k tokens and of k + 1 are mixed so that they
    have as many tokens a step as svip's: any shorter draft has a higher share accepted. Also
    given: drafted tokens a step, and the share, over those of the paper's baselines.
    """
    mine = at.tuned(paper.CHOSEN)
    parts = [Part("share ÷ constants as long", _as_long(at, mine), ABOVE_1)]
    for name, spec in (("fixed(5)", paper.CONSTANT), ("heuristic", paper.HEURISTIC)):
        other = at.replay(spec)
        parts.append(Part(f"length ÷ {name}", per(mine, other, "drafted", "steps"), None))
        parts.append(Part(f"share ÷ {name}", per(mine, other, "accepted", "drafted"), None))
    return parts


def _as_long(at: Evidence, mine: Replayed) -> Estimate:
    """Accepted tokens a step of a replay ÷ those of constant lengths that draft as many."""
    drafted, steps = (mine.counts[name].sum() for name in ("drafted", "steps"))
    short = int(np.clip(drafted // max(1, steps), 0, at.trace.max_draft - 1))
    runs = [mine, *(at.replay(f"fixed({k})") for k in (short, short + 1))]
    sums = [run.counts[name] for run in runs for name in ("accepted", "drafted", "steps")]

    def statistic(s: np.ndarray) -> np.ndarray:
        accepted, length = s[..., 0::3] / s[..., 2::3], s[..., 1::3] / s[..., 2::3]
        weight = (length[..., 0] - length[..., 1]) / (length[..., 2] - length[..., 1])
        mixed = (1 - weight) * accepted[..., 1] + weight * accepted[..., 2]
        return (accepted[..., 0] / mixed)[..., None]

    return clusters.bootstrap(np.stack(sums, 1).astype(np.float64), statistic)[0]


@claim(
    "section 3.2, appendix D, Tables 2 and 6",
    "Speculation gets easier as the output gets longer.",
    "speedups at 256 ÷ 128 tokens: 0.98–1.02 (Table 2), greedy 1.02–1.18 (Table 6)",
    draft_model=False,
)
def later_is_easier(at: Evidence) -> list[Part]:
    """Share accepted of positions behind T_max / 2, less that of the positions before.

    Marginal over positions, not steps; of prompts whose output is longer than T_max / 2, outside of
    loops, which end an output as often as not. Also given: with loops.
    """
    found = [_later(at, at.outside.rows), _later(at, np.ones(len(at.outside.rows), bool))]
    return [Part("outside of loops", found[0], ABOVE_0), Part("with loops", found[1], None)]


def _later(at: Evidence, some: np.ndarray) -> Estimate:
    """That difference over some positions, (R,) bool."""
    layout, half = at.layout, at.trace.max_new_tokens // 2
    accepted = at.trace.positions("accepted")
    long = np.repeat(layout.n_output > half, layout.n_output)
    position = np.arange(len(accepted)) - np.repeat(layout.offsets[:-1], layout.n_output)
    early, late = some & long & (position < half), some & long & (position >= half)

    def columns(rows: slice) -> list[np.ndarray]:
        which = (early[rows], late[rows])
        return [*which, *(part & accepted[rows] for part in which)]

    def statistic(s: np.ndarray) -> np.ndarray:
        return s[..., 3:] / s[..., 1:2] - s[..., 2:3] / s[..., :1]

    sums = clusters.by_prompt(layout.offsets, columns)
    return clusters.bootstrap(sums, statistic)[0]


@claim(
    "section 3.2, Tables 2 and 5",
    "Under sampling, drafts of a fixed length can be slower than the target alone.",
    f"{CONSTANT_SAMPLED} (Table 5, averages)",
    kind=ClaimKind.EXAMPLE,
    draft_model=False,
)
def constant_can_lose(at: Evidence) -> list[Part]:
    """Seconds of the target alone ÷ seconds of fixed(5), on a sampled trace."""
    where = _sampled(at)
    found = speed(where.replay(paper.CONSTANT), where.replay(ALONE))
    return [Part("", found, BELOW_1, paper.constant_sampled())]
