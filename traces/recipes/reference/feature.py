"""Trains a feature drafter (EAGLE-1's network) for the reference target.

``python -m traces.recipes.reference.feature --seed 0 -o DIR``

On what ``answers.py`` wrote: from the target's features behind t tokens, blurred with
uniform noise, and token t + 1, the drafter says the features behind t + 1 tokens. The loss is
Smooth-L1 on them plus 0.1 times the cross-entropy against the target's distribution, as in EAGLE
(arXiv 2401.15077, section 4.2 and the public code). Embeddings and output matrix are the target's.
A command that was stopped goes on from its checkpoint and ends in the same bytes.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import LlamaConfig

from traces.recipes.command import parser_of, say
from traces.recipes.reference import answers
from traces.recipes.reference.answers import Answers
from traces.recipes.reference.export import config
from traces.recipes.reference.net import SHAPES
from traces.recipes.reference.pair import load_target
from traces.recipes.training.course import Training, acceptance, clear
from traces.recipes.training.folder import write_drafter
from traces.recipes.training.optimiser import (
    make_optimiser,
    rate,
    take_step,
    tiny_as_zero,
    versions,
)
from traces.record.drafters import feature as recorded
from traces.record.drafters.eagle import Eagle1, Place
from traces.record.drafters.texts import make_texts

CE_WEIGHT = 0.1  # of the cross-entropy beside Smooth-L1
NOISE = 0.2  # the noise is uniform in ± NOISE / 2 x NOISE_LENGTH / tokens, as in EAGLE's code
NOISE_LENGTH = 512
CHECKPOINT_STEPS = 25
MEASURED_DEPTH = 8


@dataclass(frozen=True)
class FeatureSettings:
    """What a drafter is trained with; ``batch`` is in texts, ``rate`` AdamW's at its peak."""

    seed: int = 0
    steps: int = 1500
    batch: int = 4
    rate: float = 2e-3


def chain_config() -> dict[str, object]:
    """``config.json``: one layer of the target."""
    shape = config(SHAPES["target"]) | {"num_hidden_layers": 1, "tie_word_embeddings": False}
    return shape | {"architectures": ["LlamaForCausalLMEagle"], "dtype": "float16"}


def make_net(seed: int) -> Eagle1:
    """EAGLE-1's network at the target's width; matrices begin at normal(0, 0.02)."""
    sizes = LlamaConfig.from_dict(chain_config())
    sizes._attn_implementation = "sdpa"
    net = Eagle1(sizes, bias=False)
    generator = torch.Generator().manual_seed(seed)
    for weight in net.parameters():
        if weight.dim() == 2:
            torch.nn.init.normal_(weight, std=0.02, generator=generator)
    return net


def text_loss(
    net: Eagle1, matrix: Tensor, tokens: Tensor, states: Tensor, n_prompt: int, noise: Tensor
) -> Tensor:
    """Mean loss over the rows of one text's answer.

    Args:
        net: of the drafter.
        matrix: the target's embeddings and output matrix (V, H).
        tokens: of prompt and answer (T,).
        states: the target's behind each of them (T, H).
        n_prompt: tokens of the prompt.
        noise: added to the features that are read (T - 1, H).
    """
    found = features(net, matrix, tokens, states[:-1] + noise)
    answer = slice(n_prompt - 2, -1)  # the first of these rows proposes the answer's first token
    found, wanted = found[answer], states[1:][answer]
    p = F.linear(wanted, matrix).softmax(-1)
    distance = F.smooth_l1_loss(found, wanted)
    return distance + CE_WEIGHT * F.cross_entropy(F.linear(found, matrix), p)


def features(net: Eagle1, matrix: Tensor, tokens: Tensor, seen: Tensor) -> Tensor:
    """Features (T - 1, H) behind a text's tokens (T,) but the first, of those seen before them."""
    n = len(tokens) - 1
    bias = torch.full((n, n), torch.finfo(torch.float32).min).triu(1)[None, None]
    place = Place(net.rotary(seen[None], torch.arange(n)[None]), bias)
    return net(F.embedding(tokens[1:], matrix)[None], seen[None], place)[0]


def update(
    settings: FeatureSettings,
    net: Eagle1,
    optimiser: torch.optim.Optimizer,
    train: Answers,
    matrix: Tensor,
    step: int,
) -> float:
    """One optimiser step on texts that are a function of (seed, step); returns the loss."""
    rng = np.random.default_rng((settings.seed, step))
    generator = torch.Generator().manual_seed(int(rng.integers(2**62)))
    total = 0.0
    for row in rng.choice(len(train.tokens), settings.batch, replace=False).tolist():
        tokens, n_prompt, states = train.text(row)
        states = states[:, : matrix.shape[1]]
        noise = torch.rand(states[1:].shape, generator=generator) - 0.5
        noise *= NOISE * NOISE_LENGTH / len(tokens)
        loss = text_loss(net, matrix, tokens, states, n_prompt, noise) / settings.batch
        loss.backward()
        total += float(loss.detach())
    take_step(net, optimiser, rate(step, settings.steps, settings.rate), clip=0.5)
    return total


def measure(folder: Path, target: Any, held: Answers) -> dict[str, object]:
    """Marginal acceptance by depth of the folder's greedy chains along held-out greedy answers."""
    drafter = recorded.load(folder, target)
    parts = []
    for row in range(len(held.tokens)):
        tokens, n_prompt, states = held.text(row)
        states, ids = states[:, : drafter.output.shape[1]], tokens.tolist()
        best = (states[n_prompt - 1 : -1] @ drafter.output.T).argmax(-1)
        if float((best == tokens[n_prompt:]).float().mean()) < 0.98:
            continue  # an answer that was sampled; states are float16
        texts = make_texts([ids[:n_prompt]], [ids[n_prompt:]])
        texts = replace(texts, states=states[None])
        wanted = torch.tensor([*ids[n_prompt:], *[-1] * MEASURED_DEPTH])
        for drafts in drafter.draft(texts, MEASURED_DEPTH):
            assert drafts.tokens is not None
            known = wanted.unfold(0, MEASURED_DEPTH, 1)[drafts.start - 1]
            parts.append((drafts.tokens == known).float())
    return acceptance(torch.cat(parts))


def export(net: Eagle1, record: dict[str, object], out: Path) -> None:
    """Write the folder that ``traces.record.drafters.feature`` reads, weights in float16."""
    write_drafter(out, chain_config(), record, net.state_dict())


def train(
    settings: FeatureSettings,
    some: Answers,
    matrix: Tensor,
    out: Path,
    say: Callable[[str], None],
    stop_at: int | None = None,
) -> Eagle1:
    """Train from the checkpoint in ``out``, if there is one.

    Raises:
        ValueError: the checkpoint is of other settings.
    """
    net = make_net(settings.seed)
    optimiser = make_optimiser(net, settings.rate)
    training = Training(
        out,
        asdict(settings),
        net,
        optimiser,
        lambda step: update(settings, net, optimiser, some, matrix, step),
        say,
        CHECKPOINT_STEPS,
    )
    training.run(stop_at)
    return net


@tiny_as_zero()
def main() -> None:
    """Train, write the folder, measure what was written."""
    parser = parser_of(__doc__)
    parser.add_argument("-o", "--out", type=Path, required=True, metavar="DIR")
    parser.add_argument("--answers", type=Path, default=answers.STATES)
    for name, value in asdict(FeatureSettings()).items():
        parser.add_argument(f"--{name}", type=type(value), default=value)
    args = parser.parse_args()
    settings = FeatureSettings(**{name: getattr(args, name) for name in asdict(FeatureSettings())})
    args.out.mkdir(parents=True, exist_ok=True)
    some, held = answers.load(args.answers)
    target = load_target()
    began = time.process_time()
    try:
        net = train(settings, some, target.get_input_embeddings().weight.detach(), args.out, say)
    except ValueError as problem:
        sys.exit(f"error: {problem}")
    record: dict[str, object] = asdict(settings) | {"texts": len(some.tokens), **versions("cpu")}
    record["cpu_seconds"] = round(time.process_time() - began)
    export(net, record, args.out)
    record["held_out"] = measure(args.out, target, held)
    export(net, record, args.out)
    clear(args.out)
    print(json.dumps(record["held_out"]))


if __name__ == "__main__":
    main()
