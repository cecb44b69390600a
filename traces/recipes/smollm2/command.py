"""What the commands that train this model's drafters share: arguments, what is read and written."""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import torch
from torch import nn

from traces.errors import UserError
from traces.fetch_smollm2 import default_folder, load_model
from traces.recipes.command import parser_of, say
from traces.recipes.smollm2.answers import ANSWERS, TYPES
from traces.recipes.smollm2.teacher import Texts
from traces.recipes.training.course import Training, clear
from traces.recipes.training.optimiser import tiny_as_zero, versions
from traces.record.pair import device_named, load_tokenizer, tokenizer_hash

Settings = TypeVar("Settings")
Net = TypeVar("Net", bound=nn.Module)


@dataclass(frozen=True)
class Job(Generic[Settings]):
    """One training, which goes on from the checkpoint in ``out``, if there is one.

    Attributes:
        settings: a dataclass, with ``steps``; a checkpoint of others is a ValueError.
        device: to train on.
        model: whose answers are learned.
        texts: these answers.
        out: the folder.
        say: told of the progress.
        stop_at: see `Training.run`.
        source: the model's folder.
    """

    settings: Settings
    device: str
    model: Any
    texts: Texts
    out: Path
    say: Callable[[str], None]
    stop_at: int | None = None
    source: Path = Path()

    @property
    def matrix(self) -> torch.Tensor:
        """The model's embeddings, which are its output matrix too."""
        return self.model.get_output_embeddings().weight.detach()

    def train(
        self,
        net: nn.Module,
        optimiser: torch.optim.Optimizer,
        update: Callable[[int], float],
        measure: Callable[[], dict[str, object]],
        every: tuple[int, int],
        about: Mapping[str, object] | None = None,
    ) -> dict[str, object]:
        """Train a net; what ``training.json`` says of it.

        Args:
            net: see `Training`, as for the others.
            optimiser: likewise.
            update: likewise.
            measure: likewise.
            every: steps between two checkpoints, and between two measurements.
            about: what else is said of it.
        """
        settings = asdict(self.settings)  # type: ignore[call-overload]
        training = Training(
            self.out,
            {**settings, "files": len(self.texts.files)},
            net,
            optimiser,
            update,
            self.say,
            checkpoint_steps=every[0],
            measure=measure,
            measure_steps=every[1],
        )
        training.run(self.stop_at)
        return {
            **settings,
            "parameters": sum(weight.numel() for weight in net.parameters()),
            "texts": len(self.texts.train),
            "tokens": self.texts.n_tokens,
            **versions(self.device),
            **(about or {}),
            "held_out": training.measured,
        }

    def tokenizer_hash(self) -> str:
        """Of the model's tokenizer, by which a draft model's folder names it."""
        return tokenizer_hash(load_tokenizer(str(self.source)))


def arguments(doc: str | None, usual: Settings) -> tuple[Settings, argparse.Namespace]:
    """Command line of a training: its settings, a dataclass, and where things lie."""
    parser = parser_of(doc)
    parser.add_argument("-o", "--out", type=Path, required=True, metavar="DIR")
    parser.add_argument("--answers", type=Path, default=ANSWERS)
    parser.add_argument("--model", type=Path, default=default_folder(), metavar="DIR")
    parser.add_argument("--device", default="cpu", help="cpu, or cuda")
    known = asdict(usual)  # type: ignore[call-overload]
    for name, value in known.items():
        choices = TYPES if name == "dtype" else None
        parser.add_argument(f"--{name}", type=type(value), default=value, choices=choices)
    given = parser.parse_args()
    for name, value in known.items():
        if isinstance(value, str):
            continue
        may_be_0 = not isinstance(value, int) or name in ("seed", "exit")
        asked, least = getattr(given, name), int(not may_be_0)
        if not least <= asked < math.inf:
            parser.error(f"--{name} must be a number of at least {least}, not {asked}")
    return type(usual)(**{name: getattr(given, name) for name in known}), given


@tiny_as_zero()
def run(
    doc: str | None,
    usual: Settings,
    train: Callable[[Job[Settings]], tuple[Net, dict[str, object]]],
    export: Callable[[Job[Settings], Net, dict[str, object]], None],
) -> None:
    """A command: train, and write the folder; what is not there is said in one line.

    Args:
        doc: of the command's module.
        usual: settings where others are not given.
        train: the net, and what is to be said of it.
        export: writes the folder of a net.
    """
    settings, given = arguments(doc, usual)
    began = time.process_time()
    try:
        device_named(given.device)
        model = load_model(given.model, getattr(given, "dtype", "bfloat16"))
        texts = Texts(given.answers)
        given.out.mkdir(parents=True, exist_ok=True)
        job = Job(settings, given.device, model, texts, given.out, say, source=given.model)
        net, said = train(job)
    except (UserError, ValueError) as problem:
        sys.exit(f"error: {problem}")
    said["cpu_seconds"] = round(time.process_time() - began)
    export(job, net, said)
    clear(given.out)
    print(json.dumps(said))
