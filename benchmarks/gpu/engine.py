"""Models with random weights, one store of keys and values, and passes launched two ways.

`eager` launches the Hugging Face model operation by operation; `cuda_graph` replays the same
operations from one captured graph. Both append to the same buffers in place and attend with the
same kernel, so that they differ in launches only. A pass ends when the argmax of its logits has
reached the host.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import AttentionInterface, AutoModel, AutoModelForCausalLM

from benchmarks.gpu.grid import GRAPH, HEAD, Pass
from benchmarks.gpu.shapes import ModelShape
from traces.record.cache import Buffer

ATTENTION = "lower_right_causal"


def attend(query: Tensor, key: Tensor, value: Tensor, scale: float | None = None) -> Tensor:
    """Causal attention of the last tokens of a text, without repeating grouped keys and values.

    Args:
        query: (batch, heads, tokens, head_dim): the last tokens.
        key: (batch, kv_heads, context + tokens, head_dim).
        value: as `key`.
        scale: of the scores.

    Returns:
        (batch, heads, tokens, head_dim).
    """
    tokens, seen = query.shape[2], key.shape[2]
    if query.is_cuda:  # this kernel aligns its causal mask at the lower right
        flash = torch.ops.aten._scaled_dot_product_flash_attention
        return flash(query, key, value, 0.0, tokens > 1, False, scale=scale)[0]
    mask = torch.ones(tokens, seen, dtype=torch.bool, device=query.device).tril(seen - tokens)
    return F.scaled_dot_product_attention(
        query, key, value, attn_mask=mask, scale=scale, enable_gqa=True
    )


def _attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    **_: object,
) -> tuple[Tensor, None]:
    return attend(query, key, value, scaling).transpose(1, 2).contiguous(), None


AttentionInterface.register(ATTENTION, _attention)


def attention_error(device: torch.device) -> float:
    """Largest ‖out − reference‖ ÷ ‖reference‖ of `attend` against float64, over a few shapes."""
    worst = 0.0
    for heads, kv_heads, tokens, seen in ((8, 8, 1, 77), (8, 2, 1, 300), (8, 2, 5, 133)):
        q = torch.randn(2, heads, tokens, 64, device=device, dtype=torch.bfloat16)
        k, v = (torch.randn(2, kv_heads, seen, 64, device=device).bfloat16() for _ in range(2))
        out = attend(q, k, v).cpu().double()
        exact = attend(q.cpu().double(), k.cpu().double(), v.cpu().double())
        worst = max(worst, float((out - exact).norm() / exact.norm()))
    return worst


class PacerHead(nn.Module):
    """A head like PACER's: one decoder layer of the draft's width over the draft's final states.

    It attends to the whole context through a cache of its own, adds an embedding of the depth in
    the draft, and gives the mean predicted acceptance of the block.
    """

    def __init__(self, shape: ModelShape):
        super().__init__()
        config = shape.config(layers=1)
        config.vocab_size = 8  # its embedding is not used
        self.layer = AutoModel.from_config(
            config, attn_implementation=ATTENTION, dtype=torch.bfloat16
        )
        self.depth = nn.Embedding(64, shape.hidden, dtype=torch.bfloat16)
        self.out = nn.Linear(shape.hidden, 1, dtype=torch.bfloat16)

    def forward(self, hidden: Tensor, depth: Tensor, cache: Buffer) -> Tensor:
        """Mean acceptance (batch,) of blocks (batch, tokens, hidden) at depths (tokens,)."""
        states = self.layer(
            inputs_embeds=hidden + self.depth(depth), past_key_values=cache, use_cache=True
        ).last_hidden_state
        return self.out(states).sigmoid().mean((1, 2))


class Engine:
    """One model on a device, ready to prepare passes.

    Args:
        shape: the architecture; weights are random bfloat16.
        device: where it lives.
        passes: what will be prepared; sizes the store of keys and values.
        seed: of weights, states and tokens.
    """

    def __init__(self, shape: ModelShape, device: torch.device, passes: Sequence[Pass], seed: int):
        self.shape, self.device = shape, device
        torch.manual_seed(seed)
        self.model = self._build(
            lambda: AutoModelForCausalLM.from_config(
                shape.config(), attn_implementation=ATTENTION, dtype=torch.bfloat16
            )
        )
        self.head = None
        if any(p.component == HEAD for p in passes):
            self.head = self._build(lambda: PacerHead(shape))
        width = shape.kv_heads * shape.head_dim * max(p.cached_tokens for p in passes)
        self.store = torch.empty(2, shape.layers, width, device=device, dtype=torch.bfloat16)
        self.store.normal_()
        if device.type == "cuda":
            self.pool, self.side = torch.cuda.graph_pool_handle(), torch.cuda.Stream(device)

    def _build(self, make: Callable[[], nn.Module]) -> nn.Module:
        with torch.device(self.device):
            return make().eval()

    def prepare(self, one: Pass) -> Callable[[], Tensor]:
        """The pass as a function that runs it to the end and returns its result on the host."""
        run = self._head_run(one) if one.component == HEAD else self._model_run(one)
        if one.engine == GRAPH:
            run = self._captured(run)
        return lambda: run().cpu()

    def _model_run(self, one: Pass) -> Callable[[], Tensor]:
        cache = self._cache(one, self.shape.layers)
        size = (one.batch_size, one.tokens_in)
        ids = torch.randint(0, self.shape.vocab_size, size, device=self.device)
        keep = 0 if one.context_len else 1  # a prefill needs its last logits only

        def run() -> Tensor:
            cache.cut(one.context_len)
            out = self.model(
                input_ids=ids, past_key_values=cache, use_cache=True, logits_to_keep=keep
            )
            return out.logits.argmax(-1)

        return run

    def _head_run(self, one: Pass) -> Callable[[], Tensor]:
        head, cache = self.head, self._cache(one, 1)
        assert head is not None
        size = (one.batch_size, one.tokens_in, self.shape.hidden)
        hidden = torch.randn(size, device=self.device, dtype=torch.bfloat16)
        depth = torch.arange(one.tokens_in, device=self.device)

        def run() -> Tensor:
            cache.cut(one.context_len)
            return head(hidden, depth, cache)

        return run

    def _cache(self, one: Pass, layers: int) -> Buffer:
        """A cache in the shared store that already holds the context's (random) states."""
        capacity = one.context_len + one.tokens_in
        size = (one.batch_size, self.shape.kv_heads, capacity, self.shape.head_dim)
        used = one.batch_size * self.shape.kv_heads * capacity * self.shape.head_dim
        cache = Buffer(layers, capacity)
        filled: list[Any] = list(cache.layers)
        for layer, kv in zip(filled, self.store.unbind(1), strict=False):
            layer.keys, layer.values = (part[:used].view(size) for part in kv)
            layer.dtype, layer.device, layer.is_initialized = kv.dtype, kv.device, True
        return cache

    def _captured(self, run: Callable[[], Tensor]) -> Callable[[], Tensor]:
        """Capture `run` into a CUDA graph, after a warm-up on another stream, as capture needs."""
        main = torch.cuda.current_stream()
        self.side.wait_stream(main)
        with torch.cuda.stream(self.side):
            run()
        main.wait_stream(self.side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self.pool):
            out = run()

        return _Captured(graph, out, run)


class _Captured(NamedTuple):
    """A graph and what it reads and writes: the inputs live as long as `run` does."""

    graph: torch.cuda.CUDAGraph
    out: Tensor
    run: Callable[[], Tensor]

    def __call__(self) -> Tensor:
        self.graph.replay()
        return self.out
