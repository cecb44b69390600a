"""What attaching a parallel drafter costs: `python -m benchmarks.attach_speed`.

The reference target follows outputs of the bundled traces, a batch of texts at a time: alone, with
nothing reduced, in one pass over the batch with its pads, and text by text as `simkit attach` has
it; and attached, with drafts of K tokens from every start and all statistics of their rows, in the
bytes of a file. Beside it stand the drafter's passes by themselves. The drafter has random weights
and the shape of the reference draft model. The arms take turns in one process, on one thread; times
are those of the processor, printed as medians, and attaching as ratios to both of the target alone;
parts of it to the target text by text. Last stand the multiplications that the drafter's matrices
ask for, to the target's. `--target`, `--recording` and `--drafter` name
another target, a recording of it and a drafter for it, which then runs without the target's states.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import torch
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

import traces
from traces import files
from traces.attach.drafter import Means
from traces.record.drafters.networks import ParallelDrafter
from traces.record.drafters.parallel import Parallel
from traces.record.drafters.running import Running
from traces.record.drafters.target import given_outputs
from traces.record.drafters.texts import Texts, make_texts
from traces.record.forward import Forward
from traces.record.pair import Alone, load_target, quiet
from traces.trace import Trace

MODELS = Path(__file__).parent.parent / "traces" / "reference" / "models"
RECORDINGS = ("reference", "reference-sampled")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split(":")[0])
    parser.add_argument("--length", type=int, default=16, help="K, tokens of a draft")
    parser.add_argument("--batches", type=int, default=2, help="of texts, of each trace")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--target", default=str(MODELS / "target"), metavar="DIR")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--drafter", metavar="DIR", help="default: one of random weights")
    parser.add_argument("--recording", nargs="*", default=RECORDINGS, metavar="TRACE")
    given = parser.parse_args()
    torch.set_num_threads(1)
    quiet()
    target = load_target(given.target, "cpu", given.dtype)
    means = Means(given.target, "cpu", given.dtype)
    print(
        "| outputs | tokens | target in one pass, s | text by text, s | attached, to one pass",
        end="",
    )
    print(" | to text by text | drafter's passes | statistics | multiplications |")
    print("|---|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        path = given.drafter or make_drafter(Path(folder))
        drafter = ParallelDrafter(path, given.length, "independent")
        for name in given.recording:
            print(line(name, target, means, drafter, given.batches, given.rounds), flush=True)


def make_drafter(folder: Path) -> str:
    """A parallel drafter of the reference draft model's shape, with random weights; its folder."""
    torch.manual_seed(0)
    config = LlamaConfig.from_pretrained(MODELS / "draft")
    LlamaForCausalLM(config).save_pretrained(folder)
    AutoTokenizer.from_pretrained(MODELS / "draft").save_pretrained(folder)
    settings = {"kind": "parallel", "mask_token_id": 0, "block": 16, "mode": "independent"}
    (folder / "drafter.json").write_text(json.dumps(settings))
    return str(folder)


def line(
    name: str, target: Alone, means: Means, drafter: ParallelDrafter, n_batches: int, rounds: int
) -> str:
    """The table's line of one trace."""
    recording = followed(name)
    opened = drafter.open(recording, means)
    assert isinstance(opened, Running)
    network = drafter.load(target, means.dtype or "float32")
    size, n = opened.header.batch_size, opened.header.n_shards
    batches = [round(k * n / n_batches) for k in range(n_batches)]
    tokens, read = 0, 0
    seconds: dict[str, float] = dict.fromkeys(("batch", "texts", "attached", "drafts"), 0.0)
    for index in batches:
        prompts, outputs = given_outputs(recording, index * size, size)
        tokens += sum(map(len, outputs))
        read += sum(len(prompt.tokens) for prompt in prompts)
        texts = make_texts([prompt.tokens for prompt in prompts], outputs)
        arms: dict[str, Callable[[], Any]] = {
            "batch": lambda texts=texts: follow(target, texts),
            "texts": lambda texts=texts: opened.reader.read(texts),
            "attached": lambda index=index: attach(opened, index),
            "drafts": lambda texts=texts: sum(1 for _ in network.draft(texts, drafter.length)),
        }
        for arm, taken in in_turns(arms, rounds).items():
            seconds[arm] += taken
    batch_s, texts_s, attached_s, drafts_s = seconds.values()
    shares = drafts_s, attached_s - drafts_s - texts_s
    ratios = attached_s / batch_s, *(s / texts_s for s in (attached_s, *shares))
    cells = [name, f"{tokens:,}", f"{batch_s:.2f}", f"{texts_s:.2f}"]
    ratios += (multiplications(network, target, drafter.length, read, tokens),)
    return f"| {' | '.join([*cells, *(f'{ratio:.2f}×' for ratio in ratios)])} |"


def followed(name: str) -> Trace:
    """A trace, taken for one of the second coupling: for its time that is the same."""
    there = traces.load(name)
    return Trace(replace(there.manifest, coupling="target"), there._source, there.path)


def follow(target: Alone, texts: Texts) -> None:
    """The target's one pass over known texts; of logits only those of outputs are worked out."""
    width = texts.tokens.shape[1]
    forward = Forward(target.target, target.vocab_size, width)
    forward.pass_(texts.tokens, texts.text_positions, texts.mask, width - texts.start + 1)


def attach(opened: Running, index: int) -> None:
    """One shard, down to the bytes of its file; the target reads it anew."""
    opened.reader.want(())  # forgets the last shard, which drafters of one run share
    for columns in opened.shard(index).values():
        files.encode(pa.table(dict(columns)))  # pyright: ignore[reportArgumentType]


def in_turns(arms: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """Median CPU seconds of each arm, behind a round that is not counted."""
    samples: dict[str, list[float]] = {name: [] for name in arms}
    for round_ in range(rounds + 1):
        for name, run in arms.items():
            begun = time.process_time()
            run()
            if round_:
                samples[name].append(time.process_time() - begun)
    return {name: statistics.median(taken) for name, taken in samples.items()}


def multiplications(
    network: Parallel, target: Alone, length: int, n_prompt: int, n_output: int
) -> float:
    """The drafter's, over all texts and K rows a start, to those of the target text by text.

    Of their matrices, at as many tokens of prompts and outputs; attention comes on top.
    """
    rows, columns = network.model, network.vocab_size if network.ids is None else len(network.ids)
    drafts = (_weights(rows) + rows.config.hidden_size * columns) * length * n_output
    read = _weights(rows) * (n_prompt + n_output)
    model = target.target
    logits = model.config.hidden_size * target.vocab_size * n_output
    return (read + drafts) / (_weights(model) * (n_prompt + n_output) + logits)


def _weights(model: Any) -> int:
    """Of all layers."""
    return sum(p.numel() for name, p in model.named_parameters() if ".layers." in name)


if __name__ == "__main__":
    main()
