"""Good files of every engine, changed one field at a time: no number goes wrong without a word.

A changed file is refused in one line, or imported with a note that the good one has not, or gives
the good one's numbers. What is left is listed in `FREE`, with the reason why nothing in the file
could tell.
"""

import copy
import math
from collections import Counter
from fnmatch import fnmatch

import pyarrow.parquet as pq
import pytest
from commands import run
from engine_logs import response
from test_import import written
from test_import_logs import exported, meta
from test_log_laws import NEW, OLD, USAGE, aiperf_line
from test_log_laws import llama_cpp as llama_cpp_line
from written_logs import FORMS

import traces
from simkit.errors import ImporterError
from simkit.importers import aiperf, llama_cpp, openvino, sglang, tensorrt_llm, vllm

LOGS = {
    "vllm": vllm.load,
    "sglang": sglang.load,
    "aiperf": aiperf.load,
    "llama.cpp": llama_cpp.load,
    "openvino": openvino.load,
    "tensorrt-llm": tensorrt_llm.load,
}


def vllm_line(k, **more):
    line = response(f"r{k}", 7 + k, 10, [3, 3, 3, 2], [1, 3, 0, 2], **{"k": 3, **more})
    line["usage"]["total_tokens"] = 17 + k
    line["choices"][0]["finish_reason"] = "length"
    return line


def sglext(k):
    return {
        "id": str(k),
        "choices": [{"index": 0, "finish_reason": "length"}],
        "usage": USAGE,
        "sglext": {"spec_tokens_details": NEW},
    }


def named(line, k):
    line["metadata"]["x_request_id"] = f"q{k}"
    return line


def spec_bench(k):
    turns = {"decoding_steps": [3, 2], "new_tokens": [7, 4], "wall_time": [0.5, 0.25]}
    return {
        "question_id": k,
        "category": "writing",
        "choices": [{"index": 0, **turns, "accept_lengths": [3, 1, 3, 2, 2]}],
    }


def specdecode(k):
    return {
        "id": str(k),
        "prompt_token_ids": [5, 6, 7],
        "generated_token_ids": [8, 9, 10, 11],
        "acc_eagle": {"acc_len": [1, 3, 2, 1]},
    }


def chat(k):
    return {"id": str(k), "task": "t", "prompt_token_ids": [5, 6], "output_token_ids": [7, 8, 2]}


def of(form, k):
    """Four steps in an engine's form; the budget cut the last draft where its engine tells."""
    steps = ([3, 3, 3, 2], [1, 3, 0, 2]) if form == "vllm offline" else ([3] * 4, [1, 3, 0, 2])
    return FORMS[form][1](f"r{k}", 7 + k, 11, *steps, 3, "length")[0]


def performance(k):
    """TensorRT-LLM's performance log."""
    counts = {"acceptance_rate": 0.5, "total_accepted_draft_tokens": 6, "total_draft_tokens": 12}
    metrics = {"speculative_decoding": counts, "first_iter": 4, "last_iter": 8}
    return {"request_id": k, "perf_metrics": metrics}


def answer(k):
    """llama.cpp's, not streamed."""
    times = {"cache_n": 0, "prompt_n": 7 + k, "prompt_ms": 20.0, "predicted_ms": 50.0}
    times |= {"predicted_n": 11, "draft_n": 12, "draft_n_accepted": 6}
    return {"stop": True, "stop_type": "limit", "timings": times}


GOOD = {  # the format, what else it is imported with, and a line by its number
    "vllm detailed": ("vllm", [], vllm_line),
    "vllm summary": (
        "vllm",
        [],
        lambda k: response(f"r{k}", 7, 11, [3] * 4, [1, 3, 0, 2], detailed=False),
    ),
    "vllm data": ("vllm", [], lambda k: {"data": vllm_line(k)}),
    "sglang": ("sglang", ["--draft-length", "3"], lambda k: {"meta_info": meta(id=str(k))}),
    "sglang older": ("sglang", ["--draft-length", "4"], lambda k: {"meta_info": OLD | {"id": k}}),
    "sglang sglext": ("sglang", ["--draft-length", "3"], sglext),
    "aiperf vllm": ("aiperf", [], lambda k: named(exported(), k)),
    "aiperf tensorrt_llm": (
        "aiperf",
        [],
        lambda k: named(aiperf_line("tensorrt_llm", [3] * 4, [1, 3, 0, 2], 11), k),
    ),
    "aiperf llama.cpp": ("aiperf", [], lambda k: named(llama_cpp_line(), k)),
    "vllm offline": ("vllm", [], lambda k: of("vllm offline", k)),
    "openvino": ("openvino", [], lambda k: of("openvino", k)),
    "tensorrt-llm": ("tensorrt-llm", [], lambda k: of("tensorrt-llm", k)),
    "tensorrt-llm log": ("tensorrt-llm", ["--draft-length", "3"], performance),
    "llama.cpp": ("llama.cpp", ["--draft-length", "3"], answer),
    "spec-bench": ("spec-bench", [], spec_bench),
    "specdecode-bench": ("specdecode-bench", [], specdecode),
    "tokens": ("tokens", ["--eos", "2"], chat),
}

ONCE = "it is the record itself: said once in the file"
FREE = {  # format, field (with wildcards), change (with wildcards): why nothing could tell
    ("vllm*", "*finish_reason", "*"): "why an output ended is said nowhere else",
    ("vllm*", "*choices*", "*"): "why an output ended is said nowhere else",
    ("vllm detailed", "*per_step_accepted", "reversed"): "the order of steps is said nowhere else",
    ("vllm data", "*per_step_accepted", "reversed"): "the order of steps is said nowhere else",
    ("vllm d*", "*per_step_drafted", "reversed"): "the order of steps is said nowhere else",
    ("vllm summary", "usage.prompt_tokens", "*"): "without a total, prompts are said nowhere else",
    ("sglang*", "*finish_reason*", "*"): "why an output ended is said nowhere else",
    ("sglang*", "choices*", "*"): "why an output ended is said nowhere else",
    ("sglang*", "meta_info.prompt_tokens", "*"): "prompts are said nowhere else",
    ("aiperf*", "metrics.input_sequence_length*", "*"): "prompts are said nowhere else",
    ("vllm offline", "prompt_token_ids", "*"): "prompts are said nowhere else",
    ("vllm offline", "*per_step_*", "reversed"): "the order of steps is said nowhere else",
    ("openvino", "num_input_tokens", "*"): "prompts are said nowhere else",
    ("openvino", "max_new_tokens", "*"): "the budget is said nowhere else",
    ("tensorrt-llm", "*finish_reason", "*"): "why an output ended is said nowhere else",
    ("llama.cpp", "stop_type", "*"): "why an output ended is said nowhere else",
    ("llama.cpp", "timings.prompt_n", "*"): "prompts are said nowhere else",
    ("llama.cpp", "timings.cache_n", "*"): "prompts are said nowhere else",
    ("llama.cpp", "line 2", "twice"): "an answer has no name",
    ("spec-bench", "choices*wall_time*", "*"): "a time is said nowhere else",
    ("spec-bench", "choices", "extended"): "how many answers there are is said nowhere else",
    ("spec-bench", "category", "*"): "the category is said nowhere else",
    ("specdecode-bench", "*token_ids[[]*", "*"): ONCE,
    ("specdecode-bench", "prompt_token_ids", "*"): ONCE,
    ("specdecode-bench", "generated_token_ids", "reversed"): ONCE,
    ("specdecode-bench", "acc_eagle.acc_len[[]*", "*"): ONCE,
    ("specdecode-bench", "acc_eagle.acc_len", "reversed"): ONCE,
    ("tokens", "*", "*"): ONCE,
}
GONE = object()


def places(value, path=()):
    """The path of each value inside an object, containers too."""
    if path:
        yield path
    inner = value.items() if isinstance(value, dict) else ()
    inner = enumerate(value) if isinstance(value, list) else inner
    for key, item in inner:
        yield from places(item, (*path, key))


def changes(value):
    """Names and values of what is put in a value's place."""
    yield from {"removed": GONE, "null": None, "bool": True, "text": "x", "empty": []}.items()
    if isinstance(value, int | float) and not isinstance(value, bool):
        yield from {"+1": value + 1, "-1": value - 1, "x10": value * 10}.items()
        yield from {"negative": -value - 1, "nan": math.nan, "half": value + 0.5}.items()
        yield from {"text of it": str(value), "huge": 10**12}.items()
    if isinstance(value, str):
        yield "number", 5
    if isinstance(value, list) and value:
        yield from {"reversed": value[::-1], "cut": value[:-1]}.items()
        yield from {"extended": [*value, value[-1]], "zero more": [*value, 0]}.items()
    if isinstance(value, dict):
        yield "list", [value]


def altered(line):
    """(field, change, line) of each change of a line that changes it."""
    for path in places(line):
        whole = copy.deepcopy(line)
        place = whole
        for key in path[:-1]:
            place = place[key]
        before = place[path[-1]]
        for change, after in changes(before):
            if repr(after) == repr(before) or (after is GONE and isinstance(place, list)):
                continue
            if after is GONE:
                del place[path[-1]]
            else:
                place[path[-1]] = after
            yield field(path), change, copy.deepcopy(whole)
            place[path[-1]] = before


def field(path):
    return "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in path)[1:]


def imported(capsys, tmp_path, name, lines):
    """What comes of a file: a complaint, or what was said and the numbers.

    Formats that the library says all of are read by it, which is faster than the command.
    """
    format, options, _ = GOOD[name]
    file = written(tmp_path, lines)
    if format in LOGS:
        try:
            trace, notes = LOGS[format](file, *map(int, options[1:]))
        except ImporterError as error:
            return str(error), None, None
        return None, set(notes), _numbers(trace)
    out = tmp_path / f"out{len([*tmp_path.iterdir()])}"
    status, said, err = run(capsys, "import", format, file, "--out", out, *options)
    if status:
        return (err.rstrip("\n") if status == 2 else f"status {status}\n"), None, None
    notes = {line for line in f"{said}{err}".splitlines() if _is_note(line)}
    if format == "spec-bench":
        return None, notes, pq.read_table(out / "spec-bench.parquet").to_pylist()
    return None, notes, _numbers(traces.load(out))


def _numbers(trace):
    names = "n_prompt", "n_output", "finish_reason", "prompt_tokens", "output_tokens"
    numbers = [trace.sequences[n].to_pylist() for n in names if n in trace.sequences.column_names]
    tables = {"log": ("drafted", "accepted"), "lattice": ("accepted", "depth")}
    kind = trace.manifest.kind
    numbers += [trace.column(kind, name).tolist() for name in tables.get(kind, ())]
    return [*numbers, trace.manifest.unordered, trace.manifest.totals]


def _is_note(line):
    marks = (
        " the id of an earlier one",
        " answers have ",
        " outputs have other numbers ",
    )
    return any(mark in line for mark in marks)


def verdict(capsys, tmp_path, name, sound, field, change, lines):
    """ "refused", "noted", "same", or the entry of FREE that excuses it; None for none of these."""
    complaint, said, numbers = imported(capsys, tmp_path, name, lines)
    if complaint is not None:
        return None if "\n" in complaint else "refused"
    if said - sound[1]:
        return "noted"
    if numbers == sound[2]:
        return "same"
    for entry in FREE:
        if all(map(fnmatch, (name, field, change), entry)):
            return entry
    return None


def cases(name):
    """Each change of the second of three good lines, and that line twice."""
    _, _, line = GOOD[name]
    good = [line(k) for k in range(3)]
    for where, change, changed in altered(good[1]):
        yield where, change, [good[0], changed, good[2]]
    yield "line 2", "twice", [*good[:2], good[1], good[2]]


@pytest.mark.parametrize("name", GOOD)
def test_no_change_makes_a_number_wrong_without_a_word(tmp_path, capsys, name):
    line = GOOD[name][2]
    sound = imported(capsys, tmp_path, name, [line(k) for k in range(3)])
    assert sound[0] is None
    found = {
        (where, change): verdict(capsys, tmp_path, name, sound, where, change, lines)
        for where, change, lines in cases(name)
    }
    assert [case for case, came in found.items() if came is None] == []
    counted = Counter(came if isinstance(came, str) else "free" for came in found.values())
    with capsys.disabled():
        print(f"\n{name}: {len(found)} changed, {dict(counted)}")
    used = {came for came in found.values() if not isinstance(came, str)}
    mine = {entry for entry in FREE if entry[0] == name}
    assert mine <= used  # no excuse that nothing needs


def test_there_are_enough_of_them():
    assert sum(sum(1 for _ in cases(name)) for name in GOOD) >= 300


def test_each_excuse_has_its_reason():
    assert all(reason and entry[0] for entry, reason in FREE.items())
