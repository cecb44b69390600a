"""What a drafter has read of its own tokens, against one text at a time; and heads of trees."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from test_feature_drafter import OUTPUTS, PROMPTS, V, make_target, write

from traces.record.cache import Buffer
from traces.record.drafters import feature
from traces.record.drafters.consumed import consumed
from traces.record.drafters.nodes import NodeModel
from traces.record.drafters.target import TargetRead
from traces.record.drafters.texts import make_texts
from traces.sampler import Sampler

EOS = (1, 44)


@pytest.fixture(scope="module")
def target():
    return make_target(torch.float64)


@pytest.fixture(params=["eagle1", "eagle3", "few", "model"])
def network(request, target, tmp_path):
    if request.param == "model":
        return NodeModel(target, V)
    return feature.load(write(tmp_path, request.param), target, dtype="float64")


def read(target, network, texts):
    """The target over one text at a time, as `Reader` does; states and logits."""
    shape = texts.tokens.shape
    states, logits = [], []
    for row in range(shape[0]):
        pad, end = int(texts.pads[row]), texts.start + int(texts.n_output[row])
        with torch.inference_mode():
            said = target(texts.tokens[row : row + 1, pad:end], output_hidden_states=True)
        joined = torch.cat([said.hidden_states[k][0] for k in network.layers or (0,)], -1)
        states.append(torch.zeros(shape[1], joined.shape[-1], dtype=joined.dtype))
        states[-1][pad:end] = joined
        logits.append(torch.zeros(shape[1] - texts.start + 1, V, dtype=joined.dtype))
        logits[-1][: end - texts.start + 1] = said.logits[0, texts.start - 1 - pad :]
    kept = torch.stack(states) if network.layers else None
    return replace(texts, states=kept), torch.stack(logits)


def state_of(network, target, known, before, drafting):
    """The drafter's state that has consumed the last token of a text, from scratch.

    Args:
        known: the text's tokens.
        before: the target's states behind all of them but the last.
        drafting: the last token is read with the drafter's own features, as drafts read it: the
            target has not seen the one before it yet.
    """
    if isinstance(network, NodeModel):
        with torch.inference_mode():
            found = target(torch.tensor([known]), output_hidden_states=True)
        return found.hidden_states[-1][0, -1]
    with torch.inference_mode():
        features = network.net.fused(before.to(network.embedded))
        if drafting:
            features[-1] = passed(network, known[1:-1], features[:-1])[-1]
        return passed(network, known[1:], features)[-1]


def passed(network, tokens, features):
    """One pass over all pairs."""
    n = len(tokens)
    mask, places = torch.ones(n, n).tril().bool()[None], torch.arange(n)[None]
    given = torch.tensor([tokens]), features[None], places, mask
    return network.step(*given, Buffer(1, n))[0]


@pytest.mark.parametrize("temperature", [0, 1])
def test_rows_are_those_of_one_text_at_a_time(network, target, temperature):
    texts, logits = read(target, network, make_texts(PROMPTS, OUTPUTS))
    sampler = Sampler(temperature=temperature)
    seen = []

    def again(mixed):
        seen.append(mixed)
        return read(target, network, mixed)

    generator = torch.Generator().manual_seed(3)
    given = TargetRead(texts, logits, {}), again, sampler, EOS, 0.5, generator
    on_text, mixed = consumed(network, *given)
    assert len(on_text.state) > 20 and len(mixed.state) > 10
    (changed,) = seen
    for part, there in ((on_text, texts), (mixed, changed)):
        for k in range(0, len(part.state), 3):
            row, position = int(part.sequence[k]), int(part.position[k])
            begin = len(PROMPTS[row])
            text = there.tokens[row, int(there.pads[row]) :].tolist()
            known = text[: begin + position - 1]
            full, said = read(target, network, alone(known, begin))
            q, p = draft_of(network, target, known, full), said[0, position - 1].softmax(-1)
            token = int(q.argmax()) if part is on_text else text[begin + position - 1]
            own = texts.tokens[row, int(texts.pads[row]) :].tolist()[: begin + position - 1]
            if part is mixed:  # it was proposed behind the target's own text
                plain_, said = read(target, network, alone(own, begin))
                q, p = draft_of(network, target, own, plain_), said[0, position - 1].softmax(-1)
            check_numbers(part, k, q, p, token, OUTPUTS[row][position - 1], temperature)
            before = None if full.states is None else full.states[0, : len(known)]
            assert token not in EOS
            if len(known) > 1 or isinstance(
                network, NodeModel
            ):  # else a draft begins without a pair
                given_ = [*known, token], before, part is on_text
                expected = state_of(network, target, *given_)
                np.testing.assert_allclose(part.state[k], expected.numpy(), rtol=2e-3, atol=2e-3)


def alone(known, begin):
    """One text, of which so many tokens are the prompt's; a last token is read by nobody."""
    return make_texts([known[:begin]], [[*known[begin:], 0]])


def draft_of(network, target, known, texts):
    """q behind a text, over all ids."""
    if isinstance(network, NodeModel):
        with torch.inference_mode():
            return target(torch.tensor([known])).logits[0, -1].softmax(-1)
    *_, drafts = network.draft(texts, 1)
    here = (drafts.sequence == 0) & (drafts.start == int(texts.n_output[0]))
    q = drafts.logits[here][0, 0].softmax(-1)
    return q if network.ids is None else torch.zeros(V).to(q).index_copy(0, network.ids, q)


def check_numbers(part, k, q, p, token, known, temperature):
    accept = min(1.0, float(p[token] / q[token])) if temperature else float(p.argmax() == token)
    assert part.accept_prob[k] == pytest.approx(accept, rel=1e-5)
    assert part.accepted[k] == (token == known)
    two = q.sort(descending=True).values[:2]
    numbers = part.prob[k], part.top1[k], part.top2[k]
    assert numbers == pytest.approx((float(q[token]), float(two[0]), float(two[1])), rel=1e-5)
    entropy = -float((q * q.clamp_min(1e-300).log()).sum())
    assert part.entropy[k] == pytest.approx(entropy, rel=1e-5)


def test_a_share_of_the_tokens_is_the_drafts(network, target):
    texts, logits = read(target, network, make_texts(PROMPTS, OUTPUTS))
    counts = {}
    for share in (0.0, 0.2, 0.5, 1.0):
        generator = torch.Generator().manual_seed(3)
        given = TargetRead(texts, logits, {}), lambda mixed: read(target, network, mixed)
        on_text, mixed = consumed(network, *given, Sampler(), EOS, share, generator)
        counts[share] = len(mixed.state)
    assert 0 == counts[0.0] < counts[0.2] < counts[0.5] < counts[1.0] <= sum(map(len, OUTPUTS))
    assert counts[1.0] == len(on_text.state)  # all but EOS
    for share in (0.2, 0.5):  # four standard deviations
        off = abs(counts[share] - share * counts[1.0])
        assert off <= 4 * (share * (1 - share) * counts[1.0]) ** 0.5
