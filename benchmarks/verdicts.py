"""Verdicts on all claims under other times and on sampled outputs: `python -m benchmarks.verdicts`.

Tests the claims on `reference` under its own times and under those of the papers' pairs, and on
`reference-sampled`; prints as Markdown those whose verdict is not the same wherever one is given.
The table is docs/claims.md's.
"""

from __future__ import annotations

import argparse

from analysis.claims import Verdict, check

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


def main() -> None:
    """Print the table, and how many agree."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split(":")[0])
    parser.parse_args()
    found = {
        arm: {one.claim.name: one.verdict for one in check(trace, cost, placebo=None).of}
        for arm, (trace, cost) in ARMS.items()
    }
    print(f"| statistic | {' | '.join(ARMS)} |")
    print("| --- " * (len(ARMS) + 1) + "|")
    agree = 0
    for name in next(iter(found.values())):
        verdicts = [found[arm][name] for arm in ARMS]
        if Verdict.THEOREM in verdicts:
            continue
        if len(set(verdicts) - {Verdict.UNTESTED}) < 2:
            agree += 1
            continue
        print(f"| {name} | {' | '.join(WORDS[verdict] for verdict in verdicts)} |")
    print(f"\nThe other {agree} agree wherever they can be tested; theorems are left out.")


if __name__ == "__main__":
    main()
