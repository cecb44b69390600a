"""Train a head on some prompts of a trace, choose its epoch on others."""

from __future__ import annotations

import copy
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from simkit.errors import HeadError
from simkit.heads import files, registry, rows
from simkit.heads.drafts import check_deep, drafts
from simkit.heads.starts import StartHead
from simkit.heads.training_data import Labelled, Material, RecordedRows
from traces.trace import Trace

_FEWEST_PROMPTS = 5
_ROWS = 512  # of a step of a row head
_PROMPTS = 4  # of a step of the PACER head


@dataclass(frozen=True)
class TrainingSettings:
    """How to train.

    Attributes:
        epochs: passes over the training prompts; the best one is kept.
        learning_rate: AdamW's highest; it falls to 0 along a cosine.
        weight_decay: AdamW's.
        noise: standard deviation of the noise on a state in training, in units of the standard
            deviation that each of its numbers has over the training rows.
        starts: drafts of a prompt that an epoch draws for the PACER head; 0 takes all.
        test_share: of the prompts, for the reported figures.
        validation_share: of the prompts, for the choice of the epoch.
        seed: of the split, the weights and the order.
        device: to train on.
    """

    epochs: int = 12
    learning_rate: float = 1e-3
    weight_decay: float = 0.01
    noise: float = 0.5
    starts: int = 32
    test_share: float = 0.2
    validation_share: float = 0.15
    seed: int = 0
    device: str = "cpu"

    def __post_init__(self) -> None:
        if self.epochs < 1:
            raise HeadError(f"epochs must be at least 1, not {self.epochs}")
        if not 0 < self.learning_rate <= sys.float_info.max:
            raise HeadError(f"learning_rate must be > 0, not {self.learning_rate}")
        if not 0 <= self.noise <= sys.float_info.max:
            raise HeadError(f"noise must be >= 0, not {self.noise}")
        if self.starts < 0:
            raise HeadError(f"starts must be >= 0, not {self.starts}")
        try:
            torch.empty(0, device=self.device)
        except (RuntimeError, AssertionError) as error:
            reason = str(error).partition("\n")[0]
            raise HeadError(f"device {self.device!r} cannot be used: {reason}") from None


class Split(NamedTuple):
    """Which sequences are for what; each (S,) bool."""

    train: np.ndarray
    validation: np.ndarray
    test: np.ndarray


def split(trace: Trace, settings: TrainingSettings) -> Split:
    """Deal the prompts at random; one that was recorded several times goes to one part.

    Raises:
        HeadError: there are too few.
    """
    number = trace.prompt_numbers
    n = int(number.max(initial=-1)) + 1
    if n < _FEWEST_PROMPTS:
        raise HeadError(f"too few different prompts to train on: {n}; at least 5 are needed")
    order = np.random.default_rng(settings.seed).permutation(n)
    shares = (settings.test_share, settings.validation_share)
    n_test, n_validation = (max(1, round(share * n)) for share in shares)
    parts = np.split(order, [n_test, n_test + n_validation])
    test, validation, train = (np.isin(number, part) for part in parts)
    return Split(train, validation, test)


def train(
    kind: str,
    options: Mapping[str, Any],
    material: Material,
    parts: Split,
    settings: TrainingSettings,
    on_epoch: Callable[[int, float, float], None] = lambda epoch, train, validation: None,
) -> tuple[files.Head, dict[str, Any]]:
    """Train a head and keep the epoch with the least loss on the validation prompts.

    Args:
        kind: of the head.
        options: all of its kind.
        material: what to train it on.
        parts: which of its sequences are for what.
        settings: how to train.
        on_epoch: told its number from 1, the mean training loss and the validation loss, nats.

    Returns:
        the head, without facts, and how training went.

    Raises:
        HeadError: an option is out of range, or the loss is not a number.
    """
    place = torch.device(settings.device)
    devices = [place] if place.type == "cuda" else []
    with torch.random.fork_rng(devices):  # the caller's own draws go on as if nothing had been
        torch.manual_seed(settings.seed)
        return _trained(_Training(kind, options, material, parts, settings), on_epoch)


def _trained(
    given: _Training, on_epoch: Callable[[int, float, float], None]
) -> tuple[files.Head, dict[str, Any]]:
    """See `train`; with torch's own generator, which is seeded."""
    kind, options, material, _, settings = given
    module = files.build(kind, material.width, options).to(settings.device)
    task = _Drafts(given) if registry.get(kind).by_start else _ByRow(given)
    generator = np.random.default_rng(settings.seed)
    best, best_epoch, kept = math.inf, 0, module.state_dict()
    optimizer = torch.optim.AdamW(
        module.parameters(), settings.learning_rate, weight_decay=settings.weight_decay
    )
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, settings.epochs)
    for epoch in range(1, settings.epochs + 1):
        losses = []
        for loss_of in task.batches(generator):
            optimizer.zero_grad()
            loss = loss_of(module)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        mean = float(np.mean(losses))
        schedule.step()
        with torch.inference_mode():
            held_out = task.validation_loss(module)
        if not math.isfinite(mean + held_out):
            raise HeadError(f"the loss is {mean} in epoch {epoch}: lower --learning-rate")
        if held_out < best:
            best, best_epoch, kept = held_out, epoch, copy.deepcopy(module.state_dict())
        on_epoch(epoch, mean, held_out)
    module.load_state_dict(kept)
    how = {"epochs": settings.epochs, "best_epoch": best_epoch, "validation_loss": best}
    return files.Head(kind, material.width, dict(options), module.cpu().eval()), how


class _Training(NamedTuple):
    """What is trained, on what, and how: the arguments of `train`."""

    kind: str
    options: Mapping[str, Any]
    material: Material
    parts: Split
    settings: TrainingSettings


class _ByRow:
    """Rows by themselves."""

    def __init__(self, given: _Training) -> None:
        kind, options, material, parts, settings = given
        self.weights = options["accept_weight"], options["reject_weight"]
        train = material.to_train_on(kind, options, parts.train)
        held_out = material.asked(kind, options, parts.validation).rows
        self.rows, self.held_out = (_tensors(part, settings.device) for part in (train, held_out))
        self.noise = _Noise(train.state, settings)

    def batches(self, generator: np.random.Generator) -> Iterator[Callable[[nn.Module], Tensor]]:
        """The training steps of an epoch, each of which gives a module's loss: 512 rows."""
        states, labels = self.rows
        order = torch.from_numpy(generator.permutation(len(labels))).to(labels.device)
        for some in order.split(_ROWS):
            yield lambda module, some=some: rows.loss(
                module(self.noise(states[some])), labels[some], *self.weights
            )

    def validation_loss(self, module: nn.Module) -> float:
        """The mean loss over all validation rows."""
        states, labels = self.held_out
        return float(rows.loss(module(states), labels, *self.weights))


class _Drafts:
    """Packed drafts: of each prompt, some starts an epoch, and all their recorded depths."""

    def __init__(self, given: _Training) -> None:
        kind, options, material, parts, settings = given
        if not isinstance(material, RecordedRows):
            raise HeadError(f"the {kind} head is trained on recorded drafts, not on nodes of trees")
        self.layout, self.states = layout, states = material.layout, material.states
        self.max_depth, self.settings = options["max_depth"], settings
        check_deep(layout, self.max_depth)
        self.noise = _Noise(states.path[np.repeat(parts.train, layout.n_output)], settings)
        self.train, self.held_out = (
            np.flatnonzero(p).tolist() for p in (parts.train, parts.validation)
        )

    def batches(self, generator: np.random.Generator) -> Iterator[Callable[[nn.Module], Tensor]]:
        """See `_ByRow`: of 4 prompts."""
        order = generator.permutation(self.train)
        for first in range(0, len(order), _PROMPTS):
            some = order[first : first + _PROMPTS]
            chosen = [self._starts(int(sequence), generator) for sequence in some]
            yield lambda module, some=some, chosen=chosen: self._losses(
                module, some, chosen, self.noise
            ).mean()

    def validation_loss(self, module: nn.Module) -> float:
        """The mean loss over every fourth start of the validation prompts."""
        chosen = [np.arange(0, self.layout.n_output[sequence], 4) for sequence in self.held_out]
        parts = zip(self.held_out, chosen, strict=True)
        losses = [self._losses(module, [s], [starts]) for s, starts in parts]
        return float(torch.cat(losses).mean())

    def _starts(self, sequence: int, generator: np.random.Generator) -> np.ndarray:
        n = int(self.layout.n_output[sequence])
        wanted = self.settings.starts or n
        return np.sort(generator.permutation(n)[:wanted])

    def _losses(
        self,
        module: nn.Module,
        sequences: Iterable[int],
        chosen: list[np.ndarray],
        noise: Callable[[Tensor], Tensor] = lambda states: states,
    ) -> Tensor:
        """Of each recorded token of the chosen drafts, (n,)."""
        assert isinstance(module, StartHead)
        logits, labels = [], []
        for sequence, starts in zip(sequences, chosen, strict=True):
            some = drafts(self.layout, self.states, int(sequence), self.max_depth).pick(starts)
            out = module(
                noise(self._tensor(some.rows).float()),
                self._tensor(some.index),
                self._tensor(some.n_prefix),
            )
            recorded = self._tensor(some.recorded)
            logits.append(out[recorded])
            labels.append(self._tensor(some.accepted).float()[recorded])
        return functional.binary_cross_entropy_with_logits(
            torch.cat(logits), torch.cat(labels), reduction="none"
        )

    def _tensor(self, values: np.ndarray) -> Tensor:
        return torch.from_numpy(values).to(self.settings.device)


class _Noise:
    """Adds noise to states, so that a small set of prompts is not learnt by heart."""

    def __init__(self, rows: np.ndarray, settings: TrainingSettings) -> None:
        spread = rows.astype(np.float32).std(0) * np.float32(settings.noise)
        self.spread = torch.from_numpy(spread).to(settings.device)

    def __call__(self, states: Tensor) -> Tensor:
        return states + self.spread * torch.randn_like(states)


def _tensors(rows: Labelled, device: str) -> tuple[Tensor, Tensor]:
    return (
        torch.from_numpy(rows.state).to(device).float(),
        torch.from_numpy(rows.label).to(device),
    )
