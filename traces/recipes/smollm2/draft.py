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

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence

from traces.outputs import write_atomic
from traces.recipes.smollm2 import command
from traces.recipes.smollm2.directions import Directions, main_directions
from traces.recipes.smollm2.teacher import Text, Texts
from traces.recipes.training.course import Training
from traces.recipes.training.denormal import tiny_as_zero
from traces.recipes.training.folder import as_json, halves
from traces.recipes.training.likelihood import Vocabulary, log_likelihood
from traces.recipes.training.optimiser import make_optimiser, rate
from traces.record.pair import load_tokenizer, tokenizer_hash

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

    given = model.config.to_dict()
    kept = ("vocab_size", "max_position_embeddings", "rms_norm_eps", "rope_parameters")
    tokens = ("bos_token_id", "eos_token_id", "pad_token_id")
    return LlamaConfig(
        hidden_size=HIDDEN,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=HEADS,
        intermediate_size=FFN,
        tie_word_embeddings=True,
        **{name: given[name] for name in kept + tokens},
    )


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


def update(net: Any, optimiser: Any, loss: Tensor, rate_now: float) -> None:
    """One optimiser step."""
    loss.backward()
    torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    for group in optimiser.param_groups:
        group["lr"] = rate_now
    optimiser.step()
    optimiser.zero_grad(set_to_none=True)


@torch.inference_mode()
def measure(net: Any, matrix: Tensor, texts: Texts) -> dict[str, object]:
    """Overlap β and share of equal likeliest tokens over answers that are held out."""
    overlap, equal, n_rows = 0.0, 0, 0
    for place in texts.held[:HELD_OUT]:
        text = texts.text(place).to(str(matrix.device))
        answer = slice(text.n_prompt - 1, len(text.tokens) - 1)
        p = F.linear(text.states[answer].to(matrix.dtype), matrix).float().softmax(-1)
        q = net(input_ids=text.tokens[None]).logits[0, answer].float().softmax(-1)
        overlap += float(torch.minimum(p, q).sum())
        equal += int((p.argmax(-1) == q.argmax(-1)).sum())
        n_rows += len(p)
    return {"overlap": round(overlap / n_rows, 4), "same_top_token": round(equal / n_rows, 4)}


def train(
    settings: DraftSettings,
    device: str,
    model: Any,
    texts: Texts,
    out: Path,
    say: Callable[[str], None],
    stop_at: int | None = None,
) -> tuple[Any, dict[str, object]]:
    """Train from the checkpoint in ``out``, if there is one.

    Returns:
        The draft, and what is to be said of it.

    Raises:
        ValueError: the checkpoint is of other settings.
    """
    matrix = model.get_output_embeddings().weight.detach()
    directions = main_directions(matrix, texts.some_states(STATES), HIDDEN)
    net = make_net(model, directions, settings.seed).to(device)
    matrix, read = matrix.to(device), directions.read.to(device)

    def loss_of(step: int, some: list[Text], drawn: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        loss, apart = mean_losses(net, some, drawn, read)
        return loss, loss + (1 - step / settings.steps) * apart

    return net, distil(settings, device, net, matrix, loss_of, texts, out, say, stop_at)


def distil(
    settings: DraftSettings,
    device: str,
    net: Any,
    matrix: Tensor,
    loss_of: Callable[[int, list[Text], tuple[Tensor, Tensor]], tuple[Tensor, Tensor]],
    texts: Texts,
    out: Path,
    say: Callable[[str], None],
    stop_at: int | None = None,
) -> dict[str, object]:
    """Train a net from the checkpoint in ``out``, if there is one; what is to be said of it.

    Args:
        settings: of the training.
        device: where the net is.
        net: to train.
        matrix: the model's output matrix, on that device.
        loss_of: given a step's number, its texts and the vocabulary's part for the normaliser; the
            loss that is told, and what goes down.
        texts: to learn.
        out: the folder.
        say: told of the progress.
        stop_at: see `Training.run`.

    Raises:
        ValueError: the checkpoint is of other settings.
    """
    optimiser = make_optimiser(net, settings.rate)
    vocabulary = Vocabulary.of(texts.counts(len(matrix)), ALWAYS, DRAWN)
    halved = settings.dtype == "bfloat16"

    def step_of(step: int) -> float:
        rng = np.random.default_rng((settings.seed, step))
        some = [text.to(device) for text in texts.alike(rng, settings.batch)]
        tokens, weights = vocabulary.draw(rng)
        with torch.autocast(torch.device(device).type, torch.bfloat16, enabled=halved):
            loss, whole = loss_of(step, some, (tokens.to(device), weights.to(device)))
        update(net, optimiser, whole, rate(step, settings.steps, settings.rate))
        return float(loss.detach())

    training = Training(
        out,
        {**asdict(settings), "files": len(texts.files)},
        net,
        optimiser,
        step_of,
        say,
        CHECKPOINT_STEPS,
        lambda: measure(net, matrix, texts),
        MEASURE_STEPS,
    )
    training.run(stop_at)
    return command.record(settings, net, texts, device) | {"held_out": training.measured}


def export(net: Any, record: dict[str, object], tokenizer_sha256: str, out: Path) -> None:
    """Write the folder of a draft model, weights in float16; it names the model's tokenizer."""
    state = net.state_dict()
    state.pop("lm_head.weight", None)  # the embeddings
    shape = net.config.to_dict() | {"dtype": "float16", "architectures": ["LlamaForCausalLM"]}
    shape.pop("transformers_version", None)
    shape["tokenizer_sha256"] = tokenizer_sha256
    write_atomic(out / "config.json", as_json(shape))
    write_atomic(out / "training.json", as_json(record))
    write_atomic(out / "model.safetensors", halves(state))


@tiny_as_zero()
def main() -> None:
    """Train, write the folder."""
    settings, given = command.arguments(__doc__ or "", DraftSettings())

    def write(net: Any, model: Any, record: dict[str, object]) -> None:
        known = tokenizer_hash(load_tokenizer(str(given.model)))
        export(net, record, known, given.out)

    command.run(given, partial(train, settings, given.device), write)


if __name__ == "__main__":
    main()
