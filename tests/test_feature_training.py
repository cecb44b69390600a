"""Training of the reference target's feature drafter."""

import json
from dataclasses import replace

import pytest
import torch
from torch.nn import functional as F
from transformers import LlamaForCausalLM

from traces.recipes.reference import feature
from traces.recipes.reference.answers import Answers
from traces.recipes.reference.pair import MODELS
from traces.record.drafters import feature as recorded
from traces.record.drafters.texts import make_texts

N_PROMPT, N_TEXT = 4, 15
SETTINGS = feature.FeatureSettings(seed=3, steps=4, batch=2)


@pytest.fixture(scope="module")
def target():
    return LlamaForCausalLM.from_pretrained(MODELS / "target", dtype=torch.float32).eval()


@pytest.fixture(scope="module")
def matrix(target):
    return target.get_input_embeddings().weight.detach()


def tiny_answers(n=4):
    g = torch.Generator().manual_seed(2)
    tokens = torch.randint(2, 4096, (n, N_TEXT), generator=g)
    states = torch.randn(n * N_TEXT, 640, generator=g).half()
    first, n_text = N_TEXT * torch.arange(n), torch.full((n,), N_TEXT)
    return Answers(tokens, torch.full((n,), N_PROMPT), n_text, first, states)


def quiet(line):
    """Progress is not looked at."""


def test_a_stopped_training_ends_in_the_same_bytes(tmp_path, monkeypatch, matrix):
    monkeypatch.setattr(feature, "CHECKPOINT_STEPS", 1)
    folders = [tmp_path / name for name in ("whole", "stopped")]
    for folder in folders:
        folder.mkdir()
    some = tiny_answers()
    nets = [feature.train(SETTINGS, some, matrix, folders[0], quiet)]
    feature.train(SETTINGS, some, matrix, folders[1], quiet, stop_at=2)
    nets.append(feature.train(SETTINGS, some, matrix, folders[1], quiet))
    for net, folder in zip(nets, folders, strict=True):
        feature.export(net, {}, folder)
    first, second = ((folder / "model.safetensors").read_bytes() for folder in folders)
    assert first == second
    with pytest.raises(ValueError, match="is of another arm"):
        feature.train(replace(SETTINGS, seed=4), some, matrix, folders[1], quiet)


def test_steps_lower_the_loss(matrix):
    net, some = feature.make_net(0), tiny_answers(2)
    optimiser = feature.make_optimiser(net, 1e-3)
    settings = replace(SETTINGS, steps=1, rate=1e-3)
    losses = [feature.update(settings, net, optimiser, some, matrix, 0) for _ in range(4)]
    assert losses[-1] < losses[0]


def test_loss_is_the_papers_over_the_answers_rows(matrix):
    """EAGLE, section 4.2: Smooth-L1 on features, 0.1 x cross-entropy against the target's p."""
    net, some = feature.make_net(1), tiny_answers(1)
    tokens, states = some.tokens[0], some.text(0)[2][:, :160]
    noise = 0.1 * torch.rand(N_TEXT - 1, 160)
    with torch.no_grad():
        found = feature.text_loss(net, matrix, tokens, states, N_PROMPT, noise)
        rows = feature.features(net, matrix, tokens, states[:-1] + noise)
        distances, entropies = [], []
        for position in range(N_PROMPT, N_TEXT):  # of the token that is proposed
            said, meant = rows[position - 2], states[position - 1]
            gap = (said - meant).abs()
            distances.append(torch.where(gap < 1, 0.5 * gap**2, gap - 0.5).mean())
            log_q = (matrix @ said).log_softmax(-1)
            entropies.append(-((matrix @ meant).softmax(-1) * log_q).sum())
    wanted = torch.stack(distances).mean() + 0.1 * torch.stack(entropies).mean()
    torch.testing.assert_close(found, wanted)


def test_an_exported_folder_says_what_was_trained(tmp_path, target, matrix):
    some = tiny_answers()
    net = feature.train(SETTINGS, some, matrix, tmp_path, quiet)
    feature.export(net, {"seed": 3}, tmp_path)
    for weight in net.parameters():
        weight.data = weight.data.half().float()
    drafter = recorded.load(tmp_path, target)
    ids, states = some.tokens[0].tolist(), some.text(0)[2][None, :, :160]
    texts = replace(make_texts([ids[:N_PROMPT]], [ids[N_PROMPT:]]), states=states)
    (drafts,) = drafter.draft(texts, 2)
    with torch.no_grad():
        rows = feature.features(net, matrix, some.tokens[0], states[0, :-1])[N_PROMPT - 2 : -1]
    torch.testing.assert_close(drafts.logits[:, 0], F.linear(rows, matrix), rtol=1e-4, atol=1e-4)
    assert json.loads((tmp_path / "training.json").read_text()) == {"seed": 3}
