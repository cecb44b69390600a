"""Sampled verification of trees by enumeration: outputs are the target's, steps have their law.

Deterministic children: a replay draws y from p and follows the child that equals it; the textbook
rejects child after child, each certain of itself. Children sampled without replacement: rounds that
go on until one accepts serve every number of children; `plain_rounds` has the laws.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from fractions import Fraction
from functools import cache

import numpy as np
import plain_trees
import pytest
from plain_rounds import (
    Rounds,
    at_most,
    gathered,
    given_output,
    left,
    norm,
    races,
    recursive_rejection,
    round_given_output,
    standard,
    unbounded,
)
from plain_trees import PLAIN, Start, Study, Toy

from simkit import policies
from simkit.drafters import layout_of
from simkit.policies import Setting
from simkit.steps.tree import FAMILY as TREES
from simkit.trees import TreePolicy
from traces.sampler import Sampler

FIRST = {"draft": 1, "prefill": 2}


def fractions(rng: np.random.Generator, vocab: int, holes: float = 0.0) -> tuple[Fraction, ...]:
    """A random distribution in small fractions, some chances of which may be 0."""
    weights = rng.integers(1, 9, vocab) * (rng.random(vocab) >= holes)
    weights[rng.integers(vocab)] += 1
    return norm(Fraction(int(weight)) for weight in weights)


def certain(vocab: int, token: int) -> tuple[Fraction, ...]:
    return tuple(Fraction(int(k == token)) for k in range(vocab))


def one_by_one(p: tuple[Fraction, ...], children: tuple[int, ...]) -> dict:
    """The law of (accepted child's number, y), each child proposed by a point mass."""

    def go(p, number, reached):
        if number > len(children):
            yield from (((None, y), reached * chance) for y, chance in enumerate(p))
            return
        token = children[number - 1]
        keep = p[token]
        yield (number, token), reached * keep
        if keep < 1:
            yield from go(left(p, certain(len(p), token)), number + 1, reached * (1 - keep))

    return gathered(go(p, 1, Fraction(1)))


@pytest.mark.parametrize("vocab", [3, 4])
def test_following_the_child_that_y_equals_is_rejecting_child_after_child(vocab):
    rng = np.random.default_rng(1)
    for _ in range(20):
        p = fractions(rng, vocab, holes=0.3)
        for b in range(vocab + 1):
            for children in itertools.permutations(range(vocab), b):
                follow = gathered(
                    ((children.index(y) + 1 if y in children else None, y), chance)
                    for y, chance in enumerate(p)
                )
                assert one_by_one(p, children) == follow


# Whole outputs, with trees of deterministic children.


class Pair:
    """A target beside a made-up draft, on few tokens."""

    def __init__(self, vocab: int, t_max: int, seed: int) -> None:
        self.toy = Toy(seed, vocab=vocab, kind="few", eos=(0,))
        self.vocab, self.t_max, self.seed = vocab, t_max, seed

    @cache  # noqa: B019
    def p(self, prefix: tuple[int, ...]) -> tuple[Fraction, ...]:
        return fractions(np.random.default_rng([self.seed, *prefix]), self.vocab)

    def is_whole(self, output: tuple[int, ...]) -> bool:
        return len(output) == self.t_max or (bool(output) and output[-1] in self.toy.eos)

    def outputs(self, output=(), weight=Fraction(1)):  # noqa: B008
        if self.is_whole(output):
            yield output, weight
            return
        for token, chance in enumerate(self.p(output)):
            yield from self.outputs((*output, token), weight * chance)


def textbook(pair: Pair, draft, first_token: str) -> dict:
    """The law of (output, steps) of tree decoding that rejects children one by one."""
    law: defaultdict = defaultdict(Fraction)

    def verify(known, i, done, node, weight):
        """Yield (output, accepted, chance) as the tree below an accepted node is gone through."""
        if node and known[-1] in pair.toy.eos:
            yield known, len(node), weight
            return
        start = Start(pair.toy, known, i, pair.t_max - i)
        for path in (node[:k] for k in range(len(node))):
            start.children(path, pair.vocab)
        below = [c for c in start.children(node, pair.vocab) if c in done.verified]
        children = [(child, start.token(child)) for child in below]
        tokens = tuple(token for _, token in children)
        for (number, y), chance in one_by_one(pair.p(known), tokens).items():
            if number is None:
                yield (*known, y), len(node), weight * chance
            else:
                child = children[number - 1][0]
                yield from verify((*known, y), i, done, child, weight * chance)

    def go(known, steps, weight):
        if pair.is_whole(known):
            law[known, steps] += weight
            return
        i = len(known) + 1
        done = draft(Start(pair.toy, known, i, pair.t_max - i))
        for output, accepted, chance in verify(known, i, done, (), weight):
            step = i, done.drafted, len(done.verified), accepted
            go(output, (*steps, step), chance)

    opening = [((), Fraction(1))]
    if first_token == "prefill":
        opening = [((y,), chance) for y, chance in enumerate(pair.p(()))]
    for known, weight in opening:
        go(known, (), weight)
    return dict(law)


SPECS = [
    "eagle2(top_k=2, depth=1, total=4)",
    "eagle2(top_k=3, depth=2, total=7)",
    "static([[0], [1], [0, 0], [1, 0], [0, 0, 0]])",
    "static([[1], [2], [1, 1], [1, 2], [2, 0], [1, 1, 0]])",
    "best_first(5, least=0.05, top_k=2, depth=3)",
    "sequoia(4)",
    "sequoia(5, by=ranks)",
]
SHAPES = ("eagle2(top_k=2, depth=1)", "eagle2(top_k=3, depth=2)", SPECS[4])
PAIRS = {"three tokens": Pair(3, 4, 11), "four tokens": Pair(4, 3, 5)}


@cache
def recorded(name: str):
    """Every output once, with the trees behind all of its starts."""
    pair = PAIRS[name]
    outputs, weights = zip(*pair.outputs(), strict=True)
    study = Study(pair.toy, outputs, pair.t_max, SHAPES, 3, 3)
    known = [policies.parse(spec) for spec in SHAPES]
    trace = plain_trees.record(study, known, sampler=Sampler(temperature=1.0), coupling="target")
    return study, layout_of(trace), weights


@pytest.mark.parametrize("first_token", FIRST)
@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("name", PAIRS)
def test_joint_law_of_output_and_steps(name, spec, first_token):
    study, layout, weights = recorded(name)
    first = FIRST[first_token]
    policy = policies.parse(spec).bind(Setting(layout, None, first))
    assert isinstance(policy, TreePolicy)
    steps = TREES.walk(policy, layout, first)
    counts = steps.start, steps.drafted, steps.proposed, steps.accepted
    rows = list(zip(*(c.tolist() for c in counts), strict=True))
    got: defaultdict = defaultdict(Fraction)
    for s, (output, weight) in enumerate(zip(study.outputs, weights, strict=True)):
        got[output, tuple(rows[steps.offsets[s] : steps.offsets[s + 1]])] += weight
    draft = PLAIN[policy.name](policies.parse(spec), study)
    assert dict(got) == textbook(PAIRS[name], draft, first_token)
    assert sum(got.values()) == 1
    assert len({accepted for _, mine in got for *_, accepted in mine}) > 1


# Children sampled without replacement.


def pairs(seed: int, count: int):
    """Yield target and draft on three or four tokens, some with tokens that cannot be."""
    rng = np.random.default_rng(seed)
    for k in range(count):
        vocab = 3 + k % 2
        yield fractions(rng, vocab, 0.2), fractions(rng, vocab, 0.2)
    same = fractions(rng, 4)
    yield same, same
    yield certain(3, 1), certain(3, 2)
    yield certain(3, 1), fractions(rng, 3)


def test_an_exponential_race_samples_without_replacement():
    q = norm(Fraction(w) for w in (5, 1, 3))
    race = np.random.default_rng(2).exponential(size=(200_000, 3)) / np.array(q, float)
    order, seen = np.unique(race.argsort(axis=1), axis=0, return_counts=True)
    law = dict(races(q, 3))
    assert sum(law.values()) == 1 and len(law) == 6
    for tokens, n in zip(order.tolist(), seen.tolist(), strict=True):
        chance = float(law[tuple(tokens)])
        assert abs(n / 200_000 - chance) < 5 * (chance * (1 - chance) / 200_000) ** 0.5


def test_the_output_is_the_targets_for_every_number_of_children():
    for p, q in pairs(3, 40):
        for b in range(len(p) + 1):
            law = standard(p, q, b)
            assert gathered((found.token, chance) for found, chance in law.items()) == gathered(
                enumerate(p)
            )


def test_a_rejected_child_never_comes_out():
    """So a node holds y iff a round of its own accepted."""
    for p, q in pairs(4, 40):
        for found in unbounded(p, q):
            if found.round is None:
                assert found.token not in found.children
            else:
                assert found.children.index(found.token) == found.round - 1


def test_one_record_of_the_round_serves_every_number_of_children():
    """Jointly in law: what b children make of unbounded rounds is what a decoder of b has."""
    for p, q in pairs(5, 40):
        whole = unbounded(p, q)
        for b in range(len(p) + 1):
            assert at_most(whole, b) == standard(p, q, b)


def test_rounds_can_be_drawn_once_the_output_is_known():
    for p, q in pairs(6, 40):
        drawn = gathered(
            (Rounds(children, number, y), of_p * chance)
            for y, of_p in enumerate(p)
            if of_p
            for (children, number), chance in given_output(p, q, y).items()
        )
        assert drawn == unbounded(p, q)


def test_one_child_is_plain_speculative_sampling():
    for p, q in pairs(7, 20):
        for (token,), chance in races(q, 1):
            law = recursive_rejection(p, q, (token,))
            keep = min(Fraction(1), p[token] / q[token])
            assert law.get((1, token), 0) == keep and chance == q[token]


def test_rounds_depend_on_the_rejected_children():
    """A shortcut that would be wrong: p and q of each round as if nothing had been taken."""
    p, q = (norm(map(Fraction, weights)) for weights in ((6, 1, 1, 1), (1, 3, 3, 1)))
    law = standard(p, q, 2)
    second = gathered((found.children, chance) for found, chance in law.items() if found.round == 2)
    assert len(second) > 1
    naive = Fraction(0)
    for first, chance in enumerate(q):
        missed = chance * (1 - min(Fraction(1), p[first] / q[first]))
        rest = left(p, q)
        naive += missed * sum(min(a, b) for a, b in zip(rest, q, strict=True))
    assert sum(second.values()) != naive


TREE = {(): 2, (0,): 2, (1,): 1, (0, 0): 1}
"""How many children the nodes of a fixed tree have, by rank path; others have none."""


def test_whole_steps_with_sampled_children():
    """The law of (output, accepted nodes of each step), from rounds recorded along the output."""
    pair = Pair(3, 4, 9)
    drafts = Pair(3, 4, 10)

    def decoder(known, steps, weight):
        if pair.is_whole(known):
            yield (known, steps), weight
            return
        for output, accepted, chance in step(known, (), pair.t_max - 1 - len(known)):
            yield from decoder(output, (*steps, accepted), weight * chance)

    def step(known, node, room):
        children = TREE.get(node, 0) if room else 0
        ended = bool(node) and known[-1] in pair.toy.eos
        if ended:
            yield known, len(node), Fraction(1)
            return
        for found, chance in standard(pair.p(known), drafts.p(known), children).items():
            if found.round is None:
                yield (*known, found.token), len(node), chance
                continue
            below = (*node, found.round - 1)
            for output, accepted, c in step((*known, found.token), below, room - 1):
                yield output, accepted, chance * c

    def replays(output, weight):
        rounds = [
            round_given_output(pair.p(output[:k]), drafts.p(output[:k]), y)
            for k, y in enumerate(output)
        ]
        for chosen in itertools.product(*(law.items() for law in rounds)):
            chance = weight
            for _, c in chosen:
                chance *= c
            steps, i = (), 0
            while i < len(output):
                node = ()
                while i + len(node) < min(len(output), pair.t_max - 1):
                    number = chosen[i + len(node)][0]
                    if number is None or number > TREE.get(node, 0):
                        break
                    node = (*node, number - 1)
                steps, i = (*steps, len(node)), i + len(node) + 1
            yield (output, steps), chance

    expected = gathered(decoder((), (), Fraction(1)))
    got = gathered(found for output, weight in pair.outputs() for found in replays(output, weight))
    assert got == expected and sum(got.values()) == 1
    assert max(accepted for _, steps in got for accepted in steps) == 3
