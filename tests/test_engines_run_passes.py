"""A cost from an engine's own steps, where what its passes take is known."""

from types import SimpleNamespace

import numpy as np
import pytest

import simkit
import traces
from simkit.costs.measured import times_of
from simkit.engines import EngineError
from simkit.engines.run import passes
from simkit.engines.run.answers import EngineAnswer, EngineStep
from simkit.engines.run.arms import ALONE, EngineArm
from simkit.engines.run.recorded import recorded_at, recorded_part
from simkit.engines.run.timing import lengths_timed
from simkit.engines.run.workers import openvino
from simkit.fidelity.engine import EngineFidelity, predictions, speeds

FACTS = {"batch_size": 1, "dtype": "float32", "device": "made up", "engine": "made up"}


def verify_s(tokens, context):
    return 1e-3 * (5 + 0.4 * tokens + 0.002 * context)


def draft_s(drafted, context):
    return 1e-3 * (0.3 + drafted * (0.8 + 0.001 * context)) if drafted else 0.0


def answered(request, steps, has_draft):
    """What an engine with these passes says; its first step reads the prompt with the draft too."""
    known, found = len(request.prompt), []
    for k, (drafted, accepted) in enumerate(steps):
        seconds = verify_s(drafted + 1, known) + (draft_s(drafted, known) if has_draft else 0)
        seconds += 1e-5 * len(request.prompt) if has_draft and k == 0 else 0
        target_s = verify_s(drafted + 1, known) if has_draft else float("nan")
        found.append(EngineStep(drafted, accepted, accepted + 1, seconds, False, target_s))
        known += accepted + 1
    prefill_s = 1e-4 * len(request.prompt)
    whole_s = prefill_s + sum(step.seconds for step in found)
    return EngineAnswer(request.output, found, prefill_s, whole_s, whole_s / 2, "length")


def steps_of(part, policy):
    found = part.steps(simkit.policies.parse(policy))
    return {k: [(s.drafted, s.accepted) for s in steps] for k, steps in found.items()}


def asked(part, policies, has_draft=True):
    return [
        passes.Asked(request, answered(request, steps_of(part, one)[request.sequence], has_draft))
        for one in policies
        for request in part.requests
    ]


def samples_of_all():
    part = recorded_part(traces.load("reference"), 8, 96)
    alone = asked(part, ["autoregressive"], has_draft=False)
    lookups = asked(part, [f"fixed({k})" for k in (1, 2, 3, 4, 5, 7, 8)], has_draft=False)
    drafted = asked(part, [f"fixed({k})" for k in passes.FITTED])
    return passes.samples(alone, lookups, drafted, FACTS)


@pytest.fixture(scope="module")
def samples():
    return samples_of_all()


def test_passes_are_found(samples):
    times = times_of(samples)
    tokens, context = np.array([1, 2, 4, 6, 9]), np.full(5, 90)
    np.testing.assert_allclose(times.verify(tokens, context), verify_s(tokens, 90), rtol=0.02)
    np.testing.assert_allclose(times.draft(np.array([60, 90])), [0.86e-3, 0.89e-3], rtol=0.05)
    assert times.overhead() == pytest.approx(0.3e-3, rel=0.2)
    assert times.prefill("target", np.array([100]))[0] == pytest.approx(0.01, rel=0.05)


def test_speeds_are_predicted(samples):
    """On other prompts and lengths, from what is known of these passes."""
    whole = traces.load("reference")
    part = recorded_at(whole, list(range(3, 123, 8)), 96, samples)
    arms = [EngineArm(simkit.policies.Fixed(k), ALONE.written) for k in (1, 3, 5, 8)]
    alone = [[one.answer] for one in asked(part, ["autoregressive"], has_draft=False)]
    own = [[[one.answer] for one in asked(part, [arm.name])] for arm in arms]
    found = speeds(arms, predictions(part, arms, "prefill"), alone, own)
    result = EngineFidelity("made up", [], [], found, 1.0)
    assert all(one.low <= one.measured <= one.high for one in found)
    assert result.errors[1] < 0.02 and result.passes, [one.error for one in found]


def test_an_engine_that_is_faster_over_more_tokens_is_predicted_too(monkeypatch):
    """As llama.cpp is over nine tokens: no cost that never falls prices eight of them and nine."""
    usual = verify_s
    monkeypatch.setitem(
        globals(), "verify_s", lambda n, c: usual(n, c) * np.where(np.less(n, 9), 1 + n / 4, 2)
    )
    part = recorded_at(traces.load("reference"), list(range(3, 123, 8)), 96, samples_of_all())
    arms = [EngineArm(simkit.policies.Fixed(k), ALONE.written) for k in (5, 7, 8)]
    alone = [[one.answer] for one in asked(part, ["autoregressive"], has_draft=False)]
    own = [[[one.answer] for one in asked(part, [arm.name])] for arm in arms]
    found = speeds(arms, predictions(part, arms, "prefill"), alone, own)
    assert max(abs(one.error) for one in found) < 0.02, [one.error for one in found]
    rising = [run["speedup"] for run in simkit.replay(part.trace, ["fixed(8)"]).records()]
    assert rising[0] < 0.9 * found[2].measured


def test_drafts_that_the_outputs_end_cuts_are_no_timings(samples, monkeypatch):
    """An engine is slow over a size that it has hardly seen."""
    usual = answered

    def slow(request, steps, has_draft):
        found, most = usual(request, steps, has_draft), max(drafted for drafted, _ in steps)
        return found._replace(
            steps=[
                step._replace(seconds=step.seconds + 0.05, target_s=step.target_s + 0.05)
                if step.drafted < most
                else step
                for step in found.steps
            ]
        )

    monkeypatch.setitem(globals(), "answered", slow)
    tokens, context = np.array([2, 4, 6, 9]), np.full(4, 90)
    found, wanted = times_of(samples_of_all()), times_of(samples)
    np.testing.assert_allclose(found.verify(tokens, context), wanted.verify(tokens, context), 0.02)
    np.testing.assert_allclose(found.draft(context[:1]), wanted.draft(context[:1]), 0.02)


def test_all_lengths_of_an_engine_that_times_the_target_are_timed():
    host = SimpleNamespace(conventions=SimpleNamespace(times_target=True))
    assert lengths_timed(host, 8) == ([], [1, 2, 3, 4, 5, 7, 8])


def test_an_engine_that_times_the_target_needs_no_lookups(samples):
    """Its drafting steps have the target's passes; requests with unknown drafts are left out."""
    part = recorded_part(traces.load("reference"), 8, 96)
    alone = asked(part, ["autoregressive"], has_draft=False)
    drafted = asked(part, [f"fixed({k})" for k in (*passes.FITTED, 10)])
    odd = drafted[0]
    steps = [step._replace(drafted=-1, target_s=1.0) for step in odd.answer.steps]
    odd = odd._replace(answer=odd.answer._replace(steps=steps))
    found = times_of(passes.samples(alone, [], [odd, *drafted], FACTS))
    tokens, context = np.array([1, 2, 4, 6, 9]), np.full(5, 90)
    np.testing.assert_allclose(found.verify(tokens, context), verify_s(tokens, 90), rtol=0.02)
    np.testing.assert_allclose(found.draft(np.array([60, 90])), [0.86e-3, 0.89e-3], rtol=0.05)


@pytest.mark.parametrize(
    ("length", "emitted", "budget", "counted", "n_passes", "drafted"),
    [
        (5, [1, 3, 6, 1], 64, 10, 16, [5, 5, 5]),
        (5, [1, 3, 6, 1], 12, 10, 12, [5, 5, 1]),  # the budget has one token left
        (5, [1, 3, 6, 1], 11, 10, 12, [5, 5, 0]),  # none is left, but a pass was made
        (5, [1, 3, 6, 3], 64, 10, 14, [5, 5, 3]),  # an EOS ended the last draft
        (5, [1, 3, 6, 1], 64, 9, 15, [-1, -1, -1]),  # an EOS ended one before
        (5, [1, 3, 6, 1], 64, 10, 10, [-1, -1, -1]),  # passes that cannot be
        (5, [1, 3, 6, 1], 64, 10, 18, [-1, -1, -1]),
        (None, [1, 3], 64, 5, 6, [-1]),  # a rule ends drafts
        (5, [1], 64, 0, 1, []),
    ],
)
def test_what_openvino_drafted(length, emitted, budget, counted, n_passes, drafted):
    assert openvino.drafted_by(length, emitted, budget, counted, n_passes) == drafted


def test_openvino_seconds_add_up():
    spans = [0.0, 0.9, 0.1, 0.1, 0.2, 0.3]  # the first reads nothing, the second the prompt
    more = openvino.seconds_besides([2, 2, 0], spans, 1.9)
    np.testing.assert_allclose(more, [1.1, 0.4, 0.4])  # 0.1 a step is no pass's; the last has one
    assert sum(more) == pytest.approx(1.9)
    assert openvino.seconds_besides([-1, -1], spans, 1.9) == [0.95, 0.95]
    assert openvino.seconds_besides([0, 0], [], 0.2) == [0.1, 0.1]
    assert openvino.seconds_besides([], spans, 1.9) == []


def test_seconds_of_the_processor(samples):
    (request,) = recorded_part(traces.load("reference"), 1, 8).requests
    halved = passes.by_processor(answered(request, [(2, 1), (3, 0)], True))
    whole = answered(request, [(2, 1), (3, 0)], True)
    assert halved.seconds == whole.seconds / 2
    assert [s.seconds for s in halved.steps] == [s.seconds / 2 for s in whole.steps]
    assert [s.target_s for s in halved.steps] == [s.target_s / 2 for s in whole.steps]


def test_an_engine_without_seconds_makes_no_cost():
    part = recorded_part(traces.load("reference"), 2, 16)
    alone = asked(part, ["autoregressive"], has_draft=False)
    answer = alone[0].answer
    mute = [step._replace(seconds=float("nan")) for step in answer.steps]
    mute = [passes.Asked(alone[0].request, answer._replace(steps=mute))]
    with pytest.raises(EngineError, match="does not report how long its steps take"):
        passes.samples(mute, alone, alone, FACTS)
    with pytest.raises(EngineError, match="no step drafted anything"):
        passes.samples(alone, asked(part, ["fixed(2)"], False), alone, FACTS)
    steps = [step._replace(drafted=-1) for step in answer.steps]
    silent = [passes.Asked(alone[0].request, answer._replace(steps=steps))]
    for arms in ((alone, silent), (silent, alone)):
        with pytest.raises(EngineError, match="does not report how many tokens each step drafted"):
            passes.samples(alone, *arms, FACTS)


def test_an_output_that_ends_with_its_first_token_has_no_steps():
    part = recorded_part(traces.load("reference"), 4, 64)
    alone = asked(part, ["autoregressive"], has_draft=False)
    lookups = asked(part, [f"fixed({k})" for k in (1, 2, 3, 4)], has_draft=False)
    drafted = asked(part, ["fixed(2)"])
    request = part.requests[0]._replace(output=part.requests[0].output[:1])
    short = passes.Asked(request, answered(request, [], True))
    found = passes.samples([short, *alone], [short, *lookups], [short, *drafted], FACTS)
    whole = passes.samples(alone, lookups, drafted, FACTS)
    assert times_of(found).verify(np.array([3]), np.array([90]))[0] == pytest.approx(
        times_of(whole).verify(np.array([3]), np.array([90]))[0]
    )
