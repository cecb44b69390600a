"""Parallel drafters: the grouped passes against one plain pass a start, and their folders."""

import json
from dataclasses import replace

import pytest
import torch
from models import tiny_pair, with_states
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from torch.nn import functional as F
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from traces.errors import RecordError
from traces.record.drafters import parallel
from traces.record.drafters.layers import Layers
from traces.record.drafters.texts import make_texts

LAYERS = (-1, 1, 2)
PROMPTS = [[3, 5, 7], [2], [9, 8, 7, 6, 5, 4]]
OUTPUTS = [list(range(10, 50)), [4, 4, 4], [1]]  # 40 starts: more than one group


def plain(drafter, known, states, length):
    """The judge: one start, one pass without a cache; logits (length, V)."""
    ids = torch.tensor([known + [drafter.mask_token_id] * (length - 1)])
    embedded = drafter.model.get_input_embeddings()(ids)
    if drafter.projection is not None:
        t = F.linear(states[: len(known)] * drafter.feature_scale, drafter.projection)
        for n in range(1, ids.shape[1]):
            embedded[0, n] += t[min(n, len(known) - 1) - 1] if len(known) > 1 else 0
    with torch.inference_mode():
        logits = drafter.model(inputs_embeds=embedded).logits
    return logits[0, len(known) - 1 :, : drafter.vocab_size]


def drafter_and_texts(mode, dtype):
    pair = tiny_pair(dtype=dtype)
    layers, projection = (), None
    texts = make_texts(PROMPTS, OUTPUTS)
    if mode == "dependent":
        torch.manual_seed(1)
        layers, projection = LAYERS, torch.randn(32, 96, dtype=dtype)
        texts = with_states(pair.target, texts, LAYERS)
    return parallel.Parallel(pair.draft, 1, 8, 61, layers, 0.3, projection), texts, pair.target


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-10)], ids=str
)
@pytest.mark.parametrize("mode", parallel.MODES)
@pytest.mark.parametrize("at_once", [False, True], ids=["text by text", "all texts at once"])
def test_groups_of_starts_say_what_one_plain_pass_says(
    mode, dtype, tolerance, at_once, monkeypatch
):
    monkeypatch.setattr(parallel, "_MOST_ROWS", 60)  # twelve starts
    drafter, texts, target = drafter_and_texts(mode, dtype)
    found = {}
    grouped = (drafts for _, drafts in drafter.grouped(texts, 5))
    for drafts in grouped if at_once else drafter.draft(texts, 5):
        assert drafts.logits.shape == (len(drafts.start), 5, 61)
        for row, (sequence, start) in enumerate(
            zip(drafts.sequence.tolist(), drafts.start.tolist(), strict=True)
        ):
            found[sequence, start] = drafts.logits[row]
    wanted = {(b, i) for b, y in enumerate(OUTPUTS) for i in range(1, len(y) + 1)}
    assert set(found) == wanted
    for (b, i), logits in found.items():
        known = PROMPTS[b] + OUTPUTS[b][: i - 1]
        with torch.inference_mode():
            states = target(torch.tensor([known]), output_hidden_states=True).hidden_states
        states = torch.cat([states[layer][0] for layer in LAYERS], -1)
        torch.testing.assert_close(
            logits, plain(drafter, known, states, 5), rtol=tolerance, atol=tolerance
        )


@pytest.mark.parametrize("mode", parallel.MODES)
def test_a_shorter_draft_is_the_beginning_of_a_longer_one(mode):
    drafter, texts, _ = drafter_and_texts(mode, torch.float64)
    short, long = (torch.cat([d.logits for d in drafter.draft(texts, k)]) for k in (3, 8))
    torch.testing.assert_close(short, long[:, :3], rtol=1e-10, atol=1e-10)


def test_states_that_are_missing_or_of_another_width_are_refused():
    drafter, texts, _ = drafter_and_texts("dependent", torch.float32)
    with pytest.raises(RecordError, match="there are none"):
        list(drafter.draft(replace(texts, states=None), 2))
    with pytest.raises(RecordError, match="95 wide, the drafter reads 96"):
        list(drafter.draft(replace(texts, states=texts.states[..., 1:]), 2))


def test_layers_are_those_that_transformers_names():
    target = tiny_pair().target
    ids = torch.tensor([[3, 1, 4, 1, 5]])
    every = (0, 1, 2, 3, -1, -4)
    with Layers(target, every) as layers, torch.inference_mode():
        states = target(ids, output_hidden_states=True).hidden_states
    assert torch.equal(layers.joined(), torch.cat([states[layer] for layer in every], -1))
    target(ids)
    assert torch.equal(layers.joined(), torch.cat([states[layer] for layer in every], -1))
    for layer in (4, -5):
        with pytest.raises(RecordError, match=f"no hidden layer {layer}: it has 3 decoder layers"):
            Layers(target, (layer,))


def tiny_model(hidden=16, vocab_size=40):
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=vocab_size,
        hidden_size=hidden,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        bos_token_id=None,
        eos_token_id=0,
    )
    return LlamaForCausalLM(config).eval()


def tiny_tokenizer(first="w1"):
    words = {"<unk>": 0, first: 1, **{f"w{i}": i for i in range(2, 40)}}
    made = Tokenizer(WordLevel(words, unk_token="<unk>"))
    return PreTrainedTokenizerFast(tokenizer_object=made, unk_token="<unk>")


SETTINGS = {
    "kind": "parallel",
    "mask_token_id": 39,
    "block": 8,
    "target_layers": [-1, 1],
    "feature_scale": 0.02,
    "mode": "dependent",
}


@pytest.fixture
def folder(tmp_path):
    tiny_model().save_pretrained(tmp_path)
    tiny_tokenizer().save_pretrained(tmp_path)
    (tmp_path / "drafter.json").write_text(json.dumps(SETTINGS))
    save_file({"projection": torch.ones(16, 48)}, tmp_path / "projection.safetensors")
    return tmp_path


def load(folder, mode=None, target=None):
    return parallel.load(folder, target or tiny_model(hidden=24), tiny_tokenizer(), mode=mode)


def test_a_folder_in_both_modes(folder):
    drafter = load(folder)
    assert (drafter.mask_token_id, drafter.block, drafter.layers) == (39, 8, (2, 1))
    assert drafter.projection.shape == (16, 48)
    alone = load(folder, "independent")
    assert alone.layers == () and alone.projection is None
    seen, own = drafter.describe(), alone.describe()
    assert seen.n_parameters == own.n_parameters + 16 * 48
    assert seen.weights_sha256 != own.weights_sha256
    assert seen == load(folder).describe()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"mask_token_id": 40}, "mask_token_id 40 is outside the vocabulary of 40"),
        ({"mask_token_id": "m"}, "mask_token_id must be a whole number of at least 0, not m"),
        ({"block": 0}, "block must be a whole number of at least 1, not 0"),
        ({"kind": "tree"}, "kind must be one of parallel, not tree"),
        ({"mode": None}, "mode must be one of independent, dependent, not None"),
        ({"target_layers": []}, "target_layers must be a list of whole numbers"),
        ({"target_layers": [-1, 9]}, "the target has no hidden layer 9"),
        ({"target_layers": [-1]}, "the projection is 16 x 48, but the drafter and 1 layer"),
        ({"feature_scale": "a"}, "feature_scale must be a number, not a"),
        ({"feature_scale": 10**400}, "feature_scale is no finite number"),
    ],
)
def test_settings_that_do_not_fit_are_told_in_one_line(folder, change, message):
    (folder / "drafter.json").write_text(json.dumps(SETTINGS | change))
    with pytest.raises(RecordError, match=message) as told:
        load(folder)
    assert (
        "\n" not in str(told.value)
        and "drafter.json" in str(told.value)
        or "projection" in str(told.value)
    )


def test_folders_that_are_no_drafters_are_told_in_one_line(folder):
    with pytest.raises(RecordError, match="unknown mode 'both'"):
        load(folder, "both")
    save_file({"other": torch.ones(1)}, folder / "projection.safetensors")
    with pytest.raises(RecordError, match="projection is missing"):
        load(folder)
    (folder / "projection.safetensors").unlink()
    with pytest.raises(RecordError, match="projection.safetensors: cannot be read"):
        load(folder)
    weights = load_file(folder / "model.safetensors")
    weights.pop("model.norm.weight")
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(RecordError, match="model.norm.weight are missing"):
        load(folder, "independent")
    tiny_tokenizer("other").save_pretrained(folder)
    with pytest.raises(RecordError, match="id 1 is 'w1' for the target and 'other'"):
        load(folder)
    (folder / "drafter.json").unlink()
    with pytest.raises(RecordError, match=r"no drafter\.json in it"):
        load(folder)


def test_a_checkpoint_as_pard_publishes_them(folder):
    """Its config names the mask (`pard_token`, which vLLM reads too); there is no drafter.json."""
    (folder / "drafter.json").unlink()
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"pard_token": 38}))
    drafter = load(folder)
    assert (drafter.mask_token_id, drafter.block, drafter.layers) == (38, None, ())
    with pytest.raises(RecordError, match="target_layers is missing"):
        load(folder, "dependent")
    (folder / "config.json").write_text(json.dumps(config | {"pard_token": 40}))
    with pytest.raises(RecordError, match="mask_token_id 40 is outside the vocabulary of 40"):
        load(folder)


def test_mass_on_tokens_that_the_target_lacks_is_refused():
    drafter, texts, _ = drafter_and_texts("independent", torch.float32)
    with pytest.raises(RecordError, match="the drafter puts .* beyond the common vocabulary of 50"):
        list(replace(drafter, vocab_size=50).draft(texts, 2))
