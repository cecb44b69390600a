"""Hugging Face assisted generation against replays: the same passes, prompt by prompt.

    python -m benchmarks.hugging_face [--rule "fixed(5)"]

Greedy, float32, batch size 1, on the reference pair or any other. Passes are counted by hooks on
both models: the target's are a replay's steps, the draft's are its `drafted`. Exit status 1 if a
prompt differs.

Prompts run in order, on one draft model. An adaptive threshold starts anew with each of them: since
`AssistedCandidateGenerator` copies the draft's generation config, nothing of it is carried over.
The length of `schedule="heuristic"` is, on both sides.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple
from unittest import mock

import torch
import transformers
from torch import nn

from benchmarks.recorded import REFERENCE, record, replayed
from simkit import policies
from simkit.policies import Policy
from traces.record.pair import Pair, load_pair
from traces.record.plan import Plan
from traces.record.prompts import Prompt, read_prompts
from traces.trace import Trace


class Rule(NamedTuple):
    """A draft-length rule as Hugging Face's generation config has it.

    `adaptive` says whether its confidence threshold adapts, as it does where scikit-learn is
    installed.
    """

    num_assistant_tokens: int
    schedule: str
    threshold: float = 0.0
    adaptive: bool = False


class Passes(NamedTuple):
    """Forward passes of one prompt, and its output."""

    target: int
    draft: int
    output: list[int]


RULES = {
    "fixed(5)": Rule(5, "constant"),
    "heuristic(initial=20, schedule=transient)": Rule(20, "heuristic_transient"),
    "heuristic(initial=20, schedule=heuristic)": Rule(20, "heuristic"),
    "confidence(threshold=0.4, max_draft=20)": Rule(20, "constant", 0.4),
    "confidence_adaptive(threshold=0.4, max_draft=20)": Rule(20, "constant", 0.4, adaptive=True),
}


def generated(
    pair: Pair, prompts: list[Prompt], rule: Rule, max_new_tokens: int, eos: tuple[int, ...]
) -> list[Passes]:
    """Run `generate(assistant_model=...)` on each prompt, in order, and count passes."""
    result = []
    with _ruled(pair.draft, rule), counted(pair.target) as target, counted(pair.draft) as draft:
        for prompt in prompts:
            before = target(), draft()
            output = plain(pair.target, prompt, max_new_tokens, eos, assistant_model=pair.draft)
            result.append(Passes(target() - before[0], draft() - before[1], output))
    return result


def plain(
    model: Any, prompt: Prompt, max_new_tokens: int, eos: tuple[int, ...], **drafts: Any
) -> list[int]:
    """The output of greedy decoding, without drafts unless options of `generate` say which."""
    ids = torch.tensor([prompt.tokens], device=model.device)
    out = model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        do_sample=False,
        max_new_tokens=max_new_tokens,
        eos_token_id=list(eos) or None,
        pad_token_id=0,
        **drafts,
    )
    return out[0, len(prompt.tokens) :].tolist()


@contextmanager
def _ruled(draft: nn.Module, rule: Rule) -> Iterator[None]:
    """Set the rule in the draft's generation config, where Hugging Face looks for it."""
    config: Any = draft.generation_config
    wanted = {
        "num_assistant_tokens": rule.num_assistant_tokens,
        "num_assistant_tokens_schedule": rule.schedule,
        "assistant_confidence_threshold": rule.threshold,
    }
    before = {name: getattr(config, name, None) for name in wanted}
    where = "transformers.generation.candidate_generator.is_sklearn_available"
    try:
        for name, value in wanted.items():
            setattr(config, name, value)
        with mock.patch(where, return_value=rule.adaptive):
            yield
    finally:
        for name, value in before.items():
            setattr(config, name, value)


@contextmanager
def counted(model: nn.Module) -> Iterator[Callable[[], int]]:
    """Count a model's forward passes."""
    count = 0

    def hook(*_: object) -> None:
        nonlocal count
        count += 1

    handle = model.register_forward_pre_hook(hook)
    try:
        yield lambda: count
    finally:
        handle.remove()


def predicted(trace: Trace, policy: Policy) -> list[Passes]:
    """The same counts by replay."""
    outputs = trace.sequences["output_tokens"].to_pylist()
    return [
        Passes(len(steps), sum(drafted for _, _, drafted, _ in steps), output)
        for steps, output in zip(replayed(trace, policy), outputs, strict=True)
    ]


def main() -> int:
    """Print the table; 1 if a prompt differs."""
    options = _options()
    torch.set_num_threads(options.threads)
    pair = load_pair(options.target, options.draft, options.device)
    prompts = read_prompts(options.prompts, pair.tokenizer, pair.vocab_size)
    prompts = prompts[:: max(1, len(prompts) // options.n_prompts)][: options.n_prompts]
    n, rules = options.max_new_tokens, {name: RULES[name] for name in options.rule or RULES}
    grows = any(rule.schedule != "constant" for rule in rules.values())
    most = n if grows else max(rule.num_assistant_tokens for rule in rules.values())
    plan = Plan(max_new_tokens=n, max_draft=most, eos_token_ids=pair.eos_token_ids)
    trace = record(pair, prompts, plan)
    print(f"{len(prompts)} prompts, T_max {n}, greedy float32, transformers", end=" ")
    print(transformers.__version__)
    print("| policy | target passes | steps | draft passes | drafted | prompts equal | s |")
    print("|---|---|---|---|---|---|---|")
    wrong = 0
    for spec, rule in rules.items():
        start = time.perf_counter()
        theirs = generated(pair, prompts, rule, n, pair.eos_token_ids)
        seconds = time.perf_counter() - start
        ours = predicted(trace, policies.parse(_unbounded(spec, n)))
        equal = sum(a == b for a, b in zip(theirs, ours, strict=True))
        wrong += equal < len(prompts)
        print(_row(spec, theirs, ours, f"{equal} of {len(prompts)}", seconds), flush=True)
    return int(wrong > 0)


def _row(spec: str, theirs: list[Passes], ours: list[Passes], equal: str, seconds: float) -> str:
    target = [sum(run.target for run in runs) for runs in (theirs, ours)]
    draft = [sum(run.draft for run in runs) for runs in (theirs, ours)]
    cells = [f"`{spec}`", *target, *draft, equal, f"{seconds:.0f}"]
    return "| " + " | ".join(map(str, cells)) + " |"


def _unbounded(spec: str, max_new_tokens: int) -> str:
    """Hugging Face's heuristics know no ceiling."""
    if spec.startswith("heuristic"):
        return f"{spec[:-1]}, max_draft={max_new_tokens})"
    return spec


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--target", default=f"{REFERENCE}/models/target")
    parser.add_argument("--draft", default=f"{REFERENCE}/models/draft")
    parser.add_argument("--prompts", default=f"{REFERENCE}/prompts.jsonl")
    parser.add_argument("--n-prompts", type=int, default=32)
    parser.add_argument("--max-new-tokens", type=int, default=256)
    parser.add_argument("--rule", action="append", choices=RULES, help="default: every one")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
