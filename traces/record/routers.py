"""To which experts a model routes each token, as its own routers say while it runs.

transformers names the routers of a class (`_can_record_outputs`). What they chose is taken from
where it is used: a router that gives numbers of experts gives them itself; where it gives weights
alone, either the module beside it is called with those numbers, or all weights but the chosen
ones' are 0.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from traces.errors import RecordError, first_line
from traces.manifest import ExpertsInfo
from traces.record.forward import embedding

_KEY = "router_logits"
_PROBED = 4  # tokens of the pass that shows what the routers give
_INTEGERS = (torch.int64, torch.int32, torch.int16, torch.uint8)


class Choice(NamedTuple):
    """What a router gave in a pass over N tokens.

    Attributes:
        index: (N, k) numbers of experts.
        width: of the router's weights: experts that it chooses from.
        user: the module that was called with the numbers; None where that is not known.
    """

    index: Tensor
    width: int
    user: nn.Module | None


class Routing:
    """Keeps where a model's tokens are routed to in passes that run inside a `with` block.

    Args:
        model: a Hugging Face causal LM in eval mode, of which one pass over a few tokens is run.

    Attributes:
        info: its experts.

    Raises:
        RecordError: it has no experts, or no one can tell which ones its tokens read.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        self._name = type(model).__name__
        self._routers = routers(model)
        if not self._routers:
            raise RecordError(f"--experts: {self._name} has no experts that transformers records")
        self._choices: list[list[Choice]] = []
        self.info = self._probe(model)

    def __enter__(self) -> Routing:
        self._stack = ExitStack()
        self._choices = [[] for _ in self._routers]
        for kept, (router, beside) in zip(self._choices, self._routers, strict=True):
            handles = [router.register_forward_hook(partial(_keep, kept))]
            for module in beside:
                hook = partial(_keep_beside, kept)
                handles.append(module.register_forward_pre_hook(hook, with_kwargs=True))
            for handle in handles:
                self._stack.callback(handle.remove)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def taken(self, shape: tuple[int, int]) -> Tensor:
        """The experts of the tokens of the last pass, (B, n, bytes of a row) uint8 on the CPU.

        Args:
            shape: (B, n), of the pass.

        Raises:
            RecordError: a router did not say where it sent each of them.
        """
        layers, n = [], shape[0] * shape[1]
        for kept in self._choices:
            choice = self._one(kept, n)
            layers.append(_bits(choice.index, self.info.count, self.info.layer_bytes).cpu())
            kept.clear()
        return torch.cat(layers, 1).reshape(*shape, -1)

    def _one(self, kept: list[Choice], n: int) -> Choice:
        found = [choice for choice in kept if len(choice.index) == n]
        if not found:
            raise RecordError(
                f"--experts: which experts a token of {self._name} reads cannot be found: a router"
                " gives no numbers of experts, and no module beside it is called with any"
            )
        return found[0]

    def _probe(self, model: PreTrainedModel) -> ExpertsInfo:
        tokens = torch.arange(1, _PROBED + 1, device=embedding(model).weight.device)
        try:
            with torch.inference_mode(), self:
                model(input_ids=tokens[None], use_cache=False)
        except RecordError:
            raise
        except Exception as error:  # a class of transformers raises what it likes
            raise RecordError(
                f"--experts: {self._name} does not run: {first_line(error)}"
            ) from None
        choices = [self._one(kept, _PROBED) for kept in self._choices]
        counts = [_experts_of(choice) for choice in choices]
        sizes = [_weights(choice, n) for choice, n in zip(choices, counts, strict=True)]
        known = sum(sizes) // len(sizes) if all(sizes) else 0
        per_token = max(choice.index.shape[1] for choice in choices)
        return ExpertsInfo(len(choices), max(counts), min(per_token, max(counts)), known)


def _keep(kept: list[Choice], module: nn.Module, args: Any, output: Any) -> None:
    """A hook on a router."""
    given = _matrices(output)
    weights = [x for x in given if x.is_floating_point()]
    chosen = _numbers(given)
    if chosen is None:
        chosen = next((found for x in weights if (found := _nonzero(x)) is not None), None)
    if chosen is None:  # what is beside it tells
        chosen = torch.empty(0, 1, dtype=torch.int64)
    width = max((x.shape[-1] for x in weights), default=0)
    kept[:] = [Choice(chosen.reshape(-1, chosen.shape[-1]), width, None)]


def _keep_beside(kept: list[Choice], module: nn.Module, args: Any, kwargs: dict[str, Any]) -> None:
    """A hook on a module beside a router, before it runs."""
    chosen = _numbers(_matrices([*args, *kwargs.values()]))
    if chosen is None or not kept:
        return
    index, first = chosen.reshape(-1, chosen.shape[-1]), kept[0]
    if len(first.index) in (0, len(index)) and first.user is None:
        kept[0] = Choice(index, first.width, module)


def routers(model: PreTrainedModel) -> list[tuple[nn.Module, list[nn.Module]]]:
    """The routers of a model in the order of its layers, and the modules beside each."""
    wanted = [spec for part in model.modules() for spec in _specs(part)]
    modules = dict(model.named_modules())
    found = []
    for name, module in modules.items():
        if any(_fits(spec, name, module) for spec in wanted):
            parent = modules[name.rpartition(".")[0]]
            beside = [other for other in parent.children() if other is not module]
            found.append((module, beside))
    return found


def _specs(part: nn.Module) -> list[Any]:
    """What transformers records as a model's routers."""
    if not isinstance(part, PreTrainedModel):
        return []
    given = (getattr(type(part), "_can_record_outputs", None) or {}).get(_KEY, [])
    return given if isinstance(given, list) else [given]


def _fits(spec: Any, name: str, module: nn.Module) -> bool:
    """Whether a module is one that is recorded, as `transformers` tells them."""
    kind = spec if isinstance(spec, type) else getattr(spec, "target_class", None)
    suffix = spec if isinstance(spec, str) else getattr(spec, "class_name", None)
    inside = getattr(spec, "layer_name", None)
    if inside and f".{inside.strip('.')}." not in f".{name}.":
        return False
    return bool((kind and isinstance(module, kind)) or (suffix and name.endswith(suffix)))


def _matrices(given: Any) -> list[Tensor]:
    parts = given if isinstance(given, list | tuple) else [given]
    return [part for part in parts if isinstance(part, Tensor) and part.ndim > 1]


def _numbers(given: list[Tensor]) -> Tensor | None:
    return next((x for x in given if x.dtype in _INTEGERS), None)


def _nonzero(weights: Tensor) -> Tensor | None:
    """(N, k) numbers of those that are not 0, where each row has as many, and not all; or None."""
    rows = weights.reshape(-1, weights.shape[-1])
    counts = (rows != 0).sum(-1)
    k = int(counts.max()) if len(counts) else 0
    if not 0 < k < rows.shape[-1] or bool((counts != k).any()):
        return None
    return rows.abs().topk(k, -1).indices


def _experts_of(choice: Choice) -> int:
    """How many there are: a router may choose from more than have weights."""
    return min([*map(len, _stacked(choice)), choice.width or sys.maxsize])


def _weights(choice: Choice, n: int) -> int:
    """Of one expert."""
    if stacked := _stacked(choice):
        return sum(w.numel() // len(w) for w in stacked)
    return sum(w.numel() for w in choice.user.parameters()) // n if choice.user else 0


def _stacked(choice: Choice) -> list[Tensor]:
    """The weights of all experts of a layer, each a matrix; and their biases."""
    weights = list(choice.user.parameters()) if choice.user else []
    numbers = {len(w) for w in weights if w.ndim == 3}
    return [w for w in weights if w.ndim > 1 and len(w) in numbers]


def _bits(index: Tensor, count: int, n_bytes: int) -> Tensor:
    """Numbers of experts (N, k) as bits (N, bytes); those beyond all experts have no weights."""
    flags = torch.zeros(len(index), max(8 * n_bytes, int(index.max()) + 1), dtype=torch.uint8)
    flags = flags.to(index.device).scatter_(1, index.long(), 1)
    flags[:, count:] = 0
    places = 2 ** torch.arange(8, device=index.device, dtype=torch.uint8)
    return (flags[:, : 8 * n_bytes].unflatten(1, (n_bytes, 8)) * places).sum(-1, dtype=torch.uint8)
