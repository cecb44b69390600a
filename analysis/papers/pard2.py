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
TABLE_3 = PaperTable(
    "PARD-2 Table 3",
    "average of HumanEval, GSM8K and MT-Bench",
    {
        "γ = 1.0": Printed(speedup=4.14, tau=5.52),
        "γ = 0.8": Printed(speedup=4.23, tau=5.61),
        "γ = 0.6": Printed(speedup=3.87, tau=5.12),
        "CAT": Printed(speedup=4.36, tau=5.79),
    },
    "section 4.3 calls it Table 4",
)
DECAYS = (1.0, 0.8, 0.6)  # by position, of Table 3
TABLE_5 = PaperTable(
    "PARD-2 Table 5",
    "average of HumanEval, GSM8K and MT-Bench, 8 tokens drafted",
    {
        "without CAT": Printed(speedup=3.89, tau=4.83),
        "with CAT": Printed(speedup=4.04, tau=4.98),
    },
    "section 4.3 has 5.79 for 4.98, which is with 16 drafted",
)
