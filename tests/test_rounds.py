"""Trees of children drawn without replacement: the round of each token, and what is replayed."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import torch
from plain_rounds import round_given_output, unbounded
from scipy import stats

import simkit
import traces
from simkit.errors import ReplayError
from simkit.policies import PolicyError
from traces.attach import registry
from traces.attach.drafter import Means
from traces.attach.run import attach
from traces.errors import DrafterError, TraceError
from traces.record.drafters.rounds import rounds_of
from traces.trace import load
from traces.validate import validate

CASES = [
    ((4, 3, 2, 1), (1, 2, 3, 4)),
    ((1, 1, 1, 7), (7, 1, 1, 1)),
    ((5, 5, 0, 0), (0, 5, 5, 0)),  # the draft may run out of tokens
]
MODELS = "traces/reference/models"


def shares(weights: tuple[int, ...]) -> tuple[Fraction, ...]:
    return tuple(Fraction(w, sum(weights)) for w in weights)


@pytest.mark.parametrize(("p", "q"), CASES)
def test_rounds_given_the_output_have_the_law_of_rejection_without_replacement(p, q):
    p, q = shares(p), shares(q)
    wanted = unbounded(p, q)
    for y in range(4):
        if not p[y]:
            continue
        law = round_given_output(p, q, y)
        for number in (None, 1, 2, 3, 4):
            joint = sum(c for o, c in wanted.items() if (o.round, o.token) == (number, y))
            assert p[y] * law.get(number, 0) == joint


@pytest.mark.parametrize(("p", "q"), CASES)
def test_the_recorded_round_is_drawn_from_that_law(p, q):
    n, generator = 40_000, torch.Generator().manual_seed(5)
    key = torch.randint(-(2**62), 2**62, (n,), generator=generator)
    law_p, law_q = shares(p), shares(q)
    rows = [torch.tensor([float(x) for x in law]).double().expand(n, -1) for law in (law_p, law_q)]
    y = torch.multinomial(rows[0], 1, generator=generator)[:, 0]
    found = rounds_of(*rows, y, key, most=4).numpy()
    for token in range(4):
        if not law_p[token]:
            continue
        law = round_given_output(law_p, law_q, token)
        mine = found[y.numpy() == token]
        counts = np.bincount(mine, minlength=5)
        chances = np.array([float(law.get(k or None, 0)) for k in range(5)])
        assert (counts[chances == 0] == 0).all()
        there = chances > 0
        if there.sum() > 1:
            expected = len(mine) * chances[there] / chances[there].sum()
            assert stats.chisquare(counts[there], expected).pvalue > 1e-4


def test_rounds_of_few_are_those_of_many_that_are_low():
    n = 500
    generator = torch.Generator().manual_seed(0)
    p = torch.rand(n, 7, generator=generator).softmax(1)
    q = (3 * torch.rand(n, 7, generator=generator)).softmax(1)
    y, key = torch.multinomial(p, 1, generator=generator)[:, 0], torch.arange(n)
    many, few = (rounds_of(p, q, y, key, most) for most in (7, 2))
    assert torch.equal(few, torch.where(many > 2, 0, many))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    import shutil

    folder = tmp_path_factory.mktemp("rounds") / "trace"
    shutil.copytree(load("reference-trees-sampled").path, folder)
    means = Means(target=f"{MODELS}/target", device="cpu", max_draft=8)
    attach(load(folder), registry.parse(f'rounds("{MODELS}/draft")'), None,
           Means(target=f"{MODELS}/target", device="cpu"))  # fmt: skip
    attach(load(folder), registry.parse(f'model("{MODELS}/draft")'), "chain", means)
    return folder


def test_the_first_round_is_the_acceptance_of_a_chain(folder):
    rounds, chain = load(folder, "rounds"), load(folder, "chain")
    assert np.array_equal(rounds.column("rounds", "round") == 1, chain.positions("accepted"))
    assert not list(validate(folder))
    lengths = ["fixed(0)", "fixed(1)", "fixed(3)", "fixed(7)"]
    names = ["steps", "drafted", "draft_passes", "proposed", "accepted", "emitted"]
    mine, theirs = (simkit.replay(one, lengths).frame.select(names) for one in (rounds, chain))
    assert mine.equals(theirs)
    tree = simkit.replay(rounds, "static([[0], [0, 0], [0, 0, 0]])").frame.select(names)
    assert tree.equals(mine[2:3])


def test_more_children_hold_more(folder):
    trace = load(folder, "rounds")
    wider = [f"static([{', '.join(f'[{k}]' for k in range(b))}])" for b in (1, 2, 4, 8)]
    accepted = simkit.replay(trace, wider).frame["tokens_per_step"].to_list()
    assert accepted == sorted(accepted) and accepted[0] < accepted[-1]
    round_ = trace.column("rounds", "round")
    first = simkit.replay(trace, wider[2]).steps()
    starts = first["start"].to_numpy() - 1 + trace.position_offsets[first["sequence"].to_numpy()]
    held = (round_[starts] > 0) & (round_[starts] <= 4) & (first["proposed"].to_numpy() > 0)
    assert np.array_equal(first["accepted"].to_numpy() == 1, held)


@pytest.mark.parametrize("by", ["paths", "ranks"])
def test_sequoia_takes_the_first_children(folder, by):
    run = simkit.replay(load(folder, "rounds"), f"sequoia(12, by={by})").runs[0]
    paths = set(run.bound.rank_paths())
    assert len(paths) == 12
    assert all(path[-1] == 0 or (*path[:-1], path[-1] - 1) in paths for path in paths)


@pytest.mark.parametrize(
    ("policy", "error", "words"),
    [
        ("eagle2()", ReplayError, "depends on the tokens that are drawn"),
        ("best_first(8)", ReplayError, "need fixed trees"),
        ("static([[1]])", PolicyError, "in the order of the draws"),
        ("static([[0], [1], [2], [3], [4], [5], [6], [7], [8], [9], [10], [11], [12], [13], [14],"
         " [15], [16]])", ReplayError, "16 children"),
        ("svip(h=0.4)", TraceError, "draft_entropy"),
    ],
)  # fmt: skip
def test_what_cannot_be_replayed(folder, policy, error, words):
    with pytest.raises(error, match=words):
        simkit.replay(load(folder, "rounds"), policy)


def test_what_cannot_be_attached(tmp_path):
    for spec, words in (("most=0", "from 1 to 64"), ("depth=65", "from 1 to 64")):
        with pytest.raises(DrafterError, match=words):
            registry.parse(f'rounds("{MODELS}/draft", {spec})')
    one = registry.parse(f'rounds("{MODELS}/draft")')
    with pytest.raises(DrafterError, match="drafts are greedy here"):
        one.open(traces.load("reference"), Means(target=f"{MODELS}/target"))
    with pytest.raises(DrafterError, match="coupling target"):
        one.open(traces.load("reference-sampled"), Means(target=f"{MODELS}/target"))
