"""What a decision takes: no rule is free because nobody has timed it."""

import itertools

import numpy as np
import pytest
from replay_traces import build
from test_costs_models import samples

import simkit
from simkit import policies
from simkit.costs import CostError, Linear, Measured
from simkit.costs.base import GIVEN, IN_DECODERS, NOT_TIMED
from simkit.policies import FunctionPolicy, from_function
from simkit.simulator import kept_times, rule_time
from simkit.simulator.rule_time import MICROBENCHMARKS
from traces.schema import DRAFT_STATISTICS
from traces.synthetic import iid

PASSES = (("draft", 1, 9, 0.1), ("target", 1, 9, 1.0))
READING_S = 0.25


HERE = "microbenchmark on this machine, not timed with the passes"


@pytest.fixture(autouse=True)
def anew(monkeypatch, tmp_path):
    """Nothing is kept yet; nor is anything afterwards."""
    monkeypatch.setattr(kept_times, "cache_folder", lambda: tmp_path)
    MICROBENCHMARKS.forget()
    yield
    MICROBENCHMARKS.forget()


def timed_trace(*rules):
    times = samples(*PASSES, *((f"policy:{name}", 1, 0, s) for name, s in rules))
    return build([[(1, 1)] * 5] * 12, t_max=5, max_draft=5, latency=times)


@pytest.fixture(scope="module")
def trace():
    return timed_trace(("svip", 0.5), ("cumulative_confidence", READING_S), ("llamacpp", 0.75))


def product(depth, row):
    return row.draft_prob_raw < 0.1


def test_a_rule_that_was_timed_is_charged_that(trace):
    result = simkit.replay(trace, ["svip(h=1)", "fixed(2)", "oracle", "pearl(2)"])
    assert result.rule_times == {"svip(h=1)": (0.5, IN_DECODERS)}
    assert f"time of rules: svip: {IN_DECODERS}" in result.notes
    record = result.records()[0]
    assert record["policy_s"] == pytest.approx(0.5 * record["drafted"])


def test_a_function_costs_what_the_policy_costs_that_reads_the_same(trace):
    """In a decoder a decision is mostly what it reads: the built-in rule is no dearer."""
    result = simkit.replay(trace, [product, "cumulative_confidence(0.1)"])
    (mine, how), (theirs, _) = result.rule_times.values()
    assert mine == pytest.approx(theirs, rel=0.02)
    assert how == f"{HERE}, with the reading time of cumulative_confidence"
    rows = result.records()
    assert rows[0]["policy_s"] == pytest.approx(mine * rows[0]["drafted"])
    assert any("time of rules: product: microbenchmark" in note for note in result.notes)
    assert "time of rules: product: microbenchmark" in result._repr_html_()


def test_a_built_in_rule_written_anew_is_no_faster_on_the_reference_trace():
    """It was free before, and at 1.696 beat the same rule's 1.666."""
    product = [1.0]

    def running_product(depth, row):
        product[0] = row.draft_prob_raw * (product[0] if depth > 1 else 1)
        return product[0] < 0.1

    mine, theirs = simkit.replay(
        "reference", [running_product, "cumulative_confidence(0.1)"]
    ).records()
    assert [mine[k] for k in ("steps", "drafted")] == [theirs[k] for k in ("steps", "drafted")]
    assert mine["policy_s"] == pytest.approx(theirs["policy_s"], rel=0.05)
    assert mine["speedup"] == pytest.approx(theirs["speedup"], rel=1e-3)


def test_a_quick_rule_says_what_reading_takes():
    """Much of an elaborate rule's time is its own, and that was taken on another machine."""
    trace = timed_trace(("confidence_adaptive", 1e-4), ("confidence", READING_S))
    (seconds, how) = simkit.replay(trace, product).rule_times["product"]
    assert how.endswith("the reading time of confidence") and seconds == pytest.approx(
        READING_S, rel=0.02
    )


def test_only_what_a_function_looks_at_counts(trace):
    """All columns are there for it; it pays for those that it asks for."""
    by_name = from_function(lambda d, row: row.draft_entropy > 2, DRAFT_STATISTICS)
    assert by_name.looks_at([(1, (0.5,) * 6)]) == ("draft_entropy",)
    unpacked = from_function(lambda d, row: sum(row) > 2, ("draft_prob", "draft_entropy"))
    assert unpacked.looks_at([(1, (0.5, 0.5))]) == ("draft_prob", "draft_entropy")
    blind = from_function(lambda depth, row: depth > 3, ("draft_prob",))
    assert blind.looks_at([(1, (0.5,))]) == ()
    times = simkit.replay(trace, [lambda depth, row: depth > 3]).rule_times
    (seconds, how) = times["<lambda>"]
    assert 0 < seconds < 1e-3 and how == HERE


def test_a_plug_in_class_is_timed_too(trace):
    class Mine(policies.Confidence):
        name = "mine"

    (seconds, how) = simkit.replay(trace, [Mine(0.3)]).rule_times["mine(threshold=0.3)"]
    assert seconds >= READING_S and "microbenchmark" in how


def test_where_no_rule_was_timed_the_rule_alone_is():
    result = simkit.replay(timed_trace(), ["svip(h=1)", product])
    hows = {how for _, how in result.rule_times.values()}
    assert hows == {f"{HERE}, without reading its columns"}
    assert all(0 < seconds < 1e-3 for seconds, _ in result.rule_times.values())


def test_a_slower_rule_costs_more(monkeypatch):
    """By a made-up clock, on which each question takes so many ticks of the rule's own."""
    now = [0.0]
    monkeypatch.setattr(rule_time.time, "perf_counter", lambda: now[0])

    def costly(seconds):
        def rule(depth, row):
            now[0] += seconds
            return depth >= 2

        return rule

    found = simkit.replay(timed_trace(), [costly(1e-3), costly(3e-3)]).rule_times
    assert [seconds for seconds, _ in found.values()] == pytest.approx([1e-3, 3e-3])


def test_settings_of_a_rule_and_later_replays_have_one_time(trace):
    first = simkit.replay(trace, ["confidence(0.2)", "confidence(0.7)"]).rule_times
    assert len({taken for taken in first.values()}) == 1
    again = simkit.replay(trace, ["confidence(0.7)"]).rule_times["confidence(threshold=0.7)"]
    assert again == first["confidence(threshold=0.7)"]
    swept = simkit.sweep(trace, "confidence(threshold=0.1:0.9:0.4)")
    assert swept.columns["policy_s"] == pytest.approx(swept.columns["drafted"] * again.seconds)
    (note,) = [note for note in swept.notes if "time of rules" in note]
    assert note.startswith("time of rules: confidence: microbenchmark")
    assert note in swept._repr_html_() and swept.facts["notes"] == swept.notes


def test_policy_s_stands_for_rules_that_were_not_timed(trace):
    result = simkit.replay(trace, [product, "svip(h=1)"], Measured(policy_s=0.125))
    assert result.rule_times == {"product": (0.125, GIVEN), "svip(h=1)": (0.5, IN_DECODERS)}
    assert simkit.costs.parse("measured(policy_s=0.125)") == Measured(policy_s=0.125)
    with pytest.raises(CostError, match="policy_s must be a number >= 0, not -1"):
        Measured(policy_s=-1)


def test_costs_that_are_given_say_so():
    trace = iid(12, 20, 0.6, max_draft=20, seed=0)
    for policy_s, how in ((0.0, NOT_TIMED), (1e-3, GIVEN)):
        cost = Linear(draft_s=1, target_s=8, policy_s=policy_s)
        assert simkit.replay(trace, [product, "fixed(2)"], cost).notes == [
            f"time of rules: product: {how}"
        ]
    assert simkit.tune(trace, "svip(h=0.2:0.6:0.2)", cost).notes == (
        f"time of rules: svip: {GIVEN}",
    )
    assert (
        simkit.replay(trace, [product]).notes == []
        and simkit.replay(trace, product).rule_times == {}
    )


def test_a_function_that_was_calibrated_goes_by_its_label():
    """And apart from the policies: one that is called svip is not svip."""
    trace = timed_trace(("function:svip", 0.5), ("svip", 0.125))

    def svip(depth, row):
        return False

    assert simkit.replay(trace, [svip]).rule_times == {"svip": (0.5, IN_DECODERS)}
    assert isinstance(from_function(svip), FunctionPolicy)


def test_a_stateful_rule_is_asked_as_in_a_replay(trace):
    """State goes from question to question, arrays that are filled in place too."""
    for spec in ("confidence_adaptive", "adaedl", "heuristic", "draft_verify"):
        policy = policies.parse(spec)
        layout = simkit.simulator.arguments.setting(trace, None, "draft").layout
        script = rule_time._script(policy, layout)
        n = sum(name == "trips" for name, _ in script.calls)
        assert script.decisions == n > 0
        assert np.isfinite(rule_time._timed(policy, script))


def looking(least):
    """A rule that is known by its code and by what it closes over."""

    def rule(depth, row):
        return row.draft_prob_raw < least

    return from_function(rule, ("draft_prob_raw",), "rule")


def test_a_rule_is_timed_once_on_a_machine(monkeypatch):
    """Another process has the same seconds: its numbers differed from run to run."""
    trace, seconds = timed_trace(), []
    for _ in range(3):
        MICROBENCHMARKS.forget()  # as a new process does
        result = simkit.replay(trace, [looking(0.1), "svip(h=1)"])
        seconds.append(result.rule_times)
        monkeypatch.setattr(rule_time, "_timed", lambda policy, script: 17.0)
    assert seconds[0] == seconds[1] == seconds[2]
    assert all(how == f"{HERE}, without reading its columns" for _, how in seconds[0].values())
    (other, _) = simkit.replay(trace, looking(0.2)).rule_times["rule"]
    assert other == 17  # another value is another rule


def helper(depth, x):
    return x < 0.1


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (looking(0.1), looking(0.1), True),
        (looking(0.1), looking(0.2), False),
        (from_function(lambda d, r: d > 3), from_function(lambda d, r: d > 4), False),
        (policies.SVIP(0.1), policies.SVIP(0.2), True),
        (policies.SVIP(), policies.Confidence(), False),
        (from_function(helper, (), "a"), from_function(helper, (), "b"), False),
    ],
)
def test_what_a_time_belongs_to(one, other, same):
    keys = kept_times.key_of(one), kept_times.key_of(other)
    assert all(keys) and (keys[0] == keys[1]) == same


@pytest.mark.parametrize("name", policies.names())
def test_our_own_rules_are_known_to_other_processes(name):
    policy = policies.get(name)()
    assert kept_times.key_of(policy) or not policy.looks


def test_a_rule_that_no_other_process_would_know_is_timed_by_each():
    trace, told = timed_trace(), []
    result = simkit.replay(trace, from_function(lambda d, r: told.append(d) or d > 2, (), "noting"))
    assert result.rule_times["noting"].how == f"{HERE} and timed anew by each process"
    assert kept_times.key_of(from_function(print)) == ""


def test_another_machine_and_other_versions_time_anew(monkeypatch):
    before = kept_times.key_of(policies.SVIP())
    assert kept_times.key_of(policies.SVIP()) == before
    monkeypatch.setattr(kept_times.platform, "node", lambda: "elsewhere")
    assert kept_times.key_of(policies.SVIP()) != before


@pytest.mark.parametrize("content", ["", "{", "[]", '{"seconds": -1.0}', '{"seconds": "1"}'])
def test_a_damaged_time_is_made_anew(tmp_path, content):
    key = kept_times.key_of(policies.SVIP())
    assert kept_times.keep(key, "svip", 0.25) == kept_times.kept(key) == 0.25
    assert kept_times.keep(key, "svip", 0.5) == 0.25  # the first one stays
    (file,) = (tmp_path / "rules").iterdir()
    file.write_text(content)
    assert kept_times.kept(key) is None
    assert kept_times.keep(key, "svip", 0.5) == 0.5


def test_a_cache_that_cannot_be_written_stops_nothing(monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setattr(kept_times, "cache_folder", lambda: tmp_path / "file")
    times = simkit.replay(timed_trace(), looking(0.1)).rule_times["rule"]
    assert times.how == f"{HERE} and timed anew by each process, without reading its columns"


def test_a_rule_that_drafts_nothing_here_is_not_free():
    """Its time is kept for all drafters, and on another one it may draft."""
    trace = iid(8, 40, 0.5, max_draft=8, seed=0)
    cost = Linear(draft_s=100.0, target_s=1.0)
    setting = simkit.simulator.arguments.setting(trace, cost, "draft")
    policy = policies.parse("rate_optimal(max_draft=8)").bind(setting)
    assert simkit.replay(trace, "rate_optimal(max_draft=8)", cost).records()[0]["drafted"] == 0
    script = rule_time._script(policy, setting.layout)
    assert script.decisions > 0 and rule_time._timed(policy, script) > 0


@pytest.mark.parametrize(("every", "share"), [(2, 0.5), (8, 1.0)])
def test_a_rule_that_drafts_rarely_is_asked_in_every_step(monkeypatch, every, share):
    """Else the time of its steps without a draft would be that of its few decisions."""
    trace = iid(8, 40, 0.5, max_draft=8, seed=0)
    layout = simkit.simulator.arguments.setting(trace, None, "draft").layout
    policy = policies.parse("fixed(1)")
    steps = itertools.count()
    monkeypatch.setattr(type(policy), "limit", lambda *_: int(next(steps) % every == 0))
    script = rule_time._script(policy, layout)
    done = sum(name == "update" for name, _ in script.calls)
    assert script.decisions == pytest.approx(share * done, rel=0.05)


def test_a_rule_that_fails_where_it_would_not_draft_stops_no_replay(monkeypatch):
    trace = iid(8, 40, 0.5, max_draft=8, seed=0)
    layout = simkit.simulator.arguments.setting(trace, None, "draft").layout
    policy = policies.parse("confidence(threshold=0.5)")
    cls = type(policy)
    monkeypatch.setattr(cls, "limit", lambda self, state, ahead: 0)

    def trips(self, state, depth, row):
        raise IndexError

    monkeypatch.setattr(cls, "trips", trips)
    assert rule_time._script(policy, layout).decisions == 0
