"""Seconds of the forward passes of models and drafters, measured with real key-value caches.

What lies inside one sample, as a decoder pays it: the token ids' way to the device, the forward
pass over `tokens_in` tokens while the cache (a `DynamicCache`) holds `context_len` tokens, the
logits of the positions that are read (all of a verification, the last one of a draft pass or a
prefill), their argmax, and its copy to the host, which waits for the device. Outside: cutting the
cache back, draws, policies. A pass with `context_len` 0 is a prefill. What the passes of drafters
that are networks of other kinds hold is said in `traces.record.drafters.timing`.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from transformers import DynamicCache, PreTrainedModel
from transformers.cache_utils import Cache

from traces import schema
from traces.conditions import CONTROL, Watch, conditions, twice
from traces.errors import RecordError
from traces.messages import how_many
from traces.record.forward import embedding
from traces.record.header import model_info, name_of
from traces.record.proof import context_len

WARM_UPS = 2
TOKENS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 13, 17, 21, 25, 33, 41)
CONTEXTS = (32, 128, 256, 512)


@dataclass(frozen=True)
class PassShape:
    """What is timed: one component's pass over `tokens_in` tokens behind `context_len` others.

    Attributes:
        component: "draft" or "target"; `CONTROL` before it for the second measurement.
        tokens_in: of each sequence.
        context_len: tokens of each sequence in the cache; 0 for a prefill.
        batch_size: sequences.
    """

    component: str
    tokens_in: int
    context_len: int
    batch_size: int = 1

    @property
    def model(self) -> str:
        """The component whose model runs."""
        return self.component.removeprefix(CONTROL)


def plan(
    max_draft: int,
    contexts: Sequence[int] = CONTEXTS,
    tokens: Sequence[int] = TOKENS,
    batch_sizes: Sequence[int] = (1,),
    widest: Mapping[str, int] | None = None,
) -> list[PassShape]:
    """All passes that a decoder with drafts of up to `max_draft` tokens makes, and the control.

    Draft passes of one token and verifications of up to max_draft + 1 tokens at every context
    length, and each model's prefill of every context length, all for every number of sequences in a
    pass. The last shape is one of these passes under another name, of the last component: two
    medians of the same thing show the drift of a run.

    Args:
        max_draft: Γ.
        contexts: tokens in the cache.
        tokens: in a pass, as far as passes are so wide; one, and the most, are always there.
        batch_sizes: sequences in a pass.
        widest: tokens in a component's widest pass behind a context, for each component that is to
            be timed; None means one of the draft and max_draft + 1 of the target.

    Raises:
        RecordError: a number is out of range, or nothing is left to measure.
    """
    if max_draft < 0:
        raise RecordError(f"max_draft must be >= 0, not {max_draft}")
    given = {"context": contexts, "tokens": tokens, "batch_size": batch_sizes}
    for name, values in given.items():
        if not values or min(values) < 1:
            raise RecordError(f"{name}: needs one or more whole numbers >= 1, not {list(values)}")
    widest = widest or {"draft": 1, "target": max_draft + 1}
    sizes = {
        model: sorted({n for n in tokens if n <= most} | {1, most})
        for model, most in widest.items()
    }
    contexts, batch_sizes = sorted(set(contexts)), sorted(set(batch_sizes))
    shapes = []
    for b in batch_sizes:
        shapes += [PassShape(m, n, c, b) for m in sizes for c in contexts for n in sizes[m]]
        shapes += [PassShape(m, c, 0, b) for m in sizes for c in contexts]
    last = list(sizes)[-1]
    middle = (values[len(values) // 2] for values in (sizes[last], contexts, batch_sizes))
    return [*shapes, PassShape(f"{CONTROL}{last}", *middle)]


def timed(run: Callable[[], object], device: torch.device) -> float:
    """Seconds that `run` takes from an idle device on; CUDA events there, else the host's clock."""
    if device.type != "cuda":
        started = time.perf_counter()
        run()
        return time.perf_counter() - started
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize(device)
    start.record()
    run()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / 1e3


class PassBench:
    """A model with random tokens and a filled cache for each batch size and context length.

    Args:
        model: a Hugging Face causal LM in eval mode.
        shapes: the passes that will be asked for.
        seed: of the random tokens; their values do not matter to the time.

    Raises:
        RecordError: a pass is longer than the model's positions.
    """

    def __init__(self, model: PreTrainedModel, shapes: Sequence[PassShape], seed: int) -> None:
        self.model, rows = model, embedding(model)
        self._prepare(model.config, rows.weight.device, rows.num_embeddings, shapes, seed)

    def _prepare(
        self, config: Any, device: torch.device, n_ids: int, shapes: Sequence[PassShape], seed: int
    ) -> None:
        """Draw the tokens and fill the caches."""
        self.device = device
        longest = max(s.context_len + s.tokens_in for s in shapes)
        limit = context_len(config)
        if longest > limit:
            raise RecordError(
                f"a pass needs {how_many(longest, 'position')}, {config.model_type} has {limit}"
            )
        self.size = max(s.batch_size for s in shapes), longest
        self.ids = np.random.default_rng(seed).integers(0, n_ids, self.size)
        self.caches: dict[tuple[int, int], Any] = {}
        for place in sorted({(s.batch_size, s.context_len) for s in shapes}):
            batch_size, context = place
            self.caches[place] = self._new_cache()
            if context:
                self._run(self.ids[:batch_size, :context].tolist(), self.caches[place], keep=1)

    @property
    def dtype(self) -> torch.dtype:
        """Of the passes."""
        return self.model.dtype

    def sample(self, shape: PassShape) -> float:
        """Seconds of one pass; the cache is cut back to the context after it."""
        place = shape.batch_size, shape.context_len
        context, cache = shape.context_len, self.caches[place]
        ids = self.ids[: shape.batch_size, context : context + shape.tokens_in].tolist()
        keep = self._kept(shape)
        seconds = timed(lambda: self._run(ids, cache, keep), self.device)
        if context:
            self._cut(cache, shape)
        else:
            self.caches[place] = self._new_cache()
        return seconds

    def _kept(self, shape: PassShape) -> int:
        """Last rows of a pass whose logits are read; 0 means all."""
        return 0 if shape.model == "target" and shape.context_len else 1

    def _new_cache(self) -> Cache:
        return DynamicCache()

    def _cut(self, cache: Any, shape: PassShape) -> None:
        cache.crop(-shape.tokens_in)  # negative: so many tokens less

    def _run(self, ids: list[list[int]], cache: Any, keep: int) -> list[list[int]]:
        with torch.inference_mode():
            out = self.model(
                input_ids=torch.tensor(ids, device=self.device),
                past_key_values=cache,
                use_cache=True,
                logits_to_keep=keep,
            )
            return out.logits.argmax(-1).tolist()


def measure(
    models: Mapping[str, Any],
    shapes: Sequence[PassShape],
    *,
    repeats: int = 20,
    seed: int = 0,
    on_round: Callable[[pa.Table], None] = lambda so_far: None,
    on_warm: Callable[[float], None] = lambda seconds: None,
) -> pa.Table:
    """Time every shape `repeats` times: all are warmed first, then rounds in shuffled order.

    Args:
        models: of each component ("draft", "target"): a causal LM, or a drafter that has a `bench`
            for shapes and a seed.
        shapes: what to time.
        repeats: rounds; each times every shape once, in an order of its own.
        seed: of the tokens and the orders.
        on_round: called behind each round with all samples so far.
        on_warm: called before the first round with the seconds that all of them should take.

    Returns:
        One row a sample, `traces.schema.LATENCY`; its metadata has the conditions
        (`traces.conditions`), the models' names and hashes among them.

    Raises:
        RecordError: `repeats` is out of range, or a pass is longer than a model's positions.
    """
    if repeats < 1:
        raise RecordError(f"repeats must be >= 1, not {repeats}")
    benches = {
        name: _bench(model, [s for s in shapes if s.model == name], seed)
        for name, model in models.items()
    }
    round_s = 0.0
    for shape in shapes:
        warm_up_s = [benches[shape.model].sample(shape) for _ in range(WARM_UPS)]
        round_s += warm_up_s[-1]
    on_warm(round_s * repeats)
    rng = np.random.default_rng(seed)
    samples: list[tuple[PassShape, int, float]] = []
    watch = Watch()
    with no_collection():
        for repeat in range(repeats):
            for i in rng.permutation(len(shapes)):
                samples.append((shapes[i], repeat, benches[shapes[i].model].sample(shapes[i])))
            watch.look()
            on_round(_watched(_table(samples, benches), watch))
    return _named(_watched(_table(samples, benches), watch), models)


def _bench(model: Any, shapes: Sequence[PassShape], seed: int) -> PassBench:
    own = getattr(model, "bench", None)
    return own(shapes, seed) if own else PassBench(model, shapes, seed)


def _watched(table: pa.Table, watch: Watch) -> pa.Table:
    """The samples with the conditions under which they were taken."""
    found = watch.conditions()
    if pair := control(table):
        shape, first_s, again_s = pair
        tokens = how_many(shape.tokens_in, "token")
        what = f"{shape.component} over {tokens} behind {shape.context_len}"
        found = watch.conditions(what, abs(again_s / first_s - 1))
    return found.kept_in(table)


def _named(table: pa.Table, models: Mapping[str, Any]) -> pa.Table:
    """The samples with the models that ran; drafters that are no causal LM have no name."""
    infos = {k: model_info(m) for k, m in models.items() if isinstance(m, PreTrainedModel)}
    known = conditions(table).of_models(infos.get("target"), infos.get("draft"))
    return known.kept_in(table)


def control(table: pa.Table) -> tuple[PassShape, float, float] | None:
    """The shape that was measured twice, and its two medians in seconds (the second: control)."""
    found = twice(table)
    if found is None:
        return None
    row, first_s, again_s = found
    names = ("component", "tokens_in", "context_len", "batch_size")
    return PassShape(*(row[name] for name in names)), first_s, again_s


def _table(samples: list[tuple[PassShape, int, float]], benches: dict[str, PassBench]) -> pa.Table:
    dtypes = {name: str(bench.dtype).removeprefix("torch.") for name, bench in benches.items()}
    devices = {name: name_of(bench.device) for name, bench in benches.items()}
    rows = [
        {
            "component": shape.component,
            "tokens_in": shape.tokens_in,
            "context_len": shape.context_len,
            "batch_size": shape.batch_size,
            "seconds": seconds,
            "dtype": dtypes[shape.model],
            "device": devices[shape.model],
            "engine": "eager",
            "repeat": repeat,
        }
        for shape, repeat, seconds in samples
    ]
    return pa.Table.from_pylist(rows, schema=schema.LATENCY)


@contextmanager
def no_collection() -> Iterator[None]:
    """Keep Python's garbage collector out of the samples."""
    was_on = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
