"""Ask a head while decoding."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from simkit.heads.files import Head, check_width, load
from simkit.heads.starts import StartHead


class PlainScorer:
    """Scores a draft token as `simkit score` does from a recording, one at a time.

    States are rounded to float16 first and the score last, as they are stored. What may still
    differ is the last bit: a batch sums in another order (`python -m benchmarks.heads --live`).

    Args:
        head: or its file.
        device: where it runs.

    Raises:
        HeadError: its file is wrong.
    """

    def __init__(self, head: Head | str | Path, device: str | torch.device = "cpu") -> None:
        self.head = head if isinstance(head, Head) else load(head)
        self.module = self.head.network(device)
        weight = next(self.module.parameters())
        self.device, self.dtype = weight.device, weight.dtype

    @property
    def lag(self) -> int:
        """See `Head`."""
        return self.head.lag

    def score(self, states: Tensor, n_prefix: int) -> float:
        """The probability that a token, and in PACER's case all before it, are accepted.

        The token is the newest, or the one before it if the head has a lag: the newest state is the
        first one that has consumed that token.

        Args:
            states: (n, H) of the prompt (its first token has none), the output, and this draft:
                states[i] is the one from which the i-th of these tokens was drawn.
            n_prefix: how many of them stand before the draft; its newest token's depth is
                n - n_prefix.

        Raises:
            HeadError: another width.
        """
        check_width(self.head, states.shape[-1], "this pair")
        with torch.inference_mode():
            if isinstance(self.module, StartHead):
                rows = states.half().to(self.device, self.dtype)
                index = torch.arange(n_prefix, len(rows), device=self.device)[None]
                prefix = torch.tensor([n_prefix], device=self.device)
                logit = self.module(rows, index, prefix)[0, -1]
            else:
                logit = self.module(states[-1:].half().to(self.device, self.dtype))[0]
            return float(logit.sigmoid().float().half())
