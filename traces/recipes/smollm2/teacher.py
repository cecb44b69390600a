"""What the model says behind each token of its answers: the likeliest tokens, kept for training.

``python -m traces.recipes.smollm2.teacher [DIR]`` writes ``NUMBER.top.npz`` beside each file of
``answers.py``: ``ids`` (uint16) and ``probs`` (float16), tokens x ``KEPT``, at temperature 1,
falling. What is left to 1 is the probability of all other tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from traces.errors import UserError
from traces.recipes.command import parser_of, say, write_arrays
from traces.recipes.smollm2.answers import ANSWERS, parsed

KEPT = 64
HELD_EVERY = 24  # every so many texts one is held out
_ROWS = 512  # at once
Place = tuple[int, int]  # of a text: file and row


@dataclass(frozen=True)
class Text:
    """One text of L tokens and what the model says behind each of them.

    Attributes:
        tokens: int64 (L,), of prompt and answer.
        n_prompt: tokens of the prompt.
        ids: int64 (L, KEPT), the likeliest next tokens.
        probs: float32 (L, KEPT), their probabilities.
        states: float16 (L, H).
    """

    tokens: Tensor
    n_prompt: int
    ids: Tensor
    probs: Tensor
    states: Tensor

    def cut(self, most: int) -> Text:
        """With the last tokens of its prompt, at most so many."""
        first = max(0, self.n_prompt - most)
        parts = (self.ids[first:], self.probs[first:], self.states[first:])
        return Text(self.tokens[first:], self.n_prompt - first, *parts)

    def to(self, device: str) -> Text:
        """The same on a device."""
        parts = (self.ids.to(device), self.probs.to(device), self.states.to(device))
        return Text(self.tokens.to(device), self.n_prompt, *parts)


class Texts:
    """All texts of a folder whose likeliest tokens are known, those held out apart."""

    def __init__(self, folder: Path) -> None:
        """Read them.

        Raises:
            UserError: there are none.
        """
        self.files = [
            _arrays(file)
            for file in sorted(folder.glob("[0-9][0-9][0-9].npz"))
            if top_of(file).exists()
        ]
        if not self.files:
            raise UserError(f"{folder}: no answers in it whose likeliest tokens are known")
        places = [
            (number, row)
            for number, file in enumerate(self.files)
            for row in range(len(file["n_text"]))
        ]
        self.held = places[::HELD_EVERY]
        held = set(self.held)
        self.train = sorted(
            (p for p in places if p not in held), key=lambda p: (self._length(p), p)
        )
        self.n_tokens = sum(self._length(place) for place in self.train)

    def counts(self, n_vocab: int) -> np.ndarray:
        """How often each token is in the texts, those held out too: int64 (n_vocab,)."""
        tokens = np.concatenate([file["tokens"] for file in self.files])
        return np.bincount(tokens, minlength=n_vocab)

    def _length(self, place: Place) -> int:
        number, row = place
        return int(self.files[number]["n_text"][row])

    def some_states(self, n_states: int) -> Tensor:
        """So many states of the first files, or all there are: float16 (n, H)."""
        found = np.concatenate([file["states"][:n_states] for file in self.files[:4]])
        return torch.from_numpy(found[:n_states])

    def text(self, place: Place) -> Text:
        """One text by its place (file, row)."""
        number, row = place
        file = self.files[number]
        first = int(file["n_text"][:row].sum())
        span = slice(first, first + self._length(place))
        return Text(
            torch.from_numpy(file["tokens"][span].astype(np.int64)),
            int(file["n_prompt"][row]),
            torch.from_numpy(file["ids"][span].astype(np.int64)),
            torch.from_numpy(file["probs"][span].astype(np.float32)),
            torch.from_numpy(file["states"][span]),
        )

    def alike(self, rng: np.random.Generator, n_texts: int) -> list[Text]:
        """Texts to train on, of lengths that are next to each other.

        Raises:
            UserError: there are not so many.
        """
        if n_texts > len(self.train):
            raise UserError(f"there are {len(self.train)} texts to train on, less than {n_texts}")
        first = int(rng.integers(len(self.train) - n_texts + 1))
        return [self.text(place) for place in self.train[first : first + n_texts]]


def _arrays(file: Path) -> dict[str, np.ndarray]:
    found = {}
    for part in (file, top_of(file)):
        with np.load(part) as data:
            found.update({name: data[name] for name in data.files})
    return found


def top_of(file: Path) -> Path:
    """Where the likeliest tokens behind a file of answers are kept."""
    return file.with_suffix(".top.npz")


@torch.inference_mode()
def likeliest(states: Tensor, matrix: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Ids uint16 and probabilities float16 (tokens, KEPT) behind states (tokens, H).

    Args:
        states: what the output matrix reads.
        matrix: the output matrix (V, H), of the type to compute in.
    """
    ids, probs = [], []
    for rows in states.split(_ROWS):
        p = F.linear(rows.to(matrix.dtype), matrix).float().softmax(-1)
        best = p.topk(KEPT, dim=-1)
        ids.append(best.indices.numpy().astype(np.uint16))
        probs.append(best.values.half().numpy())
    return np.concatenate(ids), np.concatenate(probs)


def main() -> None:
    """Command line: the files that are not there yet."""
    parser = parser_of(__doc__)
    parser.add_argument("answers", nargs="?", type=Path, default=ANSWERS)
    args, model = parsed(parser)
    matrix = model.get_output_embeddings().weight.detach()
    for file in sorted(args.answers.glob("[0-9][0-9][0-9].npz")):
        if top_of(file).exists():
            continue
        with np.load(file) as data:
            ids, probs = likeliest(torch.from_numpy(data["states"]), matrix)
        write_arrays(top_of(file), {"ids": ids, "probs": probs})
        say(f"{top_of(file)}: {probs.astype(np.float32).sum(-1).mean():.3f} kept")


if __name__ == "__main__":
    main()
