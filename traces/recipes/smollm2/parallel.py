"""Distils a parallel drafter (PARD-2) for SmolLM2-135M-Instruct from its own answers.

``python -m traces.recipes.smollm2.parallel -o .work/smollm2/parallel [--steps 2400]``

A Llama that borrows the model's embeddings and output matrix (``traces.record.drafters.borrowed``),
writes a reduced vocabulary, the tokens that the answers have most often, and reads the model's last
states. Rows of masks beside a text's own, which are dropped by depth (COD), weights by the model's
confidences (CAT) and the loss 0.1 CE + KL(p || q) are PARD-2's (arXiv 2605.08632): see
``parallel_rows.py``. In the beginning the distance to the model's state counts too, in
the directions that the maps begin with. A text is read without states with chance ``rho``. A
command that was stopped goes on from its checkpoint and ends in the same bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import LlamaConfig, LlamaForCausalLM

from traces.errors import UserError
from traces.outputs import write_atomic
from traces.recipes.smollm2 import command
from traces.recipes.smollm2.directions import (
    STATES,
    Directions,
    main_directions,
    next_state,
    start_as_identity,
)
from traces.recipes.smollm2.draft import of_tokens
from traces.recipes.smollm2.held_out import DEPTH, held_out
from traces.recipes.smollm2.teacher import Text, Texts
from traces.recipes.smollm2.vocabulary import ReducedVocabulary, commonest
from traces.recipes.training import row_attention
from traces.recipes.training.folder import as_json, halves, write_drafter
from traces.recipes.training.optimiser import make_optimiser, rate, take_step
from traces.recipes.training.parallel_rows import (
    CE_WEIGHT,
    Rows,
    conditional_drop,
    every_start,
    make_rows,
    reached,
)
from traces.recipes.training.sparse_loss import SparseCrossEntropy
from traces.record.drafters import borrowed
from traces.record.drafters.parallel import PROJECTION
from traces.record.drafters.vocabulary import tables

HEAD_DIM = 64
FEATURE_SCALE = 0.5  # the model's last states are about 2
CHECKPOINT_STEPS, MEASURE_STEPS = 50, 250


@dataclass(frozen=True)
class ParallelSettings:
    """What a drafter is and is trained with.

    ``batch`` is in texts, of whose prompts the last ``prompt`` tokens are read; ``rate`` is AdamW's
    at its peak.
    """

    seed: int = 0
    steps: int = 2400
    batch: int = 4
    rate: float = 2e-3
    ids: int = 8192
    hidden: int = 384
    layers: int = 2
    ffn: int = 768
    block: int = 8
    rho: float = 0.1
    prompt: int = 128


def config_of(model: Any, settings: ParallelSettings) -> dict[str, object]:
    """``config.json``: a small Llama of the model's tokens and positions.

    Raises:
        UserError: it is not as wide as its heads are.
    """
    if settings.hidden % HEAD_DIM:
        raise UserError(f"--hidden must be a multiple of {HEAD_DIM}, not {settings.hidden}")
    return {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "dtype": "float16",
        "hidden_size": settings.hidden,
        "num_hidden_layers": settings.layers,
        "num_attention_heads": settings.hidden // HEAD_DIM,
        "num_key_value_heads": settings.hidden // HEAD_DIM,
        "intermediate_size": settings.ffn,
        "tie_word_embeddings": False,
        **of_tokens(model),
    }


class Drafter(nn.Module):
    """The network, and the linear map of the model's states."""

    def __init__(self, net: LlamaForCausalLM, theirs: int) -> None:
        super().__init__()
        self.net: Any = net
        self.projection = nn.Linear(theirs, net.config.hidden_size, bias=False)

    def states(self, embedded: Tensor, seen: Tensor | None, rows: Rows) -> Tensor:
        """Final states (rows that learn, H) over a text.

        Args:
            embedded: the model's embeddings of its tokens (T, H of the model).
            seen: the model's states behind them (T, H of the model), or None.
            rows: of the text, on the same device.
        """
        own = self.net.model.embed_tokens
        with torch.autocast(embedded.device.type, torch.bfloat16):
            known = own.map(embedded)[rows.start].float()
            x = torch.where((rows.depth == 0)[:, None], known, own.mask)
            if seen is not None:
                t = self.projection(seen * FEATURE_SCALE)
                x = x + F.pad(t[:-1], (0, 0, 1, 0))[rows.start]  # of the token before
            out = self.net.model(
                inputs_embeds=x[None],
                position_ids=rows.position[None],
                attention_mask=rows.depth[None, None, None],  # not read: see `row_attention`
                use_cache=False,
                rows=rows,
            )
        return out.last_hidden_state[0][rows.learns].float()


def make_drafter(
    model: Any,
    settings: ParallelSettings,
    words: ReducedVocabulary,
    directions: Directions,
    first: Tensor,
) -> Drafter:
    """The drafter before training, which says the linear map ``first`` of `next_state` and no more.

    It does so in those directions; its layers add nothing yet.
    """
    torch.manual_seed(settings.seed)
    matrix = model.get_output_embeddings().weight.detach()
    sizes = LlamaConfig.from_dict(config_of(model, settings))
    sizes._attn_implementation = row_attention.NAME
    net: Any = borrowed.make(sizes, matrix.shape[1], len(words.ids))
    net.lm_head.load_state_dict(tables(words.ids, len(words.place)), strict=False)
    drafter = Drafter(net, matrix.shape[1])
    said = directions.read @ first  # (hidden, 2 H)
    net.model.embed_tokens.map.weight.data.copy_(said[:, : matrix.shape[1]])
    drafter.projection.weight.data.copy_(said[:, matrix.shape[1] :] / FEATURE_SCALE)
    net.lm_head.map.weight.data.copy_(directions.out)
    start_as_identity(net.model.layers)
    return drafter


def confidence(text: Text) -> Tensor:
    """The model's probability of each token of a text (T,); 1 for the first.

    Of one that is not among the likeliest at most the least of these is known, and what is left.
    """
    kept, probs = text.ids[:-1] == text.tokens[1:, None], text.probs[:-1]
    left = torch.minimum(probs[:, -1], 1 - probs.sum(-1)).clamp_min(1e-6)
    found = torch.where(kept.any(-1), (kept * probs).sum(-1), left)
    return F.pad(found, (1, 0), value=1.0)


def counted(words: ReducedVocabulary, text: Text, rows: Rows) -> tuple[Tensor, Tensor, Tensor]:
    """What the rows that learn are to say.

    Returns:
        places int64 and weights float32 (n, KEPT + 1) of the model's likeliest tokens and of the
        one that came, and each row's weight (n,).
    """
    weight = reached(rows, confidence(text))[rows.learns]
    at = rows.position[rows.learns]
    places, probs = words.wanted(text)
    came = words.place[text.tokens[at + 1]][:, None]
    places = torch.cat([places[at], came.clamp_min(0)], -1)
    weights = torch.cat([probs[at], CE_WEIGHT * (came >= 0)], -1)
    return places, weights * weight[:, None], weight


def update(
    settings: ParallelSettings,
    drafter: Drafter,
    optimiser: torch.optim.Optimizer,
    texts: Texts,
    words: ReducedVocabulary,
    matrix: Tensor,
    read: Tensor,
    step: int,
) -> float:
    """One optimiser step on texts that are a function of (seed, step); returns the loss."""
    rng = np.random.default_rng((settings.seed, step))
    generator = torch.Generator().manual_seed(int(rng.integers(2**62)))
    whole = drafter.net.lm_head.of_rows(matrix[words.ids].float())
    output = whole.detach().requires_grad_()  # its gradient is carried on once for all texts
    total, count = 0.0, 0.0
    for text in texts.alike(rng, settings.batch):
        text = text.cut(settings.prompt)
        n_text = len(text.tokens)
        kept = conditional_drop(text.n_prompt, n_text, settings.block, generator)
        rows = make_rows(text.n_prompt, n_text, kept).to(str(matrix.device))
        blind = bool(torch.rand((), generator=generator) < settings.rho)
        text = text.to(str(matrix.device))
        embedded = F.embedding(text.tokens, matrix).float()
        states = drafter.states(embedded, None if blind else text.states.float(), rows)
        places, weights, weight = counted(words, text, rows)
        loss: Any = SparseCrossEntropy.apply(states, output, places, weights)
        wanted = text.states[rows.position[rows.learns]].float() @ read.T
        apart = ((states - wanted).square().mean(-1) * weight).sum()
        (loss + (1 - step / settings.steps) * apart).backward()
        total, count = total + float(loss.detach()), count + float(weight.sum())
    whole.backward(output.grad)
    new_rate = rate(step, settings.steps, settings.rate)
    take_step(drafter, optimiser, new_rate, clip=1.0, count=count)
    return total / count


def proposals(
    drafter: Drafter, words: ReducedVocabulary, matrix: Tensor, text: Text, blind: bool = False
) -> Tensor:
    """Logits (answer's tokens, DEPTH, D), see `held_out`; those behind the text's end are 0."""
    n_text = len(text.tokens)
    starts = every_start(text.n_prompt, n_text, DEPTH)
    rows = make_rows(text.n_prompt, n_text, starts).to(str(matrix.device))
    embedded = F.embedding(text.tokens, matrix).float()
    states = drafter.states(embedded, None if blind else text.states.float(), rows)
    output = drafter.net.lm_head.of_rows(matrix[words.ids].float())
    logits = torch.zeros(n_text - text.n_prompt, DEPTH, len(words.ids), device=matrix.device)
    first = rows.start[rows.learns] - (text.n_prompt - 1)
    logits[first, rows.depth[rows.learns]] = F.linear(states.bfloat16(), output.bfloat16()).float()
    return logits


def train(job: command.Job[ParallelSettings]) -> tuple[Drafter, dict[str, object]]:
    """The drafter, trained, and what is to be said of it."""
    settings, texts, matrix = job.settings, job.texts, job.matrix.to(job.device)
    words = commonest(texts, settings.ids, len(matrix))
    covered = words.covered(texts, texts.held)
    some = texts.some_states(STATES)
    directions = main_directions(matrix.cpu()[words.ids], some, settings.hidden)
    first = next_state(texts, matrix.cpu())
    drafter = make_drafter(job.model, settings, words, directions, first).to(job.device)
    words, read = words.to(job.device), directions.read.to(job.device)
    maps = drafter.net.model.embed_tokens.map.weight, drafter.net.lm_head.map.weight
    optimiser = make_optimiser(drafter, settings.rate, [*maps, drafter.projection.weight])

    def measure(blind: bool = False) -> dict[str, object]:
        propose = partial(proposals, drafter, words, matrix, blind=blind)
        return held_out(texts, matrix, words.ids, propose)

    said = job.train(
        drafter,
        optimiser,
        lambda step: update(settings, drafter, optimiser, texts, words, matrix, read, step),
        measure,
        every=(CHECKPOINT_STEPS, MEASURE_STEPS),
        about={"covered": round(covered, 4)},
    )
    return drafter, said | {"held_out_independent": measure(blind=True)}


def export(
    settings: ParallelSettings, drafter: Drafter, model: Any, record: dict[str, object], out: Path
) -> None:
    """Write the folder that ``traces.record.drafters.parallel`` reads, weights in float16."""
    said: dict[str, object] = {
        "kind": "parallel",
        "embeddings": "target",
        "mask_token_id": model.config.vocab_size,
        "block": settings.block,
        "mode": "dependent",
        "target_layers": [-1],
        "feature_scale": FEATURE_SCALE,
    }
    write_atomic(out / "drafter.json", as_json(said))
    write_atomic(out / PROJECTION, halves({"projection": drafter.projection.weight}))
    write_drafter(out, config_of(model, settings), record, drafter.net.state_dict())


def main() -> None:
    """Train, write the folder."""
    command.run(
        __doc__,
        ParallelSettings(),
        train,
        lambda job, net, record: export(job.settings, net, job.model, record, job.out),
    )


if __name__ == "__main__":
    main()
