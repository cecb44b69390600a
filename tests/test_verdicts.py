"""A rule says True or False: whatever else it says is refused, wherever rules are asked."""

from dataclasses import dataclass, replace
from types import SimpleNamespace

import numpy as np
import pytest

import simkit
import traces
from simkit import policies, serving
from simkit.policies import SVIP, PolicyError, Slots
from simkit.simulator.arguments import setting
from simkit.trees.exits import Exit
from traces.synthetic import iid

COST = "linear(draft_s=0.001, target_s=0.01, target_per_token_s=0.001, draft_per_token_s=1e-4)"
WRONG = {
    "None": lambda depth, row: None,
    "'no'": lambda depth, row: "no",
    "0.5": lambda depth, row: 0.5,
    "1": lambda depth, row: 1,
    "None, but not at once": lambda depth, row: True if depth > 1 else None,
}
RIGHT = {
    "bool": lambda depth, row: depth > 1,
    "numpy's bool": lambda depth, row: np.bool_(depth > 1),
}
GIVEN = "a rule must say True or False in every case, not {}"


def of_function(rule, **more):
    return simkit.policy(rule, columns=(), max_draft=4, name="mine", **more)


def of_class(rule):
    class Mine:
        def stop(self, depth, row):
            return rule(depth, row)

    return simkit.policy(Mine, columns=(), max_draft=4, name="mine")


def of_generator(rule):
    def mine():
        said = None  # what comes first is not looked at
        while True:
            token = yield said
            said = rule(token.depth, token.row)

    return simkit.policy(mine, columns=(), max_draft=4, name="mine")


def of_methods(rule):
    class Mine(policies.Sequential):
        name, max_draft = "mine", 4
        begin = staticmethod(lambda sequence: ())
        limit = staticmethod(lambda state, ahead: 4)
        trips = staticmethod(lambda state, depth, row: (rule(depth, row), state))
        update = staticmethod(lambda state, outcome: state)
        columns = staticmethod(lambda sampler: ())
        __str__ = lambda self: "mine"  # noqa: E731

    return Mine()


MAKERS = {
    "function": of_function,
    "compiled": lambda rule: of_function(rule, compiled=True),
    "class": of_class,
    "generator": of_generator,
    "methods": of_methods,
}


@pytest.fixture(scope="module")
def trace():
    return iid(6, 20, 0.7, max_draft=8, seed=3)


def replayed(trace, rule):
    return simkit.replay(trace, rule).records()[0]["steps"]


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("maker", MAKERS)
def test_what_is_no_boolean_is_refused_by_name(trace, maker, wrong):
    """It was taken for "go on", or for "stop": 244,274 tokens were drafted."""
    with pytest.raises(PolicyError) as error:
        replayed(trace, MAKERS[maker](WRONG[wrong]))
    begins = f"mine: {GIVEN.format('')}"
    assert str(error.value).startswith(begins)
    if maker != "compiled":
        assert str(error.value) == f"mine: {GIVEN.format(wrong.partition(',')[0])}"


@pytest.mark.parametrize("maker", MAKERS)
def test_booleans_are_taken(trace, maker):
    expected = replayed(trace, policies.Fixed(2))
    for rule in list(RIGHT.values())[: 1 if maker == "compiled" else 2]:
        assert replayed(trace, MAKERS[maker](rule)) == expected


SLOTS = {
    "trips gives None": (Slots(trips=lambda params, state, depth, row: (None, state)), "False"),
    "trips gives 0.5": (Slots(trips=lambda params, state, depth, row: (0.5, state)), "False"),
    "limit gives 2.5": (Slots(limit=lambda params, state, ahead: 2.5), "whole numbers"),
    "proposed gives 0.5": (Slots(proposed=lambda params, state, drafted: 0.5), "whole numbers"),
}


@pytest.mark.parametrize("plainly", [True, False])
@pytest.mark.parametrize("wrong", SLOTS)
def test_slots_are_held_to_the_same(trace, wrong, plainly, monkeypatch):
    slots, says = SLOTS[wrong]

    @dataclass(frozen=True)
    class Mine(SVIP):
        name = "mine"

    Mine.slots = slots
    if plainly:
        monkeypatch.setattr("simkit.steps.compiled.compiles", lambda policy: False)
    with pytest.raises(PolicyError, match=f"^mine.h=0.4, max_draft=4.: a rule.*{says}.*, not "):
        replayed(trace, Mine(max_draft=4))


@pytest.mark.parametrize("by", ["trace", "step"])
@pytest.mark.parametrize("plainly", [True, False])
def test_calls_are_whole_numbers(trace, plainly, by, monkeypatch):
    @dataclass(frozen=True)
    class Mine(SVIP):
        name = "mine"

    Mine.slots = replace(SVIP.slots, calls=lambda params, drafted: drafted / 2)
    if plainly:
        monkeypatch.setattr("simkit.steps.compiled.compiles", lambda policy: False)
    cost = "linear(draft_s=1, target_s=6, policy_s=1)"
    with pytest.raises(PolicyError, match="^mine.*: a rule's lengths and calls .*, not float64"):
        simkit.replay(trace, Mine(max_draft=4), cost, by=by)


@pytest.mark.parametrize("given", [None, 2.5, "3", True])
def test_a_limit_is_a_whole_number(trace, given):
    class Mine:
        def stop(self, depth, row):
            return False

        def limit(self):
            return given

    message = f"mine: a rule's lengths and calls must be whole .* not {given!r}"
    with pytest.raises(PolicyError, match=message):
        replayed(trace, simkit.policy(Mine, columns=(), name="mine"))


def test_trips_gives_two_things(trace):
    rule = of_methods(RIGHT["bool"])
    type(rule).trips = staticmethod(lambda state, depth, row: True)
    with pytest.raises(PolicyError, match=r"mine: trips must give \(stop, state\), not True"):
        replayed(trace, rule)


TOGETHER = ("each", "all_stopped", "batch_mean")
LENGTHS = "a rule's lengths and calls must be whole numbers, not {}"
ANSWERS = {  # what one of the methods gives in every case, and what is said of it
    "trips gives None": ("trips", (None, ()), GIVEN.format("None")),
    "limit gives 2.5": ("limit", 2.5, LENGTHS.format("2.5")),
    "limit gives None": ("limit", None, LENGTHS.format("None")),
    "proposed gives '2'": ("proposed", "2", LENGTHS.format("'2'")),
    "proposed gives True": ("proposed", True, LENGTHS.format("True")),
}


def of_answers(wrong):
    """A rule with one wrong answer, and what it is refused with."""
    method, given, says = ANSWERS[wrong]
    rule = of_methods(RIGHT["bool"])
    setattr(type(rule), method, staticmethod(lambda *args: given))
    return rule, f"^mine: {says}$"


@pytest.mark.parametrize("wrong", ANSWERS)
def test_methods(trace, wrong):
    rule, says = of_answers(wrong)
    with pytest.raises(PolicyError, match=says):
        replayed(trace, rule)


@pytest.mark.parametrize("wrong", ANSWERS)
@pytest.mark.parametrize("together", TOGETHER)
def test_a_server_s_rules(trace, together, wrong):
    rule, says = of_answers(wrong)
    with pytest.raises(PolicyError, match=says):
        simkit.serve(
            trace,
            serving.controllers.CONTROLLERS[together](rule),
            COST,
            concurrency=2,
            requests=2,
            seeds=1,
        )


@pytest.mark.parametrize("wrong", ANSWERS)
@pytest.mark.parametrize("together", TOGETHER)
def test_a_live_server_s_rules(together, wrong):
    from simkit.live import DecoderSettings
    from simkit.live.live_controllers import decider

    rule, says = of_answers(wrong)
    settings = DecoderSettings(max_new_tokens=8)
    asked = decider(serving.controllers.CONTROLLERS[together](rule), settings)
    asked.begin(2)
    view = SimpleNamespace(request=np.arange(2), room=np.array([3, 3]))
    with pytest.raises(PolicyError, match=says):
        asked.open(view, [0, 1])
        asked.told([False, False], [(), ()])
        asked.chosen(view, asked.drafted())


def live(kind, rule):
    """What a live decoder made of a prompt."""
    from models import EOS, tiny_pair

    from benchmarks.plain_decoder import Decoder
    from simkit.live import DecoderSettings
    from simkit.live.decoder import Request
    from simkit.live.decoders import BatchDecoder, TimedDecoder

    pair = tiny_pair(noise=0.06)
    how = DecoderSettings(max_new_tokens=8, eos_token_ids=(EOS,))
    made = {"Decoder": Decoder, "TimedDecoder": TimedDecoder, "BatchDecoder": BatchDecoder}[kind]
    more = {"stop": "all"} if kind == "BatchDecoder" else {}
    decoder = made(pair.target, pair.draft, rule, how, pair.vocab_size, **more)
    if kind == "BatchDecoder":
        return decoder.run([Request(0, [5, 6, 7])])
    return decoder.decode([5, 6, 7], 0)


LIVE = ("Decoder", "TimedDecoder", "BatchDecoder")


@pytest.mark.parametrize("wrong", ANSWERS)
@pytest.mark.parametrize("kind", LIVE)
def test_live_decoders(kind, wrong):
    rule, says = of_answers(wrong)
    with pytest.raises(PolicyError, match=says):
        live(kind, rule)


@pytest.mark.parametrize(("given", "counts"), [(-3, 0), (99, 2)])
@pytest.mark.parametrize("kind", LIVE)
def test_live_decoders_verify_none_to_all_of_a_draft(kind, given, counts):
    """As a replay does, whatever whole number a rule gives."""
    rule = of_methods(RIGHT["bool"])
    type(rule).proposed = staticmethod(lambda state, drafted: given)
    found = live(kind, rule)
    steps = found.steps[0] if kind == "BatchDecoder" else found.steps
    assert {step.draft_length for step in steps if step.drafted == 2} == {counts}


SAID = [None]


@dataclass(frozen=True)
class Mine(Exit):
    """A rule of trees that says what it is given."""

    top_k: int = 4
    depth: int = 3
    total: int = 20

    name = "mine"

    def stops(self, layout, found):
        return SAID[0]

    def stops_live(self, tree, level):
        return SAID[0]


@pytest.mark.parametrize(
    ("said", "says"),
    [
        (None, "True or False in every case, not None"),
        (np.zeros((1018, 8)), "True or False in every case, not an array of float64"),
        (np.zeros((3, 8), bool), r"the shape \(1018, 4\), not \(3, 8\)"),
    ],
)
def test_rules_of_trees(said, says):
    SAID[0] = said
    trees = traces.load("reference-trees", "eagle-tree")
    with pytest.raises(PolicyError, match=says):
        Mine().outcomes(setting(trees, None, "draft").layout)


@pytest.mark.parametrize("said", [None, "no", 0.5])
def test_live_rules_of_trees(said):
    SAID[0] = said
    with pytest.raises(PolicyError, match=f"must say True or False in every case, not {said!r}"):
        Mine().grows(None, 1)
