"""Prompt lookup of Hugging Face against ours: `python -m benchmarks.prompt_lookup`.

`generate(prompt_lookup_num_tokens=...)` decodes prompts greedily in float32 with the reference
target. Where each of its steps began and how much it drafted is noted. The same list comes from the
drafts that our rule proposes over the output of plain greedy decoding: a step at start i drafts
proposal(i), keeps what is accepted, and the next one begins behind the target's own token. Exits
with 1 if a prompt differs.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import torch
import transformers
from transformers.generation.candidate_generator import PromptLookupCandidateGenerator

from benchmarks.hugging_face import counted, plain
from benchmarks.recorded import REFERENCE
from traces.attach.tokens import PromptLookup
from traces.record.pair import load_pair
from traces.record.prompts import Prompt, read_prompts

RULES = (PromptLookup(), PromptLookup(length=5, ngram=3), PromptLookup(length=20, ngram=1))


class Decoding(NamedTuple):
    """What decoding of one prompt came to.

    Attributes:
        target: passes of the target.
        steps: (start, drafted, accepted) of each.
        output: its tokens.
    """

    target: int
    steps: list[tuple[int, int, int]]
    output: list[int]


def generated(
    model: Any, prompt: Prompt, rule: PromptLookup, max_new_tokens: int, eos: tuple[int, ...]
) -> Decoding:
    """Run `generate(prompt_lookup_num_tokens=...)`, and note its steps."""
    begun: list[tuple[int, int]] = []
    asked = PromptLookupCandidateGenerator.get_candidates

    def noting(self: Any, input_ids: Any, **rest: Any) -> Any:
        found = asked(self, input_ids, **rest)
        known = input_ids.shape[1]
        begun.append((known - len(prompt.tokens) + 1, found[0].shape[1] - known))
        return found

    options = {"prompt_lookup_num_tokens": rule.length, "max_matching_ngram_size": rule.ngram}
    with (
        mock.patch.object(PromptLookupCandidateGenerator, "get_candidates", noting),
        counted(model) as target,
    ):
        output = plain(model, prompt, max_new_tokens, eos, **options)
        passes = target()
    nexts = [start for start, _ in begun[1:]] + [len(output) + 1]
    steps = [
        # It drafts beyond T_max too, of which the loop keeps as much as there is room for.
        (start, min(drafted, max_new_tokens - start), after - start - 1)
        for (start, drafted), after in zip(begun, nexts, strict=True)
    ]
    return Decoding(passes, steps, output)


def predicted(
    prompt: Prompt, output: list[int], rule: PromptLookup, max_new_tokens: int, eos: tuple[int, ...]
) -> Decoding:
    """The same by our drafts over a known output."""
    text = np.array([*prompt.tokens, *output], np.int32)
    found = rule.propose(text, len(prompt.tokens), np.array(eos, np.int32), max_new_tokens)
    steps, start = [], 1
    while start <= len(output):
        accepted = int(found.accepted[start - 1])
        steps.append((start, int(found.lengths[start - 1]), accepted))
        start += accepted + 1
    return Decoding(len(steps), steps, output)


def main() -> int:
    """Print the table; 1 if a prompt differs."""
    options = _options()
    torch.set_num_threads(options.threads)
    pair = load_pair(options.target, options.target, options.device)
    prompts = read_prompts(options.prompts, pair.tokenizer, pair.vocab_size)
    prompts = prompts[:: max(1, len(prompts) // options.n_prompts)][: options.n_prompts]
    setting = options.max_new_tokens, pair.eos_token_ids
    outputs = [plain(pair.target, prompt, *setting) for prompt in prompts]
    print(f"{len(prompts)} prompts, T_max {setting[0]}, greedy float32, transformers", end=" ")
    print(transformers.__version__)
    print("| rule | target passes | steps | accepted | ours | drafted | ours | prompts equal | s |")
    print("|---|---|---|---|---|---|---|---|---|")
    wrong = 0
    for rule in RULES:
        started = time.perf_counter()
        theirs = [generated(pair.target, prompt, rule, *setting) for prompt in prompts]
        spent_s = time.perf_counter() - started
        pairs = zip(prompts, outputs, strict=True)
        ours = [predicted(prompt, output, rule, *setting) for prompt, output in pairs]
        equal = sum(a == b for a, b in zip(theirs, ours, strict=True))
        wrong += equal < len(prompts)
        cells = [f"`{rule.name}(length={rule.length}, ngram={rule.ngram})`"]
        cells += [sum(run.target for run in runs) for runs in (theirs, ours)]
        for column in (2, 1):
            cells += [sum(s[column] for run in runs for s in run.steps) for runs in (theirs, ours)]
        cells += [f"{equal} of {len(prompts)}", f"{spent_s:.0f}"]
        print("| " + " | ".join(map(str, cells)) + " |", flush=True)
    return int(wrong > 0)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split(":")[0])
    parser.add_argument("--target", default=f"{REFERENCE}/models/target")
    parser.add_argument("--prompts", default=f"{REFERENCE}/prompts.jsonl")
    parser.add_argument("--n-prompts", type=int, default=32)
    parser.add_argument("--max-new-tokens", type=int, default=256)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
