"""Feature drafters: EAGLE chains in groups of starts against one start at a time, by hand.

Names and shapes of the tensors are those of the public checkpoints yuhuili/EAGLE-llama2-chat-7B
(EAGLE-1, 2) and yuhuili/EAGLE3-LLaMA3.1-Instruct-8B (EAGLE-3), at a tiny width; "few" is EAGLE-2
with EAGLE-3's tables of a reduced vocabulary and the target's embeddings.
"""

import json

import pytest
import torch
from models import with_states
from safetensors.torch import load_file, save_file
from torch.nn import functional as F
from transformers import LlamaConfig, LlamaForCausalLM

from traces.errors import RecordError
from traces.record.drafters import feature
from traces.record.drafters.texts import make_texts

V, H, HEADS, KV, FFN, LAYERS, DRAFT_V = 61, 32, 4, 2, 48, 7, 24
PROMPTS = [[3, 5, 7], [2], [9, 8, 7, 6, 5, 4]]
OUTPUTS = [list(range(10, 45)), [4, 4, 4], [1]]
CONFIG = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": V,
    "hidden_size": H,
    "intermediate_size": FFN,
    "num_hidden_layers": 1,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "max_position_embeddings": 256,
}


def make_target(dtype=torch.float64, width=H):
    torch.manual_seed(0)
    sizes = CONFIG | {"num_hidden_layers": LAYERS, "initializer_range": 0.25, "hidden_size": width}
    return LlamaForCausalLM(LlamaConfig(**sizes)).to(dtype).eval()


def noisy_target(noise):
    """The target with noise: often of its mind."""
    model = make_target(torch.float32)
    torch.manual_seed(3)
    with torch.no_grad():
        for weight in model.parameters():
            weight += noise * weight.std() * torch.randn_like(weight) if weight.ndim > 1 else 0
    return model


def tensors(kind):
    """A checkpoint's tensors, float32, large enough that every part matters."""
    g = torch.Generator().manual_seed(5)
    layer = "midlayer" if kind == "eagle3" else "layers.0"
    wide = 2 * H if kind == "eagle3" else H
    shapes = {
        f"{layer}.self_attn.q_proj.weight": (H, wide),
        f"{layer}.self_attn.k_proj.weight": (H * KV // HEADS, wide),
        f"{layer}.self_attn.v_proj.weight": (H * KV // HEADS, wide),
        f"{layer}.self_attn.o_proj.weight": (H, H),
        f"{layer}.mlp.gate_proj.weight": (FFN, H),
        f"{layer}.mlp.up_proj.weight": (FFN, H),
        f"{layer}.mlp.down_proj.weight": (H, FFN),
        f"{layer}.post_attention_layernorm.weight": (H,),
    }
    if kind == "eagle3":
        shapes |= {"midlayer.input_layernorm.weight": (H,), "midlayer.hidden_norm.weight": (H,)}
        shapes |= {"norm.weight": (H,), "fc.weight": (H, 3 * H), "lm_head.weight": (DRAFT_V, H)}
    else:
        shapes |= {"fc.weight": (H, 2 * H)}
        shapes |= {} if kind == "few" else {"embed_tokens.weight": (V, H)}
        shapes |= {"fc.bias": (H,)} if kind == "eagle1" else {}
    found = {name: 0.15 * torch.randn(shape, generator=g) for name, shape in shapes.items()}
    if kind in ("eagle3", "few"):
        ids = torch.randperm(V, generator=g)[:DRAFT_V].sort().values
        found["d2t"] = ids - torch.arange(DRAFT_V)
        found["t2d"] = torch.zeros(V, dtype=torch.bool).index_fill(0, ids, True)
    return found


def write(folder, kind, **change):
    (folder / "config.json").write_text(json.dumps(CONFIG | change))
    save_file(tensors(kind), folder / "model.safetensors")
    return folder


def norm(x, weight):
    """In float32, whatever the dtype, as transformers computes it."""
    wide = x.float()
    return (wide * (wide.pow(2).mean(-1, keepdim=True) + 1e-5).rsqrt()).to(x.dtype) * weight


def rotated(x):
    """(n, heads, size), halves paired, angles in float32 as transformers computes them."""
    size = x.shape[-1]
    step = 1.0 / 10000.0 ** (torch.arange(0, size, 2).float() / size)
    angle = torch.outer(torch.arange(len(x)).float(), step).repeat(1, 2)[:, None]
    left, right = x.chunk(2, -1)
    return x * angle.cos().to(x) + torch.cat([-right, left], -1) * angle.sin().to(x)


def attention(w, layer, x):
    q, k, v = (
        (x @ w[f"{layer}.self_attn.{name}_proj.weight"].T).unflatten(-1, (-1, H // HEADS))
        for name in "qkv"
    )
    q, k = rotated(q), rotated(k)
    k, v = (t.repeat_interleave(HEADS // KV, 1) for t in (k, v))
    scores = torch.einsum("nhd,mhd->hnm", q, k) / (H // HEADS) ** 0.5
    hidden = ~torch.ones(len(x), len(x)).tril().bool()
    out = torch.einsum("hnm,mhd->nhd", scores.masked_fill(hidden, -torch.inf).softmax(-1), v)
    return out.flatten(1) @ w[f"{layer}.self_attn.o_proj.weight"].T


def mlp(w, layer, x):
    gate, up, down = (w[f"{layer}.mlp.{name}_proj.weight"] for name in ("gate", "up", "down"))
    return (F.silu(x @ gate.T) * (x @ up.T)) @ down.T


def next_features(w, kind, embedded, features):
    """One pass over all pairs, without a cache."""
    if kind == "eagle3":
        x = norm(embedded, w["midlayer.input_layernorm.weight"])
        x = torch.cat([x, norm(features, w["midlayer.hidden_norm.weight"])], -1)
        out, layer = features + attention(w, "midlayer", x), "midlayer"
    else:
        x = torch.cat([embedded, features], -1) @ w["fc.weight"].T + w.get("fc.bias", 0)
        out, layer = x + attention(w, "layers.0", x), "layers.0"
    return out + mlp(w, layer, norm(out, w[f"{layer}.post_attention_layernorm.weight"]))


def plain(w, kind, target, known, length, dtype):
    """The judge: one start, every depth from scratch; logits (length, V)."""
    with torch.inference_mode():
        states = target(torch.tensor([known]), output_hidden_states=True).hidden_states
    w = {k: v.to(dtype) if v.is_floating_point() else v for k, v in w.items()}
    layers = (2, 3, 4) if kind == "eagle3" else (-1,)
    features = torch.cat([states[layer][0] for layer in layers], -1)
    features = (features @ w["fc.weight"].T if kind == "eagle3" else features)[:-1]
    table = w.get("embed_tokens.weight", target.get_input_embeddings().weight.detach())
    tokens = known[1:]
    if len(known) == 1:  # no token has features behind it
        tokens, features = known[:], torch.zeros(1, H, dtype=dtype)
    rows = []
    for _ in range(length):
        last = next_features(w, kind, table[torch.tensor(tokens)], features)[-1]
        if kind == "eagle3":
            logits = torch.full((V,), -torch.inf, dtype=dtype)
            logits[w["t2d"]] = w["lm_head.weight"] @ norm(last, w["norm.weight"])
        else:
            logits = target.lm_head.weight.detach() @ last
            logits = logits.masked_fill(~w.get("t2d", torch.ones(V).bool()), -torch.inf)
        rows.append(logits)
        tokens = [*tokens, int(logits.argmax())]
        features = torch.cat([features, last[None]])
    return torch.stack(rows)


def texts_with_states(target, layers):
    return with_states(target, make_texts(PROMPTS, OUTPUTS), layers)


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-5), ("float64", 1e-10)], ids=str)
@pytest.mark.parametrize("kind", ["eagle1", "eagle2", "eagle3", "few"])
def test_chains_in_groups_say_what_one_start_at_a_time_says(tmp_path, kind, dtype, tolerance):
    target = make_target(getattr(torch, dtype))
    drafter = feature.load(write(tmp_path, kind), target, dtype=dtype)
    texts = texts_with_states(target, drafter.layers)
    n = 0
    for drafts in drafter.draft(texts, 4):
        for row, (b, i) in enumerate(
            zip(drafts.sequence.tolist(), drafts.start.tolist(), strict=True)
        ):
            known = PROMPTS[b] + OUTPUTS[b][: i - 1]
            wanted = plain(tensors(kind), kind, target, known, 4, target.dtype)
            near = tolerance * float(wanted[wanted.isfinite()].abs().max())  # no norm: they grow
            columns = slice(None) if drafter.ids is None else drafter.ids
            found = drafts.logits[row]
            torch.testing.assert_close(found, wanted[:, columns], rtol=tolerance, atol=near)
            assert wanted.isfinite().sum() == found.numel()
            assert torch.equal(drafts.tokens[row], wanted.argmax(-1))
            n += 1
    assert n == sum(map(len, OUTPUTS))


def test_a_draft_goes_on_with_the_tokens_that_are_chosen(tmp_path):
    target = make_target()
    drafter = feature.load(write(tmp_path, "eagle1"), target, dtype="float64")
    texts = texts_with_states(target, drafter.layers)
    asked = []

    def y(sequence, start, depth, logits):
        """The output's own tokens, where they are known."""
        asked.append((depth, logits.shape))
        rows = zip(sequence.tolist(), start.tolist(), strict=True)
        return torch.tensor([(OUTPUTS[b] + [1] * 9)[i + depth - 2] for b, i in rows])

    first = next(iter(drafter.draft(texts, 3, y)))
    assert [depth for depth, _ in asked] == [1, 2, 3]
    assert all(shape == (len(first.start), V) for _, shape in asked)
    assert first.tokens[0].tolist() == OUTPUTS[0][:3]
    greedy = next(iter(drafter.draft(texts, 3)))
    assert torch.equal(first.logits[:, 0], greedy.logits[:, 0])
    assert not torch.allclose(first.logits[:, 1], greedy.logits[:, 1])


@pytest.mark.parametrize("kind", ["eagle3", "few"])
def test_columns_are_those_of_the_reduced_vocabulary(tmp_path, kind):
    target = make_target(torch.float32)
    drafter = feature.load(write(tmp_path, kind), target)
    (drafts, *_) = drafter.draft(texts_with_states(target, drafter.layers), 2)
    kept = tensors(kind)["t2d"]
    assert drafter.ids is not None
    assert torch.equal(drafter.ids, kept.nonzero()[:, 0])
    assert drafts.logits.shape[-1] == len(drafter.ids) < V
    assert torch.equal(drafter.ids[drafts.logits.argmax(-1)], drafts.tokens)


def test_layers_and_facts(tmp_path):
    target = make_target(torch.float32)
    drafter = feature.load(write(tmp_path, "eagle3"), target)
    assert drafter.layers == (2, 3, 4)  # of 7: the public code's 2, n // 2 and n - 3
    info = drafter.describe()
    assert (info.architecture, info.vocab_size) == ("EAGLE-3", DRAFT_V)
    floats = [t for t in tensors("eagle3").values() if t.is_floating_point()]
    assert info.n_parameters == sum(t.numel() for t in floats)
    info = feature.load(write(tmp_path, "few"), target).describe()
    assert (info.architecture, info.vocab_size) == ("EAGLE-1", DRAFT_V)
    write(tmp_path, "eagle3")
    ids = {"eagle_aux_hidden_state_layer_ids": [1, 4, 6]}
    drafter = feature.load(write(tmp_path, "eagle3", eagle_config=ids), target)
    assert drafter.layers == (1, 4, 6)
    ids = {"eagle_aux_hidden_state_layer_ids": [1, 4, 8]}
    with pytest.raises(RecordError, match="the target has no hidden layer 8"):
        feature.load(write(tmp_path, "eagle3", eagle_config=ids), target)
    drafter = feature.load(write(tmp_path, "eagle1"), target)
    assert drafter.layers == (7,) and drafter.describe().architecture == "EAGLE-1"


def drop(found):
    found.pop("fc.weight")


def add(found):
    found["layers.1.mlp.up_proj.weight"] = torch.zeros(1)


def widen(found):
    found["layers.0.mlp.up_proj.weight"] = torch.zeros(FFN + 1, H)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (drop, "fc.weight is missing"),
        (add, "layers.1.mlp.up_proj.weight has no place in it"),
        (widen, "layers.0.mlp.up_proj.weight is of another shape"),
    ],
)
def test_weights_that_do_not_fit_are_told_in_one_line(tmp_path, change, message):
    write(tmp_path, "eagle1")
    found = load_file(tmp_path / "model.safetensors")
    change(found)
    save_file(found, tmp_path / "model.safetensors")
    with pytest.raises(RecordError, match=message) as told:
        feature.load(tmp_path, make_target(torch.float32))
    assert "\n" not in str(told.value)


def test_other_targets_and_ids_are_told_in_one_line(tmp_path):
    target = make_target(torch.float32)
    with pytest.raises(RecordError, match="made for a target of width 32, this one has 48"):
        feature.load(write(tmp_path, "eagle1"), make_target(width=48))
    with pytest.raises(RecordError, match="made for 60 token ids, the target has 61"):
        feature.load(write(tmp_path, "eagle1", vocab_size=60), target)
    with pytest.raises(RecordError, match="'qwen3': only llama is read"):
        feature.load(write(tmp_path, "eagle1", model_type="qwen3"), target)
    for kind in ("eagle3", "few"):
        write(tmp_path, kind)
        found = load_file(tmp_path / "model.safetensors")
        save_file(found | {"d2t": found["d2t"] + V}, tmp_path / "model.safetensors")
        with pytest.raises(RecordError, match="outside the vocabulary of 61"):
            feature.load(tmp_path, target)
        save_file(found | {"t2d": ~found["t2d"]}, tmp_path / "model.safetensors")
        with pytest.raises(RecordError, match="d2t and t2d do not name the same ids"):
            feature.load(tmp_path, target)
    drafter = feature.load(write(tmp_path, "eagle1"), target)
    with pytest.raises(RecordError, match="96 wide, the drafter reads 32"):
        list(drafter.draft(texts_with_states(target, (1, 2, 3)), 2))
    with pytest.raises(RecordError, match="there are none"):
        list(drafter.draft(make_texts(PROMPTS, OUTPUTS), 2))
