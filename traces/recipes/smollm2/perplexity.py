"""How well two models say a recording's outputs: perplexity by task, of the target and of a draft.

``python -m traces.recipes.smollm2.perplexity TRACE --draft DIR``

exp(mean of -log p) over the tokens of the outputs, each behind its prompt and the output before it,
at temperature 1: the target's p is in the recording, the draft's is computed. Drafters were not
trained on these prompts. A Markdown table is printed.
"""

from __future__ import annotations

import math
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import reduce
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

import traces
from traces.errors import UserError
from traces.recipes.command import parser_of
from traces.record.pair import load_model, quiet
from traces.trace import Trace


class Said(NamedTuple):
    """Of some outputs: sums over their tokens."""

    prompts: int
    tokens: int
    losses: np.ndarray  # nats, one a model

    @property
    def perplexities(self) -> list[float]:
        """One a model."""
        return [math.exp(loss) for loss in self.losses / self.tokens]


def together(some: Iterable[Said]) -> Said:
    """All of them."""
    prompts, tokens, losses = zip(*some, strict=True)
    return Said(sum(prompts), sum(tokens), reduce(np.add, losses))


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
    found: dict[str, list[Said]] = defaultdict(list)
    for row, of_target in zip(trace.sequences.to_pylist(), recorded_losses(trace), strict=True):
        prompt, output = row["prompt_tokens"], row["output_tokens"]
        losses = np.array([of_target, loss(draft, prompt, output)])
        found[row["task"]].append(Said(1, len(output), losses))
    return {task: together(some) for task, some in found.items()}


def table(found: dict[str, Said], names: list[str]) -> Iterator[str]:
    """Lines of Markdown, the tasks from the least perplexity of the last model up."""
    yield f"| task | prompts | tokens | {' | '.join(names)} |"
    yield "|---|" + "---:|" * (2 + len(names))
    tasks = sorted(found.items(), key=lambda item: item[1].perplexities[-1])
    whole = [("all", together(found.values()))] if found else []
    for task, said in [*tasks, *whole]:
        values = " | ".join(f"{value:.2f}" for value in said.perplexities)
        yield f"| {task} | {said.prompts} | {said.tokens:,} | {values} |"


def main() -> None:
    """Print the table."""
    parser = parser_of(__doc__)
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
