"""Parts of pages that a program prints: each is in one page, and holds all that it is about."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from test_claims import CLAIMS
from test_figures import COST, small

from analysis.figures.tables import tables

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "docs" / "_ext"))
import made_parts  # noqa: E402
from blocks import blocks  # noqa: E402


def test_every_part_is_in_one_page_and_depends_on_files():
    pages = [path.read_text(encoding="utf-8") for path in ROOT.glob("docs/*.md")]
    assert sorted(made_parts.MARK.findall("\n".join(pages))) == sorted(made_parts.PARTS)
    assert all(any(ROOT.glob(part.files)) for part in made_parts.PARTS.values())


def test_a_page_is_filled():
    page = "# A\n\n<!-- made: tables -->\n\nText.\n"
    assert made_parts.filled(page) == f"# A\n\n{made_parts.tables()}\n\nText.\n"
    assert made_parts.filled("<!-- a comment -->") == "<!-- a comment -->"
    with pytest.raises(KeyError, match="nothing"):
        made_parts.filled("<!-- made: nothing -->")


def test_every_claim_has_a_verdict_kept():
    """`python -m benchmarks.verdicts -o docs/_data/claims.json` computes them anew."""
    assert set(made_parts.kept("claims")["claims"]) == set(CLAIMS)
    text = made_parts.claims() + "\n"
    for one in CLAIMS.values():
        assert f"| {one.says} | {one.name}: {one.measure} | {one.printed} |" in text
        assert f"- `{one.name}`: {one.statistic}\n" in text


def test_claims_that_differ_elsewhere_are_claims():
    elsewhere = made_parts.kept("claims")["elsewhere"]
    assert {row[0] for row in elsewhere["rows"]} <= set(CLAIMS)
    assert all(len(row) == 1 + len(elsewhere["arms"]) for row in elsewhere["rows"])
    assert elsewhere["agree"] + len(elsewhere["rows"]) <= len(CLAIMS)
    assert made_parts.claims_elsewhere().count("\n| ") == len(elsewhere["rows"]) + 1


@pytest.mark.usefixtures("few_requests")
def test_every_table_that_a_trace_gives_is_kept():
    """`python -m benchmarks.figures --gallery docs/gallery` computes them anew."""
    text = made_parts.tables()
    for one in tables(small(), COST)[0]:
        assert f"### {one.source}\n" in text


def test_the_atlas_has_every_model():
    manifest = (made_parts.ROOT / "traces/data/latency-atlas/manifest.json").read_text()
    text = made_parts.atlas()
    models = re.findall(r"^### (\S+)$", text, re.MULTILINE)
    assert len(models) == 15 and all(f'"{name}"' in manifest for name in models)


@pytest.mark.parametrize("sampler", ["greedy", "sampled"])
def test_the_ladders_claims_have_their_statistics(sampler):
    """`python -m benchmarks.ladder` computes them anew."""
    kept = made_parts.kept("ladder")[sampler]
    _, _, heads, _, *rows = made_parts.ladder_values(sampler).splitlines()
    assert heads.count("|") == len(kept["rungs"]) + 3 and heads.endswith("coin flips |")
    assert len(rows) == len(kept["values"]) > 20
    cell = re.compile(r"[✓✗?] .*-?\d+\.\d{3} \[-?\d+\.\d{3}, -?\d+\.\d{3}\]|–.*")
    for row, one in zip(rows, kept["values"], strict=True):
        claim, *cells, flips = row.strip("| ").split(" | ")
        assert claim.startswith(f"`{one['claim']}` (") and one["claim"] in CLAIMS
        assert all(cell.fullmatch(text) for text in cells), cells
        assert re.match(r"holds on \d of \d|–", flips)


def test_the_ladders_drafts_have_their_prices():
    heads, _, *rows = made_parts.ladder().splitlines()
    assert "| c by these weights | c on this CPU |" in heads
    assert any("`q3-g32` | weights rounded to 3 bits | 53 + 57 | 2.5 | 1 |" in row for row in rows)


def test_answers_are_whole_blocks():
    answers = made_parts.kept("smollm2-answers")
    found = [block.text for block in blocks(made_parts.answers())]
    assert found == [f"{one[key]}\n" for one in answers for key in ("asked", "said")]
