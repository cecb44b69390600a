"""PEARL: Parallel Speculative Decoding with Adaptive Draft Length.

Slips: Table 4 gives other speedups than Table 1 for the same pairs (CodeLlama 2.35 and 3.79 against
2.48 and 4.43, Llama 2 2.87 against 3.29). Table 7 counts accepted tokens for plain speculation too:
the acceptance rate that Table 11's steps imply gives, at Table 14's windows, 5.37, 8.35, 7.23 and
5.68 accepted tokens a step, where 5.27, 8.32, 7.23 and 5.69 are printed. Algorithm 2's indices
slip; appendix B's step 6 and the authors' code agree with docs/pearl.md.
"""

from __future__ import annotations

from typing import NamedTuple

from analysis.papers.printed import PaperTable, Printed, ends
from simkit.costs.presets import PRESETS

DEEPSEEK = "pearl:deepseek-1.3b-33b"  # Tables 10 and 15, preset of simkit.costs


class PearlPair(NamedTuple):
    """A pair of models on HumanEval.

    Attributes:
        draft_runs: of plain speculation, Table 11; of the target, and of PEARL's two, likewise.
        plain: speedup of plain speculation with its best window, Table 1.
        pearl: speedup of PEARL, Table 1.
        window: PEARL's γ = round(c), which is Table 11's draft runs ÷ target runs.
        best_length: γ of Table 14 at which plain speculation is fastest; None if not printed.
        plain_accepted: Table 7, accepted tokens a step of plain speculation; None likewise.
        pearl_accepted: Table 7, accepted tokens between two rejections.
    """

    draft_runs: int
    target_runs: int
    pearl_draft_runs: int
    pearl_target_runs: int
    plain: float
    pearl: float
    window: int
    best_length: int | None = None
    plain_accepted: float | None = None
    pearl_accepted: float | None = None

    @property
    def runs_ratio(self) -> tuple[float, float]:
        """PEARL's draft runs and target runs over those of plain speculation."""
        drafts = self.pearl_draft_runs / self.draft_runs
        return drafts, self.pearl_target_runs / self.target_runs


TABLE_1 = {  # HumanEval, by preset
    name: PaperTable(
        "PEARL Table 1",
        name,
        {
            "Speculative": Printed(speedup=plain),
            "Assisted": Printed(speedup=assisted),
            "PEARL": Printed(speedup=mine),
        },
    )
    for name, plain, assisted, mine in (
        (DEEPSEEK, 2.32, 1.88, 3.48),
        ("pearl:deepseek-6.7b-33b", 1.94, 1.52, 2.79),
        ("pearl:codellama-7b-34b", 1.76, 1.37, 2.48),
        ("pearl:codellama-7b-70b", 3.03, 2.49, 4.43),
        ("pearl:llama2-7b-70b", 2.35, 2.27, 3.29),
        ("pearl:llama3.1-8b-70b", 2.60, 2.72, 3.87),
    )
}


def _speedups(name: str) -> tuple[float, float]:
    """Of plain speculation, and of PEARL."""
    plain, mine = (TABLE_1[name][row].speedup for row in ("Speculative", "PEARL"))
    return plain or 0.0, mine or 0.0


PAIRS = {  # by preset
    name: PearlPair(*runs, *_speedups(name), window, best_length, plain, mine)
    for name, runs, window, best_length, plain, mine in (
        (DEEPSEEK, (140500, 35125, 181864, 45466), 4, 8, 7.23, 29.65),
        ("pearl:deepseek-6.7b-33b", (128973, 42991, 174855, 58285), 3, 6, 5.69, 39.90),
        ("pearl:codellama-7b-34b", (132054, 44018, 181020, 60340), 3, 6, 5.27, 27.95),
        ("pearl:codellama-7b-70b", (151960, 30392, 198370, 39674), 5, 10, 8.32, 26.53),
        ("pearl:llama2-7b-70b", (175460, 35092, 248720, 49744), 5, None, None, None),
    )
}
TABLE_4 = {  # HumanEval, by preset
    name: PaperTable(
        "PEARL Table 4",
        name,
        {
            "PEARL": Printed(speedup=whole),
            "w/o pre-verify": Printed(speedup=no_pre),
            "w/o post-verify": Printed(speedup=no_post),
        },
        slips,
    )
    for name, whole, no_pre, no_post, slips in (
        ("pearl:codellama-7b-34b", 2.35, 2.21, 1.64, "PEARL is 2.48 in Table 1"),
        ("pearl:codellama-7b-70b", 3.79, 3.53, 2.57, "PEARL is 4.43 in Table 1"),
        (DEEPSEEK, 3.48, 3.19, 2.37, ""),
        ("pearl:llama2-7b-70b", 2.87, 2.51, 2.15, "PEARL is 3.29 in Table 1"),
    )
}
TABLE_5 = {  # tokens/s on HumanEval by window, by round(c) and pair
    "CodeLlama 7B/34B": (3, {2: 33.25, 3: 46.06, 4: 44.12, 5: 44.93, 6: 41.83}),
    "CodeLlama 7B/70B": (5, {2: 16.28, 3: 23.14, 4: 29.65, 5: 40.72, 6: 35.39}),
    "DeepSeek 6.7B/33B": (3, {2: 30.82, 3: 48.46, 4: 47.22, 5: 46.91, 6: 44.36}),
}
COMMUNICATION_S = ends(  # a step, Table 15, of the pairs that it prints
    preset.arguments["communication_s"]
    for name, preset in PRESETS.items()
    if name in TABLE_1 and "communication_s" in preset.arguments
)
WAITING = 2.0  # Figure 2a, CodeLlama 7B/34B, γ = 6: drafting ÷ verification of a step
SPEED = (1.36, 1.55)  # over plain speculation, section 4.2


def slower_without(strategy: str) -> tuple[float, float]:
    """The least and the greatest of Table 4: PEARL's speed over its own without "pre" or "post"."""
    found = [table.speed("PEARL", f"w/o {strategy}-verify") for table in TABLE_4.values()]
    return ends(found)


def runs_ratios() -> tuple[float, float]:
    """The least and the greatest of Table 11: runs of either model over plain speculation's."""
    found = [ratio for pair in PAIRS.values() for ratio in pair.runs_ratio]
    return ends(found)


def post_over_pre() -> tuple[float, float]:
    """The least and the greatest of Table 4: speed without pre-verify over without post-verify."""
    return ends(table.speed("w/o pre-verify", "w/o post-verify") for table in TABLE_4.values())


def other_windows() -> tuple[float, float]:
    """The least and the greatest of Table 5: speed at another window over that at round(c)."""
    return ends(
        speed / speeds[best]
        for best, speeds in TABLE_5.values()
        for window, speed in speeds.items()
        if window != best
    )


def accepted(of: str) -> tuple[float, float]:
    """The least and the greatest of Table 7.

    Args:
        of: "plain", "pearl", or "gap", the one less the other.
    """
    both = [(p.plain_accepted, p.pearl_accepted) for p in PAIRS.values()]
    found = [(plain, mine) for plain, mine in both if plain is not None and mine is not None]
    return ends({"plain": plain, "pearl": mine, "gap": mine - plain}[of] for plain, mine in found)


def assisted_over_plain() -> tuple[float, float]:
    """The least and the greatest of Table 1: assisted generation over plain speculation."""
    return ends(table.speed("Assisted", "Speculative") for table in TABLE_1.values())
