"""Keyed draws beside a decoder whose time is taken: all that no engine does for its draws.

An engine has random numbers at hand; keyed ones are hashed (`traces.record.draws`). It draws a
token that was not drafted from p; with keyed draws that token is what drafting it and verifying it
would give, so that q must be known there, too. Both happen here, before a verification, and the
decoder leaves the time of it out. What it does with the numbers (the races, the test of a draft)
stays its own, and is timed.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from simkit.live.settings import DecoderSettings
from traces.record import draws
from traces.record.reader import Reader
from traces.record.statistics import LogitRows, at, draft_rows, draft_token, residual


class Ahead(NamedTuple):
    """What must be known before γ drafted tokens are verified; the last row is behind the draft.

    Attributes:
        tokens: (γ + 1,), the draft's.
        own: the last of them, which the decoder did not draft.
        q: (γ + 1, V), processed.
        accept: (γ + 1,) uniforms.
        correction: (γ + 1, V) uniforms of the corrections' races.
    """

    tokens: Tensor
    own: int
    q: Tensor
    accept: Tensor
    correction: Tensor

    def verify(self, p: LogitRows) -> tuple[int, int]:
        """How many of the γ tokens are accepted, and the output's token behind those.

        A draw is made even where the token behind a whole draft needs none: engines draw there.

        Args:
            p: the target's γ + 1 rows.
        """
        passed = self.accept < at(p.processed, self.tokens) / at(self.q, self.tokens)
        count = int(passed.long().cumprod(0).sum())
        accepted = min(count, len(self.tokens) - 1)
        rest = residual(p.processed[accepted], self.q[accepted])
        drawn = int(draws.winner(rest, self.correction[accepted]))
        return accepted, self.own if count == len(self.tokens) else drawn


class Keyed:
    """The keys of one text, and a reader of its own, which leaves the decoder's draft as it is.

    Args:
        reader: of the draft model; it is always read up to the text, one pass a step.
        settings: sampler and seed.
        device: where p is.
    """

    def __init__(self, reader: Reader, settings: DecoderSettings, device: torch.device) -> None:
        self.reader, self.settings, self.device = reader, settings, device

    def begin(self, sequence: int) -> None:
        """Start a new text."""
        self.reader.slots.begin()
        self.reader.slots.open()
        number = torch.tensor([sequence], device=self.device)
        self._keys = [draws.first_key(self.settings.seed, number)]  # behind 0, 1, … drafted tokens

    def noise(self, draft: list[int]) -> Tensor | None:
        """Uniforms (1, V) of the race for the token behind a draft; None if q is a point mass."""
        if self.settings.sampler.q_temperature == 0:
            return None
        return draws.uniforms(self._key(draft), draws.DRAFT, self.reader.vocab_size)

    def ahead(self, text: list[int], draft: list[int], q: list[LogitRows]) -> Ahead:
        """Read the draft model up to the end of a draft, and hash the verification's numbers.

        Args:
            text: prompt and output.
            draft: γ tokens.
            q: of each.
        """
        logits = self.reader.read([[*text, *draft][self.reader.lengths[0] :]])[0].to(self.device)
        last, key = draft_rows(logits, self.settings.sampler), self._key(draft)
        own = int(draft_token(last, key))
        keys = torch.cat(self._keys[: len(draft) + 1])
        return Ahead(
            torch.tensor([*draft, own], device=self.device),
            own,
            torch.cat([rows.processed for rows in (*q, last)]),
            draws.uniform(keys),
            draws.uniforms(keys, draws.CORRECTION, self.reader.vocab_size),
        )

    def advance(self, text: list[int], emitted: list[int]) -> None:
        """The text has grown: take back what was read of rejected tokens, keep the next key.

        Args:
            text: with what is new.
            emitted: what is new: the front of the draft, and one token more.
        """
        self.reader.slots.cut([len(text) - 1])
        del self._keys[len(emitted) :]
        self._keys = [self._key(emitted)]

    def _key(self, draft: list[int]) -> Tensor:
        """The key behind a draft, whose front is the draft that was asked for before."""
        while len(self._keys) <= len(draft):
            token = torch.tensor([draft[len(self._keys) - 1]], device=self.device)
            self._keys.append(draws.next_key(self._keys[-1], token))
        return self._keys[len(draft)]
