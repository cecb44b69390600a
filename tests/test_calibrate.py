"""`simkit calibrate` on tiny models: the cost that it puts into a trace."""

import json
import re
import shutil
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from commands import refused, run
from pair_folders import pair, pair_folder, simkit

import simkit as toolkit
import traces
from simkit.costs import Measured
from simkit.errors import LiveError
from simkit.fidelity import calibrate as calibrate_rules
from simkit.fidelity import calibration
from simkit.fidelity.calibration import prompts_of
from simkit.live.log import read
from simkit.policies import RateOptimal
from simkit.simulator import replay
from traces.conditions import conditions
from traces.errors import UserError
from traces.record.pair import load_pair
from traces.trace import DATA, load
from traces.validate import validate

PACER = Path(traces.__file__).parent / "reference" / "heads" / "pacer.safetensors"
LOOKING = {"adaedl", "confidence", "confidence_adaptive", "cumulative_confidence", "draft_verify"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return pair_folder(tmp_path_factory.mktemp("calibrate"))


def calibrate(folder, trace, *more):
    return [
        "calibrate",
        trace,
        *pair(folder),
        "--n-prompts",
        4,
        "--rounds",
        1,
        "--threads",
        1,
        *more,
    ]


def test_every_rule_that_can_run_is_timed_and_charged(folder, tmp_path, capsys):
    trace = shutil.copytree(folder / "trace", tmp_path / "trace")
    assert simkit(calibrate(folder, trace, "--log", tmp_path / "log.parquet")) == 0
    said = capsys.readouterr()
    assert "policy:svip" in said.out
    assert re.search(
        r"^simkit: \d+ runs of a prompt take about .*, their log about ", said.err, re.M
    )
    assert (
        "simkit: warning: 4 prompts: a cost is made, but intervals of speeds may have no end"
        in said.err
    )
    table = load(trace).latency()
    assert table is not None and (tmp_path / "log.parquet").exists()
    components = set(table["component"].to_pylist())
    found = conditions(table)
    assert found.load is not None or found.cores is not None
    drawn = {name.removeprefix("draw:") for name in components if name.startswith("draw:")}
    assert {"draft", "target", "overhead", "policy:svip"} <= drawn
    components = {name for name in components if not name.startswith("draw:")}
    assert drawn <= components
    timed = LOOKING | {"svip", "llamacpp", "rate_optimal"}
    assert {f"policy:{name}" for name in timed} <= components
    assert {"draft", "target", "overhead", "overhead:baseline"} <= components
    assert not any(name.startswith("head:") for name in components)  # none was given
    command = ["replay", trace, "--policy", "svip(h=1)", "--policy", "fixed(2)", "--format", "json"]
    assert simkit(command) == 0
    svip, fixed = json.loads(capsys.readouterr().out)
    assert svip["policy_s"] > 0 and svip["overhead_s"] > 0
    assert fixed["policy_s"] == 0 and fixed["overhead_s"] > 0


def test_a_file_leaves_the_trace_alone(folder, tmp_path, capsys):
    before = load(folder / "trace").latency()
    options = ["--policy", "svip(h=2)", "-o", tmp_path / "cost.parquet"]
    assert simkit(calibrate(folder, folder / "trace", *options)) == 0
    assert load(folder / "trace").latency() == before
    command = ["replay", folder / "trace", "--policy", "svip(h=1)", "--format", "json"]
    capsys.readouterr()
    assert simkit([*command, "--cost", tmp_path / "cost.parquet"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["policy_s"] > 0


def test_shorter_outputs_and_samples_that_are_replaced(folder, tmp_path, capsys):
    trace = shutil.copytree(folder / "trace", tmp_path / "trace")
    options = ["--policy", "svip(h=1)", "--max-new-tokens", 6, "--log", tmp_path / "log.parquet"]
    assert simkit(calibrate(folder, trace, *options)) == 0
    assert "will be replaced" not in capsys.readouterr().out
    whole = read(tmp_path / "log.parquet").filter(pc.field("kind") == "sequence")
    assert max(whole["tokens_in"].to_pylist()) == 6
    assert simkit(calibrate(folder, trace, *options)) == 0
    assert f"{trace} has timing samples already: they will be replaced" in capsys.readouterr().out
    assert validate(trace) == []


def test_the_package_s_own_samples_stay(folder, capsys):
    """By its name a bundled trace is only read; its folder's path means it."""
    assert "reference: comes with the package" in refused(capsys, *calibrate(folder, "reference"))
    path = DATA / "reference"
    ended, _, said = run(capsys, *calibrate(folder, path, "--policy", "svip(h=1)"))
    assert ended == 2 and "recorded with another" in said  # than the tiny pair


def test_heads_are_read_once(folder, tmp_path, monkeypatch, capsys):
    read_them = []
    monkeypatch.setattr(calibration, "load_heads", lambda heads: read_them.append(heads) or {})
    options = ["--head", "x.safetensors", "--policy", "svip(h=1)", "-o", tmp_path / "cost.parquet"]
    assert simkit(calibrate(folder, folder / "trace", *options)) == 0
    assert read_them == [["x.safetensors"]]


def test_sizes_are_checked_before_rules_are_fitted(folder, monkeypatch, capsys):
    monkeypatch.setattr("simkit.simulator.arguments.setting", lambda *given: pytest.fail("fitted"))
    line = refused(capsys, *calibrate(folder, folder / "trace", "--rounds", 0))
    assert line == "simkit: --rounds must be at least 1, not 0"


def test_rules_are_fitted_once(folder, tmp_path, monkeypatch):
    fitted, whole = [], RateOptimal.bind
    bind = lambda self, setting: fitted.append(self) or whole(self, setting)  # noqa: E731
    monkeypatch.setattr(RateOptimal, "bind", bind)
    assert simkit(calibrate(folder, folder / "trace", "-o", tmp_path / "cost.parquet")) == 0
    assert len(fitted) == 1


@pytest.mark.parametrize(
    ("lengths", "prompts", "chosen"),
    [
        ([5, 9, 1, 7, 3], 1, (2,)),
        ([5, 9, 1, 7, 3], 2, (1, 2)),
        ([5, 9, 1, 7, 3], 3, (0, 1, 2)),
        ([5, 9, 1, 7, 3], 5, (0, 1, 2, 3, 4)),
        ([4, 4, 4, 4], 2, (0, 3)),
    ],
)
def test_prompts_are_taken_from_the_shortest_to_the_longest(lengths, prompts, chosen):
    """Else no pass is timed behind a context as long as the trace's longest."""
    table = pa.table({"sequence": list(range(len(lengths))), "n_prompt": lengths})
    there = SimpleNamespace(n_sequences=len(lengths), sequences=table)
    assert prompts_of(there, prompts, rounds=1) == chosen


def test_prompts_that_do_not_bear_their_index_are_refused(folder, monkeypatch, capsys):
    """A rule that is fitted to a trace looks up what it knows of a prompt by that number."""
    there = load(folder / "trace")
    numbers = pa.array(range(1, 13), there.sequences.schema.field("sequence").type)
    index = there.sequences.schema.get_field_index("sequence")
    renumbered = there.sequences.set_column(index, "sequence", numbers)
    monkeypatch.setattr(type(there), "sequences", property(lambda trace: renumbered))
    assert simkit(calibrate(folder, folder / "trace")) == 2
    words = "simkit: the trace's sequences are not numbered from 0 to 11 in order\n"
    assert capsys.readouterr().err == words


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--n-prompts", 13], "--n-prompts 13: the trace has only 12"),
        (["--n-prompts", 0], "--n-prompts must be at least 1, not 0"),
        (["--rounds", 0], "must be at least 1"),
        (["--policy", "pacer"], "reads the head pacer, which is not given"),
        (["--head", PACER], "the head was trained for another draft model"),
        (["--policy", "oracle"], "needs the future"),
        (["--draft", "OTHER"], "recorded with another draft model"),
        (["--log", "log.csv"], "--log log.csv: must be a .parquet file"),
        (["--log", "nowhere/log.parquet"], "--log nowhere/log.parquet: no such folder"),
        (["-o", "nowhere/cost.parquet"], "-o nowhere/cost.parquet: no such folder: nowhere"),
        (["-o", "cost.csv"], "-o cost.csv: neither a trace"),
        (["--max-new-tokens", 25], "must be from 1 to the trace's 24, not 25"),
    ],
)
def test_it_refuses_in_one_line(folder, options, words, capsys):
    options = [folder / "other" if option == "OTHER" else option for option in options]
    assert words in refused(capsys, *calibrate(folder, folder / "trace", *options))


def test_a_function_is_timed_in_a_running_decoder(folder, tmp_path):
    """Then no microbenchmark is needed for it: it goes by its label."""
    names = pair(folder)
    loaded = load_pair(names[1], names[3], "cpu", "float32", None)
    there = load(folder / "trace")

    def unsure(depth, row):
        return row.draft_entropy > 1

    samples = calibrate_rules(there, loaded, unsure, prompts=3, rounds=2, draws=2)
    assert "policy:function:unsure" in samples["component"].to_pylist()
    assert conditions(samples).control == "2 rounds over the same prompts"
    pq.write_table(samples, tmp_path / "cost.parquet")
    cost = Measured(file=str(tmp_path / "cost.parquet"))
    result = replay(there, unsure, cost)
    assert result.rule_times["unsure"].how == "measured in running decoders"
    assert result.rule_times["unsure"].seconds > 0


def test_from_python_it_is_that_of_the_command(folder, tmp_path):
    """The same components, into the trace or a file; all outputs are counted; files are checked."""
    given = {"n_prompts": 4, "rounds": 1, "threads": 1, "policy": ["svip(h=1)"]}
    trace = shutil.copytree(folder / "trace", tmp_path / "trace")
    models = [str(folder / "target"), str(folder / "draft")]
    file, told = tmp_path / "cost.parquet", []
    heard = {"out": file, "progress": lambda *one: told.append(one)}
    cost = toolkit.calibrate(trace, *models, **given, **heard)
    assert cost == Measured(file=str(file)) and told[-1] == (len(told), len(told))
    assert toolkit.calibrate(trace, *models, **given) == Measured()
    more = ["--policy", "svip(h=1)", "-o", tmp_path / "command.parquet"]
    assert simkit(calibrate(folder, trace, *more)) == 0
    found = [
        set(pq.read_table(one)["component"].to_pylist())
        for one in (file, trace / "latency.parquet", tmp_path / "command.parquet")
    ]
    assert found[0] == found[1] == found[2] >= {"draft", "target", "policy:svip", "overhead"}
    with pytest.raises(LiveError, match=r"out=x.csv: must be a .parquet file"):
        toolkit.calibrate(trace, *models, out="x.csv")
    for wrong in ({"log": file}, {"out": trace / "mine.parquet"}):
        with pytest.raises(UserError, match="name another"):
            toolkit.calibrate(trace, *models, **{"out": file, **wrong})
    with pytest.raises(UserError, match="comes with the package"):
        toolkit.calibrate("reference", *models)
