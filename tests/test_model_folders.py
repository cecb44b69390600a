"""Folders of models that are not what they say: refused in one line, and nothing of them is run."""

import json
import os
import shutil
import subprocess
import sys

import pytest
import torch
from pair_folders import model, words_tokenizer
from safetensors.torch import load_file, save_file

from traces.errors import RecordError
from traces.record.pair import load_pair


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "model"
    words_tokenizer(40).save_pretrained(folder)
    model().save_pretrained(folder)
    return folder


@pytest.fixture
def folder(whole, tmp_path):
    return shutil.copytree(whole, tmp_path / "model")


def refused(folder, message):
    with pytest.raises(RecordError) as caught:
        load_pair(str(folder), str(folder), "cpu")
    assert message in str(caught.value), caught.value
    assert str(folder) in str(caught.value) and "\n" not in str(caught.value)


def edit_weights(folder, change):
    file = folder / "model.safetensors"
    weights = load_file(file)
    change(weights)
    save_file(weights, file, {"format": "pt"})


def edit_config(folder, name="config.json", **changes):
    file = folder / name
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


LAYER = "model.layers.1.mlp.up_proj.weight"


def test_the_folder_itself_is_fine(folder):
    assert load_pair(str(folder), str(folder), "cpu").vocab_size == 40


def test_tied_weights_are_not_missing(folder):
    edit_weights(folder, lambda w: w.pop("lm_head.weight"))
    refused(folder, "lm_head.weight are missing")
    edit_config(folder, tie_word_embeddings=True)
    load_pair(str(folder), str(folder), "cpu")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda w: w.pop(LAYER), f"{LAYER} are missing"),
        (lambda w: w.update({LAYER: torch.zeros(3, 16)}), "size mismatch"),
        (lambda w: w.update(extra=torch.zeros(3)), "extra have no place in it"),
        (lambda w: [w.update({f"x{k}": w.pop(k)}) for k in list(w)], "are missing"),
        (lambda w: [w.pop(k) for k in list(w)], "there are 0 tensors"),
    ],
    ids=["missing", "another shape", "unexpected", "none that fits", "none"],
)
def test_weights_that_do_not_fit(folder, change, message):
    edit_weights(folder, change)
    if message == "size mismatch":  # in the library's words
        with pytest.raises(RecordError, match="model"):
            load_pair(str(folder), str(folder), "cpu")
    else:
        refused(folder, message)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_hidden_layers": 3}, "are missing"),
        ({"num_hidden_layers": 1}, "have no place in it"),
        ({"num_hidden_layers": 10**9}, "1,000,000,000 layers, but there are"),
        ({"hidden_size": 10**12}, "hidden_size is 1e+12, which no model has"),
        ({"model_type": "gpt_neox"}, ""),
        ({"model_type": "qwen2"}, "are missing"),
        ({"model_type": "nothing"}, "cannot be loaded"),
        ({"num_attention_heads": 0}, "cannot be loaded"),
        ({"num_hidden_layers": "two"}, "cannot be loaded"),
        ({"rope_theta": [1], "rope_parameters": 3}, "cannot be loaded"),
        ({"vocab_size": 41}, ""),
        ({"hidden_act": "nothing"}, "cannot be loaded"),
        ({"architectures": 3}, None),
    ],
)
def test_configs_that_do_not_fit(folder, changes, message):
    edit_config(folder, **changes)
    if message is None:  # whatever it says, nothing else may come out
        try:
            load_pair(str(folder), str(folder), "cpu")
        except RecordError:
            pass
        return
    refused(folder, message)


def test_texts_that_are_no_config(folder):
    for text in (
        "",
        "[",
        "[]",
        "[" * 100_000,
        '{"a":' * 100_000,
        "\udcff",
        '{"vocab_size": 9e999}',
    ):
        (folder / "config.json").write_text(text, errors="surrogateescape")
        refused(folder, "config.json")


def test_a_model_cut_short(folder):
    file = folder / "model.safetensors"
    data = file.read_bytes()
    for size in (0, 4, 8, 100, len(data) // 2, len(data) - 1):
        file.write_bytes(data[:size])
        refused(folder, "model.safetensors")


def test_pickles_are_not_read(folder):
    (folder / "model.safetensors").unlink()
    torch.save({"x": torch.zeros(1)}, folder / "pytorch_model.bin")
    refused(folder, "no weights in safetensors")


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "model.safetensors"])
def test_special_files(folder, name):
    (folder / name).unlink()
    os.mkfifo(folder / name)
    refused(folder, "not a regular file")
    (folder / name).unlink()
    (folder / name).symlink_to("/dev/zero")
    refused(folder, "not a regular file")


@pytest.mark.parametrize("file", ["config.json", "tokenizer_config.json"])
def test_code_in_the_folder_is_not_run(folder, tmp_path, file):
    """Whatever is answered on standard input."""
    proof = tmp_path / "proof"
    (folder / "evil.py").write_text(f"open({str(proof)!r}, 'w')\nclass A: pass\n")
    names = {
        "AutoConfig": "evil.A",
        "AutoModelForCausalLM": "evil.A",
        "AutoTokenizer": ["evil.A"] * 2,
    }
    edit_config(folder, file, auto_map=names)
    if file == "config.json":
        edit_config(folder, model_type="evil", architectures=["A"])
    else:
        edit_config(folder, file, tokenizer_class="Evil")
    (tmp_path / "prompts.jsonl").write_text('{"prompt_tokens": [1, 2]}\n')
    command = [
        sys.executable,
        "-c",
        "from simkit.cli import main; main()",
        "record",
        "--device",
        "cpu",
    ]
    command += ["--target", folder, "--draft", folder, "--out", tmp_path / "trace"]
    command += ["--prompts", tmp_path / "prompts.jsonl", "--max-new-tokens", "4"]
    done = subprocess.run(
        list(map(str, command)), input="y\n" * 100, capture_output=True, text=True, timeout=120
    )
    assert not proof.exists()
    assert "[y/N]" not in done.stdout + done.stderr
    if done.returncode:
        assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr


@pytest.mark.parametrize("device", ["meta", "nowhere", "cuda:99", ""])
def test_devices_that_compute_nothing(folder, device):
    with pytest.raises(RecordError, match="device"):
        load_pair(str(folder), str(folder), device)
