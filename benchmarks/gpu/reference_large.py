"""A larger reference pair: trained, evaluated and recorded on a GPU, in calls of ten minutes.

Here, once (network; the pack has 16.3 MB):

    python -m traces.recipes.reference.corpus --work .work/reference        # minutes
    python -m benchmarks.gpu.reference_large --build .work/reference --pack .work/pack/corpus.xz

There, with `.work/pack` carried, until it says that nothing is left (two calls, one after the
other on one machine: the second finds in WORK what the first one made):

    python -m benchmarks.gpu.reference_large --pack .work/pack/corpus.xz --out DIR

Here again, with the folders DIR of all calls below one:

    python -m benchmarks.gpu.reference_large --unpack DIRS --work .work/reference-large

What is made, in this order, each kept in WORK: tokens, the target, the draft, an evaluation, a
greedy trace and one at T = 1 (with `--hidden`, a third one with the draft's states, from which
heads are trained; it is too large to be shipped). A call that comes to the end of its time writes
a checkpoint, or ends behind a shard. DIR gets the pair, then the traces, as archives in parts.

The corpus has 37 million tokens, at about 3.5 bits each for a target as good as this one: 130
million bits. A model of 28.7 million weights holds at most some 3.6 bits a weight (Morris et al.
2025, arXiv:2505.24832), 103 million, so it cannot learn the text by heart; one of 60 million could.
It sees each text four times, up to which repeats are nearly as good as new text (Muennighoff et al.
2023, arXiv:2305.16264). What it remembers is measured: its loss on windows that it was trained on
stands beside that on held-out ones. The draft is 16 times smaller, and has 2 layers of its 16. In
bfloat16 the pair is 61 MB, which is what one call may bring back.
"""

from __future__ import annotations

import argparse
import json
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from safetensors.torch import load_file

from benchmarks.gpu import corpus_pack, device_rates
from benchmarks.gpu.delivery import Budget, deliver, unpack, write_json
from traces.recipes.reference import evaluate, train, windows
from traces.recipes.reference.export import export
from traces.recipes.reference.net import Llama, Shape, save_weights
from traces.recipes.reference.pair import MODELS, PROMPTS
from traces.record.header import make_header
from traces.record.pair import Pair, load_pair, quiet
from traces.record.plan import Plan
from traces.record.prompts import Prompt, read_prompts
from traces.record.recorder import record
from traces.sampler import Sampler

WORK = Path(".work/reference-large")
PAIR = "pair-large"
EPOCHS = 4
DRAFT_STEPS = 2200  # as of the shipped pair


@dataclass(frozen=True)
class Size:
    """How large everything is; `steps` of target and draft, None: `EPOCHS` and `DRAFT_STEPS`."""

    shapes: dict[str, Shape]
    steps: tuple[int, int] | None
    batch: int
    length: int
    eval_windows: int
    eval_prompts: int
    eval_length: int
    per_task: int
    max_new_tokens: int
    max_draft: int
    batch_size: int
    n_problems: int


FULL = Size(
    shapes={"target": Shape(384, 16, 6, 960), "draft": Shape(192, 2, 3, 576)},
    steps=None,
    batch=128,
    length=768,
    eval_windows=64,
    eval_prompts=64,
    eval_length=512,
    per_task=64,
    max_new_tokens=256,
    max_draft=40,
    batch_size=64,
    n_problems=40_000,
)
TINY = Size(
    shapes={"target": Shape(32, 2, 2, 48), "draft": Shape(16, 1, 2, 32)},
    steps=(3, 3),
    batch=2,
    length=24,
    eval_windows=2,
    eval_prompts=0,
    eval_length=16,
    per_task=2,
    max_new_tokens=12,
    max_draft=40,
    batch_size=3,
    n_problems=300,
)


@dataclass
class Call:
    """One call of the command.

    Attributes:
        size: of everything.
        work: what lasts from call to call.
        out: what goes back.
        device: "cuda" or "cpu".
        budget: of time.
        seconds: of each stage that this call did.
    """

    size: Size
    work: Path
    out: Path
    device: str
    budget: Budget
    seconds: dict[str, float]

    @property
    def tokens(self) -> Path:
        """The corpus as tokens."""
        return self.work / "pack" / "tokens.npz"

    @property
    def pair(self) -> Path:
        """The folder of both models and what is known of them."""
        return self.work / PAIR

    @property
    def run(self) -> train.TrainingRun:
        """Settings of the training."""
        cuda, size = self.device.startswith("cuda"), self.size
        return train.TrainingRun(
            self.work, self.pair, self.device, cuda, size.batch, size.length, seed=1
        )

    def steps(self, name: str) -> int:
        """Optimiser steps of one model."""
        if self.size.steps:
            return self.size.steps[name == "draft"]
        if name == "draft":
            return DRAFT_STEPS
        n_tokens = json.loads(self.tokens.with_suffix(".json").read_text())
        text = sum(n for side, n in n_tokens.items() if side.endswith("train"))
        return round(EPOCHS * text / (self.size.batch * self.size.length))


def stages(call: Call, pack: Path, hidden: bool) -> list[tuple[str, Path, Callable[[], None]]]:
    """What there is to do: its name, the file that is there when it is done, and how."""
    folders = {name: call.pair / name / "config.json" for name in ("target", "draft")}
    sampled = Sampler(temperature=1.0)
    todo: list[tuple[str, Path, Callable[[], None]]] = [
        ("tokens", call.tokens, lambda: expand(call, pack)),
        ("target", folders["target"], lambda: train_one(call, "target")),
        ("draft", folders["draft"], lambda: train_one(call, "draft")),
        ("evaluation", call.pair / "evaluation.json", lambda: evaluate_pair(call)),
    ]
    plans = {"large": Plan(), "large-sampled": Plan(sampler=sampled)}
    if hidden:
        plans["large-hidden"] = Plan(hidden=True)
    for name, plan in plans.items():
        done = call.work / name / "sequences.parquet"
        todo.append((name, done, lambda name=name, plan=plan: record_trace(call, name, plan)))
    return todo


def expand(call: Call, pack: Path) -> None:
    """The pack's text as tokens."""
    counts = corpus_pack.expand(pack, call.tokens, call.size.n_problems)
    write_json(call.tokens.with_suffix(".json"), counts)


def load_net(call: Call, name: str) -> Llama:
    """A trained model in float32."""
    net = Llama(call.size.shapes[name])
    state = load_file(call.pair / name / "model.safetensors")
    net.load_state_dict({key: value.float() for key, value in state.items()})
    return net.to(call.device).eval()


def train_one(call: Call, name: str) -> None:
    """Train the target, or distil the draft from it, and write its folder."""
    torch.set_float32_matmul_precision("high")
    run = call.run
    data = windows.Windows(call.tokens, run.length, run.device)
    net = Llama(call.size.shapes[name]).initialise(run.seed + (name == "draft"))
    loss = train.next_token_loss(run)
    if name == "draft":
        teacher = load_net(call, "target").requires_grad_(False)
        teacher = train.compiled(teacher) if run.compile else teacher
        loss = train.distillation_loss(run, teacher)
    steps = call.steps(name)
    net, report = train.optimise(run, name, net, loss, data, steps, 0, call.budget.deadline)
    weights = call.work / f"{name}.safetensors"
    save_weights(net, weights)
    for file in ("tokenizer.json", "tokenizer_config.json"):
        (call.pair / name).mkdir(parents=True, exist_ok=True)
        shutil.copyfile(MODELS / name / file, call.pair / name / file)
    write_json(call.pair / f"training-{name}.json", report | train.versions(run.device))
    export(weights, call.size.shapes[name], call.pair / name)


def evaluate_pair(call: Call) -> None:
    """Held-out statistics, greedy agreement, and the target's loss on text that it has seen."""
    torch.set_float32_matmul_precision("highest")
    target, draft = load_net(call, "target"), load_net(call, "draft")
    rows = {
        side: {
            task: evaluate.held_out_row(target, draft, ids.to(call.device))
            for task, ids in windows.held_out(
                call.tokens, call.size.eval_length, call.size.eval_windows, side
            ).items()
        }
        for side in ("held", "train")
    }
    greedy = evaluate.greedy_table(target, draft, call.size.eval_prompts)
    found = {"held_out": rows["held"], "trained_on": rows["train"], "greedy": greedy}
    write_json(call.pair / "evaluation.json", found)


def chosen_prompts(pair: Pair, per_task: int) -> list[Prompt]:
    """The first shipped prompts of each task."""
    rows = read_prompts(PROMPTS, pair.tokenizer, pair.vocab_size)
    tasks = dict.fromkeys(row.task for row in rows)
    return [row for task in tasks for row in [r for r in rows if r.task == task][:per_task]]


def record_trace(call: Call, name: str, plan: Plan) -> None:
    """Record a trace in float32, or go on with it; ends behind a shard if time is over."""
    torch.set_float32_matmul_precision("highest")
    size, folder = call.size, call.work / name
    pair = load_pair(str(call.pair / "target"), str(call.pair / "draft"), call.device)
    rows = chosen_prompts(pair, size.per_task)
    plan = replace(
        plan,
        eos_token_ids=pair.eos_token_ids,
        max_new_tokens=size.max_new_tokens,
        max_draft=size.max_draft,
        batch_size=size.batch_size,
    )

    fresh = 0

    def on_token(n: int) -> None:
        nonlocal fresh
        fresh += n

    def on_shard(done: int) -> None:
        if fresh and done < len(rows):  # a call gets on by a shard at least
            call.budget.check()

    began = time.perf_counter()
    header = make_header(pair, rows, plan)
    n = record(pair, rows, folder, plan, header, True, on_token, on_shard)
    print(f"{name}: {n:,} tokens in {time.perf_counter() - began:.1f} s", flush=True)


def work_through(call: Call, todo: list[tuple[str, Path, Callable[[], None]]]) -> list[str]:
    """Do what is not done yet, while there is time; returns the names of what is left."""
    left = [stage for stage in todo if not stage[1].exists()]
    while left and call.budget.left_s > 0:
        name, _, act = left[0]
        began = time.perf_counter()
        try:
            act()
            left.pop(0)
        except TimeoutError:
            pass
        call.seconds[name] = time.perf_counter() - began
        print(f"{call.budget.spent_s:6.1f} s  {name}", flush=True)
    return [name for name, _, _ in left]


def print_table(evaluation: dict) -> None:
    """The evaluation as Markdown."""
    print("\n| task | target loss | on trained text | draft loss | overlap | acceptance |")
    print("|---|---|---|---|---|---|")
    for task, row in evaluation["held_out"].items():
        seen = evaluation["trained_on"][task]["target_loss_nats"]
        greedy = evaluation["greedy"].get(task, {}).get("greedy_acceptance", float("nan"))
        cells = (row["target_loss_nats"], seen, row["draft_loss_nats"], row["overlap"], greedy)
        print(f"| {task} | " + " | ".join(f"{cell:.3f}" for cell in cells) + " |")


def make(call: Call, pack: Path, hidden: bool) -> None:
    """One call there."""
    todo = stages(call, pack, hidden)
    left = work_through(call, todo)
    call.out.mkdir(parents=True, exist_ok=True)
    traces = [done.parent for name, done, _ in todo if name.startswith("large")]
    whole = [trace for trace in traces if (trace / "sequences.parquet").exists()]
    if (call.pair / "evaluation.json").exists():
        print_table(json.loads((call.pair / "evaluation.json").read_text()))
        whole.insert(0, call.pair)
    waiting = deliver(whole, call.out, call.work / "delivered", n_others=1)
    facts = device_rates.describe(torch.device(call.device)) | {
        "seconds": call.seconds,
        "left_to_do": left,
        "left_to_deliver": waiting,
    }
    write_json(call.out / "manifest.json", facts)
    todo_next = f"call it again: {', '.join(left + waiting)}" if left or waiting else "nothing left"
    print(f"{call.budget.spent_s:.0f} s, {todo_next}")


def main(argv: Sequence[str] | None = None) -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--build", type=Path, metavar="CORPUS", help="write the pack, no more")
    parser.add_argument("--unpack", type=Path, metavar="DIRS", help="put archives into --work")
    parser.add_argument("--pack", type=Path, default=Path(".work/pack/corpus.xz"))
    parser.add_argument("--work", type=Path, default=WORK)
    parser.add_argument("--out", type=Path, help="folder for what goes back; empty")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--hidden", action="store_true", help="a trace with states, too")
    parser.add_argument("--tiny", action="store_true", help="sizes for a test")
    parser.add_argument("--budget-s", type=float, default=480.0, help="no stage begins after it")
    arguments = parser.parse_args(argv)
    if arguments.build:
        size = corpus_pack.build(arguments.build, arguments.pack)
        print(f"{arguments.pack}: {size / 1e6:.1f} MB")
    elif arguments.unpack:
        print(f"{arguments.work}: {', '.join(unpack(arguments.unpack, arguments.work))}")
    elif arguments.out:
        quiet()
        size, budget = (TINY if arguments.tiny else FULL), Budget(arguments.budget_s)
        call = Call(size, arguments.work, arguments.out, arguments.device, budget, {})
        make(call, arguments.pack, arguments.hidden)
    else:
        parser.error("give --out, --build or --unpack")


if __name__ == "__main__":
    main()
