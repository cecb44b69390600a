"""An engine that runs already: asked the same way, and neither started nor ended.

What it is is found out: llama-server has `/props`, SGLang `/get_model_info`, and of the others an
OpenAI-compatible server with `/v1/models` is taken for vLLM. Steps are known of llama-server, and
of vLLM with `--per-request-spec-decode-metrics detailed`, which leaves steps without a draft out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from simkit.engines.base import EngineError
from simkit.engines.run import http_client
from simkit.engines.run.answers import Conventions, EngineAnswer, RunningEngine
from simkit.engines.run.http_client import Address
from simkit.engines.run.llama_server import LlamaServer

_LOOK_S = 10.0
_NONE = float("nan")


def remote(url: str, limit_s: float, eos: Sequence[int]) -> RunningEngine:
    """The engine at a URL.

    Args:
        url: http://HOST:PORT.
        limit_s: to answer a request.
        eos: tokens that end outputs.

    Raises:
        EngineError: nobody answers there, or it is none of these engines.
    """
    address = Address.of(url)
    try:
        if http_client.get(address, "/props", _LOOK_S) == 200:
            return LlamaServer(address, None, limit_s)
        if http_client.get(address, "/get_model_info", _LOOK_S) == 200:
            return Sglang(address, limit_s, eos)
    except OSError as error:
        raise EngineError(f"{url}: no answer: {error.strerror or error}") from None
    found = http_client.ask(address, "/v1/models", None, _LOOK_S).get("data")
    if not isinstance(found, list) or not found or not isinstance(found[0], dict):
        raise EngineError(f"{url}: names no model at /v1/models")
    return OpenAi(address, limit_s, eos, str(found[0].get("id")))


class _Remote(RunningEngine):
    """What both have: tokens, and no steps."""

    conventions = Conventions(says_steps=False)

    def __init__(self, address: Address, limit_s: float, eos: Sequence[int]) -> None:
        self.address, self._limit_s, self._eos = address, limit_s, eos

    def close(self) -> None:
        """See `RunningEngine`: it is not ours."""

    def _answer(self, tokens: Any, hint: str) -> EngineAnswer:
        if not isinstance(tokens, list) or not all(type(token) is int for token in tokens):
            raise EngineError(f"{self.address}: answers without token ids: {hint}")
        ended = "eos" if tokens and tokens[-1] in self._eos else "length"
        return EngineAnswer(tokens, [], _NONE, _NONE, _NONE, ended)


class OpenAi(_Remote):
    """A server of `/v1/completions` that takes and gives token ids, as vLLM does."""

    def __init__(self, address: Address, limit_s: float, eos: Sequence[int], model: str) -> None:
        super().__init__(address, limit_s, eos)
        self._model = model

    def ask(self, prompt: Sequence[int], max_new_tokens: int) -> EngineAnswer:
        """See `RunningEngine`."""
        body = {
            "model": self._model,
            "prompt": list(prompt),
            "max_tokens": max_new_tokens,
            "temperature": 0,
            "return_token_ids": True,
        }
        found = http_client.ask(self.address, "/v1/completions", body, self._limit_s)
        choices = found.get("choices")
        first = choices[0] if isinstance(choices, list) and choices else None
        first = first if isinstance(first, dict) else {}
        answer = self._answer(first.get("token_ids"), "vLLM 0.10.2 and later has return_token_ids")
        counted = _sums(found.get("metrics"))
        return answer if counted is None else answer._replace(counted=counted)


class Sglang(_Remote):
    """SGLang's own `/generate`, which takes and gives token ids."""

    def ask(self, prompt: Sequence[int], max_new_tokens: int) -> EngineAnswer:
        """See `RunningEngine`."""
        body = {
            "input_ids": list(prompt),
            "sampling_params": {"temperature": 0, "max_new_tokens": max_new_tokens},
        }
        found = http_client.ask(self.address, "/generate", body, self._limit_s)
        return self._answer(found.get("output_ids"), "SGLang has output_ids")


def _sums(metrics: Any) -> tuple[int, int] | None:
    """Drafted and accepted tokens of a response of vLLM's."""
    found = metrics.get("speculative_decoding") if isinstance(metrics, dict) else None
    if not isinstance(found, dict):
        return None
    both = found.get("num_draft_tokens"), found.get("num_accepted_draft_tokens")
    return both if all(type(value) is int for value in both) else None  # type: ignore[return-value]
