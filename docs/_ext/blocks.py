"""The code blocks of a Markdown page, and what each holds: commands, Python, or neither.

The site colours blocks by this, and the tests run them by it. Most blocks are indented and have no
language; in some, commands are followed by what they print.
"""

from __future__ import annotations

import ast
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile

from markdown_it import MarkdownIt

ENDS = ("&", ";", "|", ">", "&&")  # what follows is no word of the command
PROGRAMS = ("simkit", "python", "pip", "make", "jupyter", "taskset", "mkdir", "cd")


@dataclass(frozen=True)
class Block:
    """A fenced or indented block: its line in the page, its language, its text."""

    line: int
    language: str
    text: str


def blocks(page: str) -> Iterator[Block]:
    """All code blocks of a page; those of directives, which are for the site, left out."""
    for token in MarkdownIt("commonmark").parse(page):
        if token.type not in ("fence", "code_block") or token.info.startswith("{"):
            continue
        line = token.map[0] + 1 if token.map else 0
        fence = token.info.split()[:1]
        yield Block(line, fence[0] if fence else language_of(token.content), token.content)


def language_of(text: str) -> str:
    """`bash`, `python` or `text`: what a block without a language is."""
    if commands(text):
        return "bash"
    return "python" if is_python(text) else "text"


def is_python(text: str) -> bool:
    """Whether a text is a program that does something: an import, a call or an assignment."""
    try:
        found = ast.parse(text).body
    except SyntaxError:
        return False
    statements = ast.Import | ast.ImportFrom | ast.Assign | ast.FunctionDef | ast.ClassDef
    return any(isinstance(one, statements) for one in found)


def commands(text: str) -> list[list[str]]:
    """The words of each command in a block, comments left out."""
    found = [shlex.split(line, comments=True) for line in _parts(text)[0]]
    return [list(takewhile(lambda word: word not in ENDS, words)) for words in found]


def rest(text: str) -> str:
    """A block without its commands: the Python, or the output, that follows them."""
    return _parts(text)[1]


def _parts(text: str) -> tuple[list[str], str]:
    found: list[str] = []
    others: list[str] = []
    goes_on = False
    for line in text.splitlines():
        command = line.split(maxsplit=1)[:1]
        if goes_on:
            found[-1] += " " + line.strip().removesuffix("\\")
        elif (
            command
            and command[0] in PROGRAMS
            and "─" not in line
            and (line[0] != " " or "".join(others[-1:]).endswith("; do"))
        ):
            found.append(line.removesuffix("\\"))
        else:
            others.append(line)
            continue
        goes_on = line.endswith("\\")
    return found, "\n".join(others)
