"""Draft tokens that a drafter has read: its states behind them, and what the target says of them.

They are what the acceptance head is trained on and judged by ("Acceptance-Guided Adaptive
Speculative Decoding", section 2.3 and its public code). Behind the target's own text y_<i the
drafter proposes x̃_i, which the target would accept with probability min(1, p/q). The state that
judges it is the one that has consumed it: behind y_<i, or inside a mixed text, in which a share of
all tokens are such proposals. Of a mixed text the drafter gets what it gets of any text: tokens,
and if it reads them the target's features, which are of the mixed text, too. A draft cannot have
those: behind y_<i it reads x̃_i with the features that it has made itself. The paper's head is
trained on the former and asked about the latter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from traces.errors import RecordError
from traces.record.cache import Buffer
from traces.record.drafters.feature import Feature
from traces.record.drafters.nodes import NodeModel, Nodes, StartGroup, nodes_of
from traces.record.drafters.target import TargetRead
from traces.record.drafters.texts import Texts
from traces.record.drafters.vocabulary import named
from traces.record.forward import Forward
from traces.record.statistics import at, target_rows, widened
from traces.sampler import Sampler


class Consumed(NamedTuple):
    """Draft tokens of n positions of outputs, in any order; each is read by the drafter.

    Attributes:
        sequence: (n,) int64, of the recording.
        position: (n,) int64, 1-based, of the token.
        state: (n, H) float16, of the drafter, which has consumed the token.
        accept_prob: (n,) float32, min(1, p/q) with the target's processed p; q is at temperature 1,
            or the certainty of the likeliest token where the target is greedy.
        accepted: (n,) bool, whether it is the output's.
        entropy: (n,) float32, nats, of q.
        top1: (n,) float32, of q.
        top2: (n,) float32, of q.
        prob: (n,) float32, q of the token.
    """

    sequence: np.ndarray
    position: np.ndarray
    state: np.ndarray
    accept_prob: np.ndarray
    accepted: np.ndarray
    entropy: np.ndarray
    top1: np.ndarray
    top2: np.ndarray
    prob: np.ndarray


Proposed = dict[str, Tensor]
"""What is proposed behind the target's text at N starts, on the device.

`sequence`, `position` and `token` (N,), and what is said of the tokens, see `Consumed`.
"""


def consumed(
    network: Any,
    read: TargetRead,
    read_again: Callable[[Texts], tuple[Texts, Tensor]],
    sampler: Sampler,
    eos: Sequence[int],
    share: float,
    generator: torch.Generator,
) -> tuple[Consumed, Consumed]:
    """The likeliest tokens behind the target's text, and the proposals inside mixed texts.

    What a mixed text holds of the draft's is drawn from q if the target is sampled. An EOS is no
    part of either: drafting stops at one, so no head is asked behind it.

    Args:
        network: `Feature` or `NodeModel`.
        read: texts with the states that it reads, and the target's logits behind them.
        read_again: gives the same of other texts.
        sampler: of the target.
        eos: tokens that end an output.
        share: of a mixed text's tokens that are the draft's; 0: there are no mixed texts.
        generator: of all draws, on the CPU.

    Returns:
        sequences count from 0.

    Raises:
        RecordError: the network says nothing of its own tokens.
    """
    if not isinstance(network, Feature | NodeModel):
        raise RecordError("this drafter reads none of its own tokens: no head can judge them")
    best, states, drawn = [], [], []
    for group, nodes in nodes_of(network, read.texts, 1, 1):
        likeliest, sampled = _proposed(network, read, group, nodes, sampler, generator)
        best.append(likeliest)
        drawn.append(sampled)
        token = likeliest["token"]
        tree = torch.arange(len(token), device=token.device)
        nodes.below(tree, tree, token, 1)
        assert nodes.states is not None
        states.append(nodes.states)
    on_text = _columns(_joined(best), torch.cat(states), read.texts, eos)
    given = _joined(drawn), read_again, eos, share, generator
    return on_text, _mixed(network, read.texts, *given, states[0].shape[1])


def _proposed(
    network: Feature | NodeModel,
    read: TargetRead,
    group: StartGroup,
    nodes: Nodes,
    sampler: Sampler,
    generator: torch.Generator,
) -> tuple[Proposed, Proposed]:
    """The likeliest tokens of one position of all texts, and those that a mixed text takes."""
    texts = read.texts
    sequence = group.alive.nonzero(as_tuple=True)[0]
    position = group.start[group.alive]
    log_q = widened(nodes.roots()).log_softmax(-1)
    p = read.logits[sequence, position - 1]
    known = texts.tokens[sequence, texts.start + position - 1]
    given = network.ids, log_q, p, known, sampler
    place = {"sequence": sequence, "position": position}
    best = place | _judged(log_q.argmax(-1), *given)
    if sampler.greedy:
        return best, best
    column = torch.multinomial(log_q.exp().cpu(), 1, generator=generator)[:, 0]
    return best, place | _judged(column.to(log_q.device), *given)


def _judged(
    column: Tensor, ids: Tensor | None, log_q: Tensor, logits: Tensor, known: Tensor, sampler: Any
) -> Proposed:
    """The tokens of some columns of q (N, D), and what is said of them; p by its logits (N, V)."""
    token = named(column, ids)
    q, top = at(log_q, column).exp(), log_q.topk(min(2, log_q.shape[-1]), dim=-1).values.exp()
    p = target_rows(logits, sampler)
    accept = (p.best == token).to(q) if sampler.greedy else at(p.processed, token) / q
    return {
        "token": token,
        "accept_prob": accept.clamp(max=1),
        "accepted": token == known,
        "entropy": -(log_q.exp() * log_q.clamp_min(-1e30)).sum(-1),
        "top1": top[:, 0],
        "top2": top[:, -1],
        "prob": q,
    }


def _mixed(
    network: Any,
    texts: Texts,
    drawn: Proposed,
    read_again: Callable[[Texts], tuple[Texts, Tensor]],
    eos: Sequence[int],
    share: float,
    generator: torch.Generator,
    width: int,
) -> Consumed:
    """See `consumed`; states are `width` wide."""
    token = drawn["token"]
    chosen = torch.rand(len(token), generator=generator).to(token.device) < share
    chosen &= ~torch.isin(token, torch.tensor(list(eos), device=token.device))
    few = {name: values[chosen] for name, values in drawn.items()}
    if not len(few["token"]):
        return _columns(few, texts.tokens.new_zeros(0, width), texts, eos)
    tokens = texts.tokens.clone()
    place = few["sequence"], texts.start + few["position"] - 1
    tokens[place] = few["token"]
    mixed, _ = read_again(replace(texts, tokens=tokens, states=None))
    return _columns(few, _states(network, mixed)[place], texts, eos)


def _states(network: Any, texts: Texts) -> Tensor:
    """The drafter's state (B, W, H) behind every token of texts, in one pass over each."""
    width = texts.tokens.shape[1]
    if isinstance(network, NodeModel):
        forward = Forward(network.model, network.vocab_size, width, keep_hidden=True)
        forward.pass_(texts.tokens, texts.text_positions, texts.mask, 1)
        return forward.hidden
    return network.read(texts, Buffer(1, width))[1]


def _columns(given: Proposed, states: Tensor, texts: Texts, eos: Sequence[int]) -> Consumed:
    """On the host, without EOS."""
    token = given["token"]
    keep = ~torch.isin(token, torch.tensor(list(eos), device=token.device))
    keep &= given["position"] <= texts.n_output[given["sequence"]]
    columns = given | {"state": states.float()}
    kinds = {"sequence": np.int64, "position": np.int64, "state": np.float16, "accepted": np.bool_}
    return Consumed(
        **{
            name: columns[name][keep].cpu().numpy().astype(kinds.get(name, np.float32))
            for name in Consumed._fields
        }
    )


def _joined(parts: list[Proposed]) -> Proposed:
    return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
