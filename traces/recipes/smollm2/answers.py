"""The model's own answers, on which its drafters are trained, with its states behind every token.

``python -m traces.recipes.smollm2.answers -o DIR [--files 60] [--dtype bfloat16]``

Texts of three kinds, in turns: a question that the model makes up itself and its answer (as Magpie
does, arXiv 2406.08464), a question that begins as one of the prompts to train on and that the model
goes on with, and such a prompt as it is. Every other answer is greedy, the rest at temperature 1.
No recorded prompt is used. A file of ``SIZE`` texts is a function of (seed, number) on one machine;
a command that was stopped makes those that are not there.

A file holds ``tokens`` (all texts, one after the other), ``n_prompt`` and ``n_text`` of each, and
``states`` (float16, tokens x H): what the output matrix reads behind each token, so that the
model's distribution is known without another pass. The last token's are zeros.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from traces.errors import UserError
from traces.fetch_smollm2 import default_folder, load_model
from traces.recipes.command import parser_of, say, write_arrays
from traces.recipes.smollm2 import prompts
from traces.record.forward import Forward, causal_mask, left_padded

SIZE = 96  # texts of a file
MOST_PROMPT, MOST_QUESTION, MOST_ANSWER = 960, 128, 320  # tokens
LEAST_WORDS, MOST_WORDS = 2, 12  # of a prompt that a question begins with
SQUEEZE = 0.7  # share of a batch still alive at which the rest is dropped
TYPES = ("bfloat16", "float32")
ANSWERS = Path(".work/smollm2/answers")
START, END = "<|im_start|>", "<|im_end|>"


def texts(target: PreTrainedModel, tokenizer: Any, seed: int, number: int) -> dict[str, np.ndarray]:
    """Arrays of one file."""
    asked, generator = prompts_of(target, tokenizer, seed, number)
    sampled = np.arange(SIZE) % 2 == 1
    answers, states = go_on(target, asked, sampled, generator, MOST_ANSWER, tokenizer.eos_token_id)
    whole = [question + answer for question, answer in zip(asked, answers, strict=True)]
    lengths = [len(text) for text in whole]
    return {
        "tokens": np.array(sum(whole, []), np.uint16),
        "n_prompt": np.array([len(a) for a in asked], np.int32),
        "n_text": np.array(lengths, np.int32),
        "states": torch.cat([s[:n] for s, n in zip(states, lengths, strict=True)]).numpy(),
    }


def prompts_of(
    target: PreTrainedModel, tokenizer: Any, seed: int, number: int
) -> tuple[list[list[int]], torch.Generator]:
    """The prompts of one file as tokens, and the generator of what is drawn behind them."""
    rng = np.random.default_rng((seed, number))
    generator = torch.Generator().manual_seed(int(rng.integers(2**62)))
    asked = [tokenizer(text).input_ids for text in questions(tokenizer, rng, number)]
    if number % 3 != 2:  # the model goes on with the question first
        more, _ = go_on(
            target, asked, np.ones(SIZE, bool), generator, MOST_QUESTION, tokenizer.eos_token_id
        )
        closing = tokenizer(f"{END}\n{START}assistant\n").input_ids
        asked = [
            begun + [token for token in rest if token != closing[0]] + closing
            for begun, rest in zip(asked, more, strict=True)
        ]
    return asked, generator


def questions(tokenizer: Any, rng: np.random.Generator, number: int) -> list[str]:
    """How the texts of one file begin: open questions, or whole prompts of alike lengths."""
    rows = [prompt["messages"] for prompt in prompts.to_train_on(prompts.load())]
    given = [
        tokenizer.apply_chat_template(chat, add_generation_prompt=True, tokenize=False)
        for chat in rows
    ]
    system = given[0][: given[0].index(f"{START}user")]
    if number % 3 == 0:
        return [f"{system}{START}user\n"] * SIZE
    if number % 3 == 1:
        chosen = rng.integers(len(rows), size=SIZE)
        words = [rows[row][0]["content"].split(" ") for row in chosen]
        n_words = rng.integers(LEAST_WORDS, MOST_WORDS + 1, size=SIZE)
        return [
            f"{system}{START}user\n{' '.join(some[:n])}"
            for some, n in zip(words, n_words, strict=True)
        ]
    short = [text for text in given if len(tokenizer(text).input_ids) <= MOST_PROMPT]
    short.sort(key=len)
    first = rng.integers(len(short) - SIZE + 1)
    return short[first : first + SIZE]


@torch.inference_mode()
def go_on(
    target: PreTrainedModel,
    begun: list[list[int]],
    sampled: np.ndarray,
    generator: torch.Generator,
    most: int,
    end: int,
) -> tuple[list[list[int]], Tensor]:
    """Go on with texts until they end.

    Args:
        target: in eval mode.
        begun: B texts' tokens.
        sampled: which of them (B,) go on at temperature 1; the others greedily.
        generator: of the draws.
        most: new tokens of a text.
        end: the token that ends a text.

    Returns:
        New tokens of each text, and float16 states (B, longest text, H) behind each token but the
        last of each, where they are zeros.
    """
    tokens, pads = left_padded(begun)
    width = tokens.shape[1]
    forward = Forward(target, target.config.vocab_size, width + most, keep_hidden=True)
    text = (torch.arange(width) - pads[:, None]).clamp_min(0)
    logits = forward.pass_(tokens, text, causal_mask(pads, 0, width), keep=1)[:, -1]
    states = torch.zeros(len(begun), width + most, forward.hidden.shape[-1], dtype=torch.float16)
    for row, n_pad in enumerate(pads.tolist()):
        states[row, : width - n_pad] = forward.hidden[row, n_pad:].half()
    new: list[list[int]] = [[] for _ in begun]
    rows, alive = torch.arange(len(begun)), torch.ones(len(begun), dtype=torch.bool)
    hot = torch.from_numpy(sampled)
    for step in range(most):
        token = logits.argmax(-1)
        drawn = hot[rows].nonzero()[:, 0]
        token[drawn] = draw(logits[drawn], generator)
        for row in alive.nonzero()[:, 0].tolist():
            new[int(rows[row])].append(int(token[row]))
        alive = alive & (token != end)
        if step == most - 1 or not bool(alive.any()):
            break
        if float(alive.float().mean()) < SQUEEZE:
            forward.cache.keep(alive.nonzero()[:, 0])
            rows, token, pads = rows[alive], token[alive], pads[alive]
            alive = alive[alive]
        start = forward.cache.length
        mask = causal_mask(pads, start, start + 1)
        logits = forward.pass_(token[:, None], (start - pads)[:, None], mask)[:, -1]
        states[rows[alive], (start - pads)[alive]] = forward.hidden[alive, 0].half()
    return new, states


def draw(logits: Tensor, generator: torch.Generator) -> Tensor:
    """A token (B,) of each row (B, V) at temperature 1, by inversion."""
    below = logits.float().softmax(-1).cumsum(-1)
    at = torch.rand(len(logits), 1, generator=generator) * below[:, -1:]
    return torch.searchsorted(below, at)[:, 0].clamp_max(logits.shape[-1] - 1)


def parsed(parser: argparse.ArgumentParser) -> tuple[argparse.Namespace, Any]:
    """A command's arguments, and the model that they name; what is not there is one line."""
    parser.add_argument("--model", type=Path, default=default_folder(), metavar="DIR")
    parser.add_argument(
        "--dtype", default="bfloat16", choices=TYPES, help="what the model computes in"
    )
    args = parser.parse_args()
    try:
        return args, load_model(args.model, args.dtype)
    except UserError as error:
        sys.exit(f"error: {error}")


def main() -> None:
    """Command line: make the files that are not there yet."""
    from transformers import AutoTokenizer

    parser = parser_of(__doc__)
    parser.add_argument("-o", "--out", type=Path, default=ANSWERS)
    parser.add_argument("--files", type=int, default=60, help=f"of {SIZE} texts")
    parser.add_argument("--first", type=int, default=0, help="number of the first file")
    parser.add_argument("--seed", type=int, default=0)
    args, target = parsed(parser)
    args.out.mkdir(parents=True, exist_ok=True)
    tokenizer = AutoTokenizer.from_pretrained(args.model)
    for number in range(args.first, args.first + args.files):
        file = args.out / f"{number:03d}.npz"
        if file.exists():
            continue
        began = time.process_time()
        arrays = texts(target, tokenizer, args.seed, number)
        write_arrays(file, arrays)
        n_answer = int((arrays["n_text"] - arrays["n_prompt"]).sum())
        seconds = time.process_time() - began
        say(f"{file}: {n_answer} tokens of answers, {seconds:.0f} CPU seconds")


if __name__ == "__main__":
    main()
