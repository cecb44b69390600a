"""A ladder of drafts: copies of the model with few bits a weight, from bad to good.

``python -m traces.recipes.smollm2.rungs -o DIR [--only NAME …]``

Nothing is trained. Each rung is rounded by GPTQ on 32 texts of 256 tokens, chats that are not
recorded, and measured on 16 others. A rung that is there is not made again. Its folder is that of a
draft model (float16), with `packed.safetensors`: the same linear layers at their real size.

The model's own weights come as 4 bits in groups of 32 (see ``traces.fetch_smollm2``), so a copy at
4 bits in such groups would be the model itself.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor

from traces.fetch_smollm2 import default_folder, load_model
from traces.outputs import write_atomic
from traces.recipes.command import parser_of, say
from traces.recipes.smollm2 import prompts
from traces.recipes.smollm2.draft import agreement, export
from traces.recipes.smollm2.quantised import Rounded, Rung, quantise
from traces.record.pair import load_tokenizer, tokenizer_hash

RUNGS = (
    Rung("q2-g16", (2,), 16),
    Rung("q3-g64", (3,), 64),
    Rung("q3-g32", (3,), 32),
    Rung("q3-g16", (3,), 16),
    Rung("q4-g64", (4,), 64),
)
LENGTH, N_TEXTS, N_HELD = 256, 32, 16


def texts(tokenizer: Any) -> tuple[Tensor, Tensor]:
    """Texts to round on and to measure on, token ids (N, LENGTH): chats that are not recorded."""
    rows = [line["messages"] for line in prompts.to_train_on(prompts.load())]
    ids = [tokenizer.apply_chat_template(row, return_dict=False) for row in rows]
    long = [row[:LENGTH] for row in ids if len(row) >= LENGTH]
    spread = torch.tensor(long)[
        torch.randperm(len(long), generator=torch.Generator().manual_seed(0))
    ]
    return spread[:N_TEXTS], spread[N_TEXTS : N_TEXTS + N_HELD]


@torch.inference_mode()
def measure(model: Any, copy: Any, held: Tensor) -> dict[str, object]:
    """How far a copy agrees with the model at every position of texts."""
    said = ((model(input_ids=text[None]), copy(input_ids=text[None])) for text in held)
    return agreement((p.logits[0].softmax(-1), q.logits[0].softmax(-1)) for p, q in said)


def n_bytes(model: Any, found: dict[str, Rounded]) -> dict[str, int]:
    """Bytes of the rounded layers as they are stored, and of all else in float16."""
    packed = sum(x.nbytes for made in found.values() for x in made.packed().values())
    within = sum(made.codes.numel() for made in found.values())
    whole = sum(weight.numel() for weight in model.parameters())  # tied ones count once
    return {"rounded_bytes": packed, "other_bytes": 2 * (whole - within)}


def make(rung: Rung, source: Path, out: Path) -> dict[str, Any]:
    """Write a rung's folder.

    Returns:
        What its `training.json` says.
    """
    began = time.process_time()
    tokenizer = load_tokenizer(str(source))
    given, held = texts(tokenizer)
    model, copy = load_model(source, "float32"), load_model(source, "float32")
    found = quantise(copy, given, rung, say)
    record = {**rung._asdict(), **n_bytes(copy, found), **measure(model, copy, held)}
    record["cpu_seconds"] = round(time.process_time() - began)
    arrays = {f"{n}.{k}": x for n, made in found.items() for k, x in made.packed().items()}
    out.mkdir(parents=True, exist_ok=True)
    write_atomic(out / "packed.safetensors", save(arrays))
    export(copy, record, tokenizer_hash(tokenizer), out)
    return record


def main() -> None:
    """Command line."""
    parser = parser_of(__doc__)
    parser.add_argument("-o", "--out", type=Path, required=True, metavar="DIR")
    parser.add_argument("--model", type=Path, default=default_folder(), metavar="DIR")
    parser.add_argument("--only", nargs="+", choices=[rung.name for rung in RUNGS])
    args = parser.parse_args()
    for rung in RUNGS:
        folder = args.out / rung.name
        if args.only and rung.name not in args.only:
            continue
        if not (folder / "model.safetensors").exists():  # the last file that is written
            make(rung, args.model, folder)
        print((folder / "training.json").read_text().replace("\n", " "))


if __name__ == "__main__":
    main()
