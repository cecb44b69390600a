"""Drafts made of a model's own layers."""

import json
from dataclasses import replace

import torch
from smollm2_tiny import tiny_model, write_answers
from transformers import AutoModelForCausalLM

from traces.recipes.smollm2 import draft, layers, teacher
from traces.recipes.smollm2.command import Job


def texts_of(folder, model):
    return teacher.Texts(write_answers(folder, model))


def test_the_layer_that_does_nothing_is_left_out_first(tmp_path):
    model = tiny_model(layers=4)
    for name in ("self_attn.o_proj", "mlp.down_proj"):
        model.model.layers[2].get_submodule(name).weight.data.zero_()
    texts = texts_of(tmp_path, model)
    judges = [texts.text(place) for place in texts.held]
    said = []
    assert layers.kept_layers(model, judges, 3, said.append) == [0, 1, 3]
    assert len(said) == 1 and said[0].startswith("without layer 2: ")
    assert len(model.model.layers) == 4


def test_all_layers_are_the_model(tmp_path):
    model = tiny_model(layers=3)
    net = layers.make_net(model, [0, 1, 2], exits=False)
    tokens = torch.arange(9)[None]
    torch.testing.assert_close(net(input_ids=tokens).logits, model(input_ids=tokens).logits)


def test_training_goes_on_in_the_same_bytes_and_leaves_what_is_shared(tmp_path, monkeypatch):
    monkeypatch.setattr(draft, "CHECKPOINT_STEPS", 4)
    model = tiny_model(layers=3)
    texts = texts_of(tmp_path, model)
    pruned = layers.LayerSettings(steps=12, batch=4, layers=2)
    exits = layers.LayerSettings(steps=12, batch=4, exit=1)
    for settings in (pruned, exits):
        out = [tmp_path / f"{settings.exit}{name}" for name in "ab"]
        for folder in out:
            folder.mkdir()
        job = Job(settings, "cpu", model, texts, out[0], print)
        net, said = layers.train(job)
        layers.train(replace(job, out=out[1], stop_at=6))
        with monkeypatch.context() as chosen:  # layers are chosen once
            chosen.setattr(layers, "kept_layers", None)
            again, _ = layers.train(replace(job, out=out[1]))
        for one, other in zip(net.parameters(), again.parameters(), strict=True):
            assert torch.equal(one, other)
        embeddings = net.get_input_embeddings().weight
        assert torch.equal(embeddings, model.get_input_embeddings().weight)
        if settings.exit:
            assert said["kept"] == [0, 2]
            same = zip(
                net.model.layers[0].parameters(), model.model.layers[0].parameters(), strict=True
            )
            assert all(torch.equal(one, other) for one, other in same)
        moved = zip(
            net.model.layers[1].parameters(), model.model.layers[2].parameters(), strict=True
        )
        assert not all(torch.equal(one, other) for one, other in moved)
        draft.export(net, said, "0" * 64, out[0])
        loaded = AutoModelForCausalLM.from_pretrained(out[0])
        assert loaded.config.num_hidden_layers == len(said["kept"])
        assert json.loads((out[0] / "training.json").read_text())["own_bytes"] > 0
