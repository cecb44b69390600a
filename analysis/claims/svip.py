"""SVIP's claims: entropies bound acceptance, and stop drafts well."""

from __future__ import annotations

import numpy as np

from analysis.claims.claim import Part, claim
from analysis.claims.evidence import Evidence, Untestable
from analysis.claims.evidence import less as difference
from analysis.claims.verdict import ABOVE_0, ABOVE_1, BELOW_0, BELOW_1, MOST, Range
from analysis.papers.svip import CONSTANT as SVIP_CONSTANT
from analysis.papers.svip import HEURISTIC as SVIP_HEURISTIC
from analysis.replays import ALONE, per, speed
from analysis.stats import Estimate, clusters, correlation, drafts, entropy

C = 0.15  # 1 - sqrt(c H(q)) with H(q,p) = 1.3 H(q), the upper end of section 2.3; also in its code
TIGHTER = (0.11, 0.43)  # appendix B
SVIP = "svip(h=0.2:0.5:0.1)"  # section 3.1.1 chooses h from these


def _tightness(at: Evidence) -> entropy.Tightness:
    names = ("draft_entropy", "cross_entropy", "overlap")
    h, cross, overlap = (at.trace.positions(name) for name in names)
    return entropy.tightness(h, cross, overlap, at.layout.offsets, c=C)


@claim(
    "SVIP",
    "section 2.3, Fig. 3",
    "The cross entropy is a nearly constant multiple of the draft's entropy: H(q,p) / H(q) lies"
    " mostly between 1.0 and 1.3.",
    "concentrated in 1.0–1.3",
)
def entropy_ratio(at: Evidence) -> list[Part]:
    """Share of output positions with 1.0 <= H(q,p) / H(q) <= 1.3 (H(q) > 1e-6 nats)."""
    h, cross = (at.trace.positions(name) for name in ("draft_entropy", "cross_entropy"))
    return [Part("", entropy.entropy_ratio(h, cross, at.layout.offsets).in_band, MOST)]


@claim(
    "SVIP",
    "appendix B",
    "Pinsker's bound on acceptance is tighter in practice than that of Bretagnolle and Huber.",
    "11%, 20%, 43% tighter",
)
def pinsker_tighter(at: Evidence) -> list[Part]:
    """Mean(1 - sqrt(KL/2)) / mean(1 - sqrt(1 - exp(-KL))) - 1 over output positions.

    Pinsker's bound as it is, below 0 where KL > 2; also told with max(0, ·), which bounds as much.
    """
    found = _tightness(at)
    clipped = Part("with max(0, ·)", found.gain_clipped, None, TIGHTER)
    return [Part("", found.gain, ABOVE_0, TIGHTER), clipped]


@claim(
    "SVIP",
    "appendix B",
    "Pinsker's bound is 11% to 43% tighter than that of Bretagnolle and Huber.",
    "11%, 20%, 43%",
)
def pinsker_by_how_much(at: Evidence) -> list[Part]:
    """As pinsker_tighter, and that it lies between 0.11 and 0.43."""
    found = _tightness(at).gain
    return [Part("", found, Range(*TIGHTER), TIGHTER)]


@claim(
    "SVIP",
    "Eq. 6, Fig. 4",
    "1 - sqrt(c H(q)), read off the draft alone, is a lower bound on acceptance for most tokens.",
)
def estimate_is_below(at: Evidence) -> list[Part]:
    """Share of output positions with 1 - sqrt(0.15 H(q)) <= overlap.

    c = 0.15 is half of 1.3 - 1, the upper end of the ratio's range, and what SVIP's code has.
    """
    return [Part("", _tightness(at).below, MOST)]


@claim(
    "SVIP",
    "section 2.2, Fig. 2 top",
    "The draft's entropy and the acceptance probability of its token correlate strongly and"
    " negatively.",
    "plotted only",
)
def entropy_against_acceptance(at: Evidence) -> list[Part]:
    """Spearman's ρ of H(q) and overlap (the acceptance probability's mean over the draft's token).

    Over output positions, raw distributions at temperature 1. "Strongly": ρ < -0.5.
    """
    h, overlap = (at.trace.positions(name) for name in ("draft_entropy", "overlap"))
    found = correlation.correlation(h, overlap, at.layout.offsets)
    return [Part("", found, Range(hi=-0.5))]


def _length_correlation(at: Evidence) -> Estimate:
    trace, layout = at.trace, at.layout
    found = drafts.every_start(layout.ahead, layout.offsets, trace.max_new_tokens, trace.max_draft)
    h = trace.positions("draft_entropy")
    return correlation.correlation(h, found.accepted, layout.offsets)


@claim(
    "SVIP",
    "section 2.2, Fig. 2 bottom",
    "Drafts that start at a low entropy are accepted for longer.",
    "plotted only",
)
def entropy_against_length(at: Evidence) -> list[Part]:
    """Spearman's ρ of H(q) at a position and the accepted length of a draft of Γ from there.

    Over drafts from every output position (they overlap).
    """
    return [Part("", _length_correlation(at), BELOW_0)]


@claim(
    "SVIP",
    "appendix D, Fig. 8",
    "Entropy correlates with accepted length more strongly under greedy decoding than under"
    " sampling.",
    "plotted only",
)
def stronger_when_greedy(at: Evidence) -> list[Part]:
    """As entropy_against_length: ρ of the greedy trace less ρ of the sampled one.

    The paper says "much more strongly"; here any difference counts. The two are taken for
    independent, though their prompts are the same: a wider interval.
    """
    if not at.trace.sampler.greedy:
        raise Untestable("the trace is sampled: give the greedy one, and this one with --sampled")
    if at.sampled is None:
        raise Untestable("no sampled trace of the pair: give one with --sampled")
    greedy, sampled = _length_correlation(at), _length_correlation(at.sampled)
    told = [Part("ρ, greedy", greedy, None), Part("ρ, sampled", sampled, None)]
    return [Part("difference", difference(greedy, sampled), BELOW_0), *told]


@claim(
    "SVIP",
    "section 3.1.2, Table 1",
    "Stopping by entropy is faster than a constant draft of 5.",
    "1.148, 1.206, 1.209 (averages)",
)
def faster_than_constant(at: Evidence) -> list[Part]:
    """Seconds of fixed(5) ÷ seconds of svip, h of 0.2–0.5 chosen on other prompts."""
    found = speed(at.tuned(SVIP), at.replay(SVIP_CONSTANT))
    return [Part("", found, ABOVE_1, (1.148, 1.209))]


@claim(
    "SVIP",
    "section 3.1.2, Table 1",
    "Stopping by entropy is faster than the Hugging Face heuristic.",
    "1.065, 1.206, 1.025 (averages)",
)
def faster_than_heuristic(at: Evidence) -> list[Part]:
    """Seconds of heuristic(initial=5, feedback="nominal") ÷ those of svip, h as above."""
    found = speed(at.tuned(SVIP), at.replay(SVIP_HEURISTIC))
    return [Part("", found, ABOVE_1, (1.025, 1.206))]


@claim(
    "SVIP",
    "section 3.1.2, Figs. 5–7",
    "Its drafts are shorter, and a much higher share of their tokens is accepted, than with the"
    " constant length or the heuristic.",
    "shares “close to or more than 80%” (Qwen), “more than 90%” (LLaMA)",
)
def shorter_drafts(at: Evidence) -> list[Part]:
    """Drafted tokens a step, and accepted ÷ drafted tokens, of svip over those of each baseline.

    h of 0.2–0.5 chosen on other prompts.
    """
    mine, parts = at.tuned(SVIP), []
    for name, spec in (("fixed(5)", SVIP_CONSTANT), ("heuristic", SVIP_HEURISTIC)):
        other = at.replay(spec)
        parts.append(Part(f"length ÷ {name}", per(mine, other, "drafted", "steps"), BELOW_1))
        share = per(mine, other, "accepted", "drafted")
        parts.append(Part(f"share ÷ {name}", share, ABOVE_1))
    return parts


@claim(
    "SVIP",
    "section 3.2, appendix D, Tables 2 and 6",
    "Speculation gets easier as the output gets longer.",
    "speedups at 256 ÷ 128 tokens: 0.98–1.02 (Table 2), greedy 1.02–1.18 (Table 6)",
)
def later_is_easier(at: Evidence) -> list[Part]:
    """Share accepted of positions behind T_max / 2, less that of the positions before.

    Marginal over positions, not steps; of prompts whose output is longer than T_max / 2.
    """
    layout, half = at.layout, at.trace.max_new_tokens // 2
    accepted = at.trace.positions("accepted")
    long = np.repeat(layout.n_output > half, layout.n_output)
    position = np.arange(len(accepted)) - np.repeat(layout.offsets[:-1], layout.n_output)
    early, late = long & (position < half), long & (position >= half)

    def columns(rows: slice) -> list[np.ndarray]:
        which = (early[rows], late[rows])
        return [*which, *(part & accepted[rows] for part in which)]

    def statistic(s: np.ndarray) -> np.ndarray:
        return s[..., 3:] / s[..., 1:2] - s[..., 2:3] / s[..., :1]

    sums = clusters.by_prompt(layout.offsets, columns)
    return [Part("", clusters.bootstrap(sums, statistic)[0], ABOVE_0)]


@claim(
    "SVIP",
    "section 3.2, Tables 2 and 5",
    "Under sampling, drafts of a fixed length can be slower than the target alone.",
    "0.65, 0.96; but 1.60 (Table 5, averages)",
)
def constant_can_lose(at: Evidence) -> list[Part]:
    """Seconds of the target alone ÷ seconds of fixed(5), on a sampled trace."""
    where = at.sampled if at.trace.sampler.greedy else at
    if where is None:
        raise Untestable("no sampled trace of the pair: give one with --sampled")
    found = speed(where.replay(SVIP_CONSTANT), where.replay(ALONE))
    return [Part("", found, BELOW_1, (0.65, 0.96))]
