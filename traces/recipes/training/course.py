"""The course of a training: steps, checkpoints, what is measured, and how it goes on when stopped.

In the folder lie ``checkpoint.pt`` and, if anything is measured, ``course.json``. A training that
was stopped ends in the same bytes.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor, nn

from traces.outputs import write_atomic
from traces.recipes.training.folder import as_torch

CHECKPOINT, COURSE = "checkpoint.pt", "course.json"
_TOLD = 100  # steps whose mean loss is told, at most


@dataclass
class Training:
    """One training in a folder.

    Attributes:
        out: the folder.
        settings: that decide its bytes; a checkpoint of others is refused. ``steps`` is among them.
        net: that is trained.
        optimiser: of its weights.
        update: makes the step of a number, counted from 0, and returns its loss.
        say: told of the progress.
        checkpoint_steps: steps between two checkpoints.
        measure: what is known of texts that are held out, or None.
        measure_steps: steps between two measurements, a multiple of ``checkpoint_steps``; the last
            step is measured, too.
        measured: what ``measure`` found, with ``step``.
    """

    out: Path
    settings: dict[str, object]
    net: nn.Module
    optimiser: torch.optim.Optimizer
    update: Callable[[int], float]
    say: Callable[[str], None]
    checkpoint_steps: int
    measure: Callable[[], dict[str, object]] | None = None
    measure_steps: int = 0
    measured: list[dict[str, object]] = field(default_factory=list)

    def run(self, stop_at: int | None = None) -> None:
        """Go on from the checkpoint, if there is one, to the end.

        Args:
            stop_at: end after this step, as a command does that is killed there.

        Raises:
            ValueError: the checkpoint is of other settings.
        """
        step = self._load()
        self.measured = [row for row in self._known() if int(str(row["step"])) <= step]
        steps = int(str(self.settings["steps"]))
        losses, began = [], time.perf_counter()
        while step < min(steps, stop_at or steps):
            losses.append(self.update(step))
            step += 1
            if step % self.checkpoint_steps and step != steps:
                continue
            told = losses[-_TOLD:]
            seconds = (time.perf_counter() - began) / len(losses)
            line = f"step {step}, loss {sum(told) / len(told):.4f}, {seconds:.2f} s a step"
            if self.measure and (step % self.measure_steps == 0 or step == steps):
                found = self.measure()
                self.measured.append({"step": step, **found})
                write_atomic(self.out / COURSE, json.dumps(self.measured).encode())
                line += f", held out {json.dumps(found)}"
            self._save(step)
            self.say(line)

    def _known(self) -> list[dict[str, object]]:
        course = self.out / COURSE
        return json.loads(course.read_text()) if course.exists() else []

    def _save(self, step: int) -> None:
        """All that training goes on from; if it is killed here, the one before is left, or this."""
        parts = {"net": self.net.state_dict(), "optimiser": self.optimiser.state_dict()}
        state = {"settings": self.settings, **parts, "step": step}
        write_atomic(self.out / CHECKPOINT, as_torch(state))

    def _load(self) -> int:
        """Fill net and optimiser; the steps done, 0 where there is no checkpoint."""
        path = self.out / CHECKPOINT
        if not path.exists():
            return 0
        state = torch.load(path, weights_only=True)
        if state["settings"] != self.settings:
            raise ValueError(f"{path} is of another arm: {state['settings']}")
        self.net.load_state_dict(state["net"])
        self.optimiser.load_state_dict(state["optimiser"])
        return state["step"]


def clear(out: Path) -> None:
    """Remove what only a stopped training needs."""
    for name in (CHECKPOINT, COURSE):
        (out / name).unlink(missing_ok=True)


def acceptance(table: Tensor) -> dict[str, object]:
    """Marginal acceptance at each depth and the tokens accepted a step, as trainings report them.

    Args:
        table: chance (starts, K) that each token of a draft is accepted if those before it are.
    """
    marginal = table.cumprod(-1).mean(0)
    return {
        "by_depth": [round(float(a), 4) for a in marginal],
        "accepted_per_step": round(float(marginal.sum()), 4),
    }
