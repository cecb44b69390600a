"""The second coupling has the law of standard speculative decoding, by enumeration.

The output is drawn from p alone; a draft's token is accepted iff u p(y) < q(y), with one u for each
position of the output, whatever the start; a rejected one is drawn from max(0, q - p). Here q
depends on where the draft starts, or is certain. `test_law` has the textbook's side.
"""

import itertools
from collections import defaultdict
from functools import cache

import numpy as np
import pytest
import torch
from replay_traces import SEQUENTIAL
from test_law import (
    FIRST,
    MORE_SPECS,
    Toy,
    agree,
    branches,
    outcomes,
    positions,
    residual,
    textbook_law,
)

from simkit import policies
from simkit.drafters.lattice import LatticeLayout
from simkit.policies import Setting
from simkit.steps import compiled
from traces.memory import from_drafts
from traces.record import draws
from traces.record.statistics import LogitRows, outcome_given, target_token


class ByStart(Toy):
    """q depends on where the draft starts, as a parallel drafter's does."""

    def raw(self, prefix, start):
        weights = self.tables[prefix][1]
        return np.roll(weights, start) if len(prefix) > start else weights

    def q(self, prefix, start=0):
        return self.processed(self.raw(prefix, start))

    def features(self, prefix, token, start=0):
        raw = self.raw(prefix, start)
        values = super().features(prefix, token, start)
        return values | {
            "draft_prob": np.float32(self.q(prefix, start)[token]),
            "draft_prob_raw": np.float32(raw[token]),
        }


class Certain(ByStart):
    """A proposal from tokens: one token, sure of itself, which depends on the start too."""

    def q(self, prefix, start=0):
        return np.eye(self.vocab_size)[self.raw(prefix, start).argmax()]


def texts(toy):
    """Yield (output, probability)."""

    def go(output, weight):
        if toy.is_whole(output):
            yield output, weight
            return
        for token, chance in outcomes(toy.p(output)):
            yield from go(output + (token,), weight * chance)

    return go((), 1.0)


def recordings(toy):
    """Yield (output, drafts from each start as (tokens, accepted), probability)."""
    for output, weight in texts(toy):
        n = len(output)
        for flags, chance in verdicts(toy, output):
            parts = [list(drafts(toy, output, s, flags[s])) for s in range(n)]
            for chosen in itertools.product(*parts):
                whole = np.prod([c for _, c in chosen])
                yield output, [draft for draft, _ in chosen], weight * chance * whole


def verdicts(toy, output):
    """Yield ({start: what u says of each of its positions}, probability): one u a position."""
    per_position = []
    for k, token in enumerate(output):
        p = toy.p(output[:k])[token]
        keeps = {s: min(1.0, toy.q(output[:k], s)[token] / p) for s in range(k + 1)}
        cuts = sorted({0.0, 1.0, *keeps.values()})
        spans = zip(cuts[:-1], cuts[1:], strict=True)
        found = [
            ({s: high <= keep for s, keep in keeps.items()}, high - low) for low, high in spans
        ]
        per_position.append(found)
    for chosen in itertools.product(*per_position):
        flags = {s: [chosen[k][0][s] for k in range(s, len(output))] for s in range(len(output))}
        yield flags, np.prod([c for _, c in chosen])


def drafts(toy, output, start, flags):
    """Yield ((tokens, accepted), probability) of the draft behind `start` tokens."""
    room = toy.t_max - start - 1

    def behind(prefix, left):
        if left == 0:
            yield (), 1.0
            return
        for token, chance in outcomes(toy.q(prefix, start)):
            if toy.ends(token):
                yield (token,), chance
                continue
            for rest, c in behind(prefix + (token,), left - 1):
                yield (token, *rest), chance * c

    kept = 0
    while kept < min(room, len(output) - start) and flags[kept]:
        kept += 1
    tokens = output[start : start + kept]
    if kept == room or start + kept == len(output) or kept and toy.ends(tokens[-1]):
        yield (tokens, (True,) * kept), 1.0
        return
    prefix = output[: start + kept]
    rest = np.maximum(toy.q(prefix, start) - toy.p(prefix), 0)
    for wrong, chance in outcomes(rest / rest.sum()):
        ended = [((), 1.0)] if toy.ends(wrong) else behind(prefix + (wrong,), room - kept - 1)
        for more, c in ended:
            drafted = (*tokens, wrong, *more)
            yield (drafted, (True,) * kept + (False,) * (1 + len(more))), chance * c


@cache
def recorded(toy, make=recordings):
    """One lattice that holds every recording as a sequence, and their probabilities."""
    rows, outputs, weights = [], [], []
    for sequence, (output, drafted, weight) in enumerate(make(toy)):
        for start, (tokens, accepted) in enumerate(drafted):
            for d, (token, fine) in enumerate(zip(tokens, accepted, strict=True)):
                prefix = output[:start] + tokens[:d]
                row = {"sequence": sequence, "start": start + 1, "depth": d + 1}
                values = toy.features(prefix, token, start)
                values = {k: v for k, v in values.items() if not k.startswith("score:")}
                rows.append(row | {"accepted": fine, "draft_token": token} | values)
        outputs.append(list(output))
        weights.append(weight)
    trace = from_drafts(
        {
            "n_output": [len(output) for output in outputs],
            "output_tokens": outputs,
            "finish_reason": ["length"] * len(outputs),
        },
        {name: np.array([row[name] for row in rows]) for name in rows[0]},
        max_draft=toy.t_max,
        max_new_tokens=toy.t_max,
        eos_token_ids=(0,) if toy.has_eos else (),
        sampler=toy.sampler,
    )
    return trace, LatticeLayout(trace), np.array(weights)


def replay_law(toy, policy, first_token, engine, make=recordings):
    trace, layout, weights = recorded(toy, make)
    steps = engine.walk(policy, layout, FIRST[first_token])
    rows = list(
        zip(steps.start.tolist(), steps.drafted.tolist(), steps.accepted.tolist(), strict=True)
    )
    law = defaultdict(float)
    outputs = trace.sequences["output_tokens"].to_pylist()
    for s, (output, weight) in enumerate(zip(outputs, weights, strict=True)):
        law[tuple(output), tuple(rows[steps.offsets[s] : steps.offsets[s + 1]])] += weight
    return law


TOYS = {
    "by start": ByStart(2, 4, has_eos=False),
    "by start, EOS": ByStart(2, 4, has_eos=True),
    "three tokens, by start": ByStart(3, 3, has_eos=True),
    "certain": Certain(2, 4, has_eos=True),
    "three tokens, certain": Certain(3, 4, has_eos=True),
}


@pytest.mark.parametrize("toy", TOYS)
@pytest.mark.parametrize("spec", [*SEQUENTIAL, *MORE_SPECS])
def test_joint_law(toy, spec):
    toy = TOYS[toy]
    policy = policies.parse(spec)
    try:
        read = policy.columns(toy.sampler)
        policy = policy.bind(Setting(recorded(toy)[1], None, 1))
    except policies.PolicyError:
        pytest.skip("the rule does not hold under this sampler, or is fitted to a trace")
    if any(name.startswith("score:") for name in read):
        pytest.skip("heads score rows of a path")
    for first_token in FIRST:
        agree(toy, policy, first_token, replay_law)


def test_the_enumeration_is_whole():
    for toy in TOYS.values():
        assert recorded(toy)[2].sum() == pytest.approx(1, abs=1e-12)


def test_a_path_has_the_same_rows_under_both_couplings():
    """The joint law of (draft token, accepted, output token, branch) at a position."""
    toy = Toy(3, 4, has_eos=True)
    for prefix in ((), (1,), (2, 1)):
        first, second = defaultdict(float), defaultdict(float)
        for row, chance in positions(toy, prefix):
            first[row] += chance
        p, q = toy.p(prefix), toy.q(prefix)
        for y, of_p in outcomes(p):
            keep = min(1.0, q[y] / p[y])
            second[y, True, y, ()] += of_p * keep
            for k, chance in outcomes(residual(q, p)) if keep < 1 else ():
                room = 0 if toy.ends(k) else max(0, toy.t_max - 2 - len(prefix))
                for branch, c in branches(toy, prefix + (k,), room):
                    second[k, False, y, branch] += of_p * (1 - keep) * chance * c
        assert first.keys() == second.keys()
        assert max(abs(first[k] - second[k]) for k in first) < 1e-15


def wrong_recordings(toy):
    """The first coupling with a q that depends on the start: y is made with one start's draft.

    One race and one v a position: every start's token and verdict come from those, but the output
    is what the draft that starts there makes of them.
    """

    def go(output, weight):
        if toy.is_whole(output):
            yield output, weight
            return
        p, q = toy.p(output), toy.q(output, len(output))
        for token, chance in outcomes(q):
            keep = min(1.0, p[token] / q[token])
            if keep > 0:
                yield from go(output + (token,), weight * chance * keep)
            for other, c in outcomes(residual(p, q)) if keep < 1 else ():
                yield from go(output + (other,), weight * chance * (1 - keep) * c)

    for output, weight in go((), 1.0):
        n = len(output)
        parts = [list(naive(toy, output, start)) for start in range(n)]
        for chosen in itertools.product(*parts):
            yield output, [d for d, _ in chosen], weight * np.prod([c for _, c in chosen])


def naive(toy, output, start):
    """A draft of q from `start`, accepted where it happens to equal the output."""
    room = toy.t_max - start - 1

    def grow(prefix, tokens):
        if len(tokens) == room or tokens and toy.ends(tokens[-1]):
            yield tokens, 1.0
            return
        for token, chance in outcomes(toy.q(prefix, start)):
            for more, c in grow(prefix + (token,), (*tokens, token)):
                yield more, chance * c

    for tokens, chance in grow(output[:start], ()):
        same = [a == b for a, b in zip(tokens, output[start:], strict=False)]
        same += [False] * (len(tokens) - len(same))
        yield (tokens, tuple(np.logical_and.accumulate(same).tolist())), chance


def test_a_wrong_coupling_is_told_apart():
    toy = TOYS["by start"]
    policy = policies.parse("fixed(3)")
    expected = textbook_law(toy, policy, "draft")
    got = replay_law(toy, policy, "draft", compiled, wrong_recordings)
    assert recorded(toy, wrong_recordings)[2].sum() == pytest.approx(1, abs=1e-12)
    assert sum(abs(got[k] - expected[k]) for k in expected.keys() | got.keys()) > 0.05


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_keyed_draws_have_that_law(temperature):
    """The recorder's own function, on 200,000 keys: each joint frequency within five errors."""
    n = 200_000
    rng = np.random.default_rng(7)
    p_logits, q_logits = (torch.from_numpy(rng.normal(size=5)).expand(n, -1) for _ in range(2))
    p, q = LogitRows(p_logits, 1.0), LogitRows(q_logits, temperature)
    key = draws.first_key(3, torch.arange(n))
    y = target_token(p, key)
    found = outcome_given(p, q, y, key)
    of_p, of_q = p.processed[0].numpy(), q.processed[0].numpy()
    rest = residual(of_q, of_p)
    for a in range(5):
        keep = min(1.0, of_q[a] / of_p[a])
        for k in range(5):
            for accepted in (True, False):
                chance = of_p[a] * (keep * (k == a) if accepted else (1 - keep) * rest[k])
                seen = (y == a) & (found.draft_token == k) & (found.accepted == accepted)
                error = np.sqrt(chance * (1 - chance) / n)
                assert abs(float(seen.double().mean()) - chance) <= 5 * error + 1e-12
