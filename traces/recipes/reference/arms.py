"""The arms of PARD-2's ablations: parallel drafters that differ in one setting.

``python -m traces.recipes.reference.arms train -o .work/arms``
``python -m traces.recipes.reference.arms measure -o .work/arms``

``train`` trains every arm with every seed (``parallel.py``), one after another, and
goes on where it was stopped; several may run at once. ``measure`` drafts with each from every start
of the greedy bundled trace, in float32, in the modes that the arm has, and writes how many tokens
are accepted to ``arms.parquet``: all that replays of fixed lengths need.
"""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from traces.arms import ARMS, ParallelArm
from traces.outputs import write_atomic
from traces.recipes.command import parser_of
from traces.recipes.reference.pair import load_target
from traces.trace import Trace, load

if TYPE_CHECKING:
    from torch import Tensor

    from traces.recipes.reference.answers import Answers
    from traces.recipes.reference.parallel import Drafter, Text

SEEDS = (0, 1, 2)
STEPS, BATCH = 300, 2
TRACE = "reference"
FEW = 4  # tokens that all starts draft; those whose are all accepted draft on


EVERY = (
    ParallelArm("cat", "four"),
    ParallelArm("pard", "none"),
    ParallelArm("cat", "one"),
    ParallelArm("pard", "one"),
    *(ParallelArm(f"decay={decay}", "one") for decay in (1.0, 0.8, 0.6)),
    ParallelArm("pard", "none", block=8),
    ParallelArm("pard", "one", block=8),
    *(ParallelArm("cat", "four", rho=rho) for rho in (0.0, 0.5, 0.2)),
)
"""Of PARD-2's Tables 3, 4 and 5; drafts of 16 and both modes are those of Tables 1 and 2."""


def folder(out: Path, arm: ParallelArm, seed: int) -> Path:
    """Of one training."""
    return out / f"{arm.name}-seed{seed}"


def train(out: Path, answers: Path, steps: int) -> None:
    """Train what is not trained, all arms of one seed before the next; see the module.

    Raises:
        CalledProcessError: a training failed; its log says why.
    """
    from filelock import FileLock, Timeout

    for seed in SEEDS:
        for arm in EVERY:
            place = folder(out, arm, seed)
            place.mkdir(parents=True, exist_ok=True)
            try:
                with FileLock(place / "lock", timeout=0), open(place / "log", "a") as log:
                    if (place / "training.json").exists():
                        continue
                    given = {"loss": arm.loss, "features": arm.features, "block": arm.block}
                    given |= {"rho": arm.rho, "seed": seed, "steps": steps, "batch": BATCH}
                    given |= {"answers": answers, "out": place}
                    words = [part for k, v in given.items() for part in (f"--{k}", str(v))]
                    command = [sys.executable, "-m", "traces.recipes.reference.parallel"]
                    print(place, flush=True)
                    subprocess.run(
                        [*command, "--unmeasured", *words], stdout=log, stderr=log, check=True
                    )
            except Timeout:
                continue  # another process trains it


def measure(out: Path, file: Path, trace: str) -> None:
    """Write the accepted tokens of every arm that is trained, from every start; see the module.

    What was measured before is kept beside the arm.

    Args:
        out: where the arms lie.
        file: to write.
        trace: a greedy one of the reference target.
    """
    recording = load(trace)
    texts, output = texts_of(recording)
    tables = []
    for seed in SEEDS:
        for arm in EVERY:
            place = folder(out, arm, seed)
            if not (place / "training.json").exists():
                continue
            for mode in arm.modes:
                known = place / f"accepted-{mode}-{recording.hash}.npy"
                if not known.exists():
                    found = np.concatenate(drafted(place, arm, mode, texts, output))
                    data = io.BytesIO()
                    np.save(data, found)
                    write_atomic(known, data.getvalue())
                    print(f"{place.name} {mode}: {found.mean():.3f} a start", flush=True)
                found = np.split(np.load(known), recording.position_offsets[1:-1])
                tables.append(_table(arm, seed, mode, found))
    about = {"trace": recording.hash, "steps": str(_steps(out))}
    data = io.BytesIO()
    whole = pa.concat_tables(tables).replace_schema_metadata(about)
    pq.write_table(whole, data, compression="zstd", compression_level=19)
    write_atomic(file, data.getvalue())


def texts_of(recording: Trace) -> tuple[Answers, Tensor]:
    """A trace's prompts and outputs as texts with the target's states, and its output matrix."""
    from traces.recipes.reference.answers import Answers, gather

    target, rows = load_target(), recording.sequences.to_pylist()
    given = [(row["prompt_tokens"] + row["output_tokens"], row["n_prompt"], False) for row in rows]
    return Answers.of(gather(target, given)), target.get_input_embeddings().weight.detach()


def drafted(
    place: Path, arm: ParallelArm, mode: str, texts: Answers, output: Tensor
) -> list[np.ndarray]:
    """Tokens accepted from every start of each text, at most `arm.block`; uint8."""
    import torch
    from safetensors.torch import load_file

    from traces.recipes.reference.net import SHAPES, Llama
    from traces.recipes.reference.parallel import (
        FEATURES,
        Drafter,
        ParallelSettings,
        features,
        text,
    )

    read = arm.features if mode == "dependent" else "none"
    drafter = Drafter(Llama(SHAPES["draft"]), FEATURES[read], output.shape[1]).eval()
    state = {f"net.{k}": v.float() for k, v in load_file(place / "model.safetensors").items()}
    if drafter.projection is not None:
        file = place / "projection.safetensors"
        state["projection.weight"] = load_file(file)["projection"].float()
    drafter.load_state_dict(state)
    settings = ParallelSettings(arm.loss, read, block=arm.block)
    found = []
    with torch.inference_mode():
        for row in range(len(texts.tokens)):
            one = text(texts, row, output)
            starts = torch.arange(one.n_prompt - 1, len(one.tokens) - 1)
            seen = features(settings, one)
            ahead = _followed(drafter, one, seen, starts, min(FEW, arm.block))
            deep = ahead == FEW  # few: only these are drafted to the end
            if arm.block > FEW and bool(deep.any()):
                ahead[deep] = _followed(drafter, one, seen, starts[deep], arm.block)
            found.append(ahead.numpy().astype(np.uint8))
    return found


def _followed(
    drafter: Drafter, one: Text, seen: Tensor | None, starts: Tensor, block: int
) -> Tensor:
    """Of drafts of `block` tokens, how many are the text's own, up to the first that is not."""
    import torch

    from traces.recipes.training.parallel_rows import make_rows

    rows = make_rows(one.n_prompt, len(one.tokens), [starts] * (block - 1))
    states = drafter.states(one.tokens, seen, rows)
    depth, start = rows.depth[rows.learns], rows.start[rows.learns]
    right = (states @ drafter.output.T).argmax(-1) == one.tokens[depth + start + 1]
    table = torch.zeros(block, len(one.tokens))
    table[depth, start] = right.float()
    return table[:, starts].cumprod(0).sum(0).long()


def _steps(out: Path) -> int:
    """Of training, the same for all."""
    found = {
        json.loads(file.read_text())["steps"] for file in sorted(out.glob("*-seed*/training.json"))
    }
    if len(found) != 1:
        sys.exit(f"error: arms were trained for {sorted(found)} steps: they cannot be compared")
    return found.pop()


def _table(arm: ParallelArm, seed: int, mode: str, found: Sequence[np.ndarray]) -> pa.Table:
    n = len(found)
    facts = {"loss": arm.loss, "features": arm.features, "mode": mode}
    columns = {name: pa.array([value] * n).dictionary_encode() for name, value in facts.items()}
    columns |= {"block": pa.array([arm.block] * n, pa.int16())}
    columns |= {"rho": pa.array([arm.rho] * n, pa.float64())}
    columns |= {"seed": pa.array([seed] * n, pa.int16())}
    columns |= {"accepted": pa.array([f.tolist() for f in found], pa.list_(pa.uint8()))}
    return pa.table(columns)


def main() -> None:
    """Command line."""
    parser = parser_of(__doc__)
    parser.add_argument("what", choices=("train", "measure"))
    parser.add_argument("-o", "--out", type=Path, default=Path(".work/arms"), metavar="DIR")
    parser.add_argument("--answers", type=Path, default=Path(".work/answers/states.npz"))
    parser.add_argument("--steps", type=int, default=STEPS, help="of each training")
    args = parser.parse_args()
    if args.what == "train":
        train(args.out, args.answers, args.steps)
    else:
        measure(args.out, ARMS, TRACE)


if __name__ == "__main__":
    main()
