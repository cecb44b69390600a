"""`@simkit.policy`: functions, classes and generators, with and without state."""

import numpy as np
import pytest

import simkit
from simkit import policies
from simkit.policies import PolicyError
from simkit.simulator.arguments import setting
from simkit.steps import interpreted
from traces.synthetic import iid

FREE = "linear(draft_s=0.001, target_s=0.01, policy_s=0)"
COST = "linear(draft_s=0.001, target_s=0.01)"
READS = ("draft_prob_raw", "draft_entropy")
SAME = "steps", "drafted", "proposed", "accepted"


@pytest.fixture(scope="module")
def trace():
    return iid(14, 60, 0.7, max_draft=12, seed=3)


@simkit.policy(columns=READS, max_draft=8)
def unsure(depth, row):
    return row.draft_prob_raw < 0.5 or depth > 5


@simkit.policy(columns=(), max_draft=12)
class Longer:
    """`heuristic(initial=5)`, written as a class."""

    def __init__(self, initial=5):
        self.length = initial

    def limit(self):
        return self.length

    def stop(self, depth, row):
        return False

    def update(self, outcome):
        if outcome.accepted == outcome.drafted:
            self.length += 2
        else:
            self.length = max(1, self.length - 1)


@simkit.policy(columns=(), max_draft=12)
def longer(initial=5):
    """The same as a generator."""
    length = initial
    stop = False
    while True:
        token = yield stop
        if token.outcome:
            full = token.outcome.accepted == token.outcome.drafted
            length = length + 2 if full else max(1, length - 1)
        stop = token.depth >= length


def counts(trace, policy):
    (row,) = simkit.replay(trace, policy, COST).records()
    return [row[name] for name in SAME]


def test_a_decorated_function_is_a_policy(trace):
    assert isinstance(unsure, policies.FunctionPolicy) and str(unsure) == "unsure"
    found = simkit.replay(trace, ["fixed(3)", unsure], COST)
    assert found.records()[1]["policy"] == "unsure"
    plainly = policies.from_function(unsure.function, READS, "unsure", 8)
    assert counts(trace, unsure) == counts(trace, plainly)
    bare = simkit.policy(lambda depth, row: row.draft_entropy > 1)
    assert bare.reads == simkit.policies.from_function(bare.function, bare.reads).reads
    assert len(bare.reads) > 3


@pytest.mark.parametrize("arguments", [{}, {"initial": 2}])
def test_state_lasts_a_sequence(trace, arguments):
    known = policies.parse(f"heuristic(initial={arguments.get('initial', 5)}, max_draft=12)")
    made = Longer(**arguments)
    steps = interpreted.walk(made, setting(trace, None, "draft").layout, 1)
    by_known = interpreted.walk(known, setting(trace, None, "draft").layout, 1)
    assert (steps.drafted == by_known.drafted).all()
    assert counts(trace, made) == counts(trace, known)
    assert str(made) == ("Longer(initial=2)" if arguments else "Longer")


def test_a_generator_does_what_its_class_does(trace):
    assert counts(trace, longer) == counts(trace, Longer)
    assert counts(trace, longer(initial=2)) == counts(trace, Longer(initial=2))


def test_state_that_lasts_a_run(trace):
    def made(carried):
        @simkit.policy(columns=(), max_draft=12, carried=carried)
        class Counting:
            def __init__(self):
                self.steps = 0

            def stop(self, depth, row):
                return depth > self.steps % 7

            def update(self, outcome):
                self.steps += 1

        return Counting

    assert counts(trace, made("run")) != counts(trace, made("sequence"))
    assert counts(trace, made("run")) == counts(trace, made("run"))  # begins anew with a replay


def test_what_is_called_when(trace):
    """A rule is asked about every drafted token, and told of every step."""
    said = []

    @simkit.policy(columns=(), max_draft=3)
    class Noting:
        def __init__(self):
            said.append("new")

        def stop(self, depth, row):
            said.append(depth)
            return False

        def update(self, outcome):
            said.append(outcome)

    layout = setting(trace, None, "draft").layout
    steps = interpreted.walk(Noting, layout, 1)
    assert said.count("new") == 1 + trace.n_sequences  # and one before the first
    assert sum(isinstance(one, int) for one in said) == steps.drafted.sum()
    assert sum(isinstance(one, policies.Outcome) for one in said) == len(steps.drafted)


def test_states_of_replays_are_apart(trace):
    both = simkit.sweep(trace, [Longer, longer, unsure], COST, workers=2)
    by_name = {row["policy"]: [row[name] for name in SAME] for row in both.records()}
    assert by_name["Longer"] == by_name["longer"] == counts(trace, Longer)


@pytest.mark.parametrize("rule", [Longer, longer])
def test_a_grid_is_tuned_as_the_built_in_family_is(trace, rule):
    """Named as one family; its settings, chosen and held-out times are `heuristic`'s."""
    grid = rule.grid(initial=np.arange(1, 10, 2))
    name = "Longer" if rule is Longer else "longer"
    assert str(grid) == f"{name}(initial=[1, 3, 5, 7, 9])"
    mine = simkit.tune(trace, grid, FREE)
    theirs = simkit.tune(trace, "heuristic(initial=1:10:2, max_draft=12)", FREE)
    (one, *_), (other, *_) = (
        [row for row in tuned.records() if row["spec"] not in ("fixed(0:12)", "best of all")]
        for tuned in (mine, theirs)
    )
    assert one["spec"] == str(grid) and one["settings"] == other["settings"] == 5
    numbers = {k: v for k, v in other.items() if isinstance(v, float)}
    assert len(numbers) > 5 and {k: one[k] for k in numbers} == pytest.approx(numbers)
    assert one["chosen"] == f"{name}({other['chosen'].split('(')[1].split(',')[0].rstrip(')')})"
    swept = simkit.sweep(trace, grid, FREE).frame["policy"].to_list()
    assert swept == [str(one) for one in grid]


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        (lambda: Longer.grid(intial=[1]), "no argument 'intial'"),
        (lambda: Longer.grid(initial=[]), r"initial needs a list of values, not \[\]"),
        (lambda: Longer.grid(initial="1:3"), "initial needs a list of values, not '1:3'"),
        (lambda: Longer.grid(initial=3), "initial needs a list of values, not 3"),
        (
            lambda: simkit.replay(iid(2, 9, 0.5, max_draft=4, seed=1), Longer.grid(initial=[1, 2])),
            r"Longer\(initial=\[1, 2\]\) are 2 settings: sweep or tune them",
        ),
    ],
)
def test_what_is_no_grid_is_refused(ask, said):
    with pytest.raises(PolicyError, match=said):
        ask()


def test_a_compiled_function_does_what_it_does_plainly(trace):
    @simkit.policy(columns=READS, max_draft=8, compiled=True)
    def fast(depth, row):
        return row.draft_prob_raw < 0.5 or depth > 5

    assert counts(trace, fast) == counts(trace, unsure)
    from simkit.steps import compiled

    assert compiled.compiles(fast.bind(setting(trace, None, "draft")))
    bound = fast.bind(setting(trace, None, "draft"))
    assert str(bound) == "fast"
    assert not type(bound.params).__module__.startswith("simkit")  # whose code is kept on disk


def ended():
    yield False


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: simkit.policy(3), "3 is no function, class or generator"),
        (lambda: simkit.policy(int), "int: a class that is a policy has a method stop"),
        (lambda: simkit.policy(lambda depth: True), "takes two arguments, \\(depth, row\\)"),
        (
            lambda: Longer(inital=3),
            "Longer.* has no argument 'inital' \\(did you mean initial\\?\\)",
        ),
        (lambda: simkit.policy(Longer.function, compiled=True), "only functions are compiled"),
        (lambda: simkit.policy(unsure.function, carried="run"), "a function has no state to carry"),
        (lambda: simkit.policy(Longer.function, carried="day"), "must be sequence or run"),
        (lambda: simkit.policy(unsure.function, columns=("a b",)), "cannot be a column's name"),
    ],
)
def test_what_cannot_be_a_policy(make, says):
    with pytest.raises(policies.PolicyError, match=says):
        make()


def test_a_generator_that_ends_and_what_numba_refuses(trace):
    with pytest.raises(policies.PolicyError, match="ended: its generator has ended"):
        simkit.replay(trace, simkit.policy(ended))

    @simkit.policy(columns=READS, compiled=True)
    def odd(depth, row):
        return {"a": row}.get(depth) is object()

    with pytest.raises(policies.PolicyError, match="odd: numba cannot compile it: "):
        simkit.replay(trace, odd)
