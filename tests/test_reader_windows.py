"""The reader of texts and trees on models with windows: each row as an uncached pass gives it."""

import numpy as np
import pytest
import torch
from tiny_models import tiny_model

from traces.record.reader import Reader

MODELS = ("mistral", "gemma2", "gemma3", "qwen3_moe", "llama")  # windows of 8 tokens, but the last
TEXT = [(7 * k) % 60 + 2 for k in range(40)]


def plain(model, text):
    with torch.no_grad():
        return model(torch.tensor([text]), use_cache=False).logits[0, -1]


def close(rows, model, texts):
    for row, text in zip(rows, texts, strict=True):
        torch.testing.assert_close(row, plain(model, text), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("name", MODELS)
def test_a_text_alone_and_a_tree_behind_it(name):
    """Trees, whose slots are no positions: some rows become text, and passes of text follow."""
    model = tiny_model(name)
    reader = Reader(model, 64)
    reader.slots.open()
    text = TEXT[:12]
    close(reader.read([text])[0], model, [text])
    for more in (3, 9, 1):
        nodes = [5, 6, 7, 8]  # two behind the text, two behind the second of them
        sees = np.array([[1, 0, 0, 0], [0, 1, 0, 0], [0, 1, 1, 0], [0, 1, 0, 1]], bool)
        rows = reader.branch(nodes, np.array([0, 0, 1, 1]), sees)
        close(rows, model, [text + t for t in ([5], [6], [6, 7], [6, 8])])
        reader.slots.keep([1, 3])
        text = [*text, 6, 8]
        for token in TEXT[20 : 20 + more]:
            text.append(token)
            close(reader.read([[token]])[0], model, [text])
        reader.slots.cut([len(text) - 2])
        text = [*text[:-2], 9, 10, 11]
        close(reader.read([text[-3:]])[0], model, [text])


@pytest.mark.parametrize("name", MODELS)
def test_texts_that_come_and_go_in_one_cache(name):
    model = tiny_model(name)
    reader = Reader(model, 64)
    reader.slots.begin(3)
    texts = [TEXT[:14], TEXT[3:9], TEXT[5:30]]
    for _ in texts:
        reader.slots.open()
    close(reader.behind(texts), model, texts)
    for k, lengths in enumerate([(1, 1, 1), (4, 1, 2), (1, 12, 1)]):
        blocks = [TEXT[k : k + n] for n in lengths]
        texts = [text + block for text, block in zip(texts, blocks, strict=True)]
        close(reader.behind(blocks), model, texts)
    reader.slots.cut([len(text) - 1 for text in texts])
    reader.slots.close(0)  # the last one's takes its place
    texts = [texts[2][:-1] + [9], texts[1][:-1] + [9]]
    close(reader.behind([[9], [9]]), model, texts)
