"""What the papers print: tables, settings and slips, each once, with its source.

A file a paper, data only. Figures, tables, claims, ablations and the tests of the papers'
arithmetic read it. The times of the papers' pairs are presets of `simkit.costs`.
"""

from analysis.papers import acceptance_head, pacer, pard2, pearl, svip
from analysis.papers.printed import ALONE, PaperTable, Printed, TableRow, spec, words

PAPERS = ("SVIP", "PACER", "acceptance head", "PEARL", "PARD-2")

__all__ = [
    "ALONE",
    "PAPERS",
    "TableRow",
    "PaperTable",
    "Printed",
    "acceptance_head",
    "pacer",
    "pard2",
    "pearl",
    "spec",
    "svip",
    "words",
]
