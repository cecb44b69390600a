"""What is read of a trace is what was written, and makes sense; each trace is looked at once."""

import json
import os
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import trace_files
from commands import run, status
from trace_files import GREEDY, SAMPLED, edit, rewrite, with_value

from simkit.errors import SimkitWarning
from traces import own_sources, parquet, row_checks, validation_cache
from traces.errors import TraceError
from traces.manifest import MANIFEST, read_manifest
from traces.scores import RowScores, save
from traces.trace import DATA, load
from traces.validate import validate
from traces.writer import TraceWriter, add_file

POSITIONS = "positions/00001.parquet"


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(params=[GREEDY, SAMPLED], ids=["greedy", "sampled"])
def folder(request, tmp_path):
    trace_files.record(tmp_path / "trace", trace_files.trace(5, request.param, n=9, eos_prob=0.05))
    return tmp_path / "trace"


def set_column(name, change):
    def edited(table):
        index = table.schema.names.index(name)
        values = change(table[name].to_numpy(zero_copy_only=False))
        field = table.schema.field(name)
        return table.set_column(index, field, pa.array(values, field.type))

    return edited


def first(value):
    def change(values):
        values = values.copy()
        values[len(values) // 2] = value
        return values

    return change


ALTERED = {
    "NaN": (POSITIONS, set_column("draft_entropy", first(np.nan))),
    "minus infinity": (POSITIONS, set_column("target_entropy", first(-np.inf))),
    "overlap": (POSITIONS, set_column("overlap", first(5))),
    "entropy 0": (POSITIONS, set_column("cross_entropy", lambda x: 0 * x)),
    "inverted": (POSITIONS, set_column("accepted", lambda x: ~x)),
    "all accepted": (POSITIONS, set_column("accepted", lambda x: x | True)),
    "shuffled": (POSITIONS, lambda t: t.take(np.arange(t.num_rows)[::-1])),
    "cut": (POSITIONS, lambda t: t.slice(1)),
    "doubled": (POSITIONS, lambda t: pa.concat_tables([t, t])),
    "n_prompt": ("sequences.parquet", set_column("n_prompt", first(-1))),
    "long prompt": ("sequences.parquet", set_column("n_prompt", first(3 * 10**8))),
    "n_output": ("sequences.parquet", set_column("n_output", first(0))),
    "fewer sequences": ("sequences.parquet", lambda t: t.slice(1)),
    "branches": ("branches/00001.parquet", set_column("depth", lambda x: x + 1)),
}


UNREAD = {"NaN": "draft_entropy", "minus infinity": "target_entropy", "overlap": "overlap"}
UNREAD["entropy 0"] = "cross_entropy"  # columns that fixed(2) does not read


@pytest.mark.parametrize("altered", ALTERED)
@pytest.mark.parametrize("command", ["replay", "info", "validate"])
def test_wrong_rows_are_refused_by_all(folder, capsys, altered, command):
    name, change = ALTERED[altered]
    rewrite(folder, name, change)
    if command == "replay" and UNREAD.get(altered) in ("target_entropy", "overlap"):
        return  # no rule reads them: see below
    options = ["--policy", "svip" if altered in UNREAD else "fixed(2)"]
    options = options if command == "replay" else []
    ended, out, said = run(capsys, command, folder, *options)
    assert (ended, out) == (2, "")
    assert all(line.startswith(f"simkit: {folder}") for line in said.splitlines())


@pytest.mark.parametrize("altered", UNREAD)
def test_what_is_not_read_is_refused_as_soon_as_it_is(folder, altered):
    name, change = ALTERED[altered]
    rewrite(folder, name, change)
    trace = load(folder)
    assert status("replay", folder, "--policy", "fixed(2)") == 0
    for opened in (trace, load(folder)):
        with pytest.raises(TraceError, match=f"{name}: sequence .* is ") as refused:
            opened.positions(UNREAD[altered])
        assert str(refused.value) in validate(folder)


def test_a_file_of_the_same_size_is_not_the_one_that_is_listed(folder):
    data, size = (folder / POSITIONS).read_bytes(), (folder / POSITIONS).stat()
    other = bytearray(data)
    other[len(data) // 2] ^= 1
    (folder / POSITIONS).write_bytes(other)
    os.utime(folder / POSITIONS, ns=(size.st_atime_ns, size.st_mtime_ns))
    with pytest.raises(TraceError, match="corrupt: its sha256 is not the manifest's"):
        load(folder).positions("draft_token")


@pytest.mark.parametrize("what", ["sampler", "n_prompts", "eos_token_ids", "max_draft", "device"])
def test_a_manifest_is_signed(folder, what):
    data = json.loads((folder / MANIFEST).read_text())
    new = {"sampler": {**data["sampler"], "top_k": 7}, "n_prompts": 3, "eos_token_ids": [1]}
    data[what] = new.get(what, {"max_draft": 5, "device": "x"}.get(what))
    (folder / MANIFEST).write_text(json.dumps(data))
    with pytest.raises(TraceError, match="corrupt: its manifest_sha256"):
        load(folder)
    assert status("validate", folder) == 2


def test_a_manifest_of_before_signatures_is_read(folder):
    data = json.loads((folder / MANIFEST).read_text())
    del data["manifest_sha256"]
    (folder / MANIFEST).write_text(json.dumps(data))
    with pytest.warns(SimkitWarning, match="is not signed"):
        assert load(folder).n_sequences == 9
    with pytest.warns(SimkitWarning, match="is not signed"):
        add_file(folder, "latency.parquet", samples())  # signs it
    assert load(folder).n_sequences == 9


@pytest.mark.parametrize("n_prompts", [8, 10, 10**9, 2**63, 10**200])
def test_counts_that_are_made_up(folder, n_prompts):
    edit(folder, n_prompts=n_prompts)
    with pytest.raises(TraceError, match="n_prompts"):
        load(folder)
    listed = read_manifest(folder).files
    sequences = trace_files.replace(listed["sequences.parquet"], rows=n_prompts)
    edit(folder, files={**listed, "sequences.parquet": sequences})
    with pytest.raises(TraceError):
        load(folder).positions("draft_token")
    assert validate(folder)


def test_rows_that_would_not_fit(tmp_path, monkeypatch):
    """Many rows of one value are a small file."""
    file = tmp_path / "big.parquet"
    pq.write_table(pa.table({"overlap": np.zeros(2 * 10**6)}), file)
    with parquet.opened(file, file, TraceError):
        pass
    monkeypatch.setattr(parquet, "_EASY_BYTES", 2**20)
    assert file.stat().st_size < 10**5
    with pytest.raises(TraceError, match="bytes that would take 8 MiB of memory"):
        parquet.opened(file, file, TraceError).__enter__()


def settle(monkeypatch):
    monkeypatch.setattr(validation_cache, "_SETTLED_NS", 0)


def looks(monkeypatch):
    """How often rows are looked at: those of a table's keys, and then of each other column."""
    calls, real = [], row_checks.check_rows
    monkeypatch.setattr(row_checks, "check_rows", lambda *a, **k: calls.append(1) or real(*a, **k))
    return calls


def test_a_trace_is_looked_at_once(folder, cache, monkeypatch):
    settle(monkeypatch)
    shutil.rmtree(cache)  # what the writer has noted
    calls = looks(monkeypatch)
    for _ in range(2):
        load(folder).positions("overlap")
    assert len(calls) == 2
    load(folder).positions("accepted")  # looked at with the keys
    assert len(calls) == 2
    for _ in range(2):
        load(folder).positions("draft_entropy")
    assert len(calls) == 3
    rewrite(folder, POSITIONS, set_column("overlap", first(5)))
    for count in (5, 6):  # the keys are fine
        with pytest.raises(TraceError, match="overlap is 5"):
            load(folder).positions("overlap")
        assert len(calls) == count


@pytest.mark.parametrize(
    ("name", "value"),
    [("is_own", lambda kind: False), ("first_digest", lambda: None)],
    ids=["a kind of another package", "sources that cannot be read"],
)
def test_nothing_is_remembered_of_checks_without_a_name(folder, cache, monkeypatch, name, value):
    settle(monkeypatch)
    shutil.rmtree(cache)
    monkeypatch.setattr(validation_cache, name, value)
    calls = looks(monkeypatch)
    for _ in range(2):
        load(folder).positions("overlap")
    assert len(calls) == 4 and not cache.exists()


def test_all_sources_name_what_was_found(monkeypatch, tmp_path):
    """A rule on tokens is checked by its own code, trees by that of another folder."""
    manifest, names = read_manifest(DATA / "reference"), set()
    monkeypatch.setattr(own_sources, "SOURCES", (*own_sources.SOURCES, tmp_path))
    monkeypatch.setattr(validation_cache, "first_digest", own_sources.digest)
    for source in ("attach/tokens/suffix.py", "trees/forest.py", "drafters/tree.py", "seen.py"):
        (tmp_path / source).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / source).write_text("another")
        names.add(validation_cache.content(manifest))
    assert len(names) == 4 and "" not in names


@pytest.mark.parametrize("how", ["cut", "empty", "altered", "folder", "unwritable", "pipe"])
def test_a_cache_that_cannot_be_believed(folder, cache, monkeypatch, how):
    settle(monkeypatch)
    shutil.rmtree(cache)  # what the writer has noted
    calls = looks(monkeypatch)
    load(folder).positions("overlap")
    (file,), (note,) = ((cache / "simkit" / what).iterdir() for what in ("seen", "contents"))
    damage(file, cache, how)
    damage(note, cache, how)
    load(folder).positions("overlap")
    assert len(calls) == 4


def damage(file, cache, how):
    if how == "unwritable":
        if cache.is_dir():
            shutil.rmtree(cache)
            cache.touch()
        return
    text = file.read_text()
    file.unlink()
    if how == "folder":
        file.mkdir()
    elif how == "pipe":
        file.symlink_to("/dev/full")
    else:
        file.write_text({"cut": text[:-9], "empty": "", "altered": text.translate(SHIFTED)}[how])


SHIFTED = str.maketrans("1a", "2b")


def test_of_a_content_that_is_known_the_sums_alone_are_taken(folder, cache, tmp_path, monkeypatch):
    """As one is that this machine has written, or looked at in another folder."""
    calls = looks(monkeypatch)
    load(folder).positions("overlap")
    assert not calls and not (cache / "simkit" / "seen").exists()
    shutil.rmtree(cache)
    load(folder).positions("overlap")
    copy = shutil.copytree(folder, tmp_path / "copy")
    load(copy).positions("overlap")
    assert len(calls) == 2
    data = bytearray((copy / POSITIONS).read_bytes())
    data[len(data) // 2] ^= 1
    (copy / POSITIONS).write_bytes(data)
    with pytest.raises(TraceError, match="corrupt: its sha256 is not the manifest's"):
        load(copy).positions("overlap")
    rewrite(folder, POSITIONS, set_column("overlap", first(5)))
    with pytest.raises(TraceError, match="overlap is 5"):
        load(folder).positions("overlap")
    assert len(calls) == 4
    monkeypatch.setattr(validation_cache, "_checks", lambda: "another version")
    shutil.rmtree(copy)
    trace_files.record(copy, trace_files.trace(5, n=9))
    monkeypatch.undo()
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    calls = looks(monkeypatch)
    load(copy).positions("overlap")
    assert len(calls) == 2


@pytest.mark.parametrize(
    ("table", "column", "problem"),
    [
        (0, "finish_reason", "finish_reason is 'no reason'"),
        (1, "overlap", "overlap is 5"),
        (2, "depth", "depths of a branch must be"),
    ],
)
def test_what_is_written_wrong_is_not_taken_for_fine(tmp_path, cache, table, column, problem):
    source = trace_files.trace(5, n=9)
    header = trace_files.replace(source.manifest, batch_size=3)
    wrong = {"finish_reason": "no reason", "overlap": np.float32(5), "depth": np.int32(5)}[column]
    with TraceWriter(tmp_path / "trace", header) as writer:
        for shard in range(writer.n_shards):
            tables = trace_files.columns(source, writer.shard_sequences(shard))
            if shard == 1:
                tables[table][column] = [wrong, *tables[table][column][1:]]
            writer.write_shard(shard, *tables)
        writer.finish()
    assert not (cache / "simkit" / "contents").exists()
    with pytest.raises(TraceError, match=problem):
        load(tmp_path / "trace").positions("overlap")


def test_a_file_changed_this_moment_is_not_remembered(folder, cache):
    load(folder).positions("overlap")
    assert not (cache / "simkit" / "seen").exists()


def samples(**changes):
    row = dict(component="draft", tokens_in=1, context_len=0, batch_size=1, seconds=0.1)
    row |= dict(dtype="float32", device="cpu", engine="eager", repeat=0)
    from traces.schema import LATENCY

    rows = [row | {"repeat": k, "component": c} for k in range(3) for c in ("draft", "target")]
    rows[2] |= changes
    return pa.Table.from_pylist(rows, LATENCY)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tokens_in": -1}, "row 2: tokens_in is -1"),
        ({"tokens_in": 0}, "row 2: tokens_in is 0"),
        ({"context_len": -5}, "row 2: context_len is -5"),
        ({"batch_size": 0}, "row 2: batch_size is 0"),
        ({"seconds": 0.0}, "row 2: seconds is 0.0"),
        ({"seconds": float("nan")}, "row 2: seconds is nan"),
        ({"component": "nothing"}, "row 2: component is nothing"),
        ({"component": ""}, "row 2: component is"),
        ({"repeat": 0}, "1 sample is there twice"),
        ({"repeat": -1}, "row 2: repeat is -1"),
    ],
)
def test_samples(folder, changes, message):
    add_file(folder, "latency.parquet", samples())
    assert validate(folder) == [] and load(folder).latency().num_rows == 6
    rewrite(folder, "latency.parquet", lambda t: samples(**changes))
    assert any(message in line for line in validate(folder))
    with pytest.raises(TraceError, match="latency.parquet: "):
        load(folder).latency()


@pytest.mark.parametrize("change", [lambda t: t.slice(1), lambda t: t.slice(0, 3)])
def test_samples_that_were_cut(folder, change):
    add_file(folder, "latency.parquet", samples())
    rewrite(folder, "latency.parquet", change)
    assert any("its content is not what was written" in line for line in validate(folder))


@pytest.mark.parametrize(
    "change",
    [
        lambda t: t.slice(1),
        lambda t: pa.concat_tables([t, t]),
        lambda t: t.take(np.arange(t.num_rows)[::-1]),
        lambda t: t.drop_columns("score"),
        lambda t: with_value(t, "score", 3, 2.0),
        lambda t: with_value(t, "score", 3, float("nan")),
        lambda t: with_value(t, "score", 3, None),
        lambda t: with_value(t, "position", 3, 99),
        lambda t: t.replace_schema_metadata({"simkit": '{"trace": "x"}'}),
        lambda t: t.replace_schema_metadata({"simkit": "[1]"}),
        lambda t: t.replace_schema_metadata(None),
    ],
)
def test_score_tables(folder, change):
    trace = load(folder)
    draw = np.random.default_rng(0)
    scores = RowScores(draw.random(trace.n_positions), draw.random(trace.n_branch_rows))
    save(folder, trace, "mine", scores, {})
    assert validate(folder) == []
    rewrite(folder, "scores/mine.parquet", change)
    problems = validate(folder)
    assert problems and all(str(folder / "scores/mine.parquet") in line for line in problems)
