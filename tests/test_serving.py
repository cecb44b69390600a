"""The server against a second, plain one, and against the replay and queueing theory."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from serving_plain import Limits, PlainServer
from serving_plain_rules import (
    Budget,
    ByBatch,
    Ema,
    Goodput,
    NoDrafts,
    OffAbove,
    Prophet,
    Schedule,
    Static,
)

import simkit
import traces
from simkit.costs import Linear
from simkit.drafters import layout_of
from simkit.errors import PolicyError
from simkit.serving import Closed, Engine, Poisson, controllers, loop, serve
from simkit.serving.controllers.ema import CANDIDATES
from simkit.serving.measures import requests as per_request
from simkit.serving.measures import summary
from simkit.serving.plans import plan
from simkit.serving.run import How, run
from simkit.serving.state import outcomes
from simkit.simulator.arguments import setting
from traces import synthetic
from traces.errors import UserError
from traces.memory import from_drafts
from traces.subset import select

COST = Linear(
    draft_s=1e-3,
    target_s=10e-3,
    draft_per_token_s=1e-5,
    target_per_token_s=2e-4,
    draft_per_kv_token_s=1e-8,
    target_per_kv_token_s=1e-7,
    overhead_s=2e-4,
    baseline_overhead_s=1e-4,
)


@dataclass(frozen=True)
class Looping(Linear):
    """A loop that takes longer the more requests it goes over."""

    def overhead(self):
        return self.overhead_s * (3 + self.batch_size**0.5)

    def baseline_overhead(self):
        return self.baseline_overhead_s * (1 + self.batch_size**0.5)


LOOPING = Looping(**vars(COST))
TABLE = ((1, 2, 5), (3, 4, 3), (7, 9, 1))
SLOTS = ((1, (1, 3, 5)), (4, (0, 1, 3)), (8, (0, 2)))


def budget(layout, most, **given):
    rule = Budget(most, outcomes(layout, 1, most, "draft_top1_prob").confidence, **given)
    rule.offsets = layout.offsets
    return rule


LINEAR = (lambda n: 1e-3 + 1e-5 * n, lambda tokens, kv: 10e-3 + 2e-4 * tokens + 1e-7 * kv)
PLAIN = {  # each spec's plain counterpart, of a layout
    "none": lambda _: NoDrafts(),
    "static(4)": lambda _: Static(4),
    "off_above(4, batch=3)": lambda _: OffAbove(4, 3),
    "by_batch([[1, 2, 5], [3, 4, 3], [7, 9, 1]])": lambda _: ByBatch(TABLE),
    "schedule({2: 5, 5: 3, 8: 1})": lambda _: Schedule([(2, 5), (5, 3), (8, 1)]),
    "schedule({2: 5, 12: 3}, gate=2.6, window=4)": lambda _: Schedule([(2, 5), (12, 3)], 2.6, 4),
    "ema(3, candidates={1: [1, 3, 5], 4: [0, 1, 3], 8: [0, 2]})": lambda _: Ema(
        SLOTS, 3, ((1, -0.25),)
    ),
    "ema(3, candidates={1: [1, 3, 5], 4: [0, 1, 3], 8: [0, 2]}, captured=[1, 4, 8])": (
        lambda _: Ema(SLOTS, 3, (), sizes=[1, 4, 8])
    ),
    "goodput(6)": lambda _: Goodput(6, LINEAR),
    "budget(4)": lambda layout: budget(layout, 4),
    "budget(5, stale=0, search=global, refit=20, least=20)": lambda layout: budget(
        layout, 5, stale=0, first=False, refit=20, least=20
    ),
    "budget(5, stale=3, refit=10, least=10)": lambda layout: budget(
        layout, 5, stale=3, refit=10, least=10
    ),
    "prophet(6)": lambda _: Prophet(6),
}


@pytest.fixture(scope="module")
def trace():
    return synthetic.iid(12, 60, 0.7, max_draft=8, seed=3, eos_prob=0.02)


def same(trace, spec, limits, load, n, first, cost=COST):
    """Hold both servers against each other, step for step and second for second."""
    whole = {k: None if v == math.inf else v for k, v in vars(limits).items()}
    engine = Engine(
        whole["max_batch"], whole["kv_tokens"], whole["chunk"], catch_up=limits.catch_up
    )
    where = setting(trace, cost, first)
    planned = plan(controllers.parse(spec), where, engine, load)
    found = run(planned, How(n, seeds=2), seed=1)
    sizes = sorted({int(size) for size in planned.prices.verify.sizes})
    begin = {"draft": 1, "prefill": 2}[first]
    rule = PLAIN[spec](layout_of(trace))
    if isinstance(rule, Goodput):  # two lengths may promise as much but for the last bits
        t = planned.bound.times
        rule.cost = (
            lambda n: t.round_s + t.round_request_s * n,
            lambda tokens, kv: t.verify_s + t.verify_token_s * tokens + t.verify_kv_s * kv,
        )
    plain = PlainServer(trace, cost.times(trace), sizes, rule, limits, begin)
    arrivals = None if load.concurrency else found.server.arrival_s.tolist()
    requests = plain.run(found.server.sequence.tolist(), arrivals, load.concurrency)
    steps = found.steps
    names = ("iteration", "start", "drafted", "proposed", "accepted", "emitted")
    for request in requests:
        mine = steps["request"] == request.number
        rows = list(zip(*(steps[name][mine].tolist() for name in names), strict=True))
        assert rows == request.log
    np.testing.assert_allclose(found.server.done_s, [r.done for r in requests], rtol=1e-9)
    np.testing.assert_allclose(found.server.first_s, [r.first for r in requests], rtol=1e-9)
    np.testing.assert_allclose(found.server.arrival_s, [r.arrival for r in requests], rtol=1e-9)
    assert found.server.preempted.tolist() == [r.preempted for r in requests]
    return found


@pytest.mark.parametrize("spec", PLAIN)
def test_every_controller_equals_a_plain_one_in_a_closed_loop(trace, spec):
    same(trace, spec, Limits(12), Closed(9), 30, "draft")


@pytest.mark.parametrize("spec", PLAIN)
def test_every_controller_equals_a_plain_one_under_arrivals_that_overload(trace, spec):
    found = same(trace, spec, Limits(6, 400, 16), Poisson(40.0), 40, "prefill")
    assert spec in ("none",) or found.server.drafted.sum() > 0


@settings(max_examples=25, deadline=None)
@given(
    spec=st.sampled_from([s for s in PLAIN if not s.startswith("budget")]),
    max_batch=st.integers(1, 12),
    kv_tokens=st.one_of(st.just(math.inf), st.integers(80, 400)),
    chunk=st.one_of(st.just(math.inf), st.integers(1, 30)),
    load=st.one_of(
        st.integers(1, 14).map(Closed), st.sampled_from([5.0, 30.0, 500.0]).map(Poisson)
    ),
    first=st.sampled_from(["draft", "prefill"]),
)
def test_servers_agree_whatever_their_limits(trace, spec, max_batch, kv_tokens, chunk, load, first):
    same(trace, spec, Limits(max_batch, kv_tokens, chunk), load, 25, first)


@pytest.mark.parametrize(
    "spec", ["none", "ema(3, candidates={1: [1, 3, 5], 4: [0, 1, 3], 8: [0, 2]})", "budget(4)"]
)
def test_an_iterations_overhead_is_that_of_its_batch(trace, spec):
    same(trace, spec, Limits(12), Closed(9), 30, "draft", LOOPING)


@pytest.mark.parametrize("catch_up", [True, False])
@pytest.mark.parametrize("spec", ["off_above(4, batch=3)", "prophet(6)"])
def test_a_draft_model_reads_what_it_missed_unless_that_is_free(trace, spec, catch_up):
    """Batches grow and shrink, so that drafts are left out for some steps."""
    limits = Limits(6, 400, catch_up=catch_up)
    found = same(trace, spec, limits, Poisson(12.0), 40, "draft")
    order = np.lexsort((found.steps["start"], found.steps["request"]))
    drafted, of = (found.steps[name][order] for name in ("drafted", "request"))
    again = (drafted[:-1] == 0) & (drafted[1:] > 0) & (of[1:] == of[:-1])
    assert again.sum() > 5


def test_what_the_times_do_not_know_of_batches_is_said(trace):
    """The bundled pair's own times are those of single passes, over one token of the draft."""
    loop_s, late = "charged the same time outside its passes", "no draft pass over several tokens"
    many = {"concurrency": 4, "requests": 8, "seeds": 1}
    told = {
        "the same for all": serve(trace, ["none", "static(2)"], COST, **many),
        "by batch": serve(trace, ["none", "static(2)"], LOOPING, **many),
        "left out": serve("reference", "prophet(8)", concurrency=1, requests=2, seeds=1),
        "never": serve("reference", "static(2)", concurrency=1, requests=2, seeds=1),
        "for nothing": serve(
            "reference", "prophet(8)", concurrency=1, requests=2, seeds=1,
            engine=Engine(catch_up=False),
        ),
    }  # fmt: skip
    found = {name: "; ".join(served.notes) for name, served in told.items()}
    assert f"every batch is {loop_s}: 0.1 ms and 0.2 ms" in found["the same for all"]
    assert loop_s not in found["by batch"] + found["left out"]
    assert late in found["left out"] and late not in found["never"] + found["for nothing"]


def test_no_controller_sees_a_draft_before_it_is_made_nor_the_future(trace, monkeypatch):
    """The loop that is compiled, here as plain Python; what `budget` is shown, and when."""
    seen = []

    def watched(slot):
        def look(params, state, view, *rest):
            seen.append((slot.__name__, ~np.isnan(view.confidence).all(), (view.ahead >= 0).any()))
            return slot(params, state, view, *rest)

        return look

    slots = controllers.parse("budget(3)").slots
    for stub, slot in zip(("_decide", "_choose", "_observe"), vars(slots).values(), strict=True):
        monkeypatch.setattr(loop, stub, watched(slot))
    monkeypatch.setattr(loop, "_loop", lambda params: loop.iterate)
    serve(trace, "budget(3)", COST, concurrency=2, requests=3, seeds=1, workers=1)
    assert len(seen) > 30
    assert set(seen) == {
        ("_decide", False, False),
        ("_choose", True, False),
        ("_observe", True, False),
    }


def test_goodput_reads_a_linear_cost_off_its_tables(trace):
    where = setting(trace, COST, "draft")
    bound = plan(controllers.parse("goodput(6)"), where, Engine(32), Closed(32)).bound
    assert bound.times == pytest.approx((0, 0, 1e-3, 1e-5, 10.2e-3, 2e-4, 1e-7), rel=0.05)


def test_a_small_cache_preempts(trace):
    found = same(trace, "static(4)", Limits(8, 120), Closed(8), 20, "draft")
    assert found.server.preempted.sum() > 0


def test_lengths_by_batch_are_those_of_the_iteration_before_even_if_it_only_read(trace):
    """Two requests come at once, again and again; both prompts are read before one decodes."""
    spec = "by_batch([[1, 1, 2], [2, 9, 5]])"
    times_s = np.repeat(np.arange(12.0), 2)
    (found,) = serve(trace, spec, COST, arrivals=times_s, seeds=1)
    rows, steps = found.iterations, found.steps
    after_reading = np.flatnonzero(rows["decoding"][:-1] == 0) + 1
    assert (rows["prefilling"][after_reading - 1] == 2).all() and len(after_reading) == 12
    before = (rows["decoding"] + rows["prefilling"])[:-1]
    for k, size in enumerate(before, start=1):
        drafted = steps["drafted"][steps["iteration"] == k]
        assert (drafted <= (2 if size == 1 else 5)).all()
    first = steps["drafted"][np.isin(steps["iteration"], after_reading)]
    assert first.max() == 5
    last_alone = rows["decoding"][after_reading[1:] - 2]
    assert (last_alone == 1).any()  # which the iteration that read has made forgotten


def test_steady_throughput_leaves_out_the_start_and_the_end_of_a_closed_loop(trace):
    """From when request C is done until all but C are, by the times of requests and steps."""
    size, many = 5, 40
    (found,) = serve(trace, "static(3)", COST, concurrency=size, requests=many, seeds=1)
    done_s = np.sort(per_request(found)["done_s"])
    begin_s, end_s = done_s[size - 1], done_s[many - size - 1]
    begun_s = found.iterations["begin_s"][found.steps["iteration"]]
    inside = (begun_s >= begin_s) & (begun_s < end_s)
    wanted = found.steps["emitted"][inside].sum() / (end_s - begin_s)
    row = summary(found)
    assert row["steady_tokens_s"] == pytest.approx(wanted, rel=1e-12)
    assert row["steady_requests_s"] == pytest.approx(wanted / found.output.mean(), rel=1e-12)
    assert row["steady_tokens_s"] > row["tokens_s"]


def test_steady_throughput_of_arrivals_goes_from_the_first_to_the_last(trace):
    """Ten requests long before an eleventh; the idle server's time counts."""
    (found,) = serve(trace, "static(3)", COST, arrivals=[7.0] * 10 + [1007.0], seeds=1)
    tokens = found.output[:10].sum()
    assert summary(found)["steady_tokens_s"] == pytest.approx(tokens / 1000, rel=1e-12)


@pytest.mark.parametrize(
    "given",
    [
        {"concurrency": 1, "requests": 6},
        {"concurrency": 4, "requests": 8},
        {"concurrency": 8, "requests": 3},
        {"concurrency": 1, "requests": 1},
        {"copies": 4, "requests": 12},
        {"copies": 1, "requests": 5},
        {"rate": 5.0, "requests": 1},
        {"arrivals": [2.0, 2.0, 2.0]},
    ],
)
def test_steady_throughput_is_the_whole_runs_where_there_is_no_such_time(trace, given):
    (found,) = serve(trace, "static(3)", COST, seeds=1, **given)
    row = summary(found)
    assert row["steady_tokens_s"] == pytest.approx(row["tokens_s"], rel=1e-12)
    assert 0 < row["steady_requests_s"] < math.inf


def test_steady_throughput_hardly_hangs_on_how_many_requests_there_are():
    """A few outputs are long: the end of a run, when they alone are left, biases all of it."""
    trace = synthetic.iid(40, 120, 0.7, max_draft=8, seed=5, eos_prob=0.03)
    speed = {}
    for each in (8, 64):
        how = {"concurrency": 32, "requests": 32 * each, "seeds": 4}
        row = serve(trace, "static(3)", COST, **how).records()[0]
        speed[each] = np.array([row["steady_tokens_s"], row["tokens_s"]])
    steady, whole = speed[8] / speed[64] - 1
    assert abs(steady) < 0.02 and whole < -0.04


@pytest.mark.parametrize(
    ("sizes", "changed"),
    [
        (None, 4),  # of speculation: 31, 61, 62 and 63
        ([1, 2, 4, 8, 12, *range(16, 257, 8)], 17),  # of plain decoding: 27%
        ([], 0),
        ([1, 2, 4, 8], 3),  # larger batches are not padded
    ],
)
def test_a_slot_is_that_of_the_padded_batch(sizes, changed):
    """SGLang's lists of captured sizes; of batches of 1 to 64 so many have another slot."""
    given = "" if sizes is None else f", captured={sizes}"
    found = controllers.parse(f"ema(3{given})").params.slot
    plain = Ema(CANDIDATES, 3, (), sizes=sizes)
    keys = list(plain.slots)
    last = len(found) - 1
    mine = [keys[found[min(n, last)]] for n in range(1, 400)]
    assert mine == [key_of(plain, n) for n in range(1, 400)]
    bare = Ema(CANDIDATES, 3, (), sizes=[])
    assert sum(key != key_of(bare, n) for n, key in enumerate(mine[:64], start=1)) == changed


def key_of(rule, n):
    return next(key for key, slot in rule.slots.items() if slot is rule.slot(n))


def test_a_slot_without_hysteresis_has_sglangs():
    found = controllers.parse("ema(3, candidates={1: [1], 4: [2], 8: [0]}, down={4: 0.5})")
    assert found.params.down.tolist() == [-0.25, 0.5, -0.25]
    assert controllers.parse("ema(3)").params.down.tolist() == [-0.25, 0.0, 0.0, 0.0]


@pytest.mark.parametrize("sizes", ["[4, 2]", "[0]", "[1.5]", "3", "[2, 2]"])
def test_captured_sizes_of_ema_ascend(sizes):
    with pytest.raises(PolicyError, match="ema: captured are whole numbers"):
        controllers.parse(f"ema(3, captured={sizes})")


def test_hysteresis_is_of_a_slot_that_there_is():
    with pytest.raises(PolicyError, match="down names 16, which is no key of candidates"):
        controllers.parse("ema(3, candidates={1: [1], 4: [2]}, down={16: 0.5})")


REFUSED = {
    "rates": (dict(rates=0.5), "rates must be a list of numbers, not 0.5"),
    "arrivals": (dict(concurrency=None, arrivals=["a"]), "arrivals must be a list of numbers"),
    "limits": (dict(limits=["ttft_s"]), "limits must have names"),
    "controllers": (dict(controllers=None), "None is no controller"),
    "engine": (dict(engine=5), "5 is no engine"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_is_refused_in_a_sentence(case):
    given, expected = REFUSED[case]
    with pytest.raises(UserError, match=expected):
        simkit.serve("reference", **dict(controllers="none", cost=QUICK, concurrency=2) | given)
    with pytest.raises(UserError, match="captured must be a list of numbers"):
        simkit.serving.Engine(captured=5)  # type: ignore[arg-type]


QUICK = "linear(draft_s=1, target_s=10, draft_per_token_s=0.01, target_per_token_s=0.1)"


@pytest.mark.parametrize("first_token", ["draft", "prefill"])
def test_tokens_a_step_are_those_of_steps(first_token):
    """A token that the prefill gives is no step's."""
    some = select(traces.load("reference"), range(12), max_new_tokens=4)
    found = simkit.serve(
        some, ["none", "static(3)"], QUICK, concurrency=2, seeds=1, first_token=first_token
    )
    for one, row in zip(found.runs, found.records(), strict=True):
        assert row["tokens_step"] == pytest.approx(one.steps["emitted"].mean())
    assert found.records()[0]["tokens_step"] == 1
    assert "emitted/\nstep" in [str(column.header) for column in found.table().columns]


@pytest.mark.parametrize("first_token", ["draft", "prefill"])
def test_a_gate_counts_no_token_of_the_prefill(first_token):
    """Nothing is accepted, so all steps give one token, and the gate ends drafting."""
    length, deepest, n = 4, 3, 10
    keys = np.array(
        [(s, i, d) for s in range(n) for i in range(1, length + 1) for d in range(1, deepest + 1)]
    )
    trace = from_drafts(
        {
            "n_output": np.full(n, length),
            "output_tokens": [list(range(length))] * n,
            "finish_reason": ["unknown"] * n,
        },
        {
            "sequence": keys[:, 0].astype(np.int32),
            "start": keys[:, 1].astype(np.int32),
            "depth": keys[:, 2],
            "accepted": np.zeros(len(keys), bool),
        },
        max_draft=deepest,
        max_new_tokens=length + 64,
    )
    spec = "schedule({4: 3}, gate=1.2, window=4)"
    how = {"concurrency": 2, "requests": 60, "seeds": 1, "first_token": first_token}
    (run,) = simkit.serve(trace, [spec], QUICK, **how).runs
    drafts = run.steps["drafted"] > 0
    assert drafts[:4].any() and not drafts[len(drafts) // 2 :].any()


def test_requests_that_come_before_any_has_a_token():
    found = simkit.serve("reference", ["none", "static(3)"], QUICK, rate=200, requests=20, seeds=1)
    for row in found.records():
        assert row["steady_tokens_s"] == pytest.approx(row["tokens_s"])
    assert "ZeroDivision" not in found.answer()


def test_the_answer_denies_no_gain_that_a_row_shows():
    """The most tokens by its mean, but with a wide interval, is not the only controller."""
    some = select(traces.load("reference"), range(8))
    found = simkit.serve(
        some, ["none", "static(1)", "static(2)", "static(7)"], QUICK,
        concurrency=2, requests=60, seeds=4,
    )  # fmt: skip
    gains = [row["controller"] for row in found.records() if (row["steady_against_lo"] or 0) > 1]
    assert gains and "no controller" not in found.answer()
    assert any(name in found.answer() for name in gains)


def test_the_best_row_has_a_number():
    some = select(traces.load("reference"), range(12), max_new_tokens=3)
    found = simkit.serve(some, ["none", "static(3)"], QUICK, concurrency=2, seeds=2)
    for measure in ("user_tokens_s", "steady_against_lo"):
        (best,) = found.best(measure)[measure].to_list()
        known = [row[measure] for row in found.frame.to_dicts()]
        numbers = [x for x in known if x is not None and x == x]
        assert not numbers or best == max(numbers)
