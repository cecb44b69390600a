"""Tables with a column twice or text that is no UTF-8: one line that names the file, status 2."""

import hashlib

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import trace_files
from commands import refused

from simkit.errors import LiveError
from simkit.live.log import LiveLog, LiveRow
from simkit.live.log import read as read_log
from traces import parquet, schema
from traces.errors import UserError
from traces.manifest import FileInfo, read_manifest
from traces.trace import DATA
from traces.writer import add_file

TIME = dict(component="draft", tokens_in=1, context_len=0, batch_size=1, seconds=0.1)
TIME |= dict(dtype="float32", device="cpu", engine="eager", repeat=0)


def doubled(table):
    return table.append_column(table.schema.field(0), table.column(0))


def no_text(table):
    """Its first column of text holds bytes that no text has."""
    name = next(f.name for f in table.schema if pa.types.is_string(f.type))
    bad = pa.array([b"a\xff\xfe"] * table.num_rows, pa.binary()).view(pa.string())
    return table.set_column(table.schema.names.index(name), table.schema.field(name), bad)


def put(folder, name, change):
    """Put a table in a file's place and list it, as another program's writer would have."""
    file = folder / name
    pq.write_table(change(pq.read_table(file)), file)
    data = file.read_bytes()
    listed = read_manifest(folder).files
    info = FileInfo(listed[name].rows, len(data), hashlib.sha256(data).hexdigest())
    trace_files.edit(folder, files={**listed, name: info})


def times():
    rows = [TIME | {"component": c, "repeat": k} for k in range(3) for c in ("draft", "target")]
    return pa.Table.from_pylist(rows, schema.LATENCY)


@pytest.fixture
def folder(tmp_path):
    trace_files.record(tmp_path / "trace", trace_files.trace())
    add_file(tmp_path / "trace", "latency.parquet", times())
    return tmp_path / "trace"


REPLAY = ("replay", "--policy", "fixed(2)")


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        ("positions/00000.parquet", doubled, "column sequence is there twice"),
        ("branches/00001.parquet", doubled, "column sequence is there twice"),
        ("sequences.parquet", doubled, "column sequence is there twice"),
        ("sequences.parquet", no_text, "UTF8"),
        ("latency.parquet", doubled, "column component is there twice"),
        ("latency.parquet", no_text, "UTF8"),
    ],
)
@pytest.mark.parametrize("command", [REPLAY, ("validate",)], ids=["replay", "validate"])
def test_tables_of_a_trace(folder, capsys, name, change, words, command):
    put(folder, name, change)
    line = refused(capsys, command[0], folder, *command[1:])
    assert f"{folder / name}: " in line and words in line


@pytest.mark.parametrize(
    ("change", "words"), [(doubled, "column component is there twice"), (no_text, "UTF8")]
)
def test_a_cost_file(folder, tmp_path, capsys, change, words):
    file = tmp_path / "cost.parquet"
    pq.write_table(change(times()), file)
    line = refused(capsys, "replay", folder, *REPLAY[1:], "--cost", file)
    assert f"{file}: " in line and words in line


@pytest.mark.parametrize(
    ("change", "words"), [(doubled, "column run is there twice"), (no_text, "UTF8")]
)
def test_a_live_log(folder, tmp_path, capsys, change, words):
    file = tmp_path / "live.parquet"
    with LiveLog(file) as log:
        log.add(0, 0, "fixed(2)", 0, [LiveRow(1, 1, 0, "sequence", "", 0, 1, 9, 1, 0.5)])
    pq.write_table(change(pq.read_table(file)), file)
    with pytest.raises(LiveError, match=words):
        read_log(file)
    assert words in refused(capsys, "fidelity", folder, "--from", file, "-o", tmp_path / "out")


@pytest.mark.parametrize(("name", "rows"), [("cost", schema.LATENCY), ("live", schema.LIVE)])
def test_the_package_s_own_samples_are_sealed(name, rows, tmp_path):
    """Each value of theirs is held against the digest that stands beside them."""
    file = DATA / "fidelity" / f"{name}.parquet"
    assert parquet.is_sealed(file, UserError)
    table = pq.read_table(file)
    parquet.read_samples(file, rows, UserError)
    seconds = table["seconds"].to_numpy().copy()
    seconds[0] *= 2
    index = table.schema.names.index("seconds")
    other = table.set_column(index, table.schema.field("seconds"), pa.array(seconds))
    pq.write_table(other, tmp_path / "x.parquet")
    with pytest.raises(UserError, match="its content is not what was written"):
        parquet.read_samples(tmp_path / "x.parquet", rows, UserError)
