"""Trees under load: alone a request takes what a replay says; in batches passes are shared."""

from __future__ import annotations

import numpy as np
import pytest

import simkit
import traces
from simkit.serving import Engine
from simkit.steps.tree import FAMILY as TREES

ATLAS = "atlas(target=qwen3-8b, draft=qwen3-0.6b)"
SPECS = [
    "eagle2(top_k=4, depth=3, total=16)",
    "eagle2()",
    "sequoia(8)",
    "tree_svip(h=1.2)",
    "best_rate()",
    "tree_prophet()",
]


@pytest.mark.parametrize("drafter", ["eagle-tree", "pard2-tree", "draft-tree"])
@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("first_token", ["draft", "prefill"])
def test_alone_a_request_takes_what_a_replay_says(drafter, spec, first_token):
    trace = traces.load("reference-trees", drafter)
    rows = simkit.replay(trace, spec, ATLAS, by="sequence", first_token=first_token).frame
    how = {"concurrency": 1, "requests": 24, "seeds": 1}
    how["engine"] = Engine(1, catch_up=False)  # as a replay has it
    run = simkit.serve(trace, spec, ATLAS, first_token=first_token, **how).runs[0]
    took = np.diff(np.append(0.0, run.server.done_s))
    wanted = rows["total_s"].to_numpy()[run.server.sequence]
    np.testing.assert_allclose(took, wanted, rtol=1e-9)


def test_in_batches_a_level_is_one_pass_and_outcomes_are_those_of_each_start():
    trace = traces.load("reference-trees", "eagle-tree")
    served = simkit.serve(trace, "eagle2(top_k=3, depth=2, total=9)", ATLAS, concurrency=[1, 8],
                          requests=64, seeds=1)  # fmt: skip
    one, many = served.runs
    for run in (one, many):
        policy = simkit.policies.parse("eagle2(top_k=3, depth=2, total=9)")
        steps = TREES.walk(policy, run.plan.layout, 1)
        mean = np.bincount(steps.sequence, minlength=16)[run.server.sequence].sum()
        assert run.server.steps.sum() == mean
    tokens = [run.output.sum() / (run.server.done_s.max()) for run in (one, many)]
    assert tokens[1] > 3 * tokens[0]


def test_a_fixed_tree_is_named_by_a_policy():
    trace = traces.load("reference-trees", "eagle-tree")
    tree = simkit.policies.parse("static([[0], [1], [0, 0]])")
    found = simkit.serve(trace, tree, ATLAS, concurrency=2, requests=16, seeds=1)
    assert found.runs[0].server.proposed.sum() > 0
