"""How well the draft matches the target: on held-out text, and along the target's greedy output.

Symbols: p target, q draft, overlap = sum min(p, q), H(q, p) = -sum q log p, all at temperature 1.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from traces.outputs import write_atomic
from traces.recipes.reference import windows
from traces.recipes.reference.export import config
from traces.recipes.reference.net import Llama, shipped
from traces.recipes.reference.pair import EOS_ID, MODELS, PAD_ID, load_prompts, load_tokenizer
from traces.recipes.reference.sources import TASKS
from traces.recipes.training.folder import as_json

NEW_TOKENS = 256
LOOP_TOKENS = 64
EARLY_TOKENS = 64
Row = dict[str, float]


@torch.inference_mode()
def held_out_row(target: Llama, draft: Llama, ids: Tensor) -> Row:
    """Statistics over windows (B, T): losses in nats per token, overlap, entropy ratio."""
    parts = []
    for rows in ids.split(8):
        log_p, log_q = (F.log_softmax(net(rows[:, :-1]), dim=-1) for net in (target, draft))
        p, q, wanted = log_p.exp(), log_q.exp(), rows[:, 1:, None]
        entropy = -(q * log_q).sum(-1)
        parts.append(
            torch.stack(
                (
                    -log_p.gather(-1, wanted)[..., 0],
                    -log_q.gather(-1, wanted)[..., 0],
                    torch.minimum(p, q).sum(-1),
                    -(q * log_p).sum(-1) / entropy.clamp_min(1e-6),
                    (p.argmax(-1) == q.argmax(-1)).float(),
                    entropy,
                )
            )
            .flatten(1)
            .cpu()
        )
    table = torch.cat(parts, dim=1)
    mean = table.mean(1).tolist()
    return {
        "target_loss_nats": mean[0],
        "draft_loss_nats": mean[1],
        "overlap": mean[2],
        "median_cross_entropy_ratio": table[3].median().item(),
        "same_top1": mean[4],
        "draft_entropy_nats": mean[5],
    }


def held_out_table(target: Llama, draft: Llama, pack: Path, limit: int) -> dict[str, Row]:
    """``held_out_row`` for each task, printed as it goes."""
    device = next(target.parameters()).device
    table = {}
    for task, ids in windows.held_out(pack, 512, limit).items():
        table[task] = {
            k: round(v, 4) for k, v in held_out_row(target, draft, ids.to(device)).items()
        }
        print(task, table[task], flush=True)
    return table


@torch.inference_mode()
def greedy_outputs(target: Llama, prompts: list[list[int]], new_tokens: int) -> list[list[int]]:
    """Greedy continuations up to and with EOS, by transformers' ``generate``, as one batch."""
    from transformers import LlamaConfig, LlamaForCausalLM

    model: Any = LlamaForCausalLM(LlamaConfig.from_dict(config(target.shape))).eval()
    model.load_state_dict(target.state_dict(), strict=False)  # lm_head is the embedding
    model = model.to(next(target.parameters()).device)
    width = max(map(len, prompts))
    ids = torch.tensor([[PAD_ID] * (width - len(p)) + p for p in prompts], device=model.device)
    mask = torch.tensor(
        [[0] * (width - len(p)) + [1] * len(p) for p in prompts], device=model.device
    )
    rows = model.generate(ids, attention_mask=mask, max_new_tokens=new_tokens, do_sample=False)
    outputs = [row[width:] for row in rows.tolist()]
    return [row[: row.index(EOS_ID) + 1] if EOS_ID in row else row for row in outputs]


def loops(output: list[int], tail: int = LOOP_TOKENS) -> bool:
    """Whether the last ``tail`` tokens repeat with a period of at most ``tail`` / 2."""
    last = output[-tail:]
    return len(last) == tail and any(last[k:] == last[:-k] for k in range(1, tail // 2 + 1))


@torch.inference_mode()
def greedy_row(
    target: Llama, draft: Llama, prompts: list[list[int]], new_tokens: int = NEW_TOKENS
) -> Row:
    """Share of output positions where the draft's top token is the target's; EOS, loops, length."""
    outputs = greedy_outputs(target, prompts, new_tokens)
    device = next(draft.parameters()).device
    hits = []
    for prompt, output in zip(prompts, outputs, strict=True):
        guess = draft(torch.tensor([prompt + output], device=device))[0].argmax(-1).tolist()
        hits.append([a == b for a, b in zip(guess[len(prompt) - 1 : -1], output, strict=True)])
    early = [hit for row in hits for hit in row[:EARLY_TOKENS]]
    count, total = len(prompts), sum(map(len, outputs))
    return {
        "greedy_acceptance": sum(map(sum, hits)) / total,
        "greedy_acceptance_first_64": sum(early) / len(early),
        "ended_with_eos": sum(o[-1] == EOS_ID for o in outputs) / count,
        "looped": sum(map(loops, outputs)) / count,
        "mean_output_tokens": total / count,
    }


def greedy_table(target: Llama, draft: Llama, limit: int) -> dict[str, Row]:
    """``greedy_row`` for ``limit`` shipped prompts of each task."""
    if not limit:
        return {}
    tokenizer, lines, table = load_tokenizer(), load_prompts(), {}
    for task in TASKS:
        prompts = [tokenizer.encode(x["prompt"]).ids for x in lines if x["task"] == task][:limit]
        row = greedy_row(target, draft, prompts)
        table[task] = {k: round(v, 4) for k, v in row.items()}
        print(task, table[task], flush=True)
    return table


def main() -> None:
    """Command line: evaluate the models that ship; writes ``models/evaluation.json``."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, default=Path(".work/reference"))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--windows", type=int, default=64, help="held-out windows a task")
    parser.add_argument("--prompts", type=int, default=64, help="prompts a task")
    args = parser.parse_args()
    target, draft = (shipped(name, args.device) for name in ("target", "draft"))
    pack = args.work / "pack" / "tokens.npz"
    record = {
        "device": args.device,
        "torch": torch.__version__,
        "dtype": "float32",
        "held_out": held_out_table(target, draft, pack, args.windows),
        "greedy": greedy_table(target, draft, args.prompts),
    }
    write_atomic(MODELS / "evaluation.json", as_json(record))


if __name__ == "__main__":
    main()
