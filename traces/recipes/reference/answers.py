"""The reference target's own answers, on which its parallel and feature drafters are trained.

``python -m traces.recipes.reference.answers TRACE … [--made DIR] -o .work/answers/states.npz``

The texts are recordings of prompts that the bundled traces do not hold, greedy and at temperature
1, and what ``traces.recipes.reference.made_texts`` made. Added to them are the target's states of
``LAYERS`` behind every token, from one teacher-forced pass: features for the drafters that read
them, and the target's distribution, which is the output matrix times the last layer's states.
Answers to the prompts for measuring are held out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

import traces
from traces.recipes.command import parser_of, write_arrays
from traces.recipes.reference.pair import PAD_ID, load_target
from traces.recipes.reference.prompts import prompt_ids
from traces.record.drafters.layers import Layers

STATES = Path(".work/answers/states.npz")
LAYERS = (-1, -8, -16, -24)  # the first is what the output matrix reads; as in PARD-2's code


@dataclass(frozen=True)
class Answers:
    """N texts that begin with a prompt and end with an answer.

    Attributes:
        tokens: int64 (N, L), padded behind.
        n_prompt: tokens before the answer (N,).
        n_text: tokens of prompt and answer (N,).
        first: row of `states` of the text's first token (N,).
        states: the target's behind each token, float16 (all tokens, layers x H).
    """

    tokens: Tensor
    n_prompt: Tensor
    n_text: Tensor
    first: Tensor
    states: Tensor

    @classmethod
    def of(cls, arrays: Mapping[str, np.ndarray]) -> Answers:
        """The texts of arrays as `gather` has them."""
        tokens = torch.from_numpy(arrays["tokens"].astype(np.int64))
        n_prompt, n_text, states = (
            torch.from_numpy(arrays[name]) for name in ("n_prompt", "n_text", "states")
        )
        return cls(tokens, n_prompt, n_text, n_text.long().cumsum(0) - n_text, states)

    def pick(self, rows: Tensor) -> Answers:
        """Some of the texts."""
        n_prompt, n_text = self.n_prompt[rows], self.n_text[rows]
        return Answers(self.tokens[rows], n_prompt, n_text, self.first[rows], self.states)

    def text(self, row: int) -> tuple[Tensor, int, Tensor]:
        """One text: its tokens (T,), those of its prompt, and float32 states (T, layers x H)."""
        n, first = int(self.n_text[row]), int(self.first[row])
        return self.tokens[row, :n], int(self.n_prompt[row]), self.states[first : first + n].float()


def load(file: Path) -> tuple[Answers, Answers]:
    """The texts to train on and those held out."""
    data = np.load(file)
    texts, held = Answers.of(data), torch.from_numpy(data["held"])
    return texts.pick((~held).nonzero()[:, 0]), texts.pick(held.nonzero()[:, 0])


@torch.inference_mode()
def states_of(target: PreTrainedModel, tokens: Tensor) -> Tensor:
    """The target's states of `LAYERS` behind every token, float16 (B, L, layers x H)."""
    with Layers(target, LAYERS) as layers:
        target.base_model(input_ids=tokens, use_cache=False)
    return layers.joined().half()


def recorded(trace: traces.Trace) -> list[tuple[list[int], int, bool]]:
    """Texts of a recording: tokens, how many are the prompt, whether it is held out.

    Raises:
        ValueError: it holds a prompt of the bundled traces.
    """
    bundled, held_out = prompt_ids()
    rows = trace.sequences.to_pylist()
    if any(row["id"] in bundled for row in rows):
        raise ValueError(f"{trace.path} holds prompts of the bundled traces")
    return [
        (row["prompt_tokens"] + row["output_tokens"], row["n_prompt"], row["id"] in held_out)
        for row in rows
    ]


def made(folder: Path) -> list[tuple[list[int], int, bool]]:
    """Texts that ``traces.recipes.reference.made_texts`` wrote, as ``recorded`` gives them."""
    found = []
    for file in sorted(folder.glob("*.npz")):
        data = np.load(file)
        for tokens, n_prompt, n_text in zip(*(data[n] for n in data.files), strict=True):
            found.append((tokens[:n_text].tolist(), int(n_prompt), False))
    return found


def gather(
    target: PreTrainedModel, texts: list[tuple[list[int], int, bool]]
) -> dict[str, np.ndarray]:
    """The arrays of a file that `load` reads."""
    tokens = np.full((len(texts), max(len(text) for text, _, _ in texts)), PAD_ID, np.uint16)
    for n, (text, _, _) in enumerate(texts):
        tokens[n, : len(text)] = text
    states = [states_of(target, torch.tensor([text]))[0].numpy() for text, _, _ in texts]
    return {
        "tokens": tokens,
        "n_prompt": np.array([n_prompt for _, n_prompt, _ in texts], np.int32),
        "n_text": np.array([len(text) for text, _, _ in texts], np.int32),
        "states": np.concatenate(states),
        "held": np.array([held for _, _, held in texts]),
    }


def main() -> None:
    """Command line."""
    parser = parser_of(__doc__)
    parser.add_argument("traces", nargs="+", type=Path, metavar="TRACE")
    parser.add_argument("--made", type=Path, metavar="DIR", help="texts that the target made up")
    parser.add_argument("-o", "--out", type=Path, required=True, metavar="FILE")
    args = parser.parse_args()
    texts = sum([recorded(traces.load(path)) for path in args.traces], [])
    texts += made(args.made) if args.made else []
    arrays = gather(load_target(), texts)
    write_arrays(args.out, arrays)
    n_answer = int((arrays["n_text"] - arrays["n_prompt"]).sum())
    print(f"{args.out}: {len(arrays['tokens'])} texts, {n_answer} tokens of answers")


if __name__ == "__main__":
    main()
