"""The papers' empirical claims, each tested on a trace.

A file a paper, or two. A claim is a function of `Evidence`, registered with `@claim`: what the
paper says and where, what it prints, and as its docstring the exact statistic. `verdict.py` holds
the one rule that turns an estimate and a prediction into a verdict, `beside.py` what several traces
say together.
"""

from analysis.claims import (
    acceptance_head,
    engines,
    pacer,
    pacer_settings,
    pard2,
    pard2_training,
    pearl,
    svip,
)
from analysis.claims.beside import Beside, beside
from analysis.claims.by_acceptance import ByAcceptance, by_acceptance
from analysis.claims.by_span import check_by_span
from analysis.claims.claim import CLAIMS, ENGINES, PAPERS, Claim, Part, claim, claims
from analysis.claims.evidence import Evidence, Untestable
from analysis.claims.table import Findings, check
from analysis.claims.verdict import Allowed, Verdict

__all__ = [
    "CLAIMS",
    "ENGINES",
    "PAPERS",
    "Beside",
    "ByAcceptance",
    "Claim",
    "Evidence",
    "Findings",
    "Part",
    "Allowed",
    "Untestable",
    "Verdict",
    "acceptance_head",
    "beside",
    "by_acceptance",
    "check",
    "check_by_span",
    "claim",
    "claims",
    "engines",
    "pacer",
    "pacer_settings",
    "pard2",
    "pard2_training",
    "pearl",
    "svip",
]
