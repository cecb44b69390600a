"""The recorder against straightforward decoding of tiny models: one token at a time, no cache."""

import json
import os
import shutil

import numpy as np
import pytest
import torch
from models import CONFIGS, EOS, tiny_pair, tiny_prompts
from smollm2_tiny import VOCAB, tiny_model

from traces import RecordError, Sampler, schema
from traces.recipes.reference.pair import MODELS
from traces.record import draws, shard, statistics
from traces.record.forward import Forward, as_bias, causal_mask
from traces.record.pair import (
    Alone,
    check_tokenizers,
    load_model,
    load_pair,
    load_tokenizer,
    tokenizer_hash,
    weights_hash,
)
from traces.record.plan import Plan
from traces.record.recorder import check_lengths
from traces.record.shard import record_shard
from traces.record.statistics import (
    draft_rows,
    draft_statistics,
    draft_token,
    outcome,
    target_rows,
    target_statistics,
)

SAMPLERS = {
    "greedy": Sampler(),
    "t1": Sampler(1.0),
    "cut": Sampler(0.7, top_k=20, top_p=0.9),
    "point": Sampler(1.0, draft_temperature=0),
}


def plan_of(sampler, **kwargs):
    settings = dict(seed=3, max_new_tokens=24, max_draft=6, eos_token_ids=(EOS,)) | kwargs
    return Plan(sampler, **settings)


def logits_of(model, tokens, vocab_size):
    with torch.no_grad():
        return model(torch.tensor([tokens])).logits[:, -1, :vocab_size]


def key_of(plan, sequence, tokens):
    key = draws.first_key(plan.seed, torch.tensor([sequence]))
    for token in tokens:
        key = draws.next_key(key, torch.tensor([token]))
    return key


def one_position(pair, plan, sequence, prompt, before):
    """All columns of the position after `before`, from two whole forward passes."""
    p, q = (
        rows(logits_of(m, prompt + before, pair.vocab_size), plan.sampler)
        for rows, m in ((target_rows, pair.target), (draft_rows, pair.draft))
    )
    key = key_of(plan, sequence, before)
    drawn = outcome(p, q, draft_token(q, key), key)
    token = drawn.draft_token
    columns = drawn._asdict() | draft_statistics(q, token) | target_statistics(p, q, token)
    return {name: value[0].item() for name, value in columns.items()}


def assert_row(rows, k, expected, close=2e-6):
    for name in set(expected) & set(rows):
        np.testing.assert_allclose(rows[name][k], expected[name], atol=close, err_msg=name)


def check_against_plain_decoding(pair, plan, prompts, shard, close=2e-6):
    seen = {"on": 0, "off": 0}
    on, off = shard.positions, shard.branches
    for s, prompt in enumerate(prompts):
        mine = np.flatnonzero(on["sequence"] == s)
        output = on["target_token"][mine].tolist()
        assert shard.sequences["output_tokens"][s] == output
        for k, i in zip(mine, on["position"][mine], strict=True):
            row = one_position(pair, plan, s, prompt.tokens, output[: i - 1])
            assert_row(on, k, row, close)
            seen["on"] += 1
            branch = np.flatnonzero((off["sequence"] == s) & (off["position"] == i))
            token = int(on["draft_token"][k])
            limit = max(0, min(plan.max_draft - 1, plan.max_new_tokens - 1 - i))
            if on["accepted"][k] or token == EOS or limit == 0:
                assert len(branch) == 0
                continue
            text = output[: i - 1] + [token]
            for depth in range(1, limit + 1):
                row = one_position(pair, plan, s, prompt.tokens, text)
                assert_row(off, branch[depth - 1], row, close)
                assert off["depth"][branch[depth - 1]] == depth
                text.append(row["draft_token"])
                seen["off"] += 1
                if row["draft_token"] == EOS:
                    break
            assert len(branch) == depth
    return seen


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_rows_and_branches_equal_plain_decoding(sampler):
    plan = plan_of(SAMPLERS[sampler], branch_target=True)
    pair, prompts = tiny_pair(), tiny_prompts(4)
    shard = record_shard(pair, prompts, 0, plan)
    seen = check_against_plain_decoding(pair, plan, prompts, shard)
    assert seen["on"] > 50 and seen["off"] > 20


def test_sequences_that_have_ended_leave_the_target_alone(monkeypatch):
    """Its passes get narrower, and nothing that is written changes."""
    plan = plan_of(SAMPLERS["t1"], max_new_tokens=40)
    pair, prompts = tiny_pair(), tiny_prompts(8)
    widths = {id(pair.target): [], id(pair.draft): []}
    run = Forward.pass_

    def counted(self, tokens, *given, **named):
        widths[id(self.model)].append(len(tokens))
        return run(self, tokens, *given, **named)

    monkeypatch.setattr(Forward, "pass_", counted)
    shard = record_shard(pair, prompts, 0, plan)
    target = widths[id(pair.target)]
    assert min(target) < len(prompts) and target == sorted(target, reverse=True)
    assert set(widths[id(pair.draft)]) == {len(prompts)}  # its branches come afterwards
    check_against_plain_decoding(pair, plan, prompts, shard)


@pytest.mark.parametrize("family", CONFIGS)
def test_families(family):
    plan = plan_of(SAMPLERS["t1"], max_new_tokens=10, max_draft=4)
    pair, prompts = tiny_pair(family), tiny_prompts(3)
    shard = record_shard(pair, prompts, 0, plan)
    check_against_plain_decoding(pair, plan, prompts, shard)
    assert 0.1 < shard.positions["accepted"].mean() < 1


def test_groups_of_branches_do_not_matter(monkeypatch):
    plan = plan_of(SAMPLERS["t1"], branch_target=True)
    pair, prompts = tiny_pair(), tiny_prompts(4)
    whole = record_shard(pair, prompts, 0, plan).branches
    monkeypatch.setattr("traces.record.branches._MOST_BRANCHES", 2)
    monkeypatch.setattr("traces.record.branches._FEW_ROWS", 2)
    split = record_shard(pair, prompts, 0, plan).branches
    for name, values in whole.items():
        np.testing.assert_allclose(values, split[name], atol=1e-6)


def test_without_branch_target_the_rest_is_the_same():
    pair, prompts = tiny_pair(), tiny_prompts(3)
    rows = [
        record_shard(pair, prompts, 0, plan_of(SAMPLERS["t1"], branch_target=b)).branches
        for b in (False, True)
    ]
    assert list(rows[0]) == schema.BRANCHES.names
    assert list(rows[1]) == schema.BRANCHES_WITH_TARGET.names
    for name in rows[0]:
        np.testing.assert_array_equal(rows[0][name], rows[1][name])


def test_hidden_states_are_what_q_was_computed_from():
    plan = plan_of(SAMPLERS["t1"], hidden=True)
    pair, prompts = tiny_pair(), tiny_prompts(3)
    shard = record_shard(pair, prompts, 5, plan)
    head = pair.draft.get_output_embeddings()
    hidden, on, off = shard.hidden, shard.positions, shard.branches
    n_prompt = sum(len(p.tokens) - 1 for p in prompts)
    assert len(hidden["depth"]) == n_prompt + len(on["position"]) + len(off["depth"])
    assert hidden["state"].dtype == np.float16
    logits = head(torch.tensor(hidden["state"]).double())
    entropy = draft_statistics(draft_rows(logits, plan.sampler), logits.argmax(-1))["draft_entropy"]
    for rows, depth in ((on, np.zeros(len(on["position"]))), (off, off["depth"])):
        keys = list(zip(hidden["sequence"], hidden["position"], hidden["depth"], strict=True))
        where = [keys.index(k) for k in zip(rows["sequence"], rows["position"], depth, strict=True)]
        np.testing.assert_allclose(entropy[where].detach(), rows["draft_entropy"], atol=0.05)


def test_batch_and_shard_do_not_change_the_draws():
    pair, prompts = tiny_pair(), tiny_prompts(6)
    plan = plan_of(SAMPLERS["t1"])
    whole = record_shard(pair, prompts, 0, plan).positions
    parts = [record_shard(pair, prompts[k : k + 2], k, plan).positions for k in (0, 2, 4)]
    for name in ("sequence", "position", "draft_token", "target_token", "accepted"):
        np.testing.assert_array_equal(whole[name], np.concatenate([p[name] for p in parts]))


@pytest.mark.parametrize("sizes", [(61, 70), (70, 61)])
def test_padded_vocabularies_are_cut_to_the_common_one(sizes):
    pair = tiny_pair(vocab_size=sizes[0], draft_vocab_size=sizes[1])
    for model in (pair.target, pair.draft):  # the padding rows of a real model are never likely
        if model.get_output_embeddings().weight.shape[0] > 61:
            model.get_output_embeddings().weight.data[61:] = 0
            bias = torch.nn.Parameter(torch.zeros(70).double())
            bias.data[61:] = -50
            model.get_output_embeddings().bias = bias
    plan, prompts = plan_of(SAMPLERS["t1"]), tiny_prompts(3)
    shard = record_shard(pair, prompts, 0, plan)
    check_against_plain_decoding(pair, plan, prompts, shard)
    assert shard.positions["draft_token"].max() < 61


@pytest.mark.parametrize(("sizes", "which"), [((80, 61), "target"), ((61, 80), "draft")])
def test_mass_beyond_the_common_vocabulary_is_refused(sizes, which):
    pair = tiny_pair(vocab_size=sizes[0], draft_vocab_size=sizes[1])
    with pytest.raises(RecordError, match=f"the {which} .* beyond the common vocabulary of 61"):
        record_shard(pair, tiny_prompts(2), 0, plan_of(SAMPLERS["t1"]))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("which", ["target", "draft"])
def test_logits_that_are_not_finite_are_refused(value, which):
    pair = tiny_pair()
    getattr(pair, which).get_input_embeddings().weight.data[7] = value
    prompts = tiny_prompts(3)
    prompts[1].tokens[0] = 7
    with pytest.raises(RecordError, match=f"{which}'s logits .* sequence 11, position 1"):
        record_shard(pair, prompts, 10, plan_of(SAMPLERS["greedy"], max_new_tokens=1))
    if which == "target":
        alone = Alone(pair.target, None, 61, (EOS,))
        with pytest.raises(RecordError, match="target's logits .* sequence 11, position 1"):
            record_shard(alone, prompts, 10, plan_of(SAMPLERS["greedy"], max_new_tokens=1))


@pytest.mark.parametrize(("name", "call"), [("_branches", 1), ("_on_path", 2)])
def test_logits_off_the_path_and_on_mixed_contexts_are_finite_too(monkeypatch, name, call):
    calls, real = [], getattr(shard, name)

    def spoilt(*given):
        calls.append(1)
        if len(calls) == call:
            for columns in given[0] if name == "_branches" else given[:1]:
                columns["draft_entropy"][:] = np.nan
        return real(*given)

    monkeypatch.setattr(shard, name, spoilt)
    with pytest.raises(RecordError, match="draft's logits are NaN or infinite"):
        record_shard(tiny_pair(), tiny_prompts(3), 0, plan_of(SAMPLERS["greedy"], mix=0.5))
    assert len(calls) == call


def test_a_prompt_that_fills_the_context_is_refused():
    pair, prompts = tiny_pair(), tiny_prompts(2)
    prompts[1].tokens.extend([1] * 240)
    with pytest.raises(RecordError, match="prompt '1' has 2.. tokens.*context of 256"):
        check_lengths(pair, prompts, plan_of(SAMPLERS["greedy"]))


@pytest.mark.parametrize("name", ["max_new_tokens", "max_draft", "batch_size"])
def test_settings_of_zero_are_refused(name):
    with pytest.raises(RecordError, match=f"{name} must be at least 1"):
        Plan(**{name: 0})


class FakeTokenizer:
    def __init__(self, vocab):
        self.vocab = vocab

    def get_vocab(self):
        return self.vocab

    def encode(self, text, add_special_tokens=True):
        return [self.vocab.get(c, 0) for c in text]


def test_tokenizers_that_differ_are_refused():
    letters = {c: i for i, c in enumerate("abcdefghijklmnopqrstuvwxyz")}
    swapped = letters | {"a": 1, "b": 0}
    check_tokenizers(FakeTokenizer(letters), FakeTokenizer(dict(letters)))
    with pytest.raises(RecordError, match="id 0 is 'a' for the target and 'b' for the draft"):
        check_tokenizers(FakeTokenizer(letters), FakeTokenizer(swapped))
    with pytest.raises(RecordError, match="tokenizers differ"):
        check_tokenizers(FakeTokenizer(letters), FakeTokenizer({"a": 0}))


def test_a_draft_may_name_its_tokenizer_by_its_hash(tmp_path):
    for name in ("config.json", "model.safetensors"):
        shutil.copy(MODELS / "draft" / name, tmp_path / name)
    target = str(MODELS / "target")
    known = tokenizer_hash(load_tokenizer(target))
    config = json.loads((tmp_path / "config.json").read_text())
    for named, why in ((None, "draft|cannot be loaded"), ("0" * 64, "tokenizers differ: its conf")):
        (tmp_path / "config.json").write_text(json.dumps(config | {"tokenizer_sha256": named}))
        with pytest.raises(RecordError, match=why):
            load_pair(target, str(tmp_path), "cpu")
    (tmp_path / "config.json").write_text(json.dumps(config | {"tokenizer_sha256": known}))
    pair, whole = (load_pair(target, d, "cpu") for d in (str(tmp_path), str(MODELS / "draft")))
    assert pair.vocab_size == whole.vocab_size
    assert weights_hash(pair.draft) == weights_hash(whole.draft)


def test_shared_keys_are_not_copied_and_give_the_same_bits(monkeypatch, tmp_path):
    """On a CPU; transformers copies them for every query head unless it is told not to."""
    model = tiny_model().eval()
    model.save_pretrained(tmp_path)
    n = model.config.num_attention_heads // model.config.num_key_value_heads
    assert n > 1
    tokens = torch.randint(1, VOCAB, (3, 12))
    mask = as_bias(causal_mask(torch.tensor([0, 2, 5]), 0, 12), torch.float32)

    def logits():
        with torch.inference_mode():
            return model(input_ids=tokens, attention_mask=mask).logits

    monkeypatch.delenv("TRANSFORMERS_SDPA_FORCE_GQA", raising=False)
    copied = logits()
    load_model(str(tmp_path), "", "cpu", "float32")
    assert os.environ["TRANSFORMERS_SDPA_FORCE_GQA"] == "1"
    assert torch.equal(logits(), copied)
    monkeypatch.setenv("TRANSFORMERS_SDPA_FORCE_GQA", "0")  # whoever has set it is heeded
    load_model(str(tmp_path), "", "cpu", "float32")
    assert os.environ["TRANSFORMERS_SDPA_FORCE_GQA"] == "0"


def test_near_ties_are_counted(monkeypatch):
    """Greedy tokens beside which another is within rounding, in any way of recording them."""
    plan, pair, prompts = plan_of(Sampler()), tiny_pair(), tiny_prompts(4)
    shard = record_shard(pair, prompts, 0, plan)
    assert shard.near_ties == 0
    monkeypatch.setitem(statistics.ROUNDING, torch.float64, 0.2)
    near = 0
    for prompt, output in zip(prompts, shard.sequences["output_tokens"], strict=True):
        for k in range(len(output)):
            row = logits_of(pair.target, prompt.tokens + output[:k], pair.vocab_size)[0]
            first, second = row.topk(2).values
            near += bool(first - second <= 0.2 * row.std())
    for model in (pair, Alone(pair.target, None, pair.vocab_size, (EOS,))):
        assert record_shard(model, prompts, 0, plan).near_ties == near > 0
    assert record_shard(pair, prompts, 0, plan_of(Sampler(1.0))).near_ties == 0
