"""Footers of Parquet files: the number of values, and no damage that ends the process."""

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from traces import footer

DATA = Path(footer.__file__).parent / "data"
FLIPS = """
from pathlib import Path
import sys, pyarrow as pa
from traces import parquet
from traces.errors import TraceError
data = Path(sys.argv[1]).read_bytes()
refused = 0
for at in range(len(data) - 8 - int.from_bytes(data[-8:-4], "little"), len(data)):
    for bit in range(8):
        other = bytearray(data)
        other[at] ^= 1 << bit
        try:
            with parquet.opened(Path("x"), pa.BufferReader(bytes(other)), TraceError) as found:
                found.read()
        except TraceError:
            refused += 1
print(refused)
"""


@pytest.mark.parametrize("file", sorted(DATA.glob("reference*/**/00000.parquet")), ids=str)
def test_values_are_those_that_pyarrow_counts(file):
    whole = pq.read_metadata(file)
    groups = [whole.row_group(k) for k in range(whole.num_row_groups)]
    expected = sum(group.column(k).num_values for group in groups for k in range(group.num_columns))
    assert footer.n_values(file) == footer.n_values(pa.BufferReader(file.read_bytes())) == expected


def test_no_bit_of_a_footer_ends_the_process(tmp_path):
    """Size statistics that do not fit a column: pyarrow's `column` would call terminate."""
    pq.write_table(
        pa.table({"a": ["x"]}, pa.schema([pa.field("a", pa.string(), False)])), tmp_path / "a"
    )
    done = subprocess.run(
        [sys.executable, "-c", FLIPS, tmp_path / "a"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 1000


@pytest.mark.parametrize(
    ("thrift", "message"),
    [
        (b"\x00", "does not have the number of values"),  # no row groups
        (b"\x45\x02\x00", "does not have the number of values"),  # a number in their place
        (b"\x49\x1c\x00\x00", "does not have the number of values"),  # a row group of no columns
        (b"\x49\x1c\x19\x1c\x00\x00\x00", "does not have the number of values"),  # of no facts
        (b"\x45" + b"\xff" * 10 + b"\x00\x00", "a number of over 64 bits"),
        (b"\x1c" * 5000, "does not have the number of values"),  # one within the other
        (b"\x48\x7f", "does not have the number of values"),  # it ends within
    ],
)
def test_footers_that_say_nothing(thrift, message):
    file = pa.BufferReader(b"PAR1" + thrift + len(thrift).to_bytes(4, "little") + b"PAR1")
    with pytest.raises(ValueError, match=message):
        footer.n_values(file)
