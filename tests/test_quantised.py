"""Copies of a model with few bits a weight: the arithmetic, what is kept, and a rung's folder."""

import json

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from smollm2_tiny import tiny_model
from transformers import AutoModelForCausalLM, LlamaForCausalLM

from traces.recipes.smollm2 import prompts, quantised, rungs
from traces.recipes.smollm2.quantised import Rounded, Rung, nearest, quantise, rounded

pytestmark = pytest.mark.usefixtures("one_thread")


def matrix(rows=12, columns=64, seed=0):
    """Weights, and the Hessian of inputs that depend on each other."""
    g = torch.Generator().manual_seed(seed)
    weight = torch.randn(rows, columns, generator=g)
    inputs = torch.randn(300, columns, generator=g) @ torch.randn(columns, columns, generator=g)
    return weight, inputs.T @ inputs


def column_by_column(weight, hessian, bits, group):
    """GPTQ as its paper's Algorithm 1 without blocks: every error goes to all later columns."""
    left, codes = weight.double().clone(), torch.zeros(weight.shape)
    inverse = quantised._factor(hessian)
    for column in range(weight.shape[1]):
        if column % group == 0:
            part = slice(column, column + group)
            step, least = quantised._span(left[:, part], hessian.diagonal().double()[part], bits)
        codes[:, column] = quantised._code(left[:, column], step, least, bits)
        value = least.double() + codes[:, column] * step.double()
        off = (left[:, column] - value) / inverse[column, column]
        for later in range(column, weight.shape[1]):
            left[:, later] -= off * inverse[column, later]
    return codes.to(torch.uint8)


@pytest.mark.parametrize("bits", [2, 3, 4])
def test_rounding_is_the_papers_column_by_column(bits):
    weight, hessian = matrix()
    found = rounded(weight, hessian, bits, 16)
    assert torch.equal(found.codes, column_by_column(weight, hessian, bits, 16))
    assert int(found.codes.max()) < 2**bits


@pytest.mark.parametrize("bits", [2, 3, 4])
def test_it_is_nearer_in_outputs_than_rounding_to_nearest(bits):
    weight, hessian = matrix()

    def off(made):
        error = weight - made.matrix().float()
        return float((error @ hessian * error).sum())

    assert off(rounded(weight, hessian, bits, 16)) < 0.8 * off(nearest(weight, bits, 16))


def test_more_bits_and_smaller_groups_are_nearer():
    weight, _ = matrix()
    off = [float((weight - nearest(weight, b, g).matrix()).norm()) for b, g in ((2, 64), (2, 16))]
    off += [float((weight - nearest(weight, b, 16).matrix()).norm()) for b in (3, 4, 8)]
    assert off == sorted(off, reverse=True) and off[-1] < 0.2


@settings(deadline=None, max_examples=30)
@given(
    bits=st.integers(1, 8), rows=st.integers(1, 5), groups=st.integers(1, 4), seed=st.integers(0)
)
def test_what_is_packed_is_unpacked(bits, rows, groups, seed):
    rng = np.random.default_rng(seed % 2**32)
    codes = torch.from_numpy(rng.integers(0, 2**bits, (rows, 3 * groups), dtype=np.uint8))
    step, least = (torch.from_numpy(rng.normal(size=(rows, groups))).half() for _ in range(2))
    made = Rounded(codes, step, least, bits)
    arrays = made.packed()
    back = Rounded.unpacked(arrays)
    assert arrays["codes"].nbytes == -(-codes.numel() * bits // 8)
    assert torch.equal(back.codes, codes) and back.bits == bits
    assert torch.equal(back.matrix(), made.matrix())


def three_layers():
    config = tiny_model().config
    config.num_hidden_layers = 3
    torch.manual_seed(0)
    return LlamaForCausalLM(config).eval()


def test_linear_layers_are_rounded_in_turns_and_nothing_else():
    model, whole = three_layers(), three_layers()
    texts = torch.randint(1, 60, (4, 24), generator=torch.Generator().manual_seed(0))
    found = quantise(model, texts, Rung("some", (3, 2), 8))
    assert len(found) == 7 * model.config.num_hidden_layers
    assert {name.split(".")[2]: made.bits for name, made in found.items()} == {
        str(k): (3, 2)[k % 2] for k in range(model.config.num_hidden_layers)
    }
    for name, weight in model.named_parameters():
        made = found.get(name.removesuffix(".weight"))
        wanted = dict(whole.named_parameters())[name] if made is None else made.matrix().float()
        assert torch.equal(weight, wanted), name


def test_a_layer_is_rounded_for_what_the_rounded_ones_before_it_give():
    """The inputs that the last layer was rounded for are those that it has in the rounded model."""
    model = three_layers()
    texts = torch.randint(1, 60, (4, 24), generator=torch.Generator().manual_seed(0))
    whole = model.model.layers[-1].self_attn.q_proj.weight.detach().clone()
    found = quantise(model, texts, Rung("some", (2,), 8))
    layer, read = model.model.layers[-1], []
    handle = layer.self_attn.q_proj.register_forward_pre_hook(
        lambda module, given: read.append(given[0].reshape(-1, whole.shape[1]))
    )
    with torch.no_grad():
        for text in texts:
            model(input_ids=text[None])
    handle.remove()
    x = torch.cat(read)
    again = rounded(whole, (x.T @ x).double(), 2, 8)
    name = f"model.layers.{model.config.num_hidden_layers - 1}.self_attn.q_proj"
    assert (again.codes == found[name].codes).float().mean() > 0.99  # sums in another order


def test_the_ladders_prompts_are_four_of_each_task():
    rows = prompts.ladder(prompts.load())
    recorded = prompts.recorded(prompts.load())
    assert len(rows) == 56 and all(row in recorded for row in rows)


def test_a_rungs_folder(monkeypatch, tmp_path):
    texts = torch.randint(1, 60, (4, 24), generator=torch.Generator().manual_seed(0))
    monkeypatch.setattr(rungs, "texts", lambda tokenizer: (texts[:3], texts[3:]))
    monkeypatch.setattr(rungs, "load_tokenizer", lambda folder: None)
    monkeypatch.setattr(rungs, "tokenizer_hash", lambda tokenizer: "0" * 64)
    monkeypatch.setattr(rungs, "load_model", lambda folder, dtype: tiny_model())
    record = rungs.make(Rung("q3", (3,), 8), tmp_path, tmp_path / "q3")
    assert json.loads((tmp_path / "q3" / "training.json").read_text())["bits"] == [3]
    assert 0 < record["same_top_token"] <= 1 and 0 < record["overlap"] <= 1
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "q3", dtype=torch.float32)
    weights = sum(weight.numel() for weight in loaded.parameters())
    assert record["rounded_bytes"] + record["other_bytes"] < 2 * weights
