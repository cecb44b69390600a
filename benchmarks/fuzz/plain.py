"""Altered texts, read in the plainest way: the judge of what is accepted."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.fuzz.judge import FaultError
from simkit.costs import Linear
from traces.trace import Trace


def prompts(file: Path, tokenizer: Any) -> list[tuple[str, str, str | None, list[int]]]:
    """Id, task, text and tokens of each line of a prompts file."""
    found = []
    for number, row in _lines(file):
        if "prompt_tokens" in row:
            text, tokens = None, row["prompt_tokens"]
        elif "messages" in row:
            text, tokens = None, tokenizer.encode(tokenizer.apply_chat_template(row["messages"]))
        else:
            text = row["prompt"]
            tokens = tokenizer.encode(text)
        id_, task = row.get("id"), row.get("task")
        words = str(number if id_ is None else id_), "default" if task in (None, "") else str(task)
        found.append((*words, text, tokens))
    return found


_READ = """prompt messages prompt_tokens id task tools documents chat_template_kwargs source licence
    license document""".split()


def unread(file: Path) -> str:
    """The first name of a prompts file, by the alphabet, that nobody reads; or nothing."""
    return min((name for _, row in _lines(file) for name in row if name not in _READ), default="")


def cost(file: Path) -> Linear | None:
    """The cost in a JSON or TOML file, if it is a linear one.

    Raises:
        FaultError: some of its seconds are below 0.
    """
    text = file.read_bytes().decode("utf-8-sig")
    values = tomllib.loads(text) if file.suffix == ".toml" else json.loads(text)
    if values.pop("kind") != "linear":
        return None
    if below := [name for name, value in values.items() if name.endswith("_s") and value < 0]:
        raise FaultError("wrong number", f"{below[0]} is below 0")
    return Linear(**values)


def check_lengths(file: Path, drafter: str, trace: Trace) -> str:
    """In what an imported trace differs from the accepted lengths that were imported; or nothing.

    Entry k of the lengths, counted from 0, is for the step at position k + 2, and holds the token
    that every step emits (docs/importing.md).
    """
    records = [row for _, row in _lines(file)]
    lengths = [row[f"acc_{drafter}"]["acc_len"] for row in records]
    wanted = {
        "prompt_tokens": [row["prompt_token_ids"] for row in records],
        "output_tokens": [row["generated_token_ids"] for row in records],
        "n_output": [len(some) for some in lengths],
    }
    for name, values in wanted.items():
        if trace.sequences[name].to_pylist() != values:
            return name
    accepted = sum(sum(some[:-1]) - len(some) + 1 for some in lengths)
    found = int(np.count_nonzero(trace.column("lattice", "accepted")))
    return "" if found == accepted else f"{found} tokens accepted, not {accepted}"


def _lines(file: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    text = file.read_bytes().decode("utf-8-sig")
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            yield number, json.loads(line)
