"""Engines' logs, of which one field at a time is another."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.fuzz import alter, judge
from benchmarks.fuzz.judge import ACCEPTED, EQUAL, FaultError, Verdict
from simkit.importers import aiperf, openvino, sglang, steps, tensorrt_llm, vllm
from traces.errors import UserError

_K = 3
_STEPS = ([3, 0, 2, 1, 3, 1, 0, 2], [1, 1, 3, 0, 2, 0, 3, 3, 1, 2])  # accepted, of two requests
_FREE = (
    "id",
    "choices",
    "x_request_id",
    "finish_reason",
    "type",
    "index",
    "benchmark_phase",
    "error",
)
_LENGTHS = (
    "prompt_tokens",
    "input_sequence_length",
    "value",
    "completion_tokens",
    "unit",
    "num_input_tokens",
    "max_new_tokens",
    "num_assistant_tokens",
    "m_durations",
)
_OPTIONAL = (
    "num_spec_tokens mean_acceptance_length draft_acceptance_rate spec_accept_rate"
    " spec_accept_length engine choices usage metadata metrics metric avg_decoded_tokens_per_iter"
    " num_draft_tokens num_accepted_tokens extended_perf_metrics"
).split()


class Kind(NamedTuple):
    """An engine's log.

    Attributes:
        record: a request's line, given its number and the accepted tokens of its steps.
        load: reads a file of them.
    """

    record: Callable[[int, list[int]], dict[str, Any]]
    load: Callable[[Path], steps.Imported]


def _completion(accepted: list[int]) -> int:
    return 1 + sum(accepted) + len(accepted)


def _metrics(accepted: list[int]) -> dict[str, Any]:
    n, total = len(accepted), sum(accepted)
    return {
        "mean_acceptance_length": 1 + total / n,
        "draft_acceptance_rate": total / (n * _K),
        "acceptance_histogram": [accepted.count(a) for a in range(_K + 1)],
        "num_spec_steps": n,
        "num_accepted_draft_tokens": total,
        "num_draft_tokens": n * _K,
        "num_spec_tokens": _K,
        "per_step_accepted": accepted,
        "per_step_drafted": [_K] * n,
    }


def _vllm(number: int, accepted: list[int]) -> dict[str, Any]:
    return {
        "id": f"cmpl-{number}",
        "choices": [{"index": 0, "finish_reason": "length"}],
        "usage": {"prompt_tokens": 9, "completion_tokens": _completion(accepted)},
        "metrics": {"speculative_decoding": _metrics(accepted)},
    }


def _summary(number: int, accepted: list[int]) -> dict[str, Any]:
    found = _vllm(number, accepted)
    for name in ("per_step_accepted", "per_step_drafted"):
        del found["metrics"]["speculative_decoding"][name]
    return found


def _sglang(number: int, accepted: list[int]) -> dict[str, Any]:
    n, total = len(accepted), sum(accepted)
    return {
        "meta_info": {
            "id": str(number),
            "finish_reason": {"type": "length"},
            "prompt_tokens": 9,
            "completion_tokens": _completion(accepted),
            "spec_verify_ct": n,
            "spec_num_correct_drafts": total,
            "spec_num_proposed_drafts": n * _K,
            "spec_correct_drafts_histogram": [accepted.count(a) for a in range(_K + 1)],
            "spec_accept_rate": total / (n * _K),
            "spec_accept_length": _completion(accepted) / n,
        }
    }


def _aiperf(number: int, accepted: list[int]) -> dict[str, Any]:
    histogram = {str(a): accepted.count(a) for a in set(accepted)}
    found = _metrics(accepted) | {"acceptance_histogram": histogram, "engine": "vllm"}
    return {
        "metadata": {"x_request_id": f"r{number}", "benchmark_phase": "profiling"},
        "metrics": {"input_sequence_length": {"value": 9, "unit": "tokens"}},
        "spec_decode_acceptance": {**found, "completion_tokens": _completion(accepted)},
        "error": None,
    }


def _tensorrt_llm(number: int, accepted: list[int]) -> dict[str, Any]:
    n, total, length = len(accepted), sum(accepted), _completion(accepted)
    counts = {
        "acceptance_rate": total / (n * _K),
        "total_accepted_draft_tokens": total,
        "total_draft_tokens": n * _K,
        "num_spec_steps": n,
        "acceptance_histogram": [accepted.count(a) for a in range(_K + 1)],
        "num_spec_tokens": _K,
    }
    choice = {"index": 0, "finish_reason": "length", "speculative_decoding": counts}
    return {
        "id": f"cmpl-{number}",
        "choices": [choice | {"avg_decoded_tokens_per_iter": 1 + total / n}],
        "usage": {"prompt_tokens": 9, "completion_tokens": length, "total_tokens": 9 + length},
    }


def _openvino(number: int, accepted: list[int]) -> dict[str, Any]:
    emitted = [1, *(a + 1 for a in accepted)]
    budget = sum(emitted)
    left = [budget - sum(emitted[: k + 1]) for k in range(len(accepted))]
    drafted = [min(_K, room - 1) for room in left]
    return {
        "id": str(number),
        "num_input_tokens": 9,
        "num_generated_tokens": budget,
        "num_assistant_tokens": _K,
        "max_new_tokens": budget,
        "extended_perf_metrics": {
            "num_draft_tokens": sum(drafted[:-1]),
            "num_accepted_tokens": sum(accepted[:-1]),
            "main_model_metrics": {
                "raw_metrics": {"m_batch_sizes": emitted, "m_durations": [9e3] * len(emitted)}
            },
        },
    }


KINDS = {
    "tensorrt-llm": Kind(_tensorrt_llm, tensorrt_llm.load),
    "openvino": Kind(_openvino, openvino.load),
    "vllm": Kind(_vllm, vllm.load),
    "vllm summary": Kind(_summary, vllm.load),
    "sglang": Kind(_sglang, lambda file: sglang.load(file, _K)),
    "aiperf": Kind(_aiperf, aiperf.load),
}


def lines(kind: Kind) -> list[dict[str, Any]]:
    """A sound log."""
    return [kind.record(number, list(accepted)) for number, accepted in enumerate(_STEPS)]


def fields(value: Any, names: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The names of all fields within an object, those of lists' items left out."""
    for name, inner in value.items() if isinstance(value, dict) else ():
        yield (*names, name)
        yield from fields(inner, (*names, name))


def write(file: Path, records: list[dict[str, Any]]) -> Path:
    """Write a log."""
    file.write_text("".join(f"{json.dumps(record)}\n" for record in records))
    return file


def _read(kind: Kind, file: Path) -> tuple[Any, list[str]]:
    trace, notes = kind.load(file)
    counts = [trace.column("log", name).tolist() for name in ("sequence", "drafted", "accepted")]
    return (counts, trace.sequences["n_output"].to_pylist()), notes


@cache
def truth(name: str, base: Path) -> tuple[Any, list[str]]:
    """What a sound log gives, and what is noted of it."""
    return _read(KINDS[name], write(base / f"{name}.log", lines(KINDS[name])))


def check_sound(base: Path) -> None:
    """Read every sound log.

    Raises:
        UserError: one is refused.
    """
    for name in KINDS:
        truth(name, base)


def one_field(rng: random.Random, base: Path, work: Path) -> Verdict:
    """A field that says something of the steps is another: refused, or noted."""
    name = rng.choice(list(KINDS))
    kind, (sound, notes) = KINDS[name], truth(name, base)
    records = lines(kind)
    names = rng.choice([n for n in fields(records[0]) if n[-1] not in _FREE])
    inside: Any = rng.choice(records)
    for step in names[:-1]:
        inside = inside[step]
    old = copy.deepcopy(inside[names[-1]])
    how, within = _change(rng, inside, names[-1])
    try:
        found, said = _read(kind, write(work / "log.jsonl", records))
    except UserError as problem:
        return judge.refusal(problem)
    new: Any = inside.get(names[-1])
    for key in within:
        old, new = old[key], new[key]
    names, gone = (*names, *within), new is None
    if found == sound and (gone or _is_free(names[-1], old, new)):
        return Verdict(EQUAL, "")
    if names[-1] == "completion_tokens" and not gone and not _can_end(kind, records, new):
        raise FaultError("wrong number", f"{name}: an output of {new} tokens ends within no step")
    if said != notes or names[-1] in _LENGTHS or set(names) <= set(_OPTIONAL) and gone:
        return Verdict(ACCEPTED, "")
    where = f"{name}: {'.'.join(names)}: {how}: {old} -> {new}"
    raise FaultError("wrong number", f"nothing is said of {where}"[:600])


def _is_free(name: str, old: Any, new: Any) -> bool:
    """Whether a field's new value is the old one, or no other field could contradict it."""
    if name == "num_spec_tokens":
        return type(new) is int and new >= _K  # a bound that no step reaches
    if type(old) is type(new) is float:
        return new == round(old, len(repr(new).partition(".")[2]))  # the same, in fewer digits
    return type(new) is type(old) and new == old or name in (*_FREE, "metadata")


def _can_end(kind: Kind, records: list[dict[str, Any]], completion: int) -> bool:
    """Whether an output of so many tokens ends in the last step, or in any, of its request."""
    changed = next(k for k, sound in enumerate(lines(kind)) if records[k] != sound)
    accepted = _STEPS[changed]
    return completion > _completion(accepted) - 1 - max(accepted)


def _change(rng: random.Random, inside: dict[str, Any], name: str) -> tuple[str, tuple[str, ...]]:
    """Change a field, or drop it; what was done, and to which item of an object."""
    value: Any = inside[name]
    how = rng.choice(("near", "near", "far", "drop", "hostile", "item"))
    if how == "drop":
        del inside[name]
    elif type(value) in (int, float) and how in ("near", "far", "item"):
        far = rng.choice((2 * value + 1, 1 - value, 100 * value, value // 2))
        inside[name] = far if how == "far" else value + rng.choice((-1, 1))
    elif how == "item" and isinstance(value, dict | list) and value:
        key = rng.choice(list(value) if isinstance(value, dict) else range(len(value)))
        is_number = isinstance(value[key], int)
        value[key] = value[key] + rng.choice((-1, 1, 2)) if is_number else rng.choice(alter.HOSTILE)
        return how, (key,) if isinstance(key, str) else ()
    else:
        inside[name] = copy.deepcopy(rng.choice(alter.HOSTILE))
    return how, ()
