"""How torch's threads on a CPU wait for each other: asleep, not spinning.

torch computes with OpenMP. Its GNU library (libgomp, in torch's own wheels) lets a thread that has
nothing to do spin for a while before it sleeps; where another program has a core too, the spinning
threads take the time that the working one needs, and a pass takes ten times as long. The library
reads its settings once, when torch is loaded.
"""

from __future__ import annotations

import os

WAIT_POLICY = "OMP_WAIT_POLICY"
_OWN = (WAIT_POLICY, "GOMP_SPINCOUNT", "KMP_BLOCKTIME")  # of OpenMP, GNU's and Intel's library


def wait_passively() -> None:
    """Let OpenMP's threads sleep while they wait, unless the user has set how they wait.

    For this process and those that it starts. Packages that run models call it before they import
    torch; where torch has been loaded before, it changes nothing in this process.
    """
    if not any(name in os.environ for name in _OWN):
        os.environ[WAIT_POLICY] = "passive"
