"""Cuts the held-out prompts that ship with the pair: ``prompts.jsonl``.

Each comes from a document that was never trained on, begins where a definition, paragraph or
sentence begins, and ends at a line or sentence. Arithmetic prompts are whole questions.

``python -m traces.recipes.reference.prompts --work DIR``
"""

from __future__ import annotations

import argparse
import json
import random
import re
from collections.abc import Iterator
from pathlib import Path

from tokenizers import Tokenizer

from traces.outputs import write_atomic
from traces.recipes.reference import corpus
from traces.recipes.reference.pair import PROMPTS, load_prompts, load_tokenizer
from traces.recipes.reference.sources import TASKS

PER_TASK = 96
MIN_TOKENS, MAX_TOKENS = 40, 200
PER_DOCUMENT = 4
SEED = 23
BUNDLED = 32  # prompts a task that the bundled traces hold, the first ones
MEASURING = 8  # prompts a task on which drafters are measured and never trained, the last ones


def _code_pieces(text: str) -> Iterator[list[str]]:
    """Runs of lines that begin at a definition or class, indented by 4 at most."""
    lines = text.splitlines(keepends=True)
    for i, line in enumerate(lines):
        after_blank = i == 0 or not lines[i - 1].strip()
        if after_blank and re.match(r" {0,4}(def|class|async def|@)\b", line):
            yield lines[i : i + 40]


def _prose_pieces(text: str) -> Iterator[list[str]]:
    """Sentences from the start of a paragraph of at least 120 characters on."""
    lines = [line for line in text.splitlines() if line.strip()]
    for i, line in enumerate(lines):
        if len(line) >= 120 and line[0].isupper() and line.rstrip().endswith("."):
            joined = "\n".join(lines[i : i + 6])
            yield re.split(r"(?<=[a-zäöüß)][.!?:])(?=\s)", joined)


def _cut(units: list[str], aim: int, tokenizer: Tokenizer) -> str | None:
    """As many whole units as bring the prompt to ``aim`` tokens; None if no such cut fits."""
    prompt = ""
    for unit in units:
        prompt += unit
        count = len(tokenizer.encode(prompt.rstrip()).ids)
        if count > MAX_TOKENS:
            return None
        if count >= aim:
            return prompt.rstrip() if unit.strip() else None
    return None


def candidates(doc: corpus.Document, tokenizer: Tokenizer, rng: random.Random) -> list[str]:
    """At most ``PER_DOCUMENT`` prompts of one held-out document, that do not overlap."""
    text, name = str(doc["text"]), str(doc["document"])
    if doc["task"] == "math":
        fits = MIN_TOKENS <= len(tokenizer.encode(name).ids) <= MAX_TOKENS
        return [name] if fits else []
    split = _code_pieces if doc["task"] == "code" else _prose_pieces
    pieces = list(split(text))
    rng.shuffle(pieces)
    out: list[str] = []
    for units in pieces[: 4 * PER_DOCUMENT]:
        prompt = _cut(units, rng.randint(MIN_TOKENS, 150), tokenizer)
        if prompt and not any(prompt[:60] in other or other[:60] in prompt for other in out):
            out.append(prompt + ("\n" if doc["task"] == "code" else ""))
    return out[:PER_DOCUMENT]


def choose(documents: list[corpus.Document], tokenizer: Tokenizer) -> list[dict[str, object]]:
    """``PER_TASK`` prompts of each task; documents take turns, so many of them are used."""
    rows: list[dict[str, object]] = []
    for task in TASKS:
        rng = random.Random(f"{SEED}-{task}")
        held = [d for d in documents if d["task"] == task and d["held_out"]]
        rng.shuffle(held)
        held = held[: 4 * PER_TASK]
        found = [
            (turn, doc, text)
            for doc in held
            for turn, text in enumerate(candidates(doc, tokenizer, rng))
        ]
        found.sort(key=lambda item: item[0])
        for index, (_, doc, text) in enumerate(found[:PER_TASK]):
            rows.append(
                {
                    "id": f"{task}-{index:03d}",
                    "task": task,
                    "prompt": text,
                    "source": doc["source"],
                    "licence": doc["licence"],
                    "document": doc["document"] if task != "math" else doc["source"],
                }
            )
    return rows


def without_leaks(
    rows: list[dict[str, object]], documents: list[corpus.Document], limit: float = 0.25
) -> list[dict[str, object]]:
    """Drop prompts of text and code that share too many shingles with training text."""
    rest = [doc for doc in documents if doc["task"] != "math"]
    marked = [(r, corpus.shingles(str(r["prompt"]))) for r in rows if r["task"] != "math"]
    bad = {r["id"] for r in corpus.leaked(marked, rest, limit)}
    return [r for r in rows if r["id"] not in bad]


def check(rows: list[dict[str, object]], documents: list[corpus.Document]) -> None:
    """Raise unless every prompt is held out and its text stands nowhere in training text."""
    training = "\0".join(str(d["text"]) for d in documents if not d["held_out"])
    for row in rows:
        name = str(row["prompt" if row["task"] == "math" else "document"])
        if not corpus.is_held_out(name) or str(row["prompt"]) in training:
            raise ValueError(f"prompt {row['id']} was trained on")


def prompt_ids() -> tuple[set[str], set[str]]:
    """Ids of the shipped prompts that the bundled traces hold, and of those for measuring."""
    lines = load_prompts()
    tasks = [[row["id"] for row in lines if row["task"] == task] for task in TASKS]
    bundled = {name for task in tasks for name in task[:BUNDLED]}
    return bundled, {name for task in tasks for name in task[-MEASURING:]}


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, default=Path(".work/reference"))
    args = parser.parse_args()
    documents = corpus.load(args.work)
    rows = without_leaks(choose(documents, load_tokenizer()), documents)
    check(rows, documents)
    lines = [json.dumps(row, ensure_ascii=False) for row in rows]
    write_atomic(PROMPTS, ("\n".join(lines) + "\n").encode())
    for task in TASKS:
        part = [r for r in rows if r["task"] == task]
        print(f"{task:7} {len(part)} prompts")


if __name__ == "__main__":
    main()
