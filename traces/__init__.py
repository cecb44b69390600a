"""Record a draft/target pair, and read and write the traces that this makes."""

from traces.did_you_mean import missing
from traces.errors import RecordError, TraceError, UserError
from traces.sampler import Sampler
from traces.trace import Trace, load

__all__ = ["RecordError", "Sampler", "Trace", "TraceError", "UserError", "load"]


def __getattr__(name: str) -> object:
    if name.startswith("__"):  # asked by Python, of every module
        raise AttributeError(f"module 'traces' has no attribute {name!r}")
    raise AttributeError(missing("module 'traces'", name, __all__))
