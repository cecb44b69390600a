"""What all tests share: how many threads torch has, how they wait, what a collection reads."""

import gc
import os

import hypothesis  # noqa: F401  now, for it asks who refers to what, which nothing tells later
import pytest

from traces.waiting import wait_passively

wait_passively()  # as in the commands
if "PYTEST_XDIST_WORKER" in os.environ:  # as many workers as cores: threads would wait for another
    os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.fixture(autouse=True, scope="module")
def little_to_collect():
    """No collection reads again what is alive now, above all what was imported and compiled.

    Before each sequence that is timed garbage is collected: half a second where all packages are
    loaded, and many thousand tests were.
    """
    gc.collect()
    gc.freeze()
