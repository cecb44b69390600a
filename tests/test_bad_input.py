"""Bad input at the command: one line on stderr, exit status 2, nothing written."""

import json
import shutil
from pathlib import Path

import pytest
import torch
import trace_files
from commands import refused, run
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

REFERENCE = Path(__file__).parent.parent / "traces" / "reference" / "models" / "target"


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """Two tiny models with the reference tokenizer, and one of them with NaN weights."""
    folder = tmp_path_factory.mktemp("pair")
    tokenizer = AutoTokenizer.from_pretrained(REFERENCE)
    for name, layers in (("target", 2), ("draft", 1), ("broken", 1)):
        torch.manual_seed(layers)
        config = LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=16,
            intermediate_size=16,
            num_hidden_layers=layers,
            num_attention_heads=2,
            num_key_value_heads=2,
            max_position_embeddings=128,
            eos_token_id=tokenizer.eos_token_id,
            bos_token_id=None,
        )
        model = LlamaForCausalLM(config)
        if name == "broken":
            model.model.norm.weight.data[0] = float("nan")
        model.save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)
    shutil.copytree(folder / "draft", folder / "other")
    file = folder / "other" / "tokenizer.json"
    data = json.loads(file.read_text())
    vocab = data["model"]["vocab"]
    a, b = sorted(vocab, key=vocab.get)[300:302]
    vocab[a], vocab[b] = vocab[b], vocab[a]
    file.write_text(json.dumps(data))
    return folder


def record(pair, out, **options):
    settings = {
        "target": pair / "target",
        "draft": pair / "draft",
        "prompts": out.parent / "prompts.jsonl",
        "out": out,
        "max-new-tokens": 8,
        "max-draft": 4,
    } | {name.replace("_", "-"): value for name, value in options.items()}
    return ["record", *(x for name, value in settings.items() for x in (f"--{name}", value))]


PROMPTS = '{"prompt": "def f(x):"}\n'
CASES = {
    "missing prompts": (None, {}, "prompts.jsonl: no such prompts file"),
    "empty prompts": ("\n", {}, "no prompts in it"),
    "malformed": (PROMPTS + '{"prompt": ', {}, "prompts.jsonl, line 2: not JSON"),
    "not an object": ("[1]\n", {}, "line 1: not a JSON object"),
    "no kind": ('{"text": "x"}\n', {}, "line 1: needs exactly one of prompt, messages"),
    "two kinds": ('{"prompt": "x", "prompt_tokens": [1]}\n', {}, "needs exactly one of"),
    "empty prompt": ('{"prompt": ""}\n', {}, "line 1: the prompt has no tokens"),
    "bad token": ('{"prompt_tokens": [5, 9999]}\n', {}, "token id 9999 is outside"),
    "no template": (
        '{"messages": [{"role": "user", "content": "x"}]}\n',
        {},
        "line 1: messages need a chat template",
    ),
    "too long": ('{"prompt_tokens": %s}\n' % ([5] * 125), {}, "has 125 tokens"),
    "no draft depth": (PROMPTS, {"max_draft": 0}, "max_draft must be at least 1"),
    "endless draft": (PROMPTS, {"max_draft": 2**25}, "max_draft must be at most 16777216"),
    "no new tokens": (PROMPTS, {"max_new_tokens": 0}, "max_new_tokens must be at least 1"),
    "temperature": (PROMPTS, {"temperature": -1}, "temperature must be"),
    "cold": (PROMPTS, {"temperature": 1e-38}, "temperature is 1e-38, too small to divide logits"),
    "cold draft": (PROMPTS, {"temperature": 1, "draft_temperature": 1e-31}, "draft_temperature is"),
    "top p": (PROMPTS, {"top_p": 0}, "top_p must be in (0, 1]"),
    "no model": (PROMPTS, {"target": "/nowhere"}, "/nowhere: not a model folder"),
    "dtype": (PROMPTS, {"dtype": "int3"}, "unknown dtype 'int3'"),
    "device": (PROMPTS, {"device": "cuda:7"}, "device 'cuda:7'"),
    "tokenizers": (PROMPTS, {"draft": "other"}, "the tokenizers differ: id 300 is"),
    "NaN": (PROMPTS, {"draft": "broken"}, "NaN or infinite at sequence 0, position 1"),
}


@pytest.mark.parametrize("case", CASES)
def test_record(case, pair, tmp_path, capsys):
    prompts, options, message = CASES[case]
    if prompts is not None:
        (tmp_path / "prompts.jsonl").write_text(prompts)
    if options.get("draft"):
        options = {"draft": pair / options["draft"]}
    out = tmp_path / "trace"
    assert message in refused(capsys, *record(pair, out, **options))
    assert not out.exists()


def test_record_into_another_trace(pair, tmp_path, capsys):
    (tmp_path / "prompts.jsonl").write_text(PROMPTS)
    out = tmp_path / "trace"
    assert run(capsys, *record(pair, out))[0] == 0
    before = {f: f.read_bytes() for f in out.rglob("*") if f.is_file()}
    assert "not empty" in refused(capsys, *record(pair, out))
    resumed = ["--resume", "--seed", "1", "--max-new-tokens", "8", "--max-draft", "4"]
    paths = ["--target", pair / "target", "--draft", pair / "draft", "--out", out]
    paths += ["--prompts", tmp_path / "prompts.jsonl"]
    line = refused(capsys, "record", *paths, *resumed)
    assert "holds another trace: seed is 0 there, 1 here" in line
    assert before == {f: f.read_bytes() for f in out.rglob("*") if f.is_file()}


POLICIES = {
    "fixd(5)": "unknown policy 'fixd' (did you mean fixed?)",
    "fixed(length=-1)": "length must be a whole number",
    "fixed(size=5)": "fixed has no argument 'size'",
    "heuristic(initial=9223372036854775806)": "initial must be at most",
    "svip(h=x)": "svip",
    "svip(h=nan)": "h must be a number",
    "fixed(5": "fixed(5",
    "fixed(1:10)": "is a range",
    "fixed(39)": "Γ",
}


@pytest.mark.parametrize("spec", POLICIES)
def test_replay_policies(spec, tmp_path, capsys):
    trace = tmp_path / "trace"
    trace_files.record(trace, trace_files.trace())
    assert POLICIES[spec] in refused(capsys, "replay", trace, "--policy", spec)
