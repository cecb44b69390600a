"""How often intervals from logs hold the truth: `python -m benchmarks.log_intervals`.

A replay of a bundled recording under fixed(4) or fixed(7) is taken for an engine's log, of which
nothing is kept but what each step drafted and accepted. Other lengths are replayed from it, and on
the recording, where the truth is. "any" must hold it always. A band supposes that another length's
starts are like those that the log visited, and here they are what they are: how far off that is,
the middle of the band against the truth, is what this measures.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

import simkit
from simkit.policies import Fixed
from simkit.simulator.logged import StepLog
from traces.manifest import SourceInfo
from traces.memory import from_steps
from traces.trace import Trace, load

TRACES = (
    ("reference", None),
    ("reference", "eagle"),
    ("smollm2", None),
    ("smollm2", "feature"),
    ("smollm2-sampled", None),
)
LOGGED, LENGTHS = (4, 7), (1, 2, 3, 5, 7)


class Case(NamedTuple):
    """A length that was replayed from a log of another.

    Attributes:
        trace: and its drafter.
        logged: length of the log's drafts.
        length: that was replayed.
        truth: tokens a step on the recording.
        band: ends of the interval.
        any: ends of the interval.
    """

    trace: str
    logged: int
    length: int
    truth: float
    band: tuple[float, float]
    any: tuple[float, float]

    @property
    def middle(self) -> float:
        """The middle of the band over the truth, less 1."""
        return sum(self.band) / 2 / self.truth - 1


def log_of(trace: Trace, length: int, shared_path: bool) -> StepLog:
    """A replay's steps, as the log that an engine would have written."""
    steps = simkit.replay(trace, Fixed(length), first_token="prefill").steps()
    some = np.unique(steps["sequence"].to_numpy())
    table = trace.sequences
    rows = table.take(np.searchsorted(table["sequence"].to_numpy(), some))
    columns = {name: steps[name].to_numpy() for name in ("step", "drafted", "accepted")}
    log = from_steps(
        {name: rows[name].to_pylist() for name in ("n_output", "n_prompt", "finish_reason")},
        {"sequence": np.searchsorted(some, steps["sequence"].to_numpy()), **columns},
        SourceInfo("replay", "0" * 64),
        shared_path=shared_path,
    )
    return StepLog(log, None, 0.95, 0)


def cases(name: str, drafter: str | None) -> list[Case]:
    """All cases of one recording and drafter."""
    trace, out = load(name, drafter), []
    for logged in (length for length in LOGGED if length <= trace.max_draft):
        log = log_of(trace, logged, shared_path=trace.manifest.kind == "path")
        for length in (length for length in LENGTHS if length <= trace.max_draft):
            found = log.replay(Fixed(length)).tokens_per_step
            policy = Fixed(length)
            record = simkit.replay(trace, policy, first_token="prefill").records()[0]
            ends = [(found[kind].low, found[kind].high) for kind in ("band", "any")]
            label = f"{name} {drafter or 'own'}"
            out.append(Case(label, logged, length, record["tokens_per_step"], *ends))
    return out


def main() -> None:
    """Print every case, and how often the truth is inside."""
    found = [case for trace in TRACES for case in cases(*trace)]
    print("trace, logged, replayed: truth; band (its middle); any")
    for case in found:
        band, any_ = (f"[{low:.3f}, {high:.3f}]" for low, high in (case.band, case.any))
        print(
            f"{case.trace}, {case.logged}, {case.length}: {case.truth:.3f};"
            f" {band} ({case.middle:+.1%}); {any_}"
        )
    for kind in ("band", "any"):
        held = sum(
            getattr(case, kind)[0] - 1e-9 <= case.truth <= getattr(case, kind)[1] + 1e-9
            for case in found
        )
        print(f"{kind} holds the truth in {held} of {len(found)} cases")
    shorter = [case.middle for case in found if case.length < case.logged]
    print(f"middles of shorter lengths: {min(shorter):+.1%} to {max(shorter):+.1%}")


if __name__ == "__main__":
    main()
