"""What the page says of policies: its intervals, what they were tuned on, how to make it again."""

from __future__ import annotations

import re

import pytest
from test_report import COST, small

import simkit
from analysis.figures import gap_decomposition
from analysis.replays import ALONE, FAMILIES, FOLDS, groups, of
from analysis.report import report
from analysis.report.cells import MISSING, estimate, lacking
from analysis.report.policies import FASTER, SAME, SLOWER, UNSURE, _PolicyRow, compared
from analysis.speeds import speed
from analysis.stats import Estimate
from analysis.stats.clusters import ALIKE
from analysis.stats.compare import PolicyPair
from analysis.study import Study
from simkit.costs import parse
from simkit.statistics.enough import few
from traces.sampler import Sampler
from traces.synthetic import iid
from traces.writer import save

pytestmark = pytest.mark.usefixtures("few_requests")


@pytest.mark.parametrize("prompts", [1, 4, 5])
def test_says_what_arguments_were_chosen_on(prompts):
    """With fewer prompts than folds there are no others: title, note, headline, caveats say so."""
    found = report(small(prompts=prompts, tasks=("code",)), COST, figures=False)
    table = found.policies.tables[0]
    apart = prompts >= FOLDS
    assert ("cross-validation" in table.title) == ("on other prompts" in table.notes[0]) == apart
    for said in (table.title, table.notes[0], found.policies.short[0]):
        assert ("very prompts" in said) != apart
    assert any("could not be chosen on other prompts" in line for line in found.caveats) != apart
    assert (table.heads[-1] == "setting, most often") == apart
    note = found.policies.tables[-1].notes[0]
    assert "Best policy: " in note and ("prompts shown" in note) != apart


def test_the_best_policy_is_named_with_other_folds_choices():
    one = small(prompts=10)
    texts = gap_decomposition(one, cost=COST).ax.texts
    drawn = " ".join(" ".join(text.get_text() for text in texts).split())
    said = re.search(r"Best policy: .*?;", compared(Study(one), COST, []).tables[-1].notes[0])
    assert said and "in other folds" in said[0] and said[0][:-1] in drawn


def test_the_headline_separates_what_was_found_from_what_flatters():
    short = compared(Study(small(prompts=4)), COST, []).short
    assert re.search(r"best fixed length; [a-z ]+, after correction\. Arguments were", short[0])
    assert re.match(r"\d+ of \d+ policies are distinguishably faster than the best", short[1])


def test_reasons_are_said_once_with_their_names():
    weak, strong = Estimate(1.0, 0.9, 1.1, 3, few(3)), Estimate(1.0, 0.9, 1.1, 30)
    alone = Estimate(1.0, None, None, 3, ALIKE)
    said = "Only 3 prompts: the interval may be too narrow"
    names = ("confidence", "confidence, adaptive", "AdaEDL")
    every = [(name, weak) for name in names]
    assert lacking(every) == (f"{said}.",)
    assert lacking([*every, ("AdaEDL", alone), ("SVIP", strong)]) == (
        f"{said} (confidence; confidence, adaptive; AdaEDL).",
        "† Prompts do not differ: no interval (AdaEDL).",
    )
    assert lacking([("SVIP", strong)]) == lacking([]) == ()


def test_intervals_of_policies_are_those_of_every_other_output():
    one = small()
    found = compared(Study(one), COST, ["fixed(3)"]).tables
    at, tasks = of(Study(one), COST), groups(one)
    for name, spec in {"fixed(3)": "fixed(3)", **FAMILIES}.items():
        rows = [row for table in found[:2] for row in table.rows if row[0].text == name]
        if not rows:
            continue  # no scores
        run = at.tuned(spec)
        speeds = [speed(run, at.replay(ALONE), some) for some in tasks.values()]
        assert [cell.text for cell in rows[1][1:]] == [estimate(s).text for s in speeds]
        assert rows[0][1].text == estimate(speeds[-1]).text
    (record,) = simkit.replay(one, "fixed(3)", COST).records()
    row = next(row for row in found[0].rows if row[0].text == "fixed(3)")
    ends = ", ".join(f"{record[f'speedup_{end}']:.3f}" for end in ("lo", "hi"))
    assert row[1].text == f"{record['speedup']:.3f} [{ends}]"


def test_rounding_is_no_finding():
    """All is accepted: what drafts Γ tokens is the prophet, but for the last digits."""
    one = iid(24, 64, 1.0, max_draft=16, seed=1, tasks=("a", "b"))
    first, _, gap_ = compared(Study(one), "pacer:deepseek-1.3b-33b", []).tables
    rows = {row[0].text: row for row in first.rows}
    assert [cell.text for cell in rows["heuristic"][2:5]] == ["1.000 †", "1.000", SAME]
    assert [row[2].text for row in gap_.rows if row[0] == "gap"] == ["0"]
    assert {row[4] for row in gap_.rows} == {MISSING}
    assert any("no gap" in note for note in gap_.notes)


def test_how_to_make_it_again(tmp_path):
    """A trace in memory has no name for a shell."""
    other = small(sampler=Sampler(temperature=1.0))
    found = report(small(), COST, ["fixed(3)"], other, figures=False)
    line = f"report(trace, {COST!r}, policies=['fixed(3)'], sampled=sampled, figures=False)"
    (said,) = found.again.commands
    assert said == f"from analysis.report import report; {line}.save('report.html')"
    assert "in memory" not in said
    save(iid(6, 20, 0.7, max_draft=8, seed=1), tmp_path / "there")
    found = report(tmp_path / "there", parse(COST), figures=False)
    (said,) = found.again.commands  # an object of a cost has no name for a shell either
    assert f"report({str(tmp_path / 'there')!r}, cost, figures=False)" in said
    name = str(tmp_path / "there")
    made_by, *others = report(name, COST, figures=False, command=["simkit", "…"]).again.commands
    assert made_by == "simkit '…'"
    assert [line.split()[1] for line in others] == ["figures", "claims"]
    assert all(f"--cost '{COST}'" in line for line in others)
    save(other, tmp_path / "other")
    beside = str(tmp_path / "other")
    *_, claims = report(name, COST, sampled=beside, figures=False).again.commands
    assert claims.endswith(f" --sampled {beside}")


@pytest.mark.parametrize(
    ("interval", "adjusted", "reads"),
    [
        ((1.01, 1.2), 0.04, FASTER),
        ((1.01, 1.2), 0.06, UNSURE),
        ((0.8, 0.99), 0.04, SLOWER),
        ((0.8, 0.99), 0.3, UNSURE),
        ((0.9, 1.2), 0.3, SAME),
        ((0.9, 1.2), 0.01, SAME),
        ((None, None), 0.3, SAME),
    ],
)
def test_words_never_contradict_the_interval_beside_them(interval, adjusted, reads):
    """What the correction takes away is said to be that, not to be indistinguishable."""
    low, high = interval
    found = Estimate(1.1 if low is None or low > 1 else 0.9, low, high, 20)
    pair = PolicyPair("svip", "fixed", found, 0.01, adjusted)
    assert _PolicyRow(None, found, pair).reads == reads  # pyright: ignore[reportArgumentType]
    assert "not significant after correction" in UNSURE
