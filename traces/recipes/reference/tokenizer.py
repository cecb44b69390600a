"""Trains the byte-level BPE tokenizer and encodes the corpus into one compact file.

``python -m traces.recipes.reference.tokenizer --work DIR`` writes ``tokenizer.json`` and
``tokenizer_config.json`` beside this module's ``models/target`` and ``models/draft``, and
``DIR/pack/tokens.npz``: for every task and side the token ids (uint16) and the document starts.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from traces.outputs import write_together
from traces.recipes.command import write_arrays
from traces.recipes.reference import corpus
from traces.recipes.reference.pair import CONTEXT, EOS, EOS_ID, MODELS, PAD, VOCAB_SIZE
from traces.recipes.reference.sources import TASKS


def _training_text(documents: list[corpus.Document], chars: int = 9_000_000) -> Iterator[str]:
    """The same number of characters from each task, every n-th document (math: a quarter)."""
    for task in TASKS:
        part = [str(d["text"]) for d in documents if d["task"] == task and not d["held_out"]]
        limit = chars // 4 if task == "math" else chars
        stride = max(1, sum(map(len, part)) // limit)
        yield from part[::stride]


def train(documents: list[corpus.Document]) -> Tokenizer:
    """Byte-level BPE; every digit is a token of its own, ``EOS`` is 0 and ``PAD`` is 1."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE,
        special_tokens=[EOS, PAD],
        show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    tokenizer.train_from_iterator(_training_text(documents), trainer)
    return tokenizer


def save(tokenizer: Tokenizer, folder: Path) -> None:
    """Write the two files that ``AutoTokenizer.from_pretrained(folder)`` needs."""
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": EOS,
        "pad_token": PAD,
        "bos_token": None,
        "unk_token": None,
        "model_max_length": CONTEXT,
        "clean_up_tokenization_spaces": False,
    }
    about = (json.dumps(config, indent=2) + "\n").encode()
    data = tokenizer.to_str(pretty=True).encode()
    write_together({folder / "tokenizer.json": data, folder / "tokenizer_config.json": about})


def encode(tokenizer: Tokenizer, documents: list[corpus.Document]) -> tuple[np.ndarray, np.ndarray]:
    """``(tokens uint16, starts int64)`` of documents, each followed by ``EOS``."""
    pieces, starts, at = [], [], 0
    for first in range(0, len(documents), 512):
        batch = [
            str(d["text"]).rstrip("\n") if d["task"] == "math" else str(d["text"])
            for d in documents[first : first + 512]
        ]
        for encoding in tokenizer.encode_batch(batch):
            starts.append(at)
            pieces.append(np.array([*encoding.ids, EOS_ID], dtype=np.uint16))
            at += len(pieces[-1])
    return np.concatenate(pieces), np.array(starts, dtype=np.int64)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, default=Path(".work/reference"))
    args = parser.parse_args()
    documents = corpus.load(args.work)
    tokenizer = train(documents)
    for model in ("target", "draft"):
        save(tokenizer, MODELS / model)
    arrays = {}
    for task in TASKS:
        for side in ("train", "held"):
            part = [d for d in documents if d["task"] == task and d["held_out"] == (side == "held")]
            tokens, starts = encode(tokenizer, part)
            arrays[f"{task}_{side}"], arrays[f"{task}_{side}_starts"] = tokens, starts
            chars = sum(len(str(d["text"])) for d in part)
            print(f"{task:7} {side:5} {chars:9} characters, {len(tokens):9} tokens")
    write_arrays(args.work / "pack" / "tokens.npz", arrays, compressed=True)


if __name__ == "__main__":
    main()
