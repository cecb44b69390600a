"""Acceptance of a fixed length as planners and engines take it: one file, all conventions.

The fields at the top are those of NVIDIA's `speculation_profile.json`, schema 1.0
(`examples/specdec_bench/specdec_bench/speculation_profile.py` in NVIDIA/Model-Optimizer, pull
requests 2247 and 2313, open in September 2026): lengths there count the target's own token, rates
are given conditional on all earlier tokens and marginal. `simkit` holds what others take: of
AIConfigurator `nextn_accepted`, accepted tokens a step (`EstimateRequestV1`); of Dynamo's mocker
conditional rates (`lib/mocker`, `aic_nextn` from 1 to 5); the synthetic acceptance of engines, of
which each draws without looking at the request, and what that changes on this trace.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import numpy as np

from simkit.engines.approximate import Basis, fastest
from simkit.engines.base import LOOKUPS, OFTEN_SHORTER, EngineDrafter, EngineError
from simkit.engines.export import drafter_of
from simkit.engines.synthetic import DrawnOutcome, errors, fixed_steps, rates_of
from simkit.policies import Fixed, Policy, parse
from simkit.simulator import FirstToken
from simkit.simulator.arguments import AnyCost
from traces.trace import Trace

SCHEMA_VERSION = "1.0"
_DIGITS = 6
_MOST_NEXTN = 5  # tokens that AIConfigurator and Dynamo's mocker know
_METHODS = {"model": "draft_model", "feature": "eagle3", "": None}
_CHAINS = ("draft_model", "eagle3")  # whose draft of K tokens begins that of K + 1
_KEPT = "the rates"
_TWO = "two lengths"


class ProfileText(NamedTuple):
    """What is written.

    Attributes:
        text: of the file.
        notes: what a reader should know, one line each.
        errors: what drawn outcomes change, by how they are drawn.
    """

    text: str
    notes: list[str]
    errors: dict[str, list[DrawnOutcome]]


def profile(
    trace: Trace,
    policy: Policy | str | None = None,
    cost: AnyCost | None = None,
    first_token: FirstToken = "draft",
    draft: str | None = None,
) -> ProfileText:
    """The acceptance of a fixed length on a trace.

    Args:
        trace: whose drafts are counted.
        policy: `fixed(K)`; None: the fastest length.
        cost: as in `simkit.replay`; of that choice, and of the seconds in what draws change.
        first_token: as there.
        draft: as in `simkit.engines.export`.

    Raises:
        EngineError: the policy has no fixed length, or one of 0.
    """
    trace.manifest.drafter.refuse("replay", EngineError)
    length, notes = _length(policy, Basis(trace, cost, first_token))
    rates = rates_of(trace, length, first_token)
    short = _two_lengths(sum(rates), length)
    found = {
        _KEPT: errors(trace, rates, cost, first_token),
        _TWO: errors(trace, short, cost, first_token),
    }
    drafter = drafter_of(trace, draft)
    fields = _fields(trace, rates, drafter, first_token)
    consumers = _consumers(trace, rates, first_token)
    who = "Dynamo, vLLM and llama.cpp draw"
    if drafter.kind in LOOKUPS:
        del consumers["vllm"], consumers["llama.cpp"]
        who = "Dynamo draws"
        notes.append(
            f"vLLM and llama.cpp get no synthetic rates: drafts of {drafter.kind} {OFTEN_SHORTER}"
        )
    drawn = {how: [m._asdict() for m in each] for how, each in found.items()}
    fields["simkit"] = {**consumers, "drawn_outcomes": drawn}
    notes.append(
        f"{who} each step from the rates, SGLang and TensorRT-LLM one of"
        " two lengths around the mean: what that changes on this trace is in the table"
    )
    if length > _MOST_NEXTN:
        notes.append(
            f"AIConfigurator and Dynamo know up to {_MOST_NEXTN} tokens: theirs are those of"
            f" fixed({_MOST_NEXTN})"
        )
    return ProfileText(json.dumps(fields, indent=1, allow_nan=False) + "\n", notes, found)


def _fields(
    trace: Trace, rates: tuple[float, ...], drafter: EngineDrafter, first_token: FirstToken
) -> dict[str, Any]:
    """The schema's own fields."""
    length = len(rates)
    steps = fixed_steps(trace, length, first_token)
    counts = np.bincount(steps.accepted, minlength=length + 1)
    method = _METHODS.get(drafter.kind, drafter.kind)
    return {
        "schema_version": SCHEMA_VERSION,
        "measured": True,
        "method": method,
        "draft_checkpoint": _named(drafter.model),
        "target_model": _named(trace.manifest.target.id if trace.manifest.target else None),
        "num_speculative_tokens": length,
        "block_size": None,
        "max_supported_k": length,
        "verification_method": "longest_prefix",
        **_acceptance(trace, rates, counts, steps.sequence, steps.accepted, first_token, method),
        "measurement_conditions": _conditions(trace, first_token, len(steps)),
        "validation": _validation(rates, counts),
    }


def _length(policy: Policy | str | None, by: Basis) -> tuple[int, list[str]]:
    if policy is None:
        choice = fastest(by)
        return choice.length, [choice.note]
    policy = parse(policy) if isinstance(policy, str) else policy
    if not isinstance(policy, Fixed) or not policy.length:
        raise EngineError(f"a profile needs a fixed length, fixed(K), not {policy}")
    return policy.length, []


def _named(model: str | None) -> dict[str, str] | None:
    """A model by the last two parts of its name, as the schema has it: no path of this machine."""
    parts = [part for part in (model or "").replace("\\", "/").split("/") if part]
    return {"id": "/".join(parts[-2:])} if parts else None


def _acceptance(
    trace: Trace,
    rates: tuple[float, ...],
    counts: np.ndarray,
    sequence: np.ndarray,
    accepted: np.ndarray,
    first_token: FirstToken,
    method: str | None,
) -> dict[str, Any]:
    """Rates and means, over steps and over requests; lengths count the target's own token."""
    taken = np.bincount(sequence, minlength=trace.n_sequences)
    emitted = np.bincount(sequence, accepted + 1, minlength=trace.n_sequences)
    each = emitted[taken > 0] / taken[taken > 0]
    tasks = np.array([task or "" for task in trace.sequences["task"].to_pylist()])
    by_task = {
        str(task): {"mean_accept_length": _rounded(emitted[of].sum() / max(1, taken[of].sum()))}
        for task in np.unique(tasks)
        if (of := (tasks == task) & (taken > 0)).any() and task
    }
    lengths = range(1, len(rates) + 1)
    return {
        "conditional_accept_rates": conditional(rates),
        "marginal_accept_rates": list(rates),
        "mean_accept_length": _mean(counts),
        "mean_accept_length_per_request": _rounded(each.mean()),
        "accept_length_model": "chain_analytic" if method in _CHAINS else "measured_per_k",
        "accept_length_by_k": {
            str(k): _rounded(1 + sum(rates_of(trace, k, first_token))) for k in lengths
        },
        "acceptance_length_histogram": {str(a + 1): int(n) for a, n in enumerate(counts) if n},
        "per_category": by_task or None,
    }


def conditional(marginal: tuple[float, ...]) -> list[float]:
    """P(a >= j | a >= j - 1) of P(a >= j); 0 where nothing comes so far."""
    before = (1.0, *marginal[:-1])
    return [_rounded(m / b) if b else 0.0 for m, b in zip(marginal, before, strict=True)]


def _conditions(trace: Trace, first_token: FirstToken, n_steps: int) -> dict[str, Any]:
    sampler = trace.sampler
    return {
        "source": "replay of a recorded trace (simkit)",
        "trace_sha256": trace.hash,
        "num_samples": trace.n_sequences,
        "num_steps": n_steps,
        "osl": trace.max_new_tokens,
        "temperature": sampler.temperature,
        "sampler": sampler.words,
        "first_token": first_token,
        "concurrency": 1,
    }


def _validation(rates: tuple[float, ...], counts: np.ndarray) -> dict[str, Any]:
    """The two checks of the schema."""
    implied, told = 1 + sum(rates), _mean(counts)
    return {
        "mean_consistency": {
            "implied_mean_accept_length": _rounded(implied),
            "reported_mean_accept_length": told,
            "abs_delta": _rounded(abs(implied - told)),
            "tolerance": 0.02,
            "passed": abs(implied - told) <= 0.02,
        },
        "marginal_monotonicity": {
            "passed": all(a >= b for a, b in zip(rates, rates[1:], strict=False)),
            "violations": [],
        },
    }


def _consumers(
    trace: Trace, rates: tuple[float, ...], first_token: FirstToken
) -> dict[str, dict[str, Any]]:
    length, mean = len(rates), 1 + sum(rates)
    nextn = min(length, _MOST_NEXTN)
    first = rates if nextn == length else rates_of(trace, nextn, first_token)
    written = ",".join(f"{rate:g}" for rate in rates)
    return {
        "aiconfigurator": {"nextn": nextn, "nextn_accepted": _rounded(sum(first))},
        "dynamo": {
            "aic_nextn": nextn,
            "aic_nextn_accept_rates": ",".join(f"{rate:g}" for rate in conditional(first)),
        },
        "vllm": {
            "num_speculative_tokens": length,
            "rejection_sample_method": "synthetic",
            "synthetic_acceptance_rates": list(rates),
        },
        "llama.cpp": {"flags": f"--spec-draft-n-max {length} --spec-synth-rates {written}"},
        "sglang": {
            "SGLANG_SIMULATE_ACC_LEN": _rounded(mean),
            "SGLANG_SIMULATE_ACC_METHOD": "match-expected",
            "SGLANG_SIMULATE_ACC_TOKEN_MODE": "real-draft-token",
        },
        "tensorrt-llm": {"TLLM_SPEC_DECODE_FORCE_NUM_ACCEPTED_TOKENS": _rounded(mean - 1)},
    }


def _two_lengths(accepted: float, length: int) -> tuple[float, ...]:
    """P(a >= j) where a is the mean rounded down or up, as often as keeps the mean."""
    return tuple(min(1.0, max(0.0, accepted - depth)) for depth in range(length))


def _mean(counts: np.ndarray) -> float:
    return _rounded(1 + float(counts @ np.arange(len(counts))) / max(1, int(counts.sum())))


def _rounded(value: float) -> float:
    return round(float(value), _DIGITS)
