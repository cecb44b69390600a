"""Training of parallel drafters: rows, weights and losses against ones worked out singly."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from test_feature_training import N_PROMPT, N_TEXT, tiny_answers
from torch.nn import functional as F
from transformers import AutoTokenizer, LlamaForCausalLM

from traces.recipes.reference import answers, made_texts, parallel, prompts
from traces.recipes.reference.net import Llama, Shape
from traces.recipes.reference.pair import MODELS, PAD_ID
from traces.recipes.training import parallel_rows, row_attention
from traces.recipes.training.course import acceptance
from traces.record.drafters import parallel as recorded
from traces.record.drafters.texts import make_texts


def tiny_drafter(n_layers=0):
    net = Llama(Shape(hidden=16, layers=2, heads=2, ffn=24)).initialise(0)
    drafter = parallel.Drafter(net, n_layers, 160)
    if drafter.projection is not None:
        torch.nn.init.normal_(drafter.projection.weight, generator=torch.Generator().manual_seed(1))
    return drafter


def output_matrix():
    """So that the target is sure of some tokens: weights differ."""
    return 0.4 * torch.randn(4096, 160, generator=torch.Generator().manual_seed(3))


def plain_row(drafter, tokens, states, k, e):
    """The judge: log q behind the text up to e and k masks, from one causal pass over them."""
    ids = torch.cat([tokens[: e + 1], torch.full((k,), PAD_ID)])
    x = drafter.net.model.embed_tokens(ids)
    if states is not None:
        t = F.linear(states * parallel.FEATURE_SCALE, drafter.projection.weight)
        seen = [t[min(n, e) - 1] if min(n, e) > 0 else torch.zeros(16) for n in range(len(ids))]
        x = x + torch.stack(seen)
    n = len(ids)
    mask = torch.ones(n, n).tril().bool()
    out = drafter.net.rows(x[None], torch.arange(n), mask)[0, -1]
    return (out @ drafter.net.model.embed_tokens.weight.T).log_softmax(-1)


@pytest.mark.parametrize("loss", ["pard", "cat", "decay=0.8"])
@pytest.mark.parametrize("features", parallel.FEATURES)
def test_loss_of_a_text_is_the_sum_of_its_rows_worked_out_singly(loss, features):
    settings = parallel.ParallelSettings(loss=loss, features=features, rho=0.0, block=5)
    drafter = tiny_drafter(parallel.FEATURES[features])
    one = parallel.text(tiny_answers(3), 0, output_matrix())
    seen = parallel.features(settings, one)
    with torch.no_grad():
        found = parallel.text_loss(settings, drafter, one, torch.Generator().manual_seed(7))
    kept = parallel_rows.conditional_drop(N_PROMPT, N_TEXT, 5, torch.Generator().manual_seed(7))
    total = weights = 0.0
    for k, starts in enumerate([torch.arange(N_PROMPT - 1, N_TEXT - 1), *kept]):
        for e in starts.tolist():
            if e + k + 1 > N_TEXT - 1:
                continue
            log_q = plain_row(drafter, one.tokens, seen, k, e)
            token, log_p = one.tokens[e + k + 1], one.log_p[e + k]
            value = -log_q[token]
            if loss != "pard":
                value = 0.1 * value + (log_p.exp() * (log_p - log_q)).sum()
            weight = {"pard": 1.0, "decay=0.8": 0.8**k}.get(loss)
            if weight is None:
                between = range(e + 1, e + k + 1)
                weight = math.prod(float(one.log_p[t - 1, one.tokens[t]].exp()) for t in between)
            total, weights = total + weight * float(value.detach()), weights + weight
    assert float(found[0]) == pytest.approx(total, rel=1e-5)
    assert float(found[1]) == pytest.approx(weights, rel=1e-5)


def test_gradients_are_those_of_the_plain_formula():
    g = torch.Generator().manual_seed(0)
    states, output = torch.randn(300, 8, generator=g).double(), torch.randn(50, 8, generator=g)
    output, log_p = output.double(), torch.randn(90, 50, generator=g).double().log_softmax(-1)
    at, token = (torch.randint(0, high, (300,), generator=g) for high in (90, 50))
    weight = torch.rand(300, generator=g).double()
    for p in (None, log_p):
        plain, fast = ([x.clone().requires_grad_() for x in (states, output)] for _ in range(2))
        log_q = (plain[0] @ plain[1].T).log_softmax(-1)
        loss = -log_q.gather(-1, token[:, None])[:, 0]
        if p is not None:
            loss = 0.1 * loss + F.kl_div(log_q, p[at], log_target=True, reduction="none").sum(-1)
        wanted = 3 * (weight * loss).sum()
        found = 3 * parallel_rows.WeightedLoss.apply(*fast, p, at, token, weight)
        torch.testing.assert_close(found, wanted)
        for a, b in zip(
            torch.autograd.grad(found, fast), torch.autograd.grad(wanted, plain), strict=True
        ):
            torch.testing.assert_close(a, b)


def test_rows_see_what_the_paper_says():
    """PARD: (k, n) sees real tokens <= n - k, masks (j, n - k + j) for 0 < j < k, itself."""
    kept = parallel_rows.conditional_drop(N_PROMPT, N_TEXT, 4, torch.Generator().manual_seed(0))
    rows = parallel_rows.make_rows(N_PROMPT, N_TEXT, kept)
    names = list(zip(rows.depth.tolist(), rows.position.tolist(), strict=True))
    mask = rows.mask()
    for r, (k, n) in enumerate(names):
        wanted = {(0, i) for i in range(n - k + 1)} | {(j, n - k + j) for j in range(1, k + 1)}
        assert {names[c] for c in mask[r].nonzero()[:, 0].tolist()} == wanted
    assert sum(k == 0 for k, _ in names) == N_TEXT
    learning = [name for name, learns in zip(names, rows.learns.tolist(), strict=True) if learns]
    assert all(N_PROMPT <= n + 1 < N_TEXT for _, n in learning)
    assert {n for k, n in learning if k == 0} == set(range(N_PROMPT - 1, N_TEXT - 1))


def test_attention_of_rows_is_that_under_their_mask():
    kept = parallel_rows.conditional_drop(N_PROMPT, N_TEXT, 5, torch.Generator().manual_seed(0))
    rows = parallel_rows.make_rows(N_PROMPT, N_TEXT, kept)
    torch.manual_seed(0)
    fast, plain = [], []
    for into in (fast, plain):
        torch.manual_seed(0)
        into += [torch.randn(1, 3, len(rows.depth), 8).requires_grad_() for _ in range(3)]
    found, _ = row_attention.attend(None, *fast, None, scaling=0.3, rows=rows)
    wanted = F.scaled_dot_product_attention(*plain, attn_mask=rows.mask(), scale=0.3)
    torch.testing.assert_close(found.transpose(1, 2), wanted)
    weight = torch.randn(wanted.shape)
    (found.transpose(1, 2) * weight).sum().backward()
    (wanted * weight).sum().backward()
    for a, b in zip(fast, plain, strict=True):
        torch.testing.assert_close(a.grad, b.grad, rtol=1e-4, atol=1e-5)


def test_conditional_drop_keeps_nested_shares():
    """drafters.md of PARD: max(0.7^k, 0.1) of the rows of copy k, each with those before it."""
    kept = parallel_rows.conditional_drop(40, 240, 12, torch.Generator().manual_seed(0))
    assert [len(e) for e in kept] == [140, 98, 69, 49, 34, 24, 20, 20, 20, 20, 20]
    for more, fewer in zip(kept[:-1], kept[1:], strict=True):
        assert set(fewer.tolist()) <= set(more.tolist())
    assert set(kept[0].tolist()) <= set(range(39, 239))


def test_confidences_multiply_along_the_draft():
    """PARD-2, eqs. 9 and 10, by hand: what is between the last real token and the predicted one."""
    confidence = torch.tensor([1.0, 0.5, 0.25, 0.8, 0.4, 0.9])
    rows = parallel_rows.make_rows(2, 6, parallel_rows.every_start(2, 6, 4))
    weight = parallel_rows.reached(rows, confidence)
    found = {
        (k, e): w
        for k, e, w in zip(rows.depth.tolist(), rows.start.tolist(), weight.tolist(), strict=True)
    }
    wanted = {(0, e): 1.0 for e in range(6)}
    wanted |= {(1, 1): 0.25, (1, 2): 0.8, (1, 3): 0.4, (2, 1): 0.2, (2, 2): 0.32, (3, 1): 0.08}
    assert found == pytest.approx(wanted)


def test_a_step_lowers_the_loss():
    settings = parallel.ParallelSettings(features="four", rho=0.0, block=4, steps=1, batch=3)
    drafter, some, output = tiny_drafter(4), tiny_answers(3), output_matrix()
    optimiser = parallel.make_optimiser(drafter, 1e-3)

    def loss():
        parts = [
            parallel.text_loss(
                settings,
                drafter,
                parallel.text(some, row, output),
                torch.Generator().manual_seed(0),
            )
            for row in range(3)
        ]
        return float(sum(a.detach() for a, _ in parts) / sum(b for _, b in parts))

    before = loss()
    parallel.update(settings, drafter, optimiser, some, output, 0)
    assert loss() < before


@pytest.fixture(scope="module")
def settings():
    return parallel.ParallelSettings(features="four", rho=0.5, block=4, steps=4, batch=2, seed=3)


def test_a_stopped_training_ends_in_the_same_bytes(tmp_path, monkeypatch, settings):
    monkeypatch.setattr(parallel, "CHECKPOINT_STEPS", 1)
    some = tiny_answers(6)
    folders = [tmp_path / name for name in ("whole", "stopped")]
    for folder in folders:
        folder.mkdir()
    texts = (some, some.pick(torch.arange(2)))
    drafters = [parallel.train(settings, texts, folders[0], lambda line: None)]
    parallel.train(settings, texts, folders[1], lambda line: None, stop_at=2)
    drafters.append(parallel.train(settings, texts, folders[1], lambda line: None))
    for drafter, folder in zip(drafters, folders, strict=True):
        parallel.export(settings, drafter, {}, folder)
    for name in ("model.safetensors", "projection.safetensors", "drafter.json"):
        assert (folders[0] / name).read_bytes() == (folders[1] / name).read_bytes()
    with pytest.raises(ValueError, match="is of another arm"):
        parallel.train(replace(settings, seed=4), texts, folders[1], lambda line: None)


def test_an_exported_folder_says_what_was_trained(tmp_path, settings):
    some = tiny_answers(6)
    drafter = parallel.train(settings, (some, some), tmp_path, lambda line: None)
    for weight in drafter.parameters():
        weight.data = weight.data.half().float()
    parallel.export(settings, drafter, {}, tmp_path)
    target = LlamaForCausalLM.from_pretrained(MODELS / "target", dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(MODELS / "target")
    loaded = recorded.load(tmp_path, target, tokenizer)
    assert loaded.layers == (24, 17, 9, 1) and loaded.block == 4
    ids = some.tokens[0].tolist()
    texts = make_texts([ids[:N_PROMPT]], [ids[N_PROMPT:]])
    texts = replace(texts, states=some.text(0)[2][None])
    (drafts,) = loaded.draft(texts, 4)
    one = parallel.text(some, 0, output_matrix())
    for start, logits in zip(drafts.start.tolist(), drafts.logits, strict=True):
        for k in range(4):
            log_q = plain_row_of_any(drafter, one, k, N_PROMPT + start - 2)
            torch.testing.assert_close(logits[k].log_softmax(-1), log_q, rtol=1e-4, atol=1e-4)


def plain_row_of_any(drafter, one, k, e):
    states = torch.cat([one.states[: e + 1], torch.zeros(k + 1, 640)])
    tokens = torch.cat([one.tokens[: e + 1], torch.full((k + 1,), PAD_ID)])
    kept = [torch.tensor([e])] * k
    rows = parallel_rows.make_rows(e + 1, e + 2 + k, kept)
    out = drafter.states(tokens, states, rows)
    at = ((rows.depth == k) & (rows.start == e))[rows.learns]
    return (out[at][0] @ drafter.output.T).log_softmax(-1)


def test_acceptance_by_depth_by_hand():
    table = torch.tensor([[1.0, 1.0, 0.0], [1.0, 0.0, 1.0], [0.5, 1.0, 1.0], [0.0, 1.0, 1.0]])
    assert acceptance(table) == {
        "by_depth": [0.625, 0.375, 0.125],
        "accepted_per_step": 1.125,
    }


def test_held_out_prompts_are_no_bundled_ones():
    bundled, held_out = prompts.prompt_ids()
    assert len(bundled) == 128 and len(held_out) == 32 and not bundled & held_out
    lines = (MODELS.parent / "prompts.jsonl").read_text(encoding="utf-8").splitlines()
    assert bundled | held_out < {json.loads(line)["id"] for line in lines}


@pytest.mark.parametrize("greedy", [True, False])
def test_acceptance_along_an_answer_by_plain_passes(greedy):
    settings, drafter = parallel.ParallelSettings(block=3), tiny_drafter()
    one = parallel.text(tiny_answers(3), 0, output_matrix())
    with torch.no_grad():
        found = parallel.accepted(settings, drafter, one, greedy, stride=2)
        starts = range(N_PROMPT - 1, N_TEXT - 1, 2)
        assert found.shape == (len(starts), 3)
        for row, e in enumerate(starts):
            for k in range(3):
                chance = 0.0
                if e + k + 1 < N_TEXT:
                    log_q = plain_row(drafter, one.tokens, None, k, e)
                    token = one.tokens[e + k + 1]
                    ratio = float((log_q[token] - one.log_p[e + k, token]).exp())
                    chance = float(log_q.argmax() == token) if greedy else min(1.0, ratio)
                assert float(found[row, k]) == pytest.approx(chance, rel=1e-4)


def reference_target():
    return LlamaForCausalLM.from_pretrained(MODELS / "target", dtype=torch.float32).eval()


def test_the_target_makes_up_texts_that_go_on_from_prompts():
    target, begins = reference_target(), [[5, 6, 7], [8, 9, 10, 11, 12, 13]]
    stretch, sampled = torch.tensor([0, 4]), torch.tensor([False, False])
    tokens, n_text = made_texts.go_on(
        target, begins, stretch, sampled, torch.Generator().manual_seed(0), 20
    )
    for row, begin in enumerate(begins):
        text = tokens[row, : n_text[row]].tolist()
        assert text[: len(begin)] == begin and set(tokens[row, n_text[row] :].tolist()) <= {PAD_ID}
        known = text[: len(begin) + int(stretch[row])]
        assert 0 not in known
        wanted = target.generate(
            torch.tensor([known]), max_new_tokens=20 - len(known), do_sample=False
        )
        assert text == wanted[0].tolist()
    first, second = (made_texts.make(target, 0, 1, size=8) for _ in range(2))
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert bool((first["n_text"] > first["n_prompt"]).all())


def test_states_are_kept_with_their_texts(tmp_path):
    target = reference_target()
    texts = [([5, 6, 7, 8], 2, False), ([9, 10, 11], 1, True), ([12, 13], 1, False)]
    np.savez(tmp_path / "states.npz", **answers.gather(target, texts))
    some, held = answers.load(tmp_path / "states.npz")
    assert len(some.tokens) == 2 and len(held.tokens) == 1
    for of, row, (ids, n_prompt, _) in (
        (some, 0, texts[0]),
        (held, 0, texts[1]),
        (some, 1, texts[2]),
    ):
        tokens, found, states = of.text(row)
        assert (tokens.tolist(), found) == (ids, n_prompt)
        with torch.inference_mode():
            every = target(torch.tensor([ids]), output_hidden_states=True).hidden_states
        wanted = torch.cat([every[layer][0] for layer in answers.LAYERS], -1)
        torch.testing.assert_close(states, wanted, rtol=1e-3, atol=1e-2)
