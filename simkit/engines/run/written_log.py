"""The log of a run, a request a line, in the form of vLLM's per-request metrics.

`simkit import vllm` reads it. What is ours is under "simkit": tokens, and every step with its
seconds.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from simkit.engines.run.answers import EngineAnswer
from simkit.engines.run.arms import EngineArm
from simkit.engines.run.recorded import RecordedRequest
from traces.outputs import write_atomic


def _log_name(policy: str) -> str:
    """A file's name for a policy's log: `fixed(5)` is fixed-5.jsonl."""
    return re.sub(r"[^A-Za-z0-9._=]+", "-", policy).strip("-") + ".jsonl"


def write_log(
    folder: Path | None,
    engine: str,
    arm: EngineArm,
    answers: Sequence[tuple[RecordedRequest, EngineAnswer]],
) -> None:
    """Write the lines of a setting's requests, if there is a folder for them.

    Args:
        folder: of the file.
        engine: its name.
        arm: the setting.
        answers: in their order.
    """
    if folder is None:
        return
    lines = [json.dumps(_line(engine, arm.name, *one, arm.length)) + "\n" for one in answers]
    write_atomic(folder / _log_name(arm.name), "".join(lines).encode())


def _line(
    engine: str, policy: str, request: RecordedRequest, answer: EngineAnswer, length: int
) -> dict[str, Any]:
    unknown = any(step.drafted < 0 for step in answer.steps)  # OpenVINO's steps do not say
    drafting = [step for step in answer.steps if step.drafted]  # vLLM counts no others
    accepted, drafted = [s.accepted for s in drafting], [s.drafted for s in drafting]
    n, n_drafted = len(drafting), sum(drafted)
    most = max([length, *drafted])
    counts = {
        "mean_acceptance_length": 1 + sum(accepted) / n if n else 1.0,
        "draft_acceptance_rate": sum(accepted) / n_drafted if n_drafted else 0.0,
        "acceptance_histogram": [accepted.count(j) for j in range(most + 1)],
        "num_spec_steps": n,
        "num_accepted_draft_tokens": sum(accepted),
        "num_draft_tokens": n_drafted,
        "num_spec_tokens": most,
        "per_step_accepted": accepted,
        "per_step_drafted": drafted,
    }
    own = {
        "engine": engine,
        "policy": policy,
        "prompt_tokens": request.prompt,
        "output_tokens": answer.tokens,
        "prefill_s": _number(answer.prefill_s),
        "seconds": _number(answer.seconds),
        "processor_s": _number(answer.processor_s),
        "steps": [[s.drafted, s.accepted, s.emitted, _number(s.seconds)] for s in answer.steps],
    }
    return {
        "id": request.name,
        "choices": [
            {"index": 0, "finish_reason": "length" if answer.ended == "length" else "stop"}
        ],
        "usage": {"prompt_tokens": len(request.prompt), "completion_tokens": len(answer.tokens)},
        "metrics": {"speculative_decoding": None if unknown else counts},
        "simkit": own,
    }


def _number(value: float) -> float | None:
    return None if math.isnan(value) else value
