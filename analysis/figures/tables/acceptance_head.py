"""The acceptance head's Table 1, on chains; on trees: `analysis.figures.tables.trees`."""

from __future__ import annotations

from analysis.figures.measures import speedup, tokens
from analysis.figures.tables.form import Form, LoopFree
from analysis.labelled_replays import BEST_FIXED
from analysis.papers import acceptance_head
from analysis.replays import FAMILIES

METHODS = Form(
    "acceptance_head",
    "Acceptance head Table 1",
    {
        f"without head, {acceptance_head.WITHOUT}": acceptance_head.WITHOUT,
        "ours": acceptance_head.policy(),
        BEST_FIXED: FAMILIES["fixed"],
    },
    {"speedup": speedup, "τ, tokens a step": tokens, "": LoopFree(1)},
    "Drafts are chains of up to 6 tokens, the paper's are EAGLE-2 trees."
    f" {BEST_FIXED.capitalize()}: {{fixed}}.",
    "rows",
)
TABLES = (METHODS,)
