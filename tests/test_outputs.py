import errno
import json
import os
import stat
import subprocess
import sys
import threading
from dataclasses import replace
from types import SimpleNamespace

import polars as pl
import pytest
from fault_cases import recording, samples
from matplotlib.figure import Figure
from trace_files import hashes, record, trace

from analysis.figures import Drawn
from traces import outputs
from traces.errors import RecordError, TraceError
from traces.manifest import read_manifest
from traces.outputs import check_room, locked, whole_folder, write_atomic, write_together
from traces.record.prompts import read_prompts
from traces.trace import load
from traces.writer import add_file, save

FULL = "No space left on device"


def full(*given, **keywords):
    raise OSError(errno.ENOSPC, FULL)


def test_links_are_followed_and_rights_are_kept(tmp_path):
    (tmp_path / "real").mkdir()
    file, link = tmp_path / "real" / "a.txt", tmp_path / "link.txt"
    file.write_text("old")
    file.chmod(0o640)
    link.symlink_to(file)
    write_atomic(link, b"new")
    assert link.is_symlink() and file.read_bytes() == b"new"
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    (tmp_path / "to come").symlink_to(tmp_path / "real" / "b.txt")
    check_room(tmp_path / "to come")
    write_atomic(tmp_path / "to come", b"")
    assert sorted(os.listdir(tmp_path / "real")) == ["a.txt", "b.txt"]


def test_what_is_no_regular_file_is_written_into(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    check_room(tmp_path / "pipe")
    reader = threading.Thread(target=lambda: found.append((tmp_path / "pipe").read_bytes()))
    found: list[bytes] = []
    reader.start()
    write_atomic(tmp_path / "pipe", b"text")
    reader.join()
    assert found == [b"text"] and os.listdir(tmp_path) == ["pipe"]


def test_writers_of_one_file_take_turns(tmp_path):
    """Each file that is read while they write is one of theirs, whole."""
    file = tmp_path / "a"
    contents = [bytes([k]) * 300_000 for k in range(4)]
    write_atomic(file, contents[0])

    def write(data):
        for _ in range(15):
            write_atomic(file, data)

    threads = [threading.Thread(target=write, args=(data,)) for data in contents]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        assert file.read_bytes() in contents
    assert os.listdir(tmp_path) == ["a"]


def test_a_full_disk_replaces_none_of_several_files(tmp_path, monkeypatch):
    files = [tmp_path / name for name in "abc"]
    write_together(dict.fromkeys(files, b"old"))
    before, synced, real = hashes(tmp_path), [], os.fsync

    def second(handle):
        synced.append(handle)
        return real(handle) if len(synced) < 2 else full()

    monkeypatch.setattr(os, "fsync", second)
    with pytest.raises(TraceError, match=f"/b: cannot be written: {FULL}$"):
        write_together(dict.fromkeys(files, b"new"))
    assert hashes(tmp_path) == before


def test_a_lock_is_for_one(tmp_path):
    script = "import sys; from pathlib import Path; from traces.outputs import locked\n"
    script += "with locked(Path(sys.argv[1]), 'writing it'): pass"
    command = [sys.executable, "-c", script, str(tmp_path / "a")]
    with locked(tmp_path / "a"):
        other = subprocess.run(command, capture_output=True, text=True, check=False)
        assert f"{tmp_path / 'a'}: another process is writing it" in other.stderr
    assert subprocess.run(command, check=False).returncode == 0
    assert os.listdir(tmp_path) == []


def test_a_folder_takes_its_place_when_it_is_whole(tmp_path, monkeypatch):
    place = tmp_path / "t"
    with pytest.raises(ZeroDivisionError), whole_folder(place) as folder:
        (folder / "a").touch()
        raise ZeroDivisionError
    assert os.listdir(tmp_path) == []
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        with pytest.raises(TraceError, match=rf"^{place}/.*: cannot be written: {FULL}$"):
            save(trace(), place)
    assert os.listdir(tmp_path) == []
    (tmp_path / ".t.tmp").mkdir()  # of a process that was killed
    (tmp_path / ".t.tmp" / "rest").touch()
    save(trace(), place)
    before = hashes(place)
    with pytest.raises(TraceError, match="/t: exists and is not an empty folder: name another"):
        save(trace(), place)
    assert hashes(place) == before and os.listdir(tmp_path) == ["t"]
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    with pytest.raises(
        TraceError,
        match=r"^\.: is the folder that the command runs in: name another$",
    ):
        save(trace(), ".")


def test_a_recording_that_fails_leaves_nothing(tmp_path, monkeypatch):
    """Nor does one that was killed before its first shard bar the next."""
    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", full)
        with pytest.raises(TraceError, match=FULL):
            recording(tmp_path)
    assert os.listdir(tmp_path) == []
    recording(tmp_path)
    files = set(hashes(tmp_path / "t")) - {"manifest.json"}
    for name in files:
        (tmp_path / "t" / name).unlink()
    manifest = tmp_path / "t" / "manifest.json"
    begun = replace(read_manifest(tmp_path / "t"), files={}, complete=False)
    manifest.write_text(begun.to_json())
    record(tmp_path / "t", trace(n=3))  # without --resume
    assert load(tmp_path / "t").n_sequences == 3


def test_readers_meet_the_old_table_or_the_new_one(tmp_path):
    """While it is replaced, again and again, nobody finds none, or half of one."""
    record(tmp_path / "t", trace(n=2))
    tables = [samples(1), samples(2)]
    add_file(tmp_path / "t", "latency.parquet", tables[0])
    earlier = load(tmp_path / "t")
    failed: list[Exception] = []

    def keep_replacing():
        try:
            for k in range(40):
                add_file(tmp_path / "t", "latency.parquet", tables[k % 2])
        except Exception as error:
            failed.append(error)

    writer = threading.Thread(target=keep_replacing)
    writer.start()
    while writer.is_alive():
        assert load(tmp_path / "t").extra("latency.parquet").num_rows in (2, 4)
        assert earlier.extra("latency.parquet").num_rows in (2, 4)
    writer.join()
    assert not failed


@pytest.mark.parametrize("call", ["open", "write", "fsync", "rename"])
def test_a_table_that_cannot_be_replaced_stays(tmp_path, monkeypatch, call):
    record(tmp_path / "t", trace(n=2))
    add_file(tmp_path / "t", "latency.parquet", samples(1))
    before = hashes(tmp_path)
    with monkeypatch.context() as patch:
        real = os.open

        def opened(file, flags, *mode, **more):
            return full() if flags & os.O_CREAT else real(file, flags, *mode, **more)

        patch.setattr(os, call, opened if call == "open" else full)
        with pytest.raises(TraceError, match=rf"/latency.parquet: cannot be written: {FULL}$"):
            add_file(tmp_path / "t", "latency.parquet", samples(2))
    assert hashes(tmp_path) == before


def test_a_figure_that_cannot_be_written_leaves_the_earlier_one(tmp_path, monkeypatch):
    drawn = Drawn("dots", pl.DataFrame({"x": [1]}), Figure().subplots())
    assert drawn.save(tmp_path / "new") == [
        tmp_path / "new" / f"dots.{end}" for end in ("png", "svg", "parquet")
    ]
    before = hashes(tmp_path)
    monkeypatch.setattr(outputs.os, "write", full)
    with pytest.raises(TraceError, match=rf"/new/dots\.\w+: cannot be written: {FULL}$"):
        drawn.save(tmp_path / "new")
    assert hashes(tmp_path) == before


@pytest.mark.parametrize("field", ["id", "task", "prompt"])
def test_half_of_a_surrogate_pair_is_refused(tmp_path, field):
    file = tmp_path / "p.jsonl"
    file.write_text(json.dumps({"prompt": "a", field: "x\ud800"}))
    tokenizer = SimpleNamespace(encode=lambda text: [1])
    with pytest.raises(RecordError, match=r"p\.jsonl, line 1: .*surrogate"):
        read_prompts(file, tokenizer, 9)
    file.write_text(json.dumps({"prompt": "a", field: "x\U0001f600"}))
    assert read_prompts(file, tokenizer, 9)
