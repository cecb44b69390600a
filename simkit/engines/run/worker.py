"""An engine that is a Python library, in a process of its own which is spoken to line by line."""

from __future__ import annotations

import json
import os
import select
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from simkit.engines.base import EngineError
from simkit.engines.run.answers import Conventions, EngineAnswer, EngineStep, RunningEngine
from simkit.engines.run.child import Child

_MOST_BYTES = 2**26  # of a line


class Worker(RunningEngine):
    """A worker of `simkit.engines.run.workers`; see `RunningEngine`."""

    def __init__(
        self,
        engine: str,
        setting: Mapping[str, Any],
        conventions: Conventions,
        limits_s: tuple[float, float],
    ) -> None:
        """Start it, and wait until it has loaded its models.

        Args:
            engine: its name, that of the module too.
            setting: what the module's `load` takes.
            conventions: how the engine counts.
            limits_s: to load, and to answer.

        Raises:
            EngineError: it cannot be loaded, or not in time.
        """
        self.conventions = conventions
        self._answer_s = limits_s[1]
        self._rest = b""
        command = [sys.executable, "-m", f"simkit.engines.run.workers.{engine}"]
        self._child = Child(engine, command, pipes=True)
        try:
            self._exchange(dict(setting), limits_s[0])
        except BaseException:
            self.close()
            raise

    def ask(self, prompt: Sequence[int], max_new_tokens: int) -> EngineAnswer:
        """See `RunningEngine`."""
        before = self._child.processor_s()
        wanted = {"prompt": list(prompt), "max_new_tokens": max_new_tokens}
        found = self._exchange(wanted, self._answer_s)
        try:
            steps = [EngineStep(*step) for step in found["steps"]]
            return EngineAnswer(
                found["tokens"],
                steps,
                found["prefill_s"],
                found["seconds"],
                self._child.processor_s() - before,
                found["ended"],
                tuple(found["counted"]) if found.get("counted") else None,
            )
        except (KeyError, TypeError):
            raise self._child.failure("answers with something else than steps") from None

    def close(self) -> None:
        """See `RunningEngine`."""
        self._child.end()

    def _exchange(self, said: dict[str, Any], limit_s: float) -> dict[str, Any]:
        """What it answers to a line.

        Raises:
            EngineError: it refuses, ends, or says nothing in time.
        """
        pipe = self._child.process.stdin
        assert pipe is not None
        try:
            pipe.write(json.dumps(said).encode() + b"\n")
            pipe.flush()
        except OSError:
            raise self._child.failure("has ended") from None
        try:
            found = json.loads(self._line(limit_s))
        except ValueError:
            raise self._child.failure("answers with something else than JSON") from None
        if not isinstance(found, dict):
            raise self._child.failure("answers with something else than an object")
        if "error" in found:
            raise EngineError(f"{self._child.name}: {found['error']}")
        return found

    def _line(self, limit_s: float) -> bytes:
        pipe, until = self._child.process.stdout, time.monotonic() + limit_s
        assert pipe is not None
        while b"\n" not in self._rest:
            left = until - time.monotonic()
            if left <= 0 or not select.select([pipe], [], [], left)[0]:
                raise self._child.failure(f"gave no answer within {limit_s:g} seconds")
            more = os.read(pipe.fileno(), 65_536)
            if not more or len(self._rest) > _MOST_BYTES:
                raise self._child.failure("gave no answer")
            self._rest += more
        line, _, self._rest = self._rest.partition(b"\n")
        return line
