"""An engine and the models that it runs: made ready once, started for each setting."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from simkit.engines.base import EngineError
from simkit.engines.run.answers import Conventions, RunningEngine
from simkit.engines.run.arms import EngineArm
from simkit.engines.run.kept import convert
from simkit.engines.run.llama_server import LlamaServer, LlamaSetting
from simkit.engines.run.recorded import RecordedPart, check_fits
from simkit.engines.run.safetensors_file import ModelFolder
from simkit.engines.run.worker import Worker
from traces.manifest import ModelInfo

_FORMATS = {"llama.cpp": "gguf", "openvino": "openvino"}
_CONVENTIONS = {
    "llama.cpp": LlamaServer.conventions,
    "openvino": Conventions(omits_last=True, times_target=True),
    "transformers": Conventions(first_token="draft"),
}
ENGINES_RUN = tuple(_CONVENTIONS)
"""Engines that are started here."""
_ROOM = 64  # tokens of context beyond the longest text: drafts need some


@dataclass(frozen=True)
class EngineOptions:
    """How an engine is run.

    Attributes:
        engine: one of `ENGINES_RUN`.
        target: folder of the trace's target.
        draft: folder of its draft; None: there is none, or it is not used.
        dtype: of the weights, "float32" or "float16".
        threads: that compute; None: the engine's choice.
        port: of a server; None: a free one.
        limits_s: to be ready, and to answer a request.
    """

    engine: str
    target: str
    draft: str | None = None
    dtype: str = "float32"
    threads: int | None = None
    port: int | None = None
    limits_s: tuple[float, float] = (300.0, 600.0)


@dataclass(frozen=True)
class EngineHost:
    """An engine whose models are ready.

    Attributes:
        options: as they were asked for.
        target: what the engine loads.
        draft: what it loads as the draft; None: nothing.
        context: tokens of a prompt and its output, the most.
        eos: tokens that end outputs.
        notes: what a user should know of the models, one line each.
    """

    options: EngineOptions
    target: Path
    draft: Path | None
    context: int
    eos: tuple[int, ...]
    notes: tuple[str, ...] = ()

    @property
    def conventions(self) -> Conventions:
        """How the engine counts."""
        return _CONVENTIONS[self.options.engine]

    def start(self, arm: EngineArm) -> RunningEngine:
        """Start it with one setting.

        Raises:
            EngineError: it is not installed, or cannot be started.
        """
        text = arm.written.text if arm.written else ""
        how = self.options
        if how.engine == "llama.cpp":
            setting = LlamaSetting(
                self.target, text, self.context, how.threads, how.port, how.dtype == "float32"
            )
            return LlamaServer.start(setting, how.limits_s)
        said = {
            "target": str(self.target),
            "draft": None if self.draft is None else str(self.draft),
            "config": text,
            "threads": how.threads,
            "eos": list(self.eos),
        }
        return Worker(how.engine, said, self.conventions, how.limits_s)


def check_engine(name: str) -> None:
    """Refuse an engine that cannot be run.

    Raises:
        EngineError: it is none of `ENGINES_RUN`.
    """
    if name not in ENGINES_RUN:
        raise EngineError(f"--engine must be {', '.join(ENGINES_RUN)}, not {name!r}")


def prepared(
    options: EngineOptions, part: RecordedPart, say: Callable[[str], None] = lambda text: None
) -> EngineHost:
    """An engine with the trace's models, in its own format.

    Args:
        options: see there.
        part: whose prompts are to be sent.
        say: told what takes a while.

    Raises:
        EngineError: there is no such engine, a model is not the trace's, or cannot be converted.
    """
    check_engine(options.engine)
    if options.threads is not None and options.threads < 1:
        raise EngineError(f"--threads must be at least 1, not {options.threads}")
    if min(options.limits_s) <= 0:
        raise EngineError("--time-limit must be above 0")
    target = ModelFolder.open(options.target)
    check_fits(part, target.vocab_size, options.target)
    known = part.trace.manifest
    check_model("--target", target, known.target)
    draft = None
    if options.draft is not None:
        draft = ModelFolder.open(options.draft, options.target)
        check_model("--draft", draft, known.draft)
    notes: list[str] = []
    folders = [_ready(options, model, say, notes) for model in (target, draft) if model]
    longest = max(len(request.prompt) for request in part.requests) + part.max_new_tokens
    most = target.number("max_position_embeddings")
    if longest > most:
        raise EngineError(
            f"prompts and outputs have up to {longest} tokens, the model takes only {most}"
        )
    return EngineHost(
        options,
        folders[0],
        folders[1] if draft else None,
        longest + _ROOM,
        part.trace.eos_token_ids,
        tuple(notes),
    )


def check_model(option: str, model: ModelFolder, known: ModelInfo | None) -> None:
    """Refuse a model that is not the trace's.

    Args:
        option: that named it.
        model: its folder.
        known: what the trace says of it; None: nothing, so any will do.

    Raises:
        EngineError: its weights are others, or, where the trace's are not in float32, its sizes.
    """
    if known is None:
        return
    if known.vocab_size is not None and model.vocab_size != known.vocab_size:
        raise EngineError(
            f"{option} {model.path}: has {model.vocab_size:,} token ids, the trace's model"
            f" {known.vocab_size:,}"
        )
    if known.dtype != "float32" or not known.weights_sha256:
        return
    here = model.weights_sha256()
    if here != known.weights_sha256:
        raise EngineError(
            f"{option} {model.path}: is another model than the trace's: its weights have the"
            f" hash {here[:8]}, those of the trace {known.weights_sha256[:8]}"
        )


def _ready(
    options: EngineOptions, model: ModelFolder, say: Callable[[str], None], notes: list[str]
) -> Path:
    """The model as the engine loads it."""
    if options.engine not in _FORMATS:
        return model.path.resolve()
    say(f"{model.path} is converted for {options.engine}, unless it was before")
    found = convert(model, _FORMATS[options.engine], options.dtype)
    notes += found.notes
    return found.path
