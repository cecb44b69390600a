"""What a prompts file may hold: each name is read, refused or named; BOS tokens; dates."""

import json
import warnings

import pytest
from tokenizers import Tokenizer, pre_tokenizers
from tokenizers.models import WordLevel
from tokenizers.processors import TemplateProcessing
from transformers import PreTrainedTokenizerFast

from traces.errors import RecordError, SimkitWarning
from traces.record.prompts import cut, read_prompts, rows_of

WORDS = ["<unk>", "<s>", "</s>", "user", "hi", "tool", "page", "think", "today"]
HI = [{"role": "user", "content": "hi"}]
TEMPLATE = (
    "<s> {% for m in messages %}{{ m.role }} {{ m.content }} {% endfor %}"
    "{% for t in tools or [] %}tool {% endfor %}{% for d in documents or [] %}page {% endfor %}"
    "{% if enable_thinking %}think {% endif %}"
)
DATED = (
    TEMPLATE + "{% if day is not defined %}{% set day = strftime_now('%Y') %}{% endif %}{{ day }}"
)


def tokenizer(template=TEMPLATE, adds_bos=True, adds_eos=False):
    words = Tokenizer(WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    single = f"{'<s> ' * adds_bos}$A{' </s>' * adds_eos}"
    words.post_processor = TemplateProcessing(
        single=single, special_tokens=[("<s>", 1), ("</s>", 2)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=words,
        unk_token="<unk>",
        bos_token="<s>",
        eos_token="</s>",
        chat_template=template,
    )


def tokens(row, **options):
    (prompt,) = cut(rows_of([row]), tokenizer(**options), len(WORDS))
    return [WORDS[token] for token in prompt.tokens]


@pytest.mark.parametrize(
    ("row", "text"),
    [
        ({"messages": HI}, "<s> user hi"),
        ({"messages": HI, "tools": None, "documents": []}, "<s> user hi"),
        ({"messages": HI, "tools": [{"type": "function"}]}, "<s> user hi tool"),
        ({"messages": HI, "documents": [{"text": "a"}, {"text": "b"}]}, "<s> user hi page page"),
        ({"messages": HI, "chat_template_kwargs": {"enable_thinking": True}}, "<s> user hi think"),
        ({"messages": HI, "chat_template_kwargs": {"enable_thinking": False}}, "<s> user hi"),
        ({"prompt": "hi", "tools": None, "source": "here", "licence": "MIT"}, "<s> hi"),
        ({"prompt_tokens": [1, 4]}, "<s> hi"),
    ],
)
def test_what_is_read(row, text):
    assert tokens(row) == text.split()


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ({"prompt": "hi", "tools": [{}]}, "tools needs messages"),
        ({"prompt_tokens": [4], "documents": [{}]}, "documents needs messages"),
        (
            {"prompt": "hi", "prompt_token": [4]},
            "unknown name 'prompt_token' (did you mean prompt_t",
        ),
        ({"promt": "hi"}, "unknown name 'promt' (did you mean prompt?)"),
        ({"prompt": "hi", "tasks": "a"}, "unknown name 'tasks' (did you mean task?)"),
        ({"messages": HI, "tool": [{}]}, "unknown name 'tool' (did you mean tools?)"),
        ({"messages": HI, "document": "a"}, "unknown name 'document' (did you mean documents?)"),
        ({"messages": HI, "tools": "a"}, "tools must be a list"),
        ({"messages": HI, "chat_template_kwargs": [1]}, "chat_template_kwargs must be an object"),
        ({"messages": HI, "enable_thinking": True}, "enable_thinking is an argument of the chat"),
        ({"messages": HI, "add_generation_prompt": False}, "add_generation_prompt is an argument"),
        ({"messages": HI, "chat_template_kwargs": {"thinking": 1}}, "does not read thinking"),
        ({"messages": HI, "chat_template_kwargs": {"max_length": 1}}, "does not read max_length"),
    ],
)
def test_what_is_refused(row, says):
    with pytest.raises(RecordError) as refused:
        tokens(row)
    assert str(refused.value).startswith("prompt 1: ") and says in str(refused.value)


def test_a_template_that_reads_no_tools():
    plain = "<s> {% for m in messages %}{{ m.content }}{% endfor %}"
    with pytest.raises(RecordError, match="the chat template does not read tools"):
        tokens({"messages": HI, "tools": [{"type": "function"}]}, template=plain)


def test_what_is_not_read_is_named_once(tmp_path):
    file = tmp_path / "prompts.jsonl"
    rows = [{"prompt": "hi", "question_id": k, "category": "a", "source": "b"} for k in range(3)]
    file.write_text("\n".join(map(json.dumps, rows)))
    with pytest.warns(SimkitWarning) as said:
        read_prompts(file, tokenizer(), len(WORDS))
    message = f"{file}, line 1 and 2 more: not read: category, question_id"
    assert [str(one.message) for one in said] == [message]
    file.write_text(json.dumps({"prompt": "hi", "id\u00a0": 1}))
    with pytest.warns(SimkitWarning, match=r"line 1: not read: 'id\\xa0'$"):
        read_prompts(file, tokenizer(), len(WORDS))


@pytest.mark.parametrize(
    ("row", "options", "says"),
    [
        ({"prompt": "<s> hi"}, {}, "prompt 1: the prompt begins with two BOS tokens (<s>): leave"),
        ({"prompt": "<s> <s> hi"}, {"adds_bos": False}, "prompt begins with two BOS tokens (<s>)"),
        ({"messages": HI}, {"template": "<s> " + TEMPLATE}, "the chat template's text begins with"),
    ],
)
def test_a_doubled_bos_is_refused(row, options, says):
    with pytest.raises(RecordError) as refused:
        tokens(row, **options)
    assert says in str(refused.value)


def test_one_bos_is_fine_and_two_among_token_ids_are_named():
    assert tokens({"prompt": "<s> hi"}, adds_bos=False) == ["<s>", "hi"]
    assert tokens({"messages": HI})[:2] == [
        "<s>",
        "user",
    ]  # the tokenizer adds none to a template's
    with pytest.warns(SimkitWarning, match=r"^prompt 1: prompt_tokens begin with two BOS tokens$"):
        assert tokens({"prompt_tokens": [1, 1, 4]}) == ["<s>", "<s>", "hi"]


def test_an_eos_behind_a_prompt_is_named():
    with pytest.warns(SimkitWarning, match="the tokenizer ends the prompt with EOS"):
        assert tokens({"prompt": "hi"}, adds_eos=True) == ["<s>", "hi", "</s>"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert tokens({"prompt": "hi </s>"}) == ["<s>", "hi", "</s>"]  # the user's own


def test_a_template_that_writes_the_date_is_named():
    with pytest.warns(SimkitWarning, match="prompt 1: the chat template writes today's date"):
        tokens({"messages": HI}, template=DATED)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        given = {"messages": HI, "chat_template_kwargs": {"day": "today"}}
        assert tokens(given, template=DATED)[-1] == "today"
