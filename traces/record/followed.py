"""A target alone reads texts that are known, many tokens a pass: as fast as prefill."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from traces.record.agreement import Agreement, held_to, randomness_of
from traces.record.forward import Forward, causal_mask
from traces.record.pair import Alone
from traces.record.path import target_columns
from traces.record.plan import Plan
from traces.record.proof_passes import own_along
from traces.record.statistics import target_rows
from traces.record.wide import wide

_AT_ONCE = 256  # rows of logits that are held
_REDUCED = 32  # of them at once on a CPU, in whose cache they stay


def follow(
    target: Alone,
    prompts: list[list[int]],
    outputs: list[list[int]],
    plan: Plan,
    first: int,
    is_packed: bool = True,
    on_token: Callable[[int], None] = lambda n: None,
) -> tuple[list[dict[str, Tensor]], Agreement]:
    """What the target says at each position of outputs that another program drew.

    Args:
        target: the model.
        prompts: token ids.
        outputs: of each.
        plan: the recording's settings.
        first: number of the first sequence.
        is_packed: the recorder's passes read the model rightly; else its own do, a text in each.
        on_token: told after every pass how many positions were read.

    Returns:
        of each output the columns of `traces.schema.target` (n,), and how far it is the target's.
    """
    agreement, randomness = Agreement(), randomness_of(plan, first)
    found = []
    for prompt, output in zip(prompts, outputs, strict=True):
        parts, at = [], 0
        for logits in _reduced(target, prompt, output, is_packed):
            p = target_rows(logits, plan.sampler, plan.kernel)
            y = torch.tensor(output[at : at + len(logits)], device=logits.device)
            agreement.see(p, y, randomness)
            parts.append(target_columns(held_to(p, y), y))
            at += len(logits)
            on_token(len(logits))
        found.append({name: torch.cat([part[name] for part in parts]) for name in parts[0]})
    return found, agreement


def _reduced(
    target: Alone, prompt: list[int], output: list[int], is_packed: bool
) -> Iterator[Tensor]:
    """The logits (n, V) before the next few tokens of an output, until all have been read."""
    for logits in (_passes if is_packed else _own_pass)(target, prompt, output):
        yield from logits.split(_REDUCED if logits.device.type == "cpu" else len(logits))


def _own_pass(target: Alone, prompt: list[int], output: list[int]) -> Iterator[Tensor]:
    """The same of a model that takes no masks: the whole text at once."""
    with torch.inference_mode(), wide():
        logits = own_along(target.target, prompt, output)
    yield logits[:, : target.vocab_size]


def _passes(target: Alone, prompt: list[int], output: list[int]) -> Iterator[Tensor]:
    """The logits (n, V) before the next n tokens of an output, a pass each."""
    text = prompt + output[:-1]
    model = Forward(target.target, target.vocab_size, len(text))
    pads = torch.zeros(1, dtype=torch.long, device=model.device)
    begin, end = 0, min(len(text), len(prompt) + _AT_ONCE - 1)
    while begin < len(text):
        tokens = torch.tensor([text[begin:end]], device=model.device)
        positions = torch.arange(begin, end, device=model.device)[None]
        kept = end - max(begin, len(prompt) - 1)
        with wide():
            logits = model.pass_(tokens, positions, causal_mask(pads, begin, end), kept)[0]
        yield logits
        begin, end = end, min(len(text), end + _AT_ONCE)
