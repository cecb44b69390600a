"""Copies of the model whose linear layers have few bits a weight: how they are rounded and kept.

The weights of a row are cut into groups of neighbours. A group has a least value and a step, both
float16, and each weight is one of 2^bits values from there on. With GPTQ (arXiv 2210.17323) columns
are rounded one after another, and what a column is off by is made up for in those that follow, as
far as the layer's inputs on some texts tell.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

DAMPING = 0.01  # of the mean of the Hessian's diagonal, as GPTQ's code has it
_SHRUNK = tuple(1 - k / 20 for k in range(10))  # shares of a group's span that are tried


class Rung(NamedTuple):
    """How a copy is rounded.

    Attributes:
        name: of the draft.
        bits: of a weight, by layer in turns: (3, 2) gives every other layer 2.
        group: weights that share a least value and a step.
    """

    name: str
    bits: tuple[int, ...]
    group: int


class Rounded(NamedTuple):
    """A matrix (R, C) of few bits a weight.

    Attributes:
        codes: uint8 (R, C), below 2^bits.
        step: float16 (R, C / group).
        least: float16 (R, C / group).
        bits: of a code.
    """

    codes: Tensor
    step: Tensor
    least: Tensor
    bits: int

    def matrix(self) -> Tensor:
        """What the codes stand for, float16 (R, C)."""
        group = self.codes.shape[1] // self.step.shape[1]
        step, least = (x.float().repeat_interleave(group, 1) for x in (self.step, self.least))
        return (least + self.codes * step).half()

    def packed(self) -> dict[str, Tensor]:
        """The arrays that are stored: codes end to end, bits of each from the least on."""
        bits = np.unpackbits(self.codes.numpy().reshape(-1, 1), axis=1, bitorder="little")
        codes = np.packbits(bits[:, : self.bits].reshape(-1), bitorder="little")
        shape = torch.tensor([*self.codes.shape, self.bits])
        arrays = {"codes": torch.from_numpy(codes), "shape": shape}
        return arrays | {"step": self.step.contiguous(), "least": self.least.contiguous()}

    @classmethod
    def unpacked(cls, arrays: dict[str, Tensor]) -> Rounded:
        """The inverse of `packed`."""
        rows, columns, n = arrays["shape"].tolist()
        bits = np.unpackbits(arrays["codes"].numpy(), count=rows * columns * n, bitorder="little")
        whole = np.packbits(bits.reshape(-1, n), axis=1, bitorder="little")
        codes = torch.from_numpy(whole.reshape(rows, columns))
        return cls(codes, arrays["step"], arrays["least"], n)


def rounded(weight: Tensor, hessian: Tensor, bits: int, group: int) -> Rounded:
    """GPTQ of a matrix.

    Args:
        weight: (R, C), C a multiple of `group`.
        hessian: sum of x xᵀ over inputs x, (C, C).
        bits: of a weight, 1 to 8.
        group: weights that share a least value and a step.
    """
    left, inverse = weight.double().clone(), _factor(hessian)
    importance = hessian.diagonal().double() + 1e-12
    codes = torch.empty(weight.shape, dtype=torch.uint8)
    steps, leasts = [], []
    for start in range(0, weight.shape[1], group):
        end = start + group
        step, least = _span(left[:, start:end], importance[start:end], bits)
        steps.append(step)
        leasts.append(least)
        errors = torch.empty(len(left), group, dtype=torch.float64)
        for column in range(start, end):
            code = _code(left[:, column], step, least, bits)
            codes[:, column] = code.to(torch.uint8)
            off = left[:, column] - (least.double() + code * step.double())
            errors[:, column - start] = off / inverse[column, column]
            left[:, column:end] -= torch.outer(
                errors[:, column - start], inverse[column, column:end]
            )
        left[:, end:] -= errors @ inverse[start:end, end:]
    return Rounded(codes, torch.stack(steps, 1), torch.stack(leasts, 1), bits)


def nearest(weight: Tensor, bits: int, group: int) -> Rounded:
    """Each weight rounded by itself: GPTQ of inputs that are independent of each other."""
    return rounded(weight, torch.eye(weight.shape[1]), bits, group)


def _factor(hessian: Tensor) -> Tensor:
    """Upper Cholesky factor of the damped Hessian's inverse, float64."""
    whole = hessian.double().clone()
    whole.diagonal().add_(DAMPING * whole.diagonal().mean() + 1e-9)
    inverse = torch.cholesky_inverse(torch.linalg.cholesky(whole))
    return torch.linalg.cholesky(inverse, upper=True)


def _code(values: Tensor, step: Tensor, least: Tensor, bits: int) -> Tensor:
    return ((values - least.double()) / step.double()).round().clamp(0, 2**bits - 1)


def _span(values: Tensor, importance: Tensor, bits: int) -> tuple[Tensor, Tensor]:
    """Step and least value of a group by row (R,), float16: of the spans tried, the best."""
    low, high = values.amin(1), values.amax(1)
    best = torch.full_like(low, torch.inf)
    step, least = low.half(), low.half()
    for share in _SHRUNK:
        cut = (1 - share) / 2 * (high - low)
        a = (low + cut).half()
        s = ((high - low - 2 * cut) / (2**bits - 1)).clamp_min(1e-6).half()
        back = (
            a.double()[:, None] + _code(values, s[:, None], a[:, None], bits) * s.double()[:, None]
        )
        error = ((back - values) ** 2 * importance).sum(1)
        better = error < best
        best = torch.where(better, error, best)
        step, least = torch.where(better, s, step), torch.where(better, a, least)
    return step, least


@torch.inference_mode()
def quantise(
    model: Any, texts: Tensor, rung: Rung, say: Callable[[str], None] = lambda line: None
) -> dict[str, Rounded]:
    """Round a model's linear layers in place, layer by layer, each for what the rounded ones give.

    Embeddings, the output matrix and norms stay.

    Args:
        model: of the Llama architecture, float32.
        texts: token ids (N, L) on which inputs are looked at.
        rung: how.
        say: told after each layer.

    Returns:
        The rounded matrices by name.
    """
    found = {}
    for number, (name, layer, inputs) in enumerate(_layers(model, texts)):
        bits = rung.bits[number % len(rung.bits)]
        for linears in _together(layer):
            hessians = _hessians(layer, linears, inputs)
            for own, linear in linears.items():
                made = rounded(linear.weight, hessians[own], bits, rung.group)
                linear.weight.copy_(made.matrix().to(linear.weight.dtype))
                found[f"{name}.{own}"] = made
        say(f"{rung.name}: {name}")
    return found


class Inputs(NamedTuple):
    """What a layer is given, text by text: its states (L, H), and what else goes with them."""

    states: list[Tensor]
    more: dict[str, Any]

    def through(self, layer: nn.Module) -> Iterator[Tensor]:
        """The layer's states behind each text."""
        for one in self.states:
            out = layer(one, **self.more)
            yield out[0] if isinstance(out, tuple) else out


def _layers(model: Any, texts: Tensor) -> Iterator[tuple[str, nn.Module, Inputs]]:
    """Each layer and its inputs, which are made with the layers before it as they are then."""
    held: list[Tensor] = []
    more: dict[str, Any] = {}

    def keep(layer: nn.Module, given: tuple[Tensor, ...], named: dict[str, Any]) -> None:
        held.append(given[0] if given else named["hidden_states"])
        kept = {k: v for k, v in named.items() if k not in ("hidden_states", "past_key_values")}
        more.update(kept)
        raise _Enough

    layers = model.model.layers
    handle = layers[0].register_forward_pre_hook(keep, with_kwargs=True)
    for text in texts:
        try:
            model.model(input_ids=text[None], use_cache=False)
        except _Enough:
            pass
    handle.remove()
    inputs = Inputs(held, more)
    for number, layer in enumerate(layers):
        yield f"model.layers.{number}", layer, inputs
        inputs = Inputs(list(inputs.through(layer)), more)


class _Enough(Exception):
    """What the first layer is given is known."""


def _together(layer: nn.Module) -> Iterator[dict[str, nn.Linear]]:
    """A layer's linear maps in the order of their use; those that read the same are together."""
    for names in (("q", "k", "v"), ("o",), ("gate", "up"), ("down",)):
        room = "self_attn" if names[0] in "qo" else "mlp"
        yield {f"{room}.{n}_proj": layer.get_submodule(f"{room}.{n}_proj") for n in names}  # type: ignore[misc]


def _hessians(layer: nn.Module, linears: dict[str, nn.Linear], inputs: Inputs) -> dict[str, Tensor]:
    """Σ x xᵀ of what linear maps read."""
    one = next(iter(linears.values()))
    total = torch.zeros(one.in_features, one.in_features, dtype=torch.float64)

    def add(_: nn.Module, given: tuple[Tensor, ...]) -> None:
        x = given[0].reshape(-1, one.in_features)
        total.add_((x.T @ x).double())

    handle = one.register_forward_pre_hook(add)
    for _ in inputs.through(layer):
        pass
    handle.remove()
    return dict.fromkeys(linears, total)
