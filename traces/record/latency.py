"""Seconds of the forward passes of a draft/target pair, measured with real key-value caches.

What lies inside one sample, as a decoder pays it: the token ids' way to the device, the forward
pass over `tokens_in` tokens while the cache (a `DynamicCache`) holds `context_len` tokens, the
logits of the positions that are read (all of a verification, the last one of a draft pass or a
prefill), their argmax, and its copy to the host, which waits for the device. Outside: cutting the
cache back, draws, policies. A pass with `context_len` 0 is a prefill.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import torch
from transformers import DynamicCache, PreTrainedModel

from traces import schema
from traces.errors import RecordError
from traces.record.header import device_name

CONTROL = "control:"  # prefix of the component that is measured a second time
WARM_UPS = 2
TOKENS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 13, 17, 21, 25, 33, 41)
CONTEXTS = (32, 128, 256, 512)


@dataclass(frozen=True)
class Shape:
    """What is timed: one component's pass over `tokens_in` tokens behind `context_len` others."""

    component: str
    tokens_in: int
    context_len: int

    @property
    def model(self) -> str:
        """The component whose model runs."""
        return self.component.removeprefix(CONTROL)


def plan(
    max_draft: int, contexts: Sequence[int] = CONTEXTS, tokens: Sequence[int] = TOKENS
) -> list[Shape]:
    """All passes that a decoder with drafts of up to `max_draft` tokens makes, and the control.

    Draft passes of one token and verifications of up to max_draft + 1 tokens at every context
    length, and each model's prefill of every context length. The last shape is one of the
    verifications under another name: two medians of the same thing show the drift of a run.

    Raises:
        RecordError: a number is out of range, or nothing is left to measure.
    """
    if max_draft < 0:
        raise RecordError(f"max_draft must be >= 0, not {max_draft}")
    for name, values in (("context", contexts), ("tokens", tokens)):
        if not values or min(values) < 1:
            raise RecordError(f"{name}: needs one or more whole numbers >= 1, not {list(values)}")
    sizes = sorted({n for n in tokens if n <= max_draft + 1} | {1, max_draft + 1})
    contexts = sorted(set(contexts))
    shapes = [Shape("draft", 1, c) for c in contexts]
    shapes += [Shape("target", n, c) for c in contexts for n in sizes]
    shapes += [Shape(m, c, 0) for m in ("draft", "target") for c in contexts]
    middle = Shape("target", sizes[len(sizes) // 2], contexts[len(contexts) // 2])
    return [*shapes, replace(middle, component=CONTROL + middle.component)]


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


class Bench:
    """A model with random tokens and a filled cache for each context length.

    Args:
        model: a Hugging Face causal LM in eval mode.
        shapes: the passes that will be asked for.
        batch_size: sequences in each pass.
        seed: of the random tokens; their values do not matter to the time.

    Raises:
        RecordError: a pass is longer than the model's positions.
    """

    def __init__(self, model: PreTrainedModel, shapes: Sequence[Shape], batch_size: int, seed: int):
        self.model, config = model, model.config
        self.device = model.device
        longest = max(s.context_len + s.tokens_in for s in shapes)
        limit = getattr(config, "max_position_embeddings", longest)
        if longest > limit:
            raise RecordError(f"a pass needs {longest} positions, {config.model_type} has {limit}")
        self.ids = np.random.default_rng(seed).integers(0, config.vocab_size, (batch_size, longest))
        self.caches: dict[int, DynamicCache] = {}
        for context in {s.context_len for s in shapes}:
            self.caches[context] = DynamicCache()
            if context:
                self._run(self.ids[:, :context].tolist(), context, keep=1)

    def sample(self, shape: Shape) -> float:
        """Seconds of one pass; the cache is cut back to the context after it."""
        context = shape.context_len
        ids = self.ids[:, context : context + shape.tokens_in].tolist()
        keep = 0 if shape.model == "target" and context else 1
        seconds = timed(lambda: self._run(ids, context, keep), self.device)
        if context:
            self.caches[context].crop(-shape.tokens_in)  # negative: so many tokens less
        else:
            self.caches[context] = DynamicCache()
        return seconds

    def _run(self, ids: list[list[int]], context: int, keep: int) -> list[list[int]]:
        with torch.inference_mode():
            out = self.model(
                input_ids=torch.tensor(ids, device=self.device),
                past_key_values=self.caches[context],
                use_cache=True,
                logits_to_keep=keep,
            )
            return out.logits.argmax(-1).tolist()


def measure(
    models: dict[str, PreTrainedModel],
    shapes: Sequence[Shape],
    *,
    batch_size: int = 1,
    repeats: int = 20,
    seed: int = 0,
    on_round: Callable[[pa.Table], None] = lambda so_far: None,
) -> pa.Table:
    """Time every shape `repeats` times: all are warmed first, then rounds in shuffled order.

    Args:
        models: the causal LM of each component ("draft", "target").
        shapes: what to time.
        batch_size: sequences in each pass.
        repeats: rounds; each times every shape once, in an order of its own.
        seed: of the tokens and the orders.
        on_round: called behind each round with all samples so far.

    Returns:
        One row a sample, `traces.schema.LATENCY`.

    Raises:
        RecordError: a number is out of range, or a pass is longer than a model's positions.
    """
    for name, value in (("batch_size", batch_size), ("repeats", repeats)):
        if value < 1:
            raise RecordError(f"{name} must be >= 1, not {value}")
    benches = {
        name: Bench(model, [s for s in shapes if s.model == name], batch_size, seed)
        for name, model in models.items()
    }
    for shape in shapes:
        for _ in range(WARM_UPS):
            benches[shape.model].sample(shape)
    rng = np.random.default_rng(seed)
    samples: list[tuple[Shape, int, float]] = []
    with no_collection():
        for repeat in range(repeats):
            for i in rng.permutation(len(shapes)):
                samples.append((shapes[i], repeat, benches[shapes[i].model].sample(shapes[i])))
            on_round(_table(samples, models, batch_size))
    return _table(samples, models, batch_size)


def control(table: pa.Table) -> tuple[Shape, float, float] | None:
    """The shape that was measured twice, and its two medians in seconds (the second: control)."""
    components = table["component"].to_pylist()
    names = {c for c in components if c.startswith(CONTROL)}
    if not names:
        return None
    mask = pa.array([c in names for c in components])
    again = table.filter(mask)
    first = again.slice(0, 1).to_pylist()[0]
    shape = Shape(first["component"], first["tokens_in"], first["context_len"])
    same = [
        row["seconds"]
        for row in table.to_pylist()
        if (row["component"], row["tokens_in"], row["context_len"])
        == (shape.model, shape.tokens_in, shape.context_len)
    ]
    return replace(shape, component=shape.model), _median(same), _median(again["seconds"])


def _table(
    samples: list[tuple[Shape, int, float]], models: dict[str, PreTrainedModel], batch_size: int
) -> pa.Table:
    dtypes = {name: str(m.dtype).removeprefix("torch.") for name, m in models.items()}
    devices = {name: device_name(m) for name, m in models.items()}
    rows = [
        {
            "component": shape.component,
            "tokens_in": shape.tokens_in,
            "context_len": shape.context_len,
            "batch_size": batch_size,
            "seconds": seconds,
            "dtype": dtypes[shape.model],
            "device": devices[shape.model],
            "engine": "eager",
            "repeat": repeat,
        }
        for shape, repeat, seconds in samples
    ]
    return pa.Table.from_pylist(rows, schema=schema.LATENCY)


def _median(values: Sequence[float] | pa.ChunkedArray) -> float:
    return float(np.median(np.asarray(values)))


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
