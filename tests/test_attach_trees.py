"""Trees of networks on a recording, against decoders that read every text anew."""

import json
import shutil
from functools import cache

import numpy as np
import pyarrow as pa
import pytest
import test_attach_networks
import torch
from commands import refused
from pair_folders import simkit
from test_attach import SAMPLED, T_MAX
from test_attach_networks import DRAFTERS, NOISE, feature_rows, parallel_rows
from test_feature_drafter import make_target, noisy_target
from trace_files import rewrite, with_value

import simkit as toolkit
from traces import load
from traces.attach import registry, run
from traces.attach.drafter import Means
from traces.errors import TraceError
from traces.record.drafters.running import Planting
from traces.trees import shapes

BEAMS, PATHS = "eagle2(top_k=1:3, depth=1:3)", "static([[0], [3], [3, 1], [3, 1, 0]])"
KINDS = DRAFTERS | {"model": "model"}
root = test_attach_networks.root  # a fixture
SOURCES = ("eagle1", "eagle3", "few", "independent", "dependent", "borrowed", "model")
COST = "linear(draft_s=1, target_s=4)"


def attach(folder, trace, name, *options, length=T_MAX, trees=(BEAMS, PATHS)):
    made = {"model": f'model("{folder / "independent"}")'}
    spec = made.get(name, f'{KINDS[name]}("{folder / name}", length={length})')
    given = ["--target", folder / "target", "--device", "cpu"]
    given += [] if "--name" in options else ["--name", f"{name}-tree"]
    given += [part for shape in trees for part in ("--tree", shape)]
    return simkit(["attach", folder / trace, "--drafter", spec, *given, *options])


@pytest.fixture(scope="module")
def both(root):
    """A sampled recording of the first coupling too, whose outputs a draft model has touched."""
    models = ["--target", root / "target", "--draft", root / "independent", "--device", "cpu"]
    common = ["--prompts", root / "prompts.jsonl", "--out", root / "coupled", "--batch-size", 6]
    lengths = ["--max-new-tokens", T_MAX, "--max-draft", T_MAX]
    if not (root / "coupled").exists():
        assert simkit(["record", *models, *common, *lengths, *SAMPLED]) == 0
    return root


def plain(name, target):
    """Logits (1, V) behind known tokens and drafted ones."""
    if name == "model":
        model = noisy_target(NOISE["independent"]).to(target.dtype).eval()

        def propose(known, tokens):
            with torch.inference_mode():
                return model(torch.tensor([[*known, *tokens]])).logits[:, -1]

        return propose
    return (parallel_rows if KINDS[name] == "parallel" else feature_rows)(name, target)


class Table:
    """The columns of a recording of trees, tree by tree."""

    def __init__(self, trace):
        names = ("sequence", "start", "node", "parent", "depth", "rank", "token", "log_prob")
        names += ("on_path", "draft_entropy", "draft_top1_prob")
        self.columns = {name: np.array(trace.column("tree", name)) for name in names}
        begins = np.flatnonzero(self.columns["node"] == 0)
        ends = [*begins[1:], len(self.columns["node"])]
        self.trees = [slice(*pair) for pair in zip(begins, ends, strict=True)]

    def tree(self, k):
        return {name: values[self.trees[k]] for name, values in self.columns.items()}


def tokens_of(tree, node):
    out = []
    while node > 0:
        out.append(int(tree["token"][node]))
        node = int(tree["parent"][node])
    return out[::-1]


def wanted_parents(tree, known_shapes, room, eos):
    """The nodes that some shape gives children, or that the output goes through."""
    total = np.zeros(len(tree["node"]))
    for node in range(1, len(total)):
        total[node] = total[tree["parent"][node]] + float(tree["log_prob"][node])
    path_of = {0: ()}
    for node in range(1, len(total)):
        path_of[node] = (*path_of[int(tree["parent"][node])], int(tree["rank"][node]))
    found = set()
    for shape in known_shapes:
        if isinstance(shape, shapes.Paths):
            found |= {n for n, path in path_of.items() if path in shapes.inner(shape.paths)}
            continue
        beam = [0]
        for _ in range(shape.levels):
            found |= set(beam)
            new = [n for n in path_of if n and int(tree["parent"][n]) in beam]
            new = [n for n in new if tree["rank"][n] < shape.top_k]
            beam = sorted(new, key=lambda n: (-total[n], n))[: shape.top_k]
    deepest = min(room, max(shape.levels for shape in known_shapes))
    found |= {int(n) for n in np.flatnonzero(tree["on_path"])}
    ends = {n for n in found if n and int(tree["token"][n]) in eos}
    return {n for n in found - ends if tree["depth"][n] < deepest}


@pytest.mark.parametrize("name", SOURCES)
@pytest.mark.parametrize("trace", ["greedy", "sampled", "coupled"])
def test_the_union_of_the_shapes_is_there(both, trace, name):
    """Exactly the nodes that are asked for, and behind them what the drafter says, read anew."""
    if trace == "coupled" and name not in ("eagle1", "independent", "model"):
        return
    assert attach(both, trace, name) == 0
    assert simkit(["validate", both / trace]) == 0
    found = load(both / trace, f"{name}-tree")
    assert found.manifest.kind == "tree" and found.manifest.width == 4
    passes = {"model": "token", "parallel": "draft", "feature": "chain"}[KINDS[name]]
    assert found.manifest.draft_passes == passes
    target = make_target(torch.float32 if trace == "greedy" else torch.float64)
    propose, table = plain(name, target), Table(found)
    known_shapes = [shapes.parse(text) for text in found.manifest.shapes]
    texts = load(both / trace).sequences.to_pylist()
    random = np.random.default_rng(0)
    for k in range(len(table.trees)):
        tree = table.tree(k)
        row, start = texts[tree["sequence"][0]], int(tree["start"][0])
        parents = wanted_parents(tree, known_shapes, T_MAX - start, found.eos_token_ids)
        assert set(tree["parent"][1:].tolist()) == parents
        text = [*row["prompt_tokens"], *row["output_tokens"]]
        known = text[: row["n_prompt"] + start - 1]
        rest = text[len(known) :]
        for node in range(len(tree["node"])):
            tokens = tokens_of(tree, node)
            assert tree["on_path"][node] == (tokens == rest[: len(tokens)])
        for node in random.choice(sorted(parents), 1):
            judge(tree, node, propose(known, tokens_of(tree, node)))


def judge(tree, node, logits):
    """The children are the likeliest tokens, with their log-probabilities."""
    log_q = logits[0].double().log_softmax(-1)
    mine = np.flatnonzero(tree["parent"] == node)
    best = log_q.topk(len(mine)).values.numpy()
    assert np.allclose(tree["log_prob"][mine], best, atol=2e-4)
    assert np.allclose(log_q[tree["token"][mine].astype(int)].numpy(), best, atol=2e-4)
    entropy = -(log_q.exp() * log_q.clamp_min(-1e30)).sum()
    assert abs(float(tree["draft_entropy"][node]) - float(entropy)) < 2e-3
    assert abs(float(tree["draft_top1_prob"][node]) - np.exp(best[0])) < 2e-4


@pytest.mark.parametrize("trace", ["greedy", "sampled"])
@pytest.mark.parametrize("name", ["eagle1", "independent"])
def test_chains_are_those_of_the_lattice(both, trace, name):
    """A chain of best children is the draft at temperature 0: the same in all counts."""
    assert attach(both, trace, name, "--name", f"{name}-t", length=4) == 0
    options = ("--name", f"{name}-chain", "--draft-temperature", 0)
    assert attach(both, trace, name, *options, length=4, trees=()) == 0
    counts = ["steps", "drafted", "draft_passes", "proposed", "accepted", "emitted"]
    for policy in ("fixed(1)", "fixed(4)", "svip(h=0.9, max_draft=4)", "oracle(max_draft=4)"):
        one, other = (
            toolkit.replay(load(both / trace, f"{name}-{kind}"), policy, COST, by="step").frame
            for kind in ("t", "chain")
        )
        assert one.select(counts).equals(other.select(counts)), policy


def test_a_run_that_was_stopped(both, tmp_path, monkeypatch):
    """Done again it gives the same bytes, and says what is left."""
    folders = [tmp_path / name for name in ("whole", "stopped")]
    for folder in folders:
        shutil.copytree(both / "greedy", folder, ignore=shutil.ignore_patterns("drafters"))
    drafter = registry.parse(f'feature("{both / "eagle1"}", length={T_MAX})')
    means = Means(str(both / "target"), "cpu", tree=(BEAMS,))
    run.attach(load(folders[0]), drafter, "t", means)
    shard = Planting.shard

    def stopped(self, index):
        if index == 1:
            raise KeyboardInterrupt
        return shard(self, index)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Planting, "shard", stopped)
        run.attach(load(folders[1]), drafter, "t", means)
    with pytest.raises(TraceError, match="is incomplete"):
        load(folders[1], "t")
    said = []
    run.attach(load(folders[1]), drafter, "t", means, resume=True, on_size=said.append)
    files = sorted(file.relative_to(folders[0]) for file in (folders[0] / "drafters").rglob("*.*"))
    assert len(files) == 4
    for file in files:
        assert (folders[0] / file).read_bytes() == (folders[1] / file).read_bytes()
    whole = load(folders[0])
    left = whole.position_offsets[-1] - whole.position_offsets[6]
    assert len(said) == 1 and f"B a start, {left} starts: " in said[0]


def test_its_size_is_said_first(both, capsys):
    assert attach(both, "greedy", "eagle1", "--name", "sized") == 0
    first = capsys.readouterr().err.splitlines()[0]
    assert first.startswith("trees: about ") and " starts: " in first
    found = load(both / "greedy")
    assert f"{found.n_positions:,} starts" in first


def damaged(both, tmp_path):
    shutil.copytree(both / "greedy", tmp_path / "t", ignore=shutil.ignore_patterns("drafters"))
    (tmp_path / "target").symlink_to(both / "target")
    (tmp_path / "eagle1").symlink_to(both / "eagle1")
    assert attach(tmp_path, "t", "eagle1", "--name", "d") == 0
    return tmp_path / "t"


def first_where(tree, wanted):
    return int(np.flatnonzero(wanted)[0]) if wanted.any() else pytest.fail("no such row")


DAMAGES = {
    "parent": (lambda t: t["depth"] == 2, lambda t, k: 5000, "no node before it"),
    "depth": (lambda t: t["depth"] == 2, lambda t, k: 3, "not one more than its parent's"),
    "rank": (lambda t: t["rank"] == 2, lambda t, k: 1, "siblings must stand together, in order"),
    "token": (lambda t: t["depth"] == 1, lambda t, k: 10**6, "token is 1000000"),
    "log_prob": (lambda t: t["depth"] == 1, lambda t, k: 0.5, "log_prob is 0.5"),
    "node": (lambda t: t["depth"] == 1, lambda t, k: 7000, "numbered from 0, in order"),
    "start": (lambda t: t["node"] == 0, lambda t, k: 99, "a position that there is not"),
    "draft_entropy": (lambda t: t["depth"] == 0, lambda t, k: -1.0, "draft_entropy is -1"),
    "draft_top1_prob": (lambda t: t["depth"] == 0, lambda t, k: 1.5, "draft_top1_prob is 1.5"),
}


@pytest.fixture(scope="module")
def whole(both, tmp_path_factory):
    return damaged(both, tmp_path_factory.mktemp("damaged"))


def complaint(whole, tmp_path, capsys, change):
    shutil.copytree(whole, tmp_path / "t")
    rewrite(tmp_path / "t/drafters/d", "tree/00000.parquet", change)
    capsys.readouterr()
    assert simkit(["validate", tmp_path / "t"]) == 2
    return " ".join("".join(capsys.readouterr()).split())


@pytest.mark.parametrize("column", DAMAGES)
def test_validate_sees_a_wrong_value(whole, tmp_path, capsys, column):
    where, value, why = DAMAGES[column]

    def change(table):
        tree = {name: table[name].to_numpy() for name in table.schema.names}
        row = first_where(tree, where(tree))
        return with_value(table, column, row, value(tree, row))

    assert why in complaint(whole, tmp_path, capsys, change)


def test_validate_sees_a_path_that_skips(whole, tmp_path, capsys):
    """A node on the path whose parent is not, and a root that is not."""

    def change(table):
        tree = {name: table[name].to_numpy() for name in table.schema.names}
        at = np.arange(len(tree["node"])) - tree["node"] + np.maximum(tree["parent"], 0)
        lost = first_where(tree, (tree["depth"] == 2) & ~tree["on_path"][at])
        return with_value(with_value(table, "on_path", lost, True), "on_path", 0, False)

    said = complaint(whole, tmp_path, capsys, change)
    assert "on_path, but its parent is not" in said and "a root that is not on_path" in said


def test_validate_sees_nodes_out_of_order(whole, tmp_path, capsys):
    """The children of a later node before those of an earlier one."""

    def change(table):
        tree = {name: table[name].to_numpy() for name in table.schema.names}
        inner = np.flatnonzero((tree["depth"][1:] == 2) & (tree["rank"][1:] == 0)) + 1
        one = next(k for k, row in enumerate(inner[1:], 1) if tree["depth"][row - 1] == 2)
        parents = tree["parent"].copy()
        parents[inner[one - 1] : inner[one]], parents[inner[one]] = (
            parents[inner[one]],
            parents[inner[one - 1]],
        )
        field = table.schema.field("parent")
        return table.set_column(3, field, pa.array(parents, field.type))

    said = complaint(whole, tmp_path, capsys, change)
    assert "children of an earlier node" in said or "siblings must stand together" in said


@pytest.mark.parametrize(
    "text, why",
    [
        ("eagle3(top_k=2)", "shapes: eagle3(top_k=2) is no shape of a tree (did you mean eagle2?)"),
        ("eagle2(", "shapes: "),
        ("eagle2(top_k=1:3)", "is a range; give one value here"),
        ("eagle2(depth=7)", "shapes reach 8 levels, max_draft is 4"),
    ],
)
def test_a_shape_that_cannot_be_read(whole, tmp_path, capsys, text, why):
    shutil.copytree(whole, tmp_path / "t")
    file = tmp_path / "t/drafters/d/manifest.json"
    known = json.loads(file.read_text()) | {"shapes": [text]}
    known.pop("manifest_sha256")
    file.write_text(json.dumps(known))
    capsys.readouterr()
    assert why in refused(capsys, "validate", tmp_path / "t")


REFUSED = {
    "too deep for T_max": ("eagle1", ["eagle2(depth=14)"], "more than the trace's T_max = 14"),
    "too deep for its drafts": ("independent", [BEAMS], "give length=4"),
    "an orphan": ("eagle1", ["static([[0], [1, 0]])"], "[1, 0] is an orphan: [1], which leads"),
    "named twice": ("eagle1", ["static([[0], [0]])"], "the path [0] is named twice"),
    "unknown": ("eagle1", ["eagel2(top_k=2)"], "is no shape of a tree (did you mean eagle2?)"),
    "too many": ("eagle1", ["eagle2(top_k=1:50, depth=1:50)"], "means more than 1000 shapes"),
    "together too many": (
        "eagle1",
        ["eagle2(top_k=1:60, depth=1:10)", "eagle2(top_k=1:60, depth=11:20)"],
        "--tree means more than 1000 shapes together",
    ),
    "unknown, of a model": ("model", ["best(2)"], "best(2) is no shape of a tree"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_in_one_line(both, capsys, case):
    name, trees, why = REFUSED[case]
    assert attach(both, "greedy", name, "--name", "bad", length=3, trees=trees) == 2
    said = capsys.readouterr().err
    assert why in said and said.count("\n") == 1
    assert "bad" not in load(both / "greedy").drafters


@pytest.mark.parametrize("spec", ["prompt_lookup()", "ngram()", "mtp()", 'block("none")'])
def test_drafters_without_trees(both, capsys, spec):
    given = ["attach", both / "greedy", "--drafter", spec, "--tree", BEAMS]
    assert "makes no use of --tree: leave it out" in refused(capsys, *given)


@pytest.mark.parametrize(
    "options, more, why",
    [
        (", hidden=true", [], "model: hidden cannot be used with --tree"),
        (", at_once=4", [], "model: at_once cannot be used with --tree"),
        ("", ["--max-draft", 3], "--max-draft cannot be used with --tree"),
        (
            "",
            ["--draft-temperature", 0.5],
            "model with --tree makes no use of --draft-temperature: leave it out",
        ),
    ],
)
def test_what_only_rows_have(both, capsys, options, more, why):
    spec = f'model("{both / "independent"}"{options})'
    given = ["--target", both / "target", "--device", "cpu", "--tree", BEAMS, *more]
    assert why in refused(capsys, "attach", both / "greedy", "--drafter", spec, *given)


def test_columns_of_chains_are_none_of_trees(both, capsys):
    options = ["--name", "bad", "--columns", "draft_entropy"]
    assert attach(both, "greedy", "independent", *options, length=6, trees=[BEAMS]) == 2
    assert "with --tree writes the columns that it has: leave out" in capsys.readouterr().err


@cache
def bundled(name):
    return load("reference-trees", name)


def test_the_bundled_trees():
    """A draft model's chain is the recording's own draft; what is bundled is whole and small."""
    own = toolkit.replay("reference-trees", "fixed(5)", COST, by="step").frame
    tree = toolkit.replay(bundled("draft-tree"), "fixed(5)", COST, by="step").frame
    counts = ["drafted", "accepted", "emitted"]
    assert own.select(counts).equals(tree.select(counts))
    size = 0
    for name in ("reference-trees", "reference-trees-sampled"):
        assert simkit(["validate", name]) == 0
        folder = load(name).path
        size += sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
        assert {"eagle", "eagle-tree", "pard2-tree"} <= set(load(name).drafters)
    assert size < 8e6
    header = json.loads((load("reference-trees", "eagle-tree").path / "manifest.json").read_text())
    assert "eagle2(top_k=10, depth=7)" in header["shapes"]
