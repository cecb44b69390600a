"""Times that were measured on the pair itself (`latency.parquet` of the trace)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from simkit.costs import fit
from simkit.costs.base import GIVEN, IN_DECODERS, ByPasses, CostModel, Model, RuleTime, Times
from simkit.costs.constants import check_seconds
from simkit.costs.registry import register
from simkit.errors import CostError
from traces import parquet
from traces.conditions import CONTROL, DRAW, Conditions, conditions
from traces.schema import LATENCY, LIVE
from traces.trace import Trace


@register
@dataclass(frozen=True)
class Measured(CostModel):
    """Medians of the trace's timing samples, made monotone in tokens, linear in between.

    Verification samples are those of the target with context, draft samples those of the draft
    with context and one token, prefills those without context. The median of each (tokens,
    context) is taken, then at each context the isotonic fit over tokens. Beyond the largest
    tokens or context the last segment goes on, with a slope of at least 0; below the smallest the
    time stays the same. Where no prefill was timed, it is a pass over the prompt at the smallest
    context. Of an `overhead`, `overhead:baseline`, `policy:NAME`, `head:NAME`, `resample` and
    `communication` the median counts, and nothing where they were not timed.

    Attributes:
        engine: whose samples to take ("eager", "compiled"); None takes eager ones if there are
            any.
        batch_size: sequences in a pass.
        file: a Parquet file of samples with the columns of `traces.schema.LATENCY`, those of
            another trace or of another device, or a log of live runs, whose passes then count
            (`simkit.costs.fit.samples`); None takes the trace's own.
        policy_s: one decision of every rule that was not timed; None lets the simulator time such
            a rule by itself (`simkit.simulator.rule_time`).
        communication_s: between draft and target, in each step in which they run at the same time,
            in place of what was timed. Where both decode in turn on one machine there is nothing
            to time, and it is nothing unless it is given.

    Raises:
        CostError: `policy_s` or `communication_s` is negative or not finite.
    """

    engine: str | None = None
    batch_size: int = 1
    file: str | None = None
    policy_s: float | None = None
    communication_s: float | None = None

    name = "measured"
    what = "medians of timing samples: the trace's, or measured(file=SAMPLES.parquet)"
    source = "simkit latency, simkit live"

    def __post_init__(self) -> None:
        check_seconds(self)

    def times(self, trace: Trace) -> Times:
        """See `CostModel`."""
        table = trace.latency() if self.file is None else _read(Path(self.file))
        if table is None:
            raise CostError(f"{trace.path or 'the trace'} has no timing samples (latency.parquet)")
        try:
            found = times_of(table, self.engine, self.batch_size, self.policy_s)
        except CostError as error:
            where = self.file or (trace.path and trace.path / "latency.parquet")
            raise CostError(f"{where or 'timing samples'}: {error}") from None
        if self.communication_s is None:
            return found
        given = {**found.constants, "communication": self.communication_s}
        return replace(found, constants=given)


def times_of(
    samples: pa.Table,
    engine: str | None = None,
    batch_size: int = 1,
    policy_s: float | None = None,
) -> _MeasuredTimes:
    """The times of samples in memory, `traces.schema.LATENCY`; see `Measured`.

    Raises:
        CostError: the samples are wrong, or too few.
    """
    return _fit(_choose(samples, engine, batch_size), policy_s)


DRAWS = 32  # of prompts or rounds, from which intervals take the spread of times
FEWEST_ROUNDS = 3  # of samples, from which on their spread can be taken
_NONE = np.empty((4, 0))
_CONSTANTS = ("overhead", "policy:", "head:", "resample", "communication")


def _read(file: Path) -> pa.Table:
    """The timing samples in a file of any name."""
    if "kind" not in parquet.read_schema(file, CostError).names:
        return parquet.read_samples(file, LATENCY, CostError)
    log = parquet.read_samples(file, LIVE, CostError)
    try:
        return fit.samples(log, draws=DRAWS)
    except CostError as error:
        raise CostError(f"{file}: {error}") from None


def _fit(table: pa.Table, policy_s: float | None) -> _MeasuredTimes:
    cells = _cells(table)
    return replace(_grids(cells, policy_s), cells=cells, conditions=conditions(table))


def _cells(table: pa.Table) -> dict[str, np.ndarray]:
    """Tokens, context, seconds and repeat of each component's samples, shape (4, n)."""
    columns = ("tokens_in", "context_len", "seconds", "repeat")
    values = np.array([table[name].to_numpy() for name in columns], float)
    names = np.array(table["component"].to_pylist(), object)
    found = {name: values[:, names == name] for name in sorted(set(names))}
    for name, given in found.items():
        bad = given[2, ~((given[2] > 0) & np.isfinite(given[2]))]
        if bad.size:
            raise CostError(f"a sample of {name} took {bad[0]} seconds")
    return found


def _grids(samples: dict[str, np.ndarray], policy_s: float | None) -> _MeasuredTimes:
    for model in ("draft", "target"):
        if not np.any(samples.get(model, _NONE)[1] > 0):
            raise CostError(f"no samples of {model} passes with context")
    draft, target = samples["draft"], samples["target"]
    one = draft[:, (draft[0] == 1) & (draft[1] > 0)]
    if one.size == 0:
        raise CostError("no samples of draft passes over one token")
    passes = {"draft": _Grid.fit(one), "target": _Grid.fit(target[:, target[1] > 0])}
    prefills = {
        model: _Grid.fit(given[:, given[1] == 0]) if np.any(given[1] == 0) else passes[model]
        for model, given in (("draft", draft), ("target", target))
    }
    constants = {
        name: float(np.median(given[2]))
        for name, given in samples.items()
        if name.startswith(_CONSTANTS) and given.size
    }
    return _MeasuredTimes(passes, prefills, constants, policy_s)


def _drawn(cells: dict[str, np.ndarray], n: int) -> Iterator[dict[str, np.ndarray]]:
    """The samples of n draws: those that the table has, else its rounds drawn anew.

    A round times every shape once. One round fewer than there are is drawn, see
    `simkit.costs.passes.Passes.again`. What was timed in no round (`policy:` of a running decoder
    beside passes alone) stays as it is.
    """
    marked = {k.removeprefix(DRAW): given for k, given in cells.items() if k.startswith(DRAW)}
    if marked:
        numbers = sorted({int(k) for given in marked.values() for k in np.unique(given[3])})
        for number in numbers[:n]:
            yield {name: given[:, given[3] == number] for name, given in marked.items()}
        return
    rounds = np.unique(cells["target"][3])
    if len(rounds) < FEWEST_ROUNDS:
        return
    rng = np.random.default_rng(0)
    timed = {k: given for k, given in cells.items() if not k.startswith(CONTROL)}
    for _ in range(n):
        drawn = rng.choice(rounds, len(rounds) - 1)
        parts = {}
        for name, given in timed.items():
            of_round = [given[:, given[3] == k] for k in drawn]
            again = np.concatenate(of_round, axis=1)
            parts[name] = again if again.size else given
        yield parts


@dataclass(frozen=True, eq=False)
class _MeasuredTimes(ByPasses):
    passes: dict[str, _Grid]
    prefills: dict[str, _Grid]
    constants: dict[str, float]
    policy_s: float | None
    cells: dict[str, np.ndarray] = field(default_factory=dict)
    conditions: Conditions = Conditions()

    def prefill(self, model: Model, tokens: np.ndarray) -> np.ndarray:
        return self.prefills[model](tokens, np.zeros_like(tokens))

    def overhead(self) -> float:
        return self.constants.get("overhead", 0.0)

    def baseline_overhead(self) -> float:
        return self.constants.get("overhead:baseline", 0.0)

    def policy(self, name: str) -> float:
        return self.constants.get(f"policy:{name}", self.policy_s or 0.0)

    def rule_time(self, name: str) -> RuleTime | None:
        if name in self.timed_rules():
            return RuleTime(self.policy(name), IN_DECODERS)
        return None if self.policy_s is None else RuleTime(self.policy_s, GIVEN)

    def timed_rules(self) -> dict[str, float]:
        return {
            name.removeprefix("policy:"): seconds
            for name, seconds in self.constants.items()
            if name.startswith("policy:")
        }

    def drawn_anew(self, n: int) -> list[Times]:
        found: list[Times] = []
        for cells in _drawn(self.cells, n):
            try:
                drawn = _grids(cells, self.policy_s)
            except CostError:  # few prompts: a draw may lack the passes of one model
                continue
            # what no prompt of the draw has timed keeps its time, and so does what was given
            constants = self.constants | drawn.constants
            constants["communication"] = self.communication()
            found.append(replace(drawn, constants=constants))
        return found

    def remarks(self) -> list[str]:
        found = [self.conditions.warning] if self.conditions.warning else []
        marked = any(name.startswith(DRAW) for name in self.cells)
        if not marked and len(np.unique(self.cells["target"][3])) < FEWEST_ROUNDS:
            quiet = "; whether the machine was quiet is not known"
            known = "" if self.conditions.apart is not None else quiet
            found.append(
                "the spread of the times is not known, so intervals of speeds hold that of prompts"
                f" alone{known}"
            )
        return found

    def head(self, name: str) -> float:
        return self.constants.get(f"head:{name}", 0.0)

    def resample(self) -> float:
        return self.constants.get("resample", 0.0)

    def communication(self) -> float:
        return self.constants.get("communication", 0.0)


@dataclass(frozen=True, eq=False)
class _Grid:
    """Seconds over (context, tokens), bilinear; see `Measured` for what lies beyond.

    Attributes:
        contexts: (C,) ascending, C > 1; the last one stands for the slope beyond the samples.
        tokens: (N,) likewise.
        seconds: (C, N), never falling along tokens.
    """

    contexts: np.ndarray
    tokens: np.ndarray
    seconds: np.ndarray

    @classmethod
    def fit(cls, samples: np.ndarray) -> _Grid:
        """The grid of samples (tokens, context, seconds, …), shape (4, n), n > 0."""
        tokens, contexts = _further(np.unique(samples[0])), np.unique(samples[1])
        curves = np.array([_curve(samples[:, samples[1] == c], tokens) for c in contexts])
        rise = np.maximum.accumulate(np.maximum(np.diff(curves[-2:], axis=0).sum(0), 0))
        return cls(_further(contexts), tokens, np.vstack([curves, curves[-1] + rise]))

    def __call__(self, tokens: np.ndarray, context: np.ndarray) -> np.ndarray:
        """Seconds of passes; the arguments broadcast."""
        column, along = _place(self.tokens, tokens)
        row, across = _place(self.contexts, context)
        near = self.seconds[row, column] * (1 - along) + self.seconds[row, column + 1] * along
        row = row + 1
        far = self.seconds[row, column] * (1 - along) + self.seconds[row, column + 1] * along
        return near * (1 - across) + far * across


def _curve(samples: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Seconds at one context: medians, isotonic over tokens, read off `at`."""
    from scipy.optimize import isotonic_regression

    tokens, which = np.unique(samples[0], return_inverse=True)
    medians = [np.median(samples[2, which == k]) for k in range(len(tokens))]
    fit = isotonic_regression(medians, weights=np.bincount(which)).x
    fit = np.append(fit, fit[-1] + np.diff(fit[-2:]).sum())
    k, t = _place(_further(tokens), at)
    return fit[k] + t * (fit[k + 1] - fit[k])


def _further(knots: np.ndarray) -> np.ndarray:
    """One more knot, as far from the last as that is from the one before."""
    return np.append(knots, knots[-1] + (np.diff(knots[-2:]).sum() or 1))


def _place(knots: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The segment of each x, and how far along it x lies: 0 before the first knot, > 1 beyond."""
    k = np.clip(np.searchsorted(knots, x, side="right") - 1, 0, len(knots) - 2)
    return k, np.maximum((x - knots[k]) / (knots[k + 1] - knots[k]), 0)


def _choose(table: pa.Table, engine: str | None, batch_size: int) -> pa.Table:
    """The samples of one engine, batch size, dtype and device."""
    table = table.filter(pc.field("batch_size") == batch_size)
    engines = sorted(set(table["engine"].to_pylist()))
    if engine is None:
        engine = "eager" if "eager" in engines or not engines else engines[0]
    table = table.filter(pc.field("engine") == engine)
    if table.num_rows == 0:
        known = f" (engines: {', '.join(engines)})" if engines else ""
        raise CostError(f"no samples of engine {engine}, batch size {batch_size}{known}")
    for column in ("dtype", "device"):
        found = sorted(set(table[column].to_pylist()))
        if len(found) > 1:
            raise CostError(f"mixes several {column}s: {', '.join(found)}")
    return table
