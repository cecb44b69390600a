import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from trace_files import GREEDY, SAMPLED, edit, record, rewrite, trace, with_value

from traces import schema
from traces.errors import TraceError
from traces.manifest import read_manifest
from traces.synthetic import iid
from traces.validate import validate
from traces.writer import add_file, save

POSITIONS, BRANCHES, SEQUENCES = (
    "positions/00001.parquet",
    "branches/00001.parquet",
    "sequences.parquet",
)


@pytest.fixture(scope="module")
def wholes(tmp_path_factory):
    made = {}
    for name, sampler in (("greedy", GREEDY), ("sampled", SAMPLED)):
        made[name] = tmp_path_factory.mktemp("whole") / name
        record(made[name], trace(5, sampler, n=9, eos_prob=0.05))
    return made


@pytest.fixture
def folder(wholes, tmp_path):
    return shutil.copytree(wholes["greedy"], tmp_path / "greedy")


@pytest.fixture
def sampled(wholes, tmp_path):
    return shutil.copytree(wholes["sampled"], tmp_path / "sampled")


def found(folder, file, message):
    """The problems, each one line with the file's name; one of them has the message."""
    problems = validate(folder)
    assert problems
    assert all(problem.startswith(f"{folder}/") and "\n" not in problem for problem in problems)
    assert any(p.startswith(f"{folder / file}: ") and message in p for p in problems), problems
    return problems


def row_of(folder, table, wanted):
    """The first row of the second shard for which wanted(columns of the row) holds."""
    rows = pq.read_table(folder / table).to_pylist()
    return next(i for i, row in enumerate(rows) if wanted(row))


def change(folder, file, wanted, column, value):
    """Change a value in the first row that is wanted; the words by which a problem names it."""
    row = row_of(folder, file, wanted)
    names = {}

    def edited(table):
        names.update({key: table[key][row].as_py() for key in table.column_names})
        new = value(names) if callable(value) else value
        return with_value(table, column, row, new)

    rewrite(folder, file, edited)
    return f"sequence {names['sequence']}, position {names['position']}"


@pytest.mark.parametrize("sampler", [GREEDY, SAMPLED])
@pytest.mark.parametrize("accept", [0.0, 1.0])
@pytest.mark.parametrize("eos_prob", [0.0, 0.3])
def test_synthetic_traces_are_sound(tmp_path, sampler, accept, eos_prob):
    made = iid(9, 12, accept, max_draft=5, seed=3, sampler=sampler, eos_prob=eos_prob)
    save(made, tmp_path / "t", batch_size=4)
    assert validate(tmp_path / "t") == []


def test_sound(wholes):
    assert validate(wholes["greedy"]) == []
    assert validate(str(wholes["sampled"])) == []


def test_a_flipped_bit_anywhere_is_found(folder):
    draw = np.random.default_rng(0)
    for name in read_manifest(folder).files:
        data = (folder / name).read_bytes()
        damaged = bytearray(data)
        damaged[draw.integers(len(data))] ^= 1 << draw.integers(8)
        (folder / name).write_bytes(damaged)
        assert validate(folder) == [f"{folder / name}: corrupt: its sha256 is not the manifest's"]
        (folder / name).write_bytes(data)


def test_files(folder):
    (folder / POSITIONS).unlink()
    (folder / "positions" / "00009.parquet").touch()
    listed = dict(read_manifest(folder).files)
    del listed[BRANCHES]
    edit(folder, files=listed)
    assert sorted(validate(folder)) == [
        f"{folder / BRANCHES}: not listed in the manifest",
        f"{folder / BRANCHES}: the manifest does not list it",
        f"{folder / POSITIONS}: missing",
        f"{folder}/positions/00009.parquet: not listed in the manifest",
    ]


def test_unfinished(folder):
    edit(folder, complete=False)
    with pytest.raises(TraceError, match="incomplete"):
        validate(folder)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.slice(0, t.num_rows - 1), "its sequences have"),
        (
            lambda t: pa.concat_tables([t.slice(1, 1), t.slice(0, 1), t.slice(2)]),
            "position 2: the k",
        ),
        (
            lambda t: pa.concat_tables([t.slice(0, 2), t.slice(1, 1), t.slice(3)]),
            "position 2: the k",
        ),
        (lambda t: with_value(t, "sequence", 4, 0), "sequence 0, position 5: the key does not"),
        (lambda t: t.drop_columns("overlap"), "column overlap is missing"),
    ],
)
def test_keys_of_positions(folder, change, message):
    rewrite(folder, POSITIONS, change)
    found(folder, POSITIONS, message)


def test_many_problems_of_one_kind_are_counted(folder):
    def edited(table):
        column = pa.array(np.full(table.num_rows, 2, np.float32))
        return table.set_column(
            table.schema.names.index("overlap"), table.schema.field("overlap"), column
        )

    rewrite(folder, POSITIONS, edited)
    problems = validate(folder)
    rows = read_manifest(folder).files[POSITIONS].rows
    assert len(problems) == 4
    assert problems[0] == f"{folder / POSITIONS}: sequence 3, position 1: overlap is 2.0"
    assert problems[3].endswith(f"{rows - 3} more rows like the last, up to sequence 5")


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("overlap", np.nan, "overlap is nan"),
        ("overlap", -0.1, "overlap is -0.1"),
        ("overlap_processed", 1.1, "overlap_processed is 1.1"),
        ("draft_prob", np.inf, "draft_prob is inf"),
        ("target_entropy", -0.5, "target_entropy is -0.5"),
        ("draft_entropy", 9, "draft_entropy is 9.0"),  # ln 50 = 3.9
        ("cross_entropy", 0, "draft_entropy is "),
        ("draft_top2_prob", 1, "draft_top2_prob is 1.0, above draft_top1_prob"),
        ("draft_top10_mass", 0, ", above draft_top10_mass, 0.0"),
        ("draft_token", 50, "draft_token is 50, the vocabulary has 50"),
        ("target_token", -1, "target_token is -1"),
    ],
)
def test_values(folder, column, value, message):
    def wanted(row):
        return row["draft_entropy"] > 0.2

    found(folder, POSITIONS, change(folder, POSITIONS, wanted, column, value) + ": ")
    found(folder, POSITIONS, message)


@pytest.mark.parametrize("column", ["draft_entropy", "draft_prob_raw", "draft_token"])
def test_values_of_branches(folder, column):
    def wanted(row):
        return row["depth"] == 2

    where = change(folder, BRANCHES, wanted, column, -1)
    found(folder, BRANCHES, f"{where}, depth 2: {column} is -1")


def accepted(row):
    return row["accepted"] and row["target_token"] > 0


def rejected(row):
    return not row["accepted"] and row["draft_token"] > 0 and row["target_token"] > 0


def other_token(row):
    return row["target_token"] % 49 + 1


@pytest.mark.parametrize(
    ("wanted", "column", "value", "message"),
    [
        (accepted, "draft_token", other_token, "accepted, but draft_token is "),
        (accepted, "accept_prob", 0, "accepted is True, accept_prob is 0.0"),
        (accepted, "target_prob", 0.5, "but target_prob/draft_prob is 0.5/1.0"),
        (rejected, "draft_token", lambda row: row["target_token"], "rejected, but draft_token is "),
        (rejected, "accept_prob", 1, "accepted is False, accept_prob is 1.0"),
        (rejected, "target_token", other_token, "is not the sequence's output token"),
        (rejected, "target_token", 0, "rows after an EOS token"),
        (rejected, "draft_token", 0, "a branch of a token that was accepted or is EOS"),
    ],
)
def test_verdicts(folder, wanted, column, value, message):
    where = change(folder, POSITIONS, wanted, column, value)
    problems = found(folder, POSITIONS, message)
    assert any(where in problem for problem in problems)


def test_sampled_verdicts(sampled):
    where = change(sampled, POSITIONS, accepted, "accept_prob", lambda row: row["accept_prob"] / 2)
    found(sampled, POSITIONS, f"{where}: accept_prob is ")


def test_a_branch_behind_an_accepted_token(folder):
    where = change(folder, POSITIONS, rejected, "accepted", True)
    found(folder, POSITIONS, f"{where}: a branch of a token that was accepted")


def without(wanted):
    """Drop the rows that are wanted."""

    def edited(table):
        keep = [not wanted(row) for row in table.to_pylist()]
        return table.filter(pa.array(keep))

    return edited


def test_a_missing_branch(folder):
    row = row_of(folder, BRANCHES, lambda row: row["depth"] == 5)
    rows = pq.read_table(folder / BRANCHES).to_pylist()
    key = (rows[row]["sequence"], rows[row]["position"])
    rewrite(folder, BRANCHES, without(lambda row: (row["sequence"], row["position"]) == key))
    where = f"sequence {key[0]}, position {key[1]}"
    found(folder, POSITIONS, f"{where}: its branch has 0 rows, not 5")


@pytest.mark.parametrize("depth", [5, 3])
def test_a_row_missing_in_a_branch(folder, depth):
    rewrite(folder, BRANCHES, without(lambda row: row["depth"] == depth))
    if depth == 5:
        found(folder, POSITIONS, "its branch has 4 rows, not 5")
    else:
        found(folder, BRANCHES, "depth 4: depths of a branch must be 1, 2, 3, …")


def test_a_branch_twice(folder):
    rewrite(folder, BRANCHES, lambda table: pa.concat_tables([table, table]))
    found(folder, BRANCHES, "branches must ascend, each key once")


def test_a_branch_of_a_sequence_of_another_shard(folder):
    other = "branches/00000.parquet"
    rows = pq.read_table(folder / other)
    rewrite(folder, BRANCHES, lambda table: pa.concat_tables([rows, table]))
    found(folder, BRANCHES, "a branch of a position that there is not")


def test_a_branch_that_goes_on_after_an_eos(folder):
    where = change(folder, BRANCHES, lambda row: row["depth"] == 2, "draft_token", 0)
    found(folder, BRANCHES, f"{where}, depth 2: rows after an EOS token")


def test_a_branch_that_is_too_long(folder):
    edit(folder, max_draft=4)
    found(folder, POSITIONS, "its branch has 5 rows, not 3")


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("sequence", 7, "the sequences are not 0 to 8, each once"),
        ("n_prompt", 7, "sequence 4: n_prompt is not the length of prompt_tokens"),
        ("n_output", 1, "sequence 4: n_output is not the length of output_tokens"),
        ("n_output", 40, "sequence 4: 40 output tokens, not 1 to 20"),
        ("finish_reason", "tired", "sequence 4: "),
        ("output_tokens", [3] * 19, "sequence 4: n_output is not"),
    ],
)
def test_sequences(folder, column, value, message):
    rewrite(folder, SEQUENCES, lambda table: with_value(table, column, 4, value))
    found(folder, SEQUENCES, message)


def test_finish_reasons(folder):
    reasons = pq.read_table(folder / SEQUENCES)["finish_reason"].to_pylist()
    ended, cut = reasons.index("eos"), reasons.index("length")
    rewrite(folder, SEQUENCES, lambda table: with_value(table, "finish_reason", ended, "length"))
    found(folder, SEQUENCES, f"sequence {ended}: ends in EOS, but finish_reason is 'length'")
    rewrite(folder, SEQUENCES, lambda table: with_value(table, "finish_reason", ended, "eos"))
    rewrite(folder, SEQUENCES, lambda table: with_value(table, "finish_reason", cut, "eos"))
    found(folder, SEQUENCES, f"sequence {cut}: 'eos' at 20 tokens, the last of them no EOS")
    rewrite(folder, SEQUENCES, lambda table: with_value(table, "finish_reason", cut, "length"))
    assert validate(folder) == []
    edit(folder, max_new_tokens=21)
    found(folder, SEQUENCES, f"sequence {cut}: 'length' at 20 tokens, the last of them no EOS")


def test_latency(folder):
    row = dict(zip(schema.LATENCY.names, ("draft", 1, 5, 1, -0.5, "f", "d", "e", 0), strict=True))
    add_file(folder, "latency.parquet", pa.Table.from_pylist([row], schema=schema.LATENCY))
    found(folder, "latency.parquet", "row 0: seconds is -0.5")
