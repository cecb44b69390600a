"""Texts that the reference target makes up: training data where prompts are few.

``python -m traces.recipes.reference.made_texts -o .work/answers/made [--batches 12]``

A text begins as one of the prompts to train on, cut short at random; the target goes on at
temperature 1 for a random stretch, which makes a new prompt of it, and then answers, greedily or
(every other text) at temperature 1, to EOS or to ``LENGTH`` tokens. Each batch is one file; a
command that was stopped makes those that are not there. Like Magpie (arXiv 2406.08464), on which
PARD-2 is trained, where a model is its own source of prompts.
"""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from traces.recipes.command import parser_of, say, write_arrays
from traces.recipes.reference.pair import EOS_ID, PAD_ID, load_prompts, load_target, load_tokenizer
from traces.recipes.reference.prompts import prompt_ids
from traces.recipes.reference.sources import TASKS
from traces.record.forward import Forward, causal_mask, left_padded

LENGTH = 256  # tokens of a text
BATCH = 128  # texts of a file
LEAST, MOST = 6, 40  # tokens that are left of a prompt
STRETCH = 80  # sampled tokens behind them, at most


def prompts_to_train_on() -> list[list[list[int]]]:
    """Token ids of each task's prompts that no bundled trace holds and no measurement uses."""
    tokenizer = load_tokenizer()
    bundled, held_out = prompt_ids()
    rows = [row for row in load_prompts() if row["id"] not in bundled | held_out]
    return [
        [tokenizer.encode(row["prompt"]).ids for row in rows if row["task"] == task]
        for task in TASKS
    ]


def make(target: PreTrainedModel, seed: int, number: int, size: int = BATCH) -> dict[str, Tensor]:
    """Texts of one file, a function of (seed, number) on one machine.

    Returns:
        tokens (size, LENGTH), padded; n_prompt and n_text (size,).
    """
    tasks = prompts_to_train_on()
    rng = np.random.default_rng((seed, number))
    prompts = []
    for n in range(size):
        prompt = tasks[n % len(tasks)][rng.integers(len(tasks[n % len(tasks)]))]
        prompts.append(prompt[: rng.integers(LEAST, MOST + 1)])
    stretch = torch.from_numpy(rng.integers(0, STRETCH + 1, size))
    sampled = torch.arange(size) // len(tasks) % 2 == 1
    generator = torch.Generator().manual_seed(int(rng.integers(2**62)))
    tokens, n_text = go_on(target, prompts, stretch, sampled, generator, LENGTH)
    n_prompt = torch.tensor([len(prompt) for prompt in prompts]) + stretch
    return {"tokens": tokens, "n_prompt": n_prompt, "n_text": n_text}


@torch.inference_mode()
def go_on(
    target: PreTrainedModel,
    prompts: list[list[int]],
    stretch: Tensor,
    sampled: Tensor,
    generator: torch.Generator,
    length: int,
) -> tuple[Tensor, Tensor]:
    """Texts (B, length) that go on from prompts, and their lengths (B,).

    Args:
        target: in eval mode.
        prompts: of token ids.
        stretch: tokens (B,) at temperature 1, none of them EOS, before the answer.
        sampled: whether the answer (B,) is at temperature 1 too, else it is greedy.
        generator: of the draws.
        length: tokens of a text at most.
    """
    tokens, pads = left_padded(prompts)
    width = tokens.shape[1]
    n_text = width - pads
    forward = Forward(target, target.config.vocab_size, length + int(pads.max()))
    text = (torch.arange(width) - pads[:, None]).clamp_min(0)
    logits = forward.pass_(tokens, text, causal_mask(pads, 0, width), keep=1)[:, -1]
    out = torch.full((len(prompts), length), PAD_ID)
    for row, prompt in enumerate(prompts):
        out[row, : len(prompt)] = torch.tensor(prompt)
    alive = n_text < length
    for step in range(length - int(n_text.min())):
        early = step < stretch
        logits[:, EOS_ID] = logits[:, EOS_ID].masked_fill(early, -torch.inf)
        race = torch.empty_like(logits).exponential_(generator=generator)
        drawn = (logits.softmax(-1) / race).argmax(-1)
        token = torch.where(early | sampled, drawn, logits.argmax(-1))
        out[alive, n_text[alive]] = token[alive]
        n_text = n_text + alive
        alive = alive & (token != EOS_ID) & (n_text < length)
        if not bool(alive.any()):
            break
        start = forward.cache.length
        mask = causal_mask(pads, start, start + 1)
        logits = forward.pass_(token[:, None], (start - pads)[:, None], mask)[:, -1]
    return out, n_text


def main() -> None:
    """Command line: make the files that are not there yet."""
    parser = parser_of(__doc__)
    parser.add_argument("-o", "--out", type=Path, required=True, metavar="DIR")
    parser.add_argument("--batches", type=int, default=12, help=f"files of {BATCH} texts")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    target = load_target()
    for number in range(args.batches):
        file = args.out / f"{number:03d}.npz"
        if file.exists():
            continue
        began = time.process_time()
        texts = make(target, args.seed, number)
        arrays = {name: value.numpy().astype(np.uint16) for name, value in texts.items()}
        write_arrays(file, arrays, compressed=True)
        n_answer = int((texts["n_text"] - texts["n_prompt"]).sum())
        seconds = time.process_time() - began
        say(f"{file}: {n_answer} tokens of answers, {seconds:.0f} CPU seconds")


if __name__ == "__main__":
    main()
