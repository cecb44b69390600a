"""What is printed of a real model's recordings: perplexity by task, answers as a page."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from smollm2_tiny import VOCAB, tiny_model

from traces.recipes.smollm2 import perplexity, shown


class Decoder:
    """A tokenizer whose tokens are words."""

    def decode(self, tokens, skip_special_tokens):
        return " ".join(f"w{token}" for token in tokens)


def row(name, task, output, prompt=(1, 2), reason="eos"):
    return {
        "id": name,
        "task": task,
        "prompt_tokens": list(prompt),
        "output_tokens": output,
        "n_output": len(output),
        "finish_reason": reason,
    }


class Recording:
    """Outputs whose every token the target gave a probability of one half."""

    def __init__(self, rows):
        self.sequences = self
        self.to_pylist = lambda: rows
        self.manifest = SimpleNamespace(kind="path")
        self.position_offsets = np.cumsum([0, *(row["n_output"] for row in rows)])

    def column(self, table, name):
        assert (table, name) == ("positions", "target_token_prob_raw")
        return np.full(self.position_offsets[-1], 0.5, np.float32)


def test_the_loss_is_that_of_each_token_behind_all_before_it():
    model, prompt, output = tiny_model(1), [5, 6, 7], [8, 9, 3, 2]
    wanted = 0.0
    for n, token in enumerate(output):
        with torch.no_grad():
            logits = model(torch.tensor([prompt + output[:n]])).logits[0, -1]
        wanted -= float(logits.double().log_softmax(-1)[token])
    assert perplexity.loss(model, prompt, output) == pytest.approx(wanted, rel=1e-5)


def test_tasks_are_summed_over_tokens_and_stand_in_order():
    model = tiny_model(1)
    rows = [row("a", "x", [3, 4, 5]), row("b", "y", [6]), row("c", "x", [7, 8])]
    found = perplexity.by_task(Recording(rows), model)
    one = sum(perplexity.loss(model, r["prompt_tokens"], r["output_tokens"]) for r in rows[::2])
    assert (found["x"].prompts, found["x"].tokens) == (2, 5)
    assert found["x"].perplexities == pytest.approx([2.0, math.exp(one / 5)])
    lines = list(perplexity.table(found, ["target", "draft"]))
    assert lines[0] == "| task | prompts | tokens | target | draft |"
    assert lines[-1].startswith("| all | 3 | 6 |")
    values = [float(line.split("|")[-2]) for line in lines[2:-1]]
    assert values == sorted(values) and all(0 < value < 10 * VOCAB for value in values)


def test_a_page_shows_some_answers_of_every_task(monkeypatch):
    monkeypatch.setattr(shown, "N_SHOWN", 3)
    rows = [row("b-2", "b", [1]), row("b-1", "b", [2, 3], reason="length"), row("a-1", "a", [4])]
    asked = {r["id"]: [{"role": "user", "content": "?" * 600 + "```x```"}] for r in rows}
    page = shown.page(shown.answers(rows, asked, Decoder()))
    assert [line[3:] for line in page.splitlines() if line.startswith("## ")] == [
        "a: a-1",
        "b: b-1",
        "b: b-2",
    ]
    assert "w2 w3" in page and "2 tokens, cut at the longest output:" in page
    assert "… (107 characters more)" in page
    monkeypatch.setattr(shown, "N_SHOWN", 2)
    assert [r["id"] for r in shown.chosen(rows)] == ["a-1", "b-1"]


def test_a_text_with_fences_is_quoted_whole():
    assert shown.quoted("a\n```py\nb\n```") == "````text\na\n```py\nb\n```\n````"
    assert shown.cut(" short ", 9) == "short"
