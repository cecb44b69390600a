"""PARD-2's claims that one drafter can test; the others compare two trained drafters."""

from __future__ import annotations

import numpy as np

from analysis.claims.claim import Part, claim
from analysis.claims.evidence import Evidence, Untestable
from analysis.claims.verdict import ABOVE_0, BELOW_1, STRONG, Range
from analysis.papers.pard2 import DECAYS, DRAFT
from analysis.stats import acceptance_length, clusters, correlation
from analysis.stats.acceptance_length import cat_weights, windows


@claim(
    "PARD-2",
    "section 3.2, Fig. 2b",
    "The target's confidence in the output's token correlates strongly with its acceptance.",
    "“strong positive correlation”, plotted only",
)
def confidence_predicts(at: Evidence) -> list[Part]:
    """Spearman's ρ of p(y_i), raw, and whether the draft's token at i is accepted; above 0.5.

    Over output positions; the paper bins by confidence, which looks stronger. "Strong" is what it
    is for SVIP (entropy_against_acceptance). With a flag on one side ρ is at most sqrt(3 α (1 - α))
    (told besides), 0.77 at a share α = 0.73 accepted.
    """
    layout, confidence = at.layout, at.trace.positions("target_token_prob_raw")
    accepted = at.trace.positions("accepted")
    found = correlation.correlation(confidence, accepted, layout.offsets)
    sums = clusters.by_prompt(layout.offsets, lambda rows: [accepted[rows], ~accepted[rows]])

    def most(s: np.ndarray) -> np.ndarray:
        return np.sqrt(3 * s[..., :1] * s[..., 1:]) / (s[..., :1] + s[..., 1:])

    ceiling = clusters.bootstrap(sums, most)[0]
    return [Part("ρ", found, Range(lo=STRONG)), Part("the most it can be", ceiling, None)]


@claim(
    "PARD-2",
    "Eqs. 3, 9 and 10",
    "The expected acceptance length, with the target's confidence for each acceptance probability,"
    " tells which drafts get far.",
)
def length_is_predicted(at: Evidence) -> list[Part]:
    """Pearson's correlation of Σ_k Π_{j<=k} p(y_j) and the accepted tokens of a draft of 16.

    Over drafts from every position with 16 more tokens behind it. Told besides: mean predicted
    less mean accepted, tokens.
    """
    found = acceptance_length.prediction(
        at.trace.positions("target_token_prob_raw"), at.layout.ahead, at.layout.offsets, DRAFT
    )
    return [Part("", found.correlation, ABOVE_0), Part("bias, tokens", found.bias, None)]


@claim(
    "PARD-2",
    "sections 3.2 and 4.3, Table 3",
    "Weights by the target's confidence say better than a decay by position whether a token of a"
    " draft is reached.",
    "trained with either: τ 5.79 against 5.52, 5.61, 5.12",
)
def weights_beat_decay(at: Evidence) -> list[Part]:
    """Brier score of ŝ_k = Π_{j<k} p(y_j) ÷ that of γ^(k-1), for "all before k are accepted".

    Over depths 2–16 of the drafts of length_is_predicted; γ = 1.0, 0.8, 0.6. Table 3 trains
    drafters with these weights; here only the weights are judged.
    """
    layout, confidence = at.layout, at.trace.positions("target_token_prob_raw")
    n = len(confidence)
    left = np.repeat(layout.offsets[1:], layout.n_output) - np.arange(n)
    if n < DRAFT:
        raise Untestable(f"the trace holds fewer than {DRAFT} tokens")

    def columns(rows: slice) -> list[np.ndarray]:
        start = np.minimum(np.arange(rows.start, rows.stop), n - DRAFT)
        whole = left[rows] > DRAFT
        reached = np.arange(1, DRAFT) <= layout.ahead[rows][:, None]
        weights = [cat_weights(windows(confidence, start, DRAFT))]
        weights += [decay ** np.arange(DRAFT)[None, :] for decay in DECAYS]
        return [whole * ((w[:, 1:] - reached) ** 2).sum(1) for w in weights]

    sums = clusters.by_prompt(layout.offsets, columns, 2**17)
    return [
        Part(f"γ = {decay}", clusters.ratio(sums[:, 0], sums[:, k + 1]), BELOW_1)
        for k, decay in enumerate(DECAYS)
    ]


@claim(
    "PARD-2",
    "section 4.3, Table 5",
    "Training a parallel drafter with these weights makes τ longer.",
    "4.83 to 4.98 accepted tokens a step",
)
def weights_help_training(at: Evidence) -> list[Part]:
    """Accepted tokens a step of a drafter trained with the weights ÷ of one without."""
    raise Untestable("a trace holds one drafter; this compares two that were trained apart")
