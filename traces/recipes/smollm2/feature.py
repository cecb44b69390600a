"""Distils a feature chain (EAGLE-1's network) for SmolLM2-135M-Instruct from its own answers.

``python -m traces.recipes.smollm2.feature -o .work/smollm2/feature [--steps 2000]``

From the model's last states behind t tokens and token t + 1 the chain says the state behind t + 1
tokens. It writes a reduced vocabulary: the rows of the model's output matrix of the tokens that
the answers have most often. Embeddings and output matrix are the model's. The loss is the
cross-entropy against the model's probabilities of that vocabulary, and ``distance`` x Smooth-L1 on
the states (EAGLE, arXiv 2401.15077, with the weights exchanged), as the logits see them: in the
states themselves a few directions of no consequence are by far the largest. It is that of
``depths`` tokens of the chain on its own states (EAGLE-3's training-time test, arXiv 2503.01840).
A command that was stopped goes on from its checkpoint and ends in the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import DynamicCache, LlamaConfig

from traces.recipes.smollm2 import command
from traces.recipes.smollm2.directions import metric, next_state, start_as_identity
from traces.recipes.smollm2.held_out import DEPTH, held_out
from traces.recipes.smollm2.teacher import Text, Texts
from traces.recipes.smollm2.vocabulary import ReducedVocabulary, commonest
from traces.recipes.training.folder import write_drafter
from traces.recipes.training.optimiser import make_optimiser, rate, take_step
from traces.recipes.training.sparse_loss import SparseCrossEntropy
from traces.record.drafters.eagle import Eagle1, Place
from traces.record.drafters.vocabulary import tables

DEPTH_WEIGHT = 0.8  # of a depth's loss, by that of the depth before; as in EAGLE-3's code
CHECKPOINT_STEPS, MEASURE_STEPS = 50, 250
_OF_THE_MODEL = (
    *("vocab_size", "hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim"),
    *("hidden_act", "attention_bias", "mlp_bias", "rms_norm_eps", "rope_parameters"),
    *("max_position_embeddings", "bos_token_id", "eos_token_id", "pad_token_id"),
)


@dataclass(frozen=True)
class FeatureSettings:
    """What a chain is and is trained with.

    ``batch`` is in texts, of whose prompts the last ``prompt`` tokens are read; ``rate`` is AdamW's
    at its peak.
    """

    seed: int = 0
    steps: int = 2000
    batch: int = 4
    rate: float = 3e-3
    ids: int = 8192
    ffn: int = 768
    depths: int = 2
    prompt: int = 128
    distance: float = 0.5


class Matrices(NamedTuple):
    """The model's embeddings and output matrix."""

    every: Tensor  # (V, H)
    few: Tensor  # (D, H), the rows of the reduced vocabulary
    metric: Tensor  # (H, H), of the states, see `directions`


def chain_config(model: Any, ffn: int) -> dict[str, object]:
    """``config.json``: one layer of the model, with a smaller feed-forward network."""
    given = model.config.to_dict()
    return {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLMEagle"],
        "dtype": "float16",
        "num_hidden_layers": 1,
        "intermediate_size": ffn,
        "tie_word_embeddings": False,
        **{name: given[name] for name in _OF_THE_MODEL},
    }


def make_net(
    model: Any, settings: FeatureSettings, words: ReducedVocabulary, first: Tensor
) -> Eagle1:
    """The chain before training, which says the linear map ``first`` of `next_state` and no more.

    The layer's own matrices begin at normal(0, 0.02), those that add to its input at 0.
    """
    sizes = LlamaConfig.from_dict(chain_config(model, settings.ffn))
    sizes._attn_implementation = "sdpa"
    net = Eagle1(sizes, bias=False, n_ids=len(words.ids))
    net.load_state_dict(tables(words.ids, len(words.place)), strict=False)
    generator = torch.Generator().manual_seed(settings.seed)
    for weight in net.parameters():
        if weight.dim() == 2:
            torch.nn.init.normal_(weight, std=0.02, generator=generator)
    net.fc.weight.data.copy_(first)
    start_as_identity(net.layers)
    return net


def chain(
    net: Eagle1, embedded: Tensor, states: Tensor, first: int, depths: int
) -> Iterator[tuple[Tensor, Tensor]]:
    """What the chain says of a text at each depth, behind the text's own tokens.

    Row t is the pair of the state behind token t and token t + 1. At depth j it reads the chain's
    own state of depth j - 1, of the row before; it sees the pairs of the model's states up to row
    t - j + 1, with which the draft began, and that draft's own rows.

    Args:
        net: of the chain.
        embedded: the model's embeddings of a text's tokens but the first (n, H).
        states: the model's behind its tokens but the last (n, H).
        first: the row with which the first draft begins.
        depths: how many.

    Yields:
        Rows (m,) of drafts at each depth, and the states (m, H) that are said there.
    """
    every = torch.arange(len(embedded), device=embedded.device)
    rows, cache, keys = every, DynamicCache(), []
    for depth in range(1, depths + 1):
        keys.append(rows)
        back = [rows[:, None] - others[None] for others in keys]  # from a row to those before it
        seen = [back[0] >= depth - 1, *(b == depth - own for own, b in enumerate(back[1:], 2))]
        mask = torch.cat(seen, -1)[None, None]
        place = Place(net.rotary(states[None], rows[None]), mask, cache)
        with torch.autocast(embedded.device.type, torch.bfloat16):
            said = net(embedded[rows][None], states[None], place)[0].float()
        said = said[first:] if depth == 1 else said
        yield every[first + depth - 1 :], said
        rows, states = every[first + depth :], said[:-1]
        if not len(rows):
            return


def text_loss(
    settings: FeatureSettings, net: Eagle1, words: ReducedVocabulary, known: Matrices, text: Text
) -> tuple[Tensor, float]:
    """Sum of the weighted losses over a text's answer, and of the weights."""
    states = text.states.float()
    places, probs = words.wanted(text)
    embedded = F.embedding(text.tokens[1:-1], known.every).float()
    total, count = torch.zeros((), device=states.device), 0.0
    parts = chain(net, embedded, states[:-2], text.n_prompt - 2, settings.depths)
    for depth, (rows, said) in enumerate(parts):
        behind, weight = rows + 1, DEPTH_WEIGHT**depth
        loss: Any = SparseCrossEntropy.apply(said, known.few, places[behind], probs[behind])
        seen = said @ known.metric, states[behind] @ known.metric
        gaps = F.smooth_l1_loss(*seen, reduction="sum")
        total = total + weight * (loss + settings.distance * gaps)
        count += weight * len(rows)
    return total, count


def update(
    settings: FeatureSettings,
    net: Eagle1,
    optimiser: torch.optim.Optimizer,
    texts: Texts,
    words: ReducedVocabulary,
    known: Matrices,
    step: int,
) -> float:
    """One optimiser step on texts that are a function of (seed, step); returns the loss."""
    total, count = 0.0, 0.0
    for text in texts.alike(np.random.default_rng((settings.seed, step)), settings.batch):
        text = text.cut(settings.prompt).to(str(known.few.device))
        loss, weight = text_loss(settings, net, words, known, text)
        loss.backward()
        total, count = total + float(loss.detach()), count + weight
    take_step(net, optimiser, rate(step, settings.steps, settings.rate), clip=1.0, count=count)
    return total / count


def proposals(net: Eagle1, known: Matrices, text: Text) -> Tensor:
    """Logits (answer's tokens, DEPTH, D), see `held_out`; those behind the text's end are 0."""
    embedded = F.embedding(text.tokens[1:-1], known.every).float()
    n_answer = len(text.tokens) - text.n_prompt
    logits = torch.zeros(n_answer, DEPTH, len(known.few), device=embedded.device)
    parts = chain(net, embedded, text.states[:-2].float(), text.n_prompt - 2, DEPTH)
    for depth, (rows, said) in enumerate(parts):
        logits[: len(rows), depth] = F.linear(said.bfloat16(), known.few.bfloat16())
    return logits


def train(job: command.Job[FeatureSettings]) -> tuple[Eagle1, dict[str, object]]:
    """The chain, trained, and what is to be said of it."""
    settings, texts, matrix = job.settings, job.texts, job.matrix.to(job.device)
    words = commonest(texts, settings.ids, len(matrix))
    covered = words.covered(texts, texts.held)
    net = make_net(job.model, settings, words, next_state(texts, matrix.cpu())).to(job.device)
    words = words.to(job.device)
    few = matrix[words.ids]
    known = Matrices(matrix, few, metric(few))
    optimiser = make_optimiser(net, settings.rate, [net.fc.weight])
    said = job.train(
        net,
        optimiser,
        lambda step: update(settings, net, optimiser, texts, words, known, step),
        lambda: held_out(texts, matrix, words.ids, partial(proposals, net, known)),
        every=(CHECKPOINT_STEPS, MEASURE_STEPS),
        about={"covered": round(covered, 4)},
    )
    return net, said


def export(
    settings: FeatureSettings, net: Eagle1, model: Any, record: dict[str, object], out: Path
) -> None:
    """Write the folder that ``traces.record.drafters.feature`` reads, weights in float16."""
    write_drafter(out, chain_config(model, settings.ffn), record, net.state_dict())


def main() -> None:
    """Train, write the folder."""
    command.run(
        __doc__,
        FeatureSettings(),
        train,
        lambda job, net, record: export(job.settings, net, job.model, record, job.out),
    )


if __name__ == "__main__":
    main()
