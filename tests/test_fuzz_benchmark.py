"""A slice of the benchmark that breaks inputs; and it sees what it looks for."""

import json
import os
import random
import shutil
from itertools import islice

import pytest

from benchmarks.fuzz import alter, engine_logs, families, inputs, judge, mutants, workers
from benchmarks.fuzz.families import FAMILIES
from benchmarks.fuzz.judge import FAULTS, FaultError
from simkit.errors import CostError
from traces import lazy_checks, parquet
from traces.schema import LATENCY, LIVE


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sound")
    inputs.make(folder)
    families.sound(folder)  # else what is refused later would prove nothing
    return folder


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def cases(family, n):
    return list(islice(workers.numbers(family), n))


@pytest.mark.parametrize("family", FAMILIES)
def test_nothing_gets_through(base, tmp_path, family):
    found = [
        workers.one(3, number, base, tmp_path)
        for number in cases(family, 1 if family in families.SLOW else 4)
    ]
    assert [case for case in found if case.word in FAULTS] == []
    assert {case.family for case in found} == {family}


def test_all_families_take_turns():
    quick = len(FAMILIES) - len(families.SLOW)
    assert {workers.family_of(n) for n in range(quick)} == {*FAMILIES} - {*families.SLOW}
    assert {workers.family_of(n) for n in range(50 * quick)} == {*FAMILIES}


def test_every_guard_is_where_the_list_has_it():
    assert len(mutants.GUARDS) >= 40
    for guard in mutants.GUARDS.values():
        function, code = mutants.changed(guard)
        assert function.__code__.co_code != code.co_code or function.__code__ != code, guard.name
        assert guard.family in FAMILIES


@pytest.mark.parametrize(
    ("where", "old"),
    [
        ("traces.checks:check_keys", "a text that is not there"),
        ("traces.checks:check_keys", "rows"),  # more than once
        ("traces.checks:gone", "rows"),
    ],
)
def test_a_guard_that_has_moved_is_said(where, old):
    with pytest.raises(LookupError, match="a name: "):
        mutants.changed(mutants.Guard("a name", "specs", where, old, ""))


@pytest.mark.parametrize(
    "name",
    [
        "hashes at the first look",
        "drafters of another recording",
        "accepted drafts that are not the output's",
        "siblings without ranks",
        "values of lattices",
        "means that counts do not give",
    ],
)
def test_a_missing_guard_is_found(base, tmp_path, name):
    guard = mutants.GUARDS[name]
    found = mutants.hunt(guard, lambda *case: workers.one(0, case[0], base, tmp_path, case[1]))
    assert found.found is not None and found.found.word in FAULTS
    assert mutants.changed(guard)[0].__code__ != mutants.changed(guard)[1], "it is back"
    assert "1 of 1 guards were found missing (100%)" in mutants.table([found])[-1]


def test_a_case_is_its_seed(base, tmp_path):
    one, two = (workers.one(3, 1, base, tmp_path) for _ in range(2))
    assert one[:4] == two[:4]


def test_wrong_numbers_are_seen(base, tmp_path, monkeypatch):
    """Without the look at content, what was altered is read as if nothing had happened."""
    sound, trace = base / "sampled", tmp_path / "sampled"
    monkeypatch.setattr(lazy_checks.Look, "_see", lambda *_: None)
    shutil.copytree(base / "greedy", trace)
    with pytest.raises(FaultError) as fault:
        judge.judged(random.Random(0), sound, trace)
    assert fault.value.args[0] == "wrong number"


def test_a_policy_that_is_left_out_is_refused_alone():
    rows = [{"policy": "fixed(3)", "steps": 3}, {"policy": "svip()", "steps": 4}]
    both, first, other = (json.dumps(some) for some in (rows, rows[:1], [rows[0] | {"steps": 2}]))
    note = "note: svip() is left out: draft_prob is 1.5"
    assert judge.told(judge.Ended(0, both, ""), both).word == judge.EQUAL
    assert judge.told(judge.Ended(0, first, note), both) == (judge.REFUSED, note)
    for out, err in ((first, ""), (other, note), (other, ""), (both.replace("4", "5"), note)):
        with pytest.raises(FaultError, match="instead of"):
            judge.told(judge.Ended(0, out, err), both)


@pytest.mark.parametrize("raised", [ValueError("x"), MemoryError(), SystemExit(1)])
def test_tracebacks_and_exits_are_seen(base, tmp_path, monkeypatch, raised):
    def broken(*_):
        raise raised

    monkeypatch.setattr(judge, "main", broken)
    case = workers.one(0, cases("specs", 1)[0], base, tmp_path)
    assert case.word == ("wrong exit" if isinstance(raised, SystemExit) else "traceback")


@pytest.mark.parametrize("name", ["cost.parquet", "live.parquet"])
def test_one_bit_of_times(base, tmp_path, name):
    """300 single flips: refused, or the same samples are read."""
    rng, data, file = random.Random(2), (base / name).read_bytes(), tmp_path / name
    schema = LATENCY if name == "cost.parquet" else LIVE
    truth = parquet.read_samples(base / name, schema, CostError)
    refused = 0
    for _ in range(300):
        other = bytearray(data)
        other[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        file.write_bytes(other)
        try:
            assert parquet.read_samples(file, schema, CostError) == truth
        except CostError:
            refused += 1
    assert refused > 150


def test_bytes_are_altered():
    rng, data = random.Random(0), bytes(range(256)) * 9
    assert sum(alter.alter_bytes(rng, data) != data for _ in range(100)) > 80
    assert alter.alter_bytes(random.Random(1), b"") is not None


@pytest.mark.parametrize(("limit", "word"), [("MOST_SECONDS", "hang"), ("MOST_BYTES", "memory")])
def test_processes_are_watched(monkeypatch, limit, word):
    class Silent:
        pid = os.getpid()

        def poll(self, seconds):
            return False

    monkeypatch.setattr(workers, limit, 0)
    assert workers._wait(Silent(), Silent(), 0).word == word


@pytest.mark.parametrize(
    ("name", "old", "new", "free"),
    [
        ("num_spec_tokens", 3, 4, True),  # a bound that no step reaches
        ("num_spec_tokens", 3, 2, False),
        ("num_spec_tokens", 3, 4.0, False),
        ("spec_accept_rate", 0.5333, 0.5, True),  # in fewer digits
        ("spec_accept_rate", 0.5333, 0.53, True),
        ("spec_accept_rate", 0.5333, 0.54, False),
        ("mean_acceptance_length", 2.6, 3, False),
        ("id", "r0", [], True),
        ("num_spec_steps", 8, 9, False),
        ("completion_tokens", 21, 22, False),
    ],
)
def test_what_no_other_field_of_a_log_could_contradict(name, old, new, free):
    assert engine_logs._is_free(name, old, new) is free
