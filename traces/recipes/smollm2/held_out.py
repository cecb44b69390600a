"""What is accepted of a drafter's drafts along the greedy answers that are held out."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from traces.recipes.smollm2.teacher import Text, Texts
from traces.recipes.smollm2.vocabulary import answer
from traces.recipes.training.course import acceptance

DEPTH = 8  # tokens of a draft
_TEXTS = 32


@torch.inference_mode()
def held_out(
    texts: Texts, matrix: Tensor, ids: Tensor, propose: Callable[[Text], Tensor]
) -> dict[str, object]:
    """Acceptance by depth, marginal, and overlap β of the first tokens with the model.

    Args:
        texts: those that are held out are asked for.
        matrix: the model's output matrix (V, H).
        ids: of the drafter's vocabulary (D,).
        propose: says the logits (answer's tokens, DEPTH, D) of the drafts that begin at each token
            of a text's answer, each behind the answer's own tokens.
    """
    tables, overlap = [], 0.0
    greedy = [place for place in texts.held if place[1] % 2 == 0]  # as `answers` has them
    for place in greedy[:_TEXTS]:
        text = texts.text(place).to(str(ids.device))
        logits = propose(text).float()
        wanted = F.pad(answer(text), (0, DEPTH - 1), value=-1).unfold(0, DEPTH, 1)
        tables.append((ids[logits.argmax(-1)] == wanted).float())
        states = text.states[text.n_prompt - 1 : -1].to(matrix.dtype)
        p = F.linear(states, matrix).float().softmax(-1)[:, ids]
        overlap += float(torch.minimum(p, logits[:, 0].softmax(-1)).sum())
    table = torch.cat(tables)
    return {**acceptance(table), "overlap": round(overlap / len(table), 4)}
