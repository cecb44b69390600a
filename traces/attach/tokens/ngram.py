"""N-grams: what followed the longest run of last tokens that was seen before."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from traces.attach.tokens.arguments import Given, check_whole, check_word
from traces.attach.tokens.matching import matched
from traces.attach.tokens.proposals import Proposals
from traces.attach.tokens.rule import Lookup
from traces.errors import DrafterError


@dataclass(frozen=True)
class NGram(Lookup):
    """vLLM's n-gram proposer: continue an earlier occurrence of the last n tokens.

    For n from `most` down to `least` it looks in prompt and output for the first (or the last)
    place where the last n tokens occur with at least one token behind them. It drafts up to
    `length` tokens from behind that place, as far as tokens are known. A draft ends *with* an EOS
    token: the engine continues, but nothing behind the EOS is ever emitted. From start i a draft
    has at most T_max - i tokens; vLLM cuts at the model's length.

    llama.cpp's rule is `ngram_simple`.

    Source: vLLM `v1/spec_decode/ngram_proposer.py`, whose `prompt_lookup_min` and `_max` are both 5
    unless they are given.

    Attributes:
        length: largest number of tokens in a draft.
        least: the smallest n.
        most: the largest n.
        which: which occurrence counts, the "first" (as in vLLM) or the "last".
    """

    name: ClassVar[str] = "ngram"
    length: int = 5
    least: int = 5
    most: int = 5
    which: Literal["first", "last"] = "first"

    def __post_init__(self) -> None:
        check_whole(self, "length", 1)
        check_whole(self, "least", 1)
        check_whole(self, "most", 1)
        check_word(self, "which", ("first", "last"))
        if self.least > self.most:
            raise DrafterError(f"ngram: least is {self.least}, more than most, {self.most}")

    @property
    def longest(self) -> int:
        """See `TokenRule`."""
        return self.length

    def drafts(self, given: Given) -> Proposals:
        """See `Lookup`."""
        sizes, leftmost = (self.least, self.most), self.which == "first"
        return matched(given, sizes, leftmost, self.length, with_eos=True)
