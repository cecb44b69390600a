"""Errors that a user can mend: one line that says what is wrong and where."""

from __future__ import annotations

from traces.errors import SimkitWarning, UserError

__all__ = ["SimkitWarning", "UserError"]


class PolicyError(UserError):
    """A policy's spec or one of its arguments is wrong."""


class CostError(UserError):
    """A cost model's spec, file or samples are wrong."""


class ReplayError(UserError):
    """A trace cannot be replayed as asked."""


class HeadError(UserError):
    """A learned head's file is wrong, or it does not fit the trace."""


class LiveError(UserError):
    """A live run cannot be made as asked, or broke off."""


class ImporterError(UserError):
    """Another program's file cannot be imported."""


class ServingError(UserError):
    """A serving run cannot be simulated as asked."""
