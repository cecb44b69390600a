"""PARD-2: Target-Aligned Parallel Draft Model for Dual-Mode Speculative Decoding.

τ is accepted tokens a step by its text. Slips: section 4.3 says that CAT brings τ from 4.83 to
5.79, where Table 5 has 4.98 with as many tokens drafted, and 5.79 with twice as many; it calls
Table 3 "Table 4"; and its τ of gating, 5.62 and 5.60, are 6.10 and 6.06 in Table 4.

Figure 2a prints, by position, the *conditional* acceptance ratio: what its inference code counts is
how many drafts get past a position, over those that got past the one before.
"""

from __future__ import annotations

from analysis.papers.printed import PaperTable, Printed

DRAFT = 16  # K of its tables
_OF = "average of HumanEval, GSM8K and MT-Bench"
TABLE_1 = PaperTable(
    "PARD-2 Table 1",
    "average of HumanEval, GSM8K, Math-500 and MT-Bench, Llama-3.1-8B, greedy; drafted in brackets",
    {
        "AR": Printed(speedup=1.00),
        "EAGLE-3 (8)": Printed(speedup=2.76, tau=3.89),
        "PARD (16)": Printed(speedup=4.00, tau=5.20),
        "PARD-2 (16)": Printed(speedup=5.19, tau=6.95),
    },
    "its τ of AR is 1.00, which counts the target's own token; section 4.1 does not",
)
TABLE_2 = PaperTable(
    "PARD-2 Table 2",
    "the same for Qwen3-8B, without the target's features",
    {
        "AR": Printed(speedup=1.00),
        "PARD (16)": Printed(speedup=4.39, tau=5.56),
        "PARD-2 (16)": Printed(speedup=4.82, tau=6.14),
    },
    "the text has 4.38 for 4.39, and mean τ over three targets of 5.41, where the table gives 5.34",
)
TABLE_3 = PaperTable(
    "PARD-2 Table 3",
    _OF,
    {
        "γ = 1.0": Printed(speedup=4.14, tau=5.52),
        "γ = 0.8": Printed(speedup=4.23, tau=5.61),
        "γ = 0.6": Printed(speedup=3.87, tau=5.12),
        "CAT": Printed(speedup=4.36, tau=5.79),
    },
    "section 4.3 calls it Table 4",
)
DECAYS = (1.0, 0.8, 0.6)  # by position, of Table 3
TABLE_4 = PaperTable(
    "PARD-2 Table 4",
    _OF,
    {
        "without": Printed(speedup=4.55, tau=6.10),
        "ρ = 0.5": Printed(speedup=4.45, tau=5.99),
        "ρ = 0.2": Printed(speedup=4.50, tau=6.03),
        "ρ = 0.1": Printed(speedup=4.53, tau=6.06),
    },
    "section 4.3 has 5.62 and 5.60 for 6.10 and 6.06; and finds ρ = 0.1 best, where the table has"
    " the most without a gate",
)
TABLE_5 = PaperTable(
    "PARD-2 Table 5",
    f"{_OF}; K of training, K of inference",
    {
        "PARD, 8, 8": Printed(speedup=3.78, tau=4.70),
        "+ features, 8, 8": Printed(speedup=3.99, tau=4.96),
        "+ features, 16, 8": Printed(speedup=3.89, tau=4.83),
        "+ features + CAT, 16, 8": Printed(speedup=4.04, tau=4.98),
        "+ features + CAT, 16, 16": Printed(speedup=4.35, tau=5.79),
        "+ four layers + CAT, 16, 16": Printed(speedup=4.37, tau=5.84),
    },
    "section 4.3 has 5.79 for 4.98, which is with 16 drafted",
)
