"""Times that were measured on the pair itself (`latency.parquet` of the trace)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from simkit.costs.base import GIVEN, IN_DECODERS, ByPasses, CostModel, Model, RuleTime, Times
from simkit.costs.constants import check_fields
from simkit.costs.grid import Grid, Mixed, median
from simkit.costs.registry import register
from simkit.costs.timed_models import TimedModels, of_samples
from simkit.errors import CostError
from traces import parquet
from traces.conditions import CONTROL, DRAW, conditions
from traces.drafters.passes import Form
from traces.schema import LATENCY, LIVE
from traces.trace import Trace


class NoSamplesError(CostError):
    """The trace has no timing samples."""


@register
@dataclass(frozen=True)
class Measured(CostModel):
    """Medians of the trace's timing samples, made monotone in tokens and context, linear between.

    Verification samples are those of the target with context, draft samples those of the draft
    with context and one token, prefills those without context. The median of each (tokens,
    context) is taken, then at each context the isotonic fit over tokens, and at each number of
    tokens that over contexts. Beyond the longest context seconds go on with the slope of a straight
    line through all contexts, and never with less over more tokens. Beyond the most tokens they go
    on with one slope for all contexts, that of lines through all numbers of tokens from half the
    most on. Lines are fitted by least squares of relative errors, weighted by samples. Below the
    smallest tokens or context the time stays the same. Where no prefill was timed, it is a pass
    over the prompt at the smallest context. Of an `overhead`, `overhead:baseline`, `policy:NAME`,
    `head:NAME`, `proposal`, `resample` and `communication` the median counts, and nothing where
    they were not timed. A sample's context is what its pass finds in the cache; a replay's has the
    known token that the pass reads first too. That changes speedups of the bundled pairs by less
    than 0.05%.

    Attributes:
        engine: whose samples to take ("eager", "compiled"); None takes eager ones if there are
            any.
        batch_size: sequences in a pass.
        file: a Parquet file of samples with the columns of `traces.schema.LATENCY`, those of
            another trace or of another device, or a log of live runs, whose passes then count
            (`simkit.costs.fit.samples`); None takes the trace's own.
        policy_s: one decision of every rule that was not timed; None lets the simulator time such
            a rule by itself (`simkit.simulator.rule_time`).
        dips: verifications are not made monotone in tokens: an engine that changes its method may
            be faster over more. Policies that know the future are refused then.
        parallel: what the one pass of a parallel drafter holds: "kept", "padded" or "last", see
            `traces.drafters.passes.Form`.
        communication_s: between draft and target, in each step in which they run at the same time,
            in place of what was timed. Where both decode in turn on one machine there is nothing
            to time, and it is nothing unless it is given.

    Raises:
        CostError: `policy_s` or `communication_s` is negative or not finite, or there is no such
            form.

    >>> simkit.costs.Measured().times(traces.load("reference")).longest_context
    348
    """

    engine: str | None = None
    batch_size: int = 1
    file: str | None = None
    policy_s: float | None = None
    communication_s: float | None = None
    parallel: Form = "kept"
    dips: bool = False

    name = "measured"
    what = "medians of the trace's timing samples, or a file's: measured(file=SAMPLES.parquet)"
    source = "simkit latency, simkit live"

    def __post_init__(self) -> None:
        check_fields(self)

    def times(self, trace: Trace) -> Times:
        """See `CostModel`."""
        table = trace.latency() if self.file is None else _read(Path(self.file))
        sealed = self.file is None or parquet.is_sealed(Path(self.file), CostError)
        if table is None:
            where = trace.path or "the trace"
            raise NoSamplesError(f"{where} has no timing samples (latency.parquet)")
        try:
            found = times_of(table, self.engine, self.batch_size, self.policy_s, self.dips)
        except CostError as error:
            where = self.file or (trace.path and trace.path / "latency.parquet")
            raise CostError(f"{where or 'timing samples'}: {error}") from None
        unsealed = None if sealed else self.file
        named = of_samples(table, self.file)
        found = replace(found, unsealed=unsealed, parallel=self.parallel, models=named)
        if self.communication_s is None:
            return found
        given = {"communication": self.communication_s}
        return replace(found, constants={**found.constants, **given}, given=given)


def times_of(
    samples: pa.Table,
    engine: str | None = None,
    batch_size: int = 1,
    policy_s: float | None = None,
    dips: bool = False,
) -> _MeasuredTimes:
    """The times of samples in memory, `traces.schema.LATENCY`; see `Measured`.

    Raises:
        CostError: the samples are wrong, or too few.
    """
    chosen = _choose(samples, engine, batch_size)
    engine = chosen["engine"][0].as_py()
    cells = _cells(chosen)
    found = _grids(cells, policy_s, dips)
    return replace(found, cells=cells, samples=samples, engine=engine, sequences=batch_size)


DRAWS = 32  # of prompts or rounds, from which intervals take the spread of times
FEWEST_ROUNDS = 3  # of samples, from which on their spread can be taken
_SHORTEST_S, _LONGEST_S = 1e-15, 1e15  # of a sample: beyond them squares leave a float
_NONE = np.empty((4, 0))
_CONSTANTS = ("overhead", "proposal", "policy:", "head:", "resample", "communication")


def _read(file: Path) -> pa.Table:
    """The timing samples in a file of any name."""
    if "kind" not in parquet.read_schema(file, CostError).names:
        return parquet.read_samples(file, LATENCY, CostError)
    from simkit.costs import fit  # here: most costs are of samples, and a replay is quick to begin

    log = parquet.read_samples(file, LIVE, CostError)
    try:
        return fit.samples(log, draws=DRAWS)
    except CostError as error:
        raise CostError(f"{file}: {error}") from None


def _cells(table: pa.Table) -> dict[str, np.ndarray]:
    """Tokens, context, seconds and repeat of each component's samples, shape (4, n)."""
    columns = ("tokens_in", "context_len", "seconds", "repeat")
    values = np.array([table[name].to_numpy() for name in columns], float)
    names = np.array(table["component"].to_pylist(), object)
    found = {name: values[:, names == name] for name in sorted(set(names))}
    for name, given in found.items():
        bad = given[2, ~((given[2] >= _SHORTEST_S) & (given[2] <= _LONGEST_S))]
        if bad.size:
            raise CostError(f"a sample of {name} took {bad[0]} seconds")
    return found


def _grids(samples: dict[str, np.ndarray], policy_s: float | None, dips: bool) -> _MeasuredTimes:
    without = "draft" not in samples and "proposal" in samples  # a drafter without passes
    for model in ("target",) if without else ("draft", "target"):
        if not np.any(samples.get(model, _NONE)[1] > 0):
            raise CostError(f"no samples of {model} passes with context")
    target = samples["target"]
    passes: dict[str, Grid] = {"target": Grid.fit(target[:, target[1] > 0], dips)}
    if not without:
        passes |= _draft_passes(samples["draft"])
    prefills = {
        model: Grid.fit(given[:, given[1] == 0]) if np.any(given[1] == 0) else passes[model]
        for model, given in samples.items()
        if model in ("draft", "target")
    }
    constants = {
        name: median(given[2])
        for name, given in samples.items()
        if name.startswith(_CONSTANTS) and given.size
    }
    return _MeasuredTimes(passes, prefills, constants, policy_s, dips=dips)


def _draft_passes(draft: np.ndarray) -> dict[str, Grid]:
    one = draft[:, (draft[0] == 1) & (draft[1] > 0)]
    if one.size == 0:
        raise CostError("no samples of draft passes over one token")
    several = draft[:, draft[1] > 0]
    blocks = {"draft block": Grid.fit(several)} if (several[0] > 1).any() else {}
    return {"draft": Grid.fit(one), **blocks}


def _drawn(cells: dict[str, np.ndarray], n: int) -> Iterator[dict[str, np.ndarray]]:
    """The samples of n draws: those that the table has, else its rounds drawn anew.

    A round times every shape once. One round fewer than there are is drawn, see
    `simkit.costs.passes.Passes.again`. What was timed in no round (`policy:` of a running decoder
    beside passes alone) stays as it is. An attached drafter may have been timed in other rounds
    than the recording's target, or beside samples that hold draws: its rounds are drawn apart.
    """
    marked = {k.removeprefix(DRAW): given for k, given in cells.items() if k.startswith(DRAW)}
    timed = {k: given for k, given in cells.items() if not k.startswith((CONTROL, DRAW))}
    rng = np.random.default_rng(0)
    if marked:
        numbers = sorted({int(k) for given in marked.values() for k in np.unique(given[3])})
        own = {k: given for k, given in timed.items() if k not in marked}
        for number in numbers[:n]:
            drawn = {name: given[:, given[3] == number] for name, given in marked.items()}
            yield drawn | _again(own, rng)
        return
    if len(np.unique(cells["target"][3])) < FEWEST_ROUNDS:
        return
    for _ in range(n):
        yield _again(timed, rng)


def _again(samples: dict[str, np.ndarray], rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Rounds drawn anew: together of components that were timed in as many."""
    counts: dict[int, np.ndarray] = {}
    found = {}
    for name in sorted(samples, key=lambda name: name != "target"):
        rounds, which = np.unique(samples[name][3], return_inverse=True)
        n = len(rounds)
        if n >= FEWEST_ROUNDS and n not in counts:
            counts[n] = np.bincount(rng.choice(n, n - 1), minlength=n)
        times = counts[n][which] if n in counts else np.ones(len(which), int)
        found[name] = np.repeat(samples[name], times, axis=1)
    return found


@dataclass(frozen=True, eq=False)
class _MeasuredTimes(ByPasses):
    passes: Mapping[str, Grid | Mixed]
    prefills: Mapping[str, Grid | Mixed]
    constants: dict[str, float]
    policy_s: float | None
    cells: dict[str, np.ndarray] = field(default_factory=dict)
    samples: pa.Table | None = None
    engine: str | None = None
    sequences: int = 1
    parallel: Form = "kept"
    given: dict[str, float] = field(default_factory=dict)  # of `constants`, whatever was timed
    unsealed: str | None = None  # the file of samples, where nothing tells if it was altered
    models: TimedModels | None = None
    dips: bool = False
    _known: dict[int, Times] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def batch(self) -> int:
        return self.sequences

    @property
    def knows_blocks(self) -> bool:
        return "draft block" in self.passes

    def draft_block(self, tokens: np.ndarray, context: np.ndarray) -> np.ndarray:
        tokens, one_s = np.asarray(tokens), self.passes["draft"](np.array(1), context)
        if not self.knows_blocks:
            return one_s + np.zeros(tokens.shape)
        several_s = np.maximum(one_s, self.passes["draft block"](tokens, context))
        return np.where(tokens > 1, several_s, one_s)

    @property
    def longest_context(self) -> int:
        return min(grid.longest_context for grid in self.passes.values())

    @property
    def longest_prompt(self) -> int:
        return min(grid.most_tokens for grid in self.prefills.values())

    def most_tokens(self, model: Model) -> int | None:
        grid = self.passes.get("draft block" if model == "draft" else model)
        return grid and grid.most_tokens

    @property
    def batches(self) -> tuple[int, ...]:
        if self.samples is None:
            return (self.sequences,)
        mine = (pc.field("engine") == self.engine) & (pc.field("component") == "target")
        return tuple(sorted({*self.samples.filter(mine)["batch_size"].to_pylist()}))

    def of_batch(self, batch: int) -> Times:
        """Between two sizes that were timed, seconds lie on the line between theirs.

        What is no pass and was not timed in such batches takes as long as here.
        """
        if batch not in self._known:
            self._known[batch] = self._of_batch(batch)
        return self._known[batch]

    def _of_batch(self, batch: int) -> Times:
        if self.samples is None or not (sizes := self.batches):
            return super().of_batch(batch)
        if not sizes[0] <= batch <= sizes[-1]:
            known = ", ".join(map(str, sizes))
            raise CostError(f"no samples of batch size {batch} (batch sizes: {known})")
        low = max(size for size in sizes if size <= batch)
        high = min(size for size in sizes if size >= batch)
        below = times_of(self.samples, self.engine, low, self.policy_s, self.dips)
        if low == high:
            constants = {**self.constants, **below.constants, **self.given}
            mine = {"unsealed": self.unsealed, "parallel": self.parallel, "models": self.models}
            mine |= {"given": self.given}
            return replace(below, constants=constants, **mine)
        above = times_of(self.samples, self.engine, high, self.policy_s, self.dips)
        return self._between(below, above, batch)

    def _between(self, low: _MeasuredTimes, high: _MeasuredTimes, batch: int) -> _MeasuredTimes:
        share = (batch - low.batch) / (high.batch - low.batch)

        def mixed(a: Mapping[str, Any], b: Mapping[str, Any]) -> dict[str, Mixed]:
            return {name: Mixed(a[name], b[name], share) for name in a if name in b}

        both = {
            name: low.constants[name] * (1 - share) + high.constants[name] * share
            for name in low.constants
            if name in high.constants
        }
        return replace(
            self,
            passes=mixed(low.passes, high.passes),
            prefills=mixed(low.prefills, high.prefills),
            constants={**self.constants, **both, **self.given},
            cells={},
            sequences=batch,
        )

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
        if not self.cells:  # between two sizes of batches
            return found
        for cells in _drawn(self.cells, n):
            try:
                drawn = _grids(cells, self.policy_s, self.dips)
            except CostError:  # few prompts: a draw may lack the passes of one model
                continue
            # what no prompt of the draw has timed keeps its time, and so does what was given
            constants = {**self.constants, **drawn.constants, **self.given}
            passes, prefills = {**self.passes, **drawn.passes}, {**self.prefills, **drawn.prefills}
            grids = {"passes": passes, "prefills": prefills, "constants": constants}
            found.append(replace(drawn, **grids, parallel=self.parallel, given=self.given))
        return found

    @property
    def weakness(self) -> str:
        return "" if self.samples is None else conditions(self.samples).warning

    def remarks(self) -> list[str]:
        found = []
        if self.unsealed:
            found.append(f"{self.unsealed} has no digest, so changes to it are not noticed")
        marked = any(name.startswith(DRAW) for name in self.cells)
        if not marked and len(np.unique(self.cells.get("target", _NONE)[3])) < FEWEST_ROUNDS:
            found.append(
                "the spread of the times is not known, so intervals of speeds cover the spread over"
                " prompts only"
            )
        return found

    def proposal(self) -> float:
        return self.constants.get("proposal", 0.0)

    def head(self, name: str) -> float:
        return self.constants.get(f"head:{name}", 0.0)

    def resample(self) -> float:
        return self.constants.get("resample", 0.0)

    def communication(self) -> float:
        return self.constants.get("communication", 0.0)


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
