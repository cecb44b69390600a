"""The import contracts hold, and an arrow that runs the wrong way breaks one of them."""

import ast
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("traces", "simkit", "analysis")
WRONG = {
    "simkit/heads/files.py": "import analysis",
    "simkit/live/settings.py": "import analysis.stats",
    "simkit/fidelity/judge.py": "from analysis import claims",
    "simkit/importers/jsonl.py": "import analysis",
    "simkit/simulator/run.py": "import simkit.cli",
    "simkit/costs/linear.py": "import simkit.policies.fixed",
    "simkit/steps/chain.py": "import simkit.simulator.run",
    "simkit/trees/static.py": "import simkit.steps.work",
    "simkit/policies/fixed.py": "import simkit.simulator.run",
    "simkit/policies/prophet.py": "def late():\n    import simkit.simulator.shortest_path",
    "traces/schema.py": "import simkit.errors",
    "traces/errors.py": "import traces.sampler",
    "analysis/stats/binned.py": "import torch",
    "simkit/policies/svip.py": "import polars",
    "analysis/stats/depth.py": "import analysis.claims",
}


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """The packages' sources, with the contracts, where they can be changed."""
    folder = tmp_path_factory.mktemp("tree")
    for file in (f for package in PACKAGES for f in (ROOT / package).rglob("*.py")):
        copy = folder / file.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, copy)
    shutil.copy(ROOT / "pyproject.toml", folder)
    return folder


def lint(folder):
    command = [sys.executable, "-c", "from importlinter.cli import lint_imports_command as c; c()"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_the_contracts_hold(tree):
    found = lint(tree)
    assert found.returncode == 0, found.stdout


@pytest.mark.parametrize("place", WRONG)
def test_a_wrong_arrow_breaks_a_contract(tree, place):
    file = tree / place
    before = file.read_text()
    try:
        file.write_text(f"{before}\n{WRONG[place]}\n")
        found = lint(tree)
    finally:
        file.write_text(before)
    assert found.returncode == 1 and "BROKEN" in found.stdout, found.stdout + found.stderr


def test_no_function_is_long():
    """Of all that a user installs: signature, docstring and body."""
    found = [
        f"{file}:{node.lineno} {node.name}"
        for root in ("traces", "simkit", "analysis")
        for file in sorted((ROOT / root).rglob("*.py"))
        if "recipes" not in file.parts
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef) and (node.end_lineno or 0) - node.lineno >= 50
    ]
    assert not found, found


def test_what_a_step_did_is_asked_of_its_family():
    """Outside of simkit/steps the class of a policy is hardly looked at."""
    families = {"Sequential", "Branching", "Concurrent"}
    asks = [
        f"{file}:{node.lineno}"
        for root in ("traces", "simkit", "analysis")
        for file in sorted((ROOT / root).rglob("*.py"))
        if "steps" not in file.parts
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
        and getattr(node.func, "id", "") == "isinstance"
        and families & {getattr(n, "id", getattr(n, "attr", "")) for n in ast.walk(node.args[1])}
    ]
    assert len(asks) < 6, asks
