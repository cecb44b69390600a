"""Engines that run already, vLLM and SGLang, by stand-ins that answer as their sources say."""

import json
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest
from commands import refused, run

from simkit.engines.base import EngineError
from simkit.engines.run.remote import OpenAi, Sglang, remote

FEW = ("--policy", "fixed(5)", "--n-prompts", "2", "--max-new-tokens", "8")
TOKENS = [5, 6, 0]
COUNTED = {"speculative_decoding": {"num_draft_tokens": 9, "num_accepted_draft_tokens": 2}}
VLLM = {
    "/v1/models": {"data": [{"id": "the-model"}]},
    "/v1/completions": {"choices": [{"token_ids": TOKENS}], "metrics": COUNTED},
}
SGLANG = {"/get_model_info": {"model_path": "x"}, "/generate": {"output_ids": TOKENS}}


@contextmanager
def server(answers):
    """A server of these answers by path; gives its URL and the bodies that it was sent."""
    bodies = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            found = answers.get(self.path)
            self.send_response(404 if found is None else 200)
            text = json.dumps(found).encode()
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def do_POST(self):
            bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.do_GET()

        def log_message(self, *given):
            pass

    made = HTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=made.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{made.server_port}", bodies
    finally:
        made.shutdown()
        made.server_close()


def test_vllm_is_asked_by_token_ids():
    with server(VLLM) as (url, bodies):
        engine = remote(url, 5.0, (0,))
        assert isinstance(engine, OpenAi)
        answer = engine.ask([1, 2, 3], 8)
    assert (answer.tokens, answer.counted, answer.ended) == (TOKENS, (9, 2), "eos")
    (body,) = bodies
    assert (body["model"], body["prompt"], body["max_tokens"]) == ("the-model", [1, 2, 3], 8)
    assert (body["temperature"], body["return_token_ids"]) == (0, True)


def test_sglang_is_asked_by_token_ids():
    with server(SGLANG) as (url, bodies):
        engine = remote(url, 5.0, (9,))
        assert isinstance(engine, Sglang)
        answer = engine.ask([4], 3)
    assert (answer.tokens, answer.ended) == (TOKENS, "length")
    assert bodies == [
        {"input_ids": [4], "sampling_params": {"temperature": 0, "max_new_tokens": 3}}
    ]


@pytest.mark.parametrize("answers", [VLLM, SGLANG])
def test_live_shows_what_they_say(answers, capsys):
    with server(answers) as (url, _):
        status, out, said = run(capsys, "live", "reference", "--url", url, *FEW)
    assert status == 0, said
    assert "fixed(5)" in out


@pytest.mark.parametrize(
    ("answers", "path", "value", "message"),
    [
        (VLLM, "/v1/completions", {"choices": [{"text": "hi"}]}, "answers without token ids"),
        (VLLM, "/v1/completions", {"choices": ["hi"]}, "answers without token ids"),
        (VLLM, "/v1/models", {"data": []}, "names no model at /v1/models"),
        (SGLANG, "/generate", {"text": "hi"}, "answers without token ids: SGLang has output_ids"),
    ],
)
def test_answers_that_say_too_little_are_refused(answers, path, value, message, capsys):
    with server(answers | {path: value}) as (url, _):
        assert message in refused(capsys, "live", "reference", "--url", url, *FEW)


def test_nobody_there():
    with pytest.raises(EngineError, match="no answer: "):
        remote("http://127.0.0.1:9", 1.0, ())
