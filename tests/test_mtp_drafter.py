"""MTP layers in groups of starts, against transformers' own `MtpModel`, one start at a time."""

from functools import cache

import pytest
import torch
import transformers
from models import with_states
from safetensors.torch import load_file, save_file
from transformers import cache_utils, modeling_layers

from traces.errors import RecordError
from traces.record.drafters import mtp
from traces.record.drafters.texts import make_texts
from traces.record.pair import load_model

pytestmark = pytest.mark.skipif(
    not hasattr(modeling_layers, "MtpModel"), reason="an older transformers"
)
MODELS = {
    family: tuple(getattr(transformers, name + kind, None) for kind in ("Config", "ForCausalLM"))
    for family, name in (("deepseek", "DeepseekV3"), ("glm4", "Glm4Moe"), ("mellum", "Mellum"))
}
V, H, LAYERS = 13, 32, 2
MTP_LAYERS = {"deepseek": 3, "glm4": 2, "mellum": 1}
SIZES = {
    "vocab_size": V,
    "hidden_size": H,
    "intermediate_size": 48,
    "moe_intermediate_size": 16,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "num_experts_per_tok": 2,
    "max_position_embeddings": 256,
    "initializer_range": 0.25,
    "bos_token_id": None,
    "eos_token_id": 0,
    "pad_token_id": 0,
}
OWN = {
    "deepseek": {
        "n_routed_experts": 4,
        "n_shared_experts": 1,
        "n_group": 1,
        "topk_group": 1,
        "first_k_dense_replace": LAYERS,
        "kv_lora_rank": 16,
        "q_lora_rank": 16,
        "qk_rope_head_dim": 4,
        "qk_nope_head_dim": 4,
        "v_head_dim": 8,
    },
    "glm4": {
        "n_routed_experts": 4,
        "n_shared_experts": 1,
        "n_group": 1,
        "topk_group": 1,
        "first_k_dense_replace": LAYERS,
        "head_dim": 8,
        "use_qk_norm": True,
    },
    "mellum": {
        "num_experts": 4,
        "head_dim": 8,
        "mlp_layer_types": ["dense"] * LAYERS,
        "mtp_layer_types": ["full_attention"],
    },
}
BESIDE = {  # names of the public checkpoints, of one layer
    "deepseek": ("enorm", "hnorm", "eh_proj", "shared_head.norm"),
    "glm4": ("enorm", "hnorm", "eh_proj", "shared_head.norm"),
    "mellum": ("pre_fc_norm_embedding", "pre_fc_norm_hidden", "fc", "norm"),
}
PROMPTS = [[3, 5, 7], [2], [9, 8, 7, 6, 5, 4], [1, 12]]
OUTPUTS = [[k % 12 + 1 for k in range(40)], [4, 4, 4], [1], [5, 6, 7]]


@pytest.fixture(scope="module", autouse=True)
def tiny_checkpoints():
    """The classes know the MTP layers of published checkpoints alone: 61 of DeepSeek-V3."""
    with pytest.MonkeyPatch.context() as patch:
        for family in ("deepseek", "glm4"):
            known = [rf"model\.layers\.{LAYERS + k}\." for k in range(MTP_LAYERS[family])]
            patch.setattr(MODELS[family][1], "_keys_to_ignore_on_load_unexpected", known)
        yield


def write_target(folder, family, seed=0):
    """A checkpoint of a target and its MTP layers, random weights, as they are published.

    The MTP layers are written as further layers of the target, whose blocks they are, and their
    other parts beside them.
    """
    torch.manual_seed(seed)
    config, model = MODELS[family]
    assert config is not None and model is not None
    more = MTP_LAYERS[family]
    sizes = SIZES | OWN[family]
    if family == "mellum":
        sizes |= {"mlp_layer_types": ["dense"] * LAYERS + ["sparse"] * more}
    wide = model(config(**sizes, num_hidden_layers=LAYERS + more))
    with torch.no_grad():  # two ids share most of the mass, so that random weights often agree
        wide.lm_head.weight[3] *= 3
        wide.lm_head.weight[2] = -wide.lm_head.weight[3]
    wide.save_pretrained(folder)
    found = load_file(folder / "model.safetensors")
    for k in range(more):
        place = f"model.layers.{LAYERS + k}."
        norm_e, norm_h, joined, norm = BESIDE[family]
        beside = {
            f"{place}{norm_e}.weight": 1 + 0.3 * torch.randn(H),
            f"{place}{norm_h}.weight": 1 + 0.3 * torch.randn(H),
            f"{place}{joined}.weight": 0.2 * torch.randn(H, 2 * H),
            f"{place}{norm}.weight": 1 + 0.3 * torch.randn(H),
        }
        found |= beside
    if family == "mellum":
        found = {mellum_name(name): value for name, value in found.items()}
    save_file(found, folder / "model.safetensors", {"format": "pt"})
    values = SIZES | OWN[family] | {"num_hidden_layers": LAYERS, "num_mtp_layers": more}
    config(**values, architectures=[model.__name__]).save_pretrained(folder)
    return folder


def mellum_name(name):
    """Of its own checkpoints: parts of the MTP layer lie a level up."""
    place = f"model.layers.{LAYERS}."
    if not name.startswith(place):
        return name
    rest = name.removeprefix(place)
    whose = "mtp." if rest.rsplit(".", 1)[0] in BESIDE["mellum"] else "mtp.layers.0."
    return whose + rest


def load_target(folder, dtype="float64"):
    return load_model(str(folder), "", "cpu", dtype).eval()


def proposer(target):
    """Logits (1, V) behind a text and a draft so far, by transformers' layers; no row is kept."""
    net = modeling_layers.MtpModel.from_pretrained(target).eval()

    @cache
    def propose(known, tokens):
        if len(tokens) >= len(net.layers):
            return None
        known, tokens = list(known), list(tokens)
        with torch.inference_mode():
            states = target(torch.tensor([known]), output_hidden_states=True).hidden_states
            states, text, first = states[-1][:, :-1], known[1:], 1
            if len(known) == 1:  # no token has a state behind it
                states, text, first = torch.zeros(1, 1, H, dtype=target.dtype), known, 0
            kept = cache_utils.MtpCache(config=net.config)
            for k in range(len(tokens) + 1):
                ids = torch.tensor([text + tokens[:k]])[:, k:]
                place = torch.arange(ids.shape[1])[None] + first + k
                states = net.forward_layer(k, states, place, kept, input_ids=ids)
            return net.shared_head(states[:, -1])

    return lambda known, tokens: propose(tuple(known), tuple(tokens))


@pytest.mark.parametrize("family", MTP_LAYERS)
def test_groups_say_what_one_start_at_a_time_says(tmp_path, family):
    target = load_target(write_target(tmp_path, family))
    drafter, propose = mtp.load(target), proposer(target)
    assert drafter.n_layers == MTP_LAYERS[family] and drafter.layers == (LAYERS,)
    texts = with_states(target, make_texts(PROMPTS, OUTPUTS), drafter.layers)
    n = 0
    for drafts in drafter.draft(texts, drafter.n_layers):
        tokens = drafts.logits.argmax(-1)
        assert drafts.tokens is not None and torch.equal(drafts.tokens, tokens)
        where = zip(drafts.sequence.tolist(), drafts.start.tolist(), strict=True)
        for row, (b, i) in enumerate(where):
            known = PROMPTS[b] + OUTPUTS[b][: i - 1]
            for k in range(drafter.n_layers):
                wanted = propose(known, tokens[row, :k].tolist())
                # Norms and routers compute in float32, whatever the dtype.
                mine = drafts.logits[row, k][None]
                torch.testing.assert_close(mine, wanted, rtol=1e-5, atol=1e-5)
            n += 1
    assert n == sum(map(len, OUTPUTS))


def test_what_is_missing_is_told_in_one_line(tmp_path):
    target = load_target(write_target(tmp_path, "deepseek"))
    drafter = mtp.load(target)
    with pytest.raises(RecordError, match="there are none"):
        list(drafter.draft(make_texts([[3]], [[4, 5]]), 1))
    with pytest.raises(RecordError, match="64 wide, the drafter reads 32"):
        list(drafter.draft(with_states(target, make_texts([[3]], [[4]]), (1, 2)), 1))
    info = drafter.describe()
    found = load_file(tmp_path / "model.safetensors")
    own = {n: t for n, t in found.items() if n.startswith("model.layers.") and int(n[13]) >= LAYERS}
    biases = {n for n in own if n.endswith("e_score_correction_bias")}  # of routers; not trained
    assert info.n_parameters == sum(t.numel() for n, t in own.items() if n not in biases)
    assert (info.architecture, info.vocab_size, info.shape["n_layers"]) == ("MtpModel", V, 3)
