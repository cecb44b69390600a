"""A column of a trace is looked at when it is read: it is refused just where `validate` refuses."""

import shutil
from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa
import pytest
import trace_files
from trace_files import GREEDY, SAMPLED, rewrite

import simkit
from traces import schema
from traces.errors import TraceError
from traces.memory import from_drafts, from_outputs
from traces.rows import KEYS
from traces.trace import load
from traces.validate import validate
from traces.writer import TraceWriter, save

N_DAMAGES = 24
ATTACHED = ("draft_token", "draft_entropy", "target_entropy", "cross_entropy", "accept_prob")


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def path(sampler):
    return lambda folder: trace_files.record(folder, trace_files.trace(5, sampler, eos_prob=0.05))


def drafts(trace):
    """The rows of a lattice of all drafts of a recorded path, with one row of each branch."""
    rows = {name: [] for name in ("sequence", "start", "depth", "accepted", *ATTACHED)}
    path = {name: trace.positions(name) for name in ("sequence", "accepted", *ATTACHED)}
    ends = trace.position_offsets[1:]
    for row, sequence in enumerate(path["sequence"].tolist()):
        begin, end = int(trace.position_offsets[sequence]), int(ends[sequence])
        last = min(row + trace.max_draft, end)
        stop = next((k + 1 for k in range(row, last) if not path["accepted"][k]), last)
        for depth, at in enumerate(range(row, stop), start=1):
            found = {name: path[name][at] for name in ("accepted", *ATTACHED)}
            found |= {"sequence": sequence, "start": row - begin + 1, "depth": depth}
            for name, value in found.items():
                rows[name].append(value)
        off = slice(*trace.branch_offsets[stop - 1 : stop + 1])
        if stop - row < trace.max_draft and off.start < off.stop:
            found = {"sequence": sequence, "start": row - begin + 1, "depth": stop - row + 1}
            found |= {name: trace.branches(name)[off.start] for name in ATTACHED[:2]}
            for name in rows:
                rows[name].append(found.get(name, False if name == "accepted" else np.nan))
    return {name: np.array(values) for name, values in rows.items()}


def lattice(trace):
    given = {"max_draft": trace.max_draft, "max_new_tokens": trace.max_new_tokens}
    given |= {"eos_token_ids": trace.eos_token_ids}
    outputs = {"n_output": np.diff(trace.position_offsets)}
    return from_drafts(outputs, drafts(trace), **given)


def drafts_alone(folder):
    made = lattice(trace_files.trace(5, eos_prob=0.0))
    few = made.manifest.lattice_columns[:2]  # nothing is left out behind a rejected token in these
    columns = {
        name: made.lattice(name) for name in ("sequence", "start", "depth", "accepted", *few)
    }
    given = {"max_draft": made.max_draft, "max_new_tokens": made.max_new_tokens}
    outputs = {"n_output": made.sequences["n_output"].to_numpy()}
    save(from_drafts(outputs, columns, **given), folder, batch_size=3)


def attached(folder):
    trace_files.record(folder, trace_files.trace(5, eos_prob=0.0))
    recording = load(folder)
    made = lattice(recording)
    header = replace(made.manifest, attached_to=recording.hash, batch_size=3)
    offsets = made.lattice_offsets
    with TraceWriter(folder / "drafters" / "mine", header) as writer:
        for index in range(writer.n_shards):
            mine = writer.shard_sequences(index)
            rows = slice(*offsets[recording.position_offsets[[mine.start, mine.stop]]])
            names = header.tables["lattice"].names
            writer.write_shard(index, None, lattice={n: made.lattice(n)[rows] for n in names})
        writer.finish()


def outputs_alone(folder):
    source = trace_files.trace(5, eos_prob=0.05)
    tokens = source.sequences["output_tokens"].to_pylist()
    eos = source.eos_token_ids
    made = from_outputs({"output_tokens": tokens}, max_new_tokens=20, eos_token_ids=eos)
    save(made, folder, batch_size=3)


def states(folder):
    from heads_traces import revealing  # which imports torch

    revealing(folder, n=7, width=3)


CASES = {
    "greedy": path(GREEDY),
    "sampled": path(SAMPLED),
    "states": states,
    "lattice": drafts_alone,
    "attached": attached,
    "outputs": outputs_alone,
}


@pytest.fixture(params=CASES)
def folder(request, tmp_path):
    CASES[request.param](tmp_path / "whole")
    return tmp_path / "whole"


def opened(folder):
    return load(folder, "mine" if (folder / "drafters").exists() else None)


def changed(values, draw):
    """A column with some of its values changed, wherever and to whatever."""
    values = np.array(values)
    rows = draw.choice(len(values), size=draw.integers(1, 3))
    if values.dtype == bool:
        values[rows] ^= True
    elif values.dtype.kind == "i":
        values[rows] = draw.choice([-1, 0, 3, 10**6, int(values[rows[0]]) + 1])
    else:
        values[rows] = draw.choice([np.nan, -1, 0, 0.5, 1, 5, np.inf, draw.random()])
    return values


def damaged(table, column, draw):
    index, field = table.schema.names.index(column), table.schema.field(column)
    values = table[column].combine_chunks()
    if column == "state":
        flat = changed(values.flatten().to_numpy(), draw)
        new = pa.FixedSizeListArray.from_arrays(pa.array(flat), type=field.type)
    else:
        new = pa.array(changed(values.to_numpy(zero_copy_only=False), draw), field.type)
    return table.set_column(index, field, new)


def refuses(read):
    try:
        read()
    except TraceError:
        return True
    return False


def test_any_damage_is_refused_where_it_is_read(folder, tmp_path):
    draw = np.random.default_rng(0)
    where = opened(folder).path.relative_to(folder)
    tables = {**opened(folder).manifest.tables}
    tables |= {name: schema.WITH_STATE[name] for name in opened(folder).manifest.with_state}
    columns = [(table, name) for table, kind in tables.items() for name in kind.names]
    columns += [(table, "state") for table in opened(folder).manifest.with_state]
    refused = 0
    for number in range(N_DAMAGES):
        copy = shutil.copytree(folder, tmp_path / f"copy{number}")
        table, column = columns[draw.integers(len(columns))]
        file = f"{table}/0000{draw.integers(2)}.parquet"
        rewrite(copy / where, file, partial(damaged, column=column, draw=draw))
        wrong = bool(validate(copy))
        refused += wrong
        for _ in range(2):  # what was refused is not remembered as fine
            assert refuses(partial(opened(copy).column, table, column)) == wrong, (file, column)
        if column in KEYS and table not in schema.WITH_STATE:
            assert refuses(partial(getattr, opened(copy), "sequences")) == wrong
        elif column in schema.STATISTICS and column != "accept_prob":  # that is tied to `accepted`
            assert opened(copy).column(table, "sequence").size
        shutil.rmtree(copy)
    assert N_DAMAGES / 5 < refused


def replayed(folder):
    return simkit.replay(load(folder), ["svip"]).records()


def test_a_replay_is_refused_where_it_reads_what_is_damaged(tmp_path):
    draw = np.random.default_rng(1)
    folder = tmp_path / "whole"
    CASES["sampled"](folder)
    read = {"accepted", "draft_token", "draft_entropy", *KEYS}
    tables = load(folder).manifest.tables
    for number in range(N_DAMAGES):
        copy = shutil.copytree(folder, tmp_path / f"copy{number}")
        table = ("positions", "branches")[number % 2]
        column = tables[table].names[draw.integers(len(tables[table].names))]
        rewrite(copy, f"{table}/00001.parquet", partial(damaged, column=column, draw=draw))
        wrong = bool(validate(copy))
        found = refuses(partial(replayed, copy))
        assert found <= wrong
        assert found == wrong or column not in read, (table, column)


@pytest.mark.parametrize("column", ["overlap", "target_prob"])
def test_what_is_fine_is_remembered_by_column(tmp_path, column):
    folder = tmp_path / "whole"
    CASES["sampled"](folder)
    rewrite(folder, "positions/00001.parquet", partial(damaged, column=column, draw=Worst()))
    for _ in range(2):
        load(folder).positions("draft_entropy")
        with pytest.raises(TraceError, match=f"{column} is nan"):
            load(folder).positions(column)


class Worst:
    """Damages the first value, to NaN."""

    def choice(self, values, size=None):
        return np.zeros(1, int) if size is not None else np.nan

    def integers(self, *_):
        return 1

    def random(self):
        return np.nan
