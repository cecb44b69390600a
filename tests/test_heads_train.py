"""Training on traces whose states give the answer away, and the figures that it reports."""

import json
import math

import heads_traces
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from simkit.drafters.path import PathLayout
from simkit.errors import HeadError
from simkit.heads import evaluate, files, metrics, registry, rows, run, states, training
from simkit.heads.drafts import drafts
from simkit.heads.training import TrainingSettings
from simkit.heads.training_data import RecordedRows
from traces.memory import from_arrays

FEW = TrainingSettings(epochs=25, starts=0, noise=0.1, learning_rate=1e-2)


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    return heads_traces.revealing(tmp_path_factory.mktemp("heads") / "trace")


@pytest.mark.parametrize(
    "kind, options",
    [
        ("pacer", {"max_depth": 6}),
        ("pacer", {"max_depth": 6, "attention": "local-draft", "position_embedding": False}),
        ("acceptance", {"variant": "proposed"}),
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
        head = run.train("acceptance", trace, {"layers": 1}, TrainingSettings(epochs=1))
        files.save(head, tmp_path / f"{name}.safetensors")
    for suffix in (".safetensors", ".json"):
        a, b = ((tmp_path / f"{name}{suffix}").read_bytes() for name in "ab")
        assert a == b
    kept = files.load(tmp_path / "a.safetensors")
    assert (kept.kind, kept.width, kept.options) == ("acceptance", 16, head.options)
    assert kept.hash == head.hash and kept.facts == json.loads(json.dumps(head.facts))


def test_drafts_that_were_recorded_less_deep_are_refused(tmp_path):
    """Deeper than Γ only tokens behind accepted ones are there: at depth 4 here all of them."""
    trace = heads_traces.revealing(tmp_path / "trace", max_draft=2)
    layout = PathLayout(trace)
    deep = 4 <= trace.max_new_tokens - layout.position
    there = np.array([row >= 4 for row in _lengths(trace)]) & deep
    assert layout.ahead[there].min() >= 2 and (layout.ahead[deep] < 2).any()
    with pytest.raises(HeadError, match="up to 2 deep, .* give --max-depth 2, or record with"):
        run.train("pacer", trace, {"max_depth": 4}, FEW)
    head = run.train("pacer", trace, {"max_depth": 2}, TrainingSettings(epochs=1))
    options = head.options | {"max_depth": 4}
    longer = files.Head("pacer", head.width, options, files.build("pacer", head.width, options))
    assert run.train("pacer", trace, {}, TrainingSettings(epochs=1)).options["max_depth"] == 2
    with pytest.raises(HeadError, match="max_depth 4"):
        evaluate.judge(longer, RecordedRows(layout, states.read(trace)), np.ones(30, bool))


def _lengths(trace):
    layout, found = PathLayout(trace), states.read(trace)
    parts = (drafts(layout, found, s, 24).length for s in range(trace.n_sequences))
    return np.concatenate(list(parts))


def test_no_state_behind_rejected_tokens_is_refused(tmp_path):
    """A draft of one token at most reads none: of the judged tokens all would be accepted."""
    trace = heads_traces.recorded(tmp_path / "trace", max_draft=1)
    with pytest.raises(HeadError, match="record with --max-draft 2 or more, or give --lag 0"):
        run.train("acceptance", trace, {}, FEW)
    found = run.train("acceptance", trace, {"lag": 0}, TrainingSettings(epochs=1))
    assert 0 < found.facts["metrics"]["accepted"] < 1


def with_prompts(rows):
    sequences = {"prompt_tokens": rows, "n_output": [1] * len(rows)}
    return from_arrays(sequences, {}, {}, max_draft=1, max_new_tokens=1)


def test_prompts_are_dealt_once():
    parts = training.split(with_prompts([[k] for k in range(37)]), TrainingSettings(seed=5))
    assert (sum(part.astype(int) for part in parts) == 1).all()
    assert [part.sum() for part in parts] == [24, 6, 7]


def test_a_prompt_that_was_recorded_again_is_not_held_out_from_itself():
    once, thrice = (with_prompts([[k, 7] for k in range(10)] * n) for n in (1, 3))
    for one, parts in zip(
        *(training.split(t, TrainingSettings()) for t in (once, thrice)), strict=True
    ):
        assert parts.tolist() == one.tolist() * 3
    with pytest.raises(HeadError, match="too few different prompts to train on: 4; at least 5"):
        training.split(with_prompts([[k, 7] for k in range(4)] * 5), TrainingSettings())


def test_a_lagged_row_is_judged_from_the_state_that_its_token_entered(trace):
    """Accepted: the next row on the path. Rejected: the first row of its branch."""
    layout, found = PathLayout(trace), states.read(trace)
    every = np.ones(trace.n_sequences, bool)
    rows, judged = RecordedRows(layout, found).on_path("specdecpp", {"lag": 1}, every)
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
    """With a lag: the draft's own tokens of the text, by the state that has consumed each."""
    trace = heads_traces.recorded(tmp_path / "trace", mix=0.5)
    layout, found = PathLayout(trace), states.read(trace)
    wanted = np.arange(trace.n_sequences) < 4
    rows = RecordedRows(layout, found).on_mixed("specdecpp", {"lag": lag}, wanted)
    names = ("sequence", "position", "token", "from_draft", "accepted", "state")
    columns = {name: trace.column("mixed", name) for name in names}
    expected = []
    for row in np.flatnonzero(columns["sequence"] < 4).tolist():
        if not lag:
            expected.append((columns["accepted"][row], columns["state"][row]))
        elif columns["position"][row] > 1 and columns["from_draft"][row - 1]:
            assert columns["token"][row - 1] == trace.positions("draft_token")[row - 1]
            expected.append((trace.positions("accepted")[row - 1], columns["state"][row]))
    assert rows.label.tolist() == [float(label) for label, _ in expected]
    assert np.array_equal(rows.state, np.array([state for _, state in expected]))
    assert 20 < len(expected) and {0.0, 1.0} <= set(rows.label.tolist())


@pytest.mark.parametrize("kind", ["acceptance", "specdecpp"])
@pytest.mark.parametrize("mix", [0, 0.5])
def test_what_a_lagging_head_trains_on(tmp_path, kind, mix):
    """The acceptance head, as in its paper: mixed texts alone, where there are any."""
    trace = heads_traces.recorded(tmp_path / "trace", mix=mix)
    rows = RecordedRows(PathLayout(trace), states.read(trace))
    given = kind, {"lag": 1}, np.ones(trace.n_sequences, bool)
    path, _ = rows.on_path(*given)
    mixed, found = rows.on_mixed(*given), rows.to_train_on(*given)
    alone = kind == "acceptance" and mix > 0
    expected = mixed if alone else path + mixed
    assert np.array_equal(found.state, expected.state)
    assert np.array_equal(found.label, expected.label)
    assert (len(mixed.label) > 0) == (mix > 0)


def test_branches_that_the_target_saw_are_trained_on(tmp_path):
    trace = heads_traces.recorded(tmp_path / "trace", branch_target=True)
    every = np.ones(trace.n_sequences, bool)
    recorded = RecordedRows(PathLayout(trace), states.read(trace))
    rows = recorded.to_train_on("acceptance", {"lag": 0}, every)
    expected = np.concatenate([trace.positions("accept_prob"), trace.branches("accept_prob")])
    assert np.array_equal(rows.label, expected)


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
        ("medusa", {}, {}, "unknown kind of head 'medusa'"),
        ("acceptance", {"block": 1}, {}, "the acceptance head has no option block"),
        ("acceptance", {"variant": "odd"}, {}, "variant must be one of paper, code, proposed"),
        ("acceptance", {"layers": 0}, {}, "layers must be from 1 to 64"),
        ("specdecpp", {"lag": 2}, {}, "lag must be from 0 to 1"),
        ("specdecpp", {"reject_weight": 0.0}, {}, "reject_weight must be > 0"),
        ("pacer", {"attention": "sparse"}, {}, "attention must be one of full"),
        ("acceptance", {}, {"device": "cuda:99"}, "device 'cuda:99' cannot be used"),
        ("pacer", {}, {"starts": -1}, "starts must be >= 0"),
        ("pacer", {}, {"noise": float("nan")}, "noise must be >= 0"),
        ("pacer", {}, {"noise": 10**400}, "noise must be >= 0"),
        ("acceptance", {}, {"epochs": 0}, "epochs must be at least 1"),
        ("acceptance", {}, {"learning_rate": float("nan")}, "learning_rate must be > 0"),
        ("acceptance", {}, {"learning_rate": 10**400}, "learning_rate must be > 0"),
        ("acceptance", {}, {"learning_rate": 1e30}, "lower --learning-rate"),
    ],
)
def test_what_cannot_be_trained_is_refused(trace, kind, options, settings, message):
    with pytest.raises(HeadError, match=message):
        run.train(kind, trace, options, TrainingSettings(**settings))


def test_too_few_prompts(tmp_path):
    trace = heads_traces.revealing(tmp_path / "trace", n=4)
    with pytest.raises(HeadError, match="too few different prompts to train on: 4; at least 5"):
        run.train("acceptance", trace, {}, TrainingSettings())


def test_the_variants_of_the_acceptance_head():
    """One layer over the state that has consumed the token; the one before, two over another."""
    kind = registry.get("acceptance")
    common = {"accept_weight": 1.0, "reject_weight": 1.0}
    paper = {"variant": "paper", "layers": 1, "lag": 1} | common
    assert kind.settle({}) == kind.settle({"variant": "paper"}) == paper
    assert kind.settle({"variant": "code"}) == paper | {"variant": "code", "reject_weight": 6.0}
    proposed = {"variant": "proposed", "layers": 2, "lag": 0} | common
    assert kind.settle({"variant": "proposed"}) == proposed
    assert kind.settle({"variant": "proposed", "layers": 3})["layers"] == 3


def test_the_loss_is_over_the_weighted_mass():
    """By hand, -(w_acc P ln s + w_rej (1 - P) ln(1 - s)) over w_acc P + w_rej (1 - P), summed."""
    logits, labels = torch.tensor([0.0, math.log(3)]), torch.tensor([1.0, 0.25])
    expected = (math.log(2) - 0.25 * math.log(0.75) - 6 * 0.75 * math.log(0.25)) / (1.25 + 4.5)
    assert float(rows.loss(logits, labels, 1.0, 6.0)) == pytest.approx(expected, rel=1e-6)
