"""The drafts of one target that come with the package, from bad to good."""

import pytest

import simkit
import traces
from analysis.claims.by_acceptance import acceptance_of
from analysis.study import Study
from traces.trace import DATA
from traces.validate import validate

MOST_BYTES = 4_000_000
BAD, GOOD = ("exit8", "distilled"), ("q3-g64", "q3-g32", "q3-g16", "q4-g64")
DRAFTS = {  # as they are accepted
    "ladder": (*BAD, "pruned15", "q2-g16", *GOOD),
    "ladder-sampled": (*BAD, "q2-g16", "pruned15", *GOOD),
}


def test_they_are_small():
    files = [file for name in DRAFTS for file in (DATA / name).rglob("*") if file.is_file()]
    assert sum(file.stat().st_size for file in files) <= MOST_BYTES


@pytest.mark.parametrize("name", DRAFTS)
def test_drafts_are_whole_and_in_order(name):
    assert validate(DATA / name) == []
    trace = traces.load(name)
    assert set(trace.drafters) == set(DRAFTS[name])
    found = [acceptance_of(Study(trace.with_drafter(draft))).value for draft in DRAFTS[name]]
    assert found == sorted(found)
    assert found[1] < 0.4 < found[2] and 0.65 < found[5] < 0.81 < found[-1]


def test_a_good_draft_reaches_five_tokens_a_step():
    row = simkit.replay(traces.load("ladder", "q3-g16"), "oracle").records()[0]
    assert row["tokens_per_step"] >= 5
