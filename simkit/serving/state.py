"""What a simulation is of: requests, the trace's outcomes, and the arrays that it changes."""

from __future__ import annotations

from collections import namedtuple
from typing import Any, NamedTuple

import numpy as np

from simkit.drafters.layout import Layout
from simkit.steps.loop_tables import read_only
from simkit.steps.steps import Steps
from traces.kernels import compiled

# Indices of `Server.count`.
ARRIVED, STARTED, DONE, RUNNING, RETURNED, ITERATIONS, ROW, STEPS, BEFORE = range(9)

BLOCK = 2**14  # iterations, and at least as many steps, that are logged before the log is emptied


def _rows(names: str) -> Any:
    """The number of each row of a table, by its name."""
    return namedtuple("Rows", names)._make(range(len(names.split())))


# `made[MADE.drafted, k]` compiles as `made[0, k]` does. Rows are not arrays of their own: a loop
# that is interpreted hands all arrays to compiled code several times an iteration.
SEEN = _rows("request room context tokens steps drafted proposed accepted ahead row")
MADE = _rows("drafted proposed accepted asked calls emitted ended")
SPAN = _rows("request before after draft_before draft_after step")
STEP_S = _rows("draft verify")
STEP = _rows("request iteration start drafted proposed accepted emitted")
ITERATION = _rows(
    "begin_s end_s decoding prefilling prefill_tokens waiting drafted proposed accepted emitted"
    " kv_tokens prefill_s draft_s verify_s policy_s"
)


class ServedOutcomes(NamedTuple):
    """What is known of drafts from every position of a trace; row r is position i of sequence s.

    Attributes:
        offsets: (S + 1,) int64, rows of sequence s.
        n_prompt: (S,) int64.
        ahead: (R,) int32, see `simkit.drafters.layout.Layout`.
        depth: (R,) int32, tokens that a draft from r can have.
        cut: (R,) bool, whether it could have more than were recorded.
        confidence: (R, K) float32 of a column, NaN where a draft ends; (0, 0) without.
        max_new_tokens: T_max.
        first: position of each sequence's first step.
        step_offsets: (S + 1,) int64, steps of sequence s where they do not hang on the batch.
        steps: (6, M) int32: what is known of them beforehand, the rows of `MADE` before its last.
        step_s: (2, M) float64, seconds of each of them where they are given, the rows of `STEP_S`;
            (2, 0) without.
        rates: (D,) float64, chances that a token at depth 1, 2, … is accepted if those before it
            were: outcomes are then drawn, and the trace's are not read; (0,) without.
        widths: (M, P) int32, where a step drafts a tree: nodes in each pass of the draft, as
            `simkit.trees.TreeWork` has them; (0, 0) without.
    """

    offsets: np.ndarray
    n_prompt: np.ndarray
    ahead: np.ndarray
    depth: np.ndarray
    cut: np.ndarray
    confidence: np.ndarray
    max_new_tokens: int
    first: int
    step_offsets: np.ndarray
    steps: np.ndarray
    step_s: np.ndarray
    rates: np.ndarray
    widths: np.ndarray


class Rules(NamedTuple):
    """How requests are admitted and batched.

    Attributes:
        max_batch: requests that run at most.
        kv_tokens: that the caches of all running requests hold at most.
        chunk: tokens of prompts that an iteration reads at most.
        concurrency: requests in flight in a closed loop; 0 where they arrive by themselves.
        copies: whether the next requests come only when all in flight are done.
        max_draft: longest draft, K.
        speculative: whether anything drafts at all.
        clip: whether drafts end where the trace's do; else a length goes for all.
        future: whether the controller is told what will be accepted.
    """

    max_batch: int
    kv_tokens: int
    chunk: int
    concurrency: int
    copies: bool
    max_draft: int
    speculative: bool
    clip: bool
    future: bool


class Server(NamedTuple):
    """All that a simulation changes.

    Attributes:
        clock: (1,) seconds.
        count: see above.
        sequence: (Q,) int64, which sequence each request is of.
        arrival_s: (Q,) float64; in a closed loop known when it happens.
        admitted_s: (Q,) float64, first admitted; NaN before. So are the next two.
        first_s: (Q,) float64, first token.
        done_s: (Q,) float64, last one.
        at: (Q,) int64, output tokens so far.
        read: (Q,) int64, known tokens that the target has read in prefill; -1 if that is over.
        preempted: (Q,) int64, how often.
        drafts: (Q,) bool, whether its draft model has read the prompt.
        unread: (Q,) int64, known tokens that the draft model has not read: one, and all that came
            out since it drafted last.
        missed: (Q,) int64, of those, the ones of steps in which nothing was drafted.
        base: (Q,) int64, tokens that a prefill is over.
        steps: (Q,) int64. Of them all the next three are sums.
        drafted: (Q,) int64.
        proposed: (Q,) int64.
        accepted: (Q,) int64.
        last: (3, Q) int64, of the step before the first three rows of `MADE`; -1.
        running: (B,) int64, requests in the order of their admission.
        returned: (Q,) int64, a stack of those that were preempted.
        iterations: (15, I) float64, the log, with the rows of `ITERATION`; emptied when it is
            full. `count` has the number of all iterations, and of those in the log (`ROW`).
        log: (7, M) int32, likewise of steps, with the rows of `STEP`.
    """

    clock: np.ndarray
    count: np.ndarray
    sequence: np.ndarray
    arrival_s: np.ndarray
    admitted_s: np.ndarray
    first_s: np.ndarray
    done_s: np.ndarray
    at: np.ndarray
    read: np.ndarray
    preempted: np.ndarray
    drafts: np.ndarray
    unread: np.ndarray
    missed: np.ndarray
    base: np.ndarray
    steps: np.ndarray
    drafted: np.ndarray
    proposed: np.ndarray
    accepted: np.ndarray
    last: np.ndarray
    running: np.ndarray
    returned: np.ndarray
    iterations: np.ndarray
    log: np.ndarray


class Buffers(NamedTuple):
    """Room for one iteration, for the requests that decode in the order of their admission.

    Attributes:
        seen: (10, B) int64, what a controller is shown of each request, the rows of `SEEN`: see
            `simkit.serving.View`; last the row of `ServedOutcomes` at which its draft begins.
        made: (7, B) int64, what its step does, the rows of `MADE`: tokens drafted, proposed and
            accepted; tokens or levels that its draft was asked for; decisions paid for; tokens
            that come out; and whether it is done then.
        spans: (6, B) int64, the rows of `SPAN`: of a prompt that is read further its request, and
            tokens read before and after; of one that the draft model reads tokens before and
            after; and the index of a planned step.
        confidence: (B, K) float64.
        unknown: (B, K) float64 of NaN, in its place before anything is drafted.
    """

    seen: np.ndarray
    made: np.ndarray
    spans: np.ndarray
    confidence: np.ndarray
    unknown: np.ndarray


def buffers(rules: Rules, outcomes: ServedOutcomes) -> Buffers:
    """Room for batches of these rules."""
    n = rules.max_batch
    width = rules.max_draft if outcomes.confidence.shape[0] else 0
    return Buffers(
        seen=np.zeros((len(SEEN), n), np.int64),
        made=np.zeros((len(MADE), n), np.int64),
        spans=np.zeros((len(SPAN), n), np.int64),
        confidence=np.full((n, width), np.nan),
        unknown=np.full((n, width), np.nan),
    )


class Logs:
    """What was logged, a block after another."""

    def __init__(self) -> None:
        self._iterations: list[np.ndarray] = []
        self._steps: list[np.ndarray] = []

    def empty(self, server: Server) -> None:
        """Take what a server has logged since the last time."""
        count = server.count
        self._iterations.append(server.iterations[:, : count[ROW]].copy())
        self._steps.append(server.log[:, : count[STEPS]].copy())
        count[ROW] = count[STEPS] = 0

    @property
    def iterations(self) -> dict[str, np.ndarray]:
        """Columns of `ITERATION`, (I,) each."""
        return _columns(ITERATION._fields, self._iterations)

    @property
    def steps(self) -> dict[str, np.ndarray]:
        """Columns of `STEP`, (M,) each; a request's in order."""
        return _columns(STEP._fields, self._steps)


def _columns(names: tuple[str, ...], blocks: list[np.ndarray]) -> dict[str, np.ndarray]:
    return {name: np.concatenate([b[k] for b in blocks]) for k, name in enumerate(names)}


def server(sequence: np.ndarray, arrival_s: np.ndarray | None, max_batch: int) -> Server:
    """A server before its first request.

    Args:
        sequence: (Q,) of each request.
        arrival_s: (Q,) ascending; None where each comes when another is done.
        max_batch: requests that run at most.
    """
    n = len(sequence)

    def whole(value: int = 0) -> np.ndarray:
        return np.full(n, value, np.int64)

    never = np.full(n, np.nan)
    return Server(
        clock=np.zeros(1),
        count=np.zeros(9, np.int64),
        sequence=np.ascontiguousarray(sequence, np.int64),
        arrival_s=never.copy() if arrival_s is None else np.array(arrival_s, np.float64),
        admitted_s=never.copy(),
        first_s=never.copy(),
        done_s=never.copy(),
        at=whole(),
        read=whole(),
        preempted=whole(),
        drafts=np.zeros(n, np.bool_),
        unread=whole(1),
        missed=whole(),
        base=whole(),
        steps=whole(),
        drafted=whole(),
        proposed=whole(),
        accepted=whole(),
        last=np.full((3, n), -1, np.int64),
        running=np.zeros(max_batch, np.int64),
        returned=whole(),
        iterations=np.empty((len(ITERATION), BLOCK)),
        log=np.empty((len(STEP), max(BLOCK, 16 * max_batch)), np.int32),
    )


def outcomes(
    layout: Layout,
    first: int,
    max_draft: int,
    column: str = "",
    steps: tuple[Steps, np.ndarray] | None = None,
    step_s: np.ndarray | None = None,
    rates: np.ndarray | None = None,
    widths: np.ndarray | None = None,
) -> ServedOutcomes:
    """What is known of a trace's drafts.

    Args:
        layout: of the trace.
        first: see `ServedOutcomes`.
        max_draft: K.
        column: to be read as confidence; "" for none.
        steps: of a policy whose steps do not hang on the batch, and the decisions that each paid.
        step_s: see `ServedOutcomes`.
        rates: see `ServedOutcomes`.
        widths: see `ServedOutcomes`.

    Raises:
        TraceError: the column was not recorded.
    """
    depth, cut = _depths(layout)
    confidence = np.zeros((0, 0), np.float32)
    if column:
        confidence = np.full((len(layout.ahead), max_draft), np.nan, np.float32)
        _gather(layout, column, np.asarray(depth, np.int64), confidence)
    planned = np.zeros((MADE.ended, 0), np.int32) if steps is None else _planned(*steps)
    none = np.zeros(len(layout.n_output) + 1, np.int64)
    step_offsets = none if steps is None else steps[0].offsets
    return ServedOutcomes(
        offsets=read_only(layout.offsets),
        n_prompt=read_only(layout.n_prompt),
        ahead=read_only(layout.ahead),
        depth=read_only(np.asarray(depth, np.int32)),
        cut=read_only(cut),
        confidence=read_only(confidence),
        max_new_tokens=layout.trace.max_new_tokens,
        first=first,
        step_offsets=read_only(np.asarray(step_offsets, np.int64)),
        steps=read_only(planned),
        step_s=read_only(np.zeros((2, 0)) if step_s is None else np.asarray(step_s, np.float64)),
        rates=read_only(np.zeros(0) if rates is None else np.asarray(rates, np.float64)),
        widths=read_only(np.zeros((0, 0), np.int32) if widths is None else widths),
    )


def _planned(steps: Steps, calls: np.ndarray) -> np.ndarray:
    """What is known of steps beforehand, in the order of `MADE`."""
    known = {name: getattr(steps, name) for name in MADE._fields if name not in ("calls", "ended")}
    known["calls"] = calls
    return np.stack([known[name] for name in MADE._fields[: MADE.ended]]).astype(np.int32)


def _depths(layout: Layout) -> tuple[np.ndarray, np.ndarray]:
    """Tokens of the draft from every start, (R,), and whether it was cut short there, (R,) bool."""
    size = np.diff(layout.branch)
    if layout.by_start:
        return size, layout.cut
    left = layout.left
    m = np.arange(len(left)) + np.minimum(layout.ahead, left - 1)
    inside = layout.ahead < left
    depth = np.where(inside, layout.ahead + 1 + size[m], left)
    return depth, inside & layout.cut[m]


def _gather(layout: Layout, column: str, depth: np.ndarray, out: np.ndarray) -> None:
    """A column of the drafts from every start, (R, K)."""
    read = layout.columns((column,))
    if layout.by_start:
        found: Any = read.starts[0]
        width = min(out.shape[1], found.shape[1])
        out[:, :width] = found[:, :width]
        return
    branches = read.branches[0] if len(read.branches) else read.path[0][:0]
    _fill(
        read_only(layout.ahead),
        depth,
        read_only(layout.branch),
        read_only(read.path[0].astype(np.float32)),
        read_only(branches.astype(np.float32)),
        out,
    )


@compiled
def _fill(
    ahead: np.ndarray,
    depth: np.ndarray,
    branch: np.ndarray,
    path: np.ndarray,
    branches: np.ndarray,
    out: np.ndarray,
) -> None:
    for r in range(len(ahead)):
        on_path = ahead[r] + 1
        for k in range(min(depth[r], out.shape[1])):
            if k < on_path:
                out[r, k] = path[r + k]
            else:
                out[r, k] = branches[branch[r + ahead[r]] + k - on_path]
