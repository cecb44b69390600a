"""OpenMP's threads are told to sleep before torch is loaded, whichever way it is reached."""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from traces.openmp import WAIT_POLICY, wait_passively

ROOT = Path(__file__).parents[1]
HOMES = ("traces", "simkit", "benchmarks")


def modules():
    """Modules that import torch themselves."""
    for file in sorted(file for home in HOMES for file in (ROOT / home).rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
            if any(name.split(".")[0] == "torch" for name in names):
                yield ".".join(file.relative_to(ROOT).with_suffix("").parts)
                break


# Imports each module anew, with nothing set, and stops where torch would be loaded.
PROBE = """
import importlib, json, os, sys

class Stop(BaseException): ...

class Torch:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("torch", "transformers"):
            raise Stop

sys.meta_path.insert(0, Torch())
found = {}
for name in json.loads(sys.argv[1]):
    for known in [m for m in sys.modules if m.split(".")[0] in ("traces", "simkit", "benchmarks")]:
        del sys.modules[known]
    os.environ.pop("OMP_WAIT_POLICY", None)
    try:
        importlib.import_module(name)
        found[name] = "torch was not loaded"
    except Stop:
        found[name] = os.environ.get("OMP_WAIT_POLICY")
print(json.dumps(found))
"""


def test_every_module_that_loads_torch_has_it_set_before():
    names = list(modules())
    assert {"traces.record.latency", "simkit.live.chains", "simkit.heads.training"} <= {*names}
    bare = {k: v for k, v in os.environ.items() if not k.startswith(("OMP_", "GOMP_", "KMP_"))}
    run = subprocess.run(
        [sys.executable, "-c", PROBE, json.dumps(names)],
        env=bare | {"PYTHONPATH": str(ROOT)},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    found = json.loads(run.stdout)
    lazy = {name for name, said in found.items() if said == "torch was not loaded"}
    assert set(found.values()) - {"torch was not loaded"} == {"passive"}
    assert {name: found[name] for name in names if name not in lazy} and len(lazy) < len(names) / 2


@pytest.mark.parametrize("name", ["OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME"])
def test_a_user_s_own_setting_stays(name, monkeypatch):
    for known in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME"):
        monkeypatch.delenv(known, raising=False)
    monkeypatch.setenv(name, "7")
    wait_passively()
    assert os.environ[name] == "7"
    assert (WAIT_POLICY in os.environ) == (name == WAIT_POLICY)
    monkeypatch.delenv(name)
    wait_passively()
    assert os.environ[WAIT_POLICY] == "passive"
    monkeypatch.delenv(WAIT_POLICY)
