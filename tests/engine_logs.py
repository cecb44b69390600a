"""Logs as engines write them, of replays whose outcomes are known."""

import json

import simkit


def steps_of(trace, policy, first_token="prefill"):
    """Drafted and accepted tokens of each step, by sequence; those without a step are left out."""
    frame = simkit.replay(trace, policy, first_token=first_token).steps()
    groups = frame.group_by("sequence", maintain_order=True)
    return {s: (g["drafted"].to_list(), g["accepted"].to_list()) for (s,), g in groups}


def metrics(drafted, accepted, k=None, detailed=True):
    """vLLM's object `metrics.speculative_decoding` (pull request 48915)."""
    k = max(drafted, default=1) if k is None else k
    steps, n_accepted, n_drafted = len(accepted), sum(accepted), sum(drafted)
    found = {
        "mean_acceptance_length": 1 + n_accepted / steps if steps else 1.0,
        "draft_acceptance_rate": n_accepted / n_drafted if n_drafted else 0.0,
        "acceptance_histogram": [accepted.count(j) for j in range(k + 1)],
        "num_spec_steps": steps,
        "num_accepted_draft_tokens": n_accepted,
        "num_draft_tokens": n_drafted,
        "num_spec_tokens": k,
    }
    if detailed:
        found |= {"per_step_accepted": accepted, "per_step_drafted": drafted}
    return found


def response(name, n_prompt, n_output, drafted, accepted, **more):
    """A response of vLLM's, as far as it is read."""
    return {
        "id": name,
        "choices": [{"index": 0, "finish_reason": more.pop("finish_reason", "stop")}],
        "usage": {"prompt_tokens": n_prompt, "completion_tokens": n_output},
        "metrics": {"speculative_decoding": metrics(drafted, accepted, **more)},
    }


def sglang_meta(histogram, k, n, **more):
    """`meta_info` of a server whose steps all drafted k tokens."""
    steps, accepted = sum(histogram), sum(a * m for a, m in enumerate(histogram))
    return {
        "id": "a",
        "prompt_tokens": 5,
        "completion_tokens": n,
        "spec_verify_ct": steps,
        "spec_num_correct_drafts": accepted,
        "spec_num_proposed_drafts": steps * k,
        "spec_accept_rate": accepted / (steps * k),
        "spec_accept_length": n / steps,
        "spec_correct_drafts_histogram": histogram,
        **more,
    }


def vllm_log(trace, policy, file):
    """Write a replay as vLLM would have logged it; returns the file."""
    rows = {row["sequence"]: row for row in trace.sequences.to_pylist()}
    lines = []
    for number, (drafted, accepted) in steps_of(trace, policy).items():
        row = rows[number]
        end = "length" if row["finish_reason"] == "length" else "stop"
        lines.append(
            response(
                f"cmpl-{number}",
                row["n_prompt"],
                row["n_output"],
                drafted,
                accepted,
                finish_reason=end,
            )
        )
    file.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return file
