"""One request in every engine's form, as its source has it; its steps are those of a replay."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from engine_logs import metrics, response, sglang_meta, steps_of

import traces
from simkit.importers import aiperf, llama_cpp, openvino, sglang, tensorrt_llm, vllm
from traces.loops import in_loop


def _vllm(name, n_prompt, n, d, a, k, end):
    return [response(name, n_prompt, n, d, a, k=k, finish_reason=end)]


def _summary(name, n_prompt, n, d, a, k, end):
    d = [k] * len(a)
    return [response(name, n_prompt, n, d, a, k=k, detailed=False, finish_reason=end)]


def _offline(name, n_prompt, n, d, a, k, end):
    counts = {
        "num_spec_tokens": k,
        "histogram": [a.count(j) for j in range(k + 1)],
        "num_draft_tokens": sum(d),
        "per_step_accepted": a,
        "per_step_drafted": d,
    }
    tokens = {"token_ids": [1] * n, "finish_reason": end}
    return [
        {
            "request_id": name,
            "prompt_token_ids": [2] * n_prompt,
            "outputs": [tokens],
            "spec_decode_metrics": counts,
        }
    ]


def _sglang(name, n_prompt, n, d, a, k, end):
    """Its proposals are the length times the steps, whatever was drafted."""
    histogram, ended = [a.count(j) for j in range(k + 1)], {"type": end}
    more = {"id": name, "prompt_tokens": n_prompt, "finish_reason": ended}
    return [{"meta_info": sglang_meta(histogram, k, n, **more)}]


def _aiperf(name, n_prompt, n, d, a, k, end):
    found = metrics(d, a, k=k)
    sparse = {str(j): m for j, m in enumerate(found["acceptance_histogram"]) if m}
    return [
        {
            "metadata": {"x_request_id": name, "benchmark_phase": "profiling"},
            "metrics": {"input_sequence_length": {"value": n_prompt, "unit": "tokens"}},
            "spec_decode_acceptance": {
                **{"engine": "vllm", "completion_tokens": n},
                **(found | {"acceptance_histogram": sparse}),
            },
            "error": None,
        }
    ]


def _tensorrt_llm(name, n_prompt, n, d, a, k, end):
    steps = len(a)
    counts = {
        "acceptance_rate": sum(a) / (steps * k),
        "total_accepted_draft_tokens": sum(a),
        "total_draft_tokens": steps * k,
        "num_spec_steps": steps,
        "acceptance_histogram": [a.count(j) for j in range(k + 1)],
        "num_spec_tokens": k,
    }
    choice = {"index": 0, "finish_reason": end, "speculative_decoding": counts}
    choice["avg_decoded_tokens_per_iter"] = 1 + sum(a) / steps
    usage = {"prompt_tokens": n_prompt, "completion_tokens": n, "total_tokens": n_prompt + n}
    return [{"id": name, "choices": [choice], "usage": usage}]


def _llama_cpp(name, n_prompt, n, d, a, k, end):
    """A chunk a token; those of a step have its sums."""
    chunks, drafted, accepted, ms, out = [], 0, 0, 0.001, 1

    def chunk(**more):
        timings = {"cache_n": 0, "prompt_n": n_prompt, "prompt_ms": 20.0, "predicted_ms": ms}
        timings |= {"predicted_n": out, "draft_n": drafted, "draft_n_accepted": accepted}
        chunks.append({"id": name, "stop": False, "timings": timings, **more})

    chunk()
    for x, y in zip(d, a, strict=True):
        y = min(y, n - out - 1)  # an accepted EOS is the target's own token here
        drafted, accepted, ms = drafted + x, accepted + y, ms + 10.0
        for _ in range(min(y + 1, n - out)):
            out += 1
            chunk()
    chunk(stop=True, stop_type="limit" if end == "length" else "eos")
    return chunks


def _openvino(name, n_prompt, n, d, a, k, end):
    """Its counters leave out the last step; a step has a duration, in microseconds."""
    emitted = [1]
    for y in a:
        emitted.append(min(y + 1, n - sum(emitted)))
    taken = [m - 1 for m in emitted[1:]]
    main = {"m_batch_sizes": emitted, "m_durations": [9000.0] * len(emitted)}
    budget = n if end == "length" else n + k + 1
    left = [budget - sum(emitted[: j + 1]) for j in range(len(a))]
    drafted = [max(0, min(k, room - 1)) for room in left]
    return [
        {
            "id": name,
            "num_input_tokens": n_prompt,
            "num_generated_tokens": n,
            "num_assistant_tokens": k,
            "max_new_tokens": budget,
            "extended_perf_metrics": {
                "num_draft_tokens": sum(drafted[:-1]),
                "num_accepted_tokens": sum(taken[:-1]),
                "main_model_metrics": {"raw_metrics": main},
                "draft_model_metrics": {"raw_metrics": {"m_durations": [100.0] * sum(drafted)}},
            },
        }
    ]


FORMS = {
    "vllm": ("vllm", _vllm, lambda file, k: vllm.load(file)),
    "vllm summary": ("vllm", _summary, lambda file, k: vllm.load(file)),
    "vllm offline": ("vllm", _offline, lambda file, k: vllm.load(file)),
    "sglang": ("sglang", _sglang, sglang.load),
    "aiperf": ("aiperf", _aiperf, lambda file, k: aiperf.load(file)),
    "tensorrt-llm": ("tensorrt-llm", _tensorrt_llm, lambda file, k: tensorrt_llm.load(file)),
    "llama.cpp": ("llama.cpp", _llama_cpp, lambda file, k: llama_cpp.load(file)),
    "openvino": ("openvino", _openvino, lambda file, k: openvino.load(file)),
}
"""The engine, a request's lines, and the import of a file."""


def write(file: Path, form, requests, k) -> Path:
    """Requests in an engine's form.

    Args:
        file: to write.
        form: of `FORMS`.
        requests: (name, prompt's length, output's length, drafted, accepted, "length" or "stop").
        k: the longest draft.
    """
    lines = [line for own in requests for line in FORMS[form][1](*own[:5], k, own[5])]
    file.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return file


def replayed(name, policy, loops=False, drafter=None):
    """Requests of a bundled trace under a policy, of outputs that do not loop, or do mostly."""
    trace = traces.load(name, drafter)
    rows = {row["sequence"]: row for row in trace.sequences.to_pylist()}
    found = []
    for number, (drafted, accepted) in steps_of(trace, policy).items():
        row = rows[number]
        share = in_a_loop(row["output_tokens"])
        if share > 0.5 if loops else share < 0.1:
            end = "length" if row["finish_reason"] == "length" else "stop"
            sizes = (f"q{number}", row["n_prompt"], row["n_output"])
            found.append((*sizes, drafted, accepted, end))
    return found


def in_a_loop(tokens) -> float:
    """The share of an output that repeats a loop, by its tokens."""
    own = np.array(tokens, np.int32)
    return float(in_loop(own, np.array([0, len(own)])).mean()) if len(own) else 0.0
