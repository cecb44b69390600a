"""Training the real model's drafters, and what it takes its data from, on small models."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from smollm2_tiny import VOCAB, tiny_model, write_answers
from torch.nn import functional as F
from transformers import AutoModelForCausalLM

from traces.errors import UserError
from traces.recipes.reference.pair import EOS_ID, MODELS
from traces.recipes.smollm2 import answers, draft, prompts, questions, teacher
from traces.recipes.smollm2.command import Job
from traces.recipes.smollm2.directions import main_directions
from traces.recipes.training.likelihood import Vocabulary, log_likelihood
from traces.record.folder import named_tokenizer
from traces.record.pair import load_tokenizer, tokenizer_hash


@pytest.fixture(autouse=True)
def narrow(monkeypatch):
    """A draft narrower than the small model."""
    monkeypatch.setattr(draft, "HIDDEN", 48)


def test_prompts_are_those_of_both_sets():
    rows = prompts.load()
    assert len({row["id"] for row in rows}) == len(rows) == 724
    tasks = {row["task"] for row in rows}
    assert len(tasks) == 14 and "humaneval" in tasks
    assert {row["licence"] for row in rows} == {"Apache-2.0", "MIT"}
    kept, rest = prompts.recorded(rows), prompts.to_train_on(rows)
    assert len(kept) + len(rest) == len(rows)
    assert len(kept) == 300 and sum(row["task"] == "humaneval" for row in kept) == 40
    assert sum(row["task"] == "rag" for row in kept) == 20
    assert {row["task"] for row in rest} == {
        *("translation", "summarization", "qa", "math_reasoning", "rag", "humaneval")
    }
    first = prompts.long(rows)
    assert len(first) == len({row["task"] for row in first}) == 8
    assert all(len(row["messages"]) == 1 and row in kept for row in first)


def test_a_second_turn_follows_the_models_answer(tmp_path):
    two = '{"question_id": 81, "category": "writing", "turns": ["A", "B"]}\n'
    (tmp_path / "spec.jsonl").write_text(two)
    (tmp_path / "human.jsonl").write_text('{"turns": ["def f():"]}\n')
    lines = prompts.chats(tmp_path / "spec.jsonl", tmp_path / "human.jsonl", {"writing-081-1": "x"})
    assert [line["id"] for line in lines] == ["writing-081-1", "writing-081-2", "humaneval-000"]
    assert [turn["content"] for turn in lines[1]["messages"]] == ["A", "x", "B"]
    assert lines[1]["messages"][1]["role"] == "assistant"


@pytest.fixture(scope="module")
def target():
    return AutoModelForCausalLM.from_pretrained(MODELS / "target", dtype=torch.float32).eval()


def test_texts_go_on_as_generate_has_it(target):
    begun = [[5, 90, 17], [200, 201, 202, 203, 204, 205, 206], [40, 41]]
    generator = torch.Generator().manual_seed(0)
    new, states = answers.go_on(target, begun, np.zeros(3, bool), generator, 20, EOS_ID)
    for row, prompt in enumerate(begun):
        wanted = target.generate(torch.tensor([prompt]), max_new_tokens=20, do_sample=False)
        assert prompt + new[row] == wanted[0].tolist()
        with torch.inference_mode():
            seen = target.base_model(wanted[:, :-1]).last_hidden_state[0]
        n = wanted.shape[1] - 1
        torch.testing.assert_close(states[row, :n].float(), seen, atol=2e-2, rtol=2e-3)
        assert not states[row, n:].any()


def test_those_that_have_ended_are_dropped(target):
    """Sampled texts of a batch that shrinks are those that each would be with the same draws."""
    begun = [[n + 5, n + 9] for n in range(12)]
    wanted = target.generate(torch.tensor([begun[3]]), max_new_tokens=30, do_sample=False)
    end = int(wanted[0, 8])  # taken for the end, it ends texts at different lengths
    generator = torch.Generator().manual_seed(0)
    new, _ = answers.go_on(target, begun, np.zeros(12, bool), generator, 30, end)
    assert len({len(some) for some in new}) > 1
    for prompt, some in zip(begun, new, strict=True):
        alone, _ = answers.go_on(target, [prompt], np.zeros(1, bool), generator, 30, end)
        assert alone[0] == some and end not in some[:-1]


def test_draws_have_the_models_law():
    logits = torch.log(torch.tensor([0.5, 0.3, 0.15, 0.05])).expand(20_000, 4)
    drawn = answers.draw(logits, torch.Generator().manual_seed(0))
    share = torch.bincount(drawn, minlength=4) / len(drawn)
    torch.testing.assert_close(share, torch.tensor([0.5, 0.3, 0.15, 0.05]), atol=0.015, rtol=0)


def likelihoods(n_always, n_drawn, seed=0):
    """The plain log-likelihood and the one of a part of the vocabulary, with their gradients."""
    torch.manual_seed(0)
    states = torch.randn(300, 16).bfloat16().float().requires_grad_()
    matrix = (0.2 * torch.randn(VOCAB, 16)).bfloat16().float().requires_grad_()
    ids = torch.rand(300, VOCAB).topk(5).indices
    weight = torch.randn(300, 5)
    counts = np.random.default_rng(0).integers(9, size=VOCAB)
    drawn = Vocabulary.of(counts, n_always, n_drawn).draw(np.random.default_rng(seed))
    found = log_likelihood(states, matrix, ids, drawn)
    wanted = F.linear(states, matrix).log_softmax(-1).gather(-1, ids)
    grads = []
    for values in (found, wanted):
        (values * weight).sum().backward()
        grads.append((states.grad.clone(), matrix.grad.clone()))
        states.grad = matrix.grad = None
    return found.detach(), wanted.detach(), grads


@pytest.mark.parametrize("n_always, n_drawn", [(VOCAB, 0), (100, VOCAB - 100), (0, VOCAB)])
def test_log_likelihood_and_its_gradient_with_all_tokens(n_always, n_drawn):
    found, wanted, grads = likelihoods(n_always, n_drawn)
    torch.testing.assert_close(found, wanted, atol=0.02, rtol=0)  # logits in bfloat16
    for grad, plain in zip(*grads, strict=True):
        assert (grad - plain).norm() < 0.01 * plain.norm()


def test_the_normaliser_is_right_in_the_mean_over_draws():
    ratios = []
    for seed in range(200):
        found, wanted, _ = likelihoods(60, 40, seed)
        ratios.append((wanted - found)[:, 0].exp())  # estimated normaliser over the true one
    of_rows = torch.stack(ratios)
    error = of_rows.std(0) / len(ratios) ** 0.5
    assert ((of_rows.mean(0) - 1).abs() < 5 * error + 0.01).all() and of_rows.std(0).mean() > 0.02


def test_the_commonest_tokens_are_always_in():
    counts = np.array([5, 0, 9, 1, 9])
    parts = Vocabulary.of(counts, 3, 1)
    assert parts.always.tolist() == [2, 4, 0] and parts.others.tolist() == [3, 1]
    tokens, weights = parts.draw(np.random.default_rng(0))
    assert len(tokens) == 4 and weights.tolist() == [0, 0, 0, pytest.approx(np.log(2))]
    assert Vocabulary.of(counts, 9, 3).draw(np.random.default_rng(0))[0].tolist() == [2, 4, 0, 3, 1]


def test_main_directions_keep_what_is_there():
    """States of rank 6 lose nothing in 6 directions, but a constant; in fewer, the least."""
    torch.manual_seed(0)
    matrix = torch.randn(VOCAB, 20) + 3
    states = torch.randn(500, 6) @ torch.randn(6, 20)
    errors = []
    for kept in (6, 3, 1):
        read, out = main_directions(matrix, states, kept)
        found, whole = states @ read.T @ out.T @ matrix.T, states @ matrix.T
        sizes = (states @ read.T).square().mean(0)
        torch.testing.assert_close(sizes, torch.ones(kept), atol=1e-2, rtol=0)
        wrong = found - whole
        errors.append(float((wrong - wrong.mean(1, keepdim=True)).square().mean().sqrt()))
    assert errors[0] < 1e-2 and errors[0] < errors[1] < errors[2]


def test_the_loss_is_least_at_p_and_lumps_what_is_not_kept():
    p = torch.tensor([[0.5, 0.3, 0.1]])
    at_p = draft.row_losses(p.log(), p)
    torch.testing.assert_close(at_p, torch.zeros(1), atol=1e-6, rtol=0)
    q = torch.tensor([[0.4, 0.3, 0.2]])
    wanted = 0.5 * np.log(0.5 / 0.4) + 0.1 * np.log(0.1 / 0.2) + draft.OVERLAP_WEIGHT * 0.1
    torch.testing.assert_close(draft.row_losses(q.log(), p), torch.tensor([wanted]).float())


@pytest.fixture(scope="module")
def model():
    return tiny_model()


@pytest.fixture
def folder(tmp_path, model):
    return write_answers(tmp_path, model)


def test_the_likeliest_tokens_are_those_of_the_model(folder, model):
    texts = teacher.Texts(folder)
    assert len(texts.held) == 3 and len(texts.train) == 57
    text = texts.text(texts.held[1])
    with torch.inference_mode():
        p = model(text.tokens[None]).logits[0].softmax(-1)
    best = p.topk(teacher.KEPT)
    torch.testing.assert_close(text.probs, best.values, atol=1e-3, rtol=1e-2)
    assert (text.ids[:, 0] == best.indices[:, 0]).float().mean() > 0.9  # states are float16
    lengths = [len(some.tokens) for some in texts.alike(np.random.default_rng(0), 12)]
    assert lengths == sorted(lengths)


def test_training_lowers_the_loss_and_goes_on_in_the_same_bytes(
    folder, model, tmp_path, monkeypatch
):
    texts = teacher.Texts(folder)
    settings = draft.DraftSettings(steps=24, batch=6, rate=5e-3)
    lines: list[str] = []
    job = Job(settings, "cpu", model, texts, tmp_path / "a", lines.append)
    whole, said = draft.train(job)
    assert lines and said["held_out"][-1]["step"] == 24
    some = texts.alike(np.random.default_rng(1), 12)
    all_tokens = torch.arange(VOCAB), torch.zeros(VOCAB)
    matrix = model.get_output_embeddings().weight.detach()
    directions = main_directions(matrix, texts.some_states(999), draft.HIDDEN)
    first = draft.make_net(model, directions, settings.seed)
    before, after = (
        float(draft.mean_losses(net, some, all_tokens, directions.read)[0].detach())
        for net in (first, whole)
    )
    assert after < 0.9 * before

    monkeypatch.setattr(draft, "CHECKPOINT_STEPS", 8)
    job = replace(job, out=tmp_path / "b")
    draft.train(replace(job, stop_at=16))
    again, _ = draft.train(job)
    for name, weight in whole.state_dict().items():
        assert torch.equal(weight, again.state_dict()[name]), name
    with pytest.raises(ValueError, match="another arm"):
        draft.train(replace(job, settings=draft.DraftSettings(steps=9)))


def test_the_folder_is_read_as_any_draft_model(folder, model, tmp_path):
    states = torch.randn(300, 160)
    matrix = model.get_output_embeddings().weight.detach()
    directions = main_directions(matrix, states, draft.HIDDEN)
    net = draft.make_net(model, directions, 0)
    known = tokenizer_hash(load_tokenizer(str(MODELS / "target")))
    draft.export(net, {"steps": 0}, known, tmp_path / "out")
    assert named_tokenizer(tmp_path / "out") == known
    read = AutoModelForCausalLM.from_pretrained(tmp_path / "out", dtype=torch.float32)
    tokens = torch.arange(10)[None]
    torch.testing.assert_close(read(tokens).logits, net(tokens).logits, atol=2e-2, rtol=1e-2)


@pytest.mark.parametrize("module", [answers, teacher, draft])
def test_what_is_not_there_is_one_line(module, tmp_path, monkeypatch):
    given = ["x", "--model", str(tmp_path / "none")]
    given += [] if module is teacher else ["-o", str(tmp_path / "out")]
    monkeypatch.setattr("sys.argv", given)
    with pytest.raises(SystemExit, match="error: .*none: SmolLM2 is not there: make smollm2"):
        module.main()
    assert not (tmp_path / "out").exists()
    assert np.nextafter(0.0, 1.0) * 1.0 > 0  # a training leaves the processor as it was
    with pytest.raises(UserError, match="no answers in it"):
        teacher.Texts(tmp_path)


def test_questions_for_heads_are_drawn_from_a_seed_of_their_own(monkeypatch):
    asked = []

    def prompts_of(target, tokenizer, seed, number):
        asked.append((seed, number))
        return [[number, 1], [number, 2, 3]], None

    monkeypatch.setattr(questions, "prompts_of", prompts_of)
    made = list(questions.lines(None, None, 4))
    assert asked == [(1, 0), (1, 1), (1, 3), (1, 4)]  # 2, 5, … are prompts as they stand
    assert len({line["id"] for line in made}) == len(made) == 8
    kinds = ["open", "open", "begun", "begun"]
    assert [line["task"] for line in made] == kinds * 2
    assert made[3]["prompt_tokens"] == [1, 2, 3]
