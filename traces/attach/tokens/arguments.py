"""Checks of the numbers of a rule, and of the text that it is given."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from traces.errors import DrafterError
from traces.messages import how_many

_MOST = 2**31 - 1  # tokens are counted in 32 bits


def check_whole(rule: Any, name: str, least: int, most: int = _MOST) -> None:
    """Refuse a field that is not a whole number in [least, most]; make numpy's Python's.

    Raises:
        DrafterError: it is not.
    """
    value = getattr(rule, name)
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise DrafterError(f"{rule.name}: {name} must be a whole number >= {least}, not {value!r}")
    if value > most:
        raise DrafterError(f"{rule.name}: {name} must be at most {most}, not {value!r}")
    object.__setattr__(rule, name, int(value))


def check_real(rule: Any, name: str, least: float, most: float) -> None:
    """Refuse a field that is not a number in [least, most]; make numpy's Python's.

    Raises:
        DrafterError: it is not.
    """
    value = getattr(rule, name)
    number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    if not (number and least <= value <= most):  # NaN is no number in there
        bounds = f"in [{least:g}, {most:g}]"
        raise DrafterError(f"{rule.name}: {name} must be a number {bounds}, not {value!r}")
    object.__setattr__(rule, name, float(value))


def check_word(rule: Any, name: str, words: tuple[str, ...]) -> None:
    """Refuse a field that is none of the words.

    Raises:
        DrafterError: it is not.
    """
    value = getattr(rule, name)
    if value not in words:
        raise DrafterError(f"{rule.name}: {name} must be {' or '.join(words)}, not {value!r}")


def check_flag(rule: Any, name: str) -> None:
    """Refuse a field that is neither true nor false.

    Raises:
        DrafterError: it is not.
    """
    value = getattr(rule, name)
    if not isinstance(value, bool):
        raise DrafterError(f"{rule.name}: {name} must be true or false, not {value!r}")


class Given(NamedTuple):
    """What a rule is given, as the one kind of arguments that it is compiled for."""

    text: np.ndarray
    n_prompt: int
    eos: np.ndarray
    max_new_tokens: int


def plain(text: np.ndarray, n_prompt: int, eos: np.ndarray, max_new_tokens: int) -> Given:
    """Copies of the tokens as int32 (a table's own could not be written to), Python's numbers.

    Raises:
        ValueError: the prompt is longer than the text.
    """
    if not 0 <= n_prompt <= len(text):
        raise ValueError(f"a prompt of {how_many(n_prompt, 'token')} in a text of {len(text)}")
    tokens, ends = np.array(text, np.int32), np.array(eos, np.int32)
    return Given(tokens, int(n_prompt), ends, int(max_new_tokens))
