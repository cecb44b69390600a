"""Another simulator's n-gram lengths from its tokens: `python -m benchmarks.peer_ngram FILE.jsonl`.

A file of SpecDecode-Bench (arXiv:2601.11580; or the one that SIMKIT_PEER_DATA names) holds for each
output position what one step of vLLM's n-gram drafter would emit there, and the tokens of prompt
and output. From these the rule `ngram` proposes for itself; the rules are ranked by the share of
entries that they give. An entry whose draft agrees with all that is left of the output may be
larger: where the output ends the file knows no token, its run went on. Those are counted apart.
"""

from __future__ import annotations

import argparse
import os
from typing import NamedTuple

import numpy as np

from simkit.importers import jsonl
from traces.attach.tokens import NGram

LEAST, MOST = range(1, 6), range(1, 10)
NO_EOS = np.zeros(0, np.int32)  # which they are is not in the file


class Request(NamedTuple):
    """One record: its tokens, and accepted tokens by start (0 where there is no draft)."""

    prompt: np.ndarray
    output: np.ndarray
    accepted: np.ndarray


class Share(NamedTuple):
    """How a rule's accepted tokens compare with the entries.

    Attributes:
        entries: all of them.
        equal: those that it gives.
        beyond: those that are larger, where the draft agrees with all that is left of the output.
        drafts: entries with accepted tokens.
        found: those of them that it gives.
    """

    entries: int
    equal: int
    beyond: int
    drafts: int
    found: int


def read(file: str) -> list[Request]:
    """The records of a file.

    Raises:
        ImporterError: it cannot be read, or a record has wrong fields.
    """
    out = []
    for record in jsonl.read(file):
        names = ("prompt_token_ids", "generated_token_ids")
        tokens = (record.whole(name, record.get(name), 0) for name in names)
        lengths = record.whole("acc_ngram.acc_len", record.get("acc_ngram", "acc_len"), 1)
        prompt, output, emitted = (np.array(values, np.int32) for values in (*tokens, lengths))
        out.append(Request(prompt, output, emitted - 1))
    return out


def share(requests: list[Request], rule: NGram, prompts: bool = True, shift: int = 0) -> Share:
    """Compare a rule with all entries.

    Args:
        requests: what was read.
        rule: its drafts should be as long as theirs.
        prompts: False looks in outputs alone.
        shift: entry k, from 0, is compared with the draft from start k + 1 + shift.
    """
    entries = equal = beyond = drafts = found = 0
    for prompt, output, accepted in requests:
        text = np.concatenate([prompt, output]) if prompts else output
        n_prompt = len(text) - len(output)
        proposed = rule.propose(text, n_prompt, NO_EOS, len(output) + rule.length)
        ours = proposed.accepted[shift:]
        n = min(len(ours), len(accepted))
        ours, theirs = ours[:n], accepted[:n]
        left = len(output) - shift - np.arange(n)
        same = ours == theirs
        entries += n
        equal += int(same.sum())
        beyond += int(((ours == left) & (theirs > ours)).sum())
        drafts += int((theirs > 0).sum())
        found += int((same & (theirs > 0)).sum())
    return Share(entries, equal, beyond, drafts, found)


def ranked(requests: list[Request]) -> list[tuple[NGram, Share]]:
    """All rules with the longest draft that the entries show, the best first."""
    length = max(1, *(int(r.accepted.max(initial=0)) for r in requests))
    rules = [
        NGram(length, least, most, which)
        for which in ("first", "last")
        for least in LEAST
        for most in MOST
        if least <= most
    ]
    shares = [(rule, share(requests, rule)) for rule in rules]
    return sorted(shares, key=lambda pair: -pair[1].equal)


def main() -> None:
    """Print the best rules, and what the best one gives under other conditions."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split(":")[0])
    parser.add_argument("file", nargs="?", default=os.environ.get("SIMKIT_PEER_DATA"))
    given = parser.parse_args()
    if not given.file:
        parser.error("name the sample, or set SIMKIT_PEER_DATA")
    requests = read(given.file)
    shares = ranked(requests)
    best = shares[0][0]
    print(f"{len(requests)} requests, {shares[0][1].entries:,} entries,", end=" ")
    print(f"{shares[0][1].drafts:,} with accepted tokens\n")
    print("| rule | entries it gives | of those with accepted tokens | beyond the output's end |")
    print("|---|---|---|---|")
    for rule, found in shares[:6]:
        print(_row(str(rule), found))
    last = next(pair for pair in shares if pair[0].which == "last")
    print(_row(str(last[0]), last[1]))
    print(_row("the first, outputs alone", share(requests, best, prompts=False)))
    print(_row("the first, a position later", share(requests, best, shift=1)))


def _row(name: str, found: Share) -> str:
    shares = found.equal / found.entries, found.found / max(1, found.drafts)
    cells = [name, *(f"{100 * value:.3f}%" for value in shares), f"{found.beyond:,}"]
    return "| " + " | ".join(cells) + " |"


if __name__ == "__main__":
    main()
