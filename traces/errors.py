"""Errors that a user can mend: one line that says what is wrong and where."""

from __future__ import annotations

import warnings

from traces.messages import line, plain


class UserError(Exception):
    """Bad input. The command line prints the message on one line and exits with status 2.

    Keys in URLs are left out of it, and the middle of what is long.
    """

    def __init__(self, message: object = "") -> None:
        super().__init__(line(str(message)))


class SimkitWarning(UserWarning):
    """What a user should know, though the work goes on. The command line prints it on one line.

    Keys in URLs are left out of it.
    """

    def __init__(self, message: object = "") -> None:
        super().__init__(plain(str(message)))


class TraceError(UserError):
    """A trace, or one of its files, cannot be read or written as asked."""


class RecordError(UserError):
    """A model pair or a prompts file cannot be recorded as asked."""


class DrafterError(UserError):
    """A drafter's spec is wrong, or it cannot be attached as asked."""


def warn(message: str) -> None:
    """Warn a user, at the call three levels above."""
    warnings.warn(message, SimkitWarning, stacklevel=4)


def first_line(error: BaseException) -> str:
    """The first line of a library's error, and those after a colon at its end; or its type."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    end = next((n for n, line in enumerate(lines, 1) if not line.endswith(":")), len(lines))
    return " ".join(lines[:end]) or type(error).__name__
