"""What all tests share: torch's threads wait as they do in the commands, and workers have a core."""

import os

from traces.waiting import wait_passively

wait_passively()
if "PYTEST_XDIST_WORKER" in os.environ:  # as many workers as cores: threads would wait for another
    os.environ.setdefault("OMP_NUM_THREADS", "1")
