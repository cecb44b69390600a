"""JSON over HTTP to a server on this machine, with time limits; each fault is one line."""

from __future__ import annotations

import http.client
import json
import socket
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from simkit.engines.base import EngineError

_MOST_BYTES = 2**26  # of an answer, or of a line of a stream
_MOST_SAID = 200  # characters of what a server complains


class Address(NamedTuple):
    """Where a server listens.

    Attributes:
        host: name or number.
        port: of TCP.
        path: before those of requests.
    """

    host: str
    port: int
    path: str = ""

    @classmethod
    def of(cls, url: str) -> Address:
        """The address that a URL names.

        Raises:
            EngineError: it is none, or of another protocol than HTTP.
        """
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError:
            raise EngineError(f"--url {url}: is no URL") from None
        if parts.scheme != "http" or not parts.hostname or parts.query or parts.username:
            raise EngineError(f"--url {url}: must be http://HOST:PORT")
        return cls(parts.hostname, port or 80, parts.path.rstrip("/"))

    def __str__(self) -> str:
        return f"http://{self.host}:{self.port}{self.path}"


def free_port() -> int:
    """A port of this machine that nobody listens on now."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return held.getsockname()[1]


def check_port(port: int) -> int:
    """Refuse a port that is taken.

    Raises:
        EngineError: as said.
    """
    if not 1 <= port <= 65535:
        raise EngineError(f"--port {port}: must be from 1 to 65535")
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            held.bind(("127.0.0.1", port))
        except OSError as error:
            raise EngineError(f"--port {port}: cannot be listened on: {error.strerror}") from None
    return port


def get(address: Address, path: str, limit_s: float) -> int:
    """The status of a request without a body.

    Raises:
        OSError: nobody answers.
    """
    with closing(http.client.HTTPConnection(address.host, address.port, timeout=limit_s)) as to:
        to.request("GET", address.path + path)
        answer = to.getresponse()
        answer.read(_MOST_BYTES)
        return answer.status


def ask(address: Address, path: str, body: dict[str, Any] | None, limit_s: float) -> dict[str, Any]:
    """The answer to a request.

    Raises:
        EngineError: nobody answers in time, or with an error, or with something else than JSON.
    """
    lines = b"".join(_lines(address, path, body, limit_s))
    try:
        found = json.loads(lines)
    except ValueError:
        raise EngineError(f"{address}{path}: answers with something else than JSON") from None
    if not isinstance(found, dict):
        raise EngineError(f"{address}{path}: answers with something else than an object")
    return found


def events(
    address: Address, path: str, body: dict[str, Any], limit_s: float
) -> Iterator[dict[str, Any]]:
    """The objects of an answer that is streamed (`data: {…}`), as they come.

    Raises:
        EngineError: see `ask`.
    """
    for line in _lines(address, path, body, limit_s):
        text = line.strip()
        if not text.startswith(b"data:") or text == b"data: [DONE]":
            if text.startswith(b"error:"):
                raise EngineError(f"{address}{path}: {_complaint(text[6:])}")
            continue
        try:
            found = json.loads(text[5:])
        except ValueError:
            raise EngineError(f"{address}{path}: streams something else than JSON") from None
        if not isinstance(found, dict):
            raise EngineError(f"{address}{path}: streams something else than objects")
        if "error" in found:
            raise EngineError(f"{address}{path}: {_complaint(json.dumps(found).encode())}")
        yield found


def _lines(
    address: Address, path: str, body: dict[str, Any] | None, limit_s: float
) -> Iterator[bytes]:
    where, until = f"{address}{path}", time.monotonic() + limit_s
    try:
        with closing(http.client.HTTPConnection(address.host, address.port, timeout=limit_s)) as to:
            if body is None:
                to.request("GET", address.path + path)
            else:
                kind = {"Content-Type": "application/json"}
                to.request("POST", address.path + path, json.dumps(body), kind)
            answer = to.getresponse()
            if answer.status != 200:
                said = _complaint(answer.read(_MOST_BYTES))
                raise EngineError(
                    f"{where}: answers with status {answer.status}{said and f': {said}'}"
                )
            while line := answer.readline(_MOST_BYTES):
                if time.monotonic() > until:
                    raise TimeoutError
                yield line
    except TimeoutError:
        raise EngineError(f"{where}: no answer within {limit_s:g} seconds") from None
    except (OSError, http.client.HTTPException) as error:
        what = getattr(error, "strerror", None) or type(error).__name__
        raise EngineError(f"{where}: the connection broke: {what}") from None


def _complaint(body: bytes) -> str:
    """What an error says, in a line."""
    text = body.decode(errors="replace")
    try:
        found: Any = json.loads(text)
        for name in ("error", "message"):
            found = found.get(name, found) if isinstance(found, dict) else found
        text = found if isinstance(found, str) else json.dumps(found)
    except ValueError:
        pass
    return " ".join(text.split())[:_MOST_SAID]
