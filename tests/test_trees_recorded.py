"""A recorder of trees writes the rows that `plain_trees.record` does, of a made-up draft."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from plain_trees import Path, Study, Toy
from test_trees_plain import outputs_of, recorded, studies

from traces.record.drafters.nodes import Nodes
from traces.record.drafters.texts import groups, make_texts
from traces.record.drafters.trees import Planter, said
from traces.trees import shapes

KEYS = ("sequence", "start", "node", "parent", "depth", "rank", "token", "on_path")
NUMBERS = ("log_prob", "draft_entropy", "draft_top1_prob")


class ToyNodes(Nodes):
    """A made-up draft as a recorder asks it; `starts` are (output, position) of each tree."""

    def __init__(self, toy: Toy, starts: list[tuple[Path, int]]) -> None:
        self.toy, self.starts = toy, starts
        self.texts: list[Path] = [()] * len(starts)

    def roots(self) -> torch.Tensor:
        return torch.stack([self._logits(tree, ()) for tree in range(len(self.starts))])

    def below(self, tree, parent, token, depth) -> torch.Tensor:
        above = [self.texts[k] for k in parent.tolist()]
        self.texts = [(*text, y) for text, y in zip(above, token.tolist(), strict=True)]
        assert {len(text) for text in self.texts} == {depth}
        pairs = zip(tree.tolist(), self.texts, strict=True)
        return torch.stack([self._logits(*pair) for pair in pairs])

    def _logits(self, tree: int, text: Path) -> torch.Tensor:
        output, i = self.starts[tree]
        found = torch.empty(self.toy.vocab, dtype=torch.float64)
        for token, log_prob in self.toy.said(i, (*output[: i - 1], *text)):
            found[token] = log_prob
        return found


def planted(study: Study) -> dict[str, np.ndarray]:
    prompts = [[1] * (2 + s) for s in range(len(study.outputs))]
    texts = make_texts(prompts, [list(output) for output in study.outputs])
    known = [shapes.parse(spec) for spec in study.shapes]
    planter = Planter(texts, known, study.toy.eos, study.t_max, None)
    parts = []
    for group in groups(texts, 2 * planter.width, study.toy.vocab):
        sequence, start = group.alive.nonzero(as_tuple=True)[0], group.start[group.alive]
        pairs = zip(sequence.tolist(), start.tolist(), strict=True)
        starts = [(study.outputs[s], i) for s, i in pairs]
        parts.append(planter.plant(group, ToyNodes(study.toy, starts)))
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


@settings(max_examples=100, deadline=None)
@given(study=studies())
def test_the_rows_are_the_same(study):
    expected, got = recorded(study), planted(study)
    for name in KEYS:
        np.testing.assert_array_equal(got[name], expected.column("tree", name), name)
    for name in NUMBERS:
        np.testing.assert_allclose(got[name], expected.column("tree", name), 1e-5, 1e-6, name)


@pytest.mark.parametrize("vocab", [40, 5000])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_of_equal_tokens_those_of_the_lowest_ids_are_children(vocab, dtype):
    """Also where the last child is as likely as the first token that is none."""
    rng = np.random.default_rng(vocab)
    logits = torch.tensor(rng.integers(0, 3, (50, vocab)), dtype=dtype)
    found = said(logits, 4, None)
    for row, tokens in zip(logits.tolist(), found.token.tolist(), strict=True):
        assert tokens == sorted(range(vocab), key=lambda k: (-row[k], k))[:4]


def test_groups_of_starts_make_no_difference():
    """Outputs of more starts than one group has."""
    toy = Toy(5, vocab=3, eos=())
    study = Study(toy, outputs_of(toy, 40, 1, 0.8, 2), 40, ("eagle2(top_k=2, depth=2)",), 2, 3)
    expected, got = recorded(study), planted(study)
    for name in KEYS:
        np.testing.assert_array_equal(got[name], expected.column("tree", name), name)
