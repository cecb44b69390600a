"""Notebooks run on a few prompts, define rules alone, stay in the package, match their text."""

from __future__ import annotations

import ast
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import jupytext
import nbformat
import numpy as np
import pytest
from jupytext.config import load_jupytext_config
from nbclient import NotebookClient

import traces
from traces import scores
from traces.finding import bundled
from traces.subset import select
from traces.trace import Trace
from traces.writer import TraceWriter, add_file

FOLDER = Path(__file__).parents[1] / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
WHOLE = (
    "09_drafters",
    "10_under_load",
    "11_trees",
)  # they compare what is attached to the whole of a bundled trace
PROMPTS = 5  # of each task, in the traces that the tests run on; as many as `simkit.tune` has folds
MOST_BYTES = 600_000
IMPORTS = {"simkit", "traces", "analysis", "polars", "matplotlib"}
READS_OR_WRITES = ("read_", "scan_", "write_", "sink_", "save", "imread", "open")
STRICT = """
import warnings
warnings.simplefilter("error")
warnings.filterwarnings("ignore", module="ipykernel")  # the kernel's own
"""
REQUESTS = "requests=1024", "requests=128"  # of a run, and with how many it is tested
FEW = """
from analysis import serving
serving.LEAST, serving.EACH = 16, 2  # requests of the figures' runs
"""
FIRST = sorted(NOTEBOOKS, key=lambda path: path.stem not in WHOLE)  # which take longest
each = pytest.mark.parametrize("path", FIRST, ids=[path.stem for path in FIRST])


@pytest.fixture(scope="session")
def small(tmp_path_factory) -> Callable[[str], str]:
    """Gives the folder of a bundled trace's first prompts of each task, made once."""
    made: dict[str, str] = {}

    def of(name: str) -> str:
        if name not in made:
            made[name] = str(cut(traces.load(name), tmp_path_factory.mktemp(name)))
        return made[name]

    return of


def cut(whole: Trace, folder: Path) -> Path:
    """Write the first prompts of each task, with times and scores."""
    tasks = whole.sequences["task"].to_pylist()
    kept = [i for i, task in enumerate(tasks) if tasks[:i].count(task) < PROMPTS]
    heads = [Path(name).stem for name in whole.manifest.files if name.startswith("scores/")]
    some = select(whole, kept, heads)
    header = replace(whole.manifest, n_prompts=len(kept), batch_size=len(kept))
    tables = {
        table: {name: some.column(table, name) for name in columns.names}
        for table, columns in header.tables.items()
    }
    for columns in tables.values():  # a recording numbers its prompts without gaps
        columns["sequence"] = np.searchsorted(kept, columns["sequence"]).astype(np.int32)
    with TraceWriter(folder, header) as writer:
        numbered = some.sequences.to_pydict() | {"sequence": list(range(len(kept)))}
        writer.write_shard(0, numbered, **tables)
        writer.finish()
    times = whole.latency()
    assert times is not None
    add_file(folder, "latency.parquet", times)
    for head in heads:
        scores.save(folder, traces.load(folder), head, scores.load(some, head), {})
    return folder


def code(path: Path) -> list[str]:
    """The sources of a notebook's code cells."""
    cells = nbformat.read(path, as_version=4).cells
    return [cell.source for cell in cells if cell.cell_type == "code"]


def parameters(cell) -> bool:
    return "parameters" in cell.metadata.get("tags", [])


def test_there_are_notebooks():
    assert [path.stem[:2] for path in NOTEBOOKS] == [f"{n:02}" for n in range(1, 12)]


@each
def test_runs_on_a_few_prompts_without_a_warning(path, small, tmp_path):
    notebook = nbformat.read(path, as_version=4)
    (cell,) = [cell for cell in notebook.cells if parameters(cell)]
    for name in bundled():
        if f'"{name}"' in cell.source and path.stem not in WHOLE:
            cell.source = cell.source.replace(f'"{name}"', repr(small(name)))
    first = STRICT
    if path.stem == "10_under_load":
        first += FEW
        assert any(REQUESTS[0] in one.source for one in notebook.cells)
        for one in notebook.cells:
            one.source = one.source.replace(*REQUESTS)
    notebook.cells.insert(0, nbformat.v4.new_code_cell(first))
    where = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(notebook, timeout=600, kernel_name="python3", resources=where).execute()
    outputs = [out for cell in notebook.cells for out in cell.get("outputs", [])]
    assert not [out for out in outputs if out.get("name") == "stderr"]
    assert not list(tmp_path.iterdir())


@each
def test_defines_only_policies_and_stays_in_the_package(path):
    for source in code(path):
        tree = ast.parse(source)
        refused = [node for node in outside_of_policies(tree) if not allowed(node)]
        assert not [ast.get_source_segment(source, node) for node in refused]


def outside_of_policies(tree: ast.Module) -> list[ast.AST]:
    """All nodes, but for definitions that `@simkit.policy(...)` makes rules of the reader's own."""
    own = {
        node
        for top in tree.body
        if isinstance(top, ast.FunctionDef | ast.ClassDef)
        and [ast.unparse(one).split("(")[0] for one in top.decorator_list] == ["simkit.policy"]
        for node in [top, *(part for part in top.body if isinstance(part, ast.FunctionDef))]
    }
    return [node for node in ast.walk(tree) if node not in own]


def allowed(node: ast.AST) -> bool:
    """No definition, no import from elsewhere, nothing that names, reads or writes a file."""
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef() | ast.Lambda():
            return False
        case ast.Import(names):
            return {one.name.split(".")[0] for one in names} <= IMPORTS
        case ast.ImportFrom(module, _, level):
            return (module or "").split(".")[0] in IMPORTS and not level
        case ast.Attribute(_, name):
            return not name.startswith(READS_OR_WRITES)
        case ast.Name(name):
            return name not in ("open", "exec", "eval", "compile", "__import__")
        case ast.Constant(str(text)):
            return not (text.startswith(("/", "~", ".")) or ".." in text or "://" in text)
    return True


@pytest.mark.parametrize(
    "source",
    [
        "def f(): pass",
        "class A: pass",
        "x = lambda: 0",
        "@cache\ndef f(): pass",
        "@simkit.policy(columns=())\ndef f(depth, row): return open('x')",
        "import os",
        "from pathlib import Path",
        "from . import me",
        "open('x')",
        "pl.read_csv('x')",
        "frame.write_parquet('x')",
        "figures.frontier(TRACE).save('x')",
        "traces.load('/x')",
        "traces.load('~/x')",
        "traces.load('../x')",
        "traces.load('https://x')",
    ],
)
def test_what_is_refused(source):
    assert not all(map(allowed, outside_of_policies(ast.parse(source))))


@each
def test_names_its_traces_in_one_cell(path):
    notebook = nbformat.read(path, as_version=4)
    (cell,) = [cell for cell in notebook.cells if parameters(cell)]
    assert cell.source.startswith('TRACE = "')
    for line in ast.parse(cell.source).body:
        assert isinstance(line, ast.Assign) and isinstance(line.value, ast.Constant)
        assert str(line.value.value).split("/drafters/")[0] in bundled() or _is_cost(line)
    others = "\n".join(other.source for other in notebook.cells if other is not cell)
    assert len(_bundled("\n".join(code(path)))) == len(_bundled(cell.source))
    assert "## Now with your trace" in others


def _is_cost(line: ast.Assign) -> bool:
    return ast.unparse(line.targets[0]) == "COST"


def _bundled(source: str) -> list[ast.AST]:
    """The literals that are names of bundled traces."""
    nodes = ast.walk(ast.parse(source))
    return [n for n in nodes if isinstance(n, ast.Constant) and n.value in bundled()]


@each
def test_text_and_notebook_are_the_same(path):
    config = load_jupytext_config(str(path))
    assert config is not None
    text = jupytext.writes(nbformat.read(path, as_version=4), fmt="py:percent", config=config)
    assert path.with_suffix(".py").read_text() == text, "make notebooks"
    assert config.default_formats(str(path)) == "ipynb,py:percent"


@each
def test_outputs_are_there_and_tell_nothing_of_the_machine(path):
    notebook = nbformat.read(path, as_version=4)
    assert path.stat().st_size < MOST_BYTES
    assert set(notebook.metadata) == {"kernelspec"}
    assert notebook.metadata["kernelspec"]["name"] == "python3"
    ran = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in ran] == list(range(1, len(ran) + 1))
    outputs = [out for cell in ran for out in cell.outputs]
    assert {out.output_type for out in outputs} <= {"execute_result", "display_data"}
    assert any("image/png" in out.data for out in outputs)
    for cell in notebook.cells:
        assert set(cell.metadata) <= {"tags"}
    for out in outputs:
        text = json.dumps({kind: data for kind, data in out.data.items() if kind != "image/png"})
        for trail in (str(FOLDER.parent), str(Path.home()), "/tmp", "site-packages", " at 0x"):
            assert trail not in text


def test_every_notebook_has_its_text_and_the_other_way_round():
    assert NOTEBOOKS == [path.with_suffix(".ipynb") for path in sorted(FOLDER.glob("*.py"))]
    about = (FOLDER / "README.md").read_text()
    assert not [path.stem for path in NOTEBOOKS if path.name not in about]
