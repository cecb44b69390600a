"""A replay has the law of standard speculative decoding, by enumeration on toy vocabularies.

The two sides share two tables of next-token distributions, p(.|prefix) and q(.|prefix), and nothing
else. One enumerates the textbook algorithm with independent randomness (draft from q, accept with
min(1, p/q), correct from the residual, a bonus token from p). The other enumerates what a recorder
may draw, makes a trace of every outcome and replays it. Their joint laws of (output, steps) agree.
"""

import itertools
from collections import defaultdict
from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np
import pytest
from replay_traces import ROW_HEADS, SEQUENTIAL, START_HEADS

from simkit import policies
from simkit.drafters.path import PathLayout
from simkit.policies import Outcome, Setting
from simkit.steps import compiled, interpreted
from traces import Sampler
from traces.memory import from_arrays
from traces.scores import RowScores, StartScores, attach

MORE_SPECS = (
    "adaedl(threshold=0.4, rests=true, keep=false, min_draft=1, first_rate=0.9, max_draft=3)",
    "adaedl(threshold=0.5, keep=false)",
    "fixed(1)",
    "fixed(2)",
    "heuristic(initial=1)",
    "heuristic(initial=2, feedback=nominal)",
    "heuristic(initial=2, schedule=heuristic)",
    "svip(h=0.9)",
    "confidence(threshold=0.35)",
)
FIRST = {"draft": 1, "prefill": 2}


@dataclass(frozen=True)
class Toy:
    """Random conditional distributions; token 0 is the EOS if there is one."""

    vocab_size: int
    t_max: int
    has_eos: bool
    greedy: bool = False
    temperature: float = 0.7

    @cached_property
    def tables(self):
        """Raw (p, q) by prefix."""
        rng = np.random.default_rng([self.vocab_size, self.t_max, self.has_eos])
        prefixes = (
            x
            for n in range(self.t_max)
            for x in itertools.product(range(self.vocab_size), repeat=n)
        )
        alpha = [1.0] * self.vocab_size
        return {x: (rng.dirichlet(alpha), rng.dirichlet(alpha)) for x in prefixes}

    @property
    def sampler(self):
        return Sampler(0.0 if self.greedy else self.temperature)

    def processed(self, weights):
        if self.greedy:
            return np.eye(self.vocab_size)[weights.argmax()]
        sharp = weights ** (1 / self.temperature)
        return sharp / sharp.sum()

    def p(self, prefix):
        return self.processed(self.tables[prefix][0])

    def q(self, prefix, start=0):
        """Of a draft that begins behind `start` tokens; the same for all of them here."""
        return self.processed(self.tables[prefix][1])

    def ends(self, token):
        return self.has_eos and token == 0

    def is_whole(self, output):
        return len(output) == self.t_max or bool(output) and self.ends(output[-1])

    def features(self, prefix, token, start=0):
        """The trace's columns of a draft token; heads see its prefix, and where the draft began."""
        raw = self.tables[prefix][1]
        top = np.sort(raw)[::-1]
        values = {
            "draft_prob": self.q(prefix)[token],
            "draft_prob_raw": raw[token],
            "draft_entropy": -(raw * np.log(raw)).sum(),
            "draft_top1_prob": top[0],
            "draft_top2_prob": top[1],
            "draft_top10_mass": top[:10].sum(),
            **{f"score:{head}": np.float16(top[0]) for head in ROW_HEADS},
            **{
                f"score:{head}": np.float16(top[0] * 0.9 ** (len(prefix) - start))
                for head in START_HEADS
            },
        }
        return {name: np.float32(value) for name, value in values.items()}


def residual(p, q):
    rest = np.maximum(p - q, 0)
    return rest / rest.sum()


def outcomes(distribution):
    """(token, probability) of those that can come."""
    return [(k, float(w)) for k, w in enumerate(distribution) if w > 0]


# --- standard speculative decoding, independent randomness --------------------------------------


def textbook_law(toy, policy, first_token):
    """The joint law {(output, steps): probability}."""
    law = defaultdict(float)

    def go(output, steps, state, weight):
        if toy.is_whole(output):
            law[output, steps] += weight
            return
        for emitted, step, then, chance in one_step(toy, policy, output, state):
            go(output + emitted, steps + (step,), then, weight * chance)

    if first_token == "draft":
        go((), (), policy.begin(0), 1.0)
    else:
        for token, chance in outcomes(toy.p(())):
            go((token,), (), policy.begin(0), chance)
    return law


def one_step(toy, policy, output, state):
    """Yield (emitted, (start, draft length, accepted), state after, probability)."""
    start = len(output) + 1
    for drafted, then, weight in drafts(toy, policy, output, state, start):
        sent = drafted[: policy.proposed(fresh(then), len(drafted))]
        for emitted, accepted, chance in verified(toy, output, sent):
            ended = bool(accepted) and toy.ends(drafted[accepted - 1])
            length = policy.limit(then, accepted) if policy.needs_future else len(drafted)
            proposed = min(length, policy.proposed(fresh(then), len(drafted)))
            after = policy.update(fresh(then), Outcome(length, proposed, accepted, ended))
            yield emitted, (start, length, accepted), after, weight * chance


def fresh(state):
    """A state to be used once: the enumeration comes back to it."""
    return tuple(x.copy() if isinstance(x, np.ndarray) else x for x in state)


def drafts(toy, policy, output, state, start):
    """Yield (draft, state, probability); one that needs the future drafts all that it may."""
    most = policy.max_draft if policy.needs_future else policy.limit(state, -1)
    room = min(most, toy.t_max - start)

    def grow(drafted, state, weight):
        if len(drafted) >= room:
            yield drafted, state, weight
            return
        prefix = output + drafted
        for token, chance in outcomes(toy.q(prefix, len(output))):
            stop, then = False, state
            if not policy.needs_future:
                values = toy.features(prefix, token, len(output))
                row = tuple(float(values[name]) for name in policy.columns(toy.sampler))
                stop, then = policy.trips(fresh(state), len(drafted) + 1, row)
            longer = drafted + (token,)
            if stop or toy.ends(token):
                yield longer, then, weight * chance
            else:
                yield from grow(longer, then, weight * chance)

    return grow((), state, 1.0)


def verified(toy, output, drafted):
    """Yield (emitted, accepted, probability)."""
    weight = 1.0
    for j, token in enumerate(drafted):
        prefix = output + drafted[:j]
        p, q = toy.p(prefix), toy.q(prefix, len(output))
        keep = min(1.0, p[token] / q[token])
        if keep < 1:
            for other, chance in outcomes(residual(p, q)):
                yield drafted[:j] + (other,), j, weight * (1 - keep) * chance
        weight *= keep
        if weight == 0:
            return
    if drafted and toy.ends(drafted[-1]):
        yield drafted, len(drafted), weight
        return
    for bonus, chance in outcomes(toy.p(output + drafted)):
        yield drafted + (bonus,), len(drafted), weight * chance


# --- the recorder's randomness, and the replay ---------------------------------------------------


def recordings(toy):
    """Yield (rows, probability): on-path rows (draft token, accepted, target token, branch)."""

    def go(output, rows, weight):
        if toy.is_whole(output):
            yield rows, weight
            return
        for row, chance in positions(toy, output):
            yield from go(output + (row[2],), rows + (row,), weight * chance)

    return go((), (), 1.0)


def positions(toy, output):
    """Yield (row, probability) of the position after `output`."""
    p, q = toy.p(output), toy.q(output)
    for token, chance in outcomes(q):
        keep = min(1.0, p[token] / q[token])
        if keep > 0:
            yield (token, True, token, ()), chance * keep
        if keep < 1:
            room = 0 if toy.ends(token) else toy.t_max - 1 - (len(output) + 1)
            for other, c in outcomes(residual(p, q)):
                for branch, b in branches(toy, output + (token,), max(0, room)):
                    yield (token, False, other, branch), chance * (1 - keep) * c * b


def branches(toy, prefix, room):
    """Yield (tokens, probability) of what the draft says after a rejected token."""
    if room == 0:
        yield (), 1.0
        return
    for token, chance in outcomes(toy.q(prefix)):
        if toy.ends(token):
            yield (token,), chance
            continue
        for rest, c in branches(toy, prefix + (token,), room - 1):
            yield (token, *rest), chance * c


@cache
def recorded(toy):
    """One trace that holds every recording as a sequence, and their probabilities."""
    on, off, n_output, weights, by_start = [], [], [], [], []
    for sequence, (rows, weight) in enumerate(recordings(toy)):
        output = tuple(row[2] for row in rows)
        for i, (token, accepted, target, branch) in enumerate(rows, 1):
            key = {"sequence": sequence, "position": i}
            before = output[: i - 1]
            seen = {"accepted": accepted, "target_token": target}
            on.append(key | {"draft_token": token} | seen | toy.features(before, token))
            for d, drafted in enumerate(branch, 1):
                prefix = before + (token,) + branch[: d - 1]
                row = key | {"depth": d, "draft_token": drafted}
                off.append(row | toy.features(prefix, drafted))
        by_start += [start_scores(toy, rows, output, start) for start in range(len(rows))]
        n_output.append(len(rows))
        weights.append(weight)
    trace = trace_of(toy, on, off, n_output)
    for head in START_HEADS:
        trace = attach(trace, head, StartScores(np.array(by_start, np.float32)))
    return trace, np.array(weights)


def start_scores(toy, rows, output, start):
    """What a head says of each token of the draft behind `start` tokens, NaN behind its end."""
    m = start
    while m < len(rows) - 1 and rows[m][1]:
        m += 1
    tokens = (*(row[0] for row in rows[start : m + 1]), *rows[m][3])
    scores = np.full(toy.t_max, np.nan)
    for d, token in enumerate(tokens):
        prefix = output[:start] + tokens[:d]
        if len(prefix) < toy.t_max:
            scores[d] = toy.features(prefix, token, start)[f"score:{START_HEADS[0]}"]
    return scores


def trace_of(toy, on, off, n_output):
    def columns(rows):
        names = [name for name in (rows[0] if rows else ()) if not name.startswith("score:")]
        return {name: np.array([row[name] for row in rows]) for name in names}

    trace = from_arrays(
        {"n_output": n_output},
        columns(on),
        columns(off),
        max_draft=toy.t_max,
        max_new_tokens=toy.t_max,
        eos_token_ids=(0,) if toy.has_eos else (),
        sampler=toy.sampler,
    )
    for head in ROW_HEADS:
        path, branches = (np.array([r[f"score:{head}"] for r in rows]) for rows in (on, off))
        trace = attach(trace, head, RowScores(path, branches))
    return trace


@cache
def layout_of(toy):
    return PathLayout(recorded(toy)[0])


class Alone:
    """A policy whose run-wide state starts anew: each recording is a run of its own here."""

    carried = "sequence"

    def __init__(self, policy):
        self._policy = policy

    def __getattr__(self, name):
        return getattr(self._policy, name)


def replay_law(toy, policy, first_token, engine):
    trace, weights = recorded(toy)
    steps = engine.walk(policy, layout_of(toy), FIRST[first_token])
    rows = list(
        zip(steps.start.tolist(), steps.drafted.tolist(), steps.accepted.tolist(), strict=True)
    )
    outputs = trace.sequences["output_tokens"].to_pylist()
    law = defaultdict(float)
    for s, (output, weight) in enumerate(zip(outputs, weights, strict=True)):
        mine = tuple(rows[steps.offsets[s] : steps.offsets[s + 1]])
        law[tuple(output), mine] += weight
    return law


def check(toy, spec, first_token):
    policy = policies.parse(spec)
    try:
        policy.columns(toy.sampler)
        policy.bind(Setting(layout_of(toy), None, FIRST[first_token]))
    except policies.PolicyError:
        pytest.skip("the rule does not hold under this sampler, or is fitted to a trace")
    return agree(toy, policy, first_token, replay_law)


def agree(toy, policy, first_token, law):
    """The textbook's law, which every engine's replay has."""
    expected = textbook_law(toy, policy, first_token)
    assert sum(expected.values()) == pytest.approx(1, abs=1e-12)
    engines = [(interpreted, Alone(policy))]
    if compiled.compiles(policy) and policy.carried == "sequence":
        engines.append((compiled, policy))
    for engine, one in engines:
        got = law(toy, one, first_token, engine)
        assert got.keys() == expected.keys()
        assert max(abs(got[k] - expected[k]) for k in expected) < 1e-12
    return expected


TOYS = {
    "two tokens": Toy(2, 5, has_eos=False),
    "two tokens, EOS": Toy(2, 5, has_eos=True),
    "three tokens, EOS": Toy(3, 4, has_eos=True),
    "greedy": Toy(3, 4, has_eos=True, greedy=True),
}


@pytest.mark.parametrize("toy", TOYS)
@pytest.mark.parametrize("spec", [*SEQUENTIAL, *MORE_SPECS])
def test_joint_law(toy, spec):
    for first_token in FIRST:
        check(TOYS[toy], spec, first_token)


def test_the_enumeration_is_whole():
    for toy in TOYS.values():
        trace, weights = recorded(toy)
        assert weights.sum() == pytest.approx(1, abs=1e-12)
    trace = recorded(TOYS["three tokens, EOS"])[0]
    assert trace.n_sequences > 500 and trace.n_branch_rows > 500


def test_output_is_the_targets():
    """The theorem itself: y ~ p, whatever the draft; here from the recorder's side."""
    toy = TOYS["three tokens, EOS"]
    trace, weights = recorded(toy)
    law = defaultdict(float)
    for output, weight in zip(trace.sequences["output_tokens"].to_pylist(), weights, strict=True):
        law[tuple(output)] += weight
    for output, weight in law.items():
        chain = np.prod([toy.p(output[:i])[token] for i, token in enumerate(output)])
        assert weight == pytest.approx(chain, abs=1e-12)


def test_thresholds_bite():
    """The rules that read features stop some drafts and not others; no EOS does it for them."""
    for spec in ("svip(h=0.75)", "confidence(threshold=0.5)"):
        law = check(TOYS["two tokens"], spec, "draft")
        first = {steps[0][1] for _, steps in law}
        assert len(first) > 1 and max(first) > 2
