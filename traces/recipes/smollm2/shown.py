"""Some answers of a recording: the question as it was asked and what the model said.

``python -m traces.recipes.smollm2.shown smollm2 -o docs/_data/smollm2-answers.json``

The first prompts of each task, one each until there are ``N_SHOWN``, then their seconds. Long texts
are cut, which the page says.
"""

from __future__ import annotations

import json
import re
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import traces
from traces.errors import UserError
from traces.fetch_smollm2 import default_folder
from traces.outputs import write_atomic
from traces.recipes.command import parser_of
from traces.recipes.smollm2 import prompts

N_SHOWN = 16
ASKED, SAID = 500, 900  # characters that are shown of a question, of an answer


def chosen(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The first of each task, then the seconds, …, by the prompts' ids."""
    tasks: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in sorted(rows, key=lambda row: row["id"]):
        tasks[row["task"]].append(row)
    longest = max(map(len, tasks.values()), default=0)
    turns = [[of[n] for of in tasks.values() if n < len(of)] for n in range(longest)]
    return sorted(sum(turns, [])[:N_SHOWN], key=lambda row: row["id"])


def cut(text: str, most: int) -> str:
    """The beginning of a text, and how much more there is."""
    text = text.strip()
    left = len(text) - most
    return text if left <= 0 else f"{text[:most].rstrip()} … ({left:,} characters more)"


def quoted(text: str) -> str:
    """A text as a block of its own, whatever stands in it."""
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    return f"{fence}text\n{text}\n{fence}"


def answers(
    rows: list[dict[str, Any]], asked: dict[str, list[dict[str, str]]], tokenizer: Any
) -> list[dict[str, Any]]:
    """The answers that are shown, as plain values.

    Args:
        rows: of the recording's table of sequences.
        asked: a prompt's messages by its id.
        tokenizer: of the model.
    """
    return [
        {
            "task": row["task"],
            "id": row["id"],
            "asked": cut(asked[row["id"]][-1]["content"], ASKED),
            "n_output": row["n_output"],
            "complete": row["finish_reason"] == "eos",
            "said": cut(tokenizer.decode(row["output_tokens"], skip_special_tokens=True), SAID),
        }
        for row in chosen(rows)
    ]


def page(shown: list[dict[str, Any]]) -> str:
    """A section of Markdown for each answer of `answers`."""
    lines = []
    for one in shown:
        end = "" if one["complete"] else ", cut at the longest output"
        lines += [f"## {one['task']}: {one['id']}", "", quoted(one["asked"]), ""]
        lines += [f"{one['n_output']} tokens{end}:", "", quoted(one["said"]), ""]
    return "\n".join(lines)


def main() -> None:
    """Write the file."""
    parser = parser_of(__doc__)
    parser.add_argument("trace", help="a recording of the model")
    parser.add_argument("-o", "--out", type=Path, required=True, metavar="FILE")
    parser.add_argument("--model", type=Path, default=default_folder(), metavar="DIR")
    given = parser.parse_args()
    from traces.record.pair import load_tokenizer  # the site's build does without

    try:
        rows = traces.load(given.trace).sequences.to_pylist()
        tokenizer = load_tokenizer(str(given.model))
    except UserError as problem:
        sys.exit(f"error: {problem}")
    asked = {line["id"]: line["messages"] for line in prompts.load()}
    text = json.dumps(answers(rows, asked, tokenizer), ensure_ascii=False, indent=1) + "\n"
    write_atomic(given.out, text.encode())


if __name__ == "__main__":
    main()
