"""How often each claim holds on placebo traces: a study that comes with the package.

`python -m benchmarks.placebo` makes it. It is about one trace under one cost; of others nothing is
known but the one placebo that `check` tests.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from analysis.claims.verdict import Verdict
from simkit.simulator.arguments import AnyCost
from traces.trace import Trace

FILE = Path(__file__).parent / "placebos.json"
OWN = "times measured with it"  # the cost, in words, where none is given


class Share(NamedTuple):
    """On how many placebos a claim holds.

    Attributes:
        holds: the share of them, 0 to 1; None if it is not known.
        placebos: on how many it could be tested.
    """

    holds: float | None = None
    placebos: int = 0

    def __str__(self) -> str:
        if self.holds is None:
            return ""
        return f" (holds on {self.holds:.1%} of {self.placebos:,} placebos)"


NONE = Share()


def shares(trace: Trace, sampled: Trace | None, cost: AnyCost | None) -> Mapping[str, Share]:
    """What is known of each claim on placebos of these traces, by the claim's name.

    Args:
        trace: that claims are tested on.
        sampled: the sampled recording beside it.
        cost: as given to `check`; only the trace's own times were studied.
    """
    found = _study()
    hashes = [found.get("trace"), found.get("sampled")]
    if cost is not None or not found or hashes[0] != trace.hash:
        return {}
    if hashes[1] != (None if sampled is None else sampled.hash):
        return {}
    counts = ((name, count, _tested(count)) for name, count in found["claims"].items())
    return {name: Share(count.get("holds", 0) / n, n) for name, count, n in counts if n}


def _tested(count: Mapping[str, int]) -> int:
    """On how many placebos there was a verdict."""
    return sum(n for verdict, n in count.items() if verdict != Verdict.UNTESTED)


@cache
def _study() -> dict[str, Any]:
    """The file's content: nothing of the user's, and the same as long as the program runs."""
    return json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}
