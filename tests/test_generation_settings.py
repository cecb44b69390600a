"""The target's own generation settings: which are set aside, and where outputs end."""

import json
import shutil
from dataclasses import replace
from datetime import datetime
from types import SimpleNamespace
from typing import Any

import pytest
from commands import refused, run
from test_bad_input import pair, record  # noqa: F401
from transformers import GenerationConfig
from transformers.utils import chat_template_utils

from traces.differences import refusal
from traces.manifest import Manifest, read_manifest
from traces.record import header
from traces.record.generation import ends, set_aside
from traces.sampler import Sampler

pytestmark = pytest.mark.filterwarnings("default::traces.errors.SimkitWarning")
GREEDY, SAMPLED = Sampler(), Sampler(0.7, top_k=20, top_p=0.8)
SAMPLES = {"do_sample": True, "temperature": 0.7, "top_k": 20, "top_p": 0.8}


def target(**settings) -> Any:
    return SimpleNamespace(generation_config=GenerationConfig(**settings))


@pytest.mark.parametrize(
    ("settings", "sampler", "aside"),
    [
        ({}, GREEDY, ""),
        ({"do_sample": False, "temperature": 0.6, "top_p": 0.9}, GREEDY, ""),
        ({"do_sample": False}, SAMPLED, ""),
        (SAMPLES, SAMPLED, ""),
        (SAMPLES, GREEDY, "do_sample=true temperature=0.7 top_k=20 top_p=0.8"),
        (SAMPLES | {"temperature": 0.6}, SAMPLED, "temperature=0.6"),
        ({"temperature": 0.6}, SAMPLED, "temperature=0.6"),
        ({"repetition_penalty": 1.0, "num_beams": 1, "no_repeat_ngram_size": 0}, GREEDY, ""),
        ({"repetition_penalty": 1.05}, SAMPLED, "repetition_penalty=1.05"),
        ({"num_beams": 4, "length_penalty": 2.0}, GREEDY, "length_penalty=2.0 num_beams=4"),
        ({"min_p": 0.1, "typical_p": 0.9}, SAMPLED, "min_p=0.1 typical_p=0.9"),
        ({"no_repeat_ngram_size": 3, "min_length": 1}, GREEDY,
         "min_length=1 no_repeat_ngram_size=3"),
        ({"suppress_tokens": [5], "begin_suppress_tokens": [6]}, GREEDY,
         "begin_suppress_tokens=[6] suppress_tokens=[5]"),
        ({"forced_eos_token_id": 2, "forced_bos_token_id": 1}, GREEDY,
         "forced_bos_token_id=1 forced_eos_token_id=2"),
        ({"a_setting_of_tomorrow": 0.5}, GREEDY, "a_setting_of_tomorrow=0.5"),
        ({"max_new_tokens": 9, "max_length": 20, "eos_token_id": 2, "pad_token_id": 0,
          "use_cache": True, "num_assistant_tokens": 5, "output_scores": True}, GREEDY, ""),
    ],
)  # fmt: skip
def test_what_is_set_aside(settings, sampler, aside):
    assert " ".join(set_aside(target(**settings), sampler)) == aside


def test_long_values_are_cut():
    (said,) = set_aside(target(suppress_tokens=list(range(99))), GREEDY)
    assert said.startswith("suppress_tokens=[0, 1, 2, ") and said.endswith("…") and len(said) < 80


@pytest.mark.parametrize(
    ("model", "tokenizer", "ids", "source"),
    [
        (3, 9, (3,), "model"),
        ([5, 3], 9, (3, 5), "model"),
        (None, 9, (9,), "tokenizer"),
        (None, None, (), "model"),
    ],
)
def test_where_outputs_end(model, tokenizer, ids, source):
    found = ends(target(eos_token_id=model), SimpleNamespace(eos_token_id=tokenizer))
    assert found == (ids, source)


def changed(pair, tmp_path, settings, tokenizer=None):  # noqa: F811
    """A copy of the pair with other generation settings, and with a tokenizer without EOS."""
    for name in ("target", "draft"):
        shutil.copytree(pair / name, tmp_path / name)
    config = json.loads((tmp_path / "target" / "config.json").read_text())
    config["eos_token_id"] = settings.get("eos_token_id")
    (tmp_path / "target" / "config.json").write_text(json.dumps(config))
    (tmp_path / "target" / "generation_config.json").write_text(json.dumps(settings))
    if tokenizer is not None:
        for name in ("target", "draft"):
            file = tmp_path / name / "tokenizer_config.json"
            file.write_text(json.dumps(json.loads(file.read_text()) | tokenizer))
    (tmp_path / "prompts.jsonl").write_text('{"prompt": "def f(x):"}\n')
    return tmp_path


def recorded(folder, capsys):
    """What stderr says of a recording, its manifest's text, and what `info` says of it."""
    ended, _, said = run(capsys, *record(folder, folder / "trace"))
    assert ended == 0
    ended, out, _ = run(capsys, "info", folder / "trace")
    assert ended == 0
    text = (folder / "trace" / "manifest.json").read_text()
    return said, json.loads(text), " ".join(out.split())


def test_settings_are_named_and_kept(pair, tmp_path, capsys):  # noqa: F811
    settings = {"eos_token_id": 0, "repetition_penalty": 1.1, "do_sample": True, "temperature": 0.6}
    aside = "do_sample=true, repetition_penalty=1.1, temperature=0.6"
    said, manifest, info = recorded(changed(pair, tmp_path, settings), capsys)
    assert f"simkit: not applied: the target's generation_config asks for {aside}\n" in said
    assert ", ".join(manifest["set_aside"]) == aside and "eos_from" not in manifest
    assert f"not applied the target's generation_config asks for {aside}" in info
    assert read_manifest(tmp_path / "trace").set_aside == tuple(manifest["set_aside"])


def test_nothing_is_said_where_nothing_is_aside(pair, tmp_path, capsys):  # noqa: F811
    said, manifest, info = recorded(changed(pair, tmp_path, {"eos_token_id": 0}), capsys)
    assert "not applied" not in said + info and "EOS" not in said + info
    assert not {"set_aside", "eos_from"} & manifest.keys()


def test_eos_of_the_tokenizer(pair, tmp_path, capsys):  # noqa: F811
    said, manifest, info = recorded(changed(pair, tmp_path, {}), capsys)
    assert "name no EOS token: outputs end at the tokenizer's, 0" in said
    assert (manifest["eos_token_ids"], manifest["eos_from"]) == ([0], "tokenizer")
    assert "outputs end at the tokenizer's EOS, 0: the target's generation settings name" in info


def test_no_eos_at_all(pair, tmp_path, capsys):  # noqa: F811
    said, manifest, info = recorded(changed(pair, tmp_path, {}, {"eos_token": None}), capsys)
    assert "name an EOS token: outputs end by length only" in said
    assert (manifest["eos_token_ids"], "eos_from" in manifest) == ([], False)
    assert "outputs end by length only" in info


BEGUN = Manifest(4, 8, libraries={"torch": "2.13.0", "numpy": "2.3"}, device="a, 2 threads",
                 prompts_sha256="1", seed=3)  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({}, None),
        ({"libraries": {"torch": "2.14.0", "numpy": "2.3"}}, "versions (torch 2.13.0 → 2.14.0)"),
        ({"libraries": {"torch": "2.14.0"}}, "versions (numpy 2.3 → None, torch 2.13.0 → 2.14.0)"),
        ({"device": "a, 4 threads"}, "was begun on another device (device is a, 2 threads there"),
        ({"prompts_sha256": "2"}, "was begun with other prompts (their token ids differ)"),
        ({"seed": 4}, "the output folder holds another trace: seed is 3 there, 4 here"),
        ({"set_aside": ("num_beams=4",)}, 'set_aside is [] there, ["num_beams=4"] here'),
    ],
)
def test_why_a_recording_does_not_go_on(changes, says):
    why = refusal(BEGUN, replace(BEGUN, **changes))
    assert why is None if says is None else says in why
    assert ("another trace" in (why or "")) == bool(changes.keys() & {"seed", "set_aside"})


def test_another_library_is_named_at_the_command(pair, tmp_path, capsys, monkeypatch):  # noqa: F811
    folder = changed(pair, tmp_path, {"eos_token_id": 0})
    recorded(folder, capsys)
    real = header.library_versions
    monkeypatch.setattr(header, "library_versions", lambda *a: real(*a) | {"torch": "9.9"})
    line = refused(capsys, *record(folder, folder / "trace"), "--resume")
    assert "begun with other library versions (torch 2" in line and "→ 9.9)" in line


def test_another_day_is_named(pair, tmp_path, capsys, monkeypatch):  # noqa: F811
    template = "{% for m in messages %}{{ m.content }}{% endfor %} {{ strftime_now('%Y') }}"
    folder = changed(pair, tmp_path, {"eos_token_id": 0})
    (folder / "target" / "chat_template.jinja").write_text(template)
    row = {"messages": [{"role": "user", "content": "def f(x):"}]}
    (folder / "prompts.jsonl").write_text(json.dumps(row))
    said, *_ = recorded(folder, capsys)
    assert "prompts.jsonl, line 1: the chat template writes today's date" in said
    another = SimpleNamespace(now=lambda: datetime(1999, 1, 1))
    monkeypatch.setattr(chat_template_utils, "datetime", another)
    ended, _, said = run(capsys, *record(folder, folder / "trace"), "--resume")
    assert ended == 2 and "writes today's date into 1 of 1 prompt. Give the date" in said
