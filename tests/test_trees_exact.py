"""Replayed tree policies against a live decoder, which drafts trees with the models themselves.

The recorded tree of a start says what a live one must be: the policy is asked level by level, with
recorded children in the place of the draft's, and gives the nodes that are verified as token paths.
Greedy runs are in float32, sampled ones in float64, so that no token hangs on last bits.
"""

import json
from functools import cache

import numpy as np
import pytest
import torch
from pair_folders import simkit, words_tokenizer
from test_feature_drafter import V, make_target, noisy_target, write

import simkit as toolkit
from simkit import policies
from simkit.heads import files, registry, run
from simkit.heads.nodes import Models
from simkit.live.growing_tree import Sapling
from simkit.live.settings import DecoderSettings
from simkit.live.tree_drafts import FeatureDraft, ModelDraft
from simkit.live.trees import TreeDecoder
from simkit.policies import PolicyError
from simkit.policies.base import Branching, Setting
from simkit.steps.tree import FAMILY as TREES
from simkit.trees.growing import Growing
from traces import load, scores
from traces.record.drafters import feature
from traces.record.drafters.trees import TreeStatistics

T_MAX, N, WIDTH, DEPTH = 10, 13, 6, 4
STATIC = "static([[0], [0, 0], [0, 0, 0], [0, 1], [1], [1, 0], [1, 2], [3], [3, 0], [5]])"
SPECS = {  # of every registered tree policy that can run live
    "eagle2": (
        f"eagle2(top_k={WIDTH}, depth={DEPTH - 1}, total=20)",
        f"eagle2(top_k={WIDTH}, num_steps=3, num_draft_tokens=5)",
    ),
    "static": (STATIC,),
    "best_first": (
        f"best_first(16, top_k={WIDTH}, depth={DEPTH})",
        f"best_first(16, least=0.02, top_k={WIDTH}, depth={DEPTH})",
    ),
    "sequoia": ("sequoia(12)",),  # as the replay has fitted it
    "tree_svip": (f"tree_svip(h=1.3, every=2, top_k={WIDTH}, depth={DEPTH - 1}, total=20)",),
    "tree_acceptance_head": (
        f"tree_acceptance_head(h=0.86, top_k={WIDTH}, depth={DEPTH - 1}, total=20)",
        f"tree_acceptance_head(h=0.86, variant=code, top_k={WIDTH}, depth={DEPTH - 1}, total=20)",
    ),
}
OFFLINE = ("best_rate", "tree_prophet")  # one is fitted to prices, one needs the output
SHAPES = (
    f"eagle2(top_k={WIDTH}, depth={DEPTH - 1})",
    f"eagle2(top_k=1, depth={DEPTH - 1})",
    STATIC,
    f"best_first(16, least=0.0, top_k={WIDTH}, depth={DEPTH})",
)
DTYPES = {"greedy": "float32", "sampled": "float64"}


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trees")
    tokenizer = words_tokenizer(V)
    for name, model in (("target", make_target(torch.float32)), ("model", noisy_target(0.1))):
        model.save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)
    for kind in ("eagle1", "eagle3", "few"):
        (folder / kind).mkdir()
        write(folder / kind, kind)
    rows = [{"prompt_tokens": [k + 1, 7, (3 * k) % 39 + 1, 5][: k % 4 + 1]} for k in range(N)]
    (folder / "prompts.jsonl").write_text("\n".join(map(json.dumps, rows)))
    for name, options in (("greedy", ()), ("sampled", ("--temperature", 1))):
        common = ["--prompts", folder / "prompts.jsonl", "--out", folder / name]
        models = ["--target", folder / "target", "--device", "cpu", "--dtype", DTYPES[name]]
        lengths = ["--batch-size", 6, "--max-new-tokens", T_MAX]
        assert simkit(["record", *models, *common, *lengths, *options]) == 0
    return folder


@cache
def planted(root, trace, name):
    """The trace with the drafter's trees."""
    kind = "model" if name == "model" else "feature"
    given = ["--target", root / "target", "--device", "cpu", "--name", name]
    given += [word for shape in SHAPES for word in ("--tree", shape)]
    assert simkit(["attach", root / trace, "--drafter", f'{kind}("{root / name}")', *given]) == 0
    trees = load(root / trace, name)
    models = Models(str(root / "target"), device="cpu")
    assert run.score(trees, head_of(trees), models=models) == "acceptance_head"
    return load(root / trace, name)


def head_of(trace):
    """One that has learned nothing; its scores are far apart."""
    torch.manual_seed(7)
    kind = registry.get("acceptance")
    options, width = kind.settle({}), make_target(torch.float32).config.hidden_size
    module = kind.build(width, options)
    with torch.no_grad():
        for weight in module.parameters():
            weight.copy_(0.5 * torch.randn_like(weight))
    known = {f"{m}_sha256": getattr(trace.manifest, m).weights_sha256 for m in ("target", "draft")}
    return files.Head("acceptance", width, options, module.eval(), {"trained_on": known})


@cache
def drafter(root, trace, name):
    """The target, and a drafter of it for a live decoder."""
    dtype = DTYPES[trace]
    target = make_target(getattr(torch, dtype))
    if name == "model":
        return target, ModelDraft(noisy_target(0.1).to(target.dtype), V)
    return target, FeatureDraft(feature.load(root / name, target, dtype=dtype))


def specs():
    found = []
    for name in policies.names():
        if issubclass(policies.get(name), Branching) and name not in OFFLINE:
            assert issubclass(policies.get(name), Growing), f"{name} cannot run live: say so here"
            found += SPECS[name]  # none: give it arguments, and record its nodes (SHAPES)
    return found


def recorded(trace, policy, sequence, start, root):
    """The token paths that a policy has verified of the recorded tree of a start."""
    row = trace.position_offsets[sequence] + start - 1
    low, high = trace.offsets("tree")[row : row + 2]
    score = scores.load(trace, "acceptance_head").values[low:high]
    names = ("parent", "rank", "depth", "token", "log_prob", "draft_entropy")
    parent, rank, depth, token, log_prob, entropy = (
        trace.column("tree", name)[low:high] for name in names
    )
    eos = trace.eos_token_ids
    sapling, place = Sapling(root, eos), [0]
    for level in range(min(policy.levels, trace.max_new_tokens - start)):
        nodes = policy.grows(sapling.tree, level)
        nodes = nodes[~sapling.tree.ended[nodes]]
        if not len(nodes):
            break
        sapling.judge(nodes, score[[place[n] for n in nodes]])
        below = [np.flatnonzero(parent == place[n])[: policy.width] for n in nodes]
        children = np.array(below)
        assert (rank[children] == np.arange(policy.width)).all()
        assert (depth[children] == level + 1).all()
        there = entropy[[place[n] for n in nodes]]
        sapling.extend(nodes, TreeStatistics(token[children], log_prob[children], there))
        place += children.reshape(-1).tolist()
    tree, paths = sapling.tree, {0: ()}
    for node in range(1, len(place)):
        paths[node] = (*paths[int(tree.parent[node])], int(sapling.token[node]))
    return {paths[node] for node in policy.chosen(tree).tolist()} if len(place) > 1 else set()


def reachable(paths, eos):
    """Those without an EOS on the way: what stands behind one is not recorded."""
    return {path for path in paths if not set(path[:-1]) & set(eos)}


def check(root, name, drafter_name, spec, first_token="draft"):
    trace = planted(root, name, drafter_name)
    replayed = toolkit.replay(trace, spec, by="step", first_token=first_token)
    setting = Setting(replayed.runs[0].layout, None, 1 if first_token == "draft" else 2)
    policy, frame = policies.parse(spec).bind(setting), replayed.frame
    target, draft = drafter(root, name, drafter_name)
    settings = DecoderSettings.of(trace, first_token)
    heads = {"acceptance_head": head_of(trace)}
    decoder = TreeDecoder(target, draft, policy, settings, V, heads=heads)
    columns = ("start", "drafted", "draft_passes", "proposed", "accepted", "emitted")
    accepted = calls = 0
    for k, row in enumerate(trace.sequences.to_pylist()):
        got = decoder.decode(row["prompt_tokens"], row["sequence"])
        assert got.output == row["output_tokens"]
        asked = sum(1 for r in got.rows if r.kind == "policy")
        calls += asked
        mine = frame.filter(frame["sequence"] == row["sequence"])
        counts = (
            (s.start, s.drafted, len(s.widths), s.verified, s.accepted, len(s.emitted))
            for s in got.steps
        )
        assert list(counts) == list(zip(*(mine[c].to_list() for c in columns), strict=True))
        known = row["prompt_tokens"] + row["output_tokens"]
        for step in got.steps:
            last = known[len(row["prompt_tokens"]) + step.start - 2]
            wanted = recorded(trace, policy, k, step.start, last)
            eos = trace.eos_token_ids
            assert reachable(step.paths, eos) == reachable(wanted, eos)
        accepted += sum(s.accepted for s in got.steps)
    if policy.looks:
        walked = TREES.walk(policy, setting.layout, setting.first)
        assert calls == walked.work.calls.sum() > 0
    return accepted


@pytest.mark.parametrize("spec", specs())
@pytest.mark.parametrize("trace", DTYPES)
def test_every_tree_policy_decodes_as_it_replays(root, trace, spec):
    assert check(root, trace, "eagle1", spec) > 0


@pytest.mark.parametrize("trace", DTYPES)
def test_a_draft_model(root, trace):
    assert check(root, trace, "model", SPECS["eagle2"][0], "prefill") > 30


@pytest.mark.parametrize(("trace", "name"), [("greedy", "eagle3"), ("sampled", "few")])
def test_other_feature_drafters(root, trace, name):
    assert check(root, trace, name, SPECS["best_first"][1], "prefill") > 0


@pytest.mark.parametrize("trace", DTYPES)
def test_a_chain_is_fixed(root, trace):
    """The same steps, to the last count, as the lattice of the drafter's greedy chain."""
    given = ["--target", root / "target", "--device", "cpu", "--name", "chain"]
    given += ["--draft-temperature", 0]
    spec = f'feature("{root / "eagle1"}", length={DEPTH})'
    assert simkit(["attach", root / trace, "--drafter", spec, *given]) == 0
    chain = f"eagle2(top_k=1, depth={DEPTH - 1}, total={DEPTH + 1})"
    target, draft = drafter(root, trace, "eagle1")
    found = load(root / trace, "chain")
    frame = toolkit.replay(found, f"fixed({DEPTH})", by="step").frame
    decoder = TreeDecoder(target, draft, policies.parse(chain), DecoderSettings.of(found), V)
    for row in found.sequences.to_pylist():
        got = decoder.decode(row["prompt_tokens"], row["sequence"]).steps
        mine = frame.filter(frame["sequence"] == row["sequence"])
        columns = (mine[c].to_list() for c in ("start", "drafted", "proposed", "accepted"))
        counts = [(s.start, s.drafted, s.verified, s.accepted) for s in got]
        assert counts == list(zip(*columns, strict=True))


@pytest.mark.parametrize("trace", DTYPES)
def test_the_target_alone(root, trace):
    found = planted(root, trace, "eagle1")
    target, _ = drafter(root, trace, "eagle1")
    for first_token in ("draft", "prefill"):
        settings = DecoderSettings.of(found, first_token)
        decoder = TreeDecoder(target, None, None, settings, V)
        for row in found.sequences.to_pylist()[:4]:
            got = decoder.decode(row["prompt_tokens"], row["sequence"])
            assert got.output == row["output_tokens"] and not got.steps


@pytest.mark.parametrize("name", ("tree_prophet", "sequoia"))
def test_what_needs_the_output_is_refused(root, name):
    target, draft = drafter(root, "greedy", "eagle1")
    with pytest.raises(PolicyError, match="cannot run live|must be fitted"):
        TreeDecoder(target, draft, policies.get(name)(), DecoderSettings(), V)  # pyright: ignore


def test_outputs_are_worth_the_test(root):
    """EOS tokens end some outputs, and are drafted."""
    for name in DTYPES:
        found = planted(root, name, "eagle1")
        assert set(found.sequences["finish_reason"].to_pylist()) >= {"length"}
        assert np.isin(found.column("tree", "token"), found.eos_token_ids).any()
