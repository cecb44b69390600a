"""The reference target's own answers, on which its parallel and feature drafters are trained.

``python -m traces.reference.answers TRACE … -o .work/answers/states.npz``

The texts are recordings of prompts that the bundled traces do not hold, greedy and at temperature
1, any number of them (see docs/drafters.md). Added to them are the target's states of ``LAYERS``
behind every token, from one teacher-forced pass: features for the drafters that read them, and the
target's distribution, which is the output matrix times the last layer's states. Answers to the last
``HELD_OUT`` prompts of each task are for measuring and never trained on.
"""

from __future__ import annotations

import argparse
import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

import traces
from traces.outputs import write_atomic
from traces.record.drafters.layers import Layers
from traces.reference.prompts import PROMPTS
from traces.reference.sources import TASKS
from traces.reference.tokenizer import MODELS, PAD_ID

BUNDLED = 32  # prompts a task that the bundled traces hold
HELD_OUT = 8  # prompts a task for measuring, the last ones
LAYERS = (-1, -8, -16, -24)  # the first is what the output matrix reads; as in PARD-2's code


@dataclass(frozen=True)
class Answers:
    """Texts (N, L) that begin with a prompt and end with an answer; the rest is padding.

    Attributes:
        tokens: int64 (N, L).
        n_prompt: tokens before the answer (N,).
        n_text: tokens of prompt and answer (N,).
        states: the target's behind each token, float16 (N, L, layers x H).
    """

    tokens: Tensor
    n_prompt: Tensor
    n_text: Tensor
    states: Tensor

    def pick(self, rows: Tensor | np.ndarray) -> Answers:
        """Some of the texts, cut to the longest of them."""
        rows = torch.as_tensor(rows)
        n_text = self.n_text[rows]
        longest = int(n_text.max())
        tokens, states = self.tokens[rows, :longest], self.states[rows, :longest]
        return Answers(tokens, self.n_prompt[rows], n_text, states)


def load(file: Path) -> tuple[Answers, Answers]:
    """The texts to train on and those held out."""
    data = np.load(file)
    tokens = torch.from_numpy(data["tokens"].astype(np.int64))
    n_prompt, n_text, states, held = (
        torch.from_numpy(data[name]) for name in ("n_prompt", "n_text", "states", "held")
    )
    texts = Answers(tokens, n_prompt, n_text, states)
    return texts.pick((~held).nonzero()[:, 0]), texts.pick(held.nonzero()[:, 0])


def prompt_ids() -> tuple[set[str], set[str]]:
    """Ids of the prompts that the bundled traces hold, and of those for measuring."""
    lines = [json.loads(line) for line in PROMPTS.read_text(encoding="utf-8").splitlines()]
    tasks = [[row["id"] for row in lines if row["task"] == task] for task in TASKS]
    bundled = {name for task in tasks for name in task[:BUNDLED]}
    return bundled, {name for task in tasks for name in task[-HELD_OUT:]}


@torch.inference_mode()
def states_of(target: PreTrainedModel, tokens: Tensor) -> Tensor:
    """The target's states of `LAYERS` behind every token, float16 (B, L, layers x H)."""
    with Layers(target, LAYERS) as layers:
        target.base_model(input_ids=tokens, use_cache=False)
    return layers.joined().half()


def gather(target: PreTrainedModel, recordings: list[traces.Trace]) -> dict[str, np.ndarray]:
    """The arrays of a file that `load` reads.

    Raises:
        ValueError: a recording holds a prompt of the bundled traces.
    """
    bundled, held_out = prompt_ids()
    rows = [row for trace in recordings for row in trace.sequences.to_pylist()]
    if any(row["id"] in bundled for row in rows):
        raise ValueError("a recording holds prompts of the bundled traces")
    longest = max(row["n_prompt"] + row["n_output"] for row in rows)
    tokens = np.full((len(rows), longest), PAD_ID, np.uint16)
    width = len(LAYERS) * target.config.hidden_size
    states = np.zeros((len(rows), longest, width), np.float16)
    for n, row in enumerate(rows):
        text = row["prompt_tokens"] + row["output_tokens"]
        tokens[n, : len(text)] = text
        states[n, : len(text)] = states_of(target, torch.tensor([text]))[0].numpy()
    return {
        "tokens": tokens,
        "n_prompt": np.array([row["n_prompt"] for row in rows], np.int32),
        "n_text": np.array([row["n_prompt"] + row["n_output"] for row in rows], np.int32),
        "states": states,
        "held": np.array([row["id"] in held_out for row in rows]),
    }


def main() -> None:
    """Command line."""
    from transformers import LlamaForCausalLM

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("traces", nargs="+", type=Path, metavar="TRACE")
    parser.add_argument("-o", "--out", type=Path, required=True, metavar="FILE")
    args = parser.parse_args()
    loaded: Any = LlamaForCausalLM.from_pretrained(MODELS / "target", dtype=torch.float32)
    arrays = gather(loaded.eval(), [traces.load(path) for path in args.traces])
    data = io.BytesIO()
    np.savez(data, **arrays)  # type: ignore[arg-type]
    write_atomic(args.out, data.getvalue())
    n_answer = int((arrays["n_text"] - arrays["n_prompt"]).sum())
    print(f"{args.out}: {len(arrays['tokens'])} texts, {n_answer} tokens of answers")


if __name__ == "__main__":
    main()
