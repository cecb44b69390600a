"""The manifest of a recording before it has files: what is recorded, with what, on what."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel

from traces.manifest import Manifest, ModelInfo, OutputsInfo
from traces.messages import how_many
from traces.record import generation
from traces.record.pair import Alone, Pair, embedding, tokenizer_hash, weights_hash
from traces.record.plan import Plan
from traces.record.prompts import Prompt, prompts_hash
from traces.record.routers import Routing
from traces.schema import TARGET_COLUMNS
from traces.versions import installed_version

_SHAPE = {
    "n_layers": "num_hidden_layers",
    "hidden_size": "hidden_size",
    "n_heads": "num_attention_heads",
    "n_kv_heads": "num_key_value_heads",
    "head_dim": "head_dim",
    "intermediate_size": "intermediate_size",
    "max_position_embeddings": "max_position_embeddings",
}
_LIBRARIES = ("draft-simkit", "numpy", "pyarrow", "tokenizers", "torch", "transformers")


def make_header(
    pair: Pair | Alone, prompts: list[Prompt], plan: Plan, outputs: OutputsInfo | None = None
) -> Manifest:
    """All that the manifest says of a recording but its files."""
    alone = isinstance(pair, Alone)
    source = generation.ends(pair.target, pair.tokenizer).source
    return Manifest(
        kind="target" if alone else "path",
        draft_passes="none" if alone else "token",
        target_columns=TARGET_COLUMNS if alone else (),
        coupling=plan.coupling,
        max_draft=plan.max_draft,
        max_new_tokens=plan.max_new_tokens,
        target=model_info(pair.target),
        draft=None if alone else model_info(pair.draft),
        tokenizer_sha256=tokenizer_hash(pair.tokenizer),
        vocab_size=pair.vocab_size,
        dtype=_dtype(pair.target),
        device=device_name(pair.target),
        libraries=library_versions(plan.kernel),
        sampler=plan.sampler,
        seed=plan.seed,
        batch_size=plan.batch_size,
        n_prompts=len(prompts),
        prompts_sha256=prompts_hash(prompts),
        eos_token_ids=plan.eos_token_ids,
        eos_from=source if plan.eos_token_ids else "model",
        set_aside=generation.set_aside(pair.target, plan.sampler),
        branch_target=plan.branch_target,
        hidden=plan.hidden,
        experts=Routing(pair.target).info if plan.experts else None,
        mix=plan.mix,
        statistics="kernel" if plan.kernel else "plain",
        outputs=outputs,
    )


def model_info(model: PreTrainedModel, vocab_size: int | None = None) -> ModelInfo:
    """What the manifest says of one model; without `vocab_size`, its embeddings' rows are that."""
    config: Any = model.config
    return ModelInfo(
        id=folder_id(config._name_or_path),
        revision=getattr(config, "_commit_hash", None),
        weights_sha256=weights_hash(model),
        dtype=_dtype(model),
        vocab_size=vocab_size or embedding(model).num_embeddings,
        n_parameters=sum(p.numel() for p in model.parameters()),
        architecture=type(model).__name__,
        shape=model_shape(config),
    )


def model_shape(config: Any) -> dict[str, int]:
    """Sizes of a model from its config, under the manifest's names."""
    shape = {name: getattr(config, key, None) for name, key in _SHAPE.items()}
    return {name: int(value) for name, value in shape.items() if value is not None and value > 0}


def device_name(model: PreTrainedModel) -> str:
    """The device's name and what else changes the last bits of its sums."""
    return name_of(embedding(model).weight.device)


def name_of(device: torch.device) -> str:
    """See `device_name`."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{_cpu_name()}, {how_many(torch.get_num_threads(), 'thread')}"


def library_versions(kernel: bool = False) -> dict[str, str]:
    """Versions of the libraries that a recording depends on, Triton's if it runs the kernel."""
    names = (*_LIBRARIES, "triton") if kernel else _LIBRARIES
    return {name: installed_version(name) for name in names}


def folder_id(path: str) -> str:
    """A hub id as it is; of a local folder only its last two names, which say nothing of homes."""
    folder = Path(path)
    return "/".join(folder.resolve().parts[-2:]) if folder.exists() else path


def _dtype(model: PreTrainedModel) -> str:
    return str(model.dtype).removeprefix("torch.")


def _cpu_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
