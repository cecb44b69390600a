"""OpenVINO models of Llama models, without torch.

OpenVINO GenAI reads GGUF files by itself and saves the graph that it makes of them, with the
tokenizer (`enable_save_ov_model`, 2025.2 and later). It takes matrices in float16 at most, and what
it saves is rounded to that, rotary frequencies too. So the graph is taken from a float16 file, and
every constant that was rounded is given back its value in float32, found by its rounded one.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from simkit.engines.base import EngineError
from simkit.engines.run.gguf import permuted, write_gguf
from simkit.engines.run.safetensors_file import ModelFolder

_MISSING = "OpenVINO needs the package openvino-genai: pip install 'draft-simkit[engines]'"
_GRAPH = "openvino_model.xml"


def write_openvino(model: ModelFolder, folder: Path, dtype: str) -> list[str]:
    """Write a model as OpenVINO's files.

    Args:
        model: a folder of a `LlamaForCausalLM`.
        folder: to be filled.
        dtype: "float32" or "float16", of the matrices.

    Returns:
        what a user should know of it, one line each.

    Raises:
        EngineError: the package is missing, or the model is none that is written.
    """
    try:
        ov, genai = import_module("openvino"), import_module("openvino_genai")
    except ModuleNotFoundError:
        raise EngineError(_MISSING) from None
    gguf = folder / "model.gguf"
    notes = write_gguf(model, gguf, "float16")
    try:
        genai.LLMPipeline(str(gguf), "CPU", enable_save_ov_model=True)
    except RuntimeError as error:
        raise EngineError(f"{model.path}: OpenVINO cannot read it: {_last(error)}") from None
    gguf.unlink()
    core = ov.Core()
    graph = core.read_model(folder / _GRAPH)
    give_back(ov, graph, dict(_rounded(model, dtype)), model.path)
    passing = folder / f"whole-{_GRAPH}"
    ov.save_model(graph, passing, compress_to_fp16=False)
    del graph  # it has the file mapped that is replaced
    for suffix in (".xml", ".bin"):
        passing.with_suffix(suffix).rename((folder / _GRAPH).with_suffix(suffix))
    return notes


def give_back(
    ov: Any, graph: Any, values: dict[tuple[int, bytes], np.ndarray], where: Path
) -> None:
    """Replace constants that were rounded to float16.

    Args:
        ov: the package `openvino`.
        graph: the model; changed.
        values: in float32, by size and rounded bytes.
        where: the model's folder, for complaints.

    Raises:
        EngineError: a constant is none of the model's.
    """
    for node in graph.get_ordered_ops():
        if node.get_type_name() != "Constant" or node.get_element_type() != ov.Type.f16:
            continue
        rounded = np.asarray(node.data)
        if rounded.size == 1:  # 0, 1, 2, -1 and the mask's -65504, which float16 holds
            continue
        value = values.get((rounded.size, rounded.tobytes()))
        if value is None:
            name = node.get_friendly_name()
            raise EngineError(f"{where}: OpenVINO's graph has a constant that is not known: {name}")
        whole = ov.opset13.constant(value.reshape(rounded.shape), np.float32)
        whole.set_friendly_name(node.get_friendly_name())
        for reader in list(node.output(0).get_target_inputs()):
            widened = reader.get_node()
            if widened.get_type_name() != "Convert":
                raise EngineError(f"{where}: OpenVINO's graph computes in float16")
            widened.output(0).replace(whole.output(0))


def _rounded(model: ModelFolder, dtype: str) -> Iterator[tuple[tuple[int, bytes], np.ndarray]]:
    """The model's tensors in float32 (or rounded, as asked), by size and their float16 bytes."""
    for name, values in model.tensors():
        for order in (values, permuted(model, name, values)):
            narrow = order.astype(np.float16)
            key = narrow.size, narrow.tobytes()
            is_matrix = values.ndim > 1
            yield key, (narrow if dtype == "float16" and is_matrix else order).astype(np.float32)
    frequencies = model.rope_frequencies()
    yield (frequencies.size, frequencies.astype(np.float16).tobytes()), frequencies


def _last(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__
