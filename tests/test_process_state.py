"""A call leaves the process as it was: its settings are the user's."""

import gc
import locale
import logging
import os
import random
import signal
import sys
import warnings

import matplotlib as mpl
import numba
import numpy as np
import pytest
import torch
from heads_traces import recorded, revealing

import analysis.figures
import simkit
from simkit import cluster
from simkit.cli import main
from simkit.heads import run
from simkit.heads.training import TrainingSettings
from traces import allocator, kernels
from traces.synthetic import iid

COST = "linear(draft_s=0.001, target_s=0.01, target_per_token_s=0.001, draft_per_token_s=1e-4)"


def settings():
    """What a call could change for all others."""
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    log = logging.getLogger("matplotlib")
    return {
        "environment": dict(os.environ),
        "warnings": (list(warnings.filters), warnings.showwarning),
        "signals": handlers,
        "numba": {name: value for name, value in vars(numba.config).items() if name.isupper()},
        "torch": (torch.get_num_threads(), torch.is_grad_enabled(), torch.get_default_dtype()),
        "torch's draws": torch.get_rng_state().tolist(),
        "numpy's draws": [list(np.random.get_state()[1]), np.geterr(), np.get_printoptions()],  # noqa: NPY002
        "Python's draws": random.getstate(),
        "matplotlib": dict(mpl.rcParams),
        "logging": (logging.root.level, [*logging.root.handlers], [*log.handlers], log.propagate),
        "locale": locale.setlocale(locale.LC_ALL),
        "collections": (gc.get_threshold(), gc.isenabled()),
        "Python": (sys.path[:], sys.meta_path[:], sys.getrecursionlimit(), sys.excepthook),
        "folder": os.getcwd(),
    }


@pytest.fixture(scope="module")
def trace():
    return iid(8, 30, 0.7, max_draft=8, seed=3)


@pytest.fixture(scope="module")
def with_states(tmp_path_factory):
    return revealing(tmp_path_factory.mktemp("revealing"))


def train(trace):
    return run.train("acceptance", trace, {"layers": 1}, TrainingSettings(epochs=1))


CALLS = {
    "replay": lambda trace: simkit.replay(trace, ["fixed(2)", lambda depth, row: depth > 2], COST),
    "sweep": lambda trace: simkit.sweep(trace, "fixed(1:3)", COST, workers=2),
    "tune": lambda trace: simkit.tune(trace, "fixed(1:3)", COST),
    "serve": lambda trace: simkit.serve(trace, lambda view: 2, COST, concurrency=2, requests=4),
    "figure": lambda trace: analysis.figures.entropy_length(trace),
    "forget": lambda trace: trace.forget(),
    "compile": lambda trace: kernels.compiled(lambda x: x + 1)(1),
}
MODELS = {
    "train a head": train,
    "score with a head": lambda trace: run.score(trace, train(trace)),
}


def check(call, trace):
    call(trace)  # what it imports may have settings of its own
    torch.manual_seed(7)
    before = settings()
    call(trace)
    after = settings()
    assert [name for name in before if before[name] != after[name]] == []


@pytest.mark.parametrize("call", CALLS)
def test_a_call_leaves_the_process_as_it_was(call, trace):
    check(CALLS[call], trace)


@pytest.mark.parametrize("call", MODELS)
def test_so_does_one_that_runs_networks(call, with_states):
    """Training seeded the generator that all of torch draws from."""
    check(MODELS[call], with_states)


def test_so_does_a_recording(tmp_path):
    names = iter("ab")

    def record(_):
        with torch.random.fork_rng([]):  # for the pair that is made for it
            recorded(tmp_path / next(names))

    check(record, None)


class Library:
    """glibc's, which notes what it is asked."""

    def __init__(self):
        self.asked = []

    def mallopt(self, *arguments):
        self.asked.append("mallopt")

    def malloc_trim(self, *arguments):
        self.asked.append("malloc_trim")


def test_only_a_command_sets_the_allocator(monkeypatch, trace):
    """Nothing can restore its settings."""
    library = Library()
    monkeypatch.setattr(allocator.ctypes, "CDLL", lambda name: library)
    trace.forget()
    assert library.asked == ["malloc_trim"]
    library.asked.clear()
    monkeypatch.setattr("simkit.cli.app", lambda *arguments, **more: trace.forget())
    with pytest.raises(SystemExit):
        main(["info"])
    assert library.asked == ["mallopt", "malloc_trim"]
    library.asked.clear()
    trace.forget()
    assert library.asked == ["malloc_trim"]


def test_a_cluster_s_settings_end_with_it(monkeypatch):
    class Ray:
        @staticmethod
        def is_initialized():
            return True

    name, given = "RAY_USAGE_STATS_ENABLED", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"
    monkeypatch.setitem(sys.modules, "ray", Ray)
    monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(given, "1")
    with cluster.joined("auto"):
        assert (os.environ[name], os.environ[given]) == ("0", "1")
    assert name not in os.environ and os.environ[given] == "1"
