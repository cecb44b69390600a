"""The reference corpus as one file that is small enough to travel, and back to tokens.

Text compresses better than tokens, arithmetic is generated again, and tokenizing takes seconds: so
a pack holds the text of the other tasks, xz-compressed JSON lines.
"""

from __future__ import annotations

import io
import json
import lzma
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from traces.outputs import write_atomic
from traces.recipes.reference import corpus
from traces.recipes.reference.pair import MODELS
from traces.recipes.reference.sources import TASKS
from traces.recipes.reference.tokenizer import encode

MADE_UP = "math"  # the task whose documents a seeded generator writes


def build(work: Path, file: Path) -> int:
    """Pack the documents that `recipes/reference/corpus.py` wrote to `work`; returns the bytes."""
    kept = (
        {name: document[name] for name in ("task", "held_out", "text")}
        for document in corpus.load(work)
        if document["task"] != MADE_UP
    )
    lines = [json.dumps(document, ensure_ascii=False) + "\n" for document in kept]
    data = lzma.compress("".join(lines).encode(), preset=9)
    write_atomic(file, data)
    return len(data)


def expand(file: Path, tokens: Path, n_problems: int = corpus.MATH_PROBLEMS) -> dict[str, int]:
    """Write what `traces.recipes.reference.windows` reads, encoded with the shipped tokenizer.

    Args:
        file: a pack.
        tokens: the .npz file to write.
        n_problems: arithmetic problems to generate.

    Returns:
        tokens of each task and side, by "TASK_train" and "TASK_held".
    """
    tokenizer = Tokenizer.from_file(str(MODELS / "target" / "tokenizer.json"))
    with lzma.open(file, "rt", encoding="utf-8") as lines:
        documents = [json.loads(line) for line in lines]
    documents += corpus.math_documents(n_problems)
    arrays: dict[str, np.ndarray] = {}
    counts = {}
    for task in TASKS:
        for side in ("train", "held"):
            held = side == "held"
            part = [d for d in documents if d["task"] == task and d["held_out"] == held]
            name = f"{task}_{side}"
            arrays[name], arrays[f"{name}_starts"] = encode(tokenizer, part)
            counts[name] = len(arrays[name])
    data = io.BytesIO()
    np.savez(data, **arrays)  # pyright: ignore[reportArgumentType]
    write_atomic(tokens, data.getvalue())
    return counts
