"""Claims by acceptance: what each draft says, in order, and where a verdict turns."""

import json
import math
from dataclasses import replace

import pytest
from commands import refused, run
from test_claims import CLAIMS

import traces
from analysis.claims import by_acceptance, check
from analysis.claims.by_acceptance import acceptance_of, turns
from analysis.claims.claim import CLAIMS as registry
from analysis.claims.verdict import Verdict
from analysis.figures.claim_panels import ClaimPanel, PanelPoint, claim_panels
from analysis.stats import Estimate
from analysis.study import Study
from benchmarks import ladder
from traces.errors import UserError
from traces.synthetic import iid
from traces.writer import save

COST = "linear(draft_s=1, target_s=10)"
ASKED = [CLAIMS[name] for name in ("marginal_falls", "faster_than_constant", "shorter_is_faster")]
HOLDS, FAILS, OPEN, UNTESTED = Verdict.HOLDS, Verdict.FAILS, Verdict.OPEN, Verdict.UNTESTED


@pytest.fixture(scope="module")
def pairs():
    """Drafts of 80, 50 and 95% in that order."""
    shares = {"good": 0.8, "bad": 0.5, "best": 0.95}
    return {name: iid(30, 60, share, max_draft=8, seed=1) for name, share in shares.items()}


@pytest.fixture(scope="module")
def found(pairs):
    return by_acceptance(list(pairs.values()), COST, ASKED, names=list(pairs))


def test_each_draft_says_what_it_says_alone(pairs, found):
    assert found.names == ["bad", "good", "best"]
    for one in found.of:
        alone = check(pairs[one.trace], COST, claims=ASKED)
        assert [mine.record() for mine in one.of] == [mine.record() for mine in alone.of]


def test_acceptance_is_the_share_of_accepted_rows(pairs, found):
    for name, one in zip(found.names, found.acceptance, strict=True):
        assert one.value == pytest.approx(pairs[name].positions("accepted").mean())
        assert one.lo < one.value < one.hi
    lattice = acceptance_of(Study(traces.load("reference", "pard2")))
    rows = traces.load("reference", "pard2")
    first = rows.column("lattice", "depth") == 1
    n = rows.n_positions
    assert lattice.value == pytest.approx(rows.column("lattice", "accepted")[first].sum() / n)


@pytest.mark.parametrize(
    ("verdicts", "said"),
    [
        ([HOLDS, HOLDS, HOLDS], "holds from 40% to 80%"),
        ([FAILS, OPEN, FAILS], "does not hold from 40% to 80%"),
        ([FAILS, OPEN, HOLDS], "holds from 80% on, not up to 40%"),
        ([HOLDS, FAILS, FAILS], "holds up to 40%, not from 60% on"),
        ([OPEN, FAILS, HOLDS], "holds from 80% on, not at 60%"),
        ([FAILS, HOLDS, OPEN], "holds at 60%, not up to 40%"),
        ([HOLDS, FAILS, HOLDS], "turns 2 times"),
        ([OPEN, HOLDS, OPEN], "holds at 60%, undecided elsewhere"),
        ([OPEN, HOLDS, UNTESTED], "holds at 60%, undecided or not tested elsewhere"),
        ([UNTESTED, FAILS, UNTESTED], "does not hold at 60%, cannot be tested elsewhere"),
        ([OPEN, UNTESTED, OPEN], "undecided"),
        ([UNTESTED] * 3, "cannot be tested"),
        ([Verdict.NO_EXAMPLE, HOLDS, HOLDS], "holds from 60% on, not up to 40%"),
        ([Verdict.THEOREM] * 3, ""),
        ([Verdict.SETTING] * 3, ""),
    ],
)
def test_where_a_verdict_turns(verdicts, said):
    assert turns(verdicts, [0.4, 0.6, 0.8]) == said


@pytest.mark.parametrize(
    ("verdicts", "once", "more"),
    [
        ([HOLDS, UNTESTED, UNTESTED], 0, 0),
        ([OPEN, HOLDS, UNTESTED], 0, 0),
        ([FAILS, OPEN, HOLDS], 1, 0),
        ([HOLDS, FAILS, HOLDS], 0, 1),
    ],
)
def test_claims_that_change_their_verdict_are_counted(verdicts, once, more, found):
    of = [
        replace(one, of=(replace(one.of[0], verdict=verdict, parts=()),))
        for one, verdict in zip(found.of, verdicts, strict=True)
    ]
    note = replace(found, of=tuple(of)).note()
    assert f"{once} of 1 claim change verdict once, {more} more often." in note
    assert ": ," not in note and ": ." not in note


def test_the_table_the_frame_and_the_picture(found, tmp_path):
    assert found.heads[3:] == ("bad (48%)", "good (79%)", "best (94%)")
    said = {row[1]: row[2] for row in found.rows()}
    (constant,) = (words for name, words in said.items() if "faster_than_constant" in name)
    assert constant == "holds up to 48%, not from 79% on"
    assert found.note().startswith("Acceptance is the share of output positions")
    assert "bad: 0.479 [" in found.note() and "of 3 claims" in found.note()
    assert sorted(set(found.frame["acceptance"])) == [one.value for one in found.acceptance]
    ax = found.plot("column").axes[0]
    assert [text.get_text() for text in ax.get_xticklabels()] == [
        "bad\n48%",
        "good\n79%",
        "best\n94%",
    ]
    assert len(ax.get_yticklabels()) == sum(
        any(one.verdict in (HOLDS, FAILS, OPEN, Verdict.NO_EXAMPLE) for one in row)
        for row in found.claims
    )
    for end in ("png", "svg", "pdf"):
        found.save(tmp_path / f"map.{end}")
    with pytest.raises(UserError, match="'txt' is none of png, svg, pdf"):
        found.save(tmp_path / "map.txt")


def test_statistics_stand_beside_those_of_coin_flips(found):
    one = {row["claim"]: row for row in ladder.values(found)}["faster_than_constant"]
    (mine,) = (row for row in found.claims if row[0].claim.name == "faster_than_constant")
    assert [cell["verdict"] for cell in one["drafts"]] == [str(it.verdict) for it in mine]
    assert one["drafts"][0]["found"] == mine[0].parts[0].found.text()
    flips = [part.found for it in mine for part in it.flips if part.expected]
    ends = [end for found in flips for end in (found.lo, found.hi)]
    assert one["flips"]["ends"] == [min(ends), max(ends)]
    assert one["flips"]["holds"] == sum(it.placebo is HOLDS for it in mine)


def test_a_panel_shows_a_claims_statistic_where_it_holds_and_coin_flips(found):
    """What the table of values has, drawn: a mark and an interval for each draft."""
    figure = found.panels("page")
    axes = {ax.get_title(loc="left"): ax for ax in figure.axes if ax.get_title(loc="left")}
    kept = {row["claim"]: row for row in ladder.values(found)}
    assert list(axes) == list(kept)
    mine = next(row for row in found.claims if row[0].claim.name == "faster_than_constant")
    drawn = [line.get_xydata().tolist() for line in axes["faster_than_constant"].lines]
    for at, one in zip(found.acceptance, mine, strict=True):
        value = one.parts[0].found
        assert [[at.value, value.value]] in drawn
        for ends in (value, one.flips[0].found):
            assert [[at.value, ends.lo], [at.value, ends.hi]] in drawn
    shaded = axes["faster_than_constant"].patches[0].get_extents()
    assert axes["faster_than_constant"].transData.inverted().transform(shaded)[0, 1] == 1


def test_statistics_with_bounds_of_their_own_have_panels_of_their_own(found):
    """τ must be below 1, speed above 1: a draft that speed decides is not drawn among τs."""
    k = next(k for k, one in enumerate(found.of[0].of) if one.claim.name == "shorter_is_faster")
    of = []
    for n, one in enumerate(found.of):
        part = one.of[k].parts[n % 2]
        of.append(replace(one, of=(replace(one.of[k], verdict=OPEN, parts=(part,), flips=()),)))
    first, second, *_ = replace(found, of=tuple(of)).panels().axes
    assert [ax.get_title(loc="left") for ax in (first, second)] == ["shorter_is_faster"] * 2
    assert [ax.texts[0].get_text() for ax in (first, second)] == ["τ", "speed"]
    assert [sum(len(line.get_xdata()) == 1 for line in ax.lines) for ax in (first, second)] == [
        2,
        1,
    ]


def test_a_bound_out_of_view_is_brought_into_it():
    one = Estimate(0.1, 0.05, 0.15, 30)
    panels = [ClaimPanel("far", "share", (0.5, math.inf), [PanelPoint(0.4, "holds", one, None)])]
    (ax,) = claim_panels(panels).axes
    assert ax.get_ylim()[1] > 0.5 and ax.patches


def test_drafts_of_similar_acceptance_are_counted_where_both_decide(found, monkeypatch):
    monkeypatch.setattr(ladder, "ALIKE", ("bad", "best"))
    cases, differ = ladder.alike({"c = 10": found, "c = 5": found})
    decides = {HOLDS, FAILS, Verdict.NO_EXAMPLE}
    both = [row for row in found.claims if {row[0].verdict, row[2].verdict} <= decides]
    assert cases == 2 * len(both) > 0
    assert differ[0] == "`faster_than_constant`, c = 10" and len(differ) % 2 == 0


@pytest.mark.usefixtures("few_requests")
def test_the_command(pairs, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(registry, "values", lambda: ASKED)
    for name, pair in pairs.items():
        save(pair, tmp_path / name)
    one, *others = [tmp_path / name for name in pairs]
    words = ["claims", one, *(w for other in others for w in ("--beside", other)), "--cost", COST]
    words += ["--by", "acceptance"]
    ended, out, said = run(
        capsys,
        *words,
        "--format",
        "json",
        "--plot",
        tmp_path / "map.svg",
        "--panels",
        tmp_path / "panels.svg",
    )
    assert ended == 0, said
    (first, *_) = json.loads(out)
    assert list(first["acceptance"]) == ["bad", "good", "best"]
    texts = [(tmp_path / name).read_text() for name in ("map.svg", "panels.svg")]
    assert all(text.startswith("<?xml") for text in texts) and len(set(texts)) == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--plot", "x.svg"], "--plot needs --by acceptance"),
        (["--panels", "x.svg"], "--panels needs --by acceptance"),
        (
            ["--by", "acceptance", "--beside", "reference", "--sampled", "x"],
            "--sampled needs --by trace",
        ),
        (
            ["--by", "acceptance", "--beside", "reference", "--plot", "x.txt"],
            "--plot x.txt: must end in one of .png, .svg, .pdf",
        ),
        (
            ["--by", "acceptance", "--beside", "reference", "--panels", "x"],
            "--panels x: must end in one of .png, .svg, .pdf",
        ),
        (["--by", "acceptance", "--beside", "smollm2"], "two of the traces have this name"),
    ],
)
def test_what_does_not_go_together_is_refused(words, said, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert said in refused(capsys, "claims", "smollm2", *words)


def test_one_draft_has_no_order(pairs):
    with pytest.raises(UserError, match="need two drafts or more"):
        by_acceptance([pairs["good"]], COST, ASKED)


def test_one_recording_has_its_drafters():
    claims = [CLAIMS["faster_than_constant"]]
    found = by_acceptance(["reference"], COST, claims)
    assert set(found.names) == {"own", *traces.load("reference").drafters}
    (alone,) = check(traces.load("reference", "suffix"), COST, claims=claims).of
    (row,) = found.claims
    assert row[found.names.index("suffix")].record() == alone.record()
