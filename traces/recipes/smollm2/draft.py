"""Distils an autoregressive draft model for SmolLM2-135M-Instruct from the model's own answers.

``python -m traces.recipes.smollm2.draft -o .work/smollm2/draft [--steps 6000]``

A Llama of its tokenizer. Its embeddings, which are its output matrix too, begin as the ``HIDDEN``
directions of the model's that carry most of its logits (``directions``). The loss is
KL(p || q) over the ``teacher.KEPT`` likeliest tokens and all others together, plus
``OVERLAP_WEIGHT`` (1 - overlap) of the same parts; a token of the prompt counts ``PROMPT_WEIGHT``.
In the beginning the distance to the model's state in those directions counts too. The sum over all
others takes the ``ALWAYS`` commonest tokens and, at each step, ``DRAWN`` of the rest. A command
that was stopped goes on from its checkpoint and ends in the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence

from traces.recipes.smollm2 import command
from traces.recipes.smollm2.directions import Directions, main_directions
from traces.recipes.smollm2.teacher import Text, Texts
from traces.recipes.training.folder import write_drafter
from traces.recipes.training.likelihood import Vocabulary, log_likelihood
from traces.recipes.training.optimiser import make_optimiser, rate, take_step

HIDDEN, LAYERS, HEADS, FFN = 144, 4, 6, 448
OVERLAP_WEIGHT = 1.0  # of 1 - overlap, beside the KL divergence
PROMPT_WEIGHT = 0.2  # of a row before the answer
ALWAYS, DRAWN = 2048, 1024  # tokens in the normaliser's sum
CHECKPOINT_STEPS = 100
MEASURE_STEPS = 500
HELD_OUT = 48  # texts that are measured
STATES = 40_000  # of which the main directions are taken


@dataclass(frozen=True)
class DraftSettings:
    """What the draft is trained with; ``batch`` is in texts, ``rate`` AdamW's at its peak.

    ``dtype`` is that of the products: a CPU without bfloat16 instructions is faster in float32.
    """

    seed: int = 0
    steps: int = 6000
    batch: int = 8
    rate: float = 2e-3
    dtype: str = "bfloat16"


def config_of(model: Any) -> Any:
    """The draft's configuration: small, and of the model's tokens."""
    from transformers import LlamaConfig

    return LlamaConfig(
        hidden_size=HIDDEN,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=HEADS,
        intermediate_size=FFN,
        tie_word_embeddings=True,
        **of_tokens(model),
    )


def of_tokens(model: Any) -> dict[str, Any]:
    """What the configuration of any small Llama has of the model's tokens and positions."""
    kept = ("vocab_size", "max_position_embeddings", "rms_norm_eps", "rope_parameters")
    tokens = ("bos_token_id", "eos_token_id", "pad_token_id")
    given = model.config.to_dict()
    return {name: given[name] for name in kept + tokens}


def make_net(model: Any, directions: Directions, seed: int) -> Any:
    """The draft before training; its embeddings are the model's in those directions."""
    from transformers import LlamaForCausalLM

    torch.manual_seed(seed)
    net: Any = LlamaForCausalLM(config_of(model))
    matrix = model.get_output_embeddings().weight.detach().float()
    net.get_input_embeddings().weight.data.copy_(matrix @ directions.out)
    return net


def rows_of(texts: list[Text]) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Tokens (B, L) padded behind, and of each row with a next token: its place, p and weight.

    Returns:
        tokens (B, L); places in the flat (B L) (n,); ids and probs (n, KEPT); weights (n,), which
        sum to 1.
    """
    tokens = pad_sequence([text.tokens for text in texts], batch_first=True)
    places, weights = [], []
    for n, text in enumerate(texts):
        row = torch.arange(len(text.tokens) - 1, device=tokens.device)
        places.append(n * tokens.shape[1] + row)
        weights.append(torch.where(row < text.n_prompt - 1, PROMPT_WEIGHT, 1.0))
    weight = torch.cat(weights)
    return (
        tokens,
        torch.cat(places),
        torch.cat([text.ids[:-1] for text in texts]),
        torch.cat([text.probs[:-1] for text in texts]),
        weight / weight.sum(),
    )


def row_losses(log_q: Tensor, p: Tensor) -> Tensor:
    """Loss (n,) of log q (n, KEPT) against p (n, KEPT) of the same tokens, and of all others."""
    q = log_q.exp()
    p_rest = (1 - p.sum(-1)).clamp_min(0)
    q_rest = (1 - q.sum(-1)).clamp_min(1e-6)
    divergence = (p * (p.clamp_min(1e-8).log() - log_q)).sum(-1)
    divergence = divergence + p_rest * (p_rest.clamp_min(1e-8).log() - q_rest.log())
    distance = 0.5 * ((p - q).abs().sum(-1) + (p_rest - q_rest).abs())
    return divergence + OVERLAP_WEIGHT * distance


def read_rows(
    net: Any, texts: list[Text], drawn: tuple[Tensor, Tensor]
) -> tuple[Tensor, Tensor, Tensor]:
    """Mean loss of some texts' rows, weighted; and their states (n, H) and weights (n,).

    Args:
        net: the draft.
        texts: of a batch.
        drawn: the vocabulary's part for its normaliser.
    """
    tokens, places, ids, p, weight = rows_of(texts)
    states = net.model(input_ids=tokens, use_cache=False).last_hidden_state
    states = states.flatten(0, 1)[places].float()
    log_q = log_likelihood(states, net.get_output_embeddings().weight, ids, drawn)
    return (row_losses(log_q, p) * weight).sum(), states, weight


def mean_losses(
    net: Any, texts: list[Text], drawn: tuple[Tensor, Tensor], read: Tensor
) -> tuple[Tensor, Tensor]:
    """The loss of `read_rows`, and the weighted squared distance of the rows' states.

    Args:
        net: the draft.
        texts: of a batch.
        drawn: the vocabulary's part for its normaliser.
        read: of ``Directions``.
    """
    loss, states, weight = read_rows(net, texts, drawn)
    with torch.autocast(states.device.type, enabled=False):
        wanted = torch.cat([text.states[:-1] for text in texts]).float() @ read.T
    return loss, ((states - wanted).square().mean(-1) * weight).sum()


def agreement(rows: Iterable[tuple[Tensor, Tensor]]) -> dict[str, object]:
    """Overlap β and share of equal likeliest tokens, of rows of probabilities p and q, (n, V)."""
    overlap, equal, n_rows = 0.0, 0, 0
    for p, q in rows:
        overlap += float(torch.minimum(p, q).sum())
        equal += int((p.argmax(-1) == q.argmax(-1)).sum())
        n_rows += len(p)
    return {"overlap": round(overlap / n_rows, 4), "same_top_token": round(equal / n_rows, 4)}


@torch.inference_mode()
def measure(net: Any, matrix: Tensor, texts: Texts) -> dict[str, object]:
    """How far the draft agrees with the model over answers that are held out."""

    def rows(text: Text) -> tuple[Tensor, Tensor]:
        answer = slice(text.n_prompt - 1, len(text.tokens) - 1)
        p = F.linear(text.states[answer].to(matrix.dtype), matrix).float().softmax(-1)
        return p, net(input_ids=text.tokens[None]).logits[0, answer].float().softmax(-1)

    some = (texts.text(place).to(str(matrix.device)) for place in texts.held[:HELD_OUT])
    return agreement(map(rows, some))


def train(job: command.Job[DraftSettings]) -> tuple[Any, dict[str, object]]:
    """The draft, trained, and what is to be said of it."""
    settings, matrix = job.settings, job.matrix
    directions = main_directions(matrix, job.texts.some_states(STATES), HIDDEN)
    net = make_net(job.model, directions, settings.seed).to(job.device)
    matrix, read = matrix.to(job.device), directions.read.to(job.device)

    def loss_of(step: int, some: list[Text], drawn: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        loss, apart = mean_losses(net, some, drawn, read)
        return loss, loss + (1 - step / settings.steps) * apart

    return net, distil(job, net, matrix, loss_of)


def distil(
    job: command.Job[Any],
    net: Any,
    matrix: Tensor,
    loss_of: Callable[[int, list[Text], tuple[Tensor, Tensor]], tuple[Tensor, Tensor]],
) -> dict[str, object]:
    """Train a net; what is to be said of it.

    Args:
        job: with `DraftSettings`.
        net: to train, where the job says.
        matrix: the model's output matrix, there too.
        loss_of: given a step's number, its texts and the vocabulary's part for the normaliser; the
            loss that is told, and what goes down.
    """
    settings, texts, device = job.settings, job.texts, job.device
    optimiser = make_optimiser(net, settings.rate)
    vocabulary = Vocabulary.of(texts.counts(len(matrix)), ALWAYS, DRAWN)
    halved = settings.dtype == "bfloat16"

    def update(step: int) -> float:
        rng = np.random.default_rng((settings.seed, step))
        some = [text.to(device) for text in texts.alike(rng, settings.batch)]
        tokens, weights = vocabulary.draw(rng)
        with torch.autocast(torch.device(device).type, torch.bfloat16, enabled=halved):
            loss, whole = loss_of(step, some, (tokens.to(device), weights.to(device)))
        whole.backward()
        take_step(net, optimiser, rate(step, settings.steps, settings.rate), clip=1.0)
        return float(loss.detach())

    every = CHECKPOINT_STEPS, MEASURE_STEPS
    return job.train(net, optimiser, update, lambda: measure(net, matrix, texts), every)


def export(net: Any, record: Mapping[str, object], tokenizer_sha256: str, out: Path) -> None:
    """Write the folder of a draft model, weights in float16; it names the model's tokenizer."""
    state = net.state_dict()
    state.pop("lm_head.weight", None)  # the embeddings
    shape = net.config.to_dict() | {"dtype": "float16", "architectures": ["LlamaForCausalLM"]}
    shape.pop("transformers_version", None)
    write_drafter(out, shape | {"tokenizer_sha256": tokenizer_sha256}, record, state)


def export_to(job: command.Job[Any], net: Any, record: dict[str, object]) -> None:
    """`export` into a job's folder."""
    export(net, record, job.tokenizer_hash(), job.out)


def main() -> None:
    """Train, write the folder."""
    command.run(__doc__, DraftSettings(), train, export_to)


if __name__ == "__main__":
    main()
