"""How things answer at a prompt: to a name that they do not have, and when they are shown."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING, NoReturn

_MANY = 12  # names that are told at most where none is close


def missing(owner: str, name: str, known: Iterable[str]) -> str:
    """What to say of an attribute that is not there: the nearest one, or what there is.

    Args:
        owner: that was asked, in words.
        name: asked for.
        known: names that it has; those that begin with _ are not told.
    """
    names = sorted({one for one in known if not one.startswith("_")})
    close = difflib.get_close_matches(name, names, n=1)
    if close:
        hint = f"did you mean {close[0]}?"
    else:
        hint = f"there is {', '.join(names[:_MANY])}{', …' if len(names) > _MANY else ''}"
    return f"{owner} has no attribute {name!r} ({hint})"


def misspelt(module: str, known: Iterable[str]) -> Callable[[str], NoReturn]:
    """A module's `__getattr__`, which says what was meant."""

    def answer(name: str) -> NoReturn:
        if name.startswith("_"):  # asked by Python, of every module
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        raise AttributeError(missing(f"module {module!r}", name, known))

    return answer


class Helpful:
    """Says what was meant where an attribute is misspelt."""

    if not TYPE_CHECKING:  # a checker knows all attributes

        def __getattr__(self, name: str) -> object:
            kind = type(self)
            if name.startswith("_"):  # asked by a library, of everything
                raise AttributeError(f"{kind.__name__!r} object has no attribute {name!r}")
            if name in dir(kind):  # a property, inside which another attribute is missing
                return object.__getattribute__(self, name)
            raise AttributeError(missing(f"a {kind.__name__}", name, [*dir(kind), *vars(self)]))


def facts_html(rows: Iterable[Sequence[str]]) -> str:
    """Names and what is said of them, for a notebook; everything in it escaped."""
    left = ' style="text-align: left"'
    lines = (f"<tr><th{left}>{escape(a)}</th><td{left}>{escape(b)}</td></tr>" for a, b in rows)
    return f"<table><tbody>{''.join(lines)}</tbody></table>"
