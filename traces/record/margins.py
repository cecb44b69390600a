"""How close a model's likeliest tokens are: why another program's greedy output may part here."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch

from traces.record.pair import load_model, quiet
from traces.record.statistics import rounding


class Margin(NamedTuple):
    """What a model says of the next token.

    Attributes:
        best: the likeliest token.
        gap: nats by which it is likelier than the second one.
        below: nats by which it is likelier than the token that was asked about; NaN for none.
        is_tie: whether that (or the gap, if no token was asked about) is within rounding.
        best_of_ten: probability of the likeliest token among the ten likeliest.
        probability: of the likeliest token.
    """

    best: int
    gap: float
    below: float
    is_tie: bool
    best_of_ten: float
    probability: float


class NextToken:
    """A model that is asked for the next token of a text; loaded when it is first asked."""

    def __init__(self, folder: str | Path) -> None:
        self._folder, self._model = str(folder), None

    def __call__(self, text: Sequence[int], token: int | None = None) -> Margin:
        """What it says behind a text.

        Args:
            text: token ids, one at least.
            token: to be asked about.

        Raises:
            RecordError: the model cannot be loaded.
        """
        if self._model is None:
            quiet()
            self._model = load_model(self._folder, "", "cpu", "float32").eval()
        with torch.inference_mode():
            logits = self._model(torch.tensor([list(text)])).logits[0, -1:]
        values, ids = logits.double().topk(10, -1)
        gap = float(values[0, 0] - values[0, 1])
        below = float("nan")
        if token is not None:
            below = float(values[0, 0] - logits[0, token].double())
        apart = gap if token is None else below
        return Margin(
            best=int(ids[0, 0]),
            gap=gap,
            below=below,
            is_tie=apart <= float(rounding(logits)[0]),
            best_of_ten=float(values.softmax(-1)[0, 0]),
            probability=float(logits.double().softmax(-1)[0, ids[0, 0]]),
        )
