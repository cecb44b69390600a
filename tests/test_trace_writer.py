import errno
import os
import shutil
import subprocess
import sys
from dataclasses import replace

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from trace_files import columns, hashes, record, trace

import traces
from traces import files, schema
from traces.errors import TraceError
from traces.manifest import read_manifest
from traces.sampler import Sampler
from traces.validate import validate
from traces.writer import TraceWriter, add_file, save

SOURCE = trace()
HEADER = replace(SOURCE.manifest, batch_size=3)
FULL = "No space left on device"
N_SAMPLES = pa.table({"component": pa.array(["draft"])})


def write(writer, *shards):
    for shard in shards:
        writer.write_shard(shard, *columns(SOURCE, writer.shard_sequences(shard)))


def test_equal_input_gives_equal_bytes(tmp_path):
    record(tmp_path / "a", SOURCE)
    record(tmp_path / "b", trace())
    assert hashes(tmp_path / "a") == hashes(tmp_path / "b")
    assert sorted(hashes(tmp_path / "a")) == [
        *(f"branches/0000{k}.parquet" for k in range(3)),
        "manifest.json",
        *(f"positions/0000{k}.parquet" for k in range(3)),
        "sequences.parquet",
    ]


def test_the_manifest_lists_a_shard_when_it_is_whole(tmp_path):
    with TraceWriter(tmp_path / "t", HEADER) as writer:
        assert read_manifest(tmp_path / "t") == replace(HEADER, complete=False)
        assert (writer.n_shards, writer.done, writer.complete) == (3, set(), False)
        write(writer, 1)
        listed = read_manifest(tmp_path / "t").files
        assert sorted(listed) == [f"{t}/00001.parquet" for t in ("branches", "parts", "positions")]
        assert writer.done == {1}
        for name, info in listed.items():
            files.check_hash(tmp_path / "t", name, info)


def test_resume_goes_on(tmp_path):
    record(tmp_path / "whole", SOURCE)
    with TraceWriter(tmp_path / "t", HEADER) as writer:
        write(writer, 2, 0)
    (tmp_path / "t" / "positions" / "00001.parquet").write_bytes(b"left over")
    (tmp_path / "t" / "positions" / ".00001.parquet.tmp").write_bytes(b"left over")
    (tmp_path / "t" / "sequences.parquet").write_bytes(b"left over")
    with TraceWriter(tmp_path / "t", HEADER, resume=True) as writer:
        assert writer.done == {0, 2}
        write(writer, 1)
        writer.finish()
    assert hashes(tmp_path / "t") == hashes(tmp_path / "whole")


def test_resume_writes_whole_numbers_as_before(tmp_path):
    source = trace(sampler=Sampler(temperature=1, draft_temperature=0))
    record(tmp_path / "whole", source)
    with TraceWriter(tmp_path / "t", replace(source.manifest, batch_size=3)):
        pass
    record(tmp_path / "t", source, resume=True)
    assert hashes(tmp_path / "t") == hashes(tmp_path / "whole")


def test_resume_of_a_finished_trace_changes_nothing(tmp_path):
    record(tmp_path / "t", SOURCE)
    add_file(tmp_path / "t", "latency.parquet", N_SAMPLES)
    before = {file: os.stat(tmp_path / "t" / file).st_mtime_ns for file in hashes(tmp_path / "t")}
    record(tmp_path / "t", SOURCE, resume=True)
    with TraceWriter(tmp_path / "t", HEADER, resume=True) as writer:
        assert writer.complete and writer.done == {0, 1, 2}
        with pytest.raises(ValueError, match="shard 0 is not one that is left"):
            write(writer, 0)
    after = {file: os.stat(tmp_path / "t" / file).st_mtime_ns for file in hashes(tmp_path / "t")}
    assert after == before


def test_resume_leaves_the_files_of_others(tmp_path):
    (tmp_path / "t").mkdir()
    with TraceWriter(tmp_path / "t", HEADER, resume=True):
        pass
    (tmp_path / "t" / "notes.txt").write_text("mine")
    (tmp_path / "t" / "positions").mkdir()
    (tmp_path / "t" / "positions" / "mine.parquet").write_text("mine")
    record(tmp_path / "t", SOURCE, resume=True)
    assert (tmp_path / "t" / "notes.txt").exists()
    assert (tmp_path / "t" / "positions" / "mine.parquet").exists()


def test_without_resume_a_folder_in_use_is_refused(tmp_path):
    record(tmp_path / "t", SOURCE)
    before = hashes(tmp_path / "t")
    with pytest.raises(TraceError, match=r"/t: the output folder is not empty: give --resume "):
        TraceWriter(tmp_path / "t", HEADER)
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(TraceError, match=r"^[^\n]*cannot be written: (Not a dir|File exists)"):
            TraceWriter(path, HEADER)
    assert hashes(tmp_path / "t") == before


def test_resume_of_another_recording_is_refused(tmp_path):
    with TraceWriter(tmp_path / "t", replace(HEADER, seed=1)) as writer:
        write(writer, 0)
    before = hashes(tmp_path / "t")
    message = "the output folder holds another trace: seed is 1 there, 0 here"
    for _ in range(2):  # the lock is given back
        with pytest.raises(TraceError, match=message):
            TraceWriter(tmp_path / "t", HEADER, resume=True)
    assert hashes(tmp_path / "t") == before


def test_resume_in_a_folder_that_is_no_trace_is_refused(tmp_path):
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(TraceError, match=r"not a trace, it has no manifest\.json"):
        TraceWriter(tmp_path, HEADER, resume=True)
    assert [file.name for file in tmp_path.iterdir()] == ["thesis.tex"]


def test_resume_with_a_damaged_shard_is_refused(tmp_path):
    with TraceWriter(tmp_path / "t", HEADER) as writer:
        write(writer, 0)
    (tmp_path / "t" / "positions" / "00000.parquet").write_bytes(b"short")
    with pytest.raises(TraceError, match=r"positions/00000\.parquet: truncated"):
        TraceWriter(tmp_path / "t", HEADER, resume=True)


def test_two_writers_at_once_are_refused(tmp_path):
    script = (
        "import sys; from traces.manifest import Manifest; from traces.writer import TraceWriter;"
        " TraceWriter(sys.argv[1], Manifest(1, 1))"
    )
    with TraceWriter(tmp_path / "t", HEADER):
        with pytest.raises(TraceError, match="/t: another process is writing to this trace"):
            TraceWriter(tmp_path / "t", HEADER, resume=True)
        command = [sys.executable, "-c", script, str(tmp_path / "t")]
        other = subprocess.run(command, capture_output=True, text=True, check=False)
        assert "another process is writing to this trace" in other.stderr
    record(tmp_path / "t", SOURCE, resume=True)


def full(*arguments, **keywords):
    raise OSError(errno.ENOSPC, FULL)


@pytest.mark.parametrize("call", ["fsync", "rename", "open", "write"])
@pytest.mark.parametrize("shard_is_first", [True, False])
def test_disk_full(tmp_path, monkeypatch, call, shard_is_first):
    """Whatever call runs out of space: one line, nothing torn, what was listed stays."""
    folder = tmp_path / "t"
    with TraceWriter(folder, HEADER) as writer:
        if not shard_is_first:
            write(writer, 0)
        before = hashes(folder)
        with monkeypatch.context() as patch:
            patch.setattr(os, call, full)
            with pytest.raises(
                TraceError, match=rf"^[^\n]*00001\.parquet: cannot be written: {FULL}$"
            ):
                write(writer, 1)
        after = hashes(folder)
        assert before.items() <= after.items()
        assert not any(name.endswith(".tmp") for name in after)
        for name, info in read_manifest(folder).files.items():
            files.check_hash(folder, name, info)
        write(writer, *sorted({0, 1, 2} - writer.done))  # space was made: the same writer goes on
        writer.finish()
    record(tmp_path / "whole", SOURCE)
    assert hashes(folder) == hashes(tmp_path / "whole")


def test_disk_full_in_the_manifest(tmp_path, monkeypatch):
    with TraceWriter(tmp_path / "t", HEADER) as writer:
        rename = os.rename
        monkeypatch.setattr(
            os, "rename", lambda a, b: full() if b.name == "manifest.json" else rename(a, b)
        )
        with pytest.raises(TraceError, match=rf"manifest\.json: cannot be written: {FULL}"):
            write(writer, 0)
        assert writer.done == set() and read_manifest(tmp_path / "t").files == {}
        monkeypatch.undo()
    record(tmp_path / "t", SOURCE, resume=True)
    assert validate(tmp_path / "t") == []


@pytest.mark.parametrize(
    ("table", "change", "message"),
    [
        (0, {"sequence": [1, 2, 3]}, r"shard 0 must hold sequences range\(0, 3\)"),
        (0, {"n_output": [1, 1, 1]}, "n_output adds up to another"),
        (0, {"finish_reason": None}, "column finish_reason is missing"),
        (0, {"finish_reason": [None] * 3}, "column finish_reason has a null"),
        (1, {"overlap": None}, "column overlap is missing"),
        (1, {"extra": [1]}, "unknown column extra"),
        (1, {"accepted": np.ones(3, np.float32)}, "column accepted: "),
        (2, {"depth": np.full(3, 2**40)}, "column depth: "),
        (2, {"depth": [1]}, "depth expected length"),
    ],
)
def test_columns_that_do_not_fit(tmp_path, table, change, message):
    with TraceWriter(tmp_path / "t", HEADER) as writer:
        given = list(columns(SOURCE, writer.shard_sequences(0)))
        given[table] = {k: v for k, v in (given[table] | change).items() if v is not None}
        with pytest.raises(ValueError, match=message):
            writer.write_shard(0, *given)
        assert writer.done == set()
        with pytest.raises(ValueError, match="shard 3 is not"):
            writer.write_shard(3, *columns(SOURCE, range(0, 3)))
        with pytest.raises(ValueError, match="0 of 3 shards are written"):
            writer.finish()


def hidden(source, shard, width=4):
    """States of prompt, path and branches; prompts have one token, so none of their own."""
    _, path, branches = columns(source, shard)
    path["depth"] = np.zeros(len(path["position"]))
    keys = {
        key: np.concatenate([path[key], branches[key]]) for key in ("sequence", "position", "depth")
    }
    order = np.lexsort([keys[key] for key in ("depth", "position", "sequence")])
    state = np.random.default_rng(shard.start).normal(size=(len(order), width))
    return {key: value[order].astype(int) for key, value in keys.items()} | {"state": state}


def test_hidden_states(tmp_path):
    states = []
    with TraceWriter(tmp_path / "t", replace(HEADER, hidden=True)) as writer:
        with pytest.raises(ValueError, match="hidden states do not go with the header"):
            write(writer, 0)
        for k in range(3):
            shard = writer.shard_sequences(k)
            given = hidden(SOURCE, shard)
            states.append(given["state"].astype(np.float16))
            writer.write_shard(k, *columns(SOURCE, shard), hidden=given)
        writer.finish()
    loaded = traces.load(tmp_path / "t")
    found = loaded.column("hidden", "state")
    np.testing.assert_array_equal(found, np.concatenate(states))
    assert found.dtype == np.float16
    assert loaded.has("hidden", "state")
    assert loaded.column("hidden", "depth").shape == (len(found),)
    assert validate(tmp_path / "t") == []


def test_save(tmp_path):
    save(SOURCE, tmp_path / "saved", batch_size=3)
    record(tmp_path / "recorded", SOURCE)
    assert hashes(tmp_path / "saved") == hashes(tmp_path / "recorded")


def test_other_readers_can_read_the_files(tmp_path):
    record(tmp_path / "t", SOURCE)
    frame = pl.read_parquet(tmp_path / "t" / "positions" / "*.parquet")
    assert frame.columns == schema.POSITIONS.names
    np.testing.assert_array_equal(frame["overlap"].to_numpy(), SOURCE.positions("overlap"))
    frame = pl.read_parquet(tmp_path / "t" / "sequences.parquet")
    assert frame["output_tokens"].to_list() == SOURCE.sequences["output_tokens"].to_pylist()


def test_add_file(tmp_path, monkeypatch):
    folder = tmp_path / "t"
    with TraceWriter(folder, HEADER) as writer:
        with pytest.raises(TraceError, match="another process is writing"):
            add_file(folder, "latency.parquet", N_SAMPLES)
        write(writer, 0)
    with pytest.raises(TraceError, match="incomplete: resume it with --resume"):
        add_file(folder, "latency.parquet", N_SAMPLES)
    with pytest.raises(TraceError, match="none: no such folder"):
        add_file(tmp_path / "none", "latency.parquet", N_SAMPLES)
    record(folder, SOURCE, resume=True)
    for name in ("positions/00000.parquet", "../latency.parquet", "scores/a/b.parquet", "a.txt"):
        with pytest.raises(ValueError, match="is not a file that is added to a trace"):
            add_file(folder, name, N_SAMPLES)
    add_file(folder, "scores/pacer.parquet", N_SAMPLES)
    add_file(folder, "latency.parquet", N_SAMPLES)
    add_file(folder, "latency.parquet", pa.concat_tables([N_SAMPLES, N_SAMPLES]))
    assert traces.load(folder).extra("scores/pacer.parquet").equals(N_SAMPLES)
    assert read_manifest(folder).files["latency.parquet"].rows == 2
    monkeypatch.setattr(os, "rename", full)
    with pytest.raises(TraceError, match=FULL):
        add_file(folder, "latency.parquet", N_SAMPLES)
    assert traces.load(folder).extra("latency.parquet").num_rows == 2


def test_one_drafter_of_a_recording_is_not_written_without_it(tmp_path):
    """Nor opened: its rows are the target's too, which the recording has."""
    drafter = traces.load("reference", "suffix")
    with pytest.raises(TraceError, match="cannot be written without it: simkit thin"):
        save(drafter, tmp_path / "alone")
    assert not (tmp_path / "alone").exists()
    shutil.copytree(drafter.path, tmp_path / "a" / "b" / "suffix")
    with pytest.raises(TraceError, match="suffix is one drafter of a recording, in whose folder"):
        traces.load(tmp_path / "a" / "b" / "suffix")
