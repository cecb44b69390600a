"""Branches of a draft that takes no masks: each goes on from a clone of its text's state.

A text is read once more, token by token; before each rejected token its state is cloned, and the
clone reads the branch. This takes a pass a depth of each group of branches where clones can be
joined, else one a row, where packed passes take one a depth of all branches of a batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from traces.record.forward import Forward
from traces.record.own_texts import OwnText
from traces.record.path import Path
from traces.record.proof_own import Way

if TYPE_CHECKING:
    from traces.record.branches import BranchGroup, Feed

MOST_CLONES = 32  # at once, of a whole batch: each holds what a text leaves


class Rolled:
    """The texts of a batch, read as far as the branches of the last group begin.

    Args:
        draft: whose cache stays empty.
        prompts: token ids.
        path: their outputs.
        way: how the draft is read, joined or single.
    """

    def __init__(self, draft: Forward, prompts: list[list[int]], path: Path, way: Way) -> None:
        self._draft, self._prompts, self._is_joined = draft, prompts, way is Way.joined
        self._outputs = path.columns["target_token"]
        self._texts = [OwnText(draft.model) for _ in prompts]

    @property
    def most(self) -> int:
        """Branches of a sequence in a group, at most."""
        return max(1, MOST_CLONES // len(self._prompts))

    def feed(self, group: BranchGroup) -> Feed:
        """What reads on in the branches of a group; groups come by ascending positions."""
        there = group.length > 0
        places = zip(*there.nonzero().T.tolist(), group.position[there].tolist(), strict=True)
        texts = [self._before(row, position) for row, _, position in places]
        if self._is_joined and texts:
            texts = [OwnText.joined(texts)]

        def feed(token: Tensor, depth: int, alive: Tensor) -> Tensor:
            tips, live = token[there][:, None], alive[there]
            if self._is_joined:
                return self._draft.common(texts[0].read(tips)[live])
            rows = [texts[k].read(tips[k : k + 1]) for k in live.nonzero()[:, 0].tolist()]
            return self._draft.common(torch.cat(rows))

        return feed

    def _before(self, row: int, position: int) -> OwnText:
        """A clone of a text that is read up to the token at a 1-based position of its output."""
        text, prompt = self._texts[row], self._prompts[row]
        if not text.lengths[0]:
            text.read(torch.tensor([prompt]))
        for k in range(text.lengths[0] - len(prompt), position - 1):
            text.read(self._outputs[row, k].reshape(1, 1))
        return text.clone()
