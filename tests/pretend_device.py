"""A device that is not the CPU as far as code can tell.

The values of its tensors lie in the CPU's memory, and its kernels are the CPU's. Like a GPU it
refuses to mix devices in one operation, and numpy cannot read it. `install` makes
`torch.device("pretend")` known to this process, for good.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

NAME = "pretend"
_aten = torch.ops.aten
# What a GPU does across devices: copies, and indices that lie on the host.
_ACROSS = {
    _aten._to_copy.default,
    _aten.copy_.default,
    _aten.index.Tensor,
    _aten.index_put_.default,
    _aten.index_put.default,
    _aten._index_put_impl_.default,
}
_library: list[torch.library.Library] = []


class Pretend(torch.Tensor):
    """A tensor of the device; `host` holds its values."""

    host: torch.Tensor

    @staticmethod
    def __new__(cls, host: torch.Tensor):
        made = torch.Tensor._make_wrapper_subclass(  # pyright: ignore
            cls,
            host.shape,
            strides=host.stride(),
            storage_offset=host.storage_offset(),
            dtype=host.dtype,
            device=torch.device(NAME, 0),
        )
        made.host = host
        return made

    def __repr__(self, **_: Any) -> str:
        return f"Pretend({self.host!r})"

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func is torch.nn.functional.scaled_dot_product_attention:
            return _run(func, args, kwargs or {})
        if func is torch.Tensor.tolist:
            return args[0].host.tolist()
        return torch._C._disabled_torch_function_impl(func, types, args, kwargs or {})

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return _run(func, args, kwargs or {})


def _run(func: Any, args: Any, kwargs: Any) -> Any:
    """Run an operation on the CPU, and give back tensors of the device where one went in."""
    there: dict[int, Pretend] = {}
    devices = set()

    def down(value: Any) -> Any:
        if isinstance(value, Pretend):
            there[id(value.host)] = value
            devices.add(NAME)
            return value.host
        if isinstance(value, torch.Tensor):
            devices.update({"cpu"} if value.ndim else ())
        if isinstance(value, torch.device):
            return torch.device("cpu") if value.type == NAME else value
        return value

    wanted = kwargs.get("device")
    on_host = wanted is not None and torch.device(wanted).type == "cpu"
    args, kwargs = tree_map(down, (args, kwargs))
    if len(devices) > 1 and func not in _ACROSS:
        raise RuntimeError(
            f"{func}: Expected all tensors to be on the same device, but found at least two"
            f" devices, {NAME}:0 and cpu!"
        )
    is_copy_to_host = func is _aten.copy_.default and not there
    found = func(*args, **kwargs)
    if on_host or is_copy_to_host or func is _aten._local_scalar_dense.default:
        return found

    def up(value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or isinstance(value, Pretend):
            return value
        return there[id(value)] if id(value) in there else Pretend(value)

    if func is _aten.copy_.default:  # onto whatever was copied to
        return there.get(id(args[0]), args[0])
    return tree_map(up, found)


def _make(func: Any, *args: Any, **kwargs: Any) -> Any:
    """An operation that no tensor of the device goes into, as a tensor is made on it."""
    return _run(func, args, kwargs)


class _ByTheHost(TorchFunctionMode):
    """What makes a tensor out of none goes by way of the host."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        place = kwargs.get("device")
        is_new = func is not torch.device and not types
        if place is None or not is_new or torch.device(place).type != NAME:
            return func(*args, **kwargs)
        made: Any = func(*args, **{**kwargs, "device": "cpu"})
        return made.to(place)


def install() -> torch.device:
    """Make the device known; once in a process."""
    if not _library:
        _setup_privateuseone_for_python_backend(NAME)
        made = torch.library.Library("_", "IMPL")
        made.fallback(_make, "PrivateUse1")
        _library.append(made)
        _ByTheHost().__enter__()
        torch.inference_mode = torch.no_grad  # which tensors made in Python cannot be made in
    return torch.device(NAME, 0)
