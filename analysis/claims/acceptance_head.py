"""The acceptance-head paper's claims: stopping early is worth more than a longer τ.

Its drafts are EAGLE-2 trees; ours are chains, so that fixed(6) stands for "without the head".
"""

from __future__ import annotations

from analysis.claims.claim import Part, claims_of
from analysis.claims.evidence import BEST_FIXED, Evidence, Untestable
from analysis.claims.verdict import ABOVE_0, ABOVE_1, BELOW_1, Allowed
from analysis.papers import acceptance_head as paper
from analysis.papers import words
from analysis.replays import Replayed
from analysis.scored import predicted
from analysis.speeds import per, ratio, speed
from analysis.stats import clusters, reliability
from analysis.study import MissingError

claim = claims_of("acceptance head", draft_model=True)

_NAME = "acceptance_head"
HEAD = paper.policy()
SPEEDS, TAUS = paper.gains()


def _pair(at: Evidence) -> tuple[Replayed, Replayed]:
    return at.replay(HEAD), at.replay(paper.WITHOUT)


@claim(
    "section 3.2, Table 1, Fig. 2",
    "Adding the head raises speed although τ falls.",
    f"speed {words(SPEEDS)}, τ {words(TAUS)} (means of four tasks, T = 0 and 1)",
)
def head_gains_without_tau(at: Evidence) -> list[Part]:
    """Speed of acceptance_head(0.95, K_max 6) ÷ that of fixed(6).

    Also given: speed ÷ that of the best fixed length; and tokens a step, which cannot rise (see
    head_verifies_less).
    Printed are the means of each pair's four tasks; the paper misprints one of them (see
    `analysis.papers.acceptance_head`).
    """
    one, other = _pair(at)
    return [
        Part("speed", speed(one, other), ABOVE_1, SPEEDS),
        Part(BEST_FIXED, speed(one, at.tuned_fixed()), None),
        Part("τ", per(one, other, "tokens", "steps"), None, TAUS),
    ]


@claim(
    "sections 1 and 3.2",
    "The head saves draft tokens that would be rejected.",
)
def head_wastes_less(at: Evidence) -> list[Part]:
    """Drafted tokens that are not accepted, of acceptance_head(0.95, 6) ÷ those of fixed(6)."""
    one, other = (run.counts["drafted"] - run.counts["accepted"] for run in _pair(at))
    return [Part("", clusters.ratio(one, other), BELOW_1)]


@claim(
    "section 3.2 (i)",
    "The speedup comes from fewer verification attempts.",
    theorem="false for every trace: no draft is longer than fixed(6)'s, and on one output a shorter"
    " draft never ends a step later, so that there are never fewer steps",
)
def head_verifies_less(at: Evidence) -> list[Part]:
    """Target passes of acceptance_head(0.95, 6) ÷ those of fixed(6); 1 or more.

    The output is the same, so fewer passes would need a longer τ, which the paper denies.
    """
    return [Part("", ratio(*_pair(at), "steps"), None)]


@claim(
    "section 2.3, Eqs. 11–12",
    "A threshold derived from the cost of drafting and verifying makes the head pay.",
)
def cost_threshold_pays(at: Evidence) -> list[Part]:
    """Seconds of fixed(6) ÷ seconds of acceptance_head(h="cost", K_max 6).

    Also given: seconds of the best fixed length ÷ the same.
    """
    mine = at.replay(paper.policy(h='"cost"'))
    return [
        Part("", speed(mine, at.replay(paper.WITHOUT)), ABOVE_1),
        Part(BEST_FIXED, speed(mine, at.tuned_fixed()), None),
    ]


@claim(
    "section 2.2",
    "The draft's hidden state tells how likely its token is to be accepted.",
)
def head_predicts(at: Evidence) -> list[Part]:
    """1 - Brier score of the head ÷ that of always predicting the share accepted.

    Over output positions that have a score; an honest figure where the head was trained on other
    prompts.
    """
    try:
        found = predicted(at.trace, _NAME)
    except MissingError as error:
        raise Untestable(str(error)) from None
    skill = reliability.reliability(*found).skill
    return [Part("", skill, ABOVE_0)]


@claim(
    "section 3.2",
    "The head's run-time cost is negligible.",
    "“negligible”",
)
def head_costs_nothing(at: Evidence) -> list[Part]:
    """Seconds of head calls and decisions ÷ all seconds of acceptance_head(0.95, 6); below 0.01."""
    at.head_s(_NAME)
    mine = at.replay(HEAD)
    return [Part("", clusters.ratio(mine.seconds["policy_s"], mine.total_s), Allowed(hi=0.01))]
