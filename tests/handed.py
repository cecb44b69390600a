"""A straightforward decoder that is handed the output: it knows nothing of traces or caches.

The target is asked first: its own keyed draws make y. Then drafts are made token by token, each of
them verified at once, as the second coupling says (docs/drafters.md).
"""

import torch

from simkit.policies import Outcome
from traces.record import draws
from traces.record.statistics import (
    draft_rows,
    draft_statistics,
    draft_token,
    outcome_given,
    target_rows,
    target_token,
)


def logits_of(model, tokens):
    """(1, V), from a pass over the whole text."""
    with torch.inference_mode():
        return model(torch.tensor([tokens], device=model.device)).logits[:, -1]


def output_of(target, prompt, number, sampler, t_max, eos, seed=0):
    """y, drawn from p alone; and the keys of its positions, (1,) each."""
    key, tokens, keys = draws.first_key(seed, torch.tensor([number])), [], []
    while len(tokens) < t_max and not (tokens and tokens[-1] in eos):
        p = target_rows(logits_of(target, prompt + tokens), sampler)
        keys.append(key)
        tokens.append(int(target_token(p, key)))
        key = draws.next_key(key, torch.tensor([tokens[-1]]))
    return tokens, keys


class Remembering:
    """A causal LM that reads each text once, and answers it again as it did before."""

    def __init__(self, model):
        self.model, self.device, self.answers = model, model.device, {}

    def __call__(self, tokens):
        text = tuple(tokens[0].tolist())
        if text not in self.answers:
            self.answers[text] = self.model(tokens)
        return self.answers[text]


def remembering(propose):
    """What a drafter proposes behind known tokens and a draft, worked out once for each."""
    answers = {}

    def asked(known, tokens):
        key = tuple(known), tuple(tokens)
        if key not in answers:
            answers[key] = propose(known, tokens)
        return answers[key]

    return asked


class Handed:
    """Speculative decoding of known outputs.

    Args:
        target: a causal LM.
        propose: logits (1, V) of the next draft token, given the known text and the draft so far;
            None where the drafter proposes nothing more.
        policy: asked after every token.
        sampler: of both models.
        t_max: T_max.
        eos: tokens that end an output.
        by_start: whether what a draft draws is keyed by its start too.
    """

    def __init__(self, target, propose, policy, sampler, t_max, eos, by_start=False):
        self.by_start = by_start
        self.target, self.propose, self.policy = target, propose, policy
        self.sampler, self.t_max, self.eos = sampler, t_max, eos
        self.state = policy.begin(0)

    def decode(self, prompt, number, output, keys, first=1):
        """The steps (start, proposed, drafted, accepted) of one sequence."""
        if self.policy.carried == "sequence":
            self.state = self.policy.begin(number)
        i, steps = first, []
        while i <= len(output):
            tokens, passed = self._draft(prompt, output, keys, i)
            proposed = self.policy.proposed(self.state, len(tokens))
            accepted = min(proposed, passed)
            ended = accepted > 0 and tokens[accepted - 1] in self.eos
            outcome = Outcome(len(tokens), proposed, accepted, ended)
            self.state = self.policy.update(self.state, outcome)
            steps.append((i, proposed, len(tokens), accepted))
            i += accepted + (not ended)
            if ended:
                break
        return steps

    def _draft(self, prompt, output, keys, i):
        """A draft's tokens, and how many of them are accepted."""
        known, key = output[: i - 1], keys[i - 1]
        tokens, passed, fine = [], 0, True
        room = min(self.policy.limit(self.state, -1), self.t_max - i)
        while len(tokens) < room:
            logits = self.propose(prompt + known, tokens)
            if logits is None:
                break
            q = draft_rows(logits, self.sampler)
            own = draws.by_start(key, torch.tensor([i])) if self.by_start else key
            token = draft_token(q, own)
            if fine:
                p = target_rows(logits_of(self.target, prompt + known + tokens), self.sampler)
                y = torch.tensor([output[i - 1 + len(tokens)]])
                drawn = outcome_given(p, q, y, key, own)
                token, fine = drawn.draft_token, bool(drawn.accepted)
                passed += fine
            tokens.append(int(token))
            if self._stops(q, token, len(tokens)) or tokens[-1] in self.eos:
                break
            key = draws.next_key(key, token)
        return tokens, passed

    def _stops(self, q, token, depth):
        names = self.policy.columns(self.sampler)
        values = draft_statistics(q, token)
        row = tuple(float(values[name]) for name in names)
        stop, self.state = self.policy.trips(self.state, depth, row)
        return stop
