"""Trees of suffix decoding, against the same rule in plain Python; and attached to traces."""

import json
import math
import shutil

import numpy as np
import pytest
from commands import refused
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pair_folders import simkit
from test_token_rules import suffixes, texts
from token_rules import children_of, ends_of

import simkit as toolkit
import traces
from traces.attach import registry
from traces.attach.tokens import Suffix
from traces.attach.tokens.suffix import EarlierOutputs
from traces.errors import DrafterError
from traces.trees import shapes


def plain(rule, text, n_prompt, eos, max_new_tokens, outputs=()):
    """The nodes of the tree from each start as {rank path: (token, log-probability)}."""
    out = []
    for i in range(1, len(text) - n_prompt + 1):
        known = text[: n_prompt + i - 1]
        deepest = min(max_new_tokens - i, 64)
        both = (best_match(rule, some, known, eos, deepest) for some in ([known], outputs))
        out.append(max(both, key=lambda found: found[0])[1])
    return out


def best_match(rule, some, known, eos, deepest):
    best = (np.float32(0), {})
    for m in range(1, min(len(known), rule.max_depth)):
        if not ends_of(known[-m:], some):
            break
        most = int(m * rule.factor + rule.offset + 1e-6)
        most = max(0, min(most, rule.max_tokens, rule.max_depth - m))
        found = likeliest(rule, some, known[-m:], most, eos, deepest)
        if found[0] >= best[0]:
            best = found
    return best


def likeliest(rule, some, match, budget, eos, deepest):
    """One after another: the best of all whose parents are there."""
    least = math.log(rule.min_prob) if rule.min_prob else -math.inf
    chosen, score = {}, np.float32(0)
    front = born(some, match, (), (), 0.0, np.float32(1), least) if deepest > 0 else []
    while front and len(chosen) < budget:
        first = min(front, key=lambda node: (-node["total"], len(node["path"]), node["path"]))
        front.remove(first)
        chosen[first["path"]] = first["tokens"][-1], first["log_prob"]
        score += first["chance"]
        if len(first["path"]) < deepest and first["tokens"][-1] not in eos:
            mine = (first[name] for name in ("path", "tokens", "total", "chance"))
            front += born(some, match, *mine, least)
    return score, chosen


def born(some, match, path, tokens, total, chance, least):
    """The children of a node that are likely enough, ranked."""
    before = [*match, *tokens]
    n = len(ends_of(before, some))
    found = []
    for rank, (token, count) in enumerate(children_of(before, some).items()):
        exact = math.log(count / n)
        log_prob = np.float32(exact)
        if float(log_prob) < exact:
            log_prob = np.nextafter(log_prob, np.float32(0))
        if total + float(log_prob) >= least:
            found.append(
                {
                    "path": (*path, rank),
                    "tokens": (*tokens, token),
                    "log_prob": log_prob,
                    "total": total + float(log_prob),
                    "chance": chance * (np.float32(count) / np.float32(n)),
                }
            )
    return found


def planted(found):
    """The nodes of each tree as the plain ones are, and their rank paths in order."""
    rows = found.rows(0)
    out, at = [], 0
    for size in found.sizes:
        paths = {-1: (), 0: ()}
        tree = {}
        for k in range(at + 1, at + size):
            path = (*paths[rows["parent"][k]], int(rows["rank"][k]))
            paths[int(rows["node"][k])] = path
            assert len(path) == rows["depth"][k]
            tree[path] = int(rows["token"][k]), rows["log_prob"][k]
        assert list(tree) == sorted(tree, key=lambda path: (len(path), path))
        out.append(tree)
        at += size
    return out


def check(rule, case, memory=None, outputs=()):
    text, n_prompt, eos, max_new_tokens = case
    found = rule.found(text, n_prompt, eos, max_new_tokens, memory)
    outputs = list(outputs)
    wanted = plain(rule, text.tolist(), n_prompt, eos.tolist(), max_new_tokens, outputs)
    assert planted(found) == wanted
    return found


@settings(deadline=None, max_examples=60)
@given(suffixes(), texts())
@example(Suffix(), (np.arange(30, dtype=np.int32) % 3, 2, np.array([1], np.int32), 40))
def test_trees_are_those_of_the_rule(rule, case):
    check(registry.parse(str(rule)[:-1] + f"{', ' * (str(rule)[-2] != '(')}tree=true)"), case)


@settings(deadline=None, max_examples=30)
@given(suffixes(shared=True), st.lists(texts(), max_size=3))
def test_trees_over_earlier_outputs(rule, cases):
    rule = registry.parse(str(rule)[:-1] + ", tree=true)")
    memory, outputs = rule.memory(), []
    for case in cases:
        check(rule, case, memory, outputs)
        outputs.append(case[0][case[1] :].tolist())


def test_what_is_said_behind_a_node():
    """1 is followed by 2 twice, by 3 once, and the text ends with it: three things and an end."""
    text = np.array([1, 2, 1, 2, 1, 3, 1, 0], np.int32)
    found = Suffix(tree=True, offset=4.0).found(text, 7, np.array([9], np.int32), 8).rows(0)
    p = np.array([2, 1, 1]) / 4
    assert found["draft_entropy"][0] == pytest.approx(-(p * np.log(p)).sum())
    assert found["draft_top1_prob"][0] == 0.5
    assert found["token"][:3].tolist() == [1, 2, 3]
    leaf = ~np.isin(found["node"], found["parent"])
    assert np.isnan(found["draft_entropy"][leaf]).all()
    assert not np.isnan(found["draft_entropy"][~leaf]).any()


def test_a_rule_plants_or_proposes():
    none = np.zeros(4, np.int32)
    with pytest.raises(ValueError, match="it plants trees"):
        Suffix(tree=True).propose(none, 2, none, 4)
    with pytest.raises(ValueError, match="a memory goes with shared=true"):
        Suffix(tree=True).found(none, 2, none, 4, EarlierOutputs())
    with pytest.raises(DrafterError, match="suffix: tree must be true or false, not 1"):
        Suffix(tree=1)
    with pytest.raises(DrafterError, match="max_tokens must be at most 4096, not 5000"):
        Suffix(tree=True, max_tokens=5000)


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    folder = tmp_path_factory.mktemp("suffix")
    for name in ("reference-trees", "reference-trees-sampled"):
        source = traces.load(name).path
        left = shutil.ignore_patterns("drafters")
        shutil.copytree(source, folder / name, ignore=left)
    return folder


@pytest.mark.parametrize("name", ["reference-trees", "reference-trees-sampled"])
@pytest.mark.parametrize("spec", ["suffix(tree=true)", "suffix(tree=true, shared=true)"])
def test_attached(root, name, spec):
    given = ["attach", root / name, "--drafter", spec]
    assert simkit([*given, "--name", "t" + str(len(spec))]) == 0
    assert simkit(["validate", root / name]) == 0
    found = traces.load(root / name, "t" + str(len(spec)))
    manifest = found.manifest
    assert (manifest.kind, manifest.draft_passes) == ("tree", "none")
    (shape,) = map(shapes.parse, manifest.shapes)
    assert shape == shapes.BestFirst(64, 0.1, 10, min(63, found.max_new_tokens))
    times = found.own_latency().to_pydict()
    assert set(times["component"]) == {"proposal"} and len(times["seconds"]) == found.n_sequences
    trees = found.position_offsets[-1], found.offsets("tree")
    assert len(trees[1]) == trees[0] + 1


def test_the_whole_tree_is_what_best_first_takes(root):
    """Its budget and its least probability take all that is there, and no fewer are proposed."""
    simkit(["attach", root / "reference-trees", "--drafter", "suffix(tree=true)", "--name", "all"])
    found = traces.load(root / "reference-trees", "all")
    (shape,) = map(shapes.parse, found.manifest.shapes)
    policy = f"best_first({shape.budget}, least={shape.least}, depth={shape.depth})"
    steps = toolkit.replay(found, policy, "linear(draft_s=1, target_s=4)", by="step").frame
    rows = np.diff(found.offsets("tree"))
    at = found.position_offsets[steps["sequence"].to_numpy()] + steps["start"].to_numpy() - 1
    assert steps["proposed"].to_list() == np.maximum(rows[at] - 1, 0).tolist()
    assert not steps["draft_passes"].to_numpy().any()


def test_imported_tokens(tmp_path):
    rows = [
        {"prompt_token_ids": [1, 2, 3, 1], "output_token_ids": [2, 3, 1, 2, k]} for k in range(3)
    ]
    (tmp_path / "log.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert simkit(["import", "tokens", tmp_path / "log.jsonl", "--out", tmp_path / "t"]) == 0
    assert simkit(["attach", tmp_path / "t", "--drafter", "suffix(tree=true)"]) == 0
    assert simkit(["validate", tmp_path / "t"]) == 0
    given = ["--drafter", "suffix", "--policy", "best_first(8, least=0.1)"]
    assert (
        simkit(["replay", tmp_path / "t", *given, "--cost", "linear(draft_s=1, target_s=4)"]) == 0
    )


def test_shapes_are_not_asked_for(root, capsys):
    given = ["attach", root / "reference-trees", "--tree", "best_first(60)", "--drafter"]
    for spec in ("suffix(tree=true)", "prompt_lookup()", "ngram()"):
        line = refused(capsys, *given, spec, "--name", "none")
        assert "makes no use of --tree: leave it out" in line
