"""Parallel drafters that borrow the target's matrices, against a Llama with them written out."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file
from test_feature_drafter import H, V, make_target
from transformers import LlamaConfig, LlamaForCausalLM

from traces.errors import RecordError
from traces.record.drafters import borrowed, parallel

N_IDS, WIDTH, READ = 40, 24, (-1, 2)
CONFIG = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": V,
    "hidden_size": WIDTH,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "tie_word_embeddings": False,
}
SETTINGS = {
    "kind": "parallel",
    "embeddings": "target",
    "mask_token_id": V,
    "block": 8,
    "mode": "dependent",
    "target_layers": list(READ),
    "feature_scale": 0.3,
}


def written_ids():
    """The reduced vocabulary."""
    g = torch.Generator().manual_seed(4)
    return torch.randperm(V, generator=g)[:N_IDS].sort().values


def tensors():
    """A folder's tensors, large enough that every part matters."""
    model = borrowed.make(LlamaConfig(**CONFIG), H, N_IDS)
    g = torch.Generator().manual_seed(6)
    found = {
        name: 0.3 * torch.randn(value.shape, generator=g)
        for name, value in model.state_dict().items()
        if value.is_floating_point()
    }
    ids = written_ids()
    found["lm_head.d2t"] = ids - torch.arange(N_IDS)
    found["lm_head.t2d"] = torch.zeros(V, dtype=torch.bool).index_fill(0, ids, True)
    return found


def projection():
    """Of the states of two layers."""
    return 0.1 * torch.randn(WIDTH, 2 * H, generator=torch.Generator().manual_seed(2))


def write(folder, change=None):
    """The folder of a drafter."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(CONFIG))
    (folder / "drafter.json").write_text(json.dumps(SETTINGS | (change or {})))
    save_file({"projection": projection()}, folder / "projection.safetensors")
    save_file(tensors(), folder / "model.safetensors")
    return folder


def written_out(target):
    """The judge: a Llama with all its matrices; rows of ids that are not kept are not to be read.

    The mask's embedding stands behind the target's.
    """
    found = {n: v.to(target.dtype) if v.is_floating_point() else v for n, v in tensors().items()}
    table = target.get_input_embeddings().weight.detach()
    output = target.get_output_embeddings().weight.detach()
    rows = torch.zeros(1, H, dtype=target.dtype)
    weights = {n: v for n, v in found.items() if "embed_tokens" not in n and "lm_head" not in n}
    embedded = table @ found["model.embed_tokens.map.weight"].T
    mask = found["model.embed_tokens.mask"][None]
    weights["model.embed_tokens.weight"] = torch.cat([embedded, mask])
    weights["lm_head.weight"] = torch.cat([output, rows]) @ found["lm_head.map.weight"]
    model = LlamaForCausalLM(LlamaConfig(**CONFIG | {"vocab_size": V + 1})).to(target.dtype)
    model.load_state_dict(weights)
    return model.eval()


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-5), ("float64", 1e-10)])
def test_it_says_what_the_matrices_written_out_say(tmp_path, dtype, tolerance):
    target = make_target(getattr(torch, dtype))
    drafter = parallel.load(write(tmp_path), target, None, dtype=dtype)
    tokens = torch.tensor([[3, 7, V, 5, V]])
    with torch.inference_mode():
        found = drafter.model(tokens).logits
        wanted = written_out(target)(tokens).logits
    ids = written_ids()
    assert torch.equal(drafter.ids, ids) and found.shape[-1] == len(ids)
    torch.testing.assert_close(found, wanted[..., ids], rtol=tolerance, atol=tolerance)
    assert (drafter.vocab_size, drafter.block, drafter.mask_token_id) == (V, 8, V)


def test_what_it_borrows_is_not_counted(tmp_path):
    target = make_target(torch.float32)
    info = parallel.load(write(tmp_path), target, None).describe()
    floats = [t for t in tensors().values() if t.is_floating_point()]
    assert info.n_parameters == sum(t.numel() for t in floats) + WIDTH * 2 * H
    with torch.no_grad():
        target.get_output_embeddings().weight.mul_(2)
    assert parallel.load(tmp_path, target, None).describe() == info


def test_folders_that_do_not_fit_are_told_in_one_line(tmp_path):
    target = make_target(torch.float32)
    with pytest.raises(RecordError, match="embeddings must be one of target, not own"):
        parallel.load(write(tmp_path, {"embeddings": "own"}), target, None)
    with pytest.raises(RecordError, match="mask_token_id 62 is outside the vocabulary of 62"):
        parallel.load(write(tmp_path, {"mask_token_id": 62}), target, None)
    with pytest.raises(RecordError, match="made for a target of width 32, this one has 48"):
        parallel.load(write(tmp_path), make_target(torch.float32, 48), None)
    (tmp_path / "config.json").write_text(json.dumps(CONFIG | {"vocab_size": 60}))
    with pytest.raises(RecordError, match="made for 60 token ids, the target has 61"):
        parallel.load(tmp_path, target, None)
    write(tmp_path)
    found = load_file(tmp_path / "model.safetensors")
    for change, message in (
        ({"lm_head.d2t": found["lm_head.d2t"] + V}, "outside the vocabulary of 61"),
        ({"model.norm.weight": torch.ones(3)}, "model.norm.weight is of another shape"),
        ({"other": torch.ones(3)}, "no parallel drafter's: other has no place in it"),
    ):
        save_file(found | change, tmp_path / "model.safetensors")
        with pytest.raises(RecordError, match=message) as told:
            parallel.load(tmp_path, target, None)
        assert "\n" not in str(told.value)
    found.pop("lm_head.map.weight")
    save_file(found, tmp_path / "model.safetensors")
    with pytest.raises(RecordError, match="lm_head.map.weight is missing"):
        parallel.load(tmp_path, target, None)
