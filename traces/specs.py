"""Specs, `name(arg=value, …)`, of policies, costs and drafters: read, expand and write them.

A value is a number, `true`, `false`, a word, a quoted text, or a range `first:last` or
`first:last:step` (both ends included; the step is 1 if it is not given), or a table of numbers,
`[[1, 4, 5], [5, 16, 3]]` or `{4: 4, 8: 2}`, which is read as tuples, and pairs.
"""

from __future__ import annotations

import ast
import inspect
import itertools
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import TypeVar

from traces.errors import UserError
from traces.registry import suggest

T = TypeVar("T")

Value = int | float | bool | str | tuple

_SPEC = re.compile(r"\s*([A-Za-z_]\w*)\s*(?:\((.*)\))?\s*", re.DOTALL)
_TABLE = r"\[(?:[^\[\]{}]|\[[^\[\]{}]*\])*\]|\{(?:[^\[\]{}]|\[[^\[\]{}]*\])*\}"
_ITEM = re.compile(
    rf"\s*(?:([A-Za-z_]\w*)\s*=)?\s*('[^']*'|\"[^\"]*\"|{_TABLE}|[^\s,'\"=()\[\]{{}}]+)\s*(,|$)"
)
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
_LARGEST = Decimal(10) ** 12  # in a range: its numbers, 28 digits inside, can still be told apart


@dataclass(frozen=True)
class Range:
    """`first:last:step` as it was written; the ends are included."""

    first: Decimal
    last: Decimal
    step: Decimal
    text: str

    @property
    def count(self) -> int:
        """How many numbers it holds."""
        return int((self.last - self.first) / self.step) + 1

    def values(self) -> list[int] | list[float]:
        """The numbers, computed in decimal: 0.1:0.3:0.1 holds 0.3 itself."""
        numbers = [self.first + k * self.step for k in range(self.count)]
        return [int(x) for x in numbers] if _whole(self.text) else [float(x) for x in numbers]

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Spec:
    """A parsed spec: the name, and the values by position and by argument."""

    name: str
    args: tuple[Value | Range, ...]
    kwargs: Mapping[str, Value | Range]

    def ranges(self) -> list[Range]:
        """The ranges among the values."""
        return [v for v in (*self.args, *self.kwargs.values()) if isinstance(v, Range)]

    def expand(self) -> Iterable[Spec]:
        """One spec for each combination of the ranges' values; the last range varies fastest."""
        choices = (
            v.values() if isinstance(v, Range) else [v] for v in (*self.args, *self.kwargs.values())
        )
        for values in itertools.product(*choices):
            rest = dict(zip(self.kwargs, values[len(self.args) :], strict=True))
            yield Spec(self.name, tuple(values[: len(self.args)]), rest)


def parse(text: str, error: type[UserError]) -> Spec:
    """Read a spec.

    Raises:
        error: the text is not of that form; the message quotes the part that is not.
    """
    match = _SPEC.fullmatch(text)
    if not match:
        raise error(f"{text!r} is not of the form name(arg=value, ...)")
    args: list[Value | Range] = []
    kwargs: dict[str, Value | Range] = {}
    body = (match[2] or "").strip()
    at = 0
    while at < len(body):
        item = _ITEM.match(body, at)
        if not item:
            raise error(f"{text.strip()}: cannot read {body[at:].strip()!r}")
        name, value = item[1], _value(item[2], text.strip(), error)
        if name is None and kwargs:
            raise error(f"{text.strip()}: {item[2]} has no name, but follows a named argument")
        if name in kwargs:
            raise error(f"{text.strip()}: {name} is given twice")
        if name is None:
            args.append(value)
        else:
            kwargs[name] = value
        at = item.end()
    return Spec(match[1], tuple(args), kwargs)


def build(spec: Spec, make: Callable[..., T], error: type[UserError]) -> T:
    """What a spec means: `make` with its values, by position and by argument.

    Raises:
        error: an argument is unknown, missing, given twice or refused; the message names it.
    """
    arguments = inspect.signature(make).parameters
    if len(spec.args) > len(arguments):
        raise error(f"{spec.name} takes {len(arguments)} arguments, not {len(spec.args)}")
    for name in spec.kwargs:
        if name not in arguments:
            raise error(f"{spec.name} has no argument {name!r} ({suggest(name, arguments)})")
    given = dict(zip(arguments, spec.args, strict=False))
    twice = given.keys() & spec.kwargs.keys()
    if twice:
        raise error(f"{spec.name}: {min(twice)} is given twice")
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    for name, argument in arguments.items():
        needed = argument.default is argument.empty and argument.kind not in variable
        if needed and name not in given and name not in spec.kwargs:
            raise error(f"{spec.name}: {name} is not given")
    try:
        return make(**given, **spec.kwargs)
    except UserError:
        raise
    except Exception as problem:  # the check of arguments of another package's class
        why = " ".join(f"{type(problem).__name__}: {problem}".split())
        raise error(f"{spec.name}: its arguments are refused: {why}") from None


def render(name: str, args: Iterable[Value], kwargs: dict[str, Value]) -> str:
    """Write a spec that `parse` reads back as the same values."""
    parts = [_text(v) for v in args] + [f"{k}={_text(v)}" for k, v in kwargs.items()]
    return f"{name}({', '.join(parts)})"


def _value(text: str, spec: str, error: type[UserError]) -> Value | Range:
    if text[0] in "'\"":
        return text[1:-1]
    if text[0] in "[{":
        return _table(text, spec, error)
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    if _NUMBER.fullmatch(text):
        return int(text) if _whole(text) else float(text)
    parts = text.split(":")
    if len(parts) in (2, 3) and all(_NUMBER.fullmatch(part) for part in parts):
        return _range(text, [*parts, "1"][:3], spec, error)
    if re.fullmatch(r"[A-Za-z_][\w.\-/:]*", text):
        return text
    raise error(f"{spec}: cannot read the value {text!r}; put a text in quotes")


def _table(text: str, spec: str, error: type[UserError]) -> tuple:
    """Numbers in brackets, as tuples; those in braces as pairs."""
    if not re.fullmatch(r"[\[\]{}\d\s,:.eE+-]*", text):
        raise error(f"{spec}: {text} may hold numbers alone")
    try:
        found = ast.literal_eval(text)
    except (SyntaxError, ValueError, TypeError, MemoryError, RecursionError):
        raise error(f"{spec}: cannot read the numbers {text}") from None
    if isinstance(found, set):
        raise error(f"{spec}: {text} lacks a colon: write {{4: 4, 8: 2}}")
    return _tuples(found)


def _tuples(value: object) -> tuple:
    pairs = value.items() if isinstance(value, dict) else value
    assert isinstance(pairs, Iterable)
    return tuple(_tuples(x) if isinstance(x, list | tuple | dict) else x for x in pairs)


def _range(text: str, parts: list[str], spec: str, error: type[UserError]) -> Range:
    far = f"{spec}: the range {text} holds numbers that are too large or too close"
    try:
        first, last, step = (Decimal(part) for part in parts)
        if max(map(abs, (first, last, step))) > _LARGEST or 0 < step < 1 / _LARGEST:
            raise error(far)
    except ArithmeticError:
        raise error(far) from None
    if step <= 0 or last < first:
        raise error(f"{spec}: the range {text} is empty; write first:last:step, step > 0")
    return Range(first, last, step, text)


def _whole(text: str) -> bool:
    """Whether a number, or all parts of a range, are written as whole numbers."""
    return re.fullmatch(r"[+-]?\d+(:[+-]?\d+)*", text) is not None


def _text(value: Value) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return f"[{', '.join(map(_text, value))}]"
    if isinstance(value, float):
        return repr(value).removesuffix(".0")
    if isinstance(value, int) or re.fullmatch(r"[A-Za-z_][\w.\-/]*", value):
        return str(value)
    return f'"{value}"'
