"""Cost models: what they say of a pass, and how they are named."""

import json
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from replay_traces import build

from simkit import costs
from simkit.costs import CostError, Linear, Measured
from traces import files, parquet, schema
from traces.errors import UserError

LINEAR = "linear(draft_s=0.002, target_s=0.03)"


def samples(*rows, engine="eager", device="cpu", batch_size=1):
    """A latency table of (component, tokens, context, seconds) rows."""
    table = [
        {
            "component": component,
            "tokens_in": tokens,
            "context_len": context,
            "batch_size": batch_size,
            "seconds": seconds,
            "dtype": "float32",
            "device": device,
            "engine": engine,
            "repeat": repeat,
        }
        for repeat, (component, tokens, context, seconds) in enumerate(rows)
    ]
    return pa.Table.from_pylist(table, schema=schema.LATENCY)


BASE = (("draft", 1, 10, 0.001), ("target", 1, 10, 0.010))


def measured(*rows, cost=None, tables=()):
    table = pa.concat_tables([samples(*rows), *tables])
    trace = build([[(1, 1)]], t_max=1, max_draft=1, latency=table)
    return (cost or Measured()).times(trace)


def test_linear_passes():
    times = Linear(
        draft_s=1.0,
        target_s=10.0,
        draft_per_token_s=0.5,
        target_per_token_s=2.0,
        draft_per_kv_token_s=0.25,
        target_per_kv_token_s=0.125,
    )
    context = np.array([0, 8])
    assert times.draft(context).tolist() == [1.5, 3.5]
    assert times.verify(np.array([1, 5]), context).tolist() == [12.0, 21.0]
    assert times.decode(context).tolist() == [12.0, 13.0]
    assert times.prefill("draft", context).tolist() == [1.0, 5.0]
    assert times.prefill("target", context).tolist() == [10.0, 26.0]


def test_linear_takes_the_decoding_pass_separately():
    times = Linear(draft_s=0.0, target_s=67.31e-3, decode_s=1 / 18.11)  # PACER
    assert times.decode(np.array([0])).tolist() == [1 / 18.11]
    assert times.verify(np.array([1]), np.array([0])).tolist() == [67.31e-3]


@pytest.mark.parametrize("value", ["-0.1", "nan", "true", "'1'"])
def test_linear_refuses_times_that_are_none(value):
    with pytest.raises(CostError, match="linear: target_s must be a number >= 0"):
        costs.parse(f"linear(draft_s=0.1, target_s={value})")


def test_measured_takes_medians_and_interpolates():
    times = measured(
        *(("draft", 1, 10, s) for s in (0.001, 0.002, 0.9)),
        ("draft", 1, 30, 0.004),
        ("target", 1, 10, 0.010),
        ("target", 5, 10, 0.014),
        ("target", 1, 30, 0.020),
        ("target", 5, 30, 0.028),
        ("draft", 10, 0, 0.003),
        ("target", 10, 0, 0.05),
        ("target", 30, 0, 0.07),
    )
    assert times.draft(np.array([10, 20, 30])) == pytest.approx([0.002, 0.003, 0.004])
    assert times.verify(np.array([1, 3, 5]), np.array([10])) == pytest.approx([0.010, 0.012, 0.014])
    assert times.verify(np.array([3]), np.array([20])) == pytest.approx([0.018])
    assert times.decode(np.array([10, 20])) == pytest.approx([0.010, 0.015])
    assert times.prefill("target", np.array([10, 20])) == pytest.approx([0.05, 0.06])
    assert times.prefill("draft", np.array([10, 500])) == pytest.approx([0.003, 0.003])


def test_measured_beyond_its_samples():
    times = measured(
        *BASE,
        ("draft", 1, 30, 0.003),
        ("target", 3, 10, 0.012),
        ("target", 1, 30, 0.014),
        ("target", 3, 30, 0.015),
    )
    assert times.draft(np.array([0, 50])) == pytest.approx([0.001, 0.005])
    # Along tokens one takes 1 ms more behind 10, 0.5 ms behind 30; along context one token takes
    # 0.2 ms more, three take 0.15 ms. No slope may fall, so both are their means, weighted by
    # 1 / seconds^2: sums of those of a line's two ends, which lie alike.
    ends = 1 / np.array([[0.010, 0.012], [0.014, 0.015]]) ** 2
    by_context, by_tokens = (1 / (1 / ends).sum(axis) for axis in (1, 0))
    token_s = np.average([1e-3, 0.5e-3], weights=by_context)
    kv_s = np.average([2e-4, 1.5e-4], weights=by_tokens)
    assert times.verify(np.array([5]), np.array([10])) == pytest.approx([0.012 + 2 * token_s])
    far = [0.014 + 20 * kv_s, 0.015 + 20 * kv_s]
    assert times.verify(np.array([1, 3]), np.array([50])) == pytest.approx(far)
    far = times.verify(np.arange(1, 60)[:, None], np.array([0, 10, 17, 30, 1000]))
    assert np.all(np.diff(far, axis=0) >= 0)


def test_measured_falls_along_no_axis():
    """What falls along context is noise: the two are pooled."""
    times = measured(*BASE, ("draft", 1, 30, 0.0005), ("target", 1, 30, 0.008))
    assert times.draft(np.array([10, 30, 5000])) == pytest.approx([0.00075] * 3)
    assert times.decode(np.array([10, 30, 5000])) == pytest.approx([0.009] * 3)


def test_measured_verification_is_monotone_in_tokens():
    times = measured(
        BASE[0],
        *(("target", n, 10, s) for n, s in ((1, 0.010), (2, 0.014), (3, 0.012), (4, 0.020))),
    )
    fit = times.verify(np.arange(1, 5), np.full(4, 10))
    assert fit == pytest.approx([0.010, 0.013, 0.013, 0.020])  # 14 and 12 pooled


def test_measured_prefill_falls_back_on_the_smallest_context():
    times = measured(*BASE, ("target", 5, 10, 0.014))
    assert times.prefill("target", np.array([3, 9])) == pytest.approx([0.012, 0.018])
    assert times.prefill("draft", np.array([3, 9])) == pytest.approx([0.001, 0.001])


def test_measured_constants():
    times = measured(
        *BASE,
        ("overhead", 0, 0, 0.25),
        ("overhead:baseline", 0, 0, 0.125),
        ("policy:svip", 0, 0, 0.5),
        *(("head:pacer", 4, c, s) for c, s in ((10, 0.5), (20, 0.75), (30, 9.0))),
        ("resample", 1, 0, 0.0625),
        ("communication", 0, 0, 0.03125),
        ("control:target", 1, 10, 9.0),
    )
    assert (times.overhead(), times.baseline_overhead()) == (0.25, 0.125)
    assert (times.policy("svip"), times.policy("fixed")) == (0.5, 0.0)
    assert (times.head("pacer"), times.head("specdecpp")) == (0.75, 0.0)
    assert (times.resample(), times.communication()) == (0.0625, 0.03125)
    plain = measured(*BASE)
    assert (plain.overhead(), plain.baseline_overhead(), plain.policy("svip")) == (0.0, 0.0, 0.0)
    assert (plain.head("pacer"), plain.resample(), plain.communication()) == (0.0, 0.0, 0.0)


def test_linear_constants():
    times = Linear(
        draft_s=0.0, target_s=1.0, policy_s=0.5, head_s=0.25, resample_s=0.125, communication_s=2
    )
    assert (times.policy("svip"), times.head("pacer")) == (0.5, 0.25)
    assert (times.resample(), times.communication()) == (0.125, 2)


def test_measured_chooses_an_engine():
    faster = samples(*((c, n, x, s / 10) for c, n, x, s in BASE), engine="compiled")
    batched = samples(*((c, n, x, s * 10) for c, n, x, s in BASE), batch_size=8)
    at = np.array([10])
    assert measured(*BASE, tables=[faster, batched]).decode(at) == pytest.approx([0.01])
    compiled = measured(*BASE, tables=[faster], cost=Measured(engine="compiled"))
    assert compiled.decode(at) == pytest.approx([0.001])
    large = measured(*BASE, tables=[batched], cost=Measured(batch_size=8))
    assert large.decode(at) == pytest.approx([0.1])


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ((), "no samples of engine eager, batch size 1"),
        (BASE[:1], "no samples of target passes with context"),
        (BASE[1:], "no samples of draft passes with context"),
        ((("draft", 2, 10, 0.1), BASE[1]), "no samples of draft passes over one token"),
        ((*BASE, ("target", 1, 10, 0.0)), "seconds is 0.0"),
        ((*BASE, ("draft", 1, 10, float("nan"))), "seconds is nan"),
        ((*BASE, ("target", 1, 20, 1e200)), r"a sample of target took 1e\+200 seconds"),
    ],
)
def test_measured_refuses_samples_that_do_not_do(rows, message):
    with pytest.raises(UserError, match=message):
        measured(*rows)


def test_measured_refuses_to_mix_devices():
    with pytest.raises(CostError, match="mixes several devices: cpu, gpu"):
        measured(*BASE, tables=[samples(*BASE, device="gpu")])
    with pytest.raises(CostError, match=r"engine fast, batch size 1 \(engines: eager\)"):
        measured(*BASE, cost=Measured(engine="fast"))


def test_measured_needs_samples():
    with pytest.raises(CostError, match="has no timing samples"):
        Measured().times(build([[(1, 1)]], t_max=1, max_draft=1))


def test_specs():
    assert {"atlas", "linear", "measured", "roofline"} <= set(costs.names())
    assert costs.parse("measured") == Measured()
    assert costs.parse("measured(engine=compiled)") == Measured(engine="compiled")
    assert costs.parse(LINEAR) == Linear(draft_s=0.002, target_s=0.03)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("measurd", r"unknown cost model 'measurd' \(did you mean measured\?\)"),
        ("linear(draft_s=0.1)", "linear needs target_s"),
        ("linear(0.1, 0.2)", "arguments by name"),
        ("linear(draft_s=1:2, target_s=1)", "1:2 is a range"),
        ("linear(draft=1, target_s=1)", r"no argument 'draft' \(did you mean draft_s\?\)"),
        ("linear(draft_s=1, target_s=1, head_s=-1)", "head_s must be a number >= 0, not -1"),
        ("linear(draft_s=1, target_s=1, resample_s=nan)", "resample_s must be a number >= 0"),
        ("linear(draft_s=1, target_s=1, communication_s=true)", "communication_s must be"),
        ("pacer:deepseek-1.3-33b", r"did you mean pacer:deepseek-1\.3b-33b\?"),
        ("pearl:llama-7b-70b", r"did you mean pearl:llama2-7b-70b\?"),
        ("pacer", "unknown cost model 'pacer'"),
        ("pearl:llama2-7b-70b(head=1)", r"no argument 'head' \(did you mean head_s\?\)"),
        ("pearl:llama2-7b-70b(head_s=-1)", "head_s must be a number >= 0, not -1"),
        ("pearl:llama2-7b-70b(head_s=1", r"^'pearl:llama2-7b-70b\(head_s=1' is not of the form"),
        ("pearl:llama2-7b-70b(1)", "arguments by name"),
        ("fake:(x?token=1", "unknown cost model 'fake:'"),
        ("measured(engine=3)", "measured: engine must be a text, not 3"),
        ("measured(dips=1)", "measured: dips must be true or false, not 1"),
        ("measured(batch_size=1000001)", "at most a million, not 1000001"),
        ("nowhere.json", "nowhere.json: cannot be read: No such file"),
        ("traces/nowhere.csv", "a cost is a name, or a .json, .toml or .parquet file"),
    ],
)
def test_bad_specs_are_refused_in_one_line(text, message):
    with pytest.raises(CostError, match=message) as caught:
        costs.parse(text)
    assert "\n" not in str(caught.value)


def test_files(tmp_path):
    values = {"kind": "linear", "draft_s": 0.002, "target_s": 0.03}
    (tmp_path / "a.json").write_text(json.dumps(values))
    (tmp_path / "a.toml").write_text('kind = "linear"\ndraft_s = 0.002\ntarget_s = 0.03\n')
    for name in ("a.json", "a.toml"):
        assert costs.parse(str(tmp_path / name)) == costs.parse(LINEAR)
    (tmp_path / "b.json").write_text("{")
    (tmp_path / "c.json").write_text("[]")
    (tmp_path / "d.json").write_text(json.dumps(values | {"target_s": -1}))
    (tmp_path / "e.toml").write_text("kind = \n")
    for name, message in {
        "b.json": "Expecting property name",
        "c.json": "needs a kind",
        "d.json": "target_s must be a number >= 0, not -1",
        "e.toml": "Invalid value",
    }.items():
        with pytest.raises(CostError, match=f"{name}: .*{message}"):
            costs.parse(str(tmp_path / name))


def test_a_parquet_file_is_measured(tmp_path):
    trace = build([[(1, 1)]], t_max=1, max_draft=1)  # has no samples of its own
    file = tmp_path / "samples.parquet"
    pq.write_table(samples(*BASE), file)
    assert costs.parse(str(file)) == Measured(file=str(file))
    given = costs.parse(f'measured(file="{file}", engine=eager)').times(trace)
    assert given.decode(np.array([10])) == pytest.approx([0.01])


def test_samples_without_a_digest_are_told(tmp_path):
    """Nothing tells whether another program's file was altered; ours are sealed."""
    trace = build([[(1, 1)]], t_max=1, max_draft=1)
    table, said = samples(*BASE), "has no digest"
    for name, written in (("open", table), ("sealed", parquet.sealed(table))):
        (tmp_path / name).write_bytes(files.encode(written)[0])
    open_, closed = (Measured(file=str(tmp_path / n)).times(trace) for n in ("open", "sealed"))
    assert any(said in line for line in open_.remarks())
    assert not any(said in line for line in closed.remarks())


def test_bad_parquet_files(tmp_path):
    trace = build([[(1, 1)]], t_max=1, max_draft=1)
    file = tmp_path / "samples.parquet"

    def refused(message):
        with pytest.raises(CostError, match=message) as caught:
            costs.parse(str(file)).times(trace)
        assert str(caught.value).startswith(f"{file}: ")
        assert str(caught.value).count(str(file)) == 1
        assert "\n" not in str(caught.value)

    refused("No such file")
    file.write_text("nothing of the kind")
    refused("corrupt: ")
    pq.write_table(samples(*BASE), file)
    file.write_bytes(file.read_bytes()[:-20])
    refused("corrupt: ")
    pq.write_table(samples(*BASE).drop_columns("engine"), file)
    refused("column engine is missing")
    pq.write_table(samples(*BASE[:1]), file)
    refused("no samples of target passes with context")
    pq.write_table(schema.LIVE.empty_table(), file)
    refused("no passes in the log of live runs")
    file.unlink()
    file.mkdir()
    refused("Is a directory")


def test_a_name_is_registered_once():
    @dataclass(frozen=True)
    class Other(Linear):
        name = "linear"

    with pytest.raises(CostError, match="a cost model named linear exists: Linear"):
        costs.register(Other)
    assert costs.register(Linear) is Linear  # the same one again, as of a module that is run anew


def test_communication_that_is_given_counts_in_every_batch():
    rows = *BASE, ("communication", 0, 0, 0.001)
    both = [samples(*rows, batch_size=size) for size in (2, 4)]
    times = measured(*rows, cost=Measured(communication_s=0.5), tables=both)
    assert [times.of_batch(size).communication() for size in (1, 2, 3, 4)] == [0.5] * 4
    timed = measured(*rows, tables=both)
    assert [timed.of_batch(size).communication() for size in (1, 2, 3, 4)] == [0.001] * 4


def test_whole_numbers_of_seconds_do_not_overflow():
    paid = costs.Linear(draft_s=1, target_s=1, target_per_token_s=10**18)
    assert paid.verify(np.array([100]), np.array([0]))[0] == pytest.approx(1e20)
