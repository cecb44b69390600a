"""Tree policies on the command line: what is refused is refused in one line, what is not works."""

from __future__ import annotations

import csv
import io
import json

import numpy as np
import pytest
from commands import refused, run

import simkit
import traces
from traces import scores

TRACE = ("reference-trees", "--drafter", "eagle-tree")
COST = ("--cost", "linear(draft_s=0.001, target_s=0.02, target_per_token_s=0.0001)")
RECORDED = "the trees hold 70 shapes, eagle2(top_k=1, depth=1) to eagle2(top_k=10, depth=7)"
DEEP = str([[0] * level for level in range(1, 10)])
TOGETHER = (
    "eagle2: give num_steps and num_draft_tokens together, or max_draft_len and"
    " max_total_draft_tokens"
)


def rows(out: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(out)))


NOT_RECORDED = {
    "eagle2(top_k=12)": f"eagle2(top_k=12) drafts nodes that were not recorded; {RECORDED}",
    "eagle2(depth=9)": f"depth=9) drafts nodes that were not recorded; {RECORDED}",
    "eagle2(num_steps=9, num_draft_tokens=60)": RECORDED,
    "best_first(20)": f"best_first(20) drafts nodes that were not recorded; {RECORDED}",
    "tree_svip(top_k=11)": RECORDED,
    "best_rate(top_k=11)": RECORDED,
    "static([[0], [10]])": "needs 1 level and 11 children of a node; recorded are 8 levels and 10",
    f"static({DEEP})": "needs 9 levels and 1 children of a node; recorded are 8 levels and 10",
}


@pytest.mark.parametrize("spec", NOT_RECORDED)
def test_what_was_not_recorded_is_named(spec, capsys):
    assert NOT_RECORDED[spec] in refused(capsys, "replay", *TRACE, "--policy", spec, *COST)


PATHS = {
    "static([[0, 0]])": "static: [0, 0] is an orphan: [0], which leads to it, is not among",
    "static([[0], [1, 0, 2], [1]])": "static: [1, 0, 2] is an orphan: [1, 0], which leads",
    "static([[0], [1], [0]])": "static: the path [0] is named twice",
    "static([])": "static: paths must be lists of ranks, such as [[0], [0, 0], [1]]",
    "static(3)": "static: paths must be lists of ranks",
    "static('[[0]]')": "static: paths must be lists of ranks",
    "static([0, 1])": "static: 0 is no list of ranks such as [0, 2]",
    "static([[0], []])": "static: [] is no list of ranks",
    "static([[0], [0.5]])": "static: [0.5] is no list of ranks",
    "static([[0], [-1]])": "static: [-1]: ranks must be from 0 to 63",
    "static([[64]])": "static: [64]: ranks must be from 0 to 63",
    "static([[0], [a]])": "may hold numbers alone",
    "static([[0], [true]])": "may hold numbers alone",
    "static([[[0]]])": "cannot read",
    "static([[0]": "is not of the form name(arg=value, ...)",
}


@pytest.mark.parametrize("spec", PATHS)
def test_rank_paths_that_are_no_tree(spec, capsys):
    assert PATHS[spec] in refused(capsys, "replay", *TRACE, "--policy", spec)


ARGUMENTS = {
    "eagle2(depth=7, total=8)": "eagle2: 7 nodes are fewer than its 8 levels",
    "eagle2(num_steps=4, num_draft_tokens=4)": "eagle2: 3 nodes are fewer than its 4 levels",
    "eagle2(max_draft_len=4, max_total_draft_tokens=3)": "3 nodes are fewer than its 4 levels",
    "tree_svip(depth=7, total=3)": "tree_svip: 2 nodes are fewer than its 8 levels",
    "eagle2(num_steps=3)": TOGETHER,
    "eagle2(max_total_draft_tokens=3)": TOGETHER,
    "eagle2(num_steps=3, num_draft_tokens=8, max_draft_len=3)": TOGETHER,
    "eagle2(num_steps=3, max_total_draft_tokens=8)": TOGETHER,
    "eagle2(num_steps=3, num_draft_tokens=8, depth=2)": "eagle2: depth and total do not go with",
    "eagle2(max_draft_len=3, max_total_draft_tokens=8, total=9)": "depth and total do not go with",
    "eagle2(num_steps=-3, num_draft_tokens=8)": "num_steps must be a whole number >= 0, not -3",
    "eagle2(top_k=0)": "eagle2: top_k must be a whole number >= 1, not 0",
    "eagle2(top_k=2.5)": "eagle2: top_k must be a whole number >= 1, not 2.5",
    "eagle2(top_k=nan)": "eagle2: top_k must be a whole number >= 1",
    "eagle2(top_k=65)": "eagle2: at most 64 nodes in a beam and 64 levels, not 65 and 8",
    "eagle2(depth=-1)": "eagle2: depth must be a whole number >= 0, not -1",
    "eagle2(depth=64, total=99)": "at most 64 nodes in a beam and 64 levels, not 10 and 65",
    "eagle2(total=1)": "eagle2: total must be a whole number >= 2, not 1",
    "eagle2(total=1e400)": "eagle2: total must be a whole number >= 2, not inf",
    "eagle2(k=3)": "eagle2 has no argument 'k' (known: depth, max_draft_len",
    "eagle2(top_k=1:3)": "eagle2(top_k=1:3): 1:3 is a range; give one value here",
    "eagle3()": "unknown policy 'eagle3' (did you mean eagle2?)",
    "sequoia(0)": "sequoia: budget must be a whole number >= 1, not 0",
    "sequoia(4097)": "sequoia: budget must be at most 4096, not 4097",
    "sequoia(4, by=rank)": "sequoia: by must be paths or ranks, not 'rank'",
    "sequoia(4, depth=-1)": "sequoia: depth must be a whole number >= 0, not -1",
    "best_first(0)": "best_first: budget must be a whole number >= 1, not 0",
    "best_first(5, least=2)": "best_first: least must be a number in [0, 1], not 2",
    "tree_prophet(-1)": "tree_prophet: deepest must be a whole number >= 0, not -1",
    "tree_svip(-1)": "tree_svip: h must be a number >= 0, not -1",
    "tree_svip(every=0)": "tree_svip: every must be a whole number >= 1, not 0",
    "best_rate(folds=1)": "best_rate: folds must be a whole number >= 2, not 1",
}


@pytest.mark.parametrize("spec", ARGUMENTS)
def test_arguments_that_cannot_be(spec, capsys):
    assert ARGUMENTS[spec] in refused(capsys, "replay", *TRACE, "--policy", spec, *COST)


TREES = ("eagle2()", "static([[0]])", "sequoia(4)", "tree_prophet()", "best_rate()", "tree_svip()")


@pytest.mark.parametrize("spec", [*TREES, "best_first()"])
@pytest.mark.parametrize("verb", ["replay", "sweep"])
def test_a_trace_without_trees(spec, verb, capsys):
    expected = (
        "drafts trees, and this trace holds none: attach a drafter with --tree (simkit attach)"
    )
    assert expected in refused(capsys, verb, "reference", "--policy", spec, *COST)


HAVE_TREES = "name a drafter that has trees with --drafter (draft-tree, eagle-tree, pard2-tree)"


def test_drafters_with_trees_are_named(capsys, tmp_path):
    """The recording's own drafts are none, but there are others: nothing needs to be attached."""
    words = "reference-trees", "--policy", "eagle2()", *COST
    said = refused(capsys, "replay", *words)
    assert said.endswith(f"drafts trees, and this trace holds none: {HAVE_TREES}")
    assert said.replace("eagle2(", "--policy: eagle2(") == refused(
        capsys, "figures", *words, "--out", tmp_path
    )
    alone = "reference-trees", "--drafter", "eagle", "--only", "tree_map", "--out", tmp_path
    assert refused(capsys, "figures", *alone).endswith(f"needs trees: {HAVE_TREES}")


def test_a_drafter_without_trees_is_named(capsys):
    drafter = "reference-trees", "--drafter", "eagle"
    expected = f"models/eagle) holds none: {HAVE_TREES}"
    assert expected in refused(capsys, "replay", *drafter, "--policy", "eagle2()", *COST)
    both = (*TRACE, "--drafter", "eagle")
    ended, out, said = run(capsys, "replay", *both, "--policy", "eagle2()", *COST)
    assert (ended, "eagle2(" in out, expected in said) == (0, True, True)
    misspelt = "reference-trees", "--drafter", "eagle-tre"
    expected = "no drafter 'eagle-tre' is attached (did you mean eagle-tree?)"
    assert expected in refused(capsys, "replay", *misspelt, "--policy", "eagle2()", *COST)


CHAINS = {
    "fixed(9)": "depth 9 was not recorded: drafts in this trace have at most max_draft (Γ) = 8",
    "specdecpp()": "scores of specdecpp are missing; write them with simkit score",
}


def test_a_drafter_that_reads_none_of_its_tokens_has_no_scores(capsys):
    parallel = "reference-trees", "--drafter", "pard2-tree"
    expected = "scores of acceptance_head are missing: this drafter reads none of its own tokens"
    line = refused(capsys, "replay", *parallel, "--policy", "tree_acceptance_head()", *COST)
    assert expected in line


@pytest.mark.parametrize("kept", ["none", "half", "all and an unread one"])
def test_scores_of_nodes_are_whole(kept):
    """Every node that the draft has read has one, and no other."""
    trace = traces.load("reference-trees", "eagle-tree")
    values = scores.load(trace, "acceptance_head").values.copy()
    read = ~np.isnan(values)
    assert (read == ~np.isnan(trace.column("tree", "draft_entropy"))).all()
    if kept == "none":
        values[:] = np.nan
    elif kept == "half":
        values[np.flatnonzero(read)[::2]] = np.nan
    else:
        values[np.flatnonzero(~read)[0]] = 0.5
    altered = scores.attach(trace, "acceptance_head", scores.NodeScores(values))
    assert altered.recording is trace.recording
    with pytest.raises(traces.TraceError, match="do not fit"):
        simkit.replay(altered, "tree_acceptance_head()")


@pytest.mark.parametrize("spec", CHAINS)
def test_chains_that_trees_cannot_tell(spec, capsys):
    assert CHAINS[spec] in refused(capsys, "replay", *TRACE, "--policy", spec, *COST)


HEAD = "traces/reference/heads/acceptance{}.safetensors".format
BESIDE = ("--target", "traces/reference/models/target")
HEADS = {
    (
        "score",
        *TRACE,
        "--head",
        HEAD("-trees-sampled"),
    ): "its drafter must run again over the tree",
    ("score", *TRACE, "--head", HEAD("")): "trained for another draft model",
    ("score", *TRACE, "--head", HEAD("-trees"), "--draft", "x"): "--draft needs --target",
    ("train", "acceptance", "reference", "--mix", "0.3"): "--mix is only for attached drafters",
    ("train", "acceptance", "reference", *BESIDE): "no attached drafter: name one with --drafter",
    ("train", "acceptance", *TRACE, *BESIDE, "--mix", "3"): "mix must be from 0 to 1",
    (
        "replay",
        *TRACE,
        "--policy",
        "tree_acceptance_head(variant=both)",
    ): "paper or code, not 'both'",
    ("replay", *TRACE, "--policy", "tree_acceptance_head(1.5)"): "h must be a number in [0, 1]",
}


@pytest.mark.parametrize("words", HEADS)
def test_heads_that_do_not_fit_trees(words, capsys, tmp_path):
    more = ("-o", str(tmp_path / "head.safetensors")) if words[0] == "train" else ()
    assert HEADS[words] in refused(capsys, *words, *more)


def test_a_row_each_policy(capsys):
    specs = (*TREES, "eagle2(top_k=4, depth=3, total=16)", "fixed(4)", "autoregressive()")
    given = [word for spec in specs for word in ("--policy", spec)]
    status, out, _ = run(capsys, "replay", *TRACE, *given, *COST, "--format", "json")
    found = json.loads(out)
    assert status == 0 and len(found) == len(specs)
    fastest = max(row["speedup"] for row in found)
    for row in found:
        assert row["emitted"] == found[0]["emitted"]
        assert row["proposed"] <= row["drafted"] and row["accepted"] <= row["proposed"]
        parts = ("prefill_s", "draft_s", "verify_s", "policy_s", "overhead_s")
        assert row["total_s"] == pytest.approx(sum(row[part] for part in parts))
        assert (row["speedup"] == fastest) == row["policy"].startswith("tree_prophet")


def test_three_engines_spell_one_tree(capsys):
    same = (
        "eagle2(top_k=4, depth=3, total=16)",
        "eagle2(top_k=4, num_steps=4, num_draft_tokens=16)",
        "eagle2(top_k=4, max_draft_len=4, max_total_draft_tokens=15)",
    )
    given = [word for spec in same for word in ("--policy", spec)]
    status, out, _ = run(capsys, "replay", *TRACE, *given, *COST, "--format", "csv")
    first, *others = [{k: v for k, v in row.items() if k != "policy"} for row in rows(out)]
    assert status == 0 and others == [first, first]


def test_several_drafters(capsys):
    three = [w for name in ("eagle-tree", "pard2-tree", "draft-tree") for w in ("--drafter", name)]
    given = ("replay", "reference-trees", *three, "--policy", "eagle2()", *COST)
    status, out, _ = run(capsys, *given, "--format", "csv")
    assert status == 0 and len(rows(out)) == 3
    feature, parallel, model = rows(out)
    for row in (feature, model):  # a pass a level; the last position of an output drafts nothing
        assert int(row["draft_passes"]) > 7 * int(row["steps"]) - 8 * 16
    assert int(parallel["draft_passes"]) <= int(parallel["steps"])


def test_every_step(capsys):
    given = ("replay", *TRACE, "--policy", "eagle2()", *COST, "--by", "step", "--format", "csv")
    status, out, _ = run(capsys, *given)
    found = rows(out)
    assert status == 0 and len(found) > 100
    assert all(int(row["emitted"]) - int(row["accepted"]) in (0, 1) for row in found)
    assert max(int(row["proposed"]) for row in found) == 59


def test_ranges_are_swept(capsys):
    given = ("sweep", *TRACE, "--policy", "eagle2(top_k=1:4, depth=1:3, total=16)", *COST)
    status, out, _ = run(capsys, *given, "--format", "csv")
    found = rows(out)
    assert status == 0 and len(found) == 12
    assert {(row["top_k"], row["depth"]) for row in found} == {
        (str(k), str(d)) for k in range(1, 5) for d in range(1, 4)
    }


SWEPT = {
    "eagle2(top_k=8:12:2)": RECORDED,
    "eagle2(total=4:12:2, depth=3)": "eagle2: 3 nodes are fewer than its 4 levels",
    "best_first(10:30:10)": RECORDED,
}


@pytest.mark.parametrize("spec", SWEPT)
@pytest.mark.parametrize("verb", ["sweep", "tune"])
def test_ranges_that_reach_too_far(spec, verb, capsys):
    assert SWEPT[spec] in refused(capsys, verb, *TRACE, "--policy", spec, *COST)


@pytest.mark.parametrize(
    "spec", ["eagle2(top_k=1:4, depth=1:3, total=12)", "sequoia(2:8:2)", "tree_svip(0.2:0.6:0.2)"]
)
def test_ranges_are_tuned(spec, capsys):
    given = ("tune", *TRACE, "--policy", spec, *COST, "--deals", "1", "--format", "csv")
    status, out, _ = run(capsys, *given)
    reference, found = rows(out)
    assert status == 0 and reference["spec"] == "fixed(0:8)"
    assert found["chosen"].startswith(spec.split("(")[0]) and float(found["speedup"]) > 1


def test_a_bound_is_not_tuned(capsys):
    given = ("tune", *TRACE, "--policy", "tree_prophet(1:3)", *COST, "--deals", "1")
    assert "needs the future: it is a bound, and cannot be tuned" in refused(capsys, *given)


@pytest.mark.parametrize("spec", ["eagle2()", "sequoia(3)", "static([[0], [1]])", "eagle3()"])
def test_a_server_takes_trees_or_says_why_not(spec, capsys):
    load = ("--concurrency", "2", "--requests", "4", "--seeds", "1")
    given = ("serving", *TRACE, "--controller", spec, *COST, *load, "--format", "csv")
    status, out, said = run(capsys, *given)
    if status:
        assert (status, out) == (2, "") and said.count("\n") == 1 and said.startswith("simkit: ")
        return
    (row,) = rows(out)
    assert row["controller"].split("(")[0] == spec.split("(")[0]
    assert 1 <= float(row["tokens_step"]) <= 1 + 8 and float(row["tokens_s"]) > 0
