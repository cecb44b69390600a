"""Times computed from the sizes of the models and the speed of the device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

import numpy as np

from simkit.costs.base import ByPasses, CostModel, Model, Times
from simkit.costs.constants import Constants, check_batch, check_fields, is_number
from simkit.costs.experts import experts_of, unknown
from simkit.costs.registry import register
from simkit.costs.shapes import BYTES, DEVICES, MODELS, ModelShape
from simkit.costs.timed_models import TimedModels
from simkit.errors import CostError
from traces.conditions import TimedModel
from traces.manifest import ExpertsInfo, Manifest, ModelInfo
from traces.registry import suggest
from traces.trace import Trace

_SIZES = ("n_layers", "hidden_size", "n_heads")


@register
@dataclass(frozen=True)
class Roofline(Constants, CostModel):
    """A pass takes as long as its bytes or its operations, whichever take longer, and a launch.

    T(n, c) = pass_s + layer_s * L + max((W + B * (c + n) * kv) / bandwidth,
                                         B * n * (2 P + A * (c + (n + 1) / 2)) / rate)

    of n tokens behind c others, with W bytes of weights read once, P weights, kv bytes of keys and
    values a token, L layers and A = 4 * L * heads * head_dim. It never falls as n grows. A draft
    pass has n = 1, a verification n = γ + 1, a prefill n = n_prompt and c = 0. A model runs on one
    device; layers that are spread over several devices and run in turn take as long.

    With `experts`, of a trace recorded with `--experts`, W of a target's pass has the experts that
    its tokens read together, each once, and P those that one token reads.

    Attributes:
        device: one of `shapes.DEVICES`; its figures are the vendor's, which no program reaches.
        bandwidth_bytes_per_s: instead of the device's.
        rate_flops_per_s: instead of the device's, for both models.
        target: one of `shapes.MODELS`, in place of the one that was recorded.
        draft: likewise.
        batch_size: B, sequences in a pass.
        pass_s: added to each pass.
        layer_s: added to each pass for each layer of its model: launches.
        experts: a target's pass reads the experts that its tokens are routed to, and no others;
            else all weights.

    The other arguments are those of `Constants`.

    Raises:
        CostError: an argument is out of range, or neither it nor a device gives a figure.

    >>> cost = simkit.costs.Roofline(device="h200", target="qwen3-8b", draft="qwen3-0.6b")
    >>> f"{1000 * cost.times(traces.load('reference')).decode(context=100):.1f} ms"
    '3.2 ms'
    """

    device: str | None = None
    bandwidth_bytes_per_s: float | None = None
    rate_flops_per_s: float | None = None
    target: str | None = None
    draft: str | None = None
    batch_size: int = 1
    pass_s: float = 0.0
    layer_s: float = 0.0
    experts: bool = False

    name = "roofline"
    what = "the larger of bytes / bandwidth and operations / rate, by model sizes and device=…"
    source = "config.json of the models, figures of the device's vendor"

    def __post_init__(self) -> None:
        check_fields(self)
        for key in ("bandwidth_bytes_per_s", "rate_flops_per_s"):
            value = getattr(self, key)
            if value is None and self.device is None:
                raise CostError(f"roofline needs {key} or a device ({', '.join(DEVICES)})")
            if value is not None and not (is_number(value) and value > 0):
                raise CostError(f"roofline: {key} must be a number > 0, not {value!r}")
        if self.experts and (self.target or self.batch_size > 1):
            raise CostError(
                "roofline: the experts of a trace are those of its own target, one sequence a pass:"
                " leave out target and batch_size, or experts"
            )
        for value, known in ((self.device, DEVICES), (self.target, MODELS), (self.draft, MODELS)):
            if value is not None and value not in known:
                raise CostError(f"roofline has no {value!r} ({suggest(str(value), known)})")

    def times(self, trace: Trace) -> Times:
        """See `CostModel`."""
        manifest = trace.manifest
        given = {
            "draft": (self.draft, manifest.draft),
            "target": (self.target, manifest.target),
        }
        passes = {
            model: self._pass(MODELS[name] if name else _recorded(model, info), model)
            for model, (name, info) in given.items()
        }
        if self.experts:
            info = experts_of(trace, self.name)
            if not info.parameters:
                raise CostError("roofline: the trace does not say how large an expert is")
            passes["target"] = replace(passes["target"], experts=info)
        constants = {field.name: getattr(self, field.name) for field in fields(Constants)}
        return _RooflineTimes(passes, self._models(trace.manifest), **constants)

    def _models(self, manifest: Manifest) -> TimedModels | None:
        """Those that are named in place of the recorded ones."""
        if self.target is None and self.draft is None:
            return None
        named = [TimedModel(name) if name else None for name in (self.target, self.draft)]
        recorded = [info and TimedModel.of(info) for info in (manifest.target, manifest.draft)]
        target, draft = (one or other for one, other in zip(named, recorded, strict=True))
        return TimedModels(target, draft, "roofline")

    def _pass(self, shape: ModelShape, model: str) -> _Pass:
        device = DEVICES[self.device] if self.device else None
        rate = self.rate_flops_per_s
        if device and rate is None:
            rate = device.rate_flops_per_s.get(shape.dtype)
        if rate is None:
            raise CostError(
                f"roofline: no rate of {self.device} for {shape.dtype}, which the {model} ran in: "
                "give rate_flops_per_s"
            )
        bandwidth = self.bandwidth_bytes_per_s or (device.bandwidth_bytes_per_s if device else 0.0)
        fixed_s = self.pass_s + self.layer_s * shape.n_layers
        return _Pass(shape, bandwidth, rate, self.batch_size, fixed_s)


@dataclass(frozen=True, eq=False)
class _Pass:
    """Seconds of a model's passes; the formula stands in `Roofline`.

    Of a mixture that is priced by its `experts`, `read` are the pairs of a layer and an expert that
    passes read; None where that is not known.
    """

    shape: ModelShape
    bandwidth_bytes_per_s: float
    rate_flops_per_s: float
    batch_size: int
    fixed_s: float
    experts: ExpertsInfo | None = None
    read: np.ndarray | None = None

    def __call__(self, tokens: np.ndarray, context: np.ndarray) -> np.ndarray:
        shape, rows = self.shape, self.batch_size * np.asarray(tokens, np.float64)
        cached = self.batch_size * np.asarray(context + tokens, np.float64)
        moved = self._weight_bytes() + cached * shape.kv_bytes_per_token
        seen = context + (tokens + 1) / 2
        computed = rows * (self._flops_per_token() + shape.attention_flops * seen)
        busy_s = np.maximum(moved / self.bandwidth_bytes_per_s, computed / self.rate_flops_per_s)
        return self.fixed_s + busy_s

    def _weight_bytes(self) -> np.ndarray | int:
        if (info := self.experts) is None:
            return self.shape.weight_bytes
        if self.read is None:
            raise unknown(Roofline.name)
        left_out = info.layers * info.count - self.read
        return self.shape.weight_bytes - left_out * (info.parameters * BYTES[self.shape.dtype])

    def _flops_per_token(self) -> int:
        if (info := self.experts) is None:
            return self.shape.flops_per_token
        idle = info.layers * (info.count - info.per_token)
        return self.shape.flops_per_token - 2 * idle * info.parameters


@dataclass(frozen=True, eq=False)
class _RooflineTimes(Constants, ByPasses):
    passes: Mapping[str, _Pass]
    models: TimedModels | None = None

    @property
    def batch(self) -> int:
        return self.passes["target"].batch_size

    @property
    def by_experts(self) -> bool:
        return self.passes["target"].experts is not None

    def reading(self, experts: np.ndarray) -> _RooflineTimes:
        target = replace(self.passes["target"], read=experts)
        return replace(self, passes={**self.passes, "target": target})

    def of_batch(self, batch: int) -> _RooflineTimes:
        check_batch("roofline", batch)
        if batch > 1 and self.by_experts:
            raise CostError("roofline: the experts that a batch reads together are not known")
        passes = {model: replace(one, batch_size=batch) for model, one in self.passes.items()}
        return replace(self, passes=passes)

    def prefill(self, model: Model, tokens: np.ndarray) -> np.ndarray:
        return self.passes[model](tokens, np.zeros_like(tokens))


def _recorded(model: str, info: ModelInfo | None) -> ModelShape:
    """The shape of a recorded model.

    A manifest does not say whether embeddings are tied, so all weights count as read.
    """
    if info is None:
        raise CostError(f"roofline: the trace names no {model} model: give {model}=NAME")
    for size in _SIZES:
        if size not in info.shape:
            raise CostError(f"roofline: the trace's manifest has no {model}.shape.{size}")
    if info.dtype not in BYTES:
        raise CostError(f"roofline has no size in bytes for the {model}'s dtype {info.dtype}")
    n_heads = info.shape["n_heads"]
    return ModelShape(
        n_parameters=info.n_parameters,
        n_untied=0,
        n_layers=info.shape["n_layers"],
        n_heads=n_heads,
        n_kv_heads=info.shape.get("n_kv_heads", n_heads),
        head_dim=info.shape.get("head_dim", info.shape["hidden_size"] // n_heads),
        dtype=info.dtype,
    )
