"""SVIP, "Draft Model Knows When to Stop: A Self-Verification Length Policy [...]".

Slip: the residual distribution is printed as max(q - p, 0); right is max(p - q, 0).
"""

from __future__ import annotations

from analysis.papers.printed import PaperTable, Printed, ends

CONSTANT = "fixed(5)"  # the baseline of its tables
HEURISTIC = 'heuristic(initial=5, feedback="nominal")'  # its code
CHOSEN = "svip(h=0.2:0.5:0.1)"  # section 3.1.1 chooses h from these, on 8 prompts
SCALE = 0.15  # c of 1 - sqrt(c H(q)): half of 1.3 - 1, the upper end of section 2.3; also its code
RATIO = (1.0, 1.3)  # H(q,p) / H(q), section 2.3, Fig. 3
TIGHTER = {"Qwen2.5": 0.11, "Pythia": 0.20, "LLaMA-3": 0.43}  # Pinsker's bound, appendix B
_METHODS = ("Const.", "Heuristics", "SVIP")


def _averages(source: str, rows: dict[str, tuple[float, float, float]]) -> dict[str, PaperTable]:
    return {
        pair: PaperTable(
            source,
            f"SpecBench, average, {pair}",
            {m: Printed(speedup=x) for m, x in zip(_METHODS, speedups, strict=True)},
        )
        for pair, speedups in rows.items()
    }


TABLE_1 = _averages(  # greedy
    "SVIP Table 1",
    {
        "Pythia 6.9B/160M": (1.42, 1.53, 1.63),
        "Qwen2.5 14B/0.5B": (1.07, 1.07, 1.29),
        "LLaMA-3 70B/8B": (2.34, 2.76, 2.83),
    },
)
TABLE_5 = _averages(  # sampled
    "SVIP Table 5",
    {
        "Pythia 6.9B/160M": (0.65, 0.83, 1.02),
        "Qwen2.5 14B/0.5B": (0.96, 0.99, 1.20),
        "LLaMA-3 70B/8B": (1.60, 1.58, 1.58),
    },
)


def faster_than(method: str) -> tuple[float, float]:
    """The least and the greatest of SVIP's average speed over another's, Table 1."""
    return ends(table.speed("SVIP", method) for table in TABLE_1.values())


def constant_sampled() -> tuple[float, float]:
    """The least and the greatest speedup of the constant draft below 1, Table 5."""
    found = (table["Const."].speedup for table in TABLE_5.values())
    return ends(one for one in found if one is not None and one < 1)
