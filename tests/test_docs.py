"""What README and changelog count is what is there."""

import re
from pathlib import Path

from analysis.claims import claims
from analysis.figures import FIGURES

ROOT = Path(__file__).parents[1]


def counted(page, pattern):
    """All numbers that a page gives where the pattern's group stands."""
    found = re.findall(pattern, (ROOT / page).read_text(encoding="utf-8"))
    assert found, f"{page} says nothing like {pattern}"
    return {int(number) for number in found}


def test_claims_are_counted():
    n_claims = len(claims())
    assert counted("README.md", r"(\d+) claims of the five papers") == {n_claims}
    assert counted("CHANGELOG.md", r"`simkit claims`: (\d+) ") == {n_claims}


def test_figures_are_counted():
    assert counted("CHANGELOG.md", r"`simkit figures`: (\d+) figures") == {len(FIGURES)}
