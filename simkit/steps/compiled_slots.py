"""What the compiled loop asks of a policy and of a trace, by stubs.

Numba puts the policy's own function in a stub's place, which it finds by the type of the
parameters; and lines for columns and scores in that of others, which it finds by whether
there are any.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numba.core.errors import TypingError
from numba.core.types import Boolean, Integer
from numba.extending import overload

from simkit.drafters.layout import Columns
from simkit.policies import Outcome
from simkit.policies.surroundings import plain
from simkit.policies.verdicts import not_boolean, not_whole
from simkit.steps.compiled_rules import slots_of


def begin(params: Any, sequence: int) -> Any:
    """The state of a rule before a sequence."""


def limit(params: Any, state: Any, ahead: int) -> Any:
    """The longest draft of a step, as the rule has it."""


def trips(params: Any, state: Any, depth: int, row: tuple[float, ...]) -> Any:
    """Whether the rule stops behind a token, and its state then."""


def proposed_of(params: Any, state: Any, drafted: int) -> Any:
    """How many of the drafted tokens the rule has verified."""


def update(params: Any, state: Any, outcome: Outcome) -> Any:
    """The state of the rule behind a step."""


def calls_of(params: Any, drafted: int) -> Any:
    """Decisions over a draft."""


def boolean(stop: Any) -> Any:
    """What a rule says, if that is a boolean: nothing else is taken for one."""


def whole(number: Any) -> Any:
    """The same of a length."""


def row_of(columns: Columns, index: int) -> Any:
    """The values of one row."""


def scores_of(starts: Columns, row: int, depth: int) -> Any:
    """The scores of one depth, NaN beyond the deepest that was scored."""


def is_missing(scores: tuple[float, ...]) -> Any:
    """Whether a score is NaN."""


Unsigned = np.uint64  # an index of this type is not tested for being negative

slot = partial(overload, strict=False)  # a slot's annotations may differ from its stub's


@slot(begin)
def _find_begin(params: Any, sequence: int) -> Any:
    return plain(slots_of(params.instance_class).begin)


@slot(limit)
def _find_limit(params: Any, state: Any, ahead: int) -> Any:
    return plain(slots_of(params.instance_class).limit)


@slot(trips)
def _find_trips(params: Any, state: Any, depth: int, row: Any) -> Any:
    return plain(slots_of(params.instance_class).trips)


@slot(proposed_of)
def _find_proposed(params: Any, state: Any, drafted: int) -> Any:
    return plain(slots_of(params.instance_class).proposed)


@slot(calls_of)
def _find_calls(params: Any, drafted: Any) -> Any:
    return plain(slots_of(params.instance_class).calls)


@slot(update)
def _find_update(params: Any, state: Any, outcome: Any) -> Any:
    return plain(slots_of(params.instance_class).update)


@slot(boolean)
def _check_boolean(stop: Any) -> Any:
    if not isinstance(stop, Boolean):
        raise TypingError(not_boolean(str(stop)))
    return lambda stop: stop


@slot(whole)
def _check_whole(number: Any) -> Any:
    if not isinstance(number, Integer):
        raise TypingError(not_whole(str(number)))
    return lambda number: number


@slot(row_of)
def _make_row(columns: Any, index: int) -> Any:
    if len(columns) == 0:
        return lambda columns, index: ()
    return lambda columns, index: (
        np.float64(columns[0][Unsigned(index)]),
        *row_of(columns[1:], index),
    )


@slot(scores_of)
def _make_scores(starts: Any, row: Any, depth: int) -> Any:
    if len(starts) == 0:
        return lambda starts, row, depth: ()

    def scores(starts: Any, row: Any, depth: int) -> Any:
        column = starts[0]
        scored = depth <= column.shape[1]
        here = np.float64(column[Unsigned(row), Unsigned(depth - 1)]) if scored else np.nan
        return (here, *scores_of(starts[1:], row, depth))

    return scores


@slot(is_missing)
def _find_missing(scores: Any) -> Any:
    if len(scores) == 0:
        return lambda scores: False
    return lambda scores: np.isnan(scores[0]) or is_missing(scores[1:])
