"""The latency atlas as a cost: medians of its samples, and what it refuses."""

import numpy as np
import polars as pl
import pyarrow.parquet as pq
import pytest

import simkit
import traces
from simkit.costs import CostError, Measured, atlas, parse

SPEC = "atlas(target=qwen3-8b, draft=qwen3-0.6b{})"


@pytest.fixture(scope="module")
def trace():
    return traces.load("reference")


@pytest.fixture(scope="module")
def samples():
    return pl.read_parquet(atlas.FOLDER / "latency.parquet")


def median(samples, **wanted):
    rows = samples.filter(*(pl.col(name) == value for name, value in wanted.items()))
    return float(np.median(rows["seconds"].to_numpy()))


@pytest.mark.parametrize(("engine", "context"), [("cuda_graph", 512), ("eager", 128)])
def test_passes_are_the_medians_of_their_samples(engine, context, trace, samples):
    times = parse(SPEC.format(f", engine={engine}")).times(trace)
    of = {"component": "forward", "batch_size": 1, "context_len": context, "engine": engine}
    draft_s = median(samples, model="qwen3-0.6b", tokens_in=1, **of)
    found = times.passes["draft"](np.array([1]), np.array([context]))
    assert found[0] == pytest.approx(draft_s, rel=1e-12 if engine == "cuda_graph" else 0.05)
    tokens = (1, 2, 5, 9, 17)
    verify_s = [median(samples, model="qwen3-8b", tokens_in=n, **of) for n in tokens]
    found = times.passes["target"](np.array(tokens), np.full(len(verify_s), context))
    assert found == pytest.approx(np.array(verify_s), rel=0.05)  # made monotone
    assert (np.diff(found) >= 0).all()
    head = {"component": "head:pacer", "model": "qwen3-0.6b", "engine": engine, "batch_size": 1}
    assert times.head("pacer") == median(samples, **head)


def test_a_pair_is_a_latency_table(trace, tmp_path):
    table = atlas.pair(atlas.samples_of_all(), "llama-3.1-8b", "qwen2.5-0.5b", "cuda_graph")
    pq.write_table(table, tmp_path / "pair.parquet")
    cost = Measured(file=str(tmp_path / "pair.parquet"), policy_s=0.0)
    specs = ["fixed(4)", "svip(h=1.2)", "pacer(4, 0.7)"]
    again = simkit.replay(trace, specs, cost)
    found = simkit.replay(
        trace, specs, "atlas(target=llama-3.1-8b, draft=qwen2.5-0.5b, policy_s=0.0)"
    )
    assert found.frame.equals(again.frame)


def test_loops_are_given(trace):
    times = parse(SPEC.format(", overhead_s=0.001, baseline_overhead_s=0.0002")).times(trace)
    assert (times.overhead(), times.baseline_overhead()) == (0.001, 0.0002)


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("atlas(target=qwen3-8b, draft=qwen3-0.6)", r"no 'qwen3-0.6' \(did you mean qwen3-0.6b\?"),
        ("atlas(target=qwen3-8b)", "atlas needs draft"),
        (SPEC.format(", engine=tpu"), "engine is cuda_graph or eager, not 'tpu'"),
        (SPEC.format(", batch_size=3"), "no samples of engine cuda_graph, batch size 3"),
        (SPEC.format(", overhead_s=-1"), "overhead_s"),
    ],
)
def test_what_is_refused(spec, says, trace):
    with pytest.raises(CostError, match=says):
        parse(spec).times(trace)
