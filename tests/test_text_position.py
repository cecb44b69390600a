"""What happens along the text: by position, and up to a length, against plain loops."""

import numpy as np
import pytest

import simkit
from analysis.figures import text_position
from analysis.figures.measures import cell
from analysis.figures.svip.text_position import edges
from analysis.figures.tables.svip import by_length
from analysis.papers import svip
from analysis.replays import of
from analysis.stats import clusters
from analysis.study import MissingError, Study
from traces import load
from traces.synthetic import iid

COST = "linear(draft_s=0.001, target_s=0.01, target_per_token_s=0.001, overhead_s=0.002)"


def test_bins_double_and_hold_every_position():
    assert edges(16).tolist() == [0.5, 16.5]
    assert edges(100).tolist() == [0.5, 16.5, 32.5, 64.5, 128.5]
    assert edges(1)[-1] >= 1 and edges(4096)[-1] == 4096.5


def test_means_are_those_of_a_plain_loop():
    trace = load("reference")
    frame = text_position(trace).frame
    accepted, entropy = trace.positions("accepted"), trace.positions("draft_entropy")
    at, seen = 0, {"acceptance": {}, "draft entropy": {}}
    for length in trace.sequences["n_output"].to_pylist():
        for i in range(1, length + 1):
            low = next(k for k in (129, 65, 33, 17, 1) if i >= k)
            seen["acceptance"].setdefault(low, []).append(accepted[at])
            seen["draft entropy"].setdefault(low, []).append(entropy[at])
            at += 1
    for name, bins in seen.items():
        for low, values in bins.items():
            row = frame.filter(series=name).filter(frame.filter(series=name)["from"] == low)
            assert row["rows"].item() == len(values)
            assert row["value"].item() == pytest.approx(np.mean(values, dtype=float), rel=1e-5)


def seconds_up_to(trace, spec, length, of="total_s"):
    """Each prompt's seconds up to a length, step by step; None for prompts that end before it."""
    steps = simkit.replay(trace, spec, COST, by="step").frame.to_dicts()
    n_output = trace.sequences["n_output"].to_pylist()
    found = [0.0 if n >= length else None for n in n_output]
    for step in steps:
        if found[step["sequence"]] is not None:
            first = step["start"]
            inside = sum(i <= length for i in range(first, first + step["emitted"]))
            found[step["sequence"]] += step[of] * inside / step["emitted"]
    return found


@pytest.mark.parametrize(
    "name, source", [("reference", "SVIP Table 6"), ("reference-sampled", "SVIP Table 2")]
)
def test_speedups_by_length_are_those_of_a_plain_loop(name, source):
    trace = load(name)
    table = by_length(of(Study(trace), COST))
    assert table.source == source
    assert table.heads == ["method", "128", "256"]
    rows = {row[0]: row[1:] for row in table.rows}
    for k, length in enumerate((128, 256)):
        alone = seconds_up_to(trace, "autoregressive", length, of="baseline_s")
        for name, spec in (("Const.", svip.CONSTANT), ("Heuristics", svip.HEURISTIC)):
            mine = seconds_up_to(trace, spec, length)
            pairs = np.array([p for p in zip(alone, mine, strict=True) if p[0] is not None])
            assert rows[name][k] == cell(clusters.ratio(pairs[:, 0], pairs[:, 1]))
        assert rows["prompts"][k] == str(len(pairs))


def test_short_outputs_have_no_such_table():
    with pytest.raises(MissingError, match="no output has 256 tokens"):
        by_length(of(Study(iid(6, 200, 0.7, max_draft=8, seed=0)), COST))
