"""Training on traces whose states give the answer away, and the figures that it reports."""

import json

import heads_traces
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simkit.drafters.path import PathLayout
from simkit.errors import HeadError
from simkit.heads import examples, files, metrics, run, states, training
from simkit.heads.training import Settings

FEW = Settings(epochs=25, starts=0, noise=0.1, learning_rate=1e-2)


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    return heads_traces.revealing(tmp_path_factory.mktemp("heads") / "trace")


@pytest.mark.parametrize(
    "kind, options",
    [
        ("pacer", {"max_depth": 6}),
        ("pacer", {"max_depth": 6, "attention": "local-draft", "position_embedding": False}),
        ("acceptance", {}),
        ("specdecpp", {}),
    ],
)
def test_a_head_learns_what_its_states_reveal(trace, kind, options):
    head = run.train(kind, trace, options, FEW)
    found = head.facts["metrics"]["signals"]
    assert found["head"]["auc"] > 0.95
    assert found["head"]["auc"] > found["depth"]["auc"]
    assert head.facts["trained_on"]["trace"] == trace.hash
    assert (
        sum(b["tokens"] for b in head.facts["metrics"]["reliability"])
        == (head.facts["metrics"]["tokens"])
    )


def test_the_same_seed_gives_the_same_files(trace, tmp_path):
    for name in ("a", "b"):
        head = run.train("acceptance", trace, {"layers": 1}, Settings(epochs=1))
        files.save(head, tmp_path / f"{name}.safetensors")
    for suffix in (".safetensors", ".json"):
        a, b = ((tmp_path / f"{name}{suffix}").read_bytes() for name in "ab")
        assert a == b
    kept = files.load(tmp_path / "a.safetensors")
    assert (kept.kind, kept.width, kept.options) == ("acceptance", 16, head.options)
    assert kept.hash == head.hash and kept.facts == json.loads(json.dumps(head.facts))


def test_prompts_are_dealt_once():
    parts = training.split(37, Settings(seed=5))
    assert (sum(part.astype(int) for part in parts) == 1).all()
    assert [part.sum() for part in parts] == [24, 6, 7]


def test_a_lagged_row_is_judged_from_the_state_that_its_token_entered(trace):
    """Accepted: the next row on the path. Rejected: the first row of its branch."""
    layout, found = PathLayout(trace), states.read(trace)
    every = np.ones(trace.n_sequences, bool)
    rows, judged = examples.on_path("specdecpp", {"lag": 1}, layout, found, every)
    accepted = trace.positions("accepted")
    sequence = trace.positions("sequence")
    expected = []
    for row in range(trace.n_positions):
        if accepted[row] and row + 1 < len(sequence) and sequence[row + 1] == sequence[row]:
            expected.append((row, found.path[row + 1]))
        elif not accepted[row] and layout.branch[row + 1] > layout.branch[row]:
            expected.append((row, found.branches[layout.branch[row]]))
    assert judged.tolist() == [row for row, _ in expected]
    assert np.array_equal(rows.state, np.array([state for _, state in expected]))
    assert np.array_equal(rows.label, accepted[judged].astype(np.float32))


@pytest.mark.parametrize("lag", [0, 1])
def test_mixed_rows_are_trained_on(tmp_path, lag):
    trace = heads_traces.recorded(tmp_path / "trace", mix=0.5)
    wanted = np.arange(trace.n_sequences) < 4
    rows = examples.off_path("specdecpp", {"lag": lag}, trace, states.read(trace), wanted)
    columns = {
        name: trace.column("mixed", name)
        for name in ("sequence", "position", "token", "draft_token", "accepted", "state")
    }
    expected = []
    for row in np.flatnonzero(columns["sequence"] < 4).tolist():
        if not lag:
            expected.append((columns["accepted"][row], columns["state"][row]))
        elif columns["position"][row] > 1:
            before = row - 1
            if columns["token"][before] == columns["draft_token"][before]:
                expected.append((columns["accepted"][before], columns["state"][row]))
    assert rows.label.tolist() == [float(label) for label, _ in expected]
    assert np.array_equal(rows.state, np.array([state for _, state in expected]))


def test_branches_that_the_target_saw_are_trained_on(tmp_path):
    trace = heads_traces.recorded(tmp_path / "trace", branch_target=True)
    every = np.ones(trace.n_sequences, bool)
    rows = examples.off_path("acceptance", {}, trace, states.read(trace), every)
    assert np.array_equal(rows.label, trace.branches("accept_prob"))


@given(st.lists(st.tuples(st.booleans(), st.floats(0, 1)), min_size=1, max_size=60))
def test_calibration_error_is_between_the_whole_and_each_token(pairs):
    """At least |mean prediction - mean outcome|, at most the mean |prediction - outcome|."""
    accepted = np.array([a for a, _ in pairs])
    probability = np.array([p for _, p in pairs])
    ece = metrics.quality(accepted, probability)["ece"]
    assert ece >= abs(probability.mean() - accepted.mean()) - 1e-9
    assert ece <= np.abs(probability - accepted).mean() + 1e-9


def test_figures_of_known_scores():
    """By hand: AUC 3 of 4 pairs; log loss (-ln .9 - ln .4 - ln .6 - ln .8) / 4."""
    accepted = np.array([True, True, False, False])
    score = np.array([0.9, 0.4, 0.4 + 1e-9, 0.2])
    found = metrics.quality(accepted, score)
    assert found["auc"] == 0.75
    expected = -np.log([0.9, 0.4, 0.6, 0.8]).mean()
    assert found["log_loss"] == pytest.approx(expected, abs=1e-6)
    falling = metrics.fit(-score, accepted)
    assert (np.diff(falling(-score)) <= 0).all()


@pytest.mark.parametrize(
    "kind, options, settings, message",
    [
        ("medusa", {}, {}, "unknown head 'medusa'"),
        ("acceptance", {"lag": 1}, {}, "the acceptance head has no option lag"),
        ("acceptance", {"layers": 0}, {}, "layers must be from 1 to 64"),
        ("specdecpp", {"lag": 2}, {}, "lag must be from 0 to 1"),
        ("specdecpp", {"reject_weight": 0.0}, {}, "reject_weight must be > 0"),
        ("pacer", {"attention": "sparse"}, {}, "attention must be one of full"),
        ("acceptance", {}, {"device": "cuda:99"}, "device 'cuda:99' cannot be used"),
        ("pacer", {}, {"starts": -1}, "starts must be >= 0"),
        ("pacer", {}, {"noise": float("nan")}, "noise must be >= 0"),
        ("acceptance", {}, {"epochs": 0}, "epochs must be at least 1"),
        ("acceptance", {}, {"learning_rate": float("nan")}, "learning_rate must be > 0"),
        ("acceptance", {}, {"learning_rate": 1e30}, "lower --learning-rate"),
    ],
)
def test_what_cannot_be_trained_is_refused(trace, kind, options, settings, message):
    with pytest.raises(HeadError, match=message):
        run.train(kind, trace, options, Settings(**settings))


def test_too_few_prompts(tmp_path):
    trace = heads_traces.revealing(tmp_path / "trace", n=4)
    with pytest.raises(HeadError, match="4 prompts are too few"):
        run.train("acceptance", trace, {}, Settings())
