"""What docs/ladder.md shows: drafts of one model, and at which acceptance each claim holds.

``python -m benchmarks.ladder -o docs/_data/ladder.json --plot docs/ladder.png --panels FILE``

Of `ladder` and `ladder-sampled`: how often each draft is accepted, by task and outside of loops,
what the best policy can get of it, and claims at several prices of a draft token, at one of them
with their statistics; and how often two drafts that are made otherwise, of similar acceptance, give
the same verdict. Seven minutes.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import simkit
from analysis.claims import ByAcceptance, by_acceptance
from analysis.claims.by_acceptance import acceptance_of, decided, flips_of, shown
from analysis.claims.table import Finding
from analysis.claims.verdict import UNJUDGED, Verdict
from analysis.stats import Estimate, clusters
from analysis.study import Study
from traces.loops import made_of
from traces.outputs import write_atomic
from traces.trace import Trace, load

TRACES = {"greedy": "ladder", "sampled": "ladder-sampled"}
COSTS = {f"c = {c}": f"linear(draft_s=1, target_s={c})" for c in (5, 10, 30)}
"""Prices: a draft token takes 1, a verification c however wide it is."""
H200 = {"Qwen2.5 on an H200": "atlas(target=qwen2.5-32b, draft=qwen2.5-0.5b)"}
DRAWN = "c = 10"
LINEAR, LAYERS, EMBEDDING = 106_168_320, 30, 49_152 * 576  # weights of the target
LAYER_MB, EMBEDDING_MB = 2e-6 * LINEAR / LAYERS, 2e-6 * EMBEDDING  # float16


def rounded_mb(bits: int, group: int) -> float:
    """The size of all linear layers, with a scale and a zero of 16 bits for each group."""
    return 1e-6 * LINEAR * (bits / 8 + 4 / group)


WEIGHTS_MB = {
    "exit8": (LAYER_MB, 8 * LAYER_MB + EMBEDDING_MB),
    "distilled": (16, 0),
    "pruned15": (15 * LAYER_MB, EMBEDDING_MB),
    "q2-g16": (rounded_mb(2, 16), EMBEDDING_MB),
    "q3-g64": (rounded_mb(3, 64), EMBEDDING_MB),
    "q3-g32": (rounded_mb(3, 32), EMBEDDING_MB),
    "q3-g16": (rounded_mb(3, 16), EMBEDDING_MB),
    "q4-g64": (rounded_mb(4, 64), EMBEDDING_MB),
}
"""Weights that a draft pass reads: the draft's own, and the target's (float16)."""
TARGET_MB = LAYERS * LAYER_MB + EMBEDDING_MB
ALIKE = ("pruned15", "q2-g16")  # trained, and rounded
MEASURED_C = {"exit8": 2.4, "distilled": 15.8, "pruned15": 1.6}
"""Seconds of a target pass over those of a draft pass, on a CPU; copies, in float16, have 1."""


def drafts(trace: Trace) -> list[tuple[str, Study]]:
    """The drafters of a recording, the least accepted one first."""
    found = [(name, Study(trace.with_drafter(name))) for name in trace.drafters]
    return sorted(found, key=lambda one: acceptance_of(one[1]).value or 0.0)


def _accepted(study: Study) -> np.ndarray:
    """First draft tokens of each prompt: accepted, all, and both in no verbatim loop; (S, 4)."""
    accepted, apart = np.asarray(study.layout.ahead) > 0, ~study.loops.rows

    def counted(rows: slice) -> list[np.ndarray]:
        some, free = accepted[rows], apart[rows]
        return [some, np.ones_like(some), some & free, free]

    return clusters.by_prompt(study.layout.offsets, counted)


def outside_loops(study: Study) -> Estimate:
    """`acceptance_of` the positions that are in no verbatim loop."""
    return clusters.ratio(*_accepted(study)[:, 2:].T)


def by_task(study: Study) -> dict[str, list[float]]:
    """Share of first draft tokens that are accepted by task, of all and of those in no loop."""
    tasks = study.trace.sequences["task"].to_numpy(zero_copy_only=False)
    sums = {task: _accepted(study)[tasks == task].sum(0) for task in sorted(set(tasks))}
    return {task: [float(a / n), float(b / m)] for task, (a, n, b, m) in sums.items()}


def rung(name: str, study: Study) -> dict[str, Any]:
    """What a draft is accepted, and what it gives."""
    lengths = [f"fixed({n})" for n in range(1, 17)]
    most = simkit.replay(study.trace, "oracle", cost=COSTS[DRAWN]).records()[0]
    best = {}
    for price, cost in COSTS.items():
        table = simkit.replay(study.trace, lengths, cost=cost).records()
        one = max(table, key=lambda row: row["speedup"])
        best[price] = [one["policy"], one["speedup"]]
    return {
        "draft": name,
        "made_of": made_of(study.trace.manifest),
        "weights_mb": [round(size) for size in WEIGHTS_MB[name]],
        "c_of_weights": TARGET_MB / sum(WEIGHTS_MB[name]),
        "c_measured": MEASURED_C.get(name, 1.0),
        "acceptance": acceptance_of(study).text(),
        "outside_loops": outside_loops(study).text(),
        "oracle": most["tokens_per_step"],
        "best_fixed": best,
        "by_task": by_task(study),
    }


def rows(found: dict[str, ByAcceptance]) -> Iterator[list[str]]:
    """A row for each claim that a draft decides: its name, then at which acceptance it holds."""
    first, *_ = found.values()
    for k, (one, *_) in enumerate(first.claims):
        words = [some.together[k] for some in found.values()]
        if any(word and not word.startswith(("cannot", "undecided")) for word in words):
            claim = one.claim
            yield [
                f"{claim.says} ({claim.paper}, `{claim.name}`)",
                *(word or "–" for word in words),
            ]


def values(found: ByAcceptance) -> Iterator[dict[str, Any]]:
    """Of each claim that a draft can test: its statistic on every draft, and on coin flips."""
    for some in found.claims:
        if any(one.verdict not in UNJUDGED for one in some):
            claim = some[0].claim
            yield {
                "claim": claim.name,
                "paper": claim.paper,
                "measure": claim.measure,
                "drafts": [_value(one) for one in some],
                "flips": _flips(some),
            }


def _value(one: Finding) -> dict[str, str]:
    """A verdict, and the statistic that decides it."""
    part = shown(one)
    said = {"what": part.what, "found": part.found.text()} if part else {}
    return {"verdict": str(one.verdict)} | said


def _flips(some: tuple[Finding, ...]) -> dict[str, Any]:
    """On how many drafts' placebos a claim holds, and how far what `_value` shows goes there."""
    tested = [one for one in some if one.placebo not in (None, *UNJUDGED)]
    found = [flips_of(one, part) for one in tested if (part := shown(one))]
    ends = [end for one in found if one for end in (one.lo, one.hi) if end is not None]
    return {
        "holds": sum(one.placebo is Verdict.HOLDS for one in tested),
        "of": len(tested),
        "ends": [min(ends), max(ends)] if ends else None,
    }


def alike(found: dict[str, ByAcceptance]) -> tuple[int, list[str]]:
    """In how many cases, a claim at a price, both of `ALIKE` decide, and in which otherwise."""
    cases, differ = 0, []
    for price, some in found.items():
        one, other = (some.of[some.names.index(name)].of for name in ALIKE)
        for a, b in zip(one, other, strict=True):
            said = decided(a.verdict), decided(b.verdict)
            if None not in said:
                cases += 1
                differ += [f"`{a.claim.name}`, {price}"] if len(set(said)) > 1 else []
    return cases, differ


def main() -> None:
    """Write the file and the picture."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split(":")[0])
    parser.add_argument("-o", "--out", type=Path, required=True, metavar="FILE")
    parser.add_argument("--plot", type=Path, required=True, metavar="FILE")
    parser.add_argument("--panels", type=Path, required=True, metavar="FILE")
    args = parser.parse_args()
    kept: dict[str, Any] = {}
    for sampler, name in TRACES.items():
        trace = load(name)
        print(f"{sampler}: drafts", flush=True)
        kept[sampler] = {"rungs": [rung(*one) for one in drafts(trace)]}
        found = {}
        for price, cost in {**COSTS, **H200}.items():
            print(f"{sampler}: claims, {price}", flush=True)
            found[price] = by_acceptance([trace], cost)
        kept[sampler]["prices"] = list(found)
        kept[sampler]["claims"] = list(rows(found))
        kept[sampler]["values"] = list(values(found[DRAWN]))
        kept[sampler]["alike"] = alike(found)
        if sampler == "greedy":
            found[DRAWN].save(args.plot)
            found[DRAWN].save(args.panels, panels=True)
    write_atomic(args.out, (json.dumps(kept, ensure_ascii=False, indent=1) + "\n").encode())


if __name__ == "__main__":
    main()
