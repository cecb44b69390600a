"""Trains a parallel drafter for the reference target: PARD's loss, PARD-2's, or fixed decays.

``python -m traces.recipes.reference.parallel --loss cat --features four --seed 0 -o DIR``

It starts from the reference draft model, whose ``<|pad|>`` becomes the mask, and is trained on
what ``answers.py`` wrote. Losses: ``pard`` is the cross-entropy of every row (PARD-2,
eq. 5); ``cat`` is weight x (0.1 CE + KL(p || q)), the confidences' product being the weight
(eqs. 9-12); ``decay=G`` has the weight G^k in its place. All divide by the sum of the weights, as
the public code does (eq. 11 by K). With features, the target's layers are added to the embeddings,
dropped for a whole text with chance rho. A command that was stopped goes on from its checkpoint and
ends in the same bytes.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from traces.outputs import write_atomic
from traces.recipes.command import parser_of, say
from traces.recipes.reference import answers
from traces.recipes.reference.answers import LAYERS, Answers
from traces.recipes.reference.export import config
from traces.recipes.reference.net import Llama, shipped
from traces.recipes.reference.pair import EOS_ID, MODELS, PAD_ID
from traces.recipes.training.course import Training, acceptance, clear
from traces.recipes.training.folder import as_json, halves, round_to_halves, write_drafter
from traces.recipes.training.optimiser import (
    make_optimiser,
    rate,
    take_step,
    tiny_as_zero,
    versions,
)
from traces.recipes.training.parallel_rows import (
    Rows,
    WeightedLoss,
    conditional_drop,
    every_start,
    make_rows,
    reached,
)

FEATURES = {"none": 0, "one": 1, "four": 4}  # layers of `LAYERS` that are read
FEATURE_SCALE = 0.02
CHECKPOINT_STEPS = 25
MEASURED = 8  # every so manieth start of held-out answers is measured
_GREEDY = 0.98  # share of an answer that its argmaxes explain; the states are float16


@dataclass(frozen=True)
class ParallelSettings:
    """What an arm is; ``batch`` is in texts, ``rate`` AdamW's at its peak."""

    loss: str = "cat"
    features: str = "none"
    rho: float = 0.1
    block: int = 8
    seed: int = 0
    steps: int = 400
    batch: int = 4
    rate: float = 1e-3

    def weights(self, rows: Rows, confidence: Tensor) -> Tensor:
        """What each row's loss counts (N,)."""
        if self.loss == "cat":
            return reached(rows, confidence)
        decay = 1.0 if self.loss == "pard" else float(self.loss.removeprefix("decay="))
        return decay ** rows.depth.to(confidence.dtype)


class Drafter(nn.Module):
    """The draft model and, if it has features, the linear map of the target's states."""

    def __init__(self, net: Llama, n_layers: int, width: int) -> None:
        super().__init__()
        self.net = net
        self.projection = None
        if n_layers:
            self.projection = nn.Linear(n_layers * width, net.shape.hidden, bias=False)
            nn.init.zeros_(self.projection.weight)  # the first step is the draft model's own

    def states(self, tokens: Tensor, states: Tensor | None, rows: Rows) -> Tensor:
        """Final states (rows that learn, H) over a text (T,); ``states`` (T, layers x H)."""
        own = rows.depth == 0
        ids = torch.where(own, tokens[rows.start], PAD_ID)
        x = self.net.model.embed_tokens(ids)
        if states is not None and self.projection is not None:
            t = self.projection(states * FEATURE_SCALE)
            t = F.pad(t[:-1], (0, 0, 1, 0))  # a token has the state behind the one before it
            x = x + t[rows.start]
        return self.net.rows(x[None], rows.position, rows.mask())[0][rows.learns]

    @property
    def output(self) -> Tensor:
        """The output matrix (V, H), which is the embedding."""
        return self.net.model.embed_tokens.weight


@dataclass(frozen=True)
class Text:
    """One text in float32, with the target's log p behind every token of prompt and answer."""

    tokens: Tensor
    n_prompt: int
    states: Tensor
    log_p: Tensor

    @property
    def confidence(self) -> Tensor:
        """The target's probability of each token (T,); 1 for the first."""
        found = self.log_p[:-1].gather(-1, self.tokens[1:, None])[:, 0].exp()
        return F.pad(found, (1, 0), value=1.0)


def text(some: Answers, row: int, output: Tensor) -> Text:
    """One of some texts; ``output`` is the target's output matrix (V, H)."""
    tokens, n_prompt, states = some.text(row)
    log_p = F.linear(states[:, : output.shape[1]], output).log_softmax(-1)
    return Text(tokens, n_prompt, states, log_p)


def features(settings: ParallelSettings, one: Text) -> Tensor | None:
    """What the drafter reads of the target's states."""
    n_layers = FEATURES[settings.features]
    return one.states[:, : n_layers * one.states.shape[1] // len(LAYERS)] if n_layers else None


def text_loss(
    settings: ParallelSettings, drafter: Drafter, one: Text, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Sum of the weighted losses of one text's rows, and of the weights."""
    kept = conditional_drop(one.n_prompt, len(one.tokens), settings.block, generator)
    rows = make_rows(one.n_prompt, len(one.tokens), kept)
    seen = features(settings, one)
    if seen is not None and torch.rand((), generator=generator) < settings.rho:
        seen = None
    states = drafter.states(one.tokens, seen, rows)
    at = rows.position[rows.learns]
    log_p = None if settings.loss == "pard" else one.log_p
    weight = settings.weights(rows, one.confidence)[rows.learns]
    token = one.tokens[at + 1]
    loss: Any = WeightedLoss.apply(states, drafter.output, log_p, at, token, weight)
    return loss, weight.sum()


def update(
    settings: ParallelSettings,
    drafter: Drafter,
    optimiser: torch.optim.Optimizer,
    train: Answers,
    output: Tensor,
    step: int,
) -> float:
    """One optimiser step on texts that are a function of (seed, step); returns the loss."""
    rng = np.random.default_rng((settings.seed, step))
    generator = torch.Generator().manual_seed(int(rng.integers(2**62)))
    chosen = rng.choice(len(train.tokens), settings.batch, replace=False)
    total, weight = 0.0, torch.zeros(())
    for row in chosen.tolist():
        loss, counted = text_loss(settings, drafter, text(train, row, output), generator)
        loss.backward()
        total, weight = total + float(loss.detach()), weight + counted
    new_rate = rate(step, settings.steps, settings.rate)
    take_step(drafter, optimiser, new_rate, clip=1.0, count=weight)
    return total / float(weight)


@torch.inference_mode()
def measure(
    settings: ParallelSettings,
    drafter: Drafter,
    held: Answers,
    output: Tensor,
    stride: int = MEASURED,
) -> dict[str, object]:
    """Acceptance at each depth along held-out answers, marginal: P(a >= j).

    Greedy texts are those that the target's argmax explains; there a token is accepted if it is the
    drafter's argmax. In the others it is accepted with chance min(1, q / p), as in the coupling
    for which the output does not know the drafter.
    """
    parts: dict[str, list[Tensor]] = {"greedy": [], "sampled": []}
    for row in range(len(held.tokens)):
        one = text(held, row, output)
        likeliest = one.log_p[one.n_prompt - 1 : -1].argmax(-1)
        greedy = bool((likeliest == one.tokens[one.n_prompt :]).float().mean() > _GREEDY)
        parts["greedy" if greedy else "sampled"].append(
            accepted(settings, drafter, one, greedy, stride)
        )
    return {name: acceptance(torch.cat(tables)) for name, tables in parts.items() if tables}


def accepted(
    settings: ParallelSettings, drafter: Drafter, one: Text, greedy: bool, stride: int
) -> Tensor:
    """Chance (starts, block) that each token of the drafts along one answer is accepted.

    It is given that those before it are, and 0 behind the answer's end.
    """
    starts = every_start(one.n_prompt, len(one.tokens), settings.block, stride)
    rows = make_rows(one.n_prompt, len(one.tokens), starts)
    states = drafter.states(one.tokens, features(settings, one), rows)
    log_q = F.linear(states, drafter.output).log_softmax(-1)
    depth, start = rows.depth[rows.learns], rows.start[rows.learns]
    wanted = one.tokens[depth + start + 1]
    if greedy:
        chance = (log_q.argmax(-1) == wanted).float()
    else:
        ratio = log_q - one.log_p[depth + start]
        chance = ratio.gather(-1, wanted[:, None])[:, 0].exp().clamp_max(1)
    table = torch.zeros(settings.block, len(one.tokens))
    table[depth, start] = chance
    return table[:, torch.arange(one.n_prompt - 1, len(one.tokens) - 1, stride)].T


def output_matrix() -> Tensor:
    """The target's (V, H)."""
    return shipped("target").model.embed_tokens.weight.detach()


def train(
    settings: ParallelSettings,
    texts: tuple[Answers, Answers | None],
    out: Path,
    say: Callable[[str], None],
    stop_at: int | None = None,
) -> Drafter:
    """Train one arm, from its checkpoint in ``out`` if there is one.

    Args:
        settings: of the arm.
        texts: to train on, and held out to measure on, if that is asked for.
        out: where the checkpoint lies.
        say: told of the progress.
        stop_at: end after this step, as a command does that is killed there.

    Raises:
        ValueError: the checkpoint is of another arm.
    """
    torch.manual_seed(settings.seed)
    output = output_matrix()
    drafter = Drafter(shipped("draft"), FEATURES[settings.features], output.shape[1])
    optimiser = make_optimiser(drafter, settings.rate)
    held = texts[1]
    training = Training(
        out,
        asdict(settings),
        drafter,
        optimiser,
        lambda step: update(settings, drafter, optimiser, texts[0], output, step),
        say,
        CHECKPOINT_STEPS,
        None if held is None else lambda: measure(settings, drafter, held, output),
        4 * CHECKPOINT_STEPS,
    )
    training.run(stop_at)
    return drafter


def export(
    settings: ParallelSettings, drafter: Drafter, record: dict[str, object], out: Path
) -> None:
    """Write the folder that ``traces.record.drafters.parallel`` reads, weights in float16."""
    settings_file: dict[str, object] = {
        "kind": "parallel",
        "mask_token_id": PAD_ID,
        "block": settings.block,
        "mode": "independent",
    }
    if drafter.projection is not None:
        n_layers = FEATURES[settings.features]
        settings_file |= {"mode": "dependent", "target_layers": list(LAYERS[:n_layers])}
        settings_file |= {"feature_scale": FEATURE_SCALE}
        projection = halves({"projection": drafter.projection.weight})
        write_atomic(out / "projection.safetensors", projection)
    ids: dict[str, object] = {"eos_token_id": EOS_ID, "pad_token_id": PAD_ID, "do_sample": False}
    write_atomic(out / "generation_config.json", as_json(ids))
    write_atomic(out / "drafter.json", as_json(settings_file))
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(MODELS / "draft" / name, out / name)
    shape = config(drafter.net.shape) | {"dtype": "float16"}
    write_drafter(out, shape, record, drafter.net.state_dict())


def parse() -> tuple[ParallelSettings, argparse.Namespace]:
    """Command line."""
    parser = parser_of(__doc__)
    parser.add_argument("-o", "--out", type=Path, required=True, metavar="DIR")
    parser.add_argument("--answers", type=Path, default=answers.STATES)
    parser.add_argument("--loss", default="cat", help="pard, cat, or decay=G with 0 < G <= 1")
    parser.add_argument("--features", choices=FEATURES, default="none", help="target layers read")
    parser.add_argument("--rho", type=float, default=0.1, help="share of texts without features")
    for name in ("block", "seed", "steps", "batch"):
        parser.add_argument(f"--{name}", type=int, default=getattr(ParallelSettings, name))
    parser.add_argument(
        "--rate", type=float, default=ParallelSettings.rate, help="peak learning rate"
    )
    parser.add_argument("--unmeasured", action="store_true", help="leave the held-out texts alone")
    args = parser.parse_args()
    name, _, decay = args.loss.partition("=")
    if args.loss not in ("pard", "cat") and not (name == "decay" and 0 < float(decay or 0) <= 1):
        parser.error(f"unknown loss {args.loss!r}")
    return ParallelSettings(**{k: getattr(args, k) for k in asdict(ParallelSettings())}), args


@tiny_as_zero()
def main() -> None:
    """Train one arm, write its folder, measure what was written."""
    settings, args = parse()
    args.out.mkdir(parents=True, exist_ok=True)
    texts, held = answers.load(args.answers)
    if args.unmeasured:
        held = None
    began = time.process_time()
    try:
        drafter = train(settings, (texts, held), args.out, say)
    except ValueError as problem:
        sys.exit(f"error: {problem}")
    seconds = round(time.process_time() - began)
    output = output_matrix()
    round_to_halves(drafter)  # what the folder holds is what is measured
    record: dict[str, object] = asdict(settings) | {
        "texts": len(texts.tokens),
        "answer_tokens": int((texts.n_text - texts.n_prompt).sum()),
        "cpu_seconds": seconds,
        **versions("cpu"),
    }
    if held is not None:
        record["held_out"] = measure(settings, drafter, held, output, stride=2)
        if drafter.projection is not None:
            alone = replace(settings, features="none")
            record["held_out_independent"] = measure(alone, drafter, held, output, stride=2)
        print(json.dumps(record["held_out"]))
    export(settings, drafter, record, args.out)
    clear(args.out)


if __name__ == "__main__":
    main()
