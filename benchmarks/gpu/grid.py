"""Which passes of a model the latency atlas times, and the least time that each can take."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.gpu.shapes import ModelShape, head_bytes, pass_bytes, pass_flops

EAGER, GRAPH = "eager", "cuda_graph"
FORWARD, HEAD, CONTROL = "forward", "head:pacer", "control:forward"


@dataclass(frozen=True)
class Pass:
    """One shape of a pass: what runs, over how many tokens, behind how many, for how many."""

    component: str
    tokens_in: int
    context_len: int
    batch_size: int
    engine: str

    @property
    def cached_tokens(self) -> int:
        """Tokens in the cache after the pass, over the batch."""
        return (self.context_len + self.tokens_in) * self.batch_size


@dataclass(frozen=True)
class Rates:
    """Measured ceilings of a device.

    Attributes:
        copy_bytes_per_s: a large device-to-device copy, bytes read plus bytes written.
        matmul_flops_per_s: a large bfloat16 matrix product on random data.
    """

    copy_bytes_per_s: float
    matmul_flops_per_s: float


@dataclass(frozen=True)
class Grid:
    """The passes of one model, as (contexts, tokens) for each batch size, and the head's blocks."""

    batches: dict[int, tuple[tuple[int, ...], tuple[int, ...]]]
    eager: dict[int, tuple[tuple[int, ...], tuple[int, ...]]]
    prefills: tuple[int, ...]
    blocks: tuple[int, ...]
    head_contexts: tuple[int, ...]


FULL = Grid(
    batches={
        1: ((128, 512, 2048, 8192), (1, 2, 3, 5, 9, 17, 25, 41)),
        4: ((128, 512, 2048, 8192), (1, 3, 5, 9, 17)),
        16: ((128, 512, 2048, 8192), (1, 3, 5, 9)),
        64: ((128, 512, 2048, 8192), (1, 3, 5, 9)),
    },
    eager={1: ((128, 2048, 8192), (1, 2, 5, 9, 17, 41)), 16: ((2048,), (1, 5, 9))},
    prefills=(128, 512, 2048),
    blocks=(1, 4, 8),
    head_contexts=(128, 2048, 8192),
)
SMALL = Grid(
    batches={1: ((8, 16), (1, 3)), 2: ((16,), (1,))},
    eager={1: ((8, 16), (1, 3)), 2: ((16,), (1,))},
    prefills=(8,),
    blocks=(1, 4),
    head_contexts=(8,),
)


def passes(grid: Grid, engines: tuple[str, ...], with_head: bool) -> list[Pass]:
    """All passes to time; the last one repeats another as a drift control."""
    found = []
    for engine in engines:
        cells = grid.eager if engine == EAGER else grid.batches
        for batch, (contexts, tokens) in cells.items():
            found += [Pass(FORWARD, n, c, batch, engine) for c in contexts for n in tokens]
        found += [Pass(FORWARD, n, 0, 1, engine) for n in grid.prefills]
        if with_head:
            found += [Pass(HEAD, b, c, 1, engine) for c in grid.head_contexts for b in grid.blocks]
    return [*found, control_of(found)]


def control_of(found: list[Pass]) -> Pass:
    """One verification of the last engine under another name, so that it is measured twice."""
    candidates = [
        p
        for p in found
        if p.component == FORWARD and p.context_len and p.batch_size == 1 and p.tokens_in > 1
    ]
    last = [p for p in candidates if p.engine == candidates[-1].engine]
    middle = last[len(last) // 2]
    return Pass(CONTROL, middle.tokens_in, middle.context_len, 1, middle.engine)


def floor_s(shape: ModelShape, one: Pass, rates: Rates) -> tuple[float, str]:
    """Seconds below which no version of the pass can stay, and which limit it is.

    The larger of (weights + keys and values read) ÷ copy bandwidth and operations ÷ matrix rate.
    """
    size = (one.tokens_in, one.context_len, one.batch_size)
    if one.component == HEAD:
        flops = 2.0 * one.tokens_in * shape.layer_parameters
        moved = head_bytes(shape, one.tokens_in, one.context_len)
    else:
        flops, moved = pass_flops(shape, *size), pass_bytes(shape, *size)
    by_bytes, by_flops = moved / rates.copy_bytes_per_s, flops / rates.matmul_flops_per_s
    return (by_bytes, "bytes") if by_bytes >= by_flops else (by_flops, "operations")


def expected_s(shape: ModelShape, one: Pass, rates: Rates) -> float:
    """A guess of the pass's seconds, to divide a time budget: many small kernels bound it."""
    layers = 1 if one.component == HEAD else shape.layers
    launches = layers * (6e-4 if one.engine == EAGER else 1.2e-4)
    return max(launches, 1.3 * floor_s(shape, one, rates)[0]) + 1e-4


def fits(shape: ModelShape, one: Pass, room_bytes: float) -> bool:
    """Whether the pass's keys, values and logits fit beside the weights."""
    logits = 3 * 2 * one.tokens_in * one.batch_size * shape.vocab_size if one.context_len else 0
    return one.cached_tokens * shape.kv_bytes_per_token + logits <= room_bytes
