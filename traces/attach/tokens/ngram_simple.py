"""llama.cpp's n-grams: what followed the last tokens where they stood last."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from traces.attach.tokens.arguments import Given, check_whole
from traces.attach.tokens.matching import cut, latest
from traces.attach.tokens.proposals import Proposals, Slices
from traces.attach.tokens.rule import Lookup


@dataclass(frozen=True)
class NGramSimple(Lookup):
    """llama.cpp's `--spec-type ngram-simple`: continue an earlier occurrence of the last n tokens.

    It takes the last place in prompt and output where the last n tokens occur. The place may not be
    the very first token, nor one with only the token behind it that was sampled last. The draft is
    up to m tokens from behind that place, without that last token. If they are fewer than n, there
    is no draft; nor is there one before n + m + 3 tokens are known. A draft ends *with* an EOS
    token: the engine continues, but nothing behind the EOS is ever emitted. From start i a draft
    has at most T_max - i tokens.

    Source: llama.cpp `common/ngram-map.cpp`, `common_ngram_simple_draft`, build 11434.

    Attributes:
        n: number of tokens to look for, llama.cpp's `--spec-ngram-simple-size-n`.
        m: largest number of tokens in a draft, `--spec-ngram-simple-size-m`.
    """

    name: ClassVar[str] = "ngram_simple"
    n: int = 12
    m: int = 48

    def __post_init__(self) -> None:
        check_whole(self, "n", 1, 1024)
        check_whole(self, "m", 1, 1024)

    @property
    def longest(self) -> int:
        """See `TokenRule`."""
        return self.m

    def drafts(self, given: Given) -> Proposals:
        """See `Lookup`."""
        ends = latest(given.text, self.n)  # of the match before each number of known tokens
        known = np.arange(given.n_prompt, len(given.text))
        end = ends[known]
        # The tokens that are searched lack the last one: a match right before it does not count,
        # and the one before that match is the same n-gram's.
        end = np.where(end == known - 1, ends[end], end)
        behind = np.minimum(known - 1 - end, self.m)
        some = (end > self.n) & (behind >= self.n) & (known >= self.n + self.m + 3)
        begins = np.where(some, end, 0).astype(np.int32)
        lengths, accepted = cut(given, begins, self.m, True)
        lengths = np.minimum(lengths, np.where(some, behind, 0)).astype(np.int32)
        return Slices(lengths, np.minimum(accepted, lengths), None, given.text, begins)
