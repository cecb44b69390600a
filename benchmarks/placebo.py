"""How often claims hold by themselves: `python -m benchmarks.placebo --traces 1000`.

Tests every claim on placebos of a trace and of the sampled recording beside it: coin flips in the
place of acceptance, features and scores shuffled, prompts, lengths and times as they are
(`traces.placebo`). Each placebo has the trace's size, and each interval its 2,000 resamples, so
that a verdict comes about as it does on the trace itself. Verdicts go to a log, one placebo a line;
`--resume` goes on with it. `--store` writes the counts where `simkit claims` reads them, and leaves
those of other claims about the same traces as they are.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Iterator
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import traces
from analysis.claims import Verdict, check
from analysis.claims.claim import ClaimKind, claims
from analysis.claims.placebos import FILE
from traces.outputs import write_atomic
from traces.placebo import placebo

LOG = Path("build/placebo.jsonl")
Verdicts = dict[str, str]


def names_of(wanted: list[str] | None) -> list[str]:
    """The claims that a trace can refute, all or those that are wanted.

    Raises:
        SystemExit: there is no such claim.
    """
    known = [claim.name for claim in claims() if claim.kind is not ClaimKind.THEOREM]
    strange = set(wanted or []) - set(known)
    if strange:
        sys.exit(f"no claim that a trace can refute: {', '.join(sorted(strange))}")
    return known if wanted is None else [name for name in known if name in wanted]


def verdicts(name: str, sampled: str | None, tested: list[str], seed: int) -> Verdicts:
    """The verdict on each tested claim, on the placebos of a seed."""
    one, other = _loaded(name), None if sampled is None else _loaded(sampled)
    null = None if other is None else placebo(other, seed)
    asked = [claim for claim in claims() if claim.name in tested]
    found = check(placebo(one, seed), None, null, asked, placebo=None)
    return {one.claim.name: str(one.verdict) for one in found.of}


_traces: dict[str, traces.Trace] = {}


def _loaded(name: str) -> traces.Trace:
    """A trace, read once by each process."""
    if name not in _traces:
        _traces[name] = traces.load(name)
    return _traces[name]


Job = tuple[str, str | None, list[str], int]


def _one(job: Job) -> tuple[int, Verdicts]:
    return job[3], verdicts(*job)


def study(jobs: list[Job], processes: int) -> Iterator[tuple[int, Verdicts]]:
    """The verdicts of each job's seed, in the order in which they are done."""
    if processes == 1:
        yield from map(_one, jobs)
        return
    with get_context("spawn").Pool(processes) as pool:
        yield from pool.imap_unordered(_one, jobs)


def read(log: Path, head: dict[str, Any]) -> dict[int, Verdicts]:
    """What an earlier run found; a last line that was cut short is left out.

    Raises:
        SystemExit: it was about other traces or other claims.
    """
    lines = log.read_text(encoding="utf-8").split("\n")[:-1] if log.exists() else []
    if not lines:
        return {}
    if json.loads(lines[0]) != head:
        sys.exit(f"{log}: is about other traces or claims; begin anew without --resume")
    return {one["seed"]: one["verdicts"] for one in map(json.loads, lines[1:])}


def counted(found: dict[int, Verdicts]) -> dict[str, dict[str, int]]:
    """How often each verdict came, by claim."""
    names = dict.fromkeys(name for one in found.values() for name in one)
    return {name: dict(Counter(one[name] for one in found.values())) for name in names}


def table(counts: dict[str, dict[str, int]], n: int) -> str:
    """The shares as Markdown, those that hold most often first."""
    kinds = [str(one) for one in Verdict if one is not Verdict.THEOREM]
    lines = [["claim", *kinds], ["---", *["---:"] * len(kinds)]]
    for name, count in sorted(counts.items(), key=lambda item: -item[1].get("holds", 0)):
        lines.append([f"`{name}`", *(f"{count.get(kind, 0) / n:.1%}" for kind in kinds)])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def main() -> None:
    """Make the placebos, say how often claims hold on them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--traces", type=int, default=1000, help="placebos, seeds 1 and up")
    parser.add_argument("--trace", default="reference")
    parser.add_argument("--sampled", default="reference-sampled", help="'' for none")
    parser.add_argument("--claims", nargs="+", metavar="NAME", help="these alone")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--log", type=Path, default=LOG)
    parser.add_argument("--resume", action="store_true", help="go on with the log")
    parser.add_argument("--store", action="store_true", help=f"write {FILE.name} of the package")
    args = parser.parse_args()
    sampled = args.sampled or None
    names = names_of(args.claims)
    head = {
        "trace": traces.load(args.trace).hash,
        "sampled": None if sampled is None else traces.load(sampled).hash,
        "claims": names,
    }
    found = read(args.log, head) if args.resume else {}
    args.log.parent.mkdir(parents=True, exist_ok=True)
    lines = [head, *({"seed": seed, "verdicts": one} for seed, one in found.items())]
    write_atomic(args.log, "".join(json.dumps(one) + "\n" for one in lines).encode())
    left = [seed for seed in range(1, args.traces + 1) if seed not in found]
    jobs: list[Job] = [(args.trace, sampled, names, seed) for seed in left]
    began = time.perf_counter()
    with args.log.open("a", encoding="utf-8") as log:
        for seed, one in study(jobs, args.processes):
            found[seed] = one
            log.write(json.dumps({"seed": seed, "verdicts": one}) + "\n")
            log.flush()
    counts, n = counted(found), len(found)
    print(f"{n:,} placebos of {args.trace}; {time.perf_counter() - began:.0f} s in this run\n")
    print(table(counts, n))
    if args.store:
        about = {"trace": head["trace"], "sampled": head["sampled"]}
        before = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}
        is_same = {name: before.get(name) for name in about} == about
        kept = {**about, "claims": {**(before["claims"] if is_same else {}), **counts}}
        write_atomic(FILE, (json.dumps(kept, indent=1) + "\n").encode())


if __name__ == "__main__":
    main()
