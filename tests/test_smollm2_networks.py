"""Training the real model's feature chain and parallel drafter, on a tiny model."""

import json
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from pair_folders import simkit, words_tokenizer
from smollm2_tiny import VOCAB, tiny_model, write_answers
from torch.nn import functional as F

import traces
from traces.recipes.smollm2 import feature, parallel, teacher
from traces.recipes.smollm2.command import Job
from traces.recipes.smollm2.directions import main_directions, metric, next_state
from traces.recipes.smollm2.held_out import DEPTH, held_out
from traces.recipes.smollm2.vocabulary import commonest
from traces.recipes.training.folder import round_to_halves
from traces.recipes.training.parallel_rows import conditional_drop, make_rows
from traces.recipes.training.sparse_loss import SparseCrossEntropy
from traces.record.drafters import feature as recorded_feature
from traces.record.drafters import parallel as recorded_parallel
from traces.record.drafters.texts import make_texts

FEATURE = feature.FeatureSettings(steps=24, batch=20, rate=3e-3, ids=200, ffn=48)
SIZES = {"ids": 200, "hidden": 64, "layers": 1, "ffn": 48}
PARALLEL = parallel.ParallelSettings(steps=24, batch=6, rate=5e-3, **SIZES)
TRAININGS = pytest.mark.parametrize(
    ("module", "settings"), [(feature, FEATURE), (parallel, PARALLEL)], ids=["feature", "parallel"]
)


@pytest.fixture(scope="module")
def model():
    return tiny_model(2)


@pytest.fixture(scope="module")
def texts(tmp_path_factory, model):
    return teacher.Texts(write_answers(tmp_path_factory.mktemp("answers"), model))


def quiet(line):
    """Progress is not looked at."""


def matrix_of(model):
    return model.get_output_embeddings().weight.detach()


def test_sparse_cross_entropy_and_its_gradients():
    torch.manual_seed(0)
    states = torch.randn(300, 16).bfloat16().float().requires_grad_()
    matrix = (0.2 * torch.randn(VOCAB, 16)).bfloat16().float().requires_grad_()
    ids, weights = torch.randint(VOCAB, (300, 5)), torch.rand(300, 5)
    ids[:, 4] = ids[:, 0]  # a token that stands there twice
    found = 3 * SparseCrossEntropy.apply(states, matrix, ids, weights)
    wanted = -3 * (weights * F.linear(states, matrix).log_softmax(-1).gather(-1, ids)).sum()
    torch.testing.assert_close(found, wanted, rtol=1e-3, atol=0)  # logits in bfloat16
    got = torch.autograd.grad(found, (states, matrix))
    for grad, plain in zip(got, torch.autograd.grad(wanted, (states, matrix)), strict=True):
        assert (grad - plain).norm() < 0.01 * plain.norm()
    fixed = SparseCrossEntropy.apply(states, matrix.detach(), ids, weights)
    torch.testing.assert_close(torch.autograd.grad(3 * fixed, states)[0], got[0])


def test_directions_keep_the_logits(model, texts):
    """All of them keep logits whole; so many of them lose the least, in the square."""
    torch.manual_seed(0)
    matrix, states = matrix_of(model), texts.some_states(500).float()
    logits = states @ matrix.T
    logits = logits - logits.mean(-1, keepdim=True)

    def lost(read, out):
        kept = states @ read.T @ (matrix @ out).T
        return float((kept - kept.mean(-1, keepdim=True) - logits).square().mean())

    assert lost(*main_directions(matrix, states, 160)) < 1e-4 * float(logits.square().mean())
    few = main_directions(matrix, states, 40)
    _, axes = torch.linalg.eigh(states.T @ states)
    assert lost(*few) < lost(axes[:, -40:].T, axes[:, -40:])
    least = torch.linalg.svdvals(logits)[40:].square().sum() / logits.numel()  # Eckart and Young
    assert lost(*few) == pytest.approx(float(least), rel=0.01)
    said = states @ few.read.T
    torch.testing.assert_close(said.square().mean(0), torch.ones(40), rtol=1e-2, atol=0)
    gap = (states[:9] - states[9:18]) @ metric(matrix)
    wanted = (logits[:9] - logits[9:18]).square().mean(-1)
    torch.testing.assert_close(gap.square().sum(-1), wanted, rtol=1e-2, atol=0)


def test_both_begin_with_the_nearest_linear_map(model, texts):
    """Least squares by another routine; the chain's first token is its prediction."""
    matrix, read, wanted = matrix_of(model), [], []
    first = next_state(texts, matrix)
    for place in texts.train:
        text = texts.text(place)
        states = text.states[:-1].float()
        read.append(torch.cat([matrix[text.tokens[1:-1]], states[:-1]], -1))
        wanted.append(states[1:])
    x, y = torch.cat(read), torch.cat(wanted)
    best = torch.linalg.lstsq(x, y).solution
    error, least = (x @ first.T - y).square().mean(), (x @ best - y).square().mean()
    assert least <= error * 1.001 and error < 0.8 * y.square().mean()
    words, text = commonest(texts, 200, VOCAB), texts.text(texts.train[-1])
    few = matrix[words.ids]
    n = text.n_prompt
    said = torch.cat([matrix[text.tokens[1:-1]], text.states[:-2].float()], -1)[n - 2 :] @ first.T
    net = feature.make_net(model, FEATURE, words, first)
    with torch.no_grad():
        found = feature.proposals(net, feature.Matrices(matrix, few, torch.eye(160)), text)[:, 0]
    assert float((found - said @ few.T).norm() / found.norm()) < 0.02


def test_the_reduced_vocabulary_is_that_of_the_answers(texts):
    words = commonest(texts, 40, VOCAB)
    counts = np.zeros(VOCAB, int)
    for place in texts.train:
        text = texts.text(place)
        np.add.at(counts, text.tokens[text.n_prompt :].numpy(), 1)
    assert counts[words.ids].min() >= np.delete(counts, words.ids).max()
    assert torch.equal(words.ids, words.ids.sort().values)
    assert torch.equal(words.place[words.ids], torch.arange(40))
    assert words.covered(texts, texts.train) == pytest.approx(
        counts[words.ids].sum() / counts.sum()
    )
    text = texts.text(texts.train[0])
    places, probs = words.wanted(text)
    for row in range(len(text.tokens)):
        kept = {
            int(words.place[i]): float(p)
            for i, p in zip(text.ids[row], text.probs[row], strict=True)
            if i in words.ids
        }
        said = {}
        for n, p in zip(places[row].tolist(), probs[row].tolist(), strict=True):
            said[n] = said.get(n, 0) + p
        total = sum(kept.values()) or 1.0
        for n, p in kept.items():
            assert said[n] == pytest.approx(p / total, rel=1e-4)


@TRAININGS
def test_training_lowers_the_loss_and_goes_on_in_the_same_bytes(
    module, settings, model, texts, tmp_path, monkeypatch
):
    monkeypatch.setattr(module, "MEASURE_STEPS", 8)
    monkeypatch.setattr(module, "CHECKPOINT_STEPS", 8)
    folders = [tmp_path / name for name in ("whole", "stopped")]
    for folder in folders:
        folder.mkdir()
    lines = []
    nets = [module.train(Job(settings, "cpu", model, texts, folders[0], lines.append))]
    assert float(lines[0].split()[3][:-1]) > float(lines[-1].split()[3][:-1])
    job = Job(settings, "cpu", model, texts, folders[1], quiet)
    module.train(replace(job, stop_at=16))
    nets.append(module.train(job))
    assert [row["step"] for row in nets[1][1]["held_out"]] == [8, 16, 24]
    assert nets[0][1] == nets[1][1]
    for (net, record), folder in zip(nets, folders, strict=True):
        module.export(settings, net, model, record, folder)
    for file in folders[0].glob("*.safetensors"):
        assert file.read_bytes() == (folders[1] / file.name).read_bytes()
    with pytest.raises(ValueError, match="another arm"):
        module.train(replace(job, settings=replace(settings, seed=1)))


def test_what_the_chain_is_trained_on_is_what_it_drafts(model, texts, tmp_path):
    """The recorder drafts along the answer's own tokens what the training's chain says there."""
    words = commonest(texts, 200, VOCAB)
    net = feature.make_net(model, FEATURE, words, next_state(texts, matrix_of(model)))
    torch.manual_seed(1)
    for weight in net.parameters():
        weight.data += 0.05 * torch.randn(weight.shape)
    round_to_halves(net)
    feature.export(FEATURE, net, model, {}, tmp_path)
    drafter = recorded_feature.load(tmp_path, model)
    text = texts.text(texts.train[-1])
    ids, n = text.tokens.tolist(), text.n_prompt
    given = replace(make_texts([ids[:n]], [ids[n:]]), states=text.states[None].float())

    def own(sequence, start, depth, logits):
        return torch.tensor([(ids + [0] * DEPTH)[n + s + depth - 2] for s in start.tolist()])

    (drafts,) = drafter.draft(given, DEPTH, own)
    matrix = matrix_of(model)
    with torch.no_grad():
        found = feature.proposals(
            net, feature.Matrices(matrix, matrix[words.ids], torch.eye(160)), text
        )
    check_drafts(found, drafts.logits)


def check_drafts(found, wanted):
    """Logits (starts, DEPTH, D) of rows inside the text; the training computes in bfloat16."""
    n = len(found)
    inside = torch.arange(n)[:, None] + torch.arange(DEPTH) < n
    assert found.shape == wanted.shape
    gap = (found - wanted)[inside].norm() / wanted[inside].norm()
    assert float(gap) < 0.03
    assert not found[~inside].any()


@pytest.mark.parametrize("blind", [False, True])
def test_what_the_parallel_drafter_is_trained_on_is_what_it_drafts(model, texts, tmp_path, blind):
    words = commonest(texts, 200, VOCAB)
    directions = main_directions(matrix_of(model), texts.some_states(500), 64)
    first = next_state(texts, matrix_of(model))
    drafter = parallel.make_drafter(model, PARALLEL, words, directions, first)
    torch.manual_seed(1)
    for weight in drafter.parameters():
        weight.data += 0.05 * torch.randn(weight.shape)
    round_to_halves(drafter)
    parallel.export(PARALLEL, drafter, model, {}, tmp_path)
    mode = "independent" if blind else "dependent"
    loaded = recorded_parallel.load(tmp_path, model, None, mode=mode)
    text = texts.text(texts.train[-1])
    ids, n = text.tokens.tolist(), text.n_prompt
    given = replace(make_texts([ids[:n]], [ids[n:]]), states=text.states[None].float())
    (drafts,) = loaded.draft(given, DEPTH)
    with torch.no_grad():
        found = parallel.proposals(drafter, words, matrix_of(model), text, blind)
    check_drafts(found, drafts.logits)


def test_the_loss_of_a_row_is_the_papers(model, texts):
    """PARD-2, eqs. 9-12, row by row: confidences between the last known token and the next."""
    words = commonest(texts, 200, VOCAB)
    text = texts.text(texts.train[-1])
    kept = conditional_drop(text.n_prompt, len(text.tokens), 4, torch.Generator().manual_seed(0))
    rows = make_rows(text.n_prompt, len(text.tokens), kept)
    places, weights, weight = parallel.counted(words, text, rows)
    p = F.linear(text.states.float(), matrix_of(model)).softmax(-1)
    kept_p = torch.zeros_like(p).scatter(1, text.ids, text.probs)[:, words.ids]
    kept_p = kept_p / kept_p.sum(-1, keepdim=True).clamp_min(1e-6)
    sure = parallel.confidence(text)
    learning = zip(rows.depth[rows.learns].tolist(), rows.start[rows.learns].tolist(), strict=True)
    for n, (k, e) in enumerate(learning):
        reach = float(sure[e + 1 : e + k + 1].prod())
        assert float(weight[n]) == pytest.approx(reach, rel=1e-4)
        wanted = reach * kept_p[e + k]
        came = int(words.place[text.tokens[e + k + 1]])
        if came >= 0:
            wanted[came] += 0.1 * reach
        found = torch.zeros(200).scatter_add(0, places[n], weights[n])
        torch.testing.assert_close(found, wanted, rtol=1e-3, atol=1e-6)
    known = text.ids[:-1] == text.tokens[1:, None]
    for t in known.any(-1).nonzero()[:, 0].tolist():
        assert float(sure[t + 1]) == pytest.approx(float(p[t, text.tokens[t + 1]]), rel=0.02)


def test_held_out_acceptance_by_hand(model, texts):
    """Drafts that are right for two tokens, and wrong from the third on."""
    words = commonest(texts, 300, VOCAB)

    def propose(text):
        answer = text.tokens[text.n_prompt :]
        logits = torch.zeros(len(answer), DEPTH, 300)
        for start in range(len(answer)):
            for depth in range(DEPTH):
                right = int(answer[min(start + depth, len(answer) - 1)])
                logits[start, depth, right if depth < 2 else (right + 1) % 300] = 9
        return logits

    found = held_out(texts, matrix_of(model), words.ids, propose)
    n_texts = sum(place[1] % 2 == 0 for place in texts.held)
    lengths = [len(t.tokens) - t.n_prompt for t in map(texts.text, texts.held[:n_texts])]
    whole = sum(n - 1 for n in lengths) / sum(lengths)
    assert found["by_depth"] == [1.0, pytest.approx(whole, abs=1e-4), *[0.0] * (DEPTH - 2)]
    assert 0 < found["overlap"] < 1


@TRAININGS
def test_the_folder_is_attached(module, settings, model, texts, tmp_path):
    """By `simkit attach`, to a recording of the model that it was trained for."""
    tokenizer = words_tokenizer(VOCAB)
    model.save_pretrained(tmp_path / "target")
    tokenizer.save_pretrained(tmp_path / "target")
    rows = [{"prompt_tokens": [k + 1, 7, 5]} for k in range(4)]
    (tmp_path / "prompts.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (tmp_path / "net").mkdir()
    few = replace(settings, steps=2)
    net, record = module.train(Job(few, "cpu", model, texts, tmp_path / "net", quiet))
    module.export(few, net, model, record, tmp_path / "net")
    given = ["--target", tmp_path / "target", "--device", "cpu"]
    outputs = ["--prompts", tmp_path / "prompts.jsonl", "--max-new-tokens", 12]
    assert simkit(["record", *given, *outputs, "--out", tmp_path / "trace"]) == 0
    name = module.__name__.split(".")[-1]
    spec = f'{name}("{tmp_path / "net"}", length=8)'
    assert simkit(["attach", tmp_path / "trace", "--drafter", spec, *given]) == 0
    found = traces.load(tmp_path / "trace", name)
    assert set(found.lattice("draft_token").tolist()) <= set(
        commonest(texts, 200, VOCAB).ids.tolist()
    )


@pytest.mark.parametrize("module", [feature, parallel])
def test_what_is_not_there_is_one_line(module, tmp_path, monkeypatch):
    given = ["x", "--model", str(tmp_path / "none"), "-o", str(tmp_path / "out")]
    monkeypatch.setattr(sys, "argv", given)
    with pytest.raises(SystemExit, match="error: .*none: SmolLM2 is not there: make smollm2"):
        module.main()
    assert not (tmp_path / "out").exists()
    assert np.nextafter(0.0, 1.0) * 1.0 > 0  # a training leaves the processor as it was


@pytest.fixture
def places(model, tmp_path, monkeypatch):
    """Answers of the tiny model, which stands for the real one, and where a training's go."""
    (tmp_path / "answers").mkdir()
    write_answers(tmp_path / "answers", model)
    monkeypatch.setattr("traces.recipes.smollm2.command.load_model", lambda folder, dtype: model)
    return f"--answers={tmp_path / 'answers'}", f"-o={tmp_path / 'out'}"


@pytest.mark.parametrize(
    ("module", "given", "why"),
    [
        (parallel, "--device=cuda:99", "error: device 'cuda:99': "),
        (feature, "--batch=90", "error: there are 57 texts to train on, less than 90"),
        (parallel, "--hidden=100", "error: --hidden must be a multiple of 64, not 100"),
        (feature, "--depths=0", "--depths must be a number of at least 1, not 0"),
        (parallel, "--rho=nan", "--rho must be a number of at least 0, not nan"),
    ],
)
def test_settings_that_cannot_be_are_one_line(module, given, why, places, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["x", *places, "--ids=200", given])
    with pytest.raises(SystemExit) as told:
        module.main()
    said = [told.value.code, *capsys.readouterr().err.splitlines()]
    (line,) = (line for line in said if why in str(line))
    assert "\n" not in line


@TRAININGS
def test_the_command(module, settings, places, tmp_path, monkeypatch, capsys):
    """From answers to a folder that holds nothing of a stopped training."""
    sizes = [f"--{name}={getattr(settings, name)}" for name in ("steps", "ids", "ffn", "batch")]
    sizes += [f"--{name}={SIZES[name]}" for name in ("hidden", "layers") if module is parallel]
    monkeypatch.setattr(sys, "argv", ["x", *places, *sizes])
    module.main()
    said = json.loads((tmp_path / "out" / "training.json").read_text())
    assert said["held_out"][-1]["step"] == settings.steps and 0 < said["covered"] <= 1
    assert said["parameters"] > 0 and "cpu_seconds" in said
    files = {file.name for file in (tmp_path / "out").iterdir()}
    extra = {"drafter.json", "projection.safetensors"} if module is parallel else set()
    assert files == {"config.json", "training.json", "model.safetensors"} | extra
    assert "held out" in capsys.readouterr().out
