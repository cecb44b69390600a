"""What people and browsers are told: errors without keys, a page for its own address alone."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from benchmarks.fuzz import alter, judge
from benchmarks.fuzz.judge import ACCEPTED, EQUAL, LINEAR, REFUSED, FaultError, Verdict
from traces.errors import UserError

_KEY = "SeCrEt-1"
_URLS = (
    "fake://user:{key}@bucket/x",
    "s3:AKIA:{key}@bucket/x",
    "fake://bucket/x?token={key}",
    "gs:/user:{key}@bucket/x?sig={key}",
    "https://user:{key}@host/x?sig={key}",
    "fake:bucket/x?token={key}",
)
_PLACES = (
    ("replay", "{url}", "--policy", "fixed(3)"),
    ("replay", "{trace}", "--policy", "fixed(3)", "--cost", "{url}"),
    ("replay", "{trace}", "--policy", "fixed(3)", "--drafter", "{url}"),
    ("replay", "{trace}", "--policy", "{url}"),
    ("serving", "{trace}", "--controller", "{url}", "--rate", "1", "--cost", LINEAR),
    ("serving", "{trace}", "--controller", "none", "--arrivals", "{url}", "--cost", LINEAR),
    ("import", "vllm", "{url}", "--out", "{out}"),
    ("import", "tokens", "{bench}", "--out", "{url}"),
    ("validate", "{url}"),
    ("info", "{url}"),
    ("export", "{trace}", "--engine", "{url}", "--policy", "fixed(3)", "-o", "{out}"),
    ("sweep", "{trace}", "--policy", "fixed(1:3)", "--cost", LINEAR, "-o", "{url}"),
    ("attach", "{trace}", "--drafter", "{url}"),
    ("score", "{trace}", "--head", "{url}"),
)
_STRAY = ("/", "a" * 5000, "b" * 5000, "\\", "'", '"', "é", "-", ".", "(")
_MOST_LETTERS = 1000


def keys(rng: random.Random, base: Path, work: Path) -> Verdict:
    """A URL with a key stands where it does not belong: no key and no long message come back."""
    url = rng.choice(_URLS).format(key=_KEY)
    if rng.random() < 0.3:
        at = rng.randrange(url.index(":") + 1, url.index(_KEY))
        url = url[:at] + rng.choice(_STRAY) + url[at:]
    given = {
        "url": url,
        "trace": base / "sampled",
        "out": work / "out",
        "bench": base / "bench.jsonl",
    }
    ended = judge.command(*(word.format(**given) for word in rng.choice(_PLACES)))
    said = ended.err + ended.out
    if _KEY in said:
        raise FaultError("wrong number", f"a key is printed: {said[:300]}")
    if any(len(line) > _MOST_LETTERS for line in said.splitlines()):
        raise FaultError("wrong number", f"a line of {max(map(len, said.splitlines()))} letters")
    return Verdict(REFUSED if ended.status else ACCEPTED, ended.err.strip())


@cache
def _model(trace: Path) -> Any:
    from analysis.explore.model import ExploreModel
    from analysis.study import Study

    return ExploreModel(Study(str(trace)))


def explorer(rng: random.Random, base: Path, work: Path) -> Verdict:
    """Messages of a page with any values, and requests under other sites' names."""
    if rng.random() < 0.5:
        return _asked_as(rng)
    model = _model(base / "sampled")
    name = rng.choice(("fixed", "svip", "confidence", "heuristic"))
    values = {}
    for argument in model.arguments(name):
        if rng.random() < 0.5:
            values[argument.name] = rng.choice((*argument.values, *alter.HOSTILE))
    try:
        found = model.replay(model.policy(name, values))
    except UserError as problem:
        return judge.refusal(problem)
    if (tokens := int(found.counts["tokens"].sum())) != (all_ := model.study.trace.n_positions):
        raise FaultError("wrong number", f"{name}({values}) emits {tokens} of {all_} tokens")
    return Verdict(ACCEPTED, "")


_OWN = ("127.0.0.1:5006", "localhost:5006", "LOCALHOST:5006")
_OTHERS = (
    "evil.example",
    "evil.example:5006",
    "127.0.0.1",
    "localhost:80",
    "",
    "127.0.0.1:5006.evil",
)


def _asked_as(rng: random.Random) -> Verdict:
    from tornado.httputil import HTTPHeaders, HTTPServerRequest
    from tornado.web import Application, ErrorHandler, RequestHandler

    from analysis.explore import serve

    application = Application([("/", RequestHandler)])
    serve._refuse_other_hosts(SimpleNamespace(_tornado=application), list(_OWN[:2]))
    host = rng.choice((*_OWN, *_OTHERS))
    connection: Any = SimpleNamespace(context=None, set_close_callback=lambda _: None)
    headers = HTTPHeaders({"Host": host})
    request = HTTPServerRequest("GET", "/", headers=headers, host=host, connection=connection)
    delegate: Any = application.find_handler(request)
    if (delegate.handler_class is ErrorHandler) == (host in _OWN):
        raise FaultError("wrong number", f"a request to {host!r} is answered as it should not be")
    return Verdict(EQUAL if host in _OWN else REFUSED, "")


FAMILIES: dict[str, Callable[[random.Random, Path, Path], Verdict]] = {
    "keys in URLs": keys,
    "explorer": explorer,
}
