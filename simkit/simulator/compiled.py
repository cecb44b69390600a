"""The replay as a compiled loop, specialised for each numeric policy.

The loop calls a policy's slots through stubs. Numba puts the policy's own function in a stub's
place, which it finds by the type of the parameters.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple

import numba
import numpy as np
from numba.extending import overload

from simkit import policies
from simkit.policies import NumericPolicy, Outcome, Policy, Slots
from simkit.simulator.kernels import compiled, compiled_part
from simkit.simulator.layout import Columns, PathLayout
from simkit.simulator.steps import Steps, Sums


class Path(NamedTuple):
    """A `PathLayout` for the loop, in read-only arrays.

    Branches lie depth by depth, the first tokens of all of them, then the second tokens, …, so
    that what is read in turn lies side by side.

    Attributes:
        offsets: see `PathLayout`.
        ahead: see `PathLayout`.
        tail: (R,) int32, rows of r's branch; -1 - rows if it was cut at Γ.
        rank: (R,) int32, index of r's branch among those that are not empty.
        n_branches: how many of them there are.
        max_new_tokens: T_max.
    """

    offsets: np.ndarray
    ahead: np.ndarray
    tail: np.ndarray
    rank: np.ndarray
    n_branches: int
    max_new_tokens: int


class Prices(NamedTuple):
    """Seconds, in tables for the loop.

    Attributes:
        n_prompt: (S,) int64.
        draft: (C + 1,) draft passes at all contexts below c, summed.
        verify: (C, K) verification of an empty draft, of one token, …, at context c.
    """

    n_prompt: np.ndarray
    draft: np.ndarray
    verify: np.ndarray


NO_PRICES = Prices(np.zeros(0, np.int64), np.zeros(0), np.zeros((0, 0)))


def compiles(policy: Policy) -> bool:
    """Whether the loop takes this policy: a numeric one of this package.

    Others' code has no part in the name of the folder that compiled code is kept in.
    """
    home = policies.__name__ + "."
    ours = isinstance(policy, NumericPolicy) and type(policy).__module__.startswith(home)
    return ours and not numba.config.DISABLE_JIT  # type: ignore[attr-defined]


def walk(policy: NumericPolicy, layout: PathLayout, first: int) -> Steps:
    """Replay a policy; the same arguments, steps and errors as in `plain.walk`."""
    rows, flags = _prepare(policy, layout)
    drafted = np.empty(len(layout.ahead), np.int32)
    accepted = np.empty(len(layout.ahead), np.int32)
    ends = np.zeros(len(layout.offsets), np.int64)
    loop = _loop(_record, type(policy.params))
    _check(loop(policy.params, *rows, flags, first, drafted, accepted, ends), layout)
    drafted, accepted = drafted[: ends[-1]], accepted[: ends[-1]]
    return Steps(ends, drafted, drafted, accepted, layout.n_output, first)


def total(
    policy: NumericPolicy, layout: PathLayout, first: int, prices: Prices = NO_PRICES
) -> Sums:
    """Replay a policy and keep each sequence's sums only, which is faster than `walk`.

    Args:
        policy: one that `compiles`.
        layout: of the trace.
        first: see `plain.walk`.
        prices: tables that reach as far as the steps may; without them times are 0.
    """
    rows, flags = _prepare(policy, layout)
    counts = np.empty((3, len(layout.n_output)), np.int64)
    seconds = np.zeros((2, len(layout.n_output)))
    loop = _loop(_add_up, type(policy.params))
    _check(loop(policy.params, *rows, flags, first, prices, counts, seconds), layout)
    steps, drafted, accepted = counts
    return Sums(steps, drafted, drafted, accepted, *seconds)


def _prepare(policy: NumericPolicy, layout: PathLayout) -> tuple[Any, tuple[bool, bool]]:
    _SLOTS[type(policy.params)] = policy.slots
    path = _paths.get(layout) or _paths.setdefault(layout, _Tables(layout))
    columns = path.columns(policy.columns(layout.trace.sampler))
    return (path.path, *columns), (policy.carried == "sequence", policy.needs_future)


def _check(failure: tuple[int, int, int], layout: PathLayout) -> None:
    if failure[0] >= 0:
        raise layout.outrun(*failure)


class _Tables:
    """What the loop reads of one layout; branch columns are turned when they are first read."""

    def __init__(self, layout: PathLayout) -> None:
        size = np.diff(layout.branch).astype(np.int32)
        self.layout = weakref.proxy(layout)
        self.rows = np.flatnonzero(size)
        self.planes: dict[str, np.ndarray] = {}
        self.path = Path(
            _read_only(layout.offsets),
            _read_only(layout.ahead),
            _read_only(np.where(layout.cut, -1 - size, size)),
            _read_only(np.cumsum(size > 0, dtype=np.int32) - 1),
            len(self.rows),
            layout.trace.max_new_tokens,
        )

    def columns(self, names: tuple[str, ...]) -> tuple[Columns, Columns]:
        path, branches = self.layout.columns(names)
        for name, column in zip(names, branches, strict=True):
            if name not in self.planes:
                self.planes[name] = self._turn(column)
        return tuple(map(_read_only, path)), tuple(self.planes[name] for name in names)

    def _turn(self, column: np.ndarray) -> np.ndarray:
        begins, ends = self.layout.branch[self.rows], self.layout.branch[self.rows + 1]
        depth = int((ends - begins).max(initial=0))
        planes = np.zeros((depth, len(self.rows)), column.dtype)
        _turn(_read_only(column), begins, ends, planes)
        return _read_only(planes.reshape(-1))


_paths: weakref.WeakKeyDictionary[PathLayout, _Tables] = weakref.WeakKeyDictionary()


def _read_only(array: np.ndarray) -> np.ndarray:
    """One type of array for the loop, whoever made it."""
    out = np.ascontiguousarray(array).view()
    out.flags.writeable = False
    return out


_SLOTS: dict[type, Slots] = {}


@cache
def _loop(function: Callable, params: type) -> Callable[..., tuple[int, int, int]]:
    """The compiled function for one class of parameters.

    A dispatcher takes two named tuples with the same fields for one another, so each class has a
    dispatcher of its own. It has a name of its own too, since names tell compiled code apart.
    """
    return compiled(function)


def _begin(params: Any) -> Any: ...
def _limit(params: Any, state: Any, ahead: int) -> Any: ...
def _trips(params: Any, state: Any, depth: int, row: Any) -> Any: ...
def _update(params: Any, state: Any, outcome: Any) -> Any: ...
def _row(columns: Any, index: Any) -> Any: ...


_U = np.uint64  # an index of this type is not tested for being negative

slot = partial(overload, strict=False)  # a slot's annotations may differ from its stub's


@slot(_begin)
def _find_begin(params: Any) -> Any:
    return _SLOTS[params.instance_class].begin


@slot(_limit)
def _find_limit(params: Any, state: Any, ahead: int) -> Any:
    return _SLOTS[params.instance_class].limit


@slot(_trips)
def _find_trips(params: Any, state: Any, depth: int, row: Any) -> Any:
    return _SLOTS[params.instance_class].trips


@slot(_update)
def _find_update(params: Any, state: Any, outcome: Any) -> Any:
    return _SLOTS[params.instance_class].update


@slot(_row)
def _make_row(columns: Any, index: int) -> Any:
    if len(columns) == 0:
        return lambda columns, index: ()
    return lambda columns, index: (np.float64(columns[0][_U(index)]), *_row(columns[1:], index))


@compiled_part
def _sequence(
    params: Any,
    state: Any,
    path: Any,
    columns: Columns,
    branches: Columns,
    needs_future: bool,
    first: int,
    s: int,
    drafted: np.ndarray,
    accepted: np.ndarray,
) -> tuple[int, Any, int, int]:
    """Replay sequence s; returns its steps, the state, and where a row was missing (0 if none)."""
    origin, end = path.offsets[s], path.offsets[s + 1]
    count = 0
    row = origin + first - 1
    while row < end:
        ahead = int(path.ahead[_U(row)])
        longest = _limit(params, state, ahead if needs_future else -1)
        room = min(longest, params.max_draft, path.max_new_tokens - (row - origin + 1))
        depth = 0
        stop = False
        reach = min(room, ahead + 1, end - row)
        while depth < reach and not stop:
            stop, state = _trips(params, state, depth + 1, _row(columns, row + depth))
            depth += 1
        m = row + ahead
        if depth < room and not stop and m < end:
            tail = int(path.tail[_U(m)])
            reach = min(room, depth + (tail if tail >= 0 else -1 - tail))
            k = int(path.rank[_U(m)])
            while depth < reach and not stop:
                stop, state = _trips(params, state, depth + 1, _row(branches, k))
                depth += 1
                k += path.n_branches
            if depth < room and not stop and tail < 0:
                return count, state, row - origin + 1, depth + 1
        taken = min(depth, ahead)
        drafted[_U(count)] = depth
        accepted[_U(count)] = taken
        count += 1
        state = _update(params, state, Outcome(depth, depth, taken, row + taken >= end))
        row += taken + 1
    return count, state, 0, 0


def _record(
    params: Any,
    path: Path,
    columns: Columns,
    branches: Columns,
    flags: tuple[bool, bool],
    first: int,
    drafted: np.ndarray,
    accepted: np.ndarray,
    ends: np.ndarray,
) -> tuple[int, int, int]:
    """Fill in all steps; returns (-1, 0, 0), or the sequence, start and depth not recorded."""
    anew, needs_future = flags
    state = _begin(params)
    for s in range(len(path.offsets) - 1):
        if anew:
            state = _begin(params)
        at = ends[s]
        count, state, start, depth = _sequence(
            params, state, path, columns, branches, needs_future, first, s,
            drafted[at:], accepted[at:],
        )  # fmt: skip
        if start > 0:
            return s, start, depth
        ends[s + 1] = at + count
    return -1, 0, 0


def _add_up(
    params: Any,
    path: Path,
    columns: Columns,
    branches: Columns,
    flags: tuple[bool, bool],
    first: int,
    prices: Prices,
    counts: np.ndarray,
    seconds: np.ndarray,
) -> tuple[int, int, int]:
    """Fill in each sequence's sums; returns what `_record` does."""
    anew, needs_future = flags
    drafted = np.empty(path.max_new_tokens, np.int32)
    accepted = np.empty(path.max_new_tokens, np.int32)
    state = _begin(params)
    for s in range(len(path.offsets) - 1):
        if anew:
            state = _begin(params)
        count, state, start, depth = _sequence(
            params, state, path, columns, branches, needs_future, first, s, drafted, accepted
        )
        if start > 0:
            return s, start, depth
        counts[0, s] = count
        counts[1, s] = drafted[:count].sum()
        counts[2, s] = accepted[:count].sum()
        if len(prices.n_prompt):
            seconds[0, s], seconds[1, s] = _charge(
                prices, prices.n_prompt[s] + first - 1, drafted[:count], accepted[:count]
            )
    return -1, 0, 0


@compiled_part
def _charge(
    prices: Prices, context: Any, drafted: np.ndarray, accepted: np.ndarray
) -> tuple[float, float]:
    """Seconds of draft passes and of verifications of steps, the first one at `context`."""
    draft_s = 0.0
    verify_s = 0.0
    for k in range(len(drafted)):
        length = int(drafted[k])
        draft_s += prices.draft[_U(context + length)] - prices.draft[_U(context)]
        verify_s += prices.verify[_U(context), _U(length)]
        context += int(accepted[k]) + 1
    return draft_s, verify_s


@compiled
def _turn(column: np.ndarray, begins: np.ndarray, ends: np.ndarray, planes: np.ndarray) -> None:
    """Lay branches out depth by depth, some at a time so that both sides stay in the cache."""
    for block in range(0, len(begins), 64):
        last = min(block + 64, len(begins))
        for depth in range(len(planes)):
            for k in range(block, last):
                if begins[k] + depth < ends[k]:
                    planes[depth, k] = column[begins[k] + depth]
