"""Block drafters through transformers' classes, against its own generator."""

import json

import pytest
import torch
import transformers
from models import tiny_pair, with_states

from traces.errors import RecordError
from traces.record.drafters import dflash
from traces.record.drafters.texts import make_texts

pytestmark = pytest.mark.skipif(
    not hasattr(transformers, "MuseGlimmerAssistantModel"), reason="an older transformers"
)
WINDOW, BLOCK, LAYERS = 6, 5, [0, 2]


def assistant(**change):
    torch.manual_seed(4)
    sizes = dict(
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        sliding_window=WINDOW,
        layer_types=["sliding_attention", "full_attention"],
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
        block_size=BLOCK,
        mask_token_id=1,
        target_layer_ids=LAYERS,
        initializer_range=0.3,
        bos_token_id=None,
        eos_token_id=0,
        pad_token_id=0,
    )
    config = transformers.MuseGlimmerAssistantConfig(**(sizes | change))
    return transformers.MuseGlimmerAssistantModel(config).eval()


def peer_drafts(target, folder, prompt, n_tokens, monkeypatch):
    """What transformers' generator proposes, by the number of known tokens, and the output."""
    model = transformers.AutoModel.from_pretrained(folder, dtype=target.dtype).eval()
    model.generation_config = transformers.GenerationConfig(speculation_type="dflash")
    found = {}
    kind = transformers.generation.candidate_generator.DFlashTokenCandidateGenerator
    plain = kind.get_candidates

    def kept(self, input_ids, **options):
        ids, logits = plain(self, input_ids, **options)
        if logits is not None:
            found[input_ids.shape[1]] = ids[0, input_ids.shape[1] :].tolist()
        return ids, logits

    with monkeypatch.context() as patch:
        patch.setattr(kind, "get_candidates", kept)
        output = target.generate(
            torch.tensor([prompt]),
            attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
            assistant_model=model,
            speculation_type="dflash",
            max_new_tokens=n_tokens,
            do_sample=False,
        )
    return found, output[0, len(prompt) :].tolist()


def test_drafts_are_those_of_transformers_generator(tmp_path, monkeypatch):
    target = tiny_pair(dtype=torch.float64).target
    assistant().save_pretrained(tmp_path)
    prompts = [[3, 5, 7, 11, 2, 9, 4, 8], [6, 6, 2]]
    drafter = dflash.load(tmp_path, target, dtype="float64")
    assert drafter.layers == (1, 3) and drafter.block == BLOCK - 1
    peers = [peer_drafts(target, tmp_path, prompt, 24, monkeypatch) for prompt in prompts]
    texts = make_texts(prompts, [output for _, output in peers])
    ours = {}
    for drafts in drafter.draft(with_states(target, texts, drafter.layers)):
        assert drafts.logits.shape[1:] == (BLOCK - 1, 61)
        for b, i, logits in zip(*drafts[:3], strict=True):
            ours[int(b), len(prompts[int(b)]) + int(i) - 1] = logits.argmax(-1).tolist()
    assert len(ours) == sum(len(output) for _, output in peers)
    compared = 0
    for b, (found, _) in enumerate(peers):
        for known, tokens in found.items():
            assert ours[b, known][: len(tokens)] == tokens
            compared += 1
    assert compared > 20


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"target_layer_ids": [0, 3]}, "the target has no hidden layer 4"),
        ({"mask_token_id": 61}, "mask_token_id 61 is outside the target's vocabulary of 61"),
        ({"block_size": 1}, "block_size 1 leaves no token to draft"),
        ({"hidden_size": 16}, "made for a target of width 16, this one has 32"),
    ],
)
def test_assistants_that_do_not_fit_are_told_in_one_line(tmp_path, change, message):
    assistant(**change).save_pretrained(tmp_path)
    with pytest.raises(RecordError, match=message) as told:
        dflash.load(tmp_path, tiny_pair().target)
    assert "\n" not in str(told.value)


def test_what_is_no_assistant_is_told_in_one_line(tmp_path):
    target = tiny_pair(dtype=torch.float32).target
    target.save_pretrained(tmp_path)
    with pytest.raises(RecordError, match="weights do not fit|no DFlash drafter"):
        dflash.load(tmp_path, target)
    assistant().save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["model_type"] == "muse_glimmer_assistant"
    drafter = dflash.load(tmp_path, target)
    with pytest.raises(RecordError, match="there are none"):
        list(drafter.draft(make_texts([[3]], [[4, 5]])))
    assert drafter.describe().n_parameters == sum(p.numel() for p in drafter.model.parameters())
