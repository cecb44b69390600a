"""A worker's side of the pipe: a line in, a line out; what libraries print goes to the log."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any

Answer = Callable[[dict[str, Any]], dict[str, Any]]


def serve(load: Callable[[dict[str, Any]], Answer]) -> None:
    """Load what the first line says, then answer every line until there are no more.

    Args:
        load: makes of the first line what answers the others.
    """
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    answer: Answer | None = None
    for line in sys.stdin:
        said = json.loads(line)
        try:
            if answer is None:
                answer, found = load(said), {"ready": True}
            else:
                found = answer(said)
        except Exception as error:  # whatever a library raises is the answer
            words = " ".join(f"{type(error).__name__}: {error}".split())
            found = {"error": words[:300]}
        print(json.dumps(found), file=out, flush=True)
