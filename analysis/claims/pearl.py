"""PEARL's claims: draft and target at once."""

from __future__ import annotations

import numpy as np

from analysis.claims.claim import Part, claims_of, fastest_of, passes
from analysis.claims.evidence import Evidence, Untestable
from analysis.claims.verdict import ABOVE_0, ABOVE_1, MOST
from analysis.papers import pearl as paper
from analysis.papers import words
from analysis.speeds import speed
from analysis.stats import Estimate, clusters, drafts

claim = claims_of("PEARL", draft_model=True)


@claim(
    "section 3.1, Fig. 2b",
    "The optimal draft length changes from step to step, so that a fixed length is mostly"
    " wrong; restated: wrong more often than if tokens were accepted independently.",
    "plotted only",
    draft_model=False,
)
def fixed_is_mostly_wrong(at: Evidence) -> list[Part]:
    """Share of steps whose γ* (run of accepted tokens) is not γ, less 1 - (1 - α) α^γ.

    γ is the best fixed length; 1 - (1 - α) α^γ is the share for independent tokens of the same
    acceptance rate α. Outside of loops; also given: with loops, and the share alone, which can
    hardly be below one half.
    """
    length, runs, free = at.best_length, at.study.runs(), at.study.runs(at.outside)
    share, beyond = _not_of_length(runs, length)
    return [
        Part("outside of loops", _not_of_length(free, length)[1], ABOVE_0),
        Part("with loops", beyond, None),
        Part(f"γ* ≠ {length}", share, None),
    ]


def _not_of_length(runs: drafts.Drafts, length: int) -> tuple[Estimate, Estimate]:
    """The share of runs that have another length, and how much it is beyond independence."""

    def columns(rows: slice) -> list[np.ndarray]:
        run, rejected = runs.accepted[rows], runs.rejected[rows]
        return [run != length, np.ones(len(run)), run, run + rejected]

    def excess(s: np.ndarray) -> np.ndarray:
        alpha = s[..., 2:3] / s[..., 3:]
        return s[..., :1] / s[..., 1:2] - (1 - (1 - alpha) * alpha**length)

    sums = clusters.by_prompt(runs.offsets, columns)
    return clusters.ratio(sums[:, 0], sums[:, 1]), clusters.bootstrap(sums, excess)[0]


@claim(
    "section 4.2, Tables 1–3",
    "PEARL is faster than plain speculation with the best fixed length.",
    words(paper.SPEED, ".2f"),
)
def pearl_is_faster(at: Evidence) -> list[Part]:
    """Seconds of the best fixed length ÷ seconds of pearl, γ = round(c), on devices of their own.

    The best of 0–20 is chosen on the same prompts, as in the paper. Times measured on one device
    hold no communication between two: there PEARL pays none. Also given: with 0.3 ms a step, the
    most of the paper's Table 15.
    """
    mine, plain = at.replay("pearl"), at.best_fixed
    parts = [Part(f"÷ {plain.spec}", speed(mine, plain), ABOVE_1, paper.SPEED)]
    if at.charge.communication_s == 0:
        paid_s = mine.total_s + paper.COMMUNICATION_S[1] * mine.counts["steps"]
        label = f"with {1e3 * paper.COMMUNICATION_S[1]:g} ms of communication"
        parts.append(Part(label, speed(paid_s, plain), None))
    return parts


@claim(
    "section 4.3, Table 4",
    "PEARL is slower without pre-verify, and slower without post-verify.",
    ", ".join(words(paper.slower_without(which)) for which in ("pre", "post")),
)
def both_strategies_help(at: Evidence) -> list[Part]:
    """Seconds without a strategy ÷ seconds of pearl, γ = round(c)."""
    parts = []
    for which, printed in ((which, paper.slower_without(which)) for which in ("pre", "post")):
        found = speed(at.replay("pearl"), at.replay(f"pearl({which}_verify=false)"))
        parts.append(Part(f"without {which}-verify", found, ABOVE_1, printed))
    return parts


@claim(
    "section 4.3, Table 4",
    "Post-verify matters more than pre-verify.",
    words(paper.post_over_pre()),
)
def post_matters_more(at: Evidence) -> list[Part]:
    """Seconds of pearl without post-verify ÷ seconds without pre-verify, γ = round(c)."""
    pre, post = (at.replay(f"pearl({which}_verify=false)") for which in ("pre", "post"))
    return [Part("", speed(pre, post), ABOVE_1, paper.post_over_pre())]


@claim(
    "section 4.3",
    "Pre-verify gains more when fewer tokens are accepted, post-verify when more are accepted.",
)
def strategies_complement(at: Evidence) -> list[Part]:
    """A strategy's gain on the half of prompts that it suits ÷ its gain on the other half.

    Gain: seconds without the strategy ÷ seconds of pearl. Halves by the share accepted, at its
    median, in the sampled recording of the same prompts: cut by the outcome that is compared, any
    trace would hold the claim, coin flips too.
    """
    easy = _easy(at)
    whole, parts = at.replay("pearl").total_s, []
    for which, suited in (("pre", ~easy), ("post", easy)):
        other = at.replay(f"pearl({which}_verify=false)").total_s
        columns = [values * some for some in (suited, ~suited) for values in (other, whole)]
        parts.append(Part(f"{which}-verify", clusters.ratio_of_ratios(*columns), ABOVE_1))
    return parts


def _easy(at: Evidence) -> np.ndarray:
    """The half of prompts of which more is accepted in another recording, (S,) bool.

    Raises:
        Untestable: there is none of the same prompts.
    """
    other = at.sampled
    if other is None:
        raise Untestable("no sampled trace of the same prompts: give one with --sampled")
    asked = [one.trace.sequences.select(["sequence", "prompt_tokens"]) for one in (at, other)]
    if not asked[0].equals(asked[1]):
        raise Untestable("the sampled trace has other prompts")
    layout, accepted = other.layout, other.trace.positions("accepted")
    sums = clusters.by_prompt(layout.offsets, lambda rows: [accepted[rows]])
    share = sums[:, 0] / np.maximum(1, layout.n_output)
    return share > np.median(share) if len(share) else share > 0


@claim(
    "section 4.4.1, Tables 5 and 6",
    "The best window is the speed ratio c of the two models, rounded.",
    f"others {words(paper.other_windows(), '.2f')} times as fast",
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
    "section 4.4.2, Table 7",
    "PEARL's mean accepted tokens far exceed those of plain speculation.",
    " against ".join(words(paper.accepted(of), ".2f") for of in ("pearl", "plain")),
    theorem="true for every trace: each rejection ends a step of plain speculation too, which has"
    " other steps besides and accepts no other tokens",
)
def accepts_longer_runs(at: Evidence) -> list[Part]:
    """PEARL's run of accepted tokens between rejections, less those of a step of the best fixed.

    That is what Table 7 compares: both count accepted tokens. Also given: the same less the best
    fixed length's own run between rejections, like with like. Both paired over prompts.
    """
    plain = at.best_fixed
    mine, like = map(at.accepted_runs, ("pearl", plain.spec))
    accepted = np.stack([plain.counts["accepted"], plain.counts["steps"]], 1)
    return [
        Part("run − accepted a step", _gap(mine, accepted), None, paper.accepted("gap")),
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
    "appendix E, Table 11",
    "PEARL runs the draft and the target more often than plain speculation does.",
    "draft and target {}".format(words(paper.runs_ratios(), ".2f")),
)
def pearl_runs_more(at: Evidence) -> list[Part]:
    """Draft passes, and target passes, of pearl ÷ those of fixed, γ = round(c) of both."""
    plain = at.replay(f"fixed({at.window})")
    return passes(at.replay("pearl"), plain, ABOVE_1, paper.runs_ratios(), paper.runs_ratios())


@claim(
    "section 3.1, Fig. 2a",
    "Drafting takes long compared with verifying, so that each model waits for the other.",
    f"{paper.WAITING:g} (CodeLlama 7B/34B, γ = 6)",
)
def drafting_takes_long(at: Evidence) -> list[Part]:
    """Draft seconds ÷ verification seconds of the best fixed length; above one half.

    With drafts of round(c) tokens, as in the paper's figure, both take the same time by c's
    definition, but for what verifying several tokens takes longer (also given).
    """
    found = []
    for run in (at.best_fixed, at.replay(f"fixed({at.window})")):
        found.append(clusters.ratio(run.seconds["draft_s"], run.seconds["verify_s"]))
    first = Part(at.best_fixed.spec, found[0], MOST)
    return [first, Part(f"fixed({at.window}), round(c)", found[1], None)]
