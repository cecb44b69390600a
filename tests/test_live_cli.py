"""`simkit live` and `simkit fidelity` on tiny models: the whole way, and every refusal."""

import json
import os
import shutil
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import polars as pl
import pyarrow.parquet as pq
import pytest
import torch
from commands import refused
from pair_folders import pair, pair_folder, simkit

import traces
from simkit import replay
from simkit.cli import _unwinding
from simkit.errors import LiveError
from simkit.heads import files, registry
from simkit.live import decoders as timed
from simkit.live.log import LiveLog, read
from simkit.live.rotation import is_out_of_memory
from simkit.live.summary import Drift
from traces import schema
from traces.errors import TraceError
from traces.record.header import model_info
from traces.record.pair import load_target
from traces.trace import load
from traces.validate import validate

pytestmark = pytest.mark.usefixtures("one_thread")

FIXED = "fixed(3)"
HEADS = Path(traces.__file__).parent / "reference" / "heads"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return pair_folder(tmp_path_factory.mktemp("live"))


def live(folder, *more):
    base = ["live", *pair(folder), "--prompts", folder / "prompts.jsonl", "--rounds", 2]
    return [*base, "--max-new-tokens", 16, "--n-prompts", 3, *more]


@pytest.fixture
def agreeing(monkeypatch):
    """Passes of tiny models on a shared machine scatter: no two arms would ever agree."""
    monkeypatch.setattr(Drift, "agrees", property(lambda drift: True))


@pytest.fixture
def breaks(monkeypatch):
    """Lets svip's third sequence break off; its first one warms up and is not logged."""
    whole, done = timed.TimedDecoder.stepwise, []

    def arm(how, at=3):
        done.clear()

        def stepwise(self, *given):
            done.append(str(self.policy))
            if done.count("svip(h=1)") == at:
                if isinstance(how, BaseException):
                    raise how
                assert signal.getsignal(how) is not signal.SIG_DFL
                os.kill(os.getpid(), how)
            return whole(self, *given)

        monkeypatch.setattr(timed.TimedDecoder, "stepwise", stepwise)

    return arm


def test_live(folder, agreeing, tmp_path, capsys):
    out = tmp_path / "live.parquet"
    options = ["--policy", "fixed(3)", "--policy", "svip(h=1)", "-o", out]
    assert simkit(live(folder, *options)) == 0
    text = capsys.readouterr().out
    assert "baseline" in text and "svip(h=1)" in text and "fixed(3) twice" in text
    table = read(out)
    assert table.schema.equals(schema.LIVE)
    assert table.schema.metadata[b"dtype"] == b"float32"
    frame = pl.from_arrow(table)
    whole = frame.filter(pl.col("kind") == "sequence")
    assert whole.height == 4 * 3 * 2  # arms, prompts, rounds
    assert whole["policy"].unique().sort().to_list() == ["baseline", "fixed(3)", "svip(h=1)"]
    same = whole.group_by("sequence").agg(pl.col("tokens_in").n_unique())["tokens_in"]
    assert set(same) == {1}
    order = whole["run"].to_list()
    assert order[:8] == [0, 1, 2, 3, 1, 2, 3, 0] and order[12:16] == [1, 2, 3, 0]
    assert not list(tmp_path.glob("*.parts"))


def test_live_sampled_and_in_batches(folder, agreeing, capsys):
    assert simkit(live(folder, "--policy", "fixed(2)", "--temperature", 1)) == 0
    options = ["--policy", "svip(h=1)", "--batch-size", 2, "--stop", "any"]
    assert simkit(live(folder, *options)) == 0
    assert "outputs differ" not in capsys.readouterr().out


def test_a_log_goes_into_a_trace(folder, agreeing, tmp_path):
    shutil.copytree(folder / "trace", tmp_path / "trace")
    options = ["--policy", "fixed(2)", "--trace", tmp_path / "trace"]
    assert simkit(live(folder, *options)) == 0
    assert load(tmp_path / "trace").extra("live.parquet").num_rows
    assert validate(tmp_path / "trace") == []
    assert os.listdir(tmp_path) == ["trace"]


def test_only_prompts_that_are_decoded_must_fit(folder, agreeing, tmp_path):
    rows = [[1, 7, 2, 5], [2, 7], [3, 7, 5], [9] * 60]  # a pair of 64 positions
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text("\n".join(json.dumps({"prompt_tokens": row}) for row in rows))
    command = live(folder, "--policy", "fixed(2)", "--prompts", prompts, "--n-prompts")
    assert simkit([*command, 3]) == 0  # the first three
    assert simkit([*command, 4]) == 2


def test_tokens_of_a_batch_s_step_are_each_sequence_s(folder, agreeing, tmp_path, capsys):
    """fixed(0) emits the target's own token, one a step, however many sequences are in a step."""
    out = tmp_path / "live.parquet"
    options = ["--policy", "fixed(0)", "--batch-size", 2, "-o", out]
    assert simkit(live(folder, *options)) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if "fixed(0)" in line]
    assert len(lines) == 3 and all(" 1.000 " in line for line in lines[:2])
    assert 2 in pq.read_table(out)["batch_size"].to_pylist()


def test_a_head_of_another_pair_is_told(folder, agreeing, tmp_path, capsys):
    options = registry.get("specdecpp").settle({})
    mine = model_info(load_target(folder / "target", "cpu", "float32").target).weights_sha256
    facts = {"trained_on": {"target_sha256": mine, "draft_sha256": "0" * 64}}
    head = files.Head("specdecpp", 16, options, files.build("specdecpp", 16, options), facts)
    files.save(head, tmp_path / "head.safetensors")
    command = live(folder, "--policy", "specdecpp", "--head", tmp_path / "head.safetensors")
    assert simkit(command) == 0
    said = capsys.readouterr().err
    assert "the head specdecpp was trained for another draft model" in said
    assert "another target" not in said


@pytest.mark.parametrize("first", ["draft", "prefill"])
def test_tokens_per_step_are_those_of_a_replay(folder, agreeing, first, capsys):
    """The prompt's pass is no step, and an accepted EOS ends a step without a token behind it."""
    command = live(folder, "--policy", "fixed(3)", "--first-token", first)
    assert simkit([*command, "--n-prompts", 12, "--max-new-tokens", 24, "--rounds", 1]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    found = {cells[0]: cells[-2] for cells in lines if cells and cells[0] in ("baseline", FIXED)}
    replayed = replay(load(folder / "trace"), [FIXED], first_token=first)
    assert found == {"baseline": "1.000", FIXED: f"{replayed.frame['tokens_per_step'][0]:.3f}"}


def test_equal_arms_that_disagree_are_no_conclusion(folder, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(Drift, "agrees", property(lambda drift: False))
    out = tmp_path / "live.parquet"
    assert simkit(live(folder, "--policy", "fixed(3)", "-o", out)) == 1
    err = capsys.readouterr().err
    assert "not conclusive: equal arms" in err
    assert read(out).num_rows


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--policy", "pacer"], "the head pacer, which is not given"),
        (["--policy", "oracle"], "oracle() needs the future: it cannot run live"),
        (["--policy", "nonsense"], "nonsense"),
        (["--policy", "pearl(window=3)"], "drafts while the target verifies"),
        (["--policy", "acceptance_head(h=cost)"], "the head acceptance_head"),
        (
            ["--policy", "fixed(2)", "--head", "no.safetensors"],
            "no.safetensors: cannot be read",
        ),
        (
            ["--policy", "fixed(2)", "--head", HEADS / "pacer.safetensors"],
            "no policy reads a head pacer",
        ),
        (
            ["--policy", "pacer"] + ["--head", HEADS / "pacer.safetensors"] * 2,
            "two heads have the name pacer",
        ),
        (["--policy", "fixed(2)", "--cost", "paper"], "--cost needs --controller"),
        (["--policy", "fixed(2)", "--rounds", "0"], "at least 1"),
        (["--policy", "fixed(2)", "--threads", "0"], "threads must be from 1 to 4096, not 0"),
        (["--policy", "fixed(2)", "--threads", "9" * 9], "threads must be from 1 to 4096"),
        (["--policy", "fixed(2)", "--n-prompts", "-3"], "rounds, prompts, batch size and"),
        (["--policy", "fixed(2)", "--n-prompts", "1"], "too few prompts (1) for two batches of 1"),
        (["--policy", "fixed(2)", "--seed", 2**63], "seed must fit in 64 bits"),
        (
            ["--policy", "fixed(2)", "--temperature", "1", "--seed", "9" * 20],
            "seed must fit in",
        ),
        (["--policy", "fixed(2)", "--trace", "reference"], "reference: comes with the package"),
        (["--policy", "fixed(2)", "-o", "nowhere/live.parquet"], "no such folder: nowhere"),
        (["--policy", "fixed(2)", "-o", "live.csv"], "must be a .parquet file"),
        (["--policy", "fixed(2)", "--trace", "nowhere"], "nowhere"),
        (["--policy", "fixed(2)", "--max-new-tokens", "999"], "need 1,003 positions"),
        (["--policy", "fixed(2)", "--temperature", "1", "--batch-size", "2"], "greedily"),
        (["--policy", "fixed(2)", "--draft", "./nowhere"], "nowhere"),
    ],
)
def test_live_refuses_in_one_line(folder, options, words, capsys):
    assert simkit(live(folder, *options)) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.count("\n") == 1
    assert captured.err.startswith("simkit: ") and words in captured.err


@pytest.mark.parametrize(
    ("error", "status", "words"),
    [
        (MemoryError(), 2, "out of memory: svip(h=1) on sequence"),
        (torch.OutOfMemoryError("CUDA out of memory. Tried"), 2, "out of memory: svip(h=1)"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you"), 2, "out of memory: s"),
        (KeyboardInterrupt(), 130, "simkit: interrupted; "),
        (signal.SIGTERM, 143, "simkit: interrupted; "),
    ],
)
def test_what_was_measured_survives(folder, error, status, words, breaks, tmp_path, capsys):
    breaks(error)
    out = tmp_path / "live.parquet"
    options = ["--policy", "fixed(3)", "--policy", "svip(h=1)", "-o", out]
    assert simkit(live(folder, *options)) == status
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and words in err
    frame = pl.from_arrow(read(out)).filter(pl.col("kind") == "sequence")
    assert frame.height >= 4
    assert f"{out} has the {frame.height} sequences that were decoded" in err
    assert os.listdir(tmp_path) == ["live.parquet"]


@pytest.mark.parametrize("place", ["file", "trace", "fidelity"])
def test_what_breaks_off_leaves_an_earlier_log(
    folder, place, agreeing, breaks, tmp_path, monkeypatch, capsys
):
    shutil.copytree(folder / "trace", tmp_path / "trace")
    monkeypatch.chdir(tmp_path)
    policies = ["--policy", "svip(h=1)", "--policy", "fixed(3)"]
    command, log, spare = {
        "file": (live(folder, *policies, "-o", "live.parquet"), "live.parquet", "live"),
        "trace": (live(folder, *policies, "--trace", "trace"), "trace/live.parquet", "trace.live"),
        "fidelity": (fidelity(folder, "out", *policies), "out/live.parquet", "out/live"),
    }[place]
    assert simkit(command) == 0
    before = (tmp_path / log).read_bytes()
    for name in (f"{spare}.partial.parquet", f"{spare}.partial-2.parquet"):
        capsys.readouterr()
        breaks(KeyboardInterrupt())
        assert simkit(command) == 130
        err = capsys.readouterr().err
        assert f"{log} is as it was; " in err and f"{name} has the " in err
        assert err.count("\n") == 1 + (place == "fidelity")  # which says how long it takes
        assert (tmp_path / log).read_bytes() == before
        assert 0 < read(tmp_path / name).num_rows < read(tmp_path / log).num_rows
    assert validate(tmp_path / "trace") == [] and not list(tmp_path.rglob("*.parts"))


def test_a_whole_run_replaces_an_earlier_log(folder, agreeing, tmp_path):
    out = tmp_path / "live.parquet"
    for spec in ("fixed(1)", "fixed(2)"):
        assert simkit(live(folder, "--policy", spec, "-o", out)) == 0
    assert set(read(out)["policy"].to_pylist()) == {"baseline", "fixed(2)"}
    assert os.listdir(tmp_path) == ["live.parquet"]


def test_a_log_that_does_not_get_into_the_trace_stays_beside_it(
    folder, agreeing, monkeypatch, tmp_path, capsys
):
    shutil.copytree(folder / "trace", tmp_path / "trace")

    def refuse(*given):
        raise TraceError("another process is writing to this trace")

    monkeypatch.setattr("traces.writer.add_file", refuse)
    command = live(folder, "--policy", "fixed(2)", "--trace", tmp_path / "trace")
    assert simkit(command) == 2
    log = tmp_path / "trace.live.parquet"
    said = capsys.readouterr().err
    assert f"{log} has the log, the trace does not: another process is writing to" in said
    assert read(log).num_rows
    assert simkit(command) == 2
    spare = tmp_path / "trace.live.partial.parquet"
    assert f"an earlier run measured and left behind is in {spare}" in capsys.readouterr().err
    assert read(log).num_rows == read(spare).num_rows


def test_what_breaks_off_before_anything_is_measured_or_without_a_log(folder, breaks, capsys):
    breaks(KeyboardInterrupt(), 1)
    assert simkit(live(folder, "--policy", "svip(h=1)")) == 130
    assert capsys.readouterr().err == "simkit: interrupted; nothing was measured yet\n"
    breaks(MemoryError())
    line = refused(capsys, *live(folder, "--policy", "svip(h=1)"))
    assert "; no log was asked for, nothing is kept" in line


def test_what_was_measured_gets_into_the_trace(folder, breaks, tmp_path, monkeypatch, capsys):
    shutil.copytree(folder / "trace", tmp_path / "trace")
    monkeypatch.chdir(tmp_path / "trace")
    breaks(MemoryError())
    assert simkit(live(folder, "--policy", "svip(h=1)", "--trace", ".")) == 2
    name = tmp_path / "trace" / "live.parquet"
    assert f"{name} has the " in capsys.readouterr().err
    assert read(name).num_rows and os.listdir(tmp_path) == ["trace"]


def test_an_interrupted_test_keeps_its_log(folder, breaks, tmp_path, capsys):
    breaks(KeyboardInterrupt())
    options = ["--policy", "svip(h=1)", "--policy", "fixed(3)"]
    assert simkit(fidelity(folder, tmp_path / "out", *options)) == 130
    log = tmp_path / "out" / "live.parquet"
    err = capsys.readouterr().err
    told, said = err.splitlines()
    assert " runs of a prompt take about " in told
    assert said.startswith(f"simkit: interrupted; {log} has the ")
    assert read(log).num_rows


def test_a_second_termination_ends_at_once_and_the_handler_is_put_back():
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit) as end, _unwinding():
        try:
            signal.raise_signal(signal.SIGTERM)
        finally:
            assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    assert end.value.code == 143
    assert signal.getsignal(signal.SIGTERM) == before
    with ThreadPoolExecutor(1) as pool:  # where no handler may be set
        assert pool.submit(lambda: simkit(["--help"])).result() == 0


def test_the_allocator_s_own_words_are_known():
    with pytest.raises(RuntimeError) as failed:
        torch.empty(1 << 60, dtype=torch.uint8)
    assert is_out_of_memory(failed.value)
    assert not is_out_of_memory(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))


def test_a_killed_run_leaves_whole_parts(tmp_path):
    """Every part is a Parquet file that can be read, though the log was never closed."""
    script = (
        "import os, signal, sys; from pathlib import Path\n"
        "from simkit.live.log import LiveLog, LiveRow\n"
        "log = LiveLog(Path(sys.argv[1]), every_s=0)\n"
        "row = LiveRow(1, 1, 0, 'verify', 'target', 0, 1, 9, 1, 0.5)\n"
        "for n in range(25): log.add(0, 0, 'x', n, [row])\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    out = tmp_path / "live.parquet"
    subprocess.run([sys.executable, "-c", script, str(out)], check=False)
    parts = sorted((tmp_path / "live.parquet.parts").glob("*.parquet"))
    assert [len(pq.read_table(part)) for part in parts] == [1] * 25
    log = LiveLog(out)
    assert log.recovered == [tmp_path / "live.partial.parquet"]
    assert read(log.recovered[0])["sequence"].to_pylist() == list(range(25))
    with pytest.raises(TraceError, match="is a folder"):
        LiveLog(out.with_name("live.parquet.parts"))
    with pytest.raises(LiveError, match="live.parquet: another run is writing this log"):
        LiveLog(out)
    log.close()
    assert os.listdir(tmp_path) == ["live.partial.parquet"]
    LiveLog(out).close()
    assert os.listdir(tmp_path) == ["live.partial.parquet"]


@pytest.mark.parametrize("into", ["-o", "--trace"])
def test_two_runs_do_not_share_a_log(folder, agreeing, tmp_path, monkeypatch, capsys, into):
    """The second is refused before it decodes anything, and the first loses nothing."""
    shutil.copytree(folder / "trace", tmp_path / "trace")
    place = tmp_path / "live.parquet" if into == "-o" else tmp_path / "trace"
    file = place if into == "-o" else tmp_path / "trace.live.parquet"
    command = live(folder, "--policy", "fixed(2)", into, place)
    whole, codes = timed.TimedDecoder.stepwise, []

    def stepwise(self, *given):
        if not codes:  # in the midst of the first run
            codes.append(None)
            code = "from simkit.cli import main; import sys; main(sys.argv[1:])"
            words = [sys.executable, "-c", code, *map(str, command)]
            codes[0] = subprocess.run(words, capture_output=True, text=True, check=False)
        return whole(self, *given)

    monkeypatch.setattr(timed.TimedDecoder, "stepwise", stepwise)
    assert simkit(command) == 0
    assert codes[0].returncode == 2
    assert f"simkit: {file}: another run is writing this log\n" in codes[0].stderr
    log = read(file) if into == "-o" else load(place).extra("live.parquet")
    assert set(log["policy"].to_pylist()) >= {"baseline", "fixed(2)"}
    assert set(os.listdir(tmp_path)) == {"trace", place.name}


def fidelity(folder, out, *more):
    base = ["fidelity", folder / "trace", *pair(folder), "--n-prompts", 4, "--calibration", 3]
    return [*base, "--rounds", 2, "-o", out, *more]


def test_fidelity(folder, agreeing, tmp_path, capsys):
    options = ["--policy", "fixed(1)", "--policy", "svip(h=1)", "--policy", "heuristic(initial=3)"]
    assert simkit(fidelity(folder, tmp_path / "out", *options)) == 0
    text = capsys.readouterr().out
    assert "live steps are the replayed ones in 12 of 12 sequences" in text
    names = {file.name for file in (tmp_path / "out").iterdir()}
    assert names == {f"fidelity.{x}" for x in ("md", "png", "parquet")} | {
        "cost.parquet",
        "live.parquet",
    }
    frame = pl.read_parquet(tmp_path / "out/fidelity.parquet")
    assert frame["policy"].to_list() == options[1::2]
    assert frame["differing"].sum() == 0 and frame["sequences"].to_list() == [4, 4, 4]
    assert "| `svip(h=1)` |" in (tmp_path / "out/fidelity.md").read_text()
    cost = pq.read_table(tmp_path / "out/cost.parquet")
    assert {"policy:svip", "overhead", "overhead:baseline"} <= set(cost["component"].to_pylist())
    replay = ["replay", folder / "trace", "--policy", "fixed(1)", "--format", "json"]
    assert simkit([*replay, "--cost", tmp_path / "out/cost.parquet"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["speedup"] > 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([], "the head pacer, which is not given"),  # of the default policies
        (["--policy", "oracle"], "needs the future"),
        (
            ["--policy", "fixed(2)", "--n-prompts", "10"],
            "13 prompts are asked for, but the trace has",
        ),
        (["--policy", "fixed(3)", "--draft", "OTHER"], "recorded with another draft model"),
        (["--policy", "fixed(3)", "--dtype", "int8"], "unknown dtype"),
        (["--policy", "pacer", "--head", HEADS / "pacer.safetensors"], "for another draft model"),
    ],
)
def test_fidelity_refuses_in_one_line(folder, options, words, tmp_path, capsys):
    options = [folder / "other" if option == "OTHER" else option for option in options]
    assert words in refused(capsys, *fidelity(folder, tmp_path / "out", *options))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["pacer", "--head", HEADS / "pacer-sampled.safetensors"], "has scores of another head"),
        (["fixed(60, max_draft=60)"], "have at most max_draft (Γ) = 40"),
    ],
)
def test_what_cannot_be_replayed_is_not_run(options, words, capsys):
    base = ["fidelity", "reference", "--target", "./no", "--draft", "./no", "--policy"]  # none
    assert words in refused(capsys, *base, *options)


def test_a_run_is_judged_again_from_its_log(folder, agreeing, tmp_path, capsys):
    options = ["--policy", "fixed(1)", "--policy", "svip(h=1)", "--max-new-tokens", 12]
    assert simkit(fidelity(folder, tmp_path / "out", *options)) == 0
    first = capsys.readouterr().out
    assert "live steps are the replayed ones in 8 of 8 sequences" in first
    before = (tmp_path / "out/fidelity.md").read_text()
    again = ["fidelity", folder / "trace", "--from", tmp_path / "out", "-o", tmp_path / "new"]
    assert simkit(again) == 0
    assert capsys.readouterr().out == first.replace(str(tmp_path / "out"), str(tmp_path / "new"))
    assert (tmp_path / "new/fidelity.md").read_text() == before
    assert not (tmp_path / "new/live.parquet").exists()
    assert "--from runs nothing" in refused(capsys, *again, "--policy", "fixed(1)")
    line = refused(capsys, "fidelity", folder / "trace", "--from", folder)
    assert "there is no log in it" in line
    assert "give --target and --draft, or --from" in refused(capsys, "fidelity", folder / "trace")


def test_a_log_of_another_pair_does_not_go_into_a_trace(folder, capsys):
    options = ["--policy", "fixed(2)", "--trace", folder / "trace", "--draft", folder / "other"]
    assert "recorded with another draft model" in refused(capsys, *live(folder, *options))
    assert load(folder / "trace").extra("live.parquet") is None
