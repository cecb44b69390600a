"""PACER's claims of its parts and settings: the head, the growth, the block, the threshold."""

from __future__ import annotations

from analysis import token_drafters
from analysis.claims.claim import Part, claims_of, fastest_of
from analysis.claims.evidence import Evidence
from analysis.claims.verdict import ABOVE_1, BELOW_1, Allowed
from analysis.papers import PaperTable, words
from analysis.papers import pacer as paper
from analysis.papers.printed import ends
from analysis.replays import FAMILIES
from analysis.speeds import per, speed
from analysis.stats import clusters

claim = claims_of("PACER", draft_model=True)

HEAD = paper.policy()
TUNED = FAMILIES["PACER"]
POSITION, GROWTH = map(paper.components, ("w/o pos-emb", "w/o growth-factor"))
GROWTH_TAU = paper.components_tau("w/o growth-factor")


def _context(scope: str) -> float:
    return paper.TABLE_8.speed("full context", f"local {scope}")


def _others(table: PaperTable, best: str) -> str:
    """How fast a table's other rows are, in words."""
    found = (speed for row, speed in table.speeds(best).items() if row != best)
    return f"others {words(ends(found))} times as fast"


@claim(
    "section 4.5, Table 5",
    "Embedding the draft position makes PACER faster.",
    words(POSITION),
)
def position_helps(at: Evidence) -> list[Part]:
    """Seconds with the head without the embedding ÷ seconds of pacer(4, 0.7, 1.05)."""
    other = at.replay(paper.policy(head="pacer-no-position"))
    return [Part("", speed(at.replay(HEAD), other), ABOVE_1, POSITION)]


@claim(
    "section 4.5, Table 5",
    "A threshold that grows by 1.05 a block makes PACER faster.",
    words(GROWTH),
)
def growth_helps(at: Evidence) -> list[Part]:
    """Seconds of pacer with growth 1 ÷ with 1.05, at b = 4, t = 0.7."""
    found = speed(at.replay(HEAD), at.replay(paper.policy(growth=1)))
    return [Part("", found, ABOVE_1, GROWTH)]


@claim(
    "section 4.5, Table 5",
    "The growing threshold makes PACER faster although fewer tokens are accepted a step.",
    f"τ {words(GROWTH_TAU)}",
)
def growth_shortens(at: Evidence) -> list[Part]:
    """Accepted tokens a step of pacer with growth 1.05 ÷ with 1, at b = 4, t = 0.7."""
    other = at.replay(paper.policy(growth=1))
    return [Part("", per(at.replay(HEAD), other, "accepted", "steps"), BELOW_1, GROWTH_TAU)]


@claim(
    "section 5.2, Table 7",
    "Stopping when the block's mean score is below the threshold is faster than when any"
    " score, or the last one, is.",
    ", ".join(f"{paper.TABLE_7.speed('mean', other):.3f}" for other in ("any", "last")),
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
    "section 5.3, Table 8",
    "PACER is faster with a head that sees the whole context than with one that sees only the"
    " draft or the block.",
    ", ".join(f"{_context(scope):.3f} ({scope})" for scope in ("block", "draft")),
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
    "appendix E, Table 11",
    "Blocks of 4 are the fastest of 1 to 7.",
    _others(paper.TABLE_11, "4"),
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
    "appendix E, Table 12",
    "Growth 1.05 is the fastest of 1.00 to 1.09.",
    _others(paper.TABLE_12, "1.05"),
)
def growth_of_five(at: Evidence) -> list[Part]:
    """Speed of pacer with each growth ÷ with 1.05, at b = 4, t = 0.7; max-t intervals."""
    return _fastest(at, "growth", "ρ", paper.TABLE_12, "1.05")


@claim(
    "appendix E, Table 13",
    "A threshold of 0.7 is the fastest of 0.50 to 0.80.",
    _others(paper.TABLE_13, "0.7"),
)
def threshold_of_seven_tenths(at: Evidence) -> list[Part]:
    """Speed of pacer with each t ÷ with t = 0.7, at b = 4, growth 1.05; max-t intervals."""
    return _fastest(at, "threshold", "t", paper.TABLE_13, "0.7")


@claim(
    "appendix F.2, Table 15",
    "The pre-verification layer takes a moderate share of the time.",
    ", ".join(f"{share:.2%}" for share in reversed(paper.HEAD_SHARES)),
)
def head_is_cheap(at: Evidence) -> list[Part]:
    """Seconds of head calls and decisions ÷ all seconds of pacer(4, 0.7, 1.05); below 0.05."""
    at.head_s("pacer")
    mine = at.replay(HEAD)
    found = clusters.ratio(mine.seconds["policy_s"], mine.total_s)
    return [Part("", found, Allowed(hi=0.05), paper.HEAD_SHARES)]


@claim(
    "section 4.4, Table 4",
    "Drafts from n-grams and a model gain from dynamic lengths too.",
    words(paper.on_ngrams(), ".2f"),
)
def gains_on_ngrams(at: Evidence) -> list[Part]:
    """Speed of a lookup before the model under tuned pacer ÷ before the best fixed length.

    The lookup stands in the place of Ouroboros' n-grams. Each policy's setting is the one that most
    folds chose for the model alone; how long a proposal must be is chosen on other prompts.
    """
    first = token_drafters.first_of(at)
    plain, mine = (
        token_drafters.before(at, first, one.spec).replayed
        for one in (at.tuned_fixed(), at.tuned(TUNED))
    )
    return [Part(f"after {first}", speed(mine, plain), ABOVE_1, paper.on_ngrams())]


@claim(
    "section 1",
    "PEARL is slower than plain speculation if draft and target share a device.",
    theorem="assumed, not found: on one device the timeline adds the times of draft and target up,"
    " so that a step of PEARL costs what one of plain speculation costs and emits no more",
)
def pearl_needs_devices(at: Evidence) -> list[Part]:
    """Speed of pearl(colocated=true), whose draft and target times add, ÷ the best fixed length's.

    Both on one device; the best of 0–20 is chosen on the same prompts. Where verifying many tokens
    takes no longer than verifying one, no trace can give more than 1.
    """
    found = speed(at.replay("pearl(colocated=true)"), at.best_fixed)
    return [Part(f"÷ {at.best_fixed.spec}", found, None)]
