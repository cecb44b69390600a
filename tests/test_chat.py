"""What surrounds a chat: template arguments, a system prompt, ends of turns, and what is said."""

import json
import shutil

import pytest
import torch
from commands import refused, run
from pair_folders import after_one_shard, pair_folder
from tokenizers import Tokenizer, pre_tokenizers
from tokenizers.models import WordLevel
from transformers import PreTrainedTokenizerFast
from transformers.utils import logging

import simkit
import traces
from traces import RecordError
from traces.describe import describe
from traces.manifest import read_manifest
from traces.record.chat import Chat, end_of_turn, heard, template_hash
from traces.record.generation import Ends, changed_ends

TEMPLATE = (
    "{% if thinks %}w9 {% endif %}{% for m in messages %}{{ m.role }} {{ m.content }} <end> "
    "{% endfor %}{% if add_generation_prompt %}assistant {% endif %}"
)
pytestmark = pytest.mark.filterwarnings("default::traces.errors.SimkitWarning")


def chatty():
    names = ["<unk>", "<eos>", "system", "user", "assistant", "turn"]
    ids = {name: k for k, name in enumerate([*names, *(f"w{k}" for k in range(1, 33)), "<end>"])}
    tokenizer = Tokenizer(WordLevel(ids, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokens = dict(unk_token="<unk>", eos_token="<eos>", additional_special_tokens=["<end>"])
    made = PreTrainedTokenizerFast(tokenizer_object=tokenizer, **tokens)
    made.chat_template = TEMPLATE
    return made


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = pair_folder(tmp_path_factory.mktemp("chat"))
    for name in ("target", "draft"):
        chatty().save_pretrained(root / name)
    chats = [{"messages": [{"role": "user", "content": f"w{k} w3"}]} for k in (1, 2, 3)]
    (root / "chats.jsonl").write_text("\n".join(map(json.dumps, chats)))
    return root


def record(folder, out, *more):
    given = ["--target", folder / "target", "--prompts", folder / "chats.jsonl"]
    return ["record", *given, "--max-new-tokens", 8, "--out", out, *more]


def texts(trace):
    tokenizer = chatty()
    return [
        tokenizer.decode(row) for row in traces.load(trace).sequences["prompt_tokens"].to_pylist()
    ]


def test_arguments_and_a_system_message_for_all_chats(folder, tmp_path, capsys):
    more = ["--system", "w7", "--chat-template-kwargs", '{"thinks": true}']
    assert run(capsys, *record(folder, tmp_path / "a", *more))[0] == 0
    assert texts(tmp_path / "a")[0] == "w9 system w7 <end> user w1 w3 <end> assistant"
    assert run(capsys, *record(folder, tmp_path / "b"))[0] == 0
    assert texts(tmp_path / "b")[0] == "user w1 w3 <end> assistant"
    first, second = (read_manifest(tmp_path / name) for name in "ab")
    assert first.template_sha256 == second.template_sha256 == template_hash(chatty())


def test_a_lines_own_come_first():
    chat = Chat.of('{"a": 1, "b": 2}', "be brief")
    own = [{"role": "system", "content": "own"}]
    made = chat.complete({"messages": own, "chat_template_kwargs": {"a": 3}})
    assert made == {"messages": own, "chat_template_kwargs": {"a": 3, "b": 2}}
    assert chat.complete({"prompt": "text"}) == {"prompt": "text"}


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--chat-template-kwargs", "[1]"], "must be a JSON object"),
        (["--chat-template-kwargs", "{"], "--chat-template-kwargs: not JSON"),
        (["--chat-template-kwargs", '{"unread": 1}'], "the chat template does not read unread"),
        (["--eos", "99"], "--eos 99: not a token id of the vocabulary of 40"),
        (["--eos", "x"], "--eos x: not a token id"),
        (["--eos", "+3", "--eos", "4"], "use one of both"),
        (["--eos", "+3", "--ignore-eos"], "give --ignore-eos or --eos, not both"),
    ],
)
def test_what_is_refused(folder, tmp_path, capsys, more, message):
    assert message in refused(capsys, *record(folder, tmp_path / "out", *more))
    assert not (tmp_path / "out").exists()


def test_chats_alone_are_given_them(folder, tmp_path, capsys):
    given = record(folder, tmp_path / "out", "--system", "w1")
    given[given.index(folder / "chats.jsonl")] = folder / "prompts.jsonl"
    assert "are for prompts of messages" in refused(capsys, *given)


def test_ends_are_added_or_replaced():
    known = Ends((3,), "model")
    assert changed_ends(known, None, 40) == known
    assert changed_ends(known, ["+7"], 40) == ((3, 7), "user")
    assert changed_ends(known, ["7", "5"], 40) == ((5, 7), "user")
    with pytest.raises(RecordError, match="not a token id"):
        changed_ends(known, ["40"], 40)


def test_an_end_of_turn_that_ends_no_output_is_said(folder, tmp_path):
    end = chatty().convert_tokens_to_ids("<end>")
    assert end_of_turn(chatty()) == end
    with pytest.warns(traces.errors.SimkitWarning, match=rf"do not end at 1 \(<eos>\), {end} \(<e"):
        simkit.record(folder / "target", folder / "chats.jsonl", tmp_path / "a", max_new_tokens=8)
    facts = describe(traces.load(tmp_path / "a"))
    outputs = traces.load(tmp_path / "a").sequences["output_tokens"].to_pylist()
    assert facts["other_ends"] == {k: sum(k in row for row in outputs) for k in (1, end)}
    named = dict(eos=[f"+{end}", "+1"], max_new_tokens=8)
    made = simkit.record(folder / "target", folder / "chats.jsonl", tmp_path / "b", **named)
    assert made.eos_token_ids == (0, 1, end)
    assert (made.manifest.eos_from, made.manifest.other_ends) == ("user", ())


def test_a_resume_under_another_template_is_named(folder, tmp_path, capsys, monkeypatch):
    root = tmp_path / "models"
    shutil.copytree(folder, root)
    out = tmp_path / "out"
    with after_one_shard(monkeypatch):
        status, _, said = run(capsys, *record(root, out, "--batch-size", 1))
        assert status == 130
        last = said.splitlines()[-1]
        assert last.startswith("simkit: interrupted: 1 of ")
        assert last.endswith(f"prompts kept; continue with: simkit record --out {out} --resume")
    other = chatty()
    other.chat_template = TEMPLATE.replace("assistant", "w20")
    other.save_pretrained(root / "target")
    status, _, said = run(capsys, "record", "--out", out, "--resume")
    assert status == 2
    assert "begun with another chat template" in said.splitlines()[-1]


def test_memory_that_runs_out_is_a_line(folder, tmp_path, capsys, monkeypatch):
    from traces.record import recorder

    def full(*given, **named):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20 GiB")

    monkeypatch.setattr(recorder, "record_shard", full)
    status, _, said = run(capsys, *record(folder, tmp_path / "out"))
    assert status == 2
    assert said.splitlines()[-1].startswith("simkit: out of memory: a smaller --batch-size")
    assert not (tmp_path / "out").exists()


def test_warnings_of_libraries_are_heard_once():
    logger = logging.get_logger("transformers.of_a_test")
    before = (logger.parent.handlers, logger.parent.level)
    with heard() as said:
        for _ in range(3):
            logger.warning("a  thing\nthat matters")
        logger.info("no matter")
    assert said == ["a thing that matters"]
    assert (logger.parent.handlers, logger.parent.level) == before


def test_warnings_are_kept(folder, tmp_path, capsys, monkeypatch):
    from traces.record import prompts

    cut = prompts.cut

    def warns(*given):
        logging.get_logger("transformers.of_a_test").warning("odd pieces")
        return cut(*given)

    monkeypatch.setattr(prompts, "cut", warns)
    assert run(capsys, *record(folder, tmp_path / "out"))[0] == 0
    assert read_manifest(tmp_path / "out").warned == ("odd pieces",)
    said = run(capsys, "info", tmp_path / "out")[1]
    assert ["warned", "odd", "pieces"] in [line.split() for line in said.splitlines()]
