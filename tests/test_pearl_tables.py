"""PEARL's tables of speedups by benchmark, and its step-by-step profile."""

from itertools import pairwise

import pytest

import simkit
from analysis.figures.tables.form import fill
from analysis.figures.tables.pacer import settings
from analysis.figures.tables.pearl import SPEEDS, draft_tokens, profile
from analysis.replays import FAMILIES, of
from analysis.study import MissingError, Study
from traces.synthetic import iid

COST = "linear(draft_s=1, target_s=4)"


@pytest.fixture(scope="module")
def reference():
    return of(Study("reference"), COST)


def test_the_profile_is_a_replay_step_by_step(reference):
    found = profile(reference)
    rows = [dict(zip(found.heads, row, strict=True)) for row in found.rows]
    window = reference.window
    steps = simkit.replay("reference", f"pearl({window})", COST, by="step").frame.head(len(rows))
    output = reference.trace.sequences["output_tokens"][0].as_py()
    for row, step in zip(rows, steps.iter_rows(named=True), strict=True):
        end = step["start"] - 1 + step["emitted"]
        assert row["output prefix"].split() == list(map(str, output[:end]))
        assert row["target model output"].split() == list(map(str, output[step["start"] - 1 : end]))
        assert len(row["draft model output"].split()) == step["drafted"]
        assert ("rejected" in row["judging reason"]) == (step["accepted"] < step["proposed"])
        known = row["input prefix"].split() if row["input prefix"] != "–" else []
        pending = len(known) - (step["start"] - 1)
        assert (row["mode"] == "post-verify") == (pending > 0 or window == 1)
    for one, after in pairwise(rows):
        is_whole = "rejected" not in one["judging reason"]
        assert after["mode"] == ("post-verify" if is_whole else "pre-verify")
        if is_whole:  # what was drafted meanwhile waits
            drafted = one["draft model output"].split()
            assert after["input prefix"].split()[-len(drafted) :] == drafted


def test_draft_tokens_are_the_path_s_and_then_the_branch_s(reference):
    layout, trace = reference.layout, reference.trace
    row = int((layout.ahead == 2).argmax())
    m = row + 2
    begin = int(layout.branch[m])
    path = trace.positions("draft_token")[row : m + 1].tolist()
    assert draft_tokens(layout, row, 2) == path[:2]
    assert draft_tokens(layout, row, 5) == [*path, *trace.branches("draft_token")[begin:][:2]]


def test_speedups_are_those_of_the_replays(reference):
    found = fill(SPEEDS, reference)
    assert [row[0] for row in found.rows] == [
        "Auto Regressive", "Speculative Decoding", "Assisted Generation", "PEARL (ours)",
    ]  # fmt: skip
    replayed = simkit.replay("reference", f"pearl({reference.window})", COST).frame["speedup"][0]
    assert found.rows[-1][-1].startswith(f"{replayed:.2f} ")
    assert all(cell.startswith("1.00") for cell in found.rows[0][1:])
    assert (
        "Table 1 prints Speculative 1.76–3.03, Assisted 1.37–2.72, PEARL 2.48–4.43." in found.note
    )


def test_a_trace_without_a_path_of_tokens_has_no_profile():
    with pytest.raises(MissingError, match="does not have the draft tokens of a path"):
        profile(of(Study("smollm2"), COST))


def test_settings_are_the_ones_that_most_deals_chose():
    found = settings(of(Study("reference"), COST))
    at = of(Study("reference"), COST).tuned(FAMILIES["PACER"])
    block, threshold, growth, share = found.rows[-1][1:]
    (chosen,) = (
        c for c, s in zip(at.choices, at.shares, strict=True) if f"{s.mean():.0%}" == share
    )
    assert f"pacer(block={block}, threshold={threshold}" in str(chosen) and growth == "1.05"
    with pytest.raises(MissingError, match="no scores"):
        settings(of(Study(iid(20, 60, 0.7, max_draft=40, seed=3)), COST))
