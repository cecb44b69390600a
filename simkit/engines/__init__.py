"""Engines: a setting that was found offline, written as each one's own configuration.

An engine is one file here and its line in the list below; an installed package adds one by an entry
point of the group `simkit.engines`, under the engine's name. Each file says which version's fields
it knows and where they were looked up, and refuses what that version would refuse.
"""

from __future__ import annotations

from simkit.engines.base import ENGINES, EngineError, EngineSetting, EngineWriter, Written, register
from simkit.engines.export import Exported, export
from simkit.engines.llama_cpp import LlamaCppEngine
from simkit.engines.openvino import OpenVino
from simkit.engines.sglang import Sglang
from simkit.engines.tensorrt_llm import TensorrtLlm
from simkit.engines.transformers import Transformers
from simkit.engines.vllm import Vllm

BUILT_IN = (Vllm, Sglang, TensorrtLlm, LlamaCppEngine, OpenVino, Transformers)

__all__ = [
    "BUILT_IN",
    "ENGINES",
    "EngineWriter",
    "EngineError",
    "Exported",
    "EngineSetting",
    "Written",
    "export",
    "register",
]
