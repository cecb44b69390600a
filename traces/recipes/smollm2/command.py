"""What the commands that train this model's drafters share: arguments, what is read and written."""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

from torch import nn

from traces.errors import UserError
from traces.fetch_smollm2 import default_folder, load_model
from traces.recipes.smollm2.answers import TYPES
from traces.recipes.smollm2.teacher import Texts
from traces.recipes.training.course import clear
from traces.recipes.training.optimiser import versions
from traces.record.pair import device_named

Settings = TypeVar("Settings")
Net = TypeVar("Net", bound=nn.Module)
Say = Callable[[str], None]


def arguments(doc: str, usual: Settings) -> tuple[Settings, argparse.Namespace]:
    """Command line of a training: its settings, a dataclass, and where things lie."""
    parser = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-o", "--out", type=Path, required=True, metavar="DIR")
    parser.add_argument("--answers", type=Path, default=Path(".work/smollm2/answers"))
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


def run(
    given: argparse.Namespace,
    train: Callable[[Any, Texts, Path, Say], tuple[Net, dict[str, object]]],
    export: Callable[[Net, Any, dict[str, object]], None],
) -> None:
    """Train, and write the folder; what is not there is said in one line.

    Args:
        given: of `arguments`.
        train: given the model, the texts, the folder and who is told of the progress: the net, and
            what is to be said of it.
        export: writes the folder of a net for the model.
    """
    began = time.process_time()
    try:
        device_named(given.device)
        model = load_model(given.model, getattr(given, "dtype", "bfloat16"))
        texts = Texts(given.answers)
        given.out.mkdir(parents=True, exist_ok=True)
        net, said = train(model, texts, given.out, lambda line: print(line, flush=True))
    except (UserError, ValueError) as problem:
        sys.exit(f"error: {problem}")
    said["cpu_seconds"] = round(time.process_time() - began)
    export(net, model, said)
    clear(given.out)
    print(json.dumps(said))


def record(settings: object, net: nn.Module, texts: Texts, device: str) -> dict[str, object]:
    """What ``training.json`` says of any of them."""
    return {
        **asdict(settings),  # type: ignore[call-overload]
        "parameters": sum(weight.numel() for weight in net.parameters()),
        "texts": len(texts.train),
        "tokens": texts.n_tokens,
        **versions(device),
    }
