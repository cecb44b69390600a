"""`simkit live` and `simkit fidelity` of trees: their logs, and what they refuse."""

from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pytest
from pair_folders import simkit
from test_trees_exact import SHAPES, T_MAX, root  # noqa: F401 (a fixture)

import traces
from simkit.costs.passes import Passes
from simkit.errors import LiveError
from simkit.fidelity.tree_ladder import TreeLadder
from simkit.live import DecoderSettings
from simkit.live.log import read
from simkit.live.rotation import Arm
from simkit.live.tree_arms import TreeBench
from simkit.live.trees import TreeDecoder
from simkit.policies import parse

HEAD = Path(traces.__file__).parent / "reference/heads/acceptance-trees.safetensors"
POLICY = "eagle2(top_k=6, depth=2, total=9)"


def live(root, *options, drafter="eagle1", policy=POLICY):  # noqa: F811
    given = ["--target", root / "target", "--prompts", root / "prompts.jsonl", "--policy", policy]
    given += ["--drafter", f'feature("{root / drafter}")'] if drafter else []
    numbers = ["--n-prompts", 3, "--rounds", 1, "--max-new-tokens", T_MAX, "--device", "cpu"]
    return simkit(["live", *given, *numbers, *options])


def test_a_log_of_trees(root, tmp_path):  # noqa: F811
    live(root, "--turns", "step", "-o", tmp_path / "live.parquet")
    log = read(tmp_path / "live.parquet")
    tree = log.filter(pc.field("policy") == "eagle2(top_k=6, depth=2, total=9)")
    kinds = {kind: tree.filter(pc.field("kind") == kind) for kind in ("draft", "verify", "step")}
    steps = kinds["step"].filter(pc.field("step") > 0)
    assert len(kinds["verify"]) == len(steps)
    assert kinds["verify"]["tokens_in"].to_numpy().max() == 9  # 8 nodes, and the one before them
    depth, tokens = (kinds["draft"][name].to_numpy() for name in ("depth", "tokens_in"))
    assert set(depth) == {1, 2, 3} and set(tokens[depth > 1]) <= set(range(1, 7))
    assert steps["depth"].to_numpy().max() == 6 + 36 + 36  # nodes that the draft proposed
    outputs = log.filter(pc.field("kind") == "sequence")["tokens_in"].to_numpy()
    assert (outputs.reshape(3, -1) == outputs.reshape(3, -1)[:, :1]).all()


def test_a_draft_model_drafts_trees(root, tmp_path):  # noqa: F811
    file = tmp_path / "live.parquet"
    live(root, "--draft", root / "model", "--clock", "processor", "-o", file, drafter=None)
    assert (read(file).schema.metadata or {})[b"clock"] == b"processor"


@pytest.mark.parametrize(
    ("options", "drafter", "policy", "why"),
    [
        ([], "eagle1", "fixed(3)", "give --draft"),
        ([], None, POLICY, "what drafts the trees?"),
        (["--policy", "fixed(3)"], "eagle1", POLICY, "run them separately"),
        (
            ["--batch-size", 2],
            "eagle1",
            POLICY,
            "--batch-size cannot be used with tree policies",
        ),
        (["--concurrency", 2], "eagle1", POLICY, "--concurrency cannot be used with tree"),
        (["--stop", "any"], "eagle1", POLICY, "--stop cannot be used with tree policies"),
        (["--draft-temperature", 1, "--temperature", 1], "eagle1", POLICY, "likeliest tokens"),
        ([], "eagle1", "tree_prophet", "does not grow its trees level by level"),
        ([], "eagle1", "best_rate", "is fitted to a trace and its cost: it cannot run live"),
        (["--rounds", 0], "eagle1", POLICY, "must be at least 1"),
        (["--head", HEAD], "eagle1", POLICY, "--head: no policy reads a head"),
        (["--max-new-tokens", 9999], "eagle1", POLICY, "positions, but the target has"),
        (["--n-prompts", 1], "eagle1", POLICY, "at least 2"),
    ],
)
def test_what_is_refused(root, capsys, options, drafter, policy, why):  # noqa: F811
    assert live(root, *options, drafter=drafter, policy=policy) == 2
    said = capsys.readouterr().err
    assert why in said


def test_what_decodes_trees_refuses_what_the_command_does():
    """Called from Python: a batch, and a policy without a draft."""
    settings = DecoderSettings()
    with pytest.raises(LiveError, match="one prompt at a time"):
        TreeBench(None, None, 9, settings).decoder(Arm(), batched=True)  # pyright: ignore
    with pytest.raises(LiveError, match="eagle2.* needs a draft"):
        TreeDecoder(None, None, parse(POLICY), settings, 9)  # pyright: ignore


def test_fidelity(root, tmp_path, capsys):  # noqa: F811
    """All steps are the replayed ones; the log is judged again to the same words."""
    spec = f'feature("{root / "eagle1"}")'
    given = ["--target", root / "target", "--device", "cpu", "--name", "planted"]
    given += [word for shape in SHAPES for word in ("--tree", shape)]
    assert simkit(["attach", root / "greedy", "--drafter", spec, *given]) == 0
    trace = [root / "greedy", "--drafter", "planted"]
    models = ["--target", root / "target", "--draft", root / "eagle1", "--device", "cpu"]
    numbers = ["--n-prompts", 3, "--calibration", 3, "--rounds", 1, "--clock", "processor"]
    tested = [
        *("--policy", "eagle2(top_k=6, depth=3, total=20)"),
        *("--policy", "eagle2(top_k=1, depth=3, total=5)"),
    ]
    out = ["-o", tmp_path / "out", "--turns", "step"]
    assert simkit(["fidelity", *trace, *models, *numbers, *tested, *out]) == 1  # too few prompts
    said = capsys.readouterr().out
    assert "live steps are the replayed ones in 6 of 6 sequences" in said
    assert "the processor's" in said
    assert simkit(["fidelity", *trace, "--from", tmp_path / "out"]) == 1
    again = capsys.readouterr().out
    assert again == said
    draft = Passes.of(read(tmp_path / "out" / "live.parquet")).samples()
    draft = draft.filter((pc.field("component") == "draft") & (pc.field("context_len") > 0))
    assert len(np.unique(draft["tokens_in"].to_numpy())) >= 5
    other = [*trace, "--target", root / "target", "--draft", root / "eagle3", *tested, *numbers]
    assert simkit(["fidelity", *other, "--device", "cpu", "-o", tmp_path / "other"]) == 2
    assert "the trace's drafter is another" in capsys.readouterr().err


def test_a_ladder_is_no_policy():
    from simkit.errors import ReplayError

    with pytest.raises(ReplayError, match="not replayed"):
        TreeLadder().outcomes(None)  # pyright: ignore
