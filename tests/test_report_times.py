"""What the page says of its seconds: whose samples they are, and what they do not hold."""

from __future__ import annotations

import pyarrow as pa
from test_report import parsed

from analysis.report import report
from traces import schema
from traces.synthetic import iid
from traces.trace import load
from traces.writer import add_file, save


def timed(folder, repeats):
    """A trace with timing samples: of each shape as many as are asked for, 1, 2, … times alike."""
    save(iid(4, 20, 0.7, max_draft=8, seed=1, tasks=("code",)), folder)
    shapes = [("draft", 1, 9, 1e-3), ("target", 1, 9, 4e-3), ("target", 8, 9, 5e-3)]
    shapes += [("overhead", 0, 0, 1e-4), ("policy:svip", 1, 0, 1e-5)]
    rows = [
        (component, tokens, context, 1, seconds * (k + 1), "float32", "a core", "eager", k)
        for component, tokens, context, seconds in shapes
        for k in range(repeats)
    ]
    columns = zip(schema.LATENCY, zip(*rows, strict=True), strict=True)
    arrays = [pa.array(values, field.type) for field, values in columns]
    add_file(folder, "latency.parquet", pa.table(arrays, schema=schema.LATENCY))
    return load(folder)


def test_times_from_running_decoders(tmp_path):
    """One sample a shape is a mean over passes: there is no median, and no quantile, to show."""
    found = report(timed(tmp_path / "trace", 1), figures=False)
    page = parsed(found)
    said = page.all_text()
    assert "Seconds are means of this pair's passes as they are in running decoders" in said
    assert "Timing samples: 5 shapes" in said and "Seconds are medians" not in said
    table = next(table for table in found.recorded.tables if table.name == "latency")
    assert list(table.heads)[3:5] == ["mean of the central 90%, ms", "batch"]
    assert ["draft", "1", "9", "1.000", "1", "eager"] in page.rows
    assert {len(row) for row in table.rows} == {len(table.heads)}


def test_times_of_passes_alone(tmp_path):
    found = report(timed(tmp_path / "trace", 3), "measured", figures=False)
    page = parsed(found)
    said = page.all_text()
    assert "Seconds are medians of this pair's passes, each timed alone, timed on a core" in said
    assert "Timing samples: 15 passes" in said and "as they are in running decoders" not in said
    table = next(table for table in found.recorded.tables if table.name == "latency")
    assert list(table.heads)[3:6] == ["median, ms", "5% to 95%, ms", "samples"]
    row = ["draft", "1", "9", "2.000", "1.100 to 2.900", "3", "1", "eager"]
    assert row in page.rows
    assert {len(row) for row in table.rows} == {len(table.heads)}


def test_the_page_says_how_each_rule_was_timed(tmp_path):
    """`svip` in a decoder, `confidence` here; `fixed`, `heuristic` and PEARL decide nothing."""
    found = report(timed(tmp_path / "trace", 1), policies=["pearl(2)"], figures=False)
    (line,) = [line for line in found.caveats if line.startswith("Time of rules: ")]
    parts = line.removeprefix("Time of rules: ").removesuffix(".").split("; ")
    hows = {how: names.split(", ") for names, how in (part.split(": ") for part in parts[:2])}
    assert hows["measured in running decoders"] == ["svip"]
    named = [name for names in hows.values() for name in names]
    assert "confidence" in named
    assert not {"fixed", "heuristic", "autoregressive", "pearl", "oracle"} & set(named)
