"""Questions that the model makes up, on whose answers heads are trained: no drafter has seen them.

``python -m traces.recipes.smollm2.questions -o FILE.jsonl [--files 4]``

They begin as those of ``answers.py``: half with nothing, half with the first words of a
prompt that is not recorded; but they are drawn from another seed. On texts that a draft model was
trained on it is accepted more often than elsewhere, and a head that learns there takes it for
better than it is.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer, PreTrainedModel

from traces.outputs import write_atomic
from traces.recipes.command import parser_of
from traces.recipes.smollm2.answers import parsed, prompts_of

SEED = 1  # that of the answers to train drafters on is 0
KINDS = {0: "open", 1: "begun"}  # by the remainder of a file's number


def lines(target: PreTrainedModel, tokenizer: Any, n_files: int) -> Iterator[dict[str, Any]]:
    """Prompts as tokens, `answers.SIZE` of each file."""
    numbers = [number for number in range(2 * n_files) if number % 3 in KINDS][:n_files]
    for number in numbers:
        asked, _ = prompts_of(target, tokenizer, SEED, number)
        for index, tokens in enumerate(asked):
            name = f"made-up-{number:02d}-{index:02d}"
            yield {"id": name, "task": KINDS[number % 3], "prompt_tokens": tokens}


def main() -> None:
    """Command line."""
    parser = parser_of(__doc__)
    parser.add_argument("-o", "--out", type=Path, required=True, metavar="FILE")
    parser.add_argument("--files", type=int, default=4)
    args, target = parsed(parser)
    made = list(lines(target, AutoTokenizer.from_pretrained(args.model), args.files))
    made.sort(key=lambda line: len(line["prompt_tokens"]))
    write_atomic(args.out, "".join(json.dumps(line) + "\n" for line in made).encode())
    print(f"{args.out}: {len(made)} prompts")


if __name__ == "__main__":
    main()
