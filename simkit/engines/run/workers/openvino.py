"""OpenVINO GenAI in a worker: greedy decoding in float32, with a draft model or lookups.

`extended_perf_metrics` has, of the main model, how many tokens came out of each step
(`m_batch_sizes`, the prompt's pass first) and how long its pass took (`m_durations`, microseconds);
of the draft model an entry that reads nothing, then one a pass. How many tokens a step drafted it
does not say, and its sums leave out the last step. Drafts of one length are as long as the budget
allows unless an EOS ends them. If the sums tell that none did before the last step, the passes tell
of the last one; else none is known. A request's remaining seconds are spread evenly over its steps.
"""

from __future__ import annotations

import json
import time
from importlib import import_module
from typing import Any

import numpy as np

from simkit.engines.run.workers.lines import Answer, serve

_PRECISE = {"INFERENCE_PRECISION_HINT": "f32", "KV_CACHE_PRECISION": "f32"}
_UNKNOWN = -1  # tokens that a step drafted


def load(said: dict[str, Any]) -> Answer:
    """Make the pipeline of a setting.

    Args:
        said: folders `target` and `draft` (None: none), the `config` that `simkit export` writes
            (empty: no speculation), `threads` (None: OpenVINO's choice), `eos`.
    """
    genai = import_module("openvino_genai")
    config = json.loads(said["config"] or "{}")
    how: dict[str, Any] = dict(_PRECISE)
    if said["threads"] is not None:
        how["INFERENCE_NUM_THREADS"] = said["threads"]
    more: dict[str, Any] = {"ATTENTION_BACKEND": "PA"}
    if config and "max_ngram_size" in config:
        more["prompt_lookup"] = True
    elif config:
        more["draft_model"] = genai.draft_model(said["draft"], "CPU", **how)
    pipeline = genai.LLMPipeline(said["target"], "CPU", **more, **how)
    return lambda asked: _answer(pipeline, config, said["eos"], asked)


def _answer(pipeline: Any, config: dict[str, Any], eos: list[int], asked: dict[str, Any]) -> dict:
    genai, tensor = import_module("openvino_genai"), import_module("openvino").Tensor
    ids = np.array([asked["prompt"]], np.int64)
    inputs = genai.TokenizedInputs(tensor(ids), tensor(np.ones_like(ids)))
    given = {"max_new_tokens": asked["max_new_tokens"], "do_sample": False, **config}
    wanted = genai.GenerationConfig(**given)
    wanted.stop_token_ids = set(eos)
    if eos:
        wanted.eos_token_id = eos[0]
    begin = time.perf_counter()
    found = pipeline.generate(inputs, wanted)
    seconds = time.perf_counter() - begin
    tokens = [int(token) for token in found.tokens[0]]
    both = found.extended_perf_metrics
    counted = None
    if both is None:
        emitted, spans = _by_tokens(found.perf_metrics.raw_metrics)
        passes, drafted = [], [_UNKNOWN if config else 0] * (len(emitted) - 1)
    else:
        emitted, spans = _by_steps(both.main_model_metrics.raw_metrics)
        passes = _by_steps(both.draft_model_metrics.raw_metrics)[1]
        counted = [both.get_num_draft_tokens(), both.get_num_accepted_tokens()]
        length = None if "max_ngram_size" in config else config.get("num_assistant_tokens")
        drafted = drafted_by(length, emitted, asked["max_new_tokens"], counted[0], len(passes))
    more = seconds_besides(drafted, passes, seconds - sum(spans))
    steps = [
        [n_drafted, n - 1, n, span_s + more_s, False, span_s]
        for n_drafted, n, span_s, more_s in zip(drafted, emitted[1:], spans[1:], more, strict=True)
    ]
    return {
        "tokens": tokens,
        "steps": steps,
        "counted": counted,
        "prefill_s": spans[0],
        "seconds": seconds,
        "ended": "eos" if tokens and tokens[-1] in eos else "length",
    }


def drafted_by(
    length: int | None, emitted: list[int], budget: int, counted: int, n_passes: int
) -> list[int]:
    """Drafted tokens of each step behind the prompt's, -1 where they are not known.

    Args:
        length: of every draft, as far as the budget allows; None: a rule ends drafts.
        emitted: tokens of each step, that of the prompt first.
        budget: most output tokens.
        counted: drafted tokens as the engine sums them up, without the last step's.
        n_passes: of the draft model, the first of which reads nothing.
    """
    known = np.cumsum(emitted)[:-1]
    if length is None or not len(known):
        return [_UNKNOWN] * len(known)
    found = np.minimum(length, budget - 1 - known)
    last = n_passes - 1 - counted  # or one pass more, in some calls
    if found[:-1].sum() != counted or not 0 <= last <= found[-1] + 1:
        return [_UNKNOWN] * len(known)
    return [*found[:-1].tolist(), min(last, int(found[-1]))]


def seconds_besides(drafted: list[int], passes: list[float], rest_s: float) -> list[float]:
    """Seconds of each step besides the target's pass.

    Args:
        drafted: tokens of each step; where they are not known, passes are spread evenly.
        passes: seconds of the draft's, the first of which reads nothing.
        rest_s: of the request besides the target's passes.
    """
    n = len(drafted)
    if not passes or not drafted or min(drafted) < 0:
        return [rest_s / max(1, n)] * n
    spread_s = (rest_s - sum(passes)) / n
    ends = 1 + np.cumsum(drafted)
    ends[-1] = len(passes)
    parts = np.split(np.array(passes), ends[:-1])
    return [float(part.sum()) + spread_s for part in parts]


def _by_steps(raw: Any) -> tuple[list[int], list[float]]:
    """Tokens and seconds of each step of a model that has metrics of its own."""
    return [int(n) for n in raw.m_batch_sizes], [float(span) / 1e6 for span in raw.m_durations]


def _by_tokens(raw: Any) -> tuple[list[int], list[float]]:
    """The same where a step's duration is spread over its tokens, the first one's apart."""
    sizes, spans = _by_steps(raw)
    found, at = [float(raw.m_times_to_first_token[0]) / 1e6], 0
    for n in sizes[1:]:
        found.append(sum(spans[at : at + n]))
        at += n
    return sizes, found


if __name__ == "__main__":
    serve(load)
