"""The serving simulator held against a live server: throughput predicted and measured.

The cost is that of running decoders: of servers that draft fixed lengths, on other prompts. All
that an iteration takes outside of draft rounds, prompts and the controller is in the seconds of its
verification; so is what the first draft round takes more than later ones. A controller's own time
is left out on both sides.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from scipy.optimize import nnls

from simkit import serving
from simkit.costs import Measured
from simkit.errors import LiveError
from simkit.live.decoder import Request
from simkit.live.served import SCHEMA, Iteration, ServedRun, ServedStep
from simkit.live.serving_arms import ServingArm, engine
from simkit.live.serving_summary import Arms, summary
from simkit.simulator.beyond import together
from traces import parquet, schema
from traces.files import encode
from traces.outputs import write_atomic
from traces.subset import select
from traces.trace import Trace

CONTROLLERS = (
    "static(3)",
    "static(5)",
    "off_above(3, 8)",
    "schedule({1: 5, 4: 4, 8: 2, 32: 1})",
    "ema()",
    "all_stopped(svip(h=0.8))",
    "svip(h=0.8)",
)
FITTED = ("none()", "static(1)", "static(2)", "static(4)", "static(7)")
"""Whose passes the cost is fitted to."""
MEDIAN_BAR, WORST_BAR = 0.05, 0.10
_STALLED = 0.1  # of passes
_REFITS = 3
_PROMPTS = (1, 1000)  # tokens

Sample = tuple[str, int, int, int, float]
"""Component, tokens, context, batch size, seconds."""


class ServingPlan(NamedTuple):
    """Who serves which prompts.

    Arms 0 to n - 1 are the controllers to test, n the first of them again, and the rest are those
    that the cost is fitted to.

    Attributes:
        controllers: specs to test.
        held_out: indices of the trace's prompts on which they are tested.
        calibration: indices of others, on which the cost is fitted.
        max_new_tokens: T_max.
    """

    controllers: tuple[str, ...]
    held_out: tuple[int, ...]
    calibration: tuple[int, ...]
    max_new_tokens: int

    def arms(self, trace: Trace) -> list[ServingArm]:
        """All arms, by number."""
        tested = [*self.controllers, self.controllers[0]]
        return [
            *(ServingArm(serving.parse(s), requests(trace, self.held_out)) for s in tested),
            *(ServingArm(serving.parse(s), requests(trace, self.calibration)) for s in FITTED),
        ]

    @property
    def tested(self) -> range:
        """The arms that are tested, the control last."""
        return range(len(self.controllers) + 1)


class ServingRow(NamedTuple):
    """A controller: tokens a second."""

    controller: str
    predicted: float
    measured: float
    whole: float  # measured, with the controller's own time

    @property
    def error(self) -> float:
        """Of the prediction, relative."""
        return self.predicted / self.measured - 1


class ServingPair(NamedTuple):
    """Two controllers: the ratio of their throughputs."""

    first: str
    second: str
    predicted: float
    measured: float
    lo: float
    hi: float

    @property
    def told_apart(self) -> bool:
        """Whether the measured ratio is outside the noise."""
        return self.lo > 1 or self.hi < 1

    @property
    def misranked(self) -> bool:
        """Whether the simulator has the other one first, of two that are told apart."""
        return self.told_apart and (self.predicted > 1) != (self.measured > 1)


class ServingJudgement(NamedTuple):
    """What came of one concurrency.

    Attributes:
        concurrency: requests in flight.
        rows: of the controllers.
        pairs: of them.
        control: by how much two arms that did the same differ in throughput.
        notes: how much of the predictions rests on times beyond those that were fitted.
    """

    concurrency: int
    rows: list[ServingRow]
    pairs: list[ServingPair]
    control: float
    notes: list[str]


def requests(trace: Trace, indices: Sequence[int]) -> tuple[Request, ...]:
    """Those of a trace's prompts."""
    columns = [trace.sequences[name].to_pylist() for name in ("sequence", "prompt_tokens")]
    return tuple(Request(columns[0][k], columns[1][k]) for k in indices)


def read(file: str | Path) -> pa.Table:
    """The log in a file.

    Raises:
        LiveError: it cannot be read, or is no log of a live server.
    """
    return parquet.read_samples(Path(file), SCHEMA, LiveError)


def runs_of(log: pa.Table) -> list[ServedRun]:
    """The runs of a log, in its order."""
    found: dict[tuple[int, int], ServedRun] = {}
    waiting: list[dict] = []
    for row in log.to_pylist():
        waiting.append(row)
        if row["kind"] == "iteration":
            who = row["run"], row["round"], row["controller"], row["concurrency"]
            run = found.setdefault(who[:2], ServedRun(*who, []))
            run.iterations.append(_iteration(waiting))
            waiting = []
    return list(found.values())


def _iteration(rows: list[dict]) -> Iteration:
    """An iteration from its rows, of which the last one is of all of it."""
    none = {"requests": 0, "tokens": 0, "tokens_in": 0, "seconds": 0.0}
    of = {row["kind"]: row for row in rows}
    prefill, opened, verify, policy = (
        of.get(kind, none) for kind in ("prefill", "open", "verify", "policy")
    )
    steps = [row for row in rows if row["kind"] == "step"]
    whole = of["iteration"]
    return Iteration(
        number=whole["number"],
        decoding=whole["requests"],
        prefilling=prefill["requests"],
        prefill_tokens=prefill["tokens"],
        longest_prompt=prefill["tokens_in"],
        drafts_opened=opened["requests"],
        drafts_tokens=opened["tokens"],
        tokens_in=verify["tokens_in"],
        context=whole["context"],
        prefill_s=prefill["seconds"],
        open_s=opened["seconds"],
        round_s=[row["seconds"] for row in rows if row["kind"] == "round"],
        verify_s=verify["seconds"],
        policy_s=policy["seconds"],
        seconds=whole["seconds"],
        steps=[ServedStep(**{name: row[name] for name in ServedStep._fields}) for row in steps],
    )


def samples(runs: Sequence[ServedRun]) -> pa.Table:
    """Timing samples of what servers did, `traces.schema.LATENCY`.

    Args:
        runs: of controllers whose passes count.

    Raises:
        LiveError: nothing was drafted.
    """
    mine = [row for run in runs for row in run.iterations]
    rows = _passes(mine) + _prompts(mine, "target") + _prompts(mine, "draft")
    facts = {"dtype": "float32", "device": "cpu", "engine": "eager", "repeat": 0}
    names = ("component", "tokens_in", "context_len", "batch_size", "seconds")
    named = [dict(zip(names, row, strict=True)) | facts for row in rows]
    return pa.Table.from_pylist(named, schema=schema.LATENCY)


def _passes(rows: list[Iteration]) -> list[Sample]:
    """Draft rounds and verifications, as nearest forms over requests, tokens and context have them.

    A round is 1, n and n·context; all else of an iteration 1, n, n·tokens and n·context.
    """
    rows = [row for row in rows if row.decoding]
    later = [(row.decoding, row.context, s) for row in rows for s in row.round_s[1:]]
    if not later:
        raise LiveError("no drafts of two tokens or more: no times of draft rounds")
    n, context, seconds = np.array(later, float).T
    round_s = _nearest([np.ones(len(n)), n, n * context], seconds)
    n, tokens, context = np.array([(r.decoding, r.tokens_in, r.context) for r in rows], float).T
    drafts_s = (round_s @ [np.ones(len(n)), n, n * context]) * [len(r.round_s) for r in rows]
    rest_s = np.array([_rest_s(row) for row in rows]) - drafts_s
    pass_s = _nearest([np.ones(len(n)), n, n * tokens, n * context], rest_s)
    found: list[Sample] = []
    for size in _sizes(int(n.max())):
        for at in (1, 1000):
            one_s = float(round_s @ [1, size, size * at])
            found.append(("draft", 1, at, size, max(one_s, 1e-9)))
            for k in (1, int(tokens.max()) + 1):
                one_s = float(pass_s @ [1, size, size * k, size * at])
                found.append(("target", k, at, size, max(one_s, 1e-9)))
    return found


def _nearest(columns: list[np.ndarray], seconds: np.ndarray) -> np.ndarray:
    """Weights >= 0 of columns whose sum is nearest to some seconds, in relative terms.

    The slowest tenth, which a machine's stalls have made so, says nothing of the form; its seconds
    are there all the same: the sum over all is that of the seconds.
    """
    x, kept = np.stack(columns, 1), np.ones(len(seconds), bool)
    found, _ = nnls(x, seconds)
    for _ in range(_REFITS):
        weight = 1 / np.maximum(x @ found, 1e-9)
        found, _ = nnls(x[kept] * weight[kept, None], seconds[kept] * weight[kept])
        ratio = seconds / np.maximum(x @ found, 1e-9)
        kept = ratio <= np.quantile(ratio, 1 - _STALLED)
    return found * (seconds.sum() / (x @ found).sum())


def _sizes(most: int) -> list[int]:
    return sorted({1, *(2**k for k in range(most.bit_length()) if 2**k < most), most})


def _rest_s(row: Iteration) -> float:
    """Seconds of an iteration without prompts and controller."""
    return row.seconds - row.prefill_s - row.open_s - row.policy_s


def _prompts(rows: list[Iteration], model: str) -> list[Sample]:
    """Prompts: two points of the line over tokens that is nearest to the passes over them."""
    names = {"target": ("prefill_tokens", "prefill_s"), "draft": ("drafts_tokens", "open_s")}[model]
    found = [[getattr(row, name) for name in names] for row in rows if getattr(row, names[0])]
    if not found:
        return []
    tokens, seconds = np.array(found, float).T
    line, _ = nnls(np.stack([np.ones(len(tokens)), tokens], 1), seconds)
    return [(model, n, 0, 1, max(float(line @ [1, n]), 1e-9)) for n in _PROMPTS]


def judge(
    trace: Trace,
    plan: ServingPlan,
    runs: Sequence[ServedRun],
    cost: Path,
) -> ServingJudgement:
    """Predict the throughput of the tested controllers, and compare.

    Args:
        trace: of the prompts.
        plan: of the run.
        runs: of one concurrency, all arms.
        cost: the file that the cost is written to.
    """
    concurrency = runs[0].concurrency
    first = len(plan.tested)
    table = samples([run for run in runs if run.run >= first])
    write_atomic(cost, encode(table)[0])
    part = select(trace, plan.held_out, max_new_tokens=plan.max_new_tokens)
    served = serving.serve(
        part,
        plan.controllers,
        Measured(file=str(cost), policy_s=0.0),
        concurrency=concurrency,
        engine=engine(concurrency, extrapolate=True),
        requests=None,
        drawn=False,
        seeds=1,
    )
    predicted = {row["controller"]: row["tokens_s"] for row in served.records()}
    tested = [run for run in runs if run.run in plan.tested]
    arms, whole = summary([_without(run) for run in tested]), summary(tested)
    names = arms.names[:-1]
    rows = [
        ServingRow(name, predicted[name], float(arms.tokens_s[k]), float(whole.tokens_s[k]))
        for k, name in enumerate(names)
    ]
    control = float(arms.tokens_s[-1] / arms.tokens_s[0] - 1)
    notes, noise = together(served.beyond), abs(control)
    return ServingJudgement(concurrency, rows, _pairs(rows, arms, noise), control, notes)


def _pairs(rows: list[ServingRow], arms: Arms, noise: float) -> list[ServingPair]:
    """All pairs; their intervals are wider by what equal arms differ by."""
    found = []
    for a, b in combinations(range(len(rows)), 2):
        lo, hi = arms.interval(a, b)
        ratio = rows[a].predicted / rows[b].predicted
        names = rows[a].controller, rows[b].controller
        measured = rows[a].measured / rows[b].measured
        found.append(ServingPair(*names, ratio, measured, lo * (1 - noise), hi * (1 + noise)))
    return found


def _without(run: ServedRun) -> ServedRun:
    """The run without what its controller took."""
    rows = [row._replace(seconds=row.seconds - row.policy_s) for row in run.iterations]
    return run._replace(iterations=rows)
