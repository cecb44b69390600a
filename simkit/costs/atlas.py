"""Times of the papers' models on one GPU, from the latency atlas that comes with the package."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from simkit.costs.base import CostModel, Times
from simkit.costs.constants import check_fields
from simkit.costs.measured import times_of
from simkit.costs.registry import register
from simkit.costs.timed_models import TimedModels
from simkit.errors import CostError
from traces import parquet
from traces.conditions import CONTROL, TimedModel
from traces.drafters.passes import Form
from traces.registry import suggest
from traces.schema import LATENCY
from traces.trace import DATA, Trace

FOLDER = DATA / "latency-atlas"
_COLUMNS = LATENCY.insert(0, pa.field("model", pa.string(), False))


@register
@dataclass(frozen=True)
class Atlas(CostModel):
    """Medians of the passes of two models on an NVIDIA H200, in bfloat16 (docs/costs.md).

    They are read as `Measured` reads samples. What the atlas has not timed is given here.

    Attributes:
        target: whose passes verify.
        draft: whose passes draft; calls of PACER's head beside it come along.
        engine: "cuda_graph" or "eager".
        batch_size: sequences in a pass; prefills and heads were timed at 1 alone.
        overhead_s: of a step, outside of passes.
        baseline_overhead_s: of a token of the target alone.
        policy_s: one decision of any rule; None times each rule by itself, here.
        parallel: see `Measured`.

    Raises:
        CostError: an argument is out of range, or the atlas has not timed that.

    >>> cost = simkit.costs.Atlas(target="qwen3-8b", draft="qwen3-0.6b")
    >>> cost.times(traces.load("reference")).batches
    (1, 4, 16, 64)
    """

    target: str
    draft: str
    engine: str = "cuda_graph"
    batch_size: int = 1
    overhead_s: float = 0.0
    baseline_overhead_s: float = 0.0
    policy_s: float | None = None
    parallel: Form = "kept"

    name = "atlas"
    what = "median passes of 15 models on an H200: atlas(target=qwen3-8b, draft=qwen3-0.6b)"
    source = "the latency atlas, docs/costs.md"

    def __post_init__(self) -> None:
        check_fields(self)

    def times(self, trace: Trace) -> Times:
        """See `CostModel`; nothing of the trace is read."""
        samples = pair(samples_of_all(), self.target, self.draft, self.engine)
        try:
            found = times_of(samples, self.engine, self.batch_size, self.policy_s)
        except CostError as error:
            raise CostError(f"atlas: {error}") from None
        loops = {"overhead": self.overhead_s, "overhead:baseline": self.baseline_overhead_s}
        named = TimedModels(TimedModel(self.target), TimedModel(self.draft), "the latency atlas")
        return replace(
            found, constants=found.constants | loops, parallel=self.parallel, models=named
        )


def samples_of_all() -> pa.Table:
    """The atlas's samples: those of a latency table, with the model's name."""
    return parquet.read_samples(FOLDER / "latency.parquet", _COLUMNS, CostError)


def pair(atlas: pa.Table, target: str, draft: str, engine: str) -> pa.Table:
    """The samples of two models as those of a pair, `traces.schema.LATENCY`.

    Raises:
        CostError: one of them, or the engine, was not timed.
    """
    models = sorted(set(atlas["model"].to_pylist()))
    for model in (target, draft):
        if model not in models:
            raise CostError(f"the atlas has no {model!r} ({suggest(str(model), models)})")
    engines = sorted(set(atlas["engine"].to_pylist()))
    if engine not in engines:
        raise CostError(f"atlas: engine is {' or '.join(engines)}, not {engine!r}")
    mine = pc.field("engine") == engine
    forward = pc.field("component").isin(["forward", f"{CONTROL}forward"])
    of = {
        "draft": mine & (pc.field("model") == draft),
        "target": mine & forward & (pc.field("model") == target),
    }
    parts = []
    for role, which in of.items():
        rows = atlas.filter(which)
        names = [name.replace("forward", role) for name in rows["component"].to_pylist()]
        at = rows.schema.get_field_index("component")
        parts.append(rows.set_column(at, LATENCY.field("component"), pa.array(names, pa.string())))
    return pa.concat_tables(parts).select(LATENCY.names).cast(LATENCY)
