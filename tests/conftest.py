"""What all tests share: how many threads torch has, how they wait, what a collection reads."""

import gc
import os
from importlib import import_module

import hypothesis  # noqa: F401  now, for it asks who refers to what, which nothing tells later
import pytest

from traces.openmp import wait_passively

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


@pytest.fixture(scope="module")
def one_thread():
    """Passes of tiny models are slower on several threads, far slower where cores are shared."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def few_requests():
    """Figures and claims of servers are of short runs: for tests of what is drawn and said."""
    from analysis import serving
    from analysis.claims import engines

    with pytest.MonkeyPatch.context() as short:
        short.setattr(serving, "LEAST", 16)
        short.setattr(serving, "EACH", 2)
        short.setattr(engines, "LEAST", 16)
        for figure in ("load_goodput", "load_latency"):
            short.setattr(import_module(f"analysis.figures.load.{figure}"), "REQUESTS", 48)
        yield


@pytest.fixture(scope="module")
def own_cache(tmp_path_factory):
    """What is kept between runs is kept in a folder of the module's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield
