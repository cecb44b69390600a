"""What docs/claims.md shows: `python -m benchmarks.verdicts -o docs/_data/claims.json`.

Tests the claims on `reference` under its own times and under those of the papers' pairs, and on
`reference-sampled`. Keeps every verdict under its own times, and of the others those that are not
the same wherever one is given. Takes four minutes.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from analysis.claims import Findings, Verdict, check
from analysis.claims.table import SEED
from traces.outputs import write_atomic

ARMS = {
    "measured": ("reference", None),
    "DeepSeek 1.3B/33B": ("reference", "pacer:deepseek-1.3b-33b"),
    "Llama 2 7B/70B": ("reference", "pacer:llama2-7b-70b"),
    "sampled, measured": ("reference-sampled", None),
}
WORDS = {
    Verdict.HOLDS: "holds",
    Verdict.FAILS: "does not",
    Verdict.OPEN: "≈",
    Verdict.UNTESTED: "–",
    Verdict.NO_EXAMPLE: "no example",
}


def elsewhere(found: Mapping[str, Findings]) -> dict[str, Any]:
    """The arms, a row of verdicts for each claim on which they differ, how many others agree."""
    of = {arm: {one.claim.name: one.verdict for one in some.of} for arm, some in found.items()}
    rows, agree = [], 0
    for name in next(iter(of.values())):
        verdicts = [some[name] for some in of.values()]
        if Verdict.THEOREM in verdicts:
            continue
        if len(set(verdicts) - {Verdict.UNTESTED}) < 2:
            agree += 1
        else:
            rows.append([name, *(WORDS[verdict] for verdict in verdicts)])
    return {"arms": list(of), "rows": rows, "agree": agree}


def main() -> None:
    """Write the file."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split(":")[0])
    parser.add_argument("-o", "--out", type=Path, required=True, metavar="FILE")
    out = parser.parse_args().out
    found = {
        arm: check(trace, cost, placebo=SEED if arm == "measured" else None)
        for arm, (trace, cost) in ARMS.items()
    }
    own = found["measured"]
    kept = {
        "note": own.note(),
        "claims": {one.claim.name: one.found() for one in own.of},
        "elsewhere": elsewhere(found),
    }
    write_atomic(out, (json.dumps(kept, ensure_ascii=False, indent=1) + "\n").encode())


if __name__ == "__main__":
    main()
