"""Builds the corpus: documents of four tasks, deduplicated, split by a hash of their name.

``python -m traces.recipes.reference.corpus --work DIR`` writes ``DIR/documents.jsonl``, one object
a line with ``task``, ``document``, ``source``, ``licence``, ``held_out`` and ``text``.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from multiprocessing import Pool
from pathlib import Path

from traces.outputs import write_atomic
from traces.recipes.reference import arithmetic, sources, texts

HELD_OUT_PERCENT = 4
SHINGLE_WORDS = 12
MAX_SHARED = 0.2  # a held-out document may share this part of its shingles with training text
MATH_PROBLEMS = 40_000
MATH_SEED = 11
Document = dict[str, object]


def is_held_out(name: str) -> bool:
    """Whether a document belongs to the held-out part: a pure function of its name.

    The name of an arithmetic problem is its question, so a repeated question never straddles.
    """
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big") % 100 < (
        HELD_OUT_PERCENT
    )


def _read(job: tuple[sources.TextSource, Path, Path]) -> Document:
    source, path, work = job
    base = work / "deb" / source.package
    name = f"{source.package}:{path.relative_to(base)}"
    return {
        "task": source.task,
        "document": name,
        "source": source.package,
        "licence": source.licence,
        "held_out": is_held_out(name),
        "text": texts.text_of(path, source.kind),
    }


def read_sources(work: Path, jobs: int = 1) -> Iterator[Document]:
    """Every document of the Debian packages, unfiltered, in a fixed order."""
    todo = [
        (source, path, work) for source in sources.SOURCES for path in sources.files(source, work)
    ]
    with Pool(jobs) as pool:
        yield from pool.imap(_read, todo, chunksize=16)


def math_documents(count: int = MATH_PROBLEMS, seed: int = MATH_SEED) -> Iterator[Document]:
    """Arithmetic problems as documents, one problem each, without repeats."""
    seen = set()
    for question, answer in arithmetic.problems(count, seed):
        if question not in seen:
            seen.add(question)
            yield {
                "task": "math",
                "document": question,
                "source": "traces.reference.arithmetic",
                "licence": "Apache-2.0",
                "held_out": is_held_out(question),
                "text": question + answer,
            }


def without_boilerplate(documents: list[Document], limit: int = 25) -> Iterator[Document]:
    """Drop prose lines that stand in more than ``limit`` documents of one package (page furniture).

    Python source is left as it is, apart from documents that end up too short or repeat another.
    """
    seen_in: Counter[tuple[object, str]] = Counter()
    for doc in documents:
        if doc["task"] != "code":
            lines = {line for line in str(doc["text"]).splitlines() if len(line) > 20}
            seen_in.update((doc["source"], line) for line in lines)
    texts_seen: set[bytes] = set()
    for doc in documents:
        text = str(doc["text"])
        if doc["task"] != "code":
            text = "\n".join(
                line for line in text.splitlines() if seen_in[doc["source"], line] <= limit
            )
        key = hashlib.sha256(re.sub(r"\s+", " ", text).encode()).digest()
        if len(text) >= 400 and key not in texts_seen:
            texts_seen.add(key)
            yield doc | {"text": text.strip() + "\n"}


def shingles(text: str) -> set[int]:
    """Hashes of all runs of ``SHINGLE_WORDS`` words; numbers and case are kept."""
    words = re.findall(r"\w+", text)
    return {
        hash(tuple(words[i : i + SHINGLE_WORDS]))
        for i in range(max(0, len(words) - SHINGLE_WORDS + 1))
    }


def without_near_copies(documents: list[Document]) -> list[Document]:
    """Drop held-out documents that share too many shingles with training text."""
    held = [(doc, shingles(str(doc["text"]))) for doc in documents if doc["held_out"]]
    bad = {id(doc) for doc in leaked(held, documents, MAX_SHARED)}
    return [doc for doc in documents if id(doc) not in bad]


def leaked(
    marked: list[tuple[Document, set[int]]], documents: list[Document], limit: float
) -> Iterator[Document]:
    """What shares more than this part of its shingles with the documents to train on.

    Args:
        marked: held-out documents or prompts, each with its shingles.
        documents: held-out ones among them are not looked at.
        limit: of the share.
    """
    wanted: set[int] = set().union(*(marks for _, marks in marked))
    shared: set[int] = set()
    for doc in documents:
        if not doc["held_out"]:
            shared |= shingles(str(doc["text"])) & wanted
    for doc, marks in marked:
        if len(marks & shared) > limit * max(1, len(marks)):
            yield doc


def check_disjoint(documents: Iterable[Document]) -> None:
    """Raise unless every document stands on the side that its name gives it, once."""
    names = set()
    for doc in documents:
        name = str(doc["document"])
        if name in names or doc["held_out"] != is_held_out(name):
            raise ValueError(f"document on two sides or twice: {name[:80]!r}")
        names.add(name)


def build(work: Path, jobs: int = 1) -> list[Document]:
    """Fetch, read, clean, deduplicate and split everything; writes ``documents.jsonl``."""
    versions = sources.fetch(work)
    write_atomic(work / "versions.json", (json.dumps(versions, indent=1) + "\n").encode())
    documents = list(without_boilerplate(list(read_sources(work, jobs))))
    documents = without_near_copies(documents) + list(math_documents())
    check_disjoint(documents)
    lines = [json.dumps(doc, ensure_ascii=False) + "\n" for doc in documents]
    write_atomic(work / "documents.jsonl", "".join(lines).encode())
    return documents


def load(work: Path) -> list[Document]:
    """Documents that ``build`` wrote."""
    with open(work / "documents.jsonl", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, default=Path(".work/reference"))
    parser.add_argument("--jobs", type=int, default=1, help="processes that read files")
    args = parser.parse_args()
    documents = build(args.work, args.jobs)
    for task in sources.TASKS:
        for held_out in (False, True):
            part = [d for d in documents if d["task"] == task and d["held_out"] == held_out]
            size = sum(len(str(d["text"])) for d in part)
            side = "held out" if held_out else "training"
            print(f"{task:7} {side}: {len(part):6} documents, {size / 1e6:7.2f} million characters")


if __name__ == "__main__":
    main()
