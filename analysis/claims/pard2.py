"""PARD-2's claims that one drafter can test; `pard2_training` compares trained drafters."""

from __future__ import annotations

import numpy as np

from analysis.claims.claim import Part, claims_of, depth_parts
from analysis.claims.evidence import Evidence, Untestable
from analysis.claims.verdict import ABOVE_0, BELOW_0, BELOW_1, STRONG, Allowed
from analysis.papers import pard2 as paper
from analysis.papers.pard2 import DECAYS, DRAFT
from analysis.stats import acceptance_length, clusters, correlation
from analysis.stats.acceptance_length import cat_weights, windows
from simkit.drafters import layout_of
from traces.trace import Trace

claim = claims_of("PARD-2")

SHALLOWEST = 8  # drafts of which a slope is taken


@claim(
    "section 1, Fig. 2a",
    "Tokens at later positions of a draft have consistently lower acceptance rates; the rate"
    " is conditional, over drafts accepted up to the position before.",
    "plotted only",
)
def later_positions_fall(at: Evidence) -> list[Part]:
    """Slope of a parallel drafter's conditional acceptance in depth, a token, outside of loops.

    The trace's drafter if one pass of it yields a draft, else the deepest attached one of which
    that is true, since the paper plots parallel drafters. Accepted ÷ reached (all earlier tokens of
    the draft accepted), over the steps of fixed(K), K = 16 or as deep as was recorded, 8 at least;
    least squares, a depth weighs as many drafts as reached it. Outside, drafts begin anew at each
    stretch between loops. Also given: with loops.
    """
    drafter = parallel(at)
    deep = min(DRAFT, drafter.max_draft)

    def slope(s: np.ndarray) -> np.ndarray:
        risk, lost, j = s[..., :deep], s[..., deep:], np.arange(deep)
        away = j - (risk * j).sum(-1, keepdims=True) / risk.sum(-1, keepdims=True)
        return ((risk - lost) * away).sum(-1, keepdims=True) / (risk * away**2).sum(
            -1, keepdims=True
        )

    recording, first = at.trace.recording, at.study.first_token
    outputs = at if recording is None else Evidence(recording, at.cost, None, first)
    ahead = layout_of(drafter).ahead
    return depth_parts(outputs.by_depth(deep, deep, ahead), slope, BELOW_0)


def parallel(at: Evidence) -> Trace:
    """The deepest of the drafters of which one pass yields a draft; the trace's own, or attached.

    Raises:
        Untestable: there is none, or it drafts too few tokens.
    """
    recording = at.trace.recording or at.trace
    some = [at.trace]
    if not _in_one_pass(at.trace) and recording.path is not None:
        some = [recording.with_drafter(name) for name in recording.drafters]
    found = [one for one in some if _in_one_pass(one)]
    if not found:
        raise Untestable("the claim is about parallel drafters, and none is attached")
    one = max(found, key=lambda drafter: drafter.max_draft)
    if one.max_draft < SHALLOWEST:
        raise Untestable(f"Γ = {one.max_draft}: needs drafts of {SHALLOWEST} tokens")
    return one


def _in_one_pass(drafter: Trace) -> bool:
    return drafter.manifest.kind == "lattice" and drafter.manifest.draft_passes == "draft"


@claim(
    "section 3.2, Fig. 2b",
    "The target's confidence in the output's token correlates strongly with its acceptance.",
    "“strong positive correlation”, plotted only",
)
def confidence_predicts(at: Evidence) -> list[Part]:
    """Spearman's ρ of p(y_i), raw, and whether the draft's token at i is accepted; above 0.5.

    Over output positions outside of loops; the paper bins by confidence, which looks stronger.
    "Strong" is what it is for SVIP (entropy_against_acceptance). Also given: with loops; and the
    most that ρ can be with a flag on one side: sqrt(3 α (1 - α)), 0.77 for a share α = 0.73.
    """
    layout, confidence = at.layout, at.trace.positions("target_token_prob_raw")
    accepted = at.trace.positions("accepted")
    left = at.outside
    found = correlation.correlation(confidence, accepted, layout.offsets)
    free = correlation.correlation(confidence[left.rows], accepted[left.rows], left.prompts)
    sums = clusters.by_prompt(layout.offsets, lambda rows: [accepted[rows], ~accepted[rows]])

    def most(s: np.ndarray) -> np.ndarray:
        return np.sqrt(3 * s[..., :1] * s[..., 1:]) / (s[..., :1] + s[..., 1:])

    ceiling = clusters.bootstrap(sums, most)[0]
    return [
        Part("outside of loops", free, Allowed(lo=STRONG)),
        Part("with loops", found, None),
        Part("the most it can be", ceiling, None),
    ]


@claim(
    "Eqs. 3, 9 and 10",
    "The expected acceptance length, with the target's confidence as each acceptance"
    " probability, predicts how many tokens of a draft are accepted.",
)
def length_is_predicted(at: Evidence) -> list[Part]:
    """Pearson's correlation of Σ_k Π_{j<=k} p(y_j) and the accepted tokens of a draft of 16.

    Over drafts from every position with 16 more tokens behind it, all outside of loops. Also
    given: with loops; and mean predicted less mean accepted, tokens, outside of them.
    """
    confidence, left = at.trace.positions("target_token_prob_raw"), at.outside
    free = acceptance_length.prediction(
        confidence[left.rows], left.cut(at.layout.ahead), left.offsets, DRAFT, by=left.summed
    )
    whole = acceptance_length.prediction(confidence, at.layout.ahead, at.layout.offsets, DRAFT)
    return [
        Part("outside of loops", free.correlation, ABOVE_0),
        Part("with loops", whole.correlation, None),
        Part("bias, tokens", free.bias, None),
    ]


@claim(
    "sections 3.2 and 4.3, Table 3",
    "Weights by the target's confidence predict better than a decay by position whether"
    " verification reaches a draft token.",
    f"trained with either: τ {paper.TABLE_3['CAT'].tau} against"
    f" {', '.join(str(paper.TABLE_3[f'γ = {decay}'].tau) for decay in DECAYS)}",
)
def weights_beat_decay(at: Evidence) -> list[Part]:
    """Brier score of ŝ_k = Π_{j<k} p(y_j) ÷ that of γ^(k-1), for "all before k are accepted".

    Over depths 2–16 of the drafts of length_is_predicted, outside of loops; γ = 1.0, 0.8, 0.6.
    Table 3 trains drafters with these weights; here only the weights are judged.
    """
    free = at.outside
    confidence = at.trace.positions("target_token_prob_raw")[free.rows]
    ahead, offsets, n = free.cut(at.layout.ahead), free.offsets, len(confidence)
    left = np.repeat(offsets[1:], np.diff(offsets)) - np.arange(n)
    if n < DRAFT:
        raise Untestable(f"the trace holds fewer than {DRAFT} tokens outside of loops")

    def columns(rows: slice) -> list[np.ndarray]:
        start = np.minimum(np.arange(rows.start, rows.stop), n - DRAFT)
        whole = left[rows] > DRAFT
        reached = np.arange(1, DRAFT) <= ahead[rows][:, None]
        weights = [cat_weights(windows(confidence, start, DRAFT))]
        weights += [decay ** np.arange(DRAFT)[None, :] for decay in DECAYS]
        return [whole * ((w[:, 1:] - reached) ** 2).sum(1) for w in weights]

    sums = free.summed(clusters.by_prompt(offsets, columns, 2**17))
    return [
        Part(f"γ = {decay}", clusters.ratio(sums[:, 0], sums[:, k + 1]), BELOW_1)
        for k, decay in enumerate(DECAYS)
    ]
