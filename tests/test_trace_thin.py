"""A smaller copy of a trace: what it keeps, what it says of itself, what is refused."""

import re
import shutil

import numpy as np
import pyarrow as pa
import pytest
from commands import refused, run, status
from heads_traces import recorded
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from trace_files import rewrite

import simkit
import traces
from traces import schema
from traces.checks import check_values
from traces.describe import describe, in_words
from traces.errors import TraceError
from traces.manifest import Manifest, read_manifest
from traces.rows import FileRows
from traces.sampler import Sampler
from traces.thin import rounded, thin
from traces.validate import validate

FEW = ("draft_prob_raw", "draft_entropy", "overlap")
floats = arrays.arrays(np.float32, st.integers(1, 40), elements=st.floats(0, 1e4, width=32))


@given(floats, st.integers(4, 23))
def test_rounding_keeps_the_order_and_is_near(values, bits):
    found = rounded(values, bits)
    normal = values >= np.finfo(np.float32).tiny
    assert (np.abs(found - values)[normal] <= values[normal] * 2.0**-bits).all()
    order = np.argsort(values, kind="stable")
    assert (np.diff(found[order]) >= 0).all()
    assert np.array_equal(rounded(found, bits), found)
    assert (found[values <= 1] <= 1).all()


def test_rounding_is_to_the_nearest_and_leaves_what_is_no_number():
    """1.5 and 1.25 have two and three bits; 1 + 2^-4 lies between two numbers of four bits."""
    values = np.array([1.0, 1.5, 1.25, 1 + 2**-4, 1 + 3 * 2**-4, np.nan, np.inf, 0], np.float32)
    found = rounded(values, 4)
    assert found[:5].tolist() == [1, 1.5, 1.25, 1.0, 1.25]
    assert np.isnan(found[5]) and np.isinf(found[6]) and found[7] == 0


@pytest.mark.parametrize("bits", [0, 4, 5, 8])
def test_equal_numbers_may_be_rounded_to_neighbours(bits):
    """As a drawn token's probability and the largest one, which are one but for last bits."""
    where = {"sequence": np.zeros(1, np.int32), "position": np.ones(1, np.int32)}
    manifest = Manifest(max_draft=1, max_new_tokens=2, bits=bits)
    middle = 1 + 2.0**-bits  # between two numbers of so many bits

    def problems(raw, top):
        values = {"draft_prob_raw": raw, "draft_top1_prob": top}
        columns = {k: np.array([v / 4], np.float32) for k, v in values.items()}
        if bits:
            columns = {k: rounded(v, bits) for k, v in columns.items()}
        return list(check_values(FileRows("rows", {**where, **columns}), manifest))

    assert not problems(middle + 1e-7, middle - 1e-7)
    assert problems(middle * (1 + 2.0 ** (2 - bits) if bits else 1.01), middle)


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """The bundled recording of the target, thinned."""
    place = tmp_path_factory.mktemp("thin") / "t"
    return thin(traces.load("reference-target"), place, FEW, 8, ["draft", "eagle", "suffix"])


@pytest.mark.parametrize("drafter", ["draft", "eagle", "suffix"])
def test_tokens_and_verdicts_are_those_of_the_whole(small, drafter):
    whole, few = traces.load("reference-target", drafter), traces.load(small, drafter)
    assert few.sequences.equals(whole.sequences)
    for table in few.manifest.tables:
        assert few.rows(table) == whole.rows(table)
        for name in few.manifest.tables[table].names:
            kept, was = few.column(table, name), whole.column(table, name)
            if name in schema.STATISTICS:
                np.testing.assert_allclose(kept, was, rtol=2.0**-8)
            else:
                assert np.array_equal(kept, was)
    assert [str(p) for p in validate(small)] == []


def test_counts_of_rules_without_a_threshold_are_equal(small):
    whole, few = (traces.load(name, "draft") for name in ("reference-target", small))
    for rule in ("fixed(4)", "oracle"):
        one, other = (simkit.replay(trace, [rule]).steps(rule) for trace in (whole, few))
        assert one.equals(other)


def test_a_column_that_was_left_out_is_refused_by_name(small):
    few = traces.load(small, "draft")
    assert few.manifest.path_columns == tuple(n for n in schema.STATISTICS if n in FEW)
    with pytest.raises(TraceError, match="column draft_top10_mass was not recorded"):
        few.positions("draft_top10_mass")


def test_it_says_what_it_is(small):
    facts = describe(traces.load(small))
    assert facts["bits"] == 8
    assert ("rounded", "statistics to 8 significant bits") in list(in_words(facts))
    words = dict(in_words(describe(traces.load(small, "draft"))))
    assert words["good for"].startswith("policies that read draft_prob_raw")
    assert describe(traces.load("reference"))["bits"] == 0


def test_it_is_smaller_and_that_is_said(tmp_path, capsys):
    given = "--bits 6 --columns draft_entropy --drafters eagle".split()
    ended, _, said = run(capsys, "thin", "reference-target", "-o", tmp_path / "t", *given)
    assert ended == 0 and " kB of " in said
    assert traces.load(tmp_path / "t").drafters == ["eagle"]
    assert status("thin", "reference-target", "-o", tmp_path / "none", "--drafters", "") == 0
    assert traces.load(tmp_path / "none").drafters == []


def test_drafters_keep_columns_of_their_own(tmp_path):
    kept = {"columns": ("draft_prob", "overlap"), "drafter_columns": ("draft_prob",)}
    copy = thin(traces.load("reference-target"), tmp_path / "t", own="draft", **kept)
    assert traces.load(copy).manifest.path_columns == ("draft_prob", "overlap")
    for name in ("eagle", "pard2"):
        columns = traces.load(copy, name).manifest.lattice_columns
        assert "draft_prob" in columns and "overlap" not in columns


@pytest.mark.parametrize(
    "options, why",
    [
        (["--columns", "mood"], "no statistic is called 'mood'"),
        (["--drafter-columns", "mood"], "no statistic is called 'mood'"),
        (["--columns", ""], "--columns '' names no statistic: name some, or leave it out"),
        (["--drafter-columns", " ,"], "--drafter-columns ' ,' names no statistic"),
        (["--bits", "3"], "bits must be from 4 to 23, not 3"),
        (["--bits", "24"], "bits must be from 4 to 23, not 24"),
        (["--drafters", "eagel"], "no drafter 'eagel' .*eagle"),
    ],
)
def test_bad_input_is_one_line(tmp_path, capsys, options, why):
    line = refused(capsys, "thin", "reference-target", "-o", tmp_path / "t", *options)
    assert re.search(why, line)
    assert list(tmp_path.iterdir()) == []


def test_a_copy_is_thinned_again(small, tmp_path):
    again = thin(traces.load(small), tmp_path / "a", ("overlap",), 6, ["draft"])
    assert traces.load(again, "draft").manifest.path_columns == ("overlap",)
    assert traces.load(again).manifest.bits == 6
    assert traces.load(thin(traces.load(small), tmp_path / "c", (), 0, [])).manifest.bits == 8
    with pytest.raises(TraceError, match="none of these statistics is there, only draft_prob_raw"):
        thin(traces.load(small), tmp_path / "b", ("draft_top1_prob",), 0, ["draft"])
    assert sorted(file.name for file in tmp_path.iterdir()) == ["a", "c"]


def test_a_place_that_is_taken_is_refused(tmp_path, small):
    with pytest.raises(TraceError, match="something is there|not empty|exists"):
        thin(traces.load("reference-target"), small)
    inside = tmp_path / "whole"
    shutil.copytree(small, inside)
    with pytest.raises(TraceError, match="lies in the trace that is copied"):
        thin(traces.load(inside), inside / "t")
    with pytest.raises(TraceError, match="no recording in a folder"):
        thin(traces.load("reference-target", "eagle"), tmp_path / "t")


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """The bundled recording of the target with an attached draft model, as one of the two."""
    place = tmp_path_factory.mktemp("own") / "t"
    return thin(traces.load("reference-target"), place, drafters=["suffix"], own="draft")


def test_an_attached_draft_model_becomes_the_copy_s_own(pair):
    whole, copy = traces.load("reference-target", "draft"), traces.load(pair)
    assert copy.recording is None and copy.manifest.spec == "" and copy.drafters == ["suffix"]
    assert copy.sequences.equals(whole.sequences)
    for table in copy.manifest.tables:
        for name in copy.manifest.tables[table].names:
            np.testing.assert_array_equal(copy.column(table, name), whole.column(table, name))
    assert copy.latency() == whole.latency()
    assert not validate(pair)
    specs = ["fixed(4)", "svip(h=0.5)"]
    found, wanted = (simkit.replay(trace, specs).frame for trace in (copy, whole))
    assert found.equals(wanted)
    assert traces.load(pair, "suffix").manifest.attached_to == copy.manifest.content_hash()


def test_only_a_draft_model_becomes_the_own_of_a_recording_without_one(pair, tmp_path):
    with pytest.raises(TraceError, match="suffix: a lattice has no rows of a draft model"):
        thin(traces.load("reference-target"), tmp_path / "a", own="suffix")
    with pytest.raises(TraceError, match="no drafter 'draught' is attached"):
        thin(traces.load("reference-target"), tmp_path / "b", own="draught")
    assert status("thin", pair, "-o", tmp_path / "c", "--own", "suffix") == 2
    assert not list(tmp_path.iterdir())


@pytest.fixture(scope="module")
def ends(tmp_path_factory):
    """The same without tokens that no replay reads."""
    place = tmp_path_factory.mktemp("ends") / "t"
    whole = traces.load("reference-target")
    return thin(whole, place, drafters=["eagle", "pard", "suffix"], own="draft", drop_tokens=True)


@pytest.mark.parametrize("drafter", ["", "eagle", "pard", "suffix"])
def test_without_tokens_every_rule_replays_as_before(pair, ends, drafter):
    """To the last count and second; rows that ended with EOS still do."""
    found = traces.load(ends, drafter or None)
    whole = traces.load("reference-target", drafter or "draft")
    assert found.manifest.tokens == "ends" and whole.manifest.tokens == "all"
    specs = ["fixed(4)", "oracle"] + (["svip(h=0.5, max_draft=6)"] if drafter != "suffix" else [])
    cost = "linear(draft_s=0.001, target_s=0.01)"
    mine, theirs = (simkit.replay(trace, specs, cost, by="step").frame for trace in (found, whole))
    assert mine.equals(theirs)
    table = "lattice" if drafter else "branches"
    kept, all_ = (trace.column(table, "draft_token") for trace in (found, whole))
    eos = np.isin(all_, whole.eos_token_ids)
    np.testing.assert_array_equal(kept[eos], all_[eos])
    assert set(np.unique(kept[~eos])) == {1}  # id 0 is EOS
    assert eos.any() or drafter != "pard"


def test_a_drafter_is_attached_to_a_copy_as_to_the_whole(tmp_path, capsys):
    """What was left out or rounded of the copy's own rows is not of a drafter that comes later."""
    shutil.copytree(
        traces.load("reference").path, tmp_path / "whole", ignore=shutil.ignore_patterns("drafters")
    )
    options = ["--bits", "5", "--drop-tokens", "--columns", "draft_prob_raw"]
    for words in (
        ["thin", tmp_path / "whole", "-o", tmp_path / "thin", *options],
        *(["attach", tmp_path / name, "--drafter", "suffix"] for name in ("whole", "thin")),
        ["validate", tmp_path / "thin"],
    ):
        assert status(*words) == 0
    whole, thin_ = (traces.load(tmp_path / name, "suffix") for name in ("whole", "thin"))
    for column in ("accepted", "draft_token", "draft_prob_raw"):
        assert np.array_equal(whole.column("lattice", column), thin_.column("lattice", column))
    assert (thin_.manifest.bits, thin_.manifest.tokens) == (0, "all")


def test_it_says_which_tokens_it_lacks(pair, ends):
    assert not validate(ends)
    said = dict(in_words(describe(traces.load(ends))))
    assert said["left out"] == "draft tokens off the outputs' path, but for EOS"
    assert "left out" not in dict(in_words(describe(traces.load(pair))))
    sizes = [
        sum(file.stat().st_size for file in folder.rglob("branches/*")) for folder in (ends, pair)
    ]
    assert sizes[0] < 0.97 * sizes[1]
    again = thin(traces.load(ends), ends.parent / "again", bits=6)
    assert traces.load(again).manifest.tokens == "ends"


def test_verdicts_on_branches_stay_where_their_tokens_do_not(tmp_path):
    """As they were recorded with --branch-target; those on EOS tokens are still checked."""
    whole = recorded(
        tmp_path / "whole", sampler=Sampler(1.0), coupling="target", branch_target=True
    )
    copy = thin(whole, tmp_path / "thin", bits=6, drop_tokens=True)
    assert validate(copy) == []
    assert np.array_equal(*(one.branches("accepted") for one in (whole, traces.load(copy))))
    eos = np.isin(whole.branches("draft_token"), whole.eos_token_ids)
    flipped = np.where(eos, ~whole.branches("accepted"), whole.branches("accepted"))
    assert eos[: len(eos) // 2].any()
    n = read_manifest(copy).rows("branches")

    def change(table):
        place = table.schema.names.index("accepted")
        return table.set_column(place, table.schema.field(place), pa.array(flipped[:n]))

    rewrite(copy, "branches/00000.parquet", change)
    assert any("draft_token is 0" in line for line in validate(copy))
