"""The GPU measurements, tiny and on a CPU, and the page that is written from them."""

import json

import pyarrow.parquet as pq
import pytest
import torch
from transformers import AutoModelForCausalLM

from benchmarks.gpu import atlas_table, latency_atlas, pair_statistics
from benchmarks.gpu.engine import ATTENTION, Engine, attend, attention_error
from benchmarks.gpu.grid import (
    CONTROL,
    EAGER,
    FORWARD,
    FULL,
    GRAPH,
    HEAD,
    SMALL,
    Pass,
    Rates,
    floor_s,
    passes,
)
from benchmarks.gpu.shapes import MODELS, TINY, pass_bytes, pass_flops

CPU = torch.device("cpu")

# Totals of the published checkpoints (Hugging Face's safetensors counts); of qwen3-0.6b, whose
# file holds its tied embedding twice (751,632,384), the weights in use.
PUBLISHED = {
    "pythia-160m": 162_322_944,
    "pythia-6.9b": 6_857_302_016,
    "llama-2-7b": 6_738_415_616,
    "llama-2-13b": 13_015_864_320,
    "llama-3.1-8b": 8_030_261_248,
    "qwen2.5-0.5b": 494_032_768,
    "qwen2.5-1.5b": 1_543_714_304,
    "qwen2.5-14b": 14_770_033_664,
    "qwen2.5-32b": 32_763_876_352,
    "qwen3-0.6b": 596_049_920,
    "qwen3-8b": 8_190_735_360,
    "qwen3-14b": 14_768_307_200,
    "deepseek-coder-1.3b": 1_346_471_936,
    "deepseek-coder-6.7b": 6_740_512_768,
    "deepseek-coder-33b": 33_342_991_360,
}


def test_every_model_has_its_published_number_of_weights():
    assert {name: shape.parameters for name, shape in MODELS.items()} == PUBLISHED


@pytest.mark.parametrize("shape", [*TINY.values(), MODELS["pythia-160m"], MODELS["qwen3-0.6b"]])
def test_the_weights_counted_are_those_of_the_model(shape):
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(shape.config(), dtype=torch.bfloat16)
    assert sum(p.numel() for p in model.parameters()) == shape.parameters


def test_floor_is_the_larger_of_bytes_and_operations():
    shape = MODELS["llama-2-7b"]
    rates = Rates(copy_bytes_per_s=4e12, matmul_flops_per_s=8e14)
    one = Pass(FORWARD, 1, 512, 1, GRAPH)
    # 13.2 GB of weights (without the embedding) and 513 tokens of half a MiB
    assert pass_bytes(shape, 1, 512, 1) == (6_738_415_616 - 32000 * 4096) * 2 + 513 * 2**19
    assert floor_s(shape, one, rates) == (pass_bytes(shape, 1, 512, 1) / 4e12, "bytes")
    many = Pass(FORWARD, 2048, 0, 1, GRAPH)
    assert floor_s(shape, many, rates) == (pass_flops(shape, 2048, 0, 1) / 8e14, "operations")
    assert pass_flops(shape, 1, 512, 1) == pytest.approx(2 * 6.6e9, rel=0.05)


def test_the_grid_has_every_pass_once_and_one_control():
    found = passes(FULL, (EAGER, GRAPH), with_head=True)
    assert len(set(found)) == len(found)
    (control,) = [p for p in found if p.component == CONTROL]
    assert control.engine == GRAPH
    assert Pass(FORWARD, *(control.tokens_in, control.context_len, 1, GRAPH)) in found
    assert {p.engine for p in found if p.component == HEAD} == {EAGER, GRAPH}


@pytest.mark.parametrize("shape", TINY.values(), ids=lambda s: s.name)
def test_a_pass_is_that_of_the_hugging_face_model(shape):
    """Prefill of 8 tokens, then 3 more behind them, against the library's own attention."""
    prefill, verify = Pass(FORWARD, 8, 0, 2, EAGER), Pass(FORWARD, 3, 8, 2, EAGER)
    engine = Engine(shape, CPU, [verify], seed=1)
    ids = torch.randint(0, shape.vocab_size, (2, 11))
    model = engine.model
    with torch.inference_mode():
        model.set_attn_implementation("sdpa")
        whole = model(input_ids=ids).logits[:, 8:]
        model.set_attn_implementation(ATTENTION)
        cache = engine._cache(verify, shape.layers)
        cache.cut(0)
        model(input_ids=ids[:, :8], past_key_values=cache, use_cache=True)
        assert cache.length == 8
        ours = model(input_ids=ids[:, 8:], past_key_values=cache, use_cache=True).logits
        assert engine.prepare(prefill)().shape == (2, 1)
        assert engine.prepare(verify)().shape == (2, 3)
    torch.testing.assert_close(ours.float(), whole.float(), atol=0.02, rtol=0.02)


def test_attention_is_causal_from_the_lower_right():
    assert attention_error(CPU) < 0.01
    q, k = torch.randn(1, 4, 2, 8), torch.randn(1, 2, 5, 8)
    v = torch.zeros(1, 2, 5, 8)
    v[:, :, 4] = 1.0  # only the last token sees it
    out = attend(q, k, v)
    assert (out[:, :, 0] == 0).all() and (out[:, :, 1] > 0).all()


@pytest.fixture(scope="module")
def atlas(tmp_path_factory):
    folder = tmp_path_factory.mktemp("atlas")
    command = ["--out", str(folder), "--device", "cpu", "--shapes", "tiny", "--rounds", "4"]
    latency_atlas.main([*command, "--models", "tiny-llama,tiny-neox"])
    return folder, command


def test_the_atlas_runs_on_a_cpu(atlas):
    folder, _ = atlas
    rows = pq.read_table(folder / "latency.parquet").to_pylist()
    manifest = json.loads((folder / "manifest.json").read_text())
    assert set(manifest["models"]) == {"tiny-llama", "tiny-neox"}
    expected = passes(SMALL, (EAGER,), with_head=True)
    for name, report in manifest["models"].items():
        assert report["skipped"] == {} and report["rounds"] == {EAGER: 2}
        mine = [
            Pass(*(r[k] for k in Pass.__dataclass_fields__)) for r in rows if r["model"] == name
        ]
        assert sorted(mine, key=str) == sorted(2 * expected, key=str)
    assert all(row["seconds"] > 0 for row in rows)


def test_a_run_goes_on_where_it_stopped_and_past_a_model_that_fails(atlas, monkeypatch):
    folder, command = atlas

    class Failing(Engine):
        def __init__(self, shape, *args):
            if shape.name == "tiny-qwen2":
                raise RuntimeError("out of everything\nand more")
            super().__init__(shape, *args)

    monkeypatch.setattr(latency_atlas, "Engine", Failing)
    latency_atlas.main([*command, "--resume"])
    models = json.loads((folder / "manifest.json").read_text())["models"]
    assert list(models) == ["tiny-llama", "tiny-neox", "tiny-qwen2", "tiny-qwen3"]
    assert models["tiny-qwen2"] == {"error": "out of everything"}
    names = pq.read_table(folder / "latency.parquet")["model"].unique().to_pylist()
    assert names == ["tiny-llama", "tiny-neox", "tiny-qwen3"]


def test_the_page_holds_every_model(atlas, capsys):
    folder, _ = atlas
    atlas_table.main(["--data", str(folder)])
    text = capsys.readouterr().out
    assert "### tiny-llama" in text and "## Drift control" in text


def test_pair_statistics_run_on_a_cpu(tmp_path, capsys):
    out = tmp_path / "statistics.json"
    options = ["--bytes", "4e5", "--vocabularies", "1500", "--repeats", "1"]
    pair_statistics.main(["--out", str(out), "--device", "cpu", *options])
    rows = json.loads(out.read_text())["rows"]
    assert {row["dtype"] for row in rows} == {"float32", "bfloat16"}
    assert all(row["largest_error"] < 1e-4 for row in rows)
