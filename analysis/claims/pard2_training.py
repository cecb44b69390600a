"""PARD-2's claims about how a parallel drafter is trained: arms that differ in one setting."""

from __future__ import annotations

from analysis.claims.claim import Part, claims_of
from analysis.claims.evidence import Evidence
from analysis.claims.verdict import ABOVE_1, BELOW_1, Allowed
from analysis.papers import PaperTable
from analysis.papers import pard2 as paper
from analysis.trained import DEPENDENT, INDEPENDENT, ArmRun, run
from traces.arms import ParallelArm

claim = claims_of("PARD-2")

KEPT = 0.97  # share of τ below which nobody would call two "comparable"; Table 4's is 0.993


def parts(
    at: Evidence, one: ArmRun, other: ArmRun, expected: Allowed, printed: float, what: str = ""
) -> list[Part]:
    """τ of an arm ÷ that of another: the prediction is about that outside of loops."""
    begin = f"{what}, " if what else ""
    apart, whole = (at.trained.gain(one, other, where) for where in (True, False))
    return [
        Part(f"{begin}outside of loops", apart, expected, (printed, printed)),
        Part(f"{begin}with loops", whole, None),
    ]


def words(table: PaperTable, one: str, other: str) -> str:
    """Two printed τ."""
    return f"τ {table[other].tau} to {table[one].tau}"


CAT_8, PLAIN_8 = "+ features + CAT, 16, 8", "+ features, 16, 8"


@claim(
    "section 4.3, Tables 3 and 5",
    "Training a parallel drafter with weights by the target's confidence makes τ longer.",
    f"{words(paper.TABLE_5, CAT_8, PLAIN_8)} (Table 5);"
    f" {words(paper.TABLE_3, 'CAT', 'γ = 1.0')} (Table 3)",
)
def weights_help_training(at: Evidence) -> list[Part]:
    """Accepted tokens a step, τ, of drafters trained with the weights ÷ of those without.

    Features of one layer, K of training 16. Against PARD's loss (drafts of 8, Table 5), which
    lacks the distillation too; and the same loss with equal weights (drafts of 16, Table 3).
    """
    cat = run("cat", "one", length=8), run("pard", "one", length=8)
    same = run("cat", "one"), run("decay=1.0", "one")
    return [
        *parts(at, *cat, ABOVE_1, paper.TABLE_5.tau(CAT_8, PLAIN_8), "PARD's loss"),
        *parts(at, *same, ABOVE_1, paper.TABLE_3.tau("CAT", "γ = 1.0"), "equal weights"),
    ]


@claim(
    "section 4.3, Table 3",
    "Training with weights by the target's confidence makes τ longer than with any fixed decay.",
    f"τ {paper.TABLE_3['CAT'].tau} against"
    f" {', '.join(str(paper.TABLE_3[f'γ = {decay}'].tau) for decay in paper.DECAYS[1:])}",
)
def weights_beat_decay_in_training(at: Evidence) -> list[Part]:
    """τ of drafters trained with γ^(k-1) as weights, γ = 0.8 and 0.6, ÷ with the confidence's.

    Features of one layer, K of training and of drafts 16.
    """
    found = []
    for decay in paper.DECAYS[1:]:
        both = run(f"decay={decay}", "one"), run("cat", "one")
        printed = paper.TABLE_3.tau(f"γ = {decay}", "CAT")
        found += parts(at, *both, BELOW_1, printed, f"γ = {decay}")
    return found


@claim(
    "section 4.3, Table 5",
    "A parallel drafter that reads the target's features has a longer τ.",
    words(paper.TABLE_5, "+ features, 8, 8", "PARD, 8, 8"),
)
def features_help(at: Evidence) -> list[Part]:
    """τ with features of one layer ÷ without; PARD's loss, K of training and of drafts 8."""
    both = run("pard", "one", 8, 8), run("pard", "none", 8, 8)
    return parts(at, *both, ABOVE_1, paper.TABLE_5.tau("+ features, 8, 8", "PARD, 8, 8"))


@claim(
    "section 4.3, Table 5",
    "Features of four layers give a longer τ than those of one.",
    words(paper.TABLE_5, "+ four layers + CAT, 16, 16", "+ features + CAT, 16, 16"),
)
def four_layers_help(at: Evidence) -> list[Part]:
    """τ with features of four layers ÷ of the last; CAT, K of training and of drafts 16."""
    names = "+ four layers + CAT, 16, 16", "+ features + CAT, 16, 16"
    return parts(at, run("cat", "four"), run("cat", "one"), ABOVE_1, paper.TABLE_5.tau(*names))


@claim(
    "section 3.1, Table 5",
    "Training a plain parallel drafter for longer drafts can make its τ shorter.",
    words(paper.TABLE_5, PLAIN_8, "+ features, 8, 8"),
)
def longer_blocks_hurt(at: Evidence) -> list[Part]:
    """τ of drafts of 8, trained with K = 16 ÷ with K = 8; PARD's loss, features of one layer."""
    both = run("pard", "one", 16, 8), run("pard", "one", 8, 8)
    return parts(at, *both, BELOW_1, paper.TABLE_5.tau(PLAIN_8, "+ features, 8, 8"))


@claim(
    "section 4.3, Table 4",
    "Training a tenth of the texts without the target's features hardly shortens τ.",
    words(paper.TABLE_4, "ρ = 0.1", "without"),
)
def gating_is_free(at: Evidence) -> list[Part]:
    """τ with ρ = 0.1 ÷ with ρ = 0, both reading four layers, drafts of 16; above 0.97.

    The paper says "comparable"; 0.97 is ours.
    """
    both = run("cat", "four"), run("cat", "four", rho=0.0)
    return parts(at, *both, Allowed(lo=KEPT), paper.TABLE_4.tau("ρ = 0.1", "without"))


@claim(
    "Table 4",
    "Of the ratios ρ of texts trained without the target's features, 0.1 is the best.",
    f"τ {paper.TABLE_4['ρ = 0.1'].tau} against {paper.TABLE_4['ρ = 0.2'].tau} (0.2) and"
    f" {paper.TABLE_4['ρ = 0.5'].tau} (0.5)",
)
def light_gate_is_best(at: Evidence) -> list[Part]:
    """τ with ρ = 0.2 and 0.5 ÷ with ρ = 0.1, all reading four layers, drafts of 16."""
    found = []
    for rho in (0.2, 0.5):
        printed = paper.TABLE_4.tau(f"ρ = {rho}", "ρ = 0.1")
        both = run("cat", "four", rho=rho), run("cat", "four")
        found += parts(at, *both, BELOW_1, printed, f"ρ = {rho}")
    return found


@claim(
    "section 4.2, Tables 1 and 2",
    "PARD-2 has a longer τ than PARD, also when it runs without the target's features.",
    f"{words(paper.TABLE_1, 'PARD-2 (16)', 'PARD (16)')} with features (Llama-3.1-8B);"
    f" {words(paper.TABLE_2, 'PARD-2 (16)', 'PARD (16)')} without (Qwen3-8B)",
)
def pard2_beats_pard(at: Evidence) -> list[Part]:
    """τ of PARD-2 (CAT, four layers, ρ = 0.1) ÷ that of PARD, drafts of 16, trained alike.

    In both modes: reading the target's features, and with them left out.
    """
    pard, mine = run("pard", "none"), ParallelArm("cat", "four")
    found = []
    for mode, table in ((DEPENDENT, paper.TABLE_1), (INDEPENDENT, paper.TABLE_2)):
        printed = table.tau("PARD-2 (16)", "PARD (16)")
        found += parts(at, ArmRun(mine, mode, 16), pard, ABOVE_1, printed, mode)
    return found
