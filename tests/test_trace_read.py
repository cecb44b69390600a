import random
import shutil
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from trace_files import SAMPLED, edit, record, rewrite, trace

import traces
from traces import decoded_cache, files, finding, schema, scores, validation_cache
from traces.manifest import MANIFEST, read_manifest
from traces.writer import add_file

NAMES = {"positions": schema.POSITIONS.names, "branches": schema.BRANCHES.names}
SHARD = "positions/00001.parquet"


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole") / "trace"
    record(folder, trace())
    return folder


@pytest.fixture
def folder(whole, tmp_path):
    return shutil.copytree(whole, tmp_path / "trace")


def refused(folder, file, message):
    """Loading and reading all columns ends in one line that names the file."""
    with pytest.raises(traces.TraceError) as error:
        loaded = traces.load(folder)
        loaded.sequences.validate()
        loaded.latency()
        for table, names in NAMES.items():
            for name in names:
                loaded.column(table, name)
    assert str(error.value).startswith(f"{folder / file}: ")
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@settings(max_examples=15, deadline=None)
@given(
    seed=st.integers(0, 99),
    n=st.integers(0, 7),
    batch_size=st.integers(1, 8),
    sampler=st.sampled_from([traces.Sampler(), SAMPLED]),
)
def test_round_trip(tmp_path_factory, seed, n, batch_size, sampler):
    folder = tmp_path_factory.mktemp("trip")
    source = trace(seed, sampler, n)
    record(folder, source, batch_size)
    loaded = traces.load(folder)
    for table, names in NAMES.items():
        for name in names if n else ():
            found, given = loaded.column(table, name), source.column(table, name)
            assert found.dtype == given.dtype
            np.testing.assert_array_equal(found, given)
            assert found.flags.c_contiguous and not found.flags.writeable
    assert loaded.sequences.equals(source.sequences)
    assert loaded.n_positions == source.n_positions
    assert loaded.n_branch_rows == source.n_branch_rows
    assert loaded.n_sequences == n
    assert loaded.sampler == sampler
    assert (loaded.max_draft, loaded.max_new_tokens, loaded.eos_token_ids) == (6, 20, (0,))
    np.testing.assert_array_equal(loaded.position_offsets, source.position_offsets)
    if n:
        np.testing.assert_array_equal(loaded.branch_offsets, source.branch_offsets)


def test_offsets_frame_the_rows(whole):
    loaded = traces.load(whole)
    sequence, position = loaded.positions("sequence"), loaded.positions("position")
    for s in range(loaded.n_sequences):
        rows = slice(*loaded.position_offsets[s : s + 2])
        assert set(sequence[rows]) == {s}
        assert list(position[rows]) == list(range(1, rows.stop - rows.start + 1))
    for r in range(loaded.n_positions):
        rows = slice(*loaded.branch_offsets[r : r + 2])
        assert set(loaded.branches("sequence")[rows]) <= {sequence[r]}
        assert set(loaded.branches("position")[rows]) <= {position[r]}
        assert not (loaded.positions("accepted")[r] and rows.start < rows.stop)


def test_only_what_is_asked_for_is_read(whole, monkeypatch):
    calls = []
    read = files.read

    def spy(folder, name, info, types=None):
        calls.append((name, *(types or ())))
        return read(folder, name, info, types)

    monkeypatch.setattr(files, "read", spy)
    monkeypatch.setattr(decoded_cache, "MOST_BYTES", 0)
    loaded = traces.load(whole)
    assert loaded.has("positions", "overlap") and loaded.n_positions and loaded.hash
    assert repr(loaded).startswith(f"<Trace {loaded.path}: 7") and loaded.n_sequences == 7
    assert repr(traces.load("reference")).startswith("<Trace reference: ")
    assert calls == []
    loaded.positions("draft_token")  # the whole trace is kept at, once
    calls.clear()
    first = loaded.positions("overlap")
    assert calls == [(f"positions/0000{k}.parquet", "overlap") for k in range(3)]
    assert loaded.positions("overlap") is first
    assert len(calls) == 3


@pytest.mark.parametrize("columns", [1, 4, 99])
def test_what_the_look_has_read_is_not_read_again(whole, monkeypatch, columns):
    monkeypatch.setattr(validation_cache, "is_known", lambda *_: False)
    monkeypatch.setattr(validation_cache, "columns", lambda *_: set())
    monkeypatch.setattr(decoded_cache, "MOST_BYTES", 0)
    judge, names = traces.load(whole), schema.POSITIONS.names
    expected = {name: judge.positions(name) for name in names}
    rows = judge.n_positions + judge.n_branch_rows
    monkeypatch.setattr(decoded_cache, "MOST_BYTES", columns * 4 * rows)
    calls, read = [], files.read
    monkeypatch.setattr(files, "read", lambda *a: calls.append(a) or read(*a))
    loaded = traces.load(whole)
    for name in names:
        column = loaded.positions(name)
        assert column.dtype == expected[name].dtype and not column.flags.writeable
        np.testing.assert_array_equal(column, expected[name])
    assert bool(calls) == (columns < 99)
    assert loaded.sequences.equals(judge.sequences) and loaded.positions(names[0]) is not None
    loaded.uncached("positions", "accepted")  # the look at accept_prob has decoded it again
    before = len(calls)
    np.testing.assert_array_equal(loaded.uncached("positions", "accepted"), expected["accepted"])
    assert len(calls) > before  # it was handed on, and is no longer kept


def test_has(whole):
    loaded = traces.load(whole)
    assert loaded.has("branches", "draft_entropy")
    assert not loaded.has("branches", "overlap")
    assert not loaded.has("hidden", "state")
    assert not loaded.has("nothing", "overlap")
    with pytest.raises(traces.TraceError, match="branches: column overlap was not recorded"):
        loaded.branches("overlap")
    with pytest.raises(traces.TraceError, match="hidden: column state was not recorded"):
        loaded.column("hidden", "state")


@pytest.mark.parametrize("given", [None, 3, b"reference"])
def test_what_is_no_trace(given):
    with pytest.raises(traces.TraceError, match="is no trace: give its folder or a bundled"):
        traces.load(given)


def test_scores_without_a_column(folder):
    """Other programs write back neither the column nor what the scores were made from."""
    loaded = traces.load(folder)
    rows = scores.RowScores(np.ones(loaded.n_positions), np.ones(loaded.n_branch_rows))
    scores.save(folder, loaded, "x", rows, {})
    rewrite(folder, "scores/x.parquet", lambda t: t.replace_schema_metadata())
    with pytest.raises(traces.TraceError, match="scores of x belong to another trace"):
        scores.load(traces.load(folder), "x")
    rewrite(folder, "scores/x.parquet", lambda t: t.drop("score"))
    with pytest.raises(traces.TraceError, match="scores of x: column score is missing"):
        scores.load(traces.load(folder), "x")


def test_missing_file(folder):
    (folder / SHARD).unlink()
    refused(folder, SHARD, "missing")


def test_truncated_file(folder):
    data = (folder / SHARD).read_bytes()
    (folder / SHARD).write_bytes(data[:-100])
    refused(folder, SHARD, f"truncated: {len(data) - 100} bytes, the manifest says {len(data)}")


def test_file_that_is_too_long(folder):
    data = (folder / "sequences.parquet").read_bytes()
    (folder / "sequences.parquet").write_bytes(data + b"x")
    refused(folder, "sequences.parquet", "too long")


def test_file_that_is_a_folder(folder):
    (folder / SHARD).unlink()
    (folder / SHARD).mkdir()
    size = (folder / SHARD).stat().st_size
    info = replace(read_manifest(folder).files[SHARD], bytes=size)
    edit(folder, files={**read_manifest(folder).files, SHARD: info})
    refused(folder, SHARD, "Is a directory")


def test_rows_that_the_manifest_does_not_know(folder):
    listed = read_manifest(folder).files
    rows = listed[SHARD].rows
    edit(folder, files={**listed, SHARD: replace(listed[SHARD], rows=rows + 1)})
    refused(folder, SHARD, f"{rows} rows, the manifest says {rows + 1}")


def test_missing_column(folder):
    rewrite(folder, SHARD, lambda table: table.drop_columns("overlap"))
    refused(folder, SHARD, "column overlap is missing")


def test_column_of_another_type(folder):
    def change(table):
        return table.set_column(0, "sequence", table["sequence"].cast(pa.int64()))

    rewrite(folder, SHARD, change)
    refused(folder, SHARD, "column sequence is int64, not int32")


def test_null(folder):
    def change(table):
        i = table.schema.names.index("overlap")
        return table.set_column(i, "overlap", pa.nulls(table.num_rows, pa.float32()))

    rewrite(folder, SHARD, change)
    refused(folder, SHARD, "a value is null")


def test_unlisted_sequences(folder):
    listed = dict(read_manifest(folder).files)
    del listed["sequences.parquet"]
    edit(folder, files=listed)
    refused(folder, MANIFEST, "sequences.parquet is not listed")


def test_unfinished(folder):
    edit(folder, complete=False)
    with pytest.raises(traces.TraceError) as error:
        traces.load(folder)
    assert "incomplete (3 of 3 shards): resume it with --resume" in str(error.value)


@pytest.mark.parametrize("name", [SHARD, "branches/00000.parquet", "sequences.parquet"])
def test_flipped_bits_are_refused_or_harmless(folder, name):
    """Page checksums cover the values; what else a flip hits is refused or changes nothing."""
    source = trace()
    data = (folder / name).read_bytes()
    draw = random.Random(0)
    refusals = 0
    for _ in range(80):
        damaged = bytearray(data)
        damaged[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
        (folder / name).write_bytes(damaged)
        try:
            loaded = traces.load(folder)
            assert loaded.sequences.equals(source.sequences)
            for table, names in NAMES.items():
                for column in names if name.startswith(table) else ():
                    found, given = loaded.column(table, column), source.column(table, column)
                    np.testing.assert_array_equal(found, given)
        except traces.TraceError as error:
            refusals += 1
            assert name in str(error) and "\n" not in str(error)
    assert refusals > 40


def test_latency(folder):
    assert traces.load(folder).latency() is None
    sample = dict(zip(schema.LATENCY.names, ("draft", 1, 5, 1, 0.5, "f", "d", "e", 0), strict=True))
    table = pa.Table.from_pylist([sample], schema=schema.LATENCY)
    before = traces.load(folder).hash
    add_file(folder, "latency.parquet", table)
    loaded = traces.load(folder)
    assert loaded.latency().to_pylist() == [sample]
    assert loaded.hash == before
    add_file(folder, "latency.parquet", table.drop_columns("seconds"))
    refused(folder, "latency.parquet", "column seconds is missing")


def test_bundled_names(whole, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(finding, "DATA", tmp_path / "data")
    with pytest.raises(traces.TraceError, match=r"^reference: .* \(bundled: none\)$"):
        traces.load("reference")
    for name in ("reference", "reference-sampled"):
        shutil.copytree(whole, tmp_path / "data" / name)
    assert finding.bundled() == ["reference", "reference-sampled"]
    assert traces.load("reference").path == tmp_path / "data" / "reference"
    (tmp_path / "reference").mkdir()  # a folder of that name which is no trace
    assert traces.load("reference").path == tmp_path / "data" / "reference"
    with pytest.raises(traces.TraceError, match=r"\(did you mean reference\?\)$"):
        traces.load("refrence")
    with pytest.raises(traces.TraceError, match=r"\(bundled: reference, reference-sampled\)$"):
        traces.load("xyz")
    with pytest.raises(traces.TraceError, match=r"^a/b: no such folder$"):
        traces.load("a/b")
