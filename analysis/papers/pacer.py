"""PACER: Blockwise Pre-verification for Speculative Decoding with Adaptive Length.

τ is accepted draft tokens a step. Slips: Table 5 gives plain speculation 1.94 on GSM8K, where its
speeds (35.08 and 18.25) give 1.92, as Table 1 has it; Table 3 has 21.20 tokens/s for it on Llama 2,
Table 16 at best 21.23. In Table 1 the speedups of Lookahead and REST on CNN/DM with DeepSeek
1.3B/33B are each other's by their speeds; REST's on MBPP, 1.69 and 1.60, are 1.68 and 1.62 by
theirs, its 1.34 on GSM8K is 1.35. Table 4's target alone has 18.10 on HumanEval, Table 5's 18.11.
Appendix E says that the growth factor encourages drafting; by Algorithm 1 a growing threshold stops
drafts sooner. The text stops below t, Algorithm 1 at <= t.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from analysis.papers.printed import PaperTable, Printed, ends, spec
from simkit.costs import presets

# Presets of simkit.costs: Table 14; and Tables 3, 10, 15 and 16
DEEPSEEK, LLAMA = "pacer:deepseek-1.3b-33b", "pacer:llama2-7b-70b"
DEEPSEEK_HUMANEVAL = "HumanEval, DeepSeek-Coder 1.3B/33B"
LLAMA_HUMANEVAL = "HumanEval, Llama 2 7B/70B"

# Table 10, by benchmark and pair. Our runs of GSM8K and HumanEval take these.
Settings = Mapping[str, float]
HUMANEVAL: Settings = {"block": 4, "threshold": 0.7, "growth": 1.05}
GSM8K: Settings = {"block": 4, "threshold": 0.65, "growth": 1.05}
HUMANEVAL_LLAMA: Settings = {"block": 4, "threshold": 0.65, "growth": 1.02}


def policy(settings: Settings = HUMANEVAL, /, **other: object) -> str:
    """The policy at some settings of Table 10, but for what is given."""
    return spec("pacer", **{**settings, **other})


# Figure 2b and section 3.1.2: γ* is 1.4 times as fast as the best fixed length; its counts at Table
# 14's latencies give 1.46. Draft passes that it saves of those of Table 6, HumanEval, and target
# passes that it takes.
OPTIMAL_SPEED = (1.40, 1.46)
OPTIMAL_SAVED_DRAFTS, OPTIMAL_TARGETS = 4837, 1150

# Table 1: tokens/s and speedup, of three pairs on three benchmarks.
_T1 = {  # benchmark: Vanilla, Speculative, Lookahead, Assist, REST, PACER of each pair
    "MBPP": (
        ((17.53, 1.00), (30.72, 1.75), (29.55, 1.69), (26.60, 1.52), (29.41, 1.69), (32.93, 1.88)),
        ((15.86, 1.00), (26.62, 1.68), (23.67, 1.49), (21.07, 1.33), (25.64, 1.60), (28.57, 1.80)),
        ((9.28, 1.00), (18.65, 2.01), (13.30, 1.43), (16.30, 1.76), (15.38, 1.66), (19.90, 2.14)),
    ),
    "CNN/DM": (
        ((17.11, 1.00), (23.55, 1.38), (18.21, 1.08), (22.27, 1.30), (18.50, 1.06), (23.77, 1.39)),
        ((15.37, 1.00), (20.55, 1.34), (17.64, 1.15), (18.52, 1.20), (16.70, 1.09), (21.51, 1.40)),
        ((8.46, 1.00), (14.40, 1.70), (8.56, 1.01), (11.36, 1.34), (9.62, 1.14), (14.50, 1.71)),
    ),
    "GSM8K": (
        ((18.25, 1.00), (35.08, 1.92), (33.82, 1.85), (34.86, 1.91), (23.25, 1.27), (39.69, 2.17)),
        ((16.51, 1.00), (29.36, 1.78), (29.09, 1.76), (28.80, 1.74), (22.22, 1.34), (31.07, 1.88)),
        ((9.19, 1.00), (17.81, 1.94), (12.07, 1.31), (14.02, 1.53), (12.66, 1.38), (19.07, 2.08)),
    ),
}
_METHODS = ("Vanilla", "Speculative", "Lookahead", "Assist", "REST", "PACER")
_PAIRS = ("DeepSeek 1.3B/33B", "DeepSeek 6.7B/33B", "Llama 2 7B/70B")
TABLE_1 = tuple(
    PaperTable(
        "PACER Table 1",
        f"{benchmark}, {pair}",
        {name: Printed(*row) for name, row in zip(_METHODS, rows, strict=True)},
    )
    for benchmark, pairs in _T1.items()
    for pair, rows in zip(_PAIRS, pairs, strict=True)
)
TABLE_3 = PaperTable(
    "PACER Table 3",
    LLAMA_HUMANEVAL,
    {
        "Speculative": Printed(21.20, tau=5.39),
        "SpecDec++": Printed(21.17, tau=5.13),
        "AdaEDL": Printed(22.53, tau=4.57),
        "PACER": Printed(presets.PACER_LLAMA, tau=7.46),
    },
    "SpecDec++ with other chat templates than its paper's",
)
LLAMA_SPEEDUPS = {
    "Speculative": 2.33,
    "PACER": presets.PACER_LLAMA_SPEEDUP,
}  # section 4.2, HumanEval
TABLE_4 = tuple(  # DeepSeek-Coder 1.3B/33B
    PaperTable(
        "PACER Table 4",
        f"{benchmark}, DeepSeek-Coder 1.3B/33B",
        {
            "Vanilla": Printed(alone, 1.00),
            "Ouroboros": Printed(*without),
            "PACER + Ouroboros": Printed(*both),
        },
    )
    for benchmark, alone, without, both in (
        ("HumanEval", 18.10, (49.05, 2.71, 8.36), (51.07, 2.82, 10.90)),
        ("MBPP", 17.53, (47.99, 2.74, 3.81), (50.08, 2.86, 5.10)),
        ("GSM8K", 18.25, (52.66, 2.89, 4.43), (56.31, 3.09, 5.99)),
    )
)
TABLE_5 = PaperTable(
    "PACER Table 5",
    DEEPSEEK_HUMANEVAL,
    {
        "Vanilla": Printed(presets.PACER_VANILLA, 1.00),
        "Speculative": Printed(37.46, 2.07, 7.38),
        "PACER": Printed(41.80, 2.31, 9.67),
        "w/o pos-emb": Printed(39.99, 2.21, 8.83),
        "w/o growth-factor": Printed(40.36, 2.23, 9.71),
    },
)
TABLE_5_GSM8K = PaperTable(
    "PACER Table 5",
    "GSM8K, DeepSeek-Coder 1.3B/33B",
    {
        "Vanilla": Printed(18.25, 1.00),
        "Speculative": Printed(35.08, 1.94, 5.87),
        "PACER": Printed(39.69, 2.17, 7.23),
        "w/o pos-emb": Printed(37.48, 2.05, 7.19),
        "w/o growth-factor": Printed(37.84, 2.07, 7.46),
    },
    "Speculative's 1.94 is 1.92 by its own speeds, and in Table 1",
)


class PassCounts(NamedTuple):
    """Forward passes of a run, and τ."""

    draft: int
    target: int
    tau: float


TABLE_6 = {  # DeepSeek-Coder 1.3B/33B: plain speculation with its best window, and PACER
    "HumanEval": (PassCounts(27423, 3047, 7.38), PassCounts(26376, 2368, 9.67)),
    "CNN/DM": (PassCounts(23904, 7968, 1.78), PassCounts(22252, 7884, 1.89)),
    "GSM8K": (PassCounts(59456, 7432, 5.87), PassCounts(54024, 6816, 7.23)),
}
BLOCKS = {"HumanEval": 4, "CNN/DM": 2, "GSM8K": 4}  # Table 10, the same pair
TABLE_7 = PaperTable(
    "PACER Table 7",
    DEEPSEEK_HUMANEVAL,
    {
        "mean": Printed(41.80, tau=9.67),
        "last": Printed(40.11, tau=9.34),
        "any": Printed(38.96, tau=8.70),
    },
)
TABLE_8 = PaperTable(
    "PACER Table 8",
    f"{LLAMA_HUMANEVAL}: not said, but its full context is Table 3's row",
    {
        "full context": TABLE_3["PACER"],
        "local draft": Printed(22.58, tau=5.45),
        "local block": Printed(22.29, tau=5.32),
    },
)
TABLE_11 = PaperTable(
    "PACER Table 11",
    DEEPSEEK_HUMANEVAL,
    {
        str(block): Printed(speed)
        for block, speed in enumerate((30.00, 38.07, 39.28, 41.80, 38.95, 38.85, 37.21), 1)
    },
)
TABLE_12 = PaperTable(
    "PACER Table 12",
    DEEPSEEK_HUMANEVAL,
    {
        f"{1 + k / 100:g}": Printed(speed)
        for k, speed in enumerate(
            (40.05, 40.12, 40.40, 40.57, 40.73, 41.80, 41.60, 40.52, 39.48, 39.37)
        )
    },
    "its 1.00 has 40.05 where Table 5's without growth has 40.36: the same rule, run twice",
)
TABLE_13 = PaperTable(
    "PACER Table 13",
    DEEPSEEK_HUMANEVAL,
    {
        f"{0.5 + k / 20:g}": Printed(speed)
        for k, speed in enumerate((37.64, 38.09, 40.34, 39.89, 41.80, 40.44, 39.93))
    },
)


class Breakdown(NamedTuple):
    """Seconds of a run: those of the head, the draft and the target, and both totals."""

    head_s: float
    draft_s: float
    target_s: float
    total_s: float
    plain_s: float

    def share(self, part_s: float) -> float:
        """Of the parts' sum."""
        return part_s / (self.head_s + self.draft_s + self.target_s)


TABLE_15 = {  # HumanEval, by preset
    DEEPSEEK: Breakdown(12.86, 434.55, 162.59, 610, 682),
    LLAMA: Breakdown(22.80, 1080.06, 653.14, 1756, 1977),
}
HEAD_SHARES = (0.0130, 0.0210)  # the same, as section F.2 and the table print them
TABLE_16 = {  # tokens/s of fixed windows by γ
    "DeepSeek-Coder 1.3B/33B": dict(
        zip(range(4, 11), (34.99, 36.11, 37.27, 37.41, 36.69, 37.46, 37.11), strict=True)
    ),
    "DeepSeek-Coder 6.7B/33B": dict(
        enumerate((26.83, 28.81, 29.35, 29.57, 29.77, 29.31, 29.70, 29.49, 29.41), 1)
    ),
    "Qwen2.5 1.5B/32B": dict(
        enumerate((24.07, 27.29, 28.14, 28.46, 27.78, 27.77, 27.35, 26.97, 26.32), 1)
    ),
    "Llama 2 7B/70B": dict(
        zip(range(4, 11), (18.59, 20.95, 21.15, 21.21, 21.23, 21.10, 21.12), strict=True)
    ),
}
BEST_LENGTHS = {pair: max(speeds, key=speeds.__getitem__) for pair, speeds in TABLE_16.items()}


def optimal_passes() -> tuple[float, float]:
    """Draft and target passes of γ* over those of the best fixed length, Figure 2b."""
    plain, _ = TABLE_6["HumanEval"]
    return (plain.draft - OPTIMAL_SAVED_DRAFTS) / plain.draft, OPTIMAL_TARGETS / plain.target


def speedups(method: str, llama: bool = True) -> tuple[float, float]:
    """The least and the greatest speedup of a method: Tables 1 and 5, and section 4.2.

    Args:
        method: its row.
        llama: whether the last, Llama 2 on HumanEval, counts.
    """
    found = [table[method].speedup for table in (*TABLE_1, TABLE_5)]
    found += [LLAMA_SPEEDUPS[method]] if llama else []
    return ends(one for one in found if one is not None)


def faster_than_plain(method: str, *more: PaperTable) -> tuple[float, float]:
    """The least and the greatest speed of a method over plain speculation's, of Table 1.

    Args:
        method: its row.
        more: other tables that have both rows.
    """
    return ends(table.speed(method, "Speculative") for table in (*TABLE_1, *more))


def on_ngrams() -> tuple[float, float]:
    """The least and the greatest speed of PACER + Ouroboros over Ouroboros alone, Table 4."""
    return ends(table.speed("PACER + Ouroboros", "Ouroboros") for table in TABLE_4)


def components(row: str) -> tuple[float, float]:
    """The least and the greatest of Table 5: PACER's speed over that of a row, both benchmarks."""
    return ends(table.speed("PACER", row) for table in (TABLE_5, TABLE_5_GSM8K))


def components_tau(row: str) -> tuple[float, float]:
    """The same of τ."""
    return ends(table.tau("PACER", row) for table in (TABLE_5, TABLE_5_GSM8K))


def saved(part: str) -> tuple[float, float]:
    """The least and the greatest of Table 6: PACER's over plain speculation's.

    Args:
        part: a field of `PassCounts`.
    """
    return ends(getattr(mine, part) / getattr(plain, part) for plain, mine in TABLE_6.values())
