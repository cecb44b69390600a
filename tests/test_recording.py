"""Recording as a function and by the command: checked early, resumed by its folder, estimated."""

import json
import shutil
import time

import pytest
from commands import refused, status
from rich.console import Console
from test_bad_input import pair  # noqa: F401

import simkit
from simkit import recording
from simkit.cli import progress
from simkit.errors import UserError
from traces.record import recorder
from traces.trace import load

SIZES = {"max_new_tokens": 8, "max_draft": 4, "batch_size": 1}
PROMPTS = [{"prompt": "def f(x):", "id": "one", "task": "code"}, {"prompt": "Two words"}]


@pytest.fixture
def prompts(tmp_path):
    file = tmp_path / "prompts.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in PROMPTS))
    return file


def options():
    return [word for name, n in SIZES.items() for word in (f"--{name.replace('_', '-')}", n)]


def files(folder):
    return {f.relative_to(folder): f.read_bytes() for f in folder.rglob("*") if f.is_file()}


def test_the_function_records_what_the_command_does(pair, prompts, tmp_path):  # noqa: F811
    models = {"target": str(pair / "target"), "draft": str(pair / "draft")}
    seen = []
    made = simkit.record(
        **models, prompts=PROMPTS, out=tmp_path / "a", **SIZES, progress=lambda *n: seen.append(n)
    )
    words = "--target", models["target"], "--draft", models["draft"], "--prompts", prompts
    assert status("record", *words, "--out", tmp_path / "b", *options()) == 0
    assert files(tmp_path / "a") == files(tmp_path / "b")
    assert (made.hash, made.n_sequences) == (load(tmp_path / "b").hash, 2)
    assert seen[-1] == (16, 16) and sorted(seen) == seen


def test_prompts_are_checked_before_models_are_loaded(pair, tmp_path, capsys, monkeypatch):  # noqa: F811
    """Also where nothing of a model is there."""
    monkeypatch.setattr(
        recording.RecordRequest, "load", lambda self: pytest.fail("a model is loaded")
    )
    file = tmp_path / "prompts.jsonl"
    for line, says in (
        ('{"prompt": 3}', "line 1: prompt must be text"),
        ('{"prompt": ""}', "line 1: the prompt has no tokens"),
        ('{"messages": [{}]}', "line 1: messages must be a list of objects with role and content"),
        ('{"prompt_tokens": [1, -4]}', "line 1: token id -4 is outside of any vocabulary"),
        ('{"prompt": "x", "task": []}', "line 1: task must be text, not []"),
    ):
        file.write_text(line)
        words = ["--target", "nowhere/at-all", "--prompts", file, "--out", tmp_path / "t"]
        assert says in refused(capsys, "record", *words)


def test_live_checks_prompts_before_models_are_loaded(tmp_path, capsys):
    (tmp_path / "p.jsonl").write_text('{"prompt": 3}')
    words = ["--target", "nowhere/x", "--draft", "nowhere/y", "--policy", "fixed(2)"]
    line = refused(capsys, "live", *words, "--prompts", tmp_path / "p.jsonl")
    assert "line 1: prompt must be text" in line


def stopped(pair, prompts, out, monkeypatch):  # noqa: F811
    """Record until the second shard, where it breaks off."""
    real = recorder.record_shard

    def breaks(pair, batch, first, *more):
        if first:
            raise KeyboardInterrupt
        return real(pair, batch, first, *more)

    monkeypatch.setattr(recorder, "record_shard", breaks)
    names = "--target", pair / "target", "--draft", pair / "draft", "--prompts", prompts
    assert status("record", *names, "--out", out, "--seed", "5", *options()) == 130
    monkeypatch.setattr(recorder, "record_shard", real)


def test_resume_needs_the_folder_alone(pair, prompts, tmp_path, monkeypatch, capsys):  # noqa: F811
    out = tmp_path / "t"
    stopped(pair, prompts, out, monkeypatch)
    capsys.readouterr()
    other = ["record", "--out", str(out), "--resume", "--seed", "4"]
    assert "--seed 4: the recording in " in (line := refused(capsys, *other))
    assert line.endswith(f"{out} was begun with --seed 5")
    hidden = ["record", "--out", str(out), "--resume", "--hidden"]
    assert "was begun with no --hidden" in refused(capsys, *hidden)
    assert status("record", "--out", out, "--resume", "--seed", "5") == 0
    assert load(out).manifest.seed == 5
    assert not (out / recording.NOTE).exists()
    assert status("record", "--out", out, "--resume") == 0
    assert "completely recorded already" in capsys.readouterr().err.replace("\n", " ")
    whole = simkit.record(
        str(pair / "target"), prompts, tmp_path / "w", str(pair / "draft"), seed=5, **SIZES
    )
    assert files(out) == files(whole.path)


@pytest.mark.parametrize("which", ["target", "draft"])
def test_models_whose_config_changed_do_not_resume(
    pair,  # noqa: F811
    prompts,
    tmp_path,
    monkeypatch,
    capsys,
    which,
):
    """The hash of the weights does not say what else a pass is made of."""
    models, out = tmp_path / "models", tmp_path / "t"
    shutil.copytree(pair, models)
    stopped(models, prompts, out, monkeypatch)
    capsys.readouterr()
    config = models / which / "config.json"
    text = config.read_text()
    config.write_text(json.dumps(json.loads(text) | {"rms_norm_eps": 0.5}))
    line = refused(capsys, "record", "--out", out, "--resume")
    said = f"was begun with other settings of a model ({which}/config.json: rms_norm_eps is "
    assert said in line and "there, 0.5 here): change them back, or begin anew" in line
    config.write_text(text)
    assert status("record", "--out", out, "--resume") == 0
    assert not load(out).manifest.settings


def test_the_function_resumes_too(pair, prompts, tmp_path, monkeypatch):  # noqa: F811
    stopped(pair, prompts, tmp_path / "t", monkeypatch)
    with pytest.raises(UserError, match="--seed 4: the recording in .* was begun with --seed 5"):
        simkit.record(out=tmp_path / "t", resume=True, seed=4)
    for given, begun in (({"seed": 0}, "--seed 5"), ({"max_draft": 40}, "--max-draft 4")):
        with pytest.raises(UserError, match=f"the recording in .* was begun with {begun}"):
            simkit.record(out=tmp_path / "t", resume=True, **given)  # a default is an option too
    same = {**SIZES, "hidden": False, "temperature": 0}
    assert simkit.record(out=tmp_path / "t", resume=True, **same).n_sequences == 2
    assert simkit.record(out=tmp_path / "t", resume=True).n_sequences == 2  # it is whole
    assert status("record", "--out", tmp_path / "t", "--resume", "--seed", 4) == 2
    with pytest.raises(UserError, match="does not have the options: --target is missing"):
        simkit.record(out=tmp_path / "t", resume=True, seed=4)


def test_what_is_missing_is_said(tmp_path, capsys):
    out = ["--out", str(tmp_path / "t")]
    assert "--target is missing" in refused(capsys, "record", *out)
    words = [*out, "--target", "x"]
    assert "--prompts is missing" in refused(capsys, "record", *words)
    resumed = refused(capsys, "record", *out, "--resume")
    assert "does not have the options: --target is missing" in resumed
    with pytest.raises(UserError, match="out is missing"):
        simkit.record("x", [])
    with pytest.raises(UserError, match="there are no prompts"):
        simkit.record("x", [], tmp_path / "t")


def test_a_long_recording_says_what_it_takes(pair, tmp_path, capsys):  # noqa: F811
    (tmp_path / "p.jsonl").write_text("\n".join(map(json.dumps, PROMPTS)))
    words = (
        "--target",
        pair / "target",
        "--draft",
        pair / "draft",
        "--prompts",
        tmp_path / "p.jsonl",
    )
    sizes = "--max-new-tokens", "64", "--max-draft", "4", "--batch-size", "1", "--ignore-eos"
    monkey = pytest.MonkeyPatch()
    with monkey.context() as patch:
        patch.setattr("traces.record.estimate._FEWEST", 128)
        assert status("record", *words, "--out", tmp_path / "t", *sizes) == 0
    said = capsys.readouterr().err
    assert said.startswith("simkit: 2 prompts, if no output ends early: about ")
    told = float(said.splitlines()[0].split(", ")[-1].removesuffix(" kB"))
    taken = sum(map(len, files(tmp_path / "t").values())) / 1e3
    assert taken / 2 < told < 3 * taken  # few rows are packed worse than many
    assert status("record", *words, "--out", tmp_path / "u", *sizes) == 0  # without a trial
    assert files(tmp_path / "t") == files(tmp_path / "u")


def test_one_that_goes_on_says_what_is_left(pair, prompts, tmp_path, monkeypatch, capsys):  # noqa: F811
    monkeypatch.setattr("traces.record.estimate._FEWEST", 8)
    monkeypatch.setattr("traces.record.estimate._WARM", 1)
    monkeypatch.setattr("traces.record.estimate._SHARE", 2)
    stopped(pair, prompts, tmp_path / "t", monkeypatch)
    assert "simkit: 2 prompts, if no output" in capsys.readouterr().err
    assert status("record", "--out", tmp_path / "t", "--resume") == 0
    assert "simkit: 1 prompt, if no output" in capsys.readouterr().err


def test_lines_where_there_is_no_terminal(pair, prompts, tmp_path, monkeypatch, capsys):  # noqa: F811
    monkeypatch.setattr(progress, "EVERY_S", 0.0)
    words = "--target", pair / "target", "--draft", pair / "draft", "--prompts", prompts
    assert status("record", *words, "--out", tmp_path / "t", *options()) == 0
    lines = [line for line in capsys.readouterr().err.splitlines() if "recording" in line]
    assert "simkit: recording: 16 of 16 (100%), " in lines[-1] and "left" in lines[-1]


def test_lines_of_attaching_training_and_scoring(monkeypatch, capsys):
    monkeypatch.setattr(progress, "EVERY_S", 0.0)
    with progress.training_bar(Console(stderr=True)) as told:
        task = told.add_task("attaching", total=4)
        told.update(task, completed=3)
    assert capsys.readouterr().err.startswith("simkit: attaching: 3 of 4 (75%), ")


def test_time_left_leaves_preparations_out(monkeypatch, capsys):
    monkeypatch.setattr(progress, "EVERY_S", 0.0)
    with progress.bar("recording", 1000) as (told, task):
        told.tasks[0].start_time -= 3600.0
        told.advance(task, 4)
        told.advance(task, 496)
    first, last = capsys.readouterr().err.splitlines()
    assert "left" not in first and last.endswith(" about less than a second left")


def test_lines_come_while_nothing_is_done(monkeypatch, capsys):
    """Of one long shard, too."""
    monkeypatch.setattr(progress, "EVERY_S", 0.05)
    with progress.training_bar(Console(stderr=True)) as told:
        told.add_task("attaching", total=56)
        time.sleep(0.5)
    ended = capsys.readouterr().err.splitlines()
    assert len(ended) >= 2 and ended[0].startswith("simkit: attaching: 0 of 56 (0%), ")
    time.sleep(0.2)
    assert capsys.readouterr().err == ""


def test_lines_come_once_a_minute(capsys):
    with progress.bar("counting", 1000) as (told, task):
        for _ in range(1000):
            told.advance(task)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("facts", "says"),
    [
        (("attaching", 3, 16, 60.0), "attaching: 3 of 16 (19%), 60 s passed, about 4 min left"),
        (("recording", 9, 900, 300.0, (9, 300.0)), "recording: 9 of 900 (1%), 5 min passed"),
        (
            ("recording", 18, 900, 306.0, (9, 300.0)),
            "recording: 18 of 900 (2%), 5 min passed, about 10 min left",
        ),
        (("settings", 0, 10, 0.2), "settings: 0 of 10 (0%), less than a second passed"),
        (("claims", 5, None, 7200.0), "claims: 2.0 h passed"),
    ],
)
def test_lines_of_progress(facts, says):
    assert progress.line(*facts) == says


def test_defaults_are_those_of_the_command():
    """The function, the command, and what a recording notes have one set of options."""
    import inspect

    from simkit.cli.record import record

    by_command = inspect.signature(record).parameters
    by_function = inspect.signature(simkit.record).parameters
    noted = inspect.signature(recording.RecordRequest).parameters
    assert by_command.keys() - {"ctx"} == by_function.keys() - {"progress"}
    assert noted.keys() == by_function.keys() - {"out", "resume", "progress", "ray"}
    for name, option in noted.items():
        if name not in ("target", "prompts"):  # which have none there
            assert by_command[name].default == option.default
        assert by_function[name].default is None  # what is given is told from what is not
