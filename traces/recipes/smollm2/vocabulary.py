"""The reduced vocabulary of drafters of this model: the tokens that its answers have most often."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from traces.recipes.smollm2.teacher import Place, Text, Texts


@dataclass(frozen=True)
class ReducedVocabulary:
    """D ids of the model's V, which rise.

    Attributes:
        ids: int64 (D,).
        place: int64 (V,), where an id stands among them; -1 for one that does not.
    """

    ids: Tensor
    place: Tensor

    def to(self, device: str) -> ReducedVocabulary:
        """The same on a device."""
        return ReducedVocabulary(self.ids.to(device), self.place.to(device))

    def wanted(self, text: Text) -> tuple[Tensor, Tensor]:
        """What is said of the kept ids behind each token of a text.

        Returns:
            places int64 and probabilities float32 (L, KEPT), which sum to 1; those of other ids
            are 0.
        """
        places = self.place[text.ids]
        probs = text.probs * (places >= 0)
        return places.clamp_min(0), probs / probs.sum(-1, keepdim=True).clamp_min(1e-6)

    def covered(self, texts: Texts, places: list[Place]) -> float:
        """Share of some texts' answer tokens that are in it."""
        tokens = torch.cat([answer(texts.text(place)) for place in places])
        return float((self.place[tokens] >= 0).float().mean())


def answer(text: Text) -> Tensor:
    """The tokens of a text's answer."""
    return text.tokens[text.n_prompt :]


def commonest(texts: Texts, n_ids: int, n_rows: int) -> ReducedVocabulary:
    """The ``n_ids`` tokens of ``n_rows`` that the answers to train on have most often."""
    counts = torch.zeros(n_rows, dtype=torch.long)
    for place in texts.train:
        counts += torch.bincount(answer(texts.text(place)), minlength=n_rows)
    ids = counts.sort(descending=True, stable=True).indices[:n_ids].sort().values
    place = torch.full((n_rows,), -1)
    place[ids] = torch.arange(len(ids))
    return ReducedVocabulary(ids, place)
