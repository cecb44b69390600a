"""A doctor for logs: sound ones look like no known fault, and each planted fault is found."""

import random
from functools import cache

import numpy as np
import pytest
from commands import refused, run
from engine_logs import response, sglang_meta
from test_import import written
from test_log_laws import (
    aiperf_line,
    llama_cpp,
    odd,
    one_too_many,
    zeros_at_the_end,
    zeros_at_the_start,
)
from written_logs import FORMS, replayed, write

import simkit
from simkit.importers import aiperf, faults, sglang, vllm
from simkit.importers.doctor import examine
from simkit.importers.ledger import LAWS

TRACES = [
    ("smollm2", None),
    ("smollm2-sampled", None),
    ("smollm2-long", None),
    ("reference", None),
    ("reference-sampled", None),
    ("reference", "eagle"),
    ("reference", "pard"),
]
LENGTHS = (1, 2, 3, 4, 6)
N_FILES = 200


@cache
def requests_of(name, drafter, length):
    return replayed(name, f"fixed({length})", drafter=drafter)


def seen(found):
    return {fault.name: fault.seen for fault in found.faults if fault.seen}


@pytest.mark.parametrize("part", range(4))
def test_none_of_200_sound_files_looks_like_a_fault(tmp_path, part):
    """Replays of bundled traces whose outputs do not loop, in every engine's form."""
    rng = random.Random(part)
    for number in range(N_FILES // 4):
        form = sorted(FORMS)[number % len(FORMS)]
        length = rng.choice(LENGTHS)
        every = requests_of(*rng.choice(TRACES), length)
        some = rng.sample(every, min(len(every), rng.randint(3, 40)))
        engine, _, load = FORMS[form]
        file = write(tmp_path / "log.jsonl", form, some, length)
        found = examine(lambda load=load, file=file, k=length: load(file, k))
        assert found.is_sound, (form, length, found)
        assert not any(law.broken for law in found.laws)
        assert found.requests == len(some)


def past_end(name, d, a):
    """The last draft was accepted whole, and its output ends with its first token."""
    return name, d, [*a[:-1], 4]


def one_more(name, d, a):
    return name, [6] * len(d), [x + 1 for x in a]


def one_fewer(name, d, a):
    return name, d, a


def even(name, d, a):
    each, more = divmod(sum(a), len(a))
    return name, d, [each] * (len(a) - more) + [each + 1] * more


def loop(name, d, a):
    return (name, d + [4] * 60, a + [4] * 60) if name in ("r3", "r7") else (name, d, a)


OFF = {"past_end": -4, "one_more_a_step": "less", "one_fewer_a_step": "more"}
PLANTED = [
    ("past_end", past_end),
    ("one_more_a_step", one_more),
    ("one_fewer_a_step", one_fewer),
    ("rooted", one_too_many),
    ("zero_filled", zeros_at_the_end),
    ("placeholders", zeros_at_the_start),
    ("even_spread", even),
    ("loops", loop),
]


def planted(name, change):
    """Thirty requests of forty steps with a fault in them."""
    lines = odd(change)
    for line in lines:
        steps = line["metrics"]["speculative_decoding"]["num_spec_steps"]
        off = OFF.get(name, 0)
        off = {"less": -steps, "more": steps}.get(off, off)
        line["usage"]["completion_tokens"] += off
    return lines


@pytest.mark.parametrize(("name", "change"), PLANTED)
def test_each_planted_fault_is_found(tmp_path, capsys, name, change):
    """At the check, by its name and its public source; and beside every number that comes of it."""
    file = written(tmp_path, planted(name, change))
    found = examine(lambda: vllm.load(file))
    assert [*seen(found)] == [name]
    status, said, _ = run(capsys, "import", "vllm", file, "--check")
    row = next(fault for fault in faults.FAULTS if fault.name == name)
    assert status == 1 and row.source in said
    status, _, err = run(capsys, "import", "vllm", file, "--out", tmp_path / "log")
    assert row.source in err and row.words in err
    if status == 0:
        assert row.words in run(capsys, "replay", tmp_path / "log", "--policy", "fixed(2)")[2]
    else:  # refused with the same words, in one line
        assert status == 2 and err.count("\n") == 1 and not (tmp_path / "log").exists()


def test_the_same_requests_without_the_fault_are_sound(tmp_path):
    file = written(tmp_path, odd(lambda *row: row))
    assert examine(lambda: vllm.load(file)).is_sound


@pytest.mark.parametrize("form", ["vllm", "aiperf", "llama.cpp", "openvino", "vllm offline"])
def test_outputs_that_loop_are_found_in_logs_with_steps(tmp_path, form):
    """No fault was planted: some outputs of `reference` repeat themselves, by their tokens.

    There are loops of the target alone, too: they look like drafts that were filled in.
    """
    sound, looping = requests_of("reference", None, 3), replayed("reference", "fixed(3)", True)
    engine, _, load = FORMS[form]
    file = write(tmp_path / "log.jsonl", form, [*sound, *looping], 3)
    found = seen(examine(lambda: load(file, 3)))
    assert "loops" in found and found.keys() <= {"loops", "zero_filled"}


def test_faults_of_sglang_are_found_by_its_sums(tmp_path):
    """Its proposals with the root, and its bonus or a token less in each step's count."""
    bonus = sglang_meta([0, 10, 10, 10], 3, 61 - 30 + 30)
    lines = [
        (sglang_meta([10, 10, 10, 5], 3, 81, spec_num_proposed_drafts=140), "rooted"),
        (bonus | {"completion_tokens": 61}, "one_more_a_step"),
        (sglang_meta([10, 10, 10, 5], 3, 81 + 35), "one_fewer_a_step"),
    ]
    for meta, name in lines:
        meta = {k: v for k, v in meta.items() if k not in ("spec_accept_rate",)}
        meta.pop("spec_accept_length")
        file = written(tmp_path, [{"meta_info": meta}])
        assert [*seen(examine(lambda file=file: sglang.load(file, 3)))] == [name]


def test_a_histogram_that_aiperf_made_up_is_named(tmp_path):
    more = {"completion_tokens": 17, "num_accepted_draft_tokens": 10, "num_spec_steps": 7}
    more |= {"num_draft_tokens": 24, "num_spec_tokens": 4, "mean_acceptance_length": 1 + 10 / 7}
    more |= {"draft_acceptance_rate": 10 / 24}
    file = written(tmp_path, [llama_cpp(**more)])
    assert [*seen(examine(lambda: aiperf.load(file)))] == ["even_spread"]
    file = written(tmp_path, [llama_cpp(**more, acceptance_histogram=None)])
    assert examine(lambda: aiperf.load(file)).is_sound


def test_nodes_of_a_tree_are_no_drafted_tokens(tmp_path):
    line = aiperf_line("tensorrt_llm", [8, 8], [2, 3], 8, num_spec_tokens=3)
    line["spec_decode_acceptance"]["acceptance_histogram"] = {"2": 1, "3": 1}
    file = written(tmp_path, [line])
    assert [*seen(examine(lambda: aiperf.load(file)))] == ["rooted"]


BROKEN = {
    "output": lambda line: line["usage"].update(completion_tokens=2, total_tokens=7),
    "sums": lambda line: metrics_of(line).update(num_draft_tokens=7),
    "histogram": lambda line: metrics_of(line).update(acceptance_histogram=[2, 0, 0, 1]),
    "length": lambda line: metrics_of(line).update(per_step_accepted=[1, 3, 4]),
    "means": lambda line: metrics_of(line).update(mean_acceptance_length=2.5),
    "total": lambda line: line["usage"].update(total_tokens=99),
}


def metrics_of(line):
    return line["metrics"]["speculative_decoding"]


@pytest.mark.parametrize("law", sorted(BROKEN))
def test_a_law_that_is_broken_fails_and_others_are_looked_at(tmp_path, capsys, law):
    """All lines are read: the check goes on behind the first that an import would refuse."""
    lines = [response(f"r{k}", 5, 8, [3, 3, 3], [1, 3, 0]) for k in range(4)]
    for line in lines:
        line["usage"]["total_tokens"] = 13
    BROKEN[law](lines[1])
    file = written(tmp_path, lines)
    found = examine(lambda: vllm.load(file))
    assert found.requests == 3 and len(found.refused) == 1 and ": line 2: " in found.refused[0]
    verdicts = {name: row.verdict for name, row in zip(LAWS, found.laws, strict=True)}
    assert verdicts.pop(law) == "fail" and verdicts.pop("stream") == "not there"
    assert set(verdicts.values()) == {"pass"}
    status, said, _ = run(capsys, "import", "vllm", file, "--check")
    assert status == 1 and "3 requests with 9 steps are read, 1 line refused" in said
    assert not list(tmp_path.glob("*.parquet"))


def test_a_file_that_holds_no_log_is_refused_in_a_line(tmp_path, capsys):
    for lines, what in (([], "there is no record"), ([{"id": 1}], "no line has"), (["x"], "JSON")):
        assert what in refused(capsys, "import", "vllm", written(tmp_path, lines), "--check")
    file = written(tmp_path, odd(lambda *row: row))
    assert "writes no trace" in refused(
        capsys, "import", "vllm", file, "--check", "--out", tmp_path / "x"
    )
    assert "--check" in refused(capsys, "import", "tokens", file, "--check")
    assert "--out is missing" in refused(capsys, "import", "vllm", file)


def test_every_line_may_be_refused(tmp_path):
    line = response("a", 5, 8, [3, 3, 3], [1, 3, 0])
    line["usage"]["completion_tokens"] = 2
    found = examine(lambda: vllm.load(written(tmp_path, [line])))
    assert found.requests == 0 and len(found.refused) == 1


def test_the_table_has_a_name_a_predicate_words_and_a_source():
    names = [fault.name for fault in faults.FAULTS]
    assert len(set(names)) == len(names) == 8
    for fault in faults.FAULTS:
        assert (
            callable(fault.find) and fault.words and ("#" in fault.source or " at " in fault.source)
        )


def test_an_import_says_what_the_check_says(tmp_path):
    file = written(tmp_path, planted("loops", loop))
    trace, notes = vllm.load(file)
    (words,) = (note for note in notes if "minefield#108" in note)
    assert words in trace.manifest.source.notes
    assert any(words == note for note in simkit.replay(trace, "fixed(2)").notes)


def test_evenly_is_no_fault_where_drafts_have_one_token():
    drafted = [[1] * 40] * 5
    accepted = [[k % 2 for k in range(40)]] * 5
    assert not list(faults.found(_counts(drafted, accepted)))


def _counts(drafted, accepted):
    n = len(drafted)
    return faults.LoggedCounts(drafted, accepted, [0] * n, [0] * n, True, False, {})


def test_chance_alone_is_no_loop():
    """Of a thousand logs of independent steps that mostly accept, none looks like a fault."""
    rng = np.random.default_rng(0)
    for _ in range(1000):
        share = rng.uniform(0.05, 0.95)
        taken = (np.cumprod(rng.random((12, 40, 4)) < share, axis=2)).sum(2).tolist()
        assert not list(faults.found(_counts([[4] * 40] * 12, taken)))
