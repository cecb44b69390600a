"""Trains the target, then distils the draft from it; resumable, on a CPU or a GPU.

``python -m traces.recipes.reference.train --out DIR [--device cuda --compile --minutes 4 1]``

Writes ``target.safetensors``, ``draft.safetensors`` and ``training.json`` to ``--out``. The number
of steps of each model is given with ``--steps``, or found from ``--minutes``: after 60 warm-up
steps the mean step time fixes it. Checkpoints lie in ``WORK/checkpoints``; a run that was stopped
goes on from the last one. Windows are a pure function of (seed, step).
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F

from traces.outputs import write_atomic
from traces.recipes.command import parser_of
from traces.recipes.reference import evaluate
from traces.recipes.reference.net import SHAPES, Llama, load_weights, save_weights
from traces.recipes.reference.windows import MIX, Windows
from traces.recipes.training.folder import as_json, as_torch
from traces.recipes.training.optimiser import make_optimiser, rate, take_step, versions

CALIBRATION = (30, 90)  # steps between which the step time is measured
CHECKPOINT_STEPS = 500
PEAK_RATE = {"target": 2.5e-3, "draft": 6e-3}  # at the width of SHAPES; it goes with 1 / width
OVERLAP_WEIGHT = 3.0  # of 1 - overlap, beside the KL divergence, in the draft's loss
Loss = Callable[[Llama, Tensor], Tensor]


@dataclass(frozen=True)
class TrainingRun:
    """Settings of one training run; ``batch`` is in windows, ``length`` in tokens."""

    work: Path
    out: Path
    device: str
    compile: bool
    batch: int
    length: int
    seed: int

    @property
    def dtype(self) -> torch.dtype:
        """Compute type: bfloat16 on a GPU, float32 on a CPU. Weights stay float32."""
        return torch.bfloat16 if self.device.startswith("cuda") else torch.float32


def next_token_loss(run: TrainingRun) -> Loss:
    """Cross-entropy of the next token, nats per token."""

    def head(x: Tensor, weight: Tensor, wanted: Tensor) -> Tensor:
        logits = F.linear(x, weight.to(x.dtype)).float()
        return F.cross_entropy(logits.flatten(0, 1), wanted.flatten())

    head = torch.compile(head) if run.compile else head

    def loss(net: Llama, ids: Tensor) -> Tensor:
        x = net.hidden(ids[:, :-1], run.dtype)
        return head(x, net.model.embed_tokens.weight, ids[:, 1:])

    return loss


def distillation_loss(run: TrainingRun, target: Llama) -> Loss:
    """KL(p || q) + OVERLAP_WEIGHT * (1 - overlap) against the target's p, nats per token."""

    def head(x: Tensor, weight: Tensor, y: Tensor, target_weight: Tensor) -> Tensor:
        log_q = F.log_softmax(F.linear(x, weight.to(x.dtype)).float(), dim=-1)
        log_p = F.log_softmax(F.linear(y, target_weight.to(y.dtype)).float(), dim=-1)
        p = log_p.exp()
        divergence = (p * (log_p - log_q)).sum(-1).mean()
        distance = 0.5 * (p - log_q.exp()).abs().sum(-1).mean()
        return divergence + OVERLAP_WEIGHT * distance

    head = torch.compile(head) if run.compile else head

    def loss(net: Llama, ids: Tensor) -> Tensor:
        with torch.no_grad():
            y = target.hidden(ids[:, :-1], run.dtype)
        x = net.hidden(ids[:, :-1], run.dtype)
        return head(x, net.model.embed_tokens.weight, y, target.model.embed_tokens.weight)

    return loss


def compiled(net: Llama) -> Llama:
    """Compile layer by layer: the layers are alike and share one compilation."""
    for layer in net.model.layers:
        layer.compile()
    return net


def optimise(
    run: TrainingRun,
    name: str,
    net: Llama,
    loss: Loss,
    windows: Windows,
    steps: int | None,
    minutes: float,
    deadline: float = math.inf,
) -> tuple[Llama, dict[str, object]]:
    """Train ``net`` in place; returns it and what ``training.json`` says of it.

    Raises:
        TimeoutError: ``deadline`` (of ``time.perf_counter``) has passed; the checkpoint is written.
    """
    net = net.to(run.device)
    net = compiled(net) if run.compile else net
    peak = PEAK_RATE[name] * SHAPES[name].hidden / net.shape.hidden
    optimiser = make_optimiser(net, peak)
    path = run.work / "checkpoints" / f"{name}.pt"
    step, began, losses = 0, time.perf_counter(), []
    if path.exists():
        state = torch.load(path, map_location=run.device, weights_only=True)
        net.load_state_dict(state["net"])
        optimiser.load_state_dict(state["optimiser"])
        step, steps = state["step"], state["steps"]
    while steps is None or step < steps:
        if steps is None and step in CALIBRATION:
            mean_loss = torch.stack(losses).mean().item()  # synchronises
            now = time.perf_counter()
            if step == CALIBRATION[0]:
                clock = now
            else:
                left_s = 60 * minutes - (now - began)
                steps = fitting_steps(name, step, now - clock, left_s, mean_loss)
        losses.append(update(run, net, optimiser, loss, windows, step, rate(step, steps, peak)))
        step += 1
        if step % 250 == 0:
            print(f"{name}: step {step}, loss {torch.stack(losses[-50:]).mean():.4f}", flush=True)
        if step % CHECKPOINT_STEPS == 0 or step == steps:
            save_checkpoint(path, net, optimiser, step, steps)
        elif time.perf_counter() > deadline:
            save_checkpoint(path, net, optimiser, step, steps)
            raise TimeoutError(f"{name}: stopped after {step} steps")
    seconds = time.perf_counter() - began
    return net, report(run, net, steps, peak, losses, seconds)


def fitting_steps(name: str, step: int, span_s: float, left_s: float, loss: float) -> int:
    """Steps in all, ``left_s`` from ``step`` on, at the speed of the ``CALIBRATION`` steps."""
    step_s = span_s / (CALIBRATION[1] - CALIBRATION[0])
    steps = max(step + 10, step + int(left_s / step_s))
    print(f"{name}: {step_s * 1e3:.1f} ms a step, {steps} steps, {loss:.3f}", flush=True)
    return steps


def report(
    run: TrainingRun, net: Llama, steps: int, peak: float, losses: list[Tensor], seconds: float
) -> dict[str, object]:
    """What ``training.json`` says of one model."""
    final = torch.stack(losses[-50:]).mean().item() if losses else None
    return {
        "steps": steps,
        "tokens": steps * run.batch * run.length,
        "parameters": net.shape.parameters,
        "shape": asdict(net.shape),
        "peak_learning_rate": peak,
        "final_loss_nats": final,
        "seconds": round(seconds, 1),
    }


def update(
    run: TrainingRun,
    net: Llama,
    optimiser: torch.optim.Optimizer,
    loss: Loss,
    windows: Windows,
    step: int,
    learning_rate: float,
) -> Tensor:
    """One optimiser step; returns the loss (a scalar on the device)."""
    ids = windows.batch(run.seed, step, run.batch)
    with torch.autocast(
        run.device.split(":")[0], torch.bfloat16, enabled=run.dtype == torch.bfloat16
    ):
        value = loss(net, ids)
    value.backward()
    take_step(net, optimiser, learning_rate, clip=1.0)
    return value.detach()


def save_checkpoint(
    path: Path, net: Llama, optimiser: torch.optim.Optimizer, step: int, steps: int | None
) -> None:
    """All that training goes on from; a process that is killed leaves the one before, or this."""
    state = {"net": net.state_dict(), "optimiser": optimiser.state_dict()}
    write_atomic(path, as_torch({**state, "step": step, "steps": steps}))


def parse() -> argparse.Namespace:
    """Command line."""
    parser = parser_of(__doc__)
    parser.add_argument("--work", type=Path, default=Path(".work/reference"))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--compile", action="store_true", help="torch.compile the layers")
    parser.add_argument("--steps", type=int, nargs=2, metavar=("TARGET", "DRAFT"))
    parser.add_argument(
        "--minutes",
        type=float,
        nargs=2,
        default=(40, 15),
        metavar=("TARGET", "DRAFT"),
        help="sets the steps where --steps is absent",
    )
    parser.add_argument("--batch", type=int, default=8, help="windows a step")
    parser.add_argument("--length", type=int, default=768, help="tokens a window")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--target",
        type=Path,
        metavar="FILE",
        help="target.safetensors (with its training.json) instead of training one",
    )
    parser.add_argument("--eval-windows", type=int, default=64, help="held-out windows a task")
    parser.add_argument("--eval-prompts", type=int, default=64, help="greedy prompts a task")
    return parser.parse_args()


def main() -> None:
    """Train both models, export them, evaluate them."""
    args = parse()
    run = TrainingRun(
        args.work, args.out, args.device, args.compile, args.batch, args.length, args.seed
    )
    torch.set_float32_matmul_precision("high")
    pack = run.work / "pack" / "tokens.npz"
    windows = Windows(pack, run.length, run.device)
    steps = args.steps or (None, None)
    record: dict[str, object] = {
        "seed": run.seed,
        "batch_windows": run.batch,
        "window_tokens": run.length,
        "mix": MIX,
        "overlap_weight": OVERLAP_WEIGHT,
        **versions(run.device),
    }
    final = run.out / "target.safetensors"
    if args.target:
        save_weights(load_weights("target", args.target), final)
        record["target"] = json.loads(args.target.with_name("training.json").read_text())["target"]
    else:
        target = Llama(SHAPES["target"]).initialise(run.seed)
        target, record["target"] = optimise(
            run, "target", target, next_token_loss(run), windows, steps[0], args.minutes[0]
        )
        save_weights(target, final)
    target = load_weights("target", final, run.device).requires_grad_(False)
    start = Llama(SHAPES["draft"]).initialise(run.seed + 1)
    target = compiled(target) if run.compile else target
    draft, record["draft"] = optimise(
        run, "draft", start, distillation_loss(run, target), windows, steps[1], args.minutes[1]
    )
    save_weights(draft, run.out / "draft.safetensors")
    write_atomic(run.out / "training.json", as_json(record))
    draft = load_weights("draft", run.out / "draft.safetensors", run.device)
    target = load_weights("target", final, run.device)
    record["held_out"] = evaluate.held_out_table(target, draft, pack, args.eval_windows)
    record["greedy"] = evaluate.greedy_table(target, draft, args.eval_prompts)
    write_atomic(run.out / "training.json", as_json(record))


if __name__ == "__main__":
    main()
