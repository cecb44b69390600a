"""How requests come: at a rate, in a closed loop, at given times, or as copies of one."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from simkit.errors import ServingError
from simkit.serving.engine import check_count, check_numbers
from traces import reading
from traces.messages import how_many

SLOWEST, FASTEST = 1e-9, 1e9  # requests a second
LATEST = 1e300  # beyond any time
UNITS = {"s": 1, "ms": 1000}  # so many of a time stamp's units are a second


class Load:
    """When requests come.

    Attributes:
        concurrency: requests in flight in a closed loop; 0 where they come by themselves.
        copies: how many copies of a sequence come at once; 1 for none.
        name: of the kind of load, and of what its `value` is, unless it computes that.

    >>> cost = "linear(draft_s=1, target_s=10, draft_per_token_s=0.01, target_per_token_s=0.1)"
    >>> served = simkit.serve("reference", "none", cost, concurrency=4, requests=40, seeds=1)
    >>> served.runs[0].load
    Closed(concurrency=4)
    """

    concurrency: int = 0
    copies: int = 1
    name: ClassVar[str]

    @property
    def value(self) -> float:
        """The number that a table shows."""
        return float(getattr(self, self.name))

    def times_s(self, requests: int, rng: np.random.Generator) -> np.ndarray | None:
        """When each comes, ascending; None where that hangs on the server."""
        return None


@dataclass(frozen=True)
class Poisson(Load):
    """Requests come at random, so many a second on average.

    Attributes:
        rate: a second.

    Raises:
        ServingError: it is not positive and finite.

    >>> simkit.serving.Poisson(rate=2).value
    2.0
    """

    rate: float

    name = "rate"

    def __post_init__(self) -> None:
        number = isinstance(self.rate, int | float) and not isinstance(self.rate, bool)
        if not (number and SLOWEST < self.rate <= FASTEST):
            raise ServingError(
                f"rate must be a finite number of requests a second above 0, up to {FASTEST:g}, not"
                f" {self.rate!r:.40} (for the highest throughput use a closed loop, --concurrency)"
            )

    def times_s(self, requests: int, rng: np.random.Generator) -> np.ndarray:
        """See `Load`."""
        return np.cumsum(rng.exponential(1 / self.rate, requests))


@dataclass(frozen=True)
class Closed(Load):
    """So many requests are always in flight: when one is done, the next one comes.

    Attributes:
        concurrency: requests in flight.

    Raises:
        ServingError: it is no whole number from 1 on.

    >>> simkit.serving.Closed(4).value
    4.0
    """

    concurrency: int = 1

    name = "concurrency"

    def __post_init__(self) -> None:
        check_count("concurrency", self.concurrency)


@dataclass(frozen=True)
class Copies(Load):
    """Batches of copies of one request: the next one's come when all are done.

    So the SpecDecode-Bench simulator (arXiv:2601.11580) has it.

    Attributes:
        copies: of each request.

    Raises:
        ServingError: it is no whole number from 1 on.

    >>> simkit.serving.Copies(8).concurrency
    8
    """

    copies: int = 1

    name = "copies"

    def __post_init__(self) -> None:
        check_count("copies", self.copies)

    @property
    def concurrency(self) -> int:  # type: ignore[override]
        """See `Load`."""
        return self.copies


@dataclass(frozen=True, eq=False)
class Timestamps(Load):
    """Requests come at given times.

    Attributes:
        times: seconds, ascending; the first one is the clock's zero.

    Raises:
        ServingError: they are none, not finite, or not ascending.

    >>> simkit.serving.Timestamps([5, 6.5, 8]).times.tolist()
    [0.0, 1.5, 3.0]
    """

    times: np.ndarray

    name = "timestamps"

    def __post_init__(self) -> None:
        times = check_numbers("arrivals", self.times)
        if not len(times):
            raise ServingError("arrival times: there are none")
        if not np.isfinite(times).all() or (np.diff(times) < 0).any():
            raise ServingError("arrival times must be finite seconds that never fall")
        object.__setattr__(self, "times", times - times[0])

    @property
    def value(self) -> float:
        """See `Load`: requests a second."""
        return len(self.times) / max(float(self.times[-1]), 1e-12)

    def times_s(self, requests: int, rng: np.random.Generator) -> np.ndarray:
        """See `Load`."""
        if requests > len(self.times):
            raise ServingError(
                f"{how_many(requests, 'request')}, but {len(self.times)} arrival times"
            )
        return self.times[:requests]


def read_times(file: Path, unit: str | None = None) -> Timestamps:
    """Arrival times from a file: a number a line, or JSON lines with `arrival_s` or `timestamp`.

    Args:
        file: text.
        unit: of `timestamp`, and of numbers without a name: one of `UNITS`. None: numbers are
            seconds, and `timestamp` is refused, for public traces have it in seconds or in
            milliseconds. `arrival_s` is in seconds.

    Raises:
        ServingError: the file cannot be read, the unit is none, or a line is neither; the message
            names the line.

    >>> from pathlib import Path
    >>> from numpy import savetxt
    >>> savetxt("arrivals.txt", [5, 6.5, 8])
    >>> simkit.serving.read_times(Path("arrivals.txt")).times.tolist()
    [0.0, 1.5, 3.0]
    """
    if unit is not None and unit not in UNITS:
        raise ServingError(f"arrivals_unit must be {' or '.join(UNITS)}, not {unit!r}")
    try:
        lines = file.read_text("utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        reading.refuse_url(file, ServingError)
        why = getattr(error, "strerror", None) or "it is no text"
        raise ServingError(f"{file}: cannot be read: {why}") from None
    found = []
    for number, line in enumerate(lines, start=1):
        if line.strip():
            found.append(_time_s(line, unit, f"{file}, line {number}"))
    try:
        return Timestamps(np.array(found))
    except ServingError as error:
        raise ServingError(f"{file}: {error}") from None


def _time_s(line: str, unit: str | None, where: str) -> float:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        raise ServingError(f"{where}: {line.strip()[:40]!r} is no number and no JSON") from None
    if isinstance(value, dict):
        if "arrival_s" in value:
            value, unit = value["arrival_s"], "s"
        elif "timestamp" not in value:
            known = ", ".join(map(repr, list(value)[:5])) or "none"
            raise ServingError(f"{where}: neither arrival_s nor timestamp (fields: {known})")
        elif unit is None:
            raise ServingError(
                f"{where}: a timestamp may be in seconds or milliseconds: say --arrivals-unit"
                " s or ms"
            )
        else:
            value = value["timestamp"]
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not abs(value) < LATEST:
        raise ServingError(f"{where}: {str(value)[:40]} is no time")
    return float(value / UNITS[unit or "s"])
