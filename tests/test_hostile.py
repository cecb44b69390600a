"""Hostile names and numbers: nothing that a command prints is obeyed, and no number breaks one."""

import inspect
import re
import typing

import numpy as np
import pyarrow as pa
import pytest
from commands import run as said
from trace_files import rewrite

import simkit
import traces
from simkit import policies, serving
from simkit.cli import _HELP, function_of
from simkit.cli.tables import csv_cell
from simkit.costs import Linear
from simkit.costs.registry import COSTS
from simkit.policies.registry import POLICIES
from simkit.serving.controllers import CONTROLLERS
from simkit.trees.base import TreePolicy
from traces.attach import registry as drafters
from traces.errors import UserError
from traces.subset import select
from traces.synthetic import iid
from traces.writer import save

COST = "linear(draft_s=0.002, target_s=0.03)"
COST_OBJECT = Linear(draft_s=0.002, target_s=0.03, target_per_token_s=0.001)
TASKS = ("=HYPERLINK(1)", "<script>alert(1)</script>", "\x1b[31mred\x07", "a|b", "+1+2", "@SUM(1)")
RUNS = {
    "info": ["info", "TRACE"],
    "replay": ["replay", "TRACE", "--policy", "fixed(2)", "--cost", COST, "--by", "task"],
    "sweep": ["sweep", "TRACE", "--policy", "fixed(1:2)", "--cost", COST, "--by", "task"],
    "tune": [
        *("tune", "TRACE", "--policy", "fixed(1:2)", "--cost", COST, "--folds", "2"),
        *("--by", "task", "--deals", "1"),
    ],
}
EXTREMES = (
    "nan",
    "inf",
    "-inf",
    "-1",
    "0",
    "1e300",
    "9" * 20,
    f"-{'9' * 20}",
    "2147483648",
    "",
    "x",
)
NEEDED = {
    "trace": "TRACE",
    "traces": "TRACE",
    "policy": "fixed(2)",
    "controller": "static(2)",
    "drafter": "none()",
    "engine": "vllm",
    "format": "tokens",
    "file": "NONE",
    "head": "NONE",
    "kind": "acceptance",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Tasks and prompts with formulas, tags and codes of terminals."""
    place = tmp_path_factory.mktemp("hostile") / "trace"
    save(iid(12, 16, 0.7, max_draft=20, seed=1, vocab_size=50, tasks=TASKS), place, batch_size=12)

    def with_texts(table):
        index = table.schema.names.index("prompt_text")
        texts = ["<img src=x onerror=alert(1)>\x1b[2J"] * table.num_rows
        return table.set_column(index, table.schema.field(index), pa.array(texts))

    rewrite(place, "sequences.parquet", with_texts)
    return place


@pytest.mark.parametrize("run", RUNS)
def test_no_terminal_obeys_a_name(run, folder, capsys):
    words = [str(folder) if word == "TRACE" else word for word in RUNS[run]]
    status, out, err = said(capsys, *words)
    assert status == 0, err
    assert "\x1b" not in out + err
    assert "\x07" not in out + err
    assert "\\x1b[31mred" in re.sub(r"\s", "", out)


@pytest.mark.parametrize("run", [run for run in RUNS if run != "info"])
def test_no_spreadsheet_calculates_a_cell(run, folder, capsys):
    words = [str(folder) if word == "TRACE" else word for word in RUNS[run]]
    status, out, err = said(capsys, *words, "--format", "csv")
    assert status == 0, err
    assert "'=HYPERLINK(1)" in out
    assert not re.search(r"(^|[,\n])\"?[=@+]", out)
    assert "\x1b" not in out


@pytest.mark.parametrize(
    ("text", "cell"),
    [
        ("=1", "'=1"),
        ("@x", "'@x"),
        ("+1+2", "'+1+2"),
        ("-cmd", "'-cmd"),
        ("\tx", "'\tx"),
        ("-0.5", "-0.5"),
        ("+3", "+3"),
        ("fixed(2)", "fixed(2)"),
        ("", ""),
    ],
)
def test_cells(text, cell):
    assert csv_cell(text) == cell


def numbers():
    """Every option of every command that takes a number, and what the command needs besides."""
    found = []
    for command in _HELP:
        function = function_of(command)
        hints = typing.get_type_hints(function, include_extras=True)
        hints.pop("return", None)
        parameters = inspect.signature(function).parameters
        needed = [
            (key, "ArgumentInfo" in str(hints[key]))
            for key in hints
            if parameters[key].default is inspect.Parameter.empty
        ]
        for key, hint in hints.items():
            base = typing.get_args(hint)[0] if typing.get_origin(hint) is typing.Annotated else hint
            if re.search(r"\b(int|float)\b", str(base)):
                found.append((command, key, needed))
    return found


@pytest.mark.parametrize(
    ("command", "key", "needed"), numbers(), ids=lambda x: x if isinstance(x, str) else ""
)
def test_no_number_breaks_a_command(command, key, needed, folder, tmp_path, capsys, monkeypatch):
    """Each ends well or with one line. Models are nowhere, and long runs are not made."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("analysis.explore.serve.serve", lambda *a, **k: None)
    words = [command]
    for name, is_argument in sorted(needed, key=lambda one: not one[1]):
        value = NEEDED.get(name, "NONE")
        value = {"TRACE": str(folder), "NONE": str(tmp_path / "none")}.get(value, value)
        words += [value] if is_argument else [f"--{name.replace('_', '-')}", value]
    if command in ("sweep", "tune", "serving", "replay"):
        words += ["--cost", COST]
    if command == "serving":
        words += ["--rate", "5", "--requests", "3", "--seeds", "1"]
    if command == "tune":
        words += ["--folds", "2", "--deals", "1"]
    for number in EXTREMES:
        status, _, err = said(capsys, *words, f"--{key.replace('_', '-')}={number}")
        assert status in (0, 2), err
        if status == 2:
            assert len(err.splitlines()) == 1, err
            assert len(err) <= 410, err
    for number in ("nan", "inf", "-inf", "9" * 20, "x"):
        assert said(capsys, *words, f"--{key.replace('_', '-')}={number}")[0] == 2, number


VALUES = (
    *(float("nan"), float("inf"), -float("inf"), -1, 0, 0.5, True, False, 1e300, -1e300, 10**20),
    *(-(10**20), 2**31, 2**63, "x", "", [], {}),
)
SERVED = {"rate": 5.0, "requests": 3, "seeds": 1, "workers": 1}
FUNCTIONS = {
    **{
        f"serve {name}": lambda trace, value, name=name: serving.serve(
            trace, "static(2)", COST_OBJECT, **{**SERVED, name: value}
        )
        for name in ("rate", "requests", "seeds", "workers", "confidence")
    },
    **{
        f"serve {name}": lambda trace, value, name=name: serving.serve(
            trace, "static(2)", COST_OBJECT, **{**SERVED, "rate": None, name: value}
        )
        for name in ("concurrency", "copies")
    },
    **{
        f"limit {name}": lambda trace, value, name=name: serving.serve(
            trace, "static(2)", COST_OBJECT, **SERVED, limits={name: value}
        )
        for name in ("ttft_s", "tpot_s", "latency_s", "gap_s")
    },
    **{
        f"engine {name}": lambda trace, value, name=name: serving.serve(
            trace, "static(2)", COST_OBJECT, **SERVED, engine=serving.Engine(**{name: value})
        )
        for name in ("max_batch", "kv_tokens", "prefill_tokens")
    },
    **{
        f"tune {name}": lambda trace, value, name=name: simkit.tune(
            trace, "fixed(1:2)", COST_OBJECT, **{"folds": 2, "deals": 1, "workers": 1, name: value}
        )
        for name in ("folds", "deals", "seed", "confidence", "workers")
    },
    **{
        f"sweep {name}": lambda trace, value, name=name: simkit.sweep(
            trace, "fixed(1:2)", COST_OBJECT, **{"workers": 1, name: value}
        )
        for name in ("confidence", "workers")
    },
}


@pytest.fixture(scope="module")
def small():
    return iid(4, 8, 0.7, max_draft=4, seed=1)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_no_argument_breaks_a_function(name, small):
    """Each gives a result, or the error that a user can mend; no boolean is a number."""
    for value in VALUES:
        try:
            FUNCTIONS[name](small, value)
        except UserError as error:
            assert len(str(error)) <= 400
        else:
            assert not isinstance(value, bool | str | list | dict), (name, value)
            # A limit that is infinite is none.
            assert abs(value) < float("inf") or name.startswith("limit"), name


ARGUMENTS = (
    *(3, -1, 0, -0.5, 1e300, float("nan"), 10**17, 2**63, 10**25, True, None, "", "word"),
    *((1,), (2**63,), ((1, 2),), ((0,), (2**63,)), ((1, (1, 2**63)),), [1, "b"], {"a": 1}),
)
GIVEN = {
    "linear": {"draft_s": 1, "target_s": 10, "target_per_token_s": 0.1},
    "roofline": {"device": "h100"},
    "atlas": {"target": "llama-3.1-8b", "draft": "qwen2.5-0.5b"},
    "static": {"length": 3},
    "off_above": {"length": 3, "batch": 2},
    "prophet": {"max_draft": 3},
} | {name: {"policy": policies.parse("fixed(3)")} for name in ("each", "all_stopped", "batch_mean")}
GIVEN |= {name: {"path": "."} for name in ("model", "parallel", "block", "feature", "rounds")}


def proposed(trace, drafter):
    """A draft of a rule that needs tokens alone."""
    if hasattr(drafter, "propose") and not getattr(drafter, "tree", False):
        tokens = np.arange(40, dtype=np.int32) % 5
        drafter.propose(tokens, 10, np.zeros(0, np.int32), 5, drafter.memory())


USES = {
    "cost": (COSTS, lambda trace, cost: simkit.replay(trace, ["fixed(2)", "pearl(2)"], cost)),
    "policy": (POLICIES, lambda trace, policy: simkit.replay(trace, [policy])),
    "controller": (
        CONTROLLERS,
        lambda trace, one: serving.serve(trace, one, COST_OBJECT, **{**SERVED, "workers": 1}),
    ),
    "drafter": (None, proposed),
}
RULES = [
    *((kind, name) for kind, (known, _) in USES.items() if known for name in known.known()),
    *(("drafter", name) for name in drafters.BUILT_IN),
]


@pytest.fixture(scope="module")
def recorded():
    """A few prompts with all columns, times and scores; and with trees."""
    whole = traces.load("reference")
    return select(whole, range(0, 128, 32), latency=whole.latency()), traces.load(
        "reference-trees", "eagle-tree"
    )


@pytest.mark.parametrize(("kind", "name"), RULES)
def test_no_argument_breaks_a_rule(kind, name, recorded):
    """Each is refused in words where it is made or used, or gives a result."""
    known, use = USES[kind]
    made = known[name] if known else drafters.get(name)
    given = {k: v for k, v in GIVEN.get(name, {}).items() if kind != "policy"}
    trace = recorded[issubclass(made, TreePolicy)]
    for argument in inspect.signature(made).parameters:
        for value in ARGUMENTS:
            try:
                use(trace, made(**{**given, argument: value}))
            except UserError as error:
                assert len(str(error)) <= 400
