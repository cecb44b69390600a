"""Record a draft/target pair, and read and write the traces that this makes."""

from traces.errors import RecordError, TraceError, UserError
from traces.sampler import Sampler
from traces.trace import Trace, load

__all__ = ["RecordError", "Sampler", "Trace", "TraceError", "UserError", "load"]
