"""How well two models say a recording's outputs: perplexity by task, of the target and of a draft.

``python -m traces.recipes.smollm2.perplexity TRACE --draft DIR``

exp(mean of -log p) over the tokens of the outputs, each behind its prompt and the output before it,
at temperature 1: the target's p is in the recording, the draft's is computed. Drafters were not
trained on these prompts. A Markdown table is printed.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

import traces
from traces.errors import UserError
from traces.record.pair import load_model, quiet
from traces.trace import Trace


class Said(NamedTuple):
    """Of one task, or of all: sums over the tokens of its outputs."""

    prompts: int
    tokens: int
    losses: tuple[float, ...]  # nats, one a model

    def plus(self, other: Said) -> Said:
        """Both together."""
        losses = tuple(a + b for a, b in zip(self.losses, other.losses, strict=True))
        return Said(self.prompts + other.prompts, self.tokens + other.tokens, losses)

    @property
    def perplexities(self) -> list[float]:
        """One a model."""
        return [math.exp(loss / self.tokens) for loss in self.losses]


@torch.inference_mode()
def loss(model: Any, prompt: list[int], output: list[int]) -> float:
    """Sum of -log p over an output's tokens (nats), behind a prompt that is not empty."""
    tokens = torch.tensor([prompt + output], device=model.device)
    logits = model(input_ids=tokens, use_cache=False, logits_to_keep=len(output) + 1).logits
    log_p = logits[0, :-1].float().log_softmax(-1)
    return -float(log_p.gather(-1, tokens[0, len(prompt) :, None]).double().sum())


def recorded_losses(trace: Trace) -> np.ndarray:
    """Sum of the target's -log p over each output's tokens (S,)."""
    table = "target" if trace.manifest.kind == "target" else "positions"
    nats = -np.log(trace.column(table, "target_token_prob_raw").astype(float))
    return np.add.reduceat(nats, trace.position_offsets[:-1])


def by_task(trace: Trace, draft: Any) -> dict[str, Said]:
    """What target and draft say of the outputs of each task, in the order in which they come."""
    found: dict[str, Said] = {}
    for row, of_target in zip(trace.sequences.to_pylist(), recorded_losses(trace), strict=True):
        prompt, output = row["prompt_tokens"], row["output_tokens"]
        one = Said(1, len(output), (float(of_target), loss(draft, prompt, output)))
        known = found.get(row["task"])
        found[row["task"]] = one if known is None else known.plus(one)
    return found


def table(found: dict[str, Said], names: list[str]) -> Iterator[str]:
    """Lines of Markdown, the tasks from the least perplexity of the last model up."""
    yield f"| task | prompts | tokens | {' | '.join(names)} |"
    yield "|---|" + "---:|" * (2 + len(names))
    every = None
    for task, said in sorted(found.items(), key=lambda item: item[1].perplexities[-1]):
        yield _line(task, said)
        every = said if every is None else every.plus(said)
    if every is not None:
        yield _line("all", every)


def _line(task: str, said: Said) -> str:
    values = " | ".join(f"{value:.2f}" for value in said.perplexities)
    return f"| {task} | {said.prompts} | {said.tokens:,} | {values} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("trace", help="a recording of the model")
    parser.add_argument("--draft", type=Path, required=True, metavar="DIR")
    parser.add_argument("--dtype", default="float32")
    given = parser.parse_args()
    quiet()
    try:
        trace = traces.load(given.trace)
        draft = load_model(str(given.draft), "", "cpu", given.dtype).eval()
    except UserError as problem:
        sys.exit(f"error: {problem}")
    for line in table(by_task(trace, draft), ["target", "draft"]):
        print(line)


if __name__ == "__main__":
    main()
