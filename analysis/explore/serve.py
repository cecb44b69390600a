"""The page behind an address of this machine."""

from __future__ import annotations

import socket
from typing import Any

import panel as pn
from bokeh.server.urls import per_app_patterns
from bokeh.server.views.ws import WSHandler
from tornado.web import ErrorHandler

from analysis.explore.model import ExploreModel
from analysis.explore.page import Page, title
from analysis.study import Study
from simkit.simulator.arguments import AnyCost, AnyTrace
from traces.errors import UserError

HOST = "127.0.0.1"


def serve(trace: AnyTrace, cost: AnyCost | None, port: int, show: bool) -> None:
    """Serve the explorer until Ctrl-C; each tab has sliders of its own.

    Args:
        trace: a trace, its folder, or a bundled trace's name.
        cost: see `simkit.replay`.
        port: of this machine alone; 0 means any that is free.
        show: whether to open a browser.

    Raises:
        UserError: the port is taken, or as `simkit.replay` does.
    """
    study = Study(trace)
    first = Page(ExploreModel(study, cost))  # what is wrong is said here, and rules are compiled

    port = port or _free()
    _send_at_once()

    def page() -> Any:
        return Page(ExploreModel(study, cost)).view

    try:
        server: Any = pn.serve(
            {"/": page},
            title=title(first.model),
            address=HOST,
            port=port,
            websocket_origin=[f"{host}:{port}" for host in (HOST, "localhost")],
            show=False,
            start=False,
            verbose=False,
        )
    except OSError as error:
        raise UserError(f"--port {port}: {error.strerror or error}") from None
    _refuse_other_hosts(server, [f"{host}:{server.port}" for host in (HOST, "localhost")])
    print(f"http://{HOST}:{server.port}/ (Ctrl-C ends it)", flush=True)
    if show:
        server.io_loop.add_callback(server.show, "/")
    try:
        server.start()
        server.io_loop.start()
    finally:
        server.stop()


def _refuse_other_hosts(server: Any, hosts: list[str]) -> None:
    """Answer requests that were sent to this address by its own names alone.

    A page of another site can have its own name lead here, and would then be let read the answers.
    """
    application = server._tornado
    found = application.find_handler

    def find_handler(request: Any, **more: Any) -> Any:
        if request.host.lower() in hosts:
            return found(request, **more)
        return application.get_handler_delegate(request, ErrorHandler, {"status_code": 421})

    application.find_handler = find_handler


class _AtOnce:
    """A page's connection whose messages do not wait for each other's acknowledgement: 40 ms."""

    def open(self: Any, *args: Any, **kwargs: Any) -> Any:
        """See `tornado.websocket.WebSocketHandler`."""
        self.set_nodelay(True)
        return super().open(*args, **kwargs)  # type: ignore[misc]


def _send_at_once() -> None:
    """Have the servers that are made from now on take such connections."""
    patterns: list[Any] = per_app_patterns  # a handler to a route
    for k, (route, handler, *more) in enumerate(patterns):
        if issubclass(handler, WSHandler) and not issubclass(handler, _AtOnce):
            patterns[k] = route, type("AtOnce", (_AtOnce, handler), {}), *more


def _free() -> int:
    """A port that nothing listens on."""
    with socket.socket() as found:
        found.bind((HOST, 0))
        return int(found.getsockname()[1])
