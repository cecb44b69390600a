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

LENGTHS = (128, 256, 512, 1024, 2048, 4096, 6144, 8192)  # "1K" and so on, of Tables 2 and 6
LONG_SAMPLED = {  # Table 2, speedups by length
    "Pythia 6.9B/160M": {
        "Const.": (0.68, 0.69, 0.69, 0.70, 0.72, 0.90, 0.89, 0.87),
        "Heuristics": (0.88, 0.88, 0.88, 0.88, 0.90, 1.21, 1.25, 1.23),
        "SVIP": (1.07, 1.08, 1.08, 1.07, 1.08, 1.43, 1.44, 1.41),
    },
    "Qwen2.5 14B/0.5B": {
        "Const.": (0.98, 0.97, 0.95, 0.96, 0.98, 1.00, 1.02, 1.04),
        "Heuristics": (1.01, 0.99, 0.98, 1.00, 1.02, 1.03, 1.04, 1.06),
        "SVIP": (1.29, 1.29, 1.30, 1.31, 1.32, 1.33, 1.33, 1.35),
    },
    "LLaMA-3 70B/8B": {
        "Const.": (1.74, 1.74, 1.77, 1.78, 1.82, 1.90, 1.93, 1.94),
        "Heuristics": (1.53, 1.56, 1.61, 1.63, 1.68, 1.77, 1.83, 1.84),
        "SVIP": (1.69, 1.72, 1.75, 1.78, 1.86, 1.96, 2.01, 2.02),
    },
}
LONG_GREEDY = {  # Table 6
    "Pythia 6.9B/160M": {
        "Const.": (1.10, 1.30, 1.50, 1.66, 1.82, 1.20, 1.11, 1.04),
        "Heuristics": (1.25, 1.45, 1.65, 1.81, 2.02, 1.50, 1.46, 1.41),
        "SVIP": (1.41, 1.62, 1.83, 2.01, 2.21, 1.71, 1.60, 1.52),
    },
    "Qwen2.5 14B/0.5B": {
        "Const.": (1.05, 1.08, 1.15, 1.29, 1.44, 1.54, 1.60, 1.67),
        "Heuristics": (1.04, 1.06, 1.13, 1.32, 1.54, 1.72, 1.85, 1.97),
        "SVIP": (1.30, 1.34, 1.42, 1.57, 1.74, 1.87, 1.98, 2.10),
    },
    "LLaMA-3 70B/8B": {
        "Const.": (2.06, 2.18, 2.31, 2.45, 2.58, 2.72, 2.77, 2.78),
        "Heuristics": (2.26, 2.46, 2.73, 3.07, 3.48, 3.90, 4.15, 4.26),
        "SVIP": (2.31, 2.56, 2.86, 3.21, 3.59, 4.00, 4.23, 4.33),
    },
}


def faster_than(method: str) -> tuple[float, float]:
    """The least and the greatest of SVIP's average speed over another's, Table 1."""
    return ends(table.speed("SVIP", method) for table in TABLE_1.values())


def constant_sampled() -> tuple[float, float]:
    """The least and the greatest speedup of the constant draft below 1, Table 5."""
    found = (table["Const."].speedup for table in TABLE_5.values())
    return ends(one for one in found if one is not None and one < 1)
