"""Several drafters in one decoder, against a decoder that is handed y and asks the real ones."""

import json
from functools import cache, partial

import numpy as np
import pytest
import torch
from handed import Handed, Remembering, logits_of, output_of
from pair_folders import model, pair_folder, simkit

from simkit import policies
from simkit.drafters.route import BestOf, parse
from simkit.policies import Outcome
from simkit.simulator.routed import routed
from traces import load
from traces.attach import registry
from traces.attach.drafter import Means
from traces.attach.run import attach

T_MAX, N_PROMPT = 14, 8
SUFFIX, NGRAM = "suffix(min_prob=0.2)", "ngram(length=4, least=1, most=2)"
CHOICES = (
    "route(suffix, small, least=2)",
    "route(ngram, suffix, small)",
    "route(suffix, small, score=1.5)",
    "route(suffix, small, least=2, policy='fixed(3)')",
    "best_of(suffix, small)",
    "best_of(ngram, other, small, policy='fixed(3)')",
)
SPECS = ("svip(h=0.9)", "heuristic(initial=2)")


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A greedy and a sampled recording of the target, with the same four drafters each."""
    folder = pair_folder(tmp_path_factory.mktemp("pair"))
    rows = [{"prompt_tokens": [k + 1, 7, (3 * k) % 39 + 1, 5] * 2} for k in range(16)]
    (folder / "prompts.jsonl").write_text("\n".join(map(json.dumps, rows)))
    for name, more in (("greedy", []), ("sampled", ["--temperature", 0.4, "--dtype", "float64"])):
        given = ["--target", folder / "target", "--device", "cpu", "--batch-size", 6, *more]
        given += ["--prompts", folder / "prompts.jsonl", "--out", folder / name]
        assert simkit(["record", *given, "--max-new-tokens", T_MAX]) == 0
        means = Means(str(folder / "target"), "cpu", max_draft=T_MAX)
        for drafter in ("draft", "other"):
            spec = registry.parse(f'model("{folder / drafter}")')
            attach(load(folder / name), spec, {"draft": "small"}.get(drafter, drafter), means)
        for spec in (SUFFIX, NGRAM):
            attach(load(folder / name), registry.parse(spec))
    return folder


@cache
def remembered(noise, dtype):
    return Remembering(model(noise).to(dtype))


class Asked:
    """A drafter as the decoder has it: it drafts from a known text under a policy of its own.

    Args:
        drafter: its name.
        policy: what it follows; None takes all that a rule proposes.
        trace: for the sampler and the ends of outputs.
        dtype: of the models.
    """

    def __init__(self, drafter, policy, trace, dtype):
        noise = {"small": 0.1, "other": 0.2}.get(drafter)
        self.rule = None if noise else registry.parse({"suffix": SUFFIX, "ngram": NGRAM}[drafter])
        self.model = remembered(noise, dtype) if noise else None
        self.dtype = dtype
        policy = policy or policies.Fixed(40)
        eos = trace.eos_token_ids
        self.hand = Handed(remembered(0.0, dtype), self.propose, policy, trace.sampler, T_MAX, eos)

    def whole(self, known):
        """All that the rule proposes behind a known text, and its score; what is left is known."""
        text, eos = np.array([*known, 1], np.int32), np.array([0], np.int32)
        left = T_MAX - (len(known) - N_PROMPT)
        found = self.rule.propose(text, len(known), eos, left)
        tokens = [int(token) for token in found.draft(1)]
        return tokens, float(np.sum([] if found.score is None else found.score[: len(tokens)]))

    def propose(self, known, tokens):
        if self.model is not None:
            return logits_of(self.model, known + tokens)
        draft, _ = self.whole(known)
        if len(tokens) >= len(draft):
            return None
        sure = torch.zeros(1, 40, dtype=self.dtype)
        sure[0, draft[len(tokens)]] = 1e4
        return sure

    def draft(self, prompt, output, keys, i):
        """Tokens, and how many of them are sent and accepted; and the state that it leaves."""
        before = self.hand.state
        tokens, passed = self.hand._draft(prompt, output, keys, i)
        proposed = self.hand.policy.proposed(self.hand.state, len(tokens))
        after, self.hand.state = self.hand.state, before
        return tokens, proposed, min(proposed, passed), after


def decode(choice, asked, prompt, number, output, keys, eos):
    """Steps (start, who, drafted, proposed, accepted) of one sequence."""
    for one in asked:
        if one.hand.policy.carried == "sequence":
            one.hand.state = one.hand.policy.begin(number)
    i, steps = 1, []
    while i <= len(output):
        who = choose(choice, asked, prompt, output, keys, i)
        tokens, proposed, accepted, state = asked[who].draft(prompt, output, keys, i)
        ended = accepted > 0 and tokens[accepted - 1] in eos
        outcome = Outcome(len(tokens), proposed, accepted, ended)
        asked[who].hand.state = asked[who].hand.policy.update(state, outcome)
        steps.append((i, who, len(tokens), proposed, accepted))
        i += accepted + 1
    return steps


def choose(choice, asked, prompt, output, keys, i):
    if isinstance(choice, BestOf):
        accepted = [one.draft(prompt, output, keys, i)[2] for one in asked]
        return accepted.index(max(accepted))
    for k, one in enumerate(asked[:-1]):
        tokens, score = one.whole(prompt + output[: i - 1])
        if len(tokens) >= choice.least and (choice.score is None or score >= choice.score):
            return k
    return len(asked) - 1


@pytest.mark.parametrize("text", CHOICES)
@pytest.mark.parametrize("name", ["greedy", "sampled"])
def test_it_replays_as_it_decodes(root, name, text):
    choice, recording = parse(text), load(root / name)
    dtype = torch.float64 if name == "sampled" else torch.float32
    rows = recording.sequences.to_pylist()
    make = partial(output_of, remembered(0.0, dtype), t_max=T_MAX, eos=recording.eos_token_ids)
    made = [make(r["prompt_tokens"], r["sequence"], recording.sampler) for r in rows]
    assert [output for output, _ in made] == [row["output_tokens"] for row in rows]
    traces = [load(root / name, drafter) for drafter in choice.drafters]
    for spec in SPECS:
        policy = policies.parse(spec)
        before = policies.parse(choice.policy) if choice.policy else None
        rules = [before] * (len(traces) - 1) + [policy]
        asked = [
            Asked(drafter, rule, recording, dtype)
            for drafter, rule in zip(choice.drafters, rules, strict=True)
        ]
        ends = recording.eos_token_ids
        expected = [
            decode(choice, asked, row["prompt_tokens"], row["sequence"], *y, ends)
            for row, y in zip(rows, made, strict=True)
        ]
        (run,) = routed(choice, traces, [policy])
        steps, _ = run.steps()
        columns = (steps.start, steps.by, steps.drafted, steps.proposed, steps.accepted)
        found = list(zip(*(column.tolist() for column in columns), strict=True))
        assert found == [step for steps in expected for step in steps]
        assert len({who for _, who, *_ in found}) > 1
