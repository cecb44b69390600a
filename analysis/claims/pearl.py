"""PEARL's claims: draft and target at once."""

from __future__ import annotations

import numpy as np

from analysis.claims.claim import Part, claim, fastest_of, passes
from analysis.claims.evidence import Evidence, Untestable
from analysis.claims.verdict import ABOVE_0, ABOVE_1, MOST
from analysis.replays import speed
from analysis.stats import Estimate, clusters, drafts


@claim(
    "PEARL",
    "section 3.1, Fig. 2b",
    "The optimal draft length changes from step to step, so that a fixed one is mostly wrong.",
    "plotted only",
)
def fixed_is_mostly_wrong(at: Evidence) -> list[Part]:
    """Share of steps whose γ* (run of accepted tokens) is not the best fixed length γ.

    It can hardly fail: half of all steps would have to have γ* = γ. So told besides: the share
    less 1 - (1 - α) α^γ, that of independent tokens of the same acceptance rate α.
    """
    runs = drafts.runs(at.trace.positions("accepted"), at.layout.offsets)
    length = at.best_length

    def columns(rows: slice) -> list[np.ndarray]:
        run, rejected = runs.accepted[rows], runs.rejected[rows]
        return [run != length, np.ones(len(run)), run, run + rejected]

    def excess(s: np.ndarray) -> np.ndarray:
        alpha = s[..., 2:3] / s[..., 3:]
        return s[..., :1] / s[..., 1:2] - (1 - (1 - alpha) * alpha**length)

    sums = clusters.by_prompt(runs.offsets, columns)
    return [
        Part(f"γ* ≠ {length}", clusters.ratio(sums[:, 0], sums[:, 1]), MOST),
        Part("less that of independent tokens", clusters.bootstrap(sums, excess)[0], None),
    ]


@claim(
    "PEARL",
    "section 4.2, Tables 1–3",
    "PEARL is faster than plain speculation with the best fixed length.",
    "1.36–1.55",
)
def pearl_is_faster(at: Evidence) -> list[Part]:
    """Seconds of the best fixed length ÷ seconds of pearl, γ = round(c), on devices of their own.

    The best of 0–20 is chosen on the same prompts, as in the paper.
    """
    found = speed(at.replay("pearl"), at.best_fixed)
    return [Part(f"÷ {at.best_fixed.spec}", found, ABOVE_1, (1.36, 1.55))]


@claim(
    "PEARL",
    "section 4.3, Table 4",
    "Without pre-verify, and without post-verify, PEARL is slower.",
    "1.063–1.143, 1.335–1.475",
)
def both_strategies_help(at: Evidence) -> list[Part]:
    """Seconds without a strategy ÷ seconds of pearl, γ = round(c)."""
    parts = []
    for which, printed in (("pre", (1.063, 1.143)), ("post", (1.335, 1.475))):
        found = speed(at.replay("pearl"), at.replay(f"pearl({which}_verify=false)"))
        parts.append(Part(f"without {which}-verify", found, ABOVE_1, printed))
    return parts


@claim(
    "PEARL",
    "section 4.3, Table 4",
    "Post-verify matters more than pre-verify.",
    "1.167–1.374",
)
def post_matters_more(at: Evidence) -> list[Part]:
    """Seconds of pearl without post-verify ÷ seconds without pre-verify, γ = round(c)."""
    pre, post = (at.replay(f"pearl({which}_verify=false)") for which in ("pre", "post"))
    return [Part("", speed(pre, post), ABOVE_1, (1.167, 1.374))]


@claim(
    "PEARL",
    "section 4.3",
    "Pre-verify gains more where fewer tokens are accepted, post-verify where more are.",
)
def strategies_complement(at: Evidence) -> list[Part]:
    """A strategy's gain on the half of prompts that it suits ÷ its gain on the other half.

    Gain: seconds without the strategy ÷ seconds of pearl. Halves by the share of the prompt's
    positions that are accepted, at its median.
    """
    layout = at.layout
    sums = clusters.by_prompt(layout.offsets, lambda rows: [at.trace.positions("accepted")[rows]])
    share = sums[:, 0] / np.maximum(1, layout.n_output)
    easy = share > np.median(share) if len(share) else share > 0
    whole, parts = at.replay("pearl").total_s, []
    for which, suited in (("pre", ~easy), ("post", easy)):
        other = at.replay(f"pearl({which}_verify=false)").total_s
        columns = [values * some for some in (suited, ~suited) for values in (other, whole)]
        parts.append(Part(f"{which}-verify", clusters.ratio_of_ratios(*columns), ABOVE_1))
    return parts


@claim(
    "PEARL",
    "section 4.4.1, Tables 5 and 6",
    "The best window is the speed ratio c of the two models, rounded.",
    "others 0.40–0.98 times as fast",
)
def window_is_ratio(at: Evidence) -> list[Part]:
    """Speed of pearl with each γ ÷ with round(c); max-t intervals.

    γ from 1 to 10, or to two beyond round(c), as in the figure pearl_window.
    """
    if at.too_wide:
        raise Untestable(at.too_wide)
    runs = {f"γ = {k}": at.replay(f"pearl({k})") for k in range(1, at.longest_window + 1)}
    return fastest_of(runs, f"γ = {at.window}", {})


@claim(
    "PEARL",
    "section 4.4.2, Table 7",
    "PEARL's mean accepted tokens far exceed those of plain speculation.",
    "26.53–39.90 against 5.27–8.32",
)
def accepts_longer_runs(at: Evidence) -> list[Part]:
    """PEARL's run of accepted tokens between rejections, less tokens a step of the best fixed.

    That is what Table 7 compares. Told besides: the same less the best fixed length's own run
    between rejections, like with like. Both paired over prompts.
    """
    plain = at.best_fixed
    mine, like = map(at.accepted_runs, ("pearl", plain.spec))
    tau = np.stack([plain.counts["tokens"], plain.counts["steps"]], 1)
    return [
        Part("run − tokens a step", _gap(mine, tau), ABOVE_0, (18.21, 34.21)),
        Part("run − run", _gap(mine, like), None),
    ]


def _gap(mine: np.ndarray, other: np.ndarray) -> Estimate:
    """One ratio of sums less another, paired over prompts.

    Args:
        mine: (S, 2), what is divided, and by what.
        other: the same of the other.
    """

    def statistic(s: np.ndarray) -> np.ndarray:
        return s[..., :1] / s[..., 1:2] - s[..., 2:3] / s[..., 3:]

    sums = np.concatenate([mine, other], 1).astype(np.float64)
    return clusters.bootstrap(sums, statistic)[0]


@claim(
    "PEARL",
    "appendix E, Table 11",
    "PEARL runs the draft and the target more often than plain speculation does.",
    "draft 1.29–1.42, target 1.29–1.42",
)
def pearl_runs_more(at: Evidence) -> list[Part]:
    """Draft passes, and target passes, of pearl ÷ those of fixed, γ = round(c) of both."""
    plain = at.replay(f"fixed({at.window})")
    return passes(at.replay("pearl"), plain, ABOVE_1, (1.29, 1.42), (1.29, 1.42))


@claim(
    "PEARL",
    "section 3.1, Fig. 2a",
    "Drafting takes a time that matters beside verifying, so that each model waits for the other.",
    "2 (CodeLlama 7B/34B, γ = 6)",
)
def drafting_takes_long(at: Evidence) -> list[Part]:
    """Draft seconds ÷ verification seconds of fixed(γ), γ = round(c); above one half."""
    spec = f"fixed({at.window})"
    parts = at.replay(spec).seconds
    return [Part(spec, clusters.ratio(parts["draft_s"], parts["verify_s"]), MOST)]
