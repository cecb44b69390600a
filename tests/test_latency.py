"""`simkit latency` and what it measures with, on tiny random models."""

import errno
import os
import re
from dataclasses import asdict, replace

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import torch
import typer
from commands import refused, run
from pair_folders import words_tokenizer
from trace_files import record, trace
from transformers import LlamaConfig, LlamaForCausalLM
from typer.testing import CliRunner

from simkit import costs, serving
from simkit.cli.latency import latency
from simkit.costs import fit
from traces import schema
from traces.errors import RecordError, UserError
from traces.record.latency import CONTROL, WARM_UPS, PassBench, PassShape, control, measure, plan
from traces.synthetic import iid
from traces.trace import load
from traces.validate import validate


def tiny(layers: int = 1, positions: int = 64) -> LlamaForCausalLM:
    torch.manual_seed(layers)
    config = LlamaConfig(
        vocab_size=40,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=layers,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=positions,
    )
    return LlamaForCausalLM(config).eval()


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("pair")
    tokenizer = words_tokenizer(40)
    for name, layers in (("draft", 1), ("target", 2)):
        tiny(layers).save_pretrained(root / name)
        tokenizer.save_pretrained(root / name)
    return root


@pytest.fixture(scope="module")
def app():
    app = typer.Typer()
    app.command()(latency)
    return app


def test_plan_holds_every_pass_once_and_one_control():
    shapes = plan(4, contexts=(8, 16), tokens=(1, 2, 9))
    assert len(set(shapes)) == len(shapes)
    assert {s.tokens_in for s in shapes if s.component == "target" and s.context_len} == {1, 2, 5}
    assert [s for s in shapes if s.component == "draft" and s.context_len] == [
        PassShape("draft", 1, 8),
        PassShape("draft", 1, 16),
    ]
    assert {(s.component, s.tokens_in) for s in shapes if s.context_len == 0} == {
        (m, n) for m in ("draft", "target") for n in (8, 16)
    }
    (second,) = [s for s in shapes if s.component.startswith(CONTROL)]
    assert PassShape(second.model, second.tokens_in, second.context_len) in shapes


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"max_draft": -1}, "max_draft"),
        ({"max_draft": 2, "contexts": ()}, "context"),
        ({"max_draft": 2, "contexts": (0,)}, "context"),
        ({"max_draft": 2, "tokens": (-3,)}, "tokens"),
        ({"max_draft": 2, "batch_sizes": (4, 0)}, "batch_size"),
    ],
)
def test_plan_refuses_what_cannot_be_measured(arguments, words):
    with pytest.raises(RecordError, match=words):
        plan(**arguments)


def test_a_sample_starts_from_the_context_length_and_gives_the_model_s_own_tokens():
    shapes = plan(4, contexts=(8,), batch_sizes=(1, 2))
    model = tiny(2)
    bench = PassBench(model, shapes, seed=0)
    for size in (1, 2):
        verification, prefill = PassShape("target", 3, 8, size), PassShape("target", 8, 0, size)
        for shape in (verification, prefill, verification):
            assert bench.sample(shape) > 0
            assert bench.caches[size, 8].get_seq_length() == 8
            assert bench.caches[size, 0].get_seq_length() == 0
        ids = torch.tensor(bench.ids[:size, :11])
        with torch.inference_mode():
            whole = model(input_ids=ids).logits[:, 8:].argmax(-1)
        cache = bench.caches[size, 8]
        assert bench._run(ids[:, 8:].tolist(), cache, keep=0) == whole.tolist()


def test_every_shape_is_timed_once_a_round_in_an_order_of_its_own():
    shapes = plan(2, contexts=(8, 12))
    done = []
    table = measure({"draft": tiny(1), "target": tiny(2)}, shapes, repeats=3, on_round=done.append)
    assert table.schema == schema.LATENCY
    assert [len(so_far) for so_far in done] == [len(shapes) * n for n in (1, 2, 3)]
    rows = table.to_pylist()
    orders = []
    for repeat in range(3):
        part = [r for r in rows if r["repeat"] == repeat]
        orders.append([(r["component"], r["tokens_in"], r["context_len"]) for r in part])
        assert sorted(orders[-1]) == sorted(
            (s.component, s.tokens_in, s.context_len) for s in shapes
        )
    assert orders[0] != orders[1]
    assert all(r["seconds"] > 0 and r["dtype"] == "float32" for r in rows)
    found = control(table)
    assert found is not None and found[0].component == "target" and min(found[1:]) > 0


def test_a_pass_longer_than_the_model_is_refused():
    with pytest.raises(RecordError, match="needs 66 positions, llama has 64"):
        measure({"draft": tiny(), "target": tiny()}, plan(2, contexts=(63,)), repeats=1)


def test_no_repeats_are_refused():
    with pytest.raises(RecordError, match="repeats must be >= 1, not 0"):
        measure({}, [], repeats=0)


def test_batch_sizes_are_timed_in_turns():
    shapes = plan(2, contexts=(8,), batch_sizes=(4, 1, 2))
    control_shape = shapes[-1]
    assert len(shapes) == len(set(shapes)) == 3 * len(plan(2, contexts=(8,))[:-1]) + 1
    table = measure({"draft": tiny(1), "target": tiny(2)}, shapes, repeats=2)
    for repeat in range(2):
        sizes = table.filter(pc.field("repeat") == repeat)["batch_size"].to_pylist()
        assert sorted(sizes) == sorted(shape.batch_size for shape in shapes)
        assert sizes != sorted(sizes) and sizes != sorted(sizes, reverse=True)
    found = control(table)
    assert found is not None
    assert found[0] == PassShape("target", 2, 8, 2) == replace(control_shape, component="target")


def test_a_command_s_file_has_a_cost_of_every_batch_size(folders, tmp_path, capsys):
    out, fitted = tmp_path / "latency.parquet", tmp_path / "cost.json"
    options = ["--batch-size", "1,3", "--repeats", 1, "--out", out, "--cost-out", fitted]
    ended, said, _ = run(capsys, *small(folders, *options))
    assert ended == 0
    assert " batch " in said and "control: target of 3 sequences, 2 tokens" in said
    table = pq.read_table(out)
    for size in (1, 3):
        times = costs.parse(f'measured(file="{out}", batch_size={size})').times(trace())
        sized = table.filter(pc.field("batch_size") == size)
        drafts = (pc.field("component") == "draft") & (pc.field("context_len") == 8)
        assert times.draft(np.array([8])) == sized.filter(drafts)["seconds"].to_numpy()
    one = fit.linear(table.filter(pc.field("batch_size") == 1))[0]
    read = costs.parse(str(fitted))  # each names the file that its models are named in
    assert replace(read, timed=one.timed) == one and read.timed.draft == one.timed.draft


def test_command_writes_a_file(folders, app, tmp_path):
    out = tmp_path / "latency.parquet"
    arguments = ["--target", folders / "target", "--draft", folders / "draft", "--out", out]
    options = ["--max-draft", "2", "--context", "8", "--repeats", "2", "--device", "cpu"]
    result = CliRunner().invoke(app, [str(a) for a in arguments] + options)
    assert result.exit_code == 0, result.output
    assert pq.read_table(out).schema == schema.LATENCY
    assert "measured twice" in result.output


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--target", "./nowhere"], "nowhere: "),
        (["--context", "8,x"], "--context '8,x'"),
        (["--dtype", "int8"], "'int8'"),
        (["--device", "abacus"], "device 'abacus'"),
        (["--out", "nowhere"], "--out nowhere: neither a trace"),
        (["--out", "nowhere/a.parquet"], "--out nowhere/a.parquet: no such folder: nowhere"),
        (["--cost-out", "nowhere/a.json"], "--cost-out nowhere/a.json: no such folder: nowhere"),
        (["--seed", "-1"], "seed must be >= 0, not -1"),
        (["--batch-size", "1,x"], "--batch-size '1,x': must be whole numbers"),
        (["--batch-size", "1,0"], "batch_size: needs one or more whole numbers >= 1"),
    ],
)
def test_command_refuses_in_one_line(folders, app, options, words):
    base = ["--target", str(folders / "target"), "--draft", str(folders / "draft")]
    result = CliRunner().invoke(app, base + options)
    assert isinstance(result.exception, UserError)
    assert words in str(result.exception) and "\n" not in str(result.exception)


def test_command_adds_its_samples_to_a_trace(folders, app, tmp_path):
    record(tmp_path / "trace", trace())
    arguments = ["--target", folders / "target", "--draft", folders / "draft"]
    options = ["--out", tmp_path / "trace", "--context", "8", "--repeats", "1", "--device", "cpu"]
    result = CliRunner().invoke(app, [str(a) for a in arguments + options])
    assert result.exit_code == 0, result.output
    assert validate(tmp_path / "trace") == []
    found = load(tmp_path / "trace")
    samples = found.latency()
    assert samples is not None and samples.schema.equals(schema.LATENCY)
    tokens = {r["tokens_in"] for r in samples.to_pylist() if r["context_len"]}
    assert max(tokens) == found.max_draft + 1  # Γ is the trace's


@pytest.fixture
def second_round(monkeypatch):
    """Lets the second round of a command with the options of `small` break off."""

    def arm(how):
        whole, seen = PassBench.sample, []
        shapes = len(plan(2, contexts=(8,)))

        def sample(self, shape):
            seen.append(shape)
            if len(seen) > (WARM_UPS + 1) * shapes + 1:
                raise how
            return whole(self, shape)

        monkeypatch.setattr(PassBench, "sample", sample)

    return arm


def small(folders, *more):
    base = ["latency", "--target", folders / "target", "--draft", folders / "draft"]
    options = ["--max-draft", 2, "--context", "8", "--tokens", "1,2,3", "--repeats", 3]
    return [str(a) for a in [*base, *options, "--device", "cpu", *more]]


@pytest.mark.parametrize(
    ("how", "code", "words"),
    [
        (KeyboardInterrupt(), 130, "simkit: interrupted; "),
        (SystemExit(143), 143, "simkit: interrupted; "),  # what SIGTERM becomes
        (torch.OutOfMemoryError("CUDA out of memory"), 2, "simkit: out of memory; "),
    ],
)
def test_whole_rounds_survive(folders, how, code, words, second_round, tmp_path, capsys):
    second_round(how)
    out = tmp_path / "latency.parquet"
    ended, _, said = run(capsys, *small(folders, "--out", out))
    assert (ended, said.strip()) == (code, f"{words}{out} has the first 1 of all rounds")
    table = pq.read_table(out)
    assert table.schema == schema.LATENCY and set(table["repeat"].to_pylist()) == {0}


def test_an_output_that_cannot_be_written_is_found_before_anything_is_measured(
    folders, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr("traces.record.latency.measure", lambda *a, **k: pytest.fail("measured"))
    out = tmp_path / "taken.parquet"
    out.mkdir()
    assert refused(capsys, *small(folders, "--out", out)) == f"simkit: --out {out}: is a folder"

    def refuse(file, *given):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr("traces.outputs.os.open", refuse)
    line = refused(capsys, *small(folders, "--out", tmp_path / "a.parquet"))
    assert "a.parquet: cannot be written: Permission denied" in line


def test_a_disk_that_is_full_in_the_end_costs_no_earlier_samples(
    folders, tmp_path, monkeypatch, capsys
):
    out = tmp_path / "latency.parquet"
    out.write_text("earlier")

    def refuse(*given):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("traces.outputs.os.fsync", refuse)
    ended, shown, said = run(capsys, *small(folders, "--out", out))
    assert ended == 2 and f"{out}: cannot be written: No space left on device" in said
    assert "median ms" in shown  # what was measured is shown all the same
    assert out.read_text() == "earlier" and os.listdir(tmp_path) == ["latency.parquet"]


def test_samples_of_a_trace_are_announced_as_replaced(folders, tmp_path, capsys):
    record(tmp_path / "trace", trace())
    for words in ("", "has timing samples already: they will be replaced"):
        ended, out, _ = run(capsys, *small(folders, "--out", tmp_path / "trace"))
        assert ended == 0 and words in out and ("replaced" in out) == bool(words)


def test_what_breaks_off_replaces_nothing(folders, second_round, tmp_path, capsys):
    second_round(KeyboardInterrupt())
    out = tmp_path / "latency.parquet"
    out.write_text("earlier")
    ended, _, said = run(capsys, *small(folders, "--out", out))
    assert ended and out.read_text() == "earlier" and f"{out} is as it was" in said


def test_command_fits_a_linear_cost(folders, app, tmp_path):
    file = tmp_path / "cost.json"
    arguments = ["--target", folders / "target", "--draft", folders / "draft", "--cost-out", file]
    options = ["--max-draft", "2", "--context", "8,16", "--repeats", "2", "--device", "cpu"]
    result = CliRunner().invoke(app, [str(a) for a in arguments] + options)
    assert result.exit_code == 0, result.output
    assert "median residual" in result.output and "draft prefill" in result.output
    (spec,) = re.findall(r"--cost '(linear\(.*\))'", result.output)
    printed, written = costs.parse(spec), costs.parse(str(file))
    assert isinstance(printed, costs.Linear) and isinstance(written, costs.Linear)
    prices, expected = asdict(printed), asdict(written)
    assert prices.pop("parallel") == expected.pop("parallel") == "kept"
    assert prices.pop("preset") == expected.pop("preset") == ""
    assert prices.pop("timed") is None
    target, draft, where = expected.pop("timed")
    assert target.id.endswith("target") and draft.id.endswith("draft") and where == str(file)
    assert len(target.weights_sha256) == len(draft.weights_sha256) == 64
    assert prices == pytest.approx(expected, rel=1e-5)
    assert written.target_s + written.target_per_token_s > 0 and written.overhead_s == 0


def test_a_cost_file_is_refused_before_anything_is_measured(folders, app):
    base = ["--target", str(folders / "target"), "--draft", str(folders / "draft")]
    for file in ("cost.toml", "nowhere/cost.json"):
        result = CliRunner().invoke(app, [*base, "--cost-out", file])
        assert isinstance(result.exception, UserError) and file in str(result.exception)


def test_a_grid_has_the_batches_of_a_server(folders, app, tmp_path):
    """From its file `measured` has the times of batches that a simulation of serving asks for."""
    out = tmp_path / "grid.parquet"
    pair = ["--target", str(folders / "target"), "--draft", str(folders / "draft")]
    options = ["--grid", "--max-batch", "6", "--context", "8,24", "--max-draft", "4"]
    done = CliRunner().invoke(app, [*pair, *options, "--repeats", "2", "--out", str(out)])
    assert done.exit_code == 0, done.output
    lasts = r"(about \d+ s|less than a second)\n"
    assert re.search(rf"\d+ passes, 2 samples of each: {lasts}", done.stderr)
    table = pq.read_table(out)
    assert set(table["batch_size"].to_pylist()) == {1, 2, 4, 6}
    several = table.filter((pc.field("batch_size") == 6) & (pc.field("context_len") > 0))
    widths = {(r["component"], r["tokens_in"]) for r in several.to_pylist()}
    assert widths == {("draft", 1), *(("target", n) for n in (1, 2, 3, 4, 5))}
    source = iid(8, 20, 0.7, max_draft=8, seed=0)
    times = costs.Measured(file=str(out)).times(source)
    assert times.batches == (1, 2, 4, 6)
    served = serving.serve(
        source,
        "static(3)",
        costs.Measured(file=str(out)),
        concurrency=6,
        seeds=1,
        requests=12,
        engine=serving.Engine(max_batch=6),
    )
    assert served.records()[0]["tokens_s"] > 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--max-batch", "4"], "--max-batch needs --grid"),
        (["--grid", "--max-batch", "4", "--batch-size", "2"], "not both"),
        (["--grid", "--max-batch", "0"], "at least 1"),
    ],
)
def test_a_grid_of_no_batches_is_refused(folders, app, options, words):
    pair = ["--target", str(folders / "target"), "--draft", str(folders / "draft")]
    done = CliRunner().invoke(app, [*pair, *options])
    assert isinstance(done.exception, UserError) and words in str(done.exception)
