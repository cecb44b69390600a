"""Wide passes of a CPU in float32: their matrix products by oneDNN.

Torch leaves those to MKL, which on AMD's processors does half as many a second. Both round as
float32 does, in different orders, so passes that `generate` or a live decoder repeats to the bit
keep torch's own.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

_linear = torch.nn.functional.linear
_NAME = "_linear_pointwise"  # of oneDNN's, as torch's compiler calls it


class _ByOneDnn(TorchFunctionMode):
    """Inside a `with` block `linear` of dense float32 on the CPU is oneDNN's."""

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is _linear and not kwargs and all(map(_is_plain, args)):
            x, weight, *bias = args
            return getattr(torch.ops.mkldnn, _NAME)(x, weight, *(bias or [None]), "none", [], "")
        return func(*args, **kwargs or {})


def _is_plain(x: Tensor | None) -> bool:
    return x is None or (
        type(x) in (Tensor, torch.nn.Parameter)
        and x.layout is torch.strided
        and x.dtype is torch.float32
        and x.device.type == "cpu"
    )


def wide() -> AbstractContextManager[object]:
    """A block whose passes are over many tokens."""
    can = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, _NAME)
    return _ByOneDnn() if can else nullcontext()
